// SPDX-License-Identifier: Apache-2.0

package contexts

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/localfile"
)

func TestUpdate(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "clusterctl", "config.yaml")
	want := Context{Name: "prod", URL: "https://manager:9443", Fingerprint: "sha256:00", Token: "secret"}

	if f, err := Load(path); err != nil || len(f.Contexts) > 0 {
		t.Errorf("a missing file: %+v, %v", f, err)
	}

	for _, c := range []Context{{Name: "prod", URL: "https://old"}, want, {Name: "lab", URL: "https://lab"}} {
		errtest.None(t, Update(path, func(f *File) error { f.Set(c); f.Current = c.Name; return nil }))
	}

	f, err := Load(path)
	if err != nil || f.Current != "lab" || len(f.Contexts) != 2 {
		t.Fatalf("%+v, %v", f, err)
	}
	if got, err := f.Get("prod"); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}

	if got := f.Names(); !slices.Equal(got, []string{Local, "lab", "prod"}) {
		t.Errorf("%q", got)
	}

	if _, err := f.Get("prd"); inventory.KindOf(err) != inventory.KindNotFound ||
		!strings.Contains(err.Error(), "prod") {
		t.Errorf("a wrong name: %v", err)
	}

	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}

	// A refused change leaves the file as it is.
	refused := errors.New("refused")
	if err := Update(path, func(f *File) error { f.Remove("lab"); return refused }); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}

	errtest.None(t, Update(path, func(f *File) error { f.Remove("prod"); return nil }))

	if f, err := Load(path); err != nil || f.Current != "lab" || len(f.Contexts) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"contexts: [{name: a, url: b, tokn: c}]\n": "tokn",
		"contexts: [{name: local, url: b}]\n":      "stands for the manager on this host",
		"contexts: [{name: \"a b\", url: b}]\n":    "is no name of a context",
		"contexts: {":                              "config.yaml",
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		errtest.None(t, os.WriteFile(path, []byte(text), 0o600))

		if _, err := Load(path); inventory.KindOf(err) != inventory.KindInvalid ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}

	path := filepath.Join(t.TempDir(), "config.yaml")
	errtest.None(t, os.WriteFile(path, nil, 0o640))

	if _, err := Load(path); inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("an open file: %v", err)
	}
}

func TestLocked(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()

	unlock, err := localfile.Lock(dir, ".lock")
	errtest.None(t, err)
	defer unlock()

	err = Update(filepath.Join(dir, "config.yaml"), func(*File) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "another clusterctl") {
		t.Errorf("%v", err)
	}
}
