// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestChanged names each file that an edit adds, removes or changes.
func TestChanged(t *testing.T) {
	t.Parallel()

	s, dir := &Store{Dir: filepath.Join(t.TempDir(), "kept")}, t.TempDir()
	write := func(name, text string) {
		t.Helper()
		errtest.None(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		errtest.None(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}

	write("site.yml", "a")
	write("stays.yml", "a")
	write(`odd "name".yml`, "a")
	then := keep(t, s, dir)

	write("site.yml", "b")
	write("roles/web/main.yml", "a")
	errtest.None(t, os.Remove(filepath.Join(dir, `odd "name".yml`)))
	errtest.None(t, os.Symlink("site.yml", filepath.Join(dir, "link.yml")))
	now := keep(t, s, dir)

	changed, err := s.Changed(t.Context(), then, now)
	errtest.None(t, err)

	want := []string{"link.yml", `odd "name".yml`, "roles", "roles/web", "roles/web/main.yml", "site.yml"}
	if !slices.Equal(changed, want) {
		t.Errorf("changed: %q, want %q", changed, want)
	}

	if changed, err = s.Changed(t.Context(), now, now); err != nil || len(changed) != 0 {
		t.Errorf("nothing has changed: %q, %v", changed, err)
	}

	for _, lost := range []string{strings.Repeat("0", 64), "../x"} {
		if _, err = s.Changed(t.Context(), lost, now); inventory.KindOf(err) != inventory.KindNotFound {
			t.Errorf("%s: %v", lost, err)
		}
	}
}
