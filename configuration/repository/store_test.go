// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// playbookDir creates a folder of playbooks with a program, a link and files
// that the store omits.
func playbookDir(t *testing.T) string {
	t.Helper()

	dir := t.TempDir()
	for path, text := range map[string]string{
		"site.yml":                  "- hosts: all\n",
		"roles/a/tasks/main.yml":    "[]\n",
		"bin/tool":                  "#!/bin/sh\n",
		".git/config":               "x",
		"plugins/__pycache__/x.pyc": "x",
		"site.retry":                "x",
	} {
		path = filepath.Join(dir, path)
		errtest.None(t, os.MkdirAll(filepath.Dir(path), 0o755))
		errtest.None(t, os.WriteFile(path, []byte(text), 0o644))
	}

	errtest.None(t, os.Chmod(filepath.Join(dir, "bin/tool"), 0o755))
	errtest.None(t, os.Symlink("../roles/a", filepath.Join(dir, "bin/link")))

	return dir
}

func keep(t *testing.T, s *Store, dir string) (digest string) {
	t.Helper()
	digest, err := s.KeepDir(t.Context(), dir)
	errtest.None(t, err)
	return digest
}

func expectContent(t *testing.T, path, want string) {
	t.Helper()

	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s: got %q, %v; want %q", path, got, err, want)
	}
}

func TestKeepCopiesContentLinksAndModes(t *testing.T) {
	t.Parallel()

	store := &Store{Dir: filepath.Join(t.TempDir(), "playbooks")}
	digest := keep(t, store, playbookDir(t))
	dir := store.Path(digest)

	if !store.Intact(t.Context(), digest) || store.Intact(t.Context(), strings.Repeat("0", 64)) {
		t.Error("Has does not match the content of the store")
	}

	if info, err := os.Stat(filepath.Join(dir, "bin/tool")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("bin/tool: %v, %v", info, err)
	}

	expectContent(t, filepath.Join(dir, "bin/link/tasks/main.yml"), "[]\n")

	for _, omitted := range []string{".git", "plugins/__pycache__", "site.retry"} {
		if _, err := os.Lstat(filepath.Join(dir, omitted)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was copied: %v", omitted, err)
		}
	}
}

func TestKeepReusesAnIntactCopy(t *testing.T) {
	t.Parallel()

	store := &Store{Dir: filepath.Join(t.TempDir(), "playbooks")}
	src := playbookDir(t)
	first := keep(t, store, src)
	copied := filepath.Join(store.Path(first), "site.yml")

	before, err := os.Stat(copied)
	errtest.None(t, err)

	if second := keep(t, store, src); second != first {
		t.Errorf("the same content has the digests %s and %s", first, second)
	}

	if after, err := os.Stat(copied); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same content was copied twice: %v", err)
	}

	errtest.None(t, os.WriteFile(copied, []byte("damaged"), 0o644))

	if second := keep(t, store, src); second != first {
		t.Errorf("the same content has the digests %s and %s", first, second)
	}

	expectContent(t, copied, "- hosts: all\n")
}

// TestIntact: a copy is intact if everything that was copied is there, whatever else
// a run has left in it.
func TestIntact(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name   string
		change func(dir string) error
		want   bool
	}{
		{"untouched", func(string) error { return nil }, true},
		{"a file of a run", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "roles", "fetched.json"), nil, 0o644)
		}, true},
		{"a changed file", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "site.yml"), []byte("- hosts: none\n"), 0o644)
		}, false},
		{"a missing file", func(dir string) error {
			return os.Remove(filepath.Join(dir, "roles/a/tasks/main.yml"))
		}, false},
		{"another mode", func(dir string) error { return os.Chmod(filepath.Join(dir, "bin/tool"), 0o644) }, false},
		{"a file of a run, and no manifest", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, manifestName)),
				os.WriteFile(filepath.Join(dir, "x"), nil, 0o644))
		}, false},
		{"a change with its manifest", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "site.yml")), os.WriteFile(
				filepath.Join(dir, manifestName), []byte(`dir "bin"`), 0o644))
		}, false},
		{"missing", os.RemoveAll, false},
	} {
		store := &Store{Dir: filepath.Join(t.TempDir(), "playbooks")}
		digest := keep(t, store, playbookDir(t))
		errtest.None(t, tt.change(store.Path(digest)))

		if got := store.Intact(t.Context(), digest); got != tt.want {
			t.Errorf("%s: intact is %v", tt.name, got)
		}
	}

	if (&Store{Dir: t.TempDir()}).Intact(t.Context(), "") {
		t.Error("no digest is intact")
	}
}

