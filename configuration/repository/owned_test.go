// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
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
				errtest.None(t, err)
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
				resolved, err := CheckOwned(filepath.Join(top, dir))
				if c.want == "" {
					must(err)

					if resolved != filepath.Join(top, "a/books") {
						t.Errorf("%s is %s", dir, resolved)
					}

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

	if _, err := CheckOwned("/nope/books"); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("a missing folder: %v", err)
	}
}

// TestCheckOwnedLinks follows a chain of links, each of which is in a folder of its
// own: another account must not be able to turn any of them elsewhere.
func TestCheckOwnedLinks(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name, path string
		mode       os.FileMode // of a folder
		owner      int         // of a folder or a link
		want       string      // "": accepted
	}{
		{name: "as it is"},
		{name: "the folder of the first link", path: "etc", mode: 0o777, want: "/etc (mode 0777)"},
		{name: "the folder of an intermediate link", path: "deploy", mode: 0o777, want: "/deploy (mode 0777)"},
		{name: "another owner of that folder", path: "deploy", owner: 4711, want: "deploy belongs to uid 4711"},
		{name: "another owner of that link", path: "deploy/current", owner: 4711, want: "current belongs to uid 4711"},
		{name: "the folder of the target", path: "deploy/releases", mode: 0o777, want: "/releases (mode 0777)"},
		{name: "a folder beside", path: "beside", mode: 0o777},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			if c.owner != 0 && os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}

			// The path to the top itself must not have links.
			top, err := filepath.EvalSymlinks(t.TempDir())
			must := func(err error) {
				t.Helper()
				errtest.None(t, err)
			}
			must(err)

			for _, dir := range []string{"etc", "deploy/releases/7/books", "beside"} {
				must(os.MkdirAll(filepath.Join(top, dir), 0o755))
			}

			must(os.Symlink(filepath.Join(top, "deploy/current/books"), filepath.Join(top, "etc/books")))
			must(os.Symlink("../deploy/releases/7", filepath.Join(top, "deploy/current")))

			if c.mode != 0 {
				must(os.Chmod(filepath.Join(top, c.path), c.mode))
			}

			if c.owner != 0 {
				must(os.Lchown(filepath.Join(top, c.path), c.owner, -1))
			}

			resolved, err := CheckOwned(filepath.Join(top, "etc/books"))
			if c.want == "" {
				must(err)

				if resolved != filepath.Join(top, "deploy/releases/7/books") {
					t.Errorf("it is %s", resolved)
				}
				return
			}

			if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, %v, want %q", resolved, err, c.want)
			}
		})
	}

	loop := filepath.Join(t.TempDir(), "loop")
	errtest.None(t, os.Symlink("loop", loop))
	if _, err := CheckOwned(loop); err == nil || !strings.Contains(err.Error(), "too many links") {
		t.Errorf("a loop: %v", err)
	}
}

// TestCheckOwnedNames: the refusal names the file or the folder that it is about, and not a folder of playbooks.
func TestCheckOwnedNames(t *testing.T) {
	t.Parallel()

	top, err := filepath.EvalSymlinks(t.TempDir())
	errtest.None(t, err)
	smoke := filepath.Join(top, "smoke")
	errtest.None(t, errors.Join(os.WriteFile(smoke, nil, 0o700), os.Chmod(smoke, 0o777)))

	for _, path := range []string{smoke, filepath.Join(top, "missing")} {
		_, err := CheckOwnedFile(path)
		if err == nil || !strings.HasPrefix(err.Error(), "the file "+path+" cannot be used: ") {
			t.Errorf("%s: %v", path, err)
		}
	}

	errtest.None(t, os.Chmod(top, 0o777))

	if _, err := CheckOwnedFolder(top); err == nil ||
		!strings.HasPrefix(err.Error(), "the folder "+top+" cannot be used: others ") {
		t.Errorf("a folder: %v", err)
	}
}
