// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
)

func folder(t *testing.T) string {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"site.yml": "- hosts: all\n", "roles/a/tasks/main.yml": "[]\n", "bin/tool": "#!/bin/sh\n",
		".git/config": "x", "plugins/__pycache__/x.pyc": "x", "site.retry": "x",
	} {
		path = filepath.Join(dir, path)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644),
		); err != nil {
			t.Fatal(err)
		}
	}

	if err := errors.Join(
		os.Chmod(filepath.Join(dir, "bin/tool"), 0o755),
		os.Symlink("../roles/a", filepath.Join(dir, "bin/link")),
	); err != nil {
		t.Fatal(err)
	}

	return dir
}

func TestPin(t *testing.T) {
	t.Parallel()
	src := folder(t)
	trees := &Trees{Dir: filepath.Join(t.TempDir(), "trees")}
	pin := func() string {
		d, err := trees.PinDir(t.Context(), src)
		if err != nil {
			t.Fatal(err)
		}

		return d
	}
	first := pin()

	dir := trees.Path(first)
	if info, err := os.Stat(filepath.Join(dir, "bin/tool")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("bin/tool: %v, %v", info, err)
	}

	if got := read(t, filepath.Join(dir, "bin/link/tasks/main.yml")); got != "[]\n" {
		t.Errorf("through the link: %q", got)
	}

	for _, not := range []string{".git", "plugins/__pycache__", "site.retry"} {
		if _, err := os.Lstat(filepath.Join(dir, not)); err == nil {
			t.Errorf("%s was copied", not)
		}
	}

	before, err := os.Stat(filepath.Join(dir, "site.yml"))
	if err != nil {
		t.Fatal(err)
	}

	if again := pin(); again != first {
		t.Errorf("the same content has the digests %s and %s", first, again)
	}

	if after, err := os.Stat(filepath.Join(dir, "site.yml")); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same content was copied twice: %v", err)
	}

	// Every kind of edit gives another digest, and changes nothing pinned.
	digests := map[string]string{first: "nothing"}
	for _, edit := range []struct {
		what string
		do   func() error
	}{
		{"content", func() error { return os.WriteFile(filepath.Join(src, "site.yml"), []byte("- hosts: none\n"), 0o644) }},
		{"mode", func() error { return os.Chmod(filepath.Join(src, "bin/tool"), 0o644) }},
		{"name", func() error { return os.Rename(filepath.Join(src, "bin/tool"), filepath.Join(src, "bin/other")) }},
		{"link", func() error {
			return errors.Join(os.Remove(filepath.Join(src, "bin/link")), os.Symlink("../roles", filepath.Join(src, "bin/link")))
		}},
		{"folder", func() error { return os.Mkdir(filepath.Join(src, "empty"), 0o755) }},
	} {
		if err := edit.do(); err != nil {
			t.Fatal(err)
		}

		d := pin()
		if other, twice := digests[d]; twice {
			t.Errorf("editing %s gives the digest of editing %s", edit.what, other)
		}

		digests[d] = edit.what
	}

	if got := read(t, filepath.Join(dir, "site.yml")); got != "- hosts: all\n" {
		t.Errorf("the pinned playbook is now %q", got)
	}

	// A copy that was damaged is made anew.
	src = folder(t)
	if err := os.WriteFile(filepath.Join(dir, "site.yml"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}

	if again := pin(); again != first || read(t, filepath.Join(dir, "site.yml")) != "- hosts: all\n" {
		t.Error("a damaged copy was kept")
	}

	removed, err := trees.Prune([]string{first}, time.Hour)
	if err != nil || len(removed) > 0 {
		t.Errorf("fresh ones were removed: %v, %v", removed, err)
	}

	removed, err = trees.Prune([]string{first}, 0)
	if err != nil || len(removed) != len(digests)-1 {
		t.Errorf("removed %v, %v", removed, err)
	}

	if entries, err := os.ReadDir(trees.Dir); err != nil || len(entries) != 1 {
		t.Errorf("left %v, %v", entries, err)
	}
}

func TestPinFS(t *testing.T) {
	t.Parallel()
	trees := &Trees{Dir: t.TempDir()}

	d, err := trees.Pin(t.Context(), fstest.MapFS{"roles/a/tasks/main.yml": {Data: []byte("[]"), Mode: 0o444}})
	if err != nil || read(t, filepath.Join(trees.Path(d), "roles/a/tasks/main.yml")) != "[]" {
		t.Errorf("%s, %v", d, err)
	}
}

func TestPinRefuses(t *testing.T) {
	t.Parallel()

	for what, tt := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"absolute link":    {func(d string) error { return os.Symlink("/etc/passwd", d+"/x") }, "stay inside"},
		"link that leaves": {func(d string) error { return os.Symlink("../../x", d+"/x") }, "inside"},
		// As words the second stays inside; as a path it does not.
		"link over a link": {func(d string) error {
			return errors.Join(os.MkdirAll(d+"/p/q/r", 0o755), os.Symlink("../../..", d+"/p/q/r/top"), os.Symlink("p/q/r/top/../../..", d+"/x"))
		}, "inside"},
		"link to nothing": {func(d string) error { return os.Symlink("nothing", d+"/x") }, "inside"},
		"link to itself":  {func(d string) error { return os.Symlink("x", d+"/x") }, "inside"},
		"fifo":            {func(d string) error { return unix.Mkfifo(d+"/x", 0o600) }, "neither"},
		"too many files": {func(d string) error {
			return errors.Join(os.Mkdir(d+"/a", 0o755), os.Mkdir(d+"/b", 0o755), os.Mkdir(d+"/c", 0o755))
		}, "more than 5 files"},
		"too large": {func(d string) error { return os.WriteFile(d+"/x", make([]byte, 101), 0o644) }, "more than 100 bytes"},
	} {
		dir := t.TempDir()
		if err := errors.Join(
			os.WriteFile(dir+"/1.yml", nil, 0o644),
			os.WriteFile(dir+"/2.yml", nil, 0o644),
			os.WriteFile(dir+"/3.yml", nil, 0o644),
			tt.make(dir),
		); err != nil {
			t.Fatal(err)
		}

		trees := &Trees{Dir: t.TempDir(), MaxFiles: 5, MaxBytes: 100}
		if what == "link over a link" {
			trees.MaxFiles = 0
		}

		_, err := trees.PinDir(t.Context(), dir)
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", what, err)
		}

		if entries, err := os.ReadDir(trees.Dir); err != nil || len(entries) > 0 {
			t.Errorf("%s: left %v, %v", what, entries, err)
		}
	}

	trees := &Trees{Dir: t.TempDir()}
	if _, err := trees.PinDir(t.Context(), "/nonexistent"); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("a missing folder: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := trees.PinDir(ctx, folder(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}

	if _, err := (&Trees{Dir: "relative"}).PinDir(t.Context(), folder(t)); err == nil {
		t.Error("a relative store was accepted")
	}
}