func TestEveryEditChangesTheDigest(t *testing.T) {
	t.Parallel()

	store := &Store{Dir: filepath.Join(t.TempDir(), "playbooks")}
	src := playbookDir(t)
	first := keep(t, store, src)

	at := func(name string) string { return filepath.Join(src, name) }

	digests := map[string]string{first: "nothing"}
	for _, edit := range []struct {
		name string
		do   func() error
	}{
		{"content", func() error { return os.WriteFile(at("site.yml"), []byte("- hosts: none\n"), 0o644) }},
		{"mode", func() error { return os.Chmod(at("bin/tool"), 0o644) }},
		{"name", func() error { return os.Rename(at("bin/tool"), at("bin/other")) }},
		{"link", func() error {
			return errors.Join(os.Remove(at("bin/link")), os.Symlink("../roles", at("bin/link")))
		}},
		{"folder", func() error { return os.Mkdir(at("empty"), 0o755) }},
	} {
		errtest.None(t, edit.do())

		digest := keep(t, store, src)
		if earlier, found := digests[digest]; found {
			t.Errorf("editing %s gives the same digest as editing %s", edit.name, earlier)
		}
		digests[digest] = edit.name
	}

	expectContent(t, filepath.Join(store.Path(first), "site.yml"), "- hosts: all\n")

	removed, err := store.Prune([]string{first}, time.Hour)
	if err != nil || len(removed) > 0 {
		t.Errorf("Prune removed recent playbooks: %v, %v", removed, err)
	}
	removed, err = store.Prune([]string{first}, 0)
	if err != nil || len(removed) != len(digests)-1 {
		t.Errorf("Prune removed %v, %v; want all but the first", removed, err)
	}

	expectEntries(t, store.Dir, 1)
}

func TestPruneRemovesLeftovers(t *testing.T) {
	t.Parallel()

	store := &Store{Dir: t.TempDir()}
	for _, name := range []string{prefixCopying + "1", prefixDamaged + "1", "lost+found"} {
		errtest.None(t, os.MkdirAll(filepath.Join(store.Dir, name, "roles"), 0o755))
	}

	if removed, err := store.Prune(nil, 0); err != nil || len(removed) > 0 {
		t.Errorf("got %v, %v; leftovers have no digest", removed, err)
	}

	expectEntries(t, store.Dir, 1)
}

func expectEntries(t *testing.T, dir string, want int) {
	t.Helper()

	if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
		t.Errorf("%s has %v, %v; want %d entries", dir, entries, err, want)
	}
}

func TestKeepFS(t *testing.T) {
	t.Parallel()

	store := &Store{Dir: t.TempDir()}
	src := fstest.MapFS{"roles/a/tasks/main.yml": {Data: []byte("[]"), Mode: 0o444}}

	digest, err := store.Keep(t.Context(), src)
	errtest.None(t, err)
	expectContent(t, filepath.Join(store.Path(digest), "roles/a/tasks/main.yml"), "[]")
}

