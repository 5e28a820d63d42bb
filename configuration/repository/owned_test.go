// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestCheckOwned changes one file or folder at a time, and expects the folder of
// playbooks to be refused with its name and a remedy.
func TestCheckOwned(t *testing.T) {
	t.Parallel()

	const site, roles, task, above = "a/books/site.yml", "a/books/roles", "a/books/roles/x/tasks/main.yml", "a"

	for _, c := range []struct {
		name, path string
		mode       os.FileMode
		owner      int
		want       string // "": accepted
	}{
		{name: "as it is"},
		{name: "the folder", path: "a/books", mode: 0o775, want: "(mode 0775)"},
		{name: "a playbook", path: site, mode: 0o664, want: "site.yml (mode 0664)"},
		{name: "a folder in it", path: roles, mode: 0o757, want: "roles (mode 0757)"},
		{name: "a file below", path: task, mode: 0o666, want: "main.yml (mode 0666)"},
		{name: "sticky itself", path: "a/books", mode: os.ModeSticky | 0o777, want: "(mode 0777)"},
		{name: "above", path: above, mode: 0o777, want: "/a (mode 0777)"},
		{name: "above, sticky", path: above, mode: os.ModeSticky | 0o777},
		{name: "unreadable for others", path: "a/books", mode: 0o700},
		{name: "another owner", path: site, mode: 0o644, owner: 4711, want: "belongs to uid 4711"},
		{name: "another owner above", path: above, mode: 0o755, owner: 4711, want: "belongs to uid 4711"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			if c.owner != 0 && os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}

			top := t.TempDir()
			must := func(err error) {
				t.Helper()

				if err != nil {
					t.Fatal(err)
				}
			}

			must(os.MkdirAll(filepath.Join(top, filepath.Dir(task)), 0o755))
			must(os.WriteFile(filepath.Join(top, task), nil, 0o600))
			must(os.WriteFile(filepath.Join(top, site), nil, 0o600))
			must(os.Symlink("site.yml", filepath.Join(top, "a/books/link.yml")))
			must(os.Symlink("a/books", filepath.Join(top, "link")))

			if c.path != "" {
				must(os.Chmod(filepath.Join(top, c.path), c.mode))
			}

			if c.owner != 0 {
				must(os.Chown(filepath.Join(top, c.path), c.owner, -1))
			}

			for _, dir := range []string{"a/books", "link"} {
				err := CheckOwned(filepath.Join(top, dir))
				if c.want == "" {
					must(err)
					continue
				}

				if err == nil {
					t.Fatalf("%s was accepted", dir)
				}

				text := err.Error()
				if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(text, c.want) ||
					!strings.Contains(text, "only root") {
					t.Errorf("%s: %v, want %q", dir, err, c.want)
				}
			}
		})
	}

	if err := CheckOwned("/nope/books"); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("a missing folder: %v", err)
	}
}
