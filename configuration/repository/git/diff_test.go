// SPDX-License-Identifier: Apache-2.0

package git

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/contiv/cluster/inventory/errtest"
)

// noisy is a file system that counts the largest buffer that a reader of it offers.
type noisy struct {
	fstest.MapFS

	largest *int
}

func (n noisy) Open(name string) (fs.File, error) {
	f, err := n.MapFS.Open(name)
	if d, ok := f.(fs.ReadDirFile); ok || err != nil {
		return d, err
	}
	return noisyFile{f, n.largest}, err
}

type noisyFile struct {
	fs.File

	largest *int
}

func (f noisyFile) Read(p []byte) (int, error) {
	*f.largest = max(*f.largest, len(p))
	return f.File.Read(p)
}

// TestDiff: the kinds of differences, and files that are too long to be in memory.
func TestDiff(t *testing.T) {
	t.Parallel()

	long := strings.Repeat("x", 40*maxCompared)
	at := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o644} }

	largest := 0
	old := noisy{fstest.MapFS{
		"same": at("a\n"), "changed": at("a\nb\n"), "removed": at("a\n"), "mode": at("a\n"), "binary": at("\x00"),
		"long": at(long + "a"), "long-same": at(long), "skipped/file": at("a\n"), "link": at("a"),
	}, &largest}
	changed := noisy{fstest.MapFS{
		"same": at("a\n"), "changed": at("a\nc\n"), "added": at("a\n"), "mode": {Data: []byte("a\n"), Mode: 0o755},
		"binary": at("\x00\x01"), "long": at(long + "b"), "long-same": at(long), "link": at("a"),
	}, &largest}

	changes, more, err := Diff(
		t.Context(),
		old,
		changed,
		func(path string, _ fs.DirEntry) bool { return path == "skipped" },
	)
	errtest.None(t, err)

	var got []string

	texts := map[string]string{}
	for _, c := range changes {
		got = append(got, fmt.Sprintf("%s %s %s", c.Path, c.Kind, c.Note))
		texts[c.Path] = c.Text
	}

	want := []string{
		"added added ", "binary changed binary: 1 and 2 bytes", "changed changed ",
		fmt.Sprintf("long changed %d and %[1]d bytes: too long to compare", len(long)+1),
		"mode changed ", "removed removed ",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || more {
		t.Errorf("got %s, %v", strings.Join(got, "\n"), more)
	}

	for path, want := range map[string]string{
		"changed": "diff --git a/changed b/changed\n--- a/changed\n+++ b/changed\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n",
		"added": "diff --git a/added b/added\nnew file mode 100644\n" +
			"--- /dev/null\n+++ b/added\n@@ -0,0 +1,1 @@\n+a\n",
		"removed": "diff --git a/removed b/removed\ndeleted file mode 100644\n" +
			"--- a/removed\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-a\n",
		"mode": "diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n",
	} {
		if texts[path] != want {
			t.Errorf("the text of %s is %q", path, texts[path])
		}
	}

	if largest > 2*maxCompared {
		t.Errorf("%d bytes of a file were read at once", largest)
	}
}

// TestTrees: two commits are compared in place, signed or not.
func TestTrees(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	first := r.push("main", playbooks())

	next := playbooks()
	next["site.yml"] = text("- hosts: others\n")
	second := r.push("main", next)

	m := r.mirror()
	m.Options.SignedBy = []string{"/nonexistent"}

	_, err := m.Fetch(t.Context())
	errtest.None(t, err)

	errtest.None(t, m.Trees(t.Context(), []string{first, second}, func(trees []fs.FS) error {
		changes, _, err := Diff(t.Context(), trees[0], trees[1], func(string, fs.DirEntry) bool { return false })
		if len(changes) != 1 || changes[0].Path != "site.yml" {
			t.Errorf("got %+v", changes)
		}
		return err
	}))

	err = m.Tree(t.Context(), second, func(fs.FS) error {
		t.Error("a commit is used without a signature")
		return nil
	})
	if err == nil {
		t.Error("a commit without a signature is accepted")
	}
}