func TestKeepRefuses(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"absolute link":    {func(d string) error { return os.Symlink("/etc/passwd", d+"/x") }, "stay inside"},
		"link that leaves": {func(d string) error { return os.Symlink("../../x", d+"/x") }, "inside"},
		// By its text the second link stays inside; followed, it leaves.
		"link over a link": {func(d string) error {
			return errors.Join(
				os.MkdirAll(d+"/p/q/r", 0o755),
				os.Symlink("../../..", d+"/p/q/r/top"),
				os.Symlink("p/q/r/top/../../..", d+"/x"),
			)
		}, "inside"},
		"dangling link":  {func(d string) error { return os.Symlink("nothing", d+"/x") }, "inside"},
		"link to itself": {func(d string) error { return os.Symlink("x", d+"/x") }, "inside"},
		"fifo":           {func(d string) error { return unix.Mkfifo(d+"/x", 0o600) }, "neither"},
		"too many files": {func(d string) error {
			return errors.Join(os.Mkdir(d+"/a", 0o755), os.Mkdir(d+"/b", 0o755), os.Mkdir(d+"/c", 0o755))
		}, "more than 5 files"},
		"too large": {func(d string) error {
			return os.WriteFile(d+"/x", make([]byte, 101), 0o644)
		}, "more than 100 bytes: x, of 101 bytes, is too much"},
		"latin1": {func(d string) error { return os.WriteFile(d+"/z\xfcr", nil, 0o644) }, `"z\xfcr" is not UTF-8`},
	} {
		dir := t.TempDir()
		for _, file := range []string{"/1.yml", "/2.yml", "/3.yml"} {
			errtest.None(t, os.WriteFile(dir+file, nil, 0o644))
		}

		errtest.None(t, tt.make(dir))

		store := &Store{Dir: t.TempDir(), MaxFiles: 5, MaxBytes: 100}
		if name == "link over a link" {
			store.MaxFiles = 0
		}
		_, err := store.KeepDir(t.Context(), dir)
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error of kind invalid with %q", name, err, tt.want)
		}

		expectEntries(t, store.Dir, 0)
	}

	store := &Store{Dir: t.TempDir()}
	if _, err := store.KeepDir(t.Context(), "/nonexistent"); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("missing folder: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := store.KeepDir(ctx, playbookDir(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled context: %v", err)
	}

	if _, err := (&Store{Dir: "relative"}).KeepDir(t.Context(), playbookDir(t)); err == nil {
		t.Error("a store with a relative path was accepted")
	}
}

// TestKeepDirAddsTheRoles: a copy has the roles of its time, also after they changed,
// and its digest covers them. Roles that the folder brought along do not count.
func TestKeepDirAddsTheRoles(t *testing.T) {
	t.Parallel()

	const task = "agent/tasks/main.yml"

	roles := func(text string) fs.FS { return fstest.MapFS{task: {Data: []byte(text), Mode: 0o444}} }
	dir := playbookDir(t)
	store := &Store{Dir: filepath.Join(t.TempDir(), "playbooks")}
	bare := keep(t, store, dir)

	if path := store.RolesPath(bare); path != "" {
		t.Errorf("a copy without roles has them in %s", path)
	}

	// A copy of a copy has the roles of its own time.
	brought := filepath.Join(dir, rolesName, "other")
	errtest.None(t, os.MkdirAll(brought, 0o755))

	store.Roles = roles("old")
	old := keep(t, store, dir)
	store.Roles = roles("new")
	now := keep(t, store, dir)

	if old == now || old == bare {
		t.Errorf("the digests %s, %s and %s do not cover the roles", bare, old, now)
	}

	expectContent(t, filepath.Join(store.RolesPath(old), task), "old")
	expectContent(t, filepath.Join(store.RolesPath(now), task), "new")
	expectEntries(t, store.RolesPath(now), 1)
	expectContent(t, filepath.Join(store.Path(old), "site.yml"), "- hosts: all\n")

	errtest.None(t, os.RemoveAll(brought))

	if again := keep(t, store, dir); again != now {
		t.Errorf("what the folder brought along changes the digest from %s to %s", now, again)
	}

	if !store.Intact(t.Context(), old) {
		t.Error("the copy with former roles does not count as intact")
	}

	file := filepath.Join(store.RolesPath(old), task)
	errtest.None(t, os.Remove(file))

	if store.Intact(t.Context(), old) {
		t.Error("a copy without one of its roles counts as intact")
	}
}
