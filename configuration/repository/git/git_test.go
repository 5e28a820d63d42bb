// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// testRepo is a bare repository in a folder, written object by object: the library would
// refuse some of the trees.
type testRepo struct {
	t     *testing.T
	dir   string
	store *mirrored
	count int
}

func newRepo(t *testing.T) *testRepo {
	t.Helper()
	return newRepoAt(t, filepath.Join(t.TempDir(), "origin.git"))
}

func newRepoAt(t *testing.T, dir string) *testRepo {
	t.Helper()

	store := newStorage(dir)
	errtest.None(t, os.MkdirAll(dir, 0o755))
	errtest.None(t, store.Init())
	errtest.None(t, os.WriteFile(filepath.Join(dir, "config"), []byte("[core]\n\tbare = true\n"), 0o600))
	errtest.None(t, store.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, "refs/heads/main")))
	t.Cleanup(func() { store.Close() })

	return &testRepo{t: t, dir: dir, store: &mirrored{store}}
}

// file is an entry of a tree: a file, unless it has another mode.
type file struct {
	text string
	mode filemode.FileMode
	hash plumbing.Hash // of a submodule
}

func text(s string) file { return file{text: s, mode: filemode.Regular} }

// playbooks is a good tree.
func playbooks() map[string]file {
	return map[string]file{
		"site.yml": text("- hosts: all\n"), "cleanup.yml": text("- hosts: all\n"),
		"roles/own/tasks/main.yml": text("[]\n"),
		"bin/tool":                 {text: "#!/bin/sh\n", mode: filemode.Executable},
		"link":                     {text: "roles/own", mode: filemode.Symlink},
	}
}

func (r *testRepo) blob(content string) plumbing.Hash {
	r.t.Helper()
	return r.write(plumbing.BlobObject, []byte(content))
}

func (r *testRepo) write(kind plumbing.ObjectType, content []byte) plumbing.Hash {
	r.t.Helper()

	o := r.store.NewEncodedObject()
	o.SetType(kind)

	w, err := o.Writer()
	errtest.None(r.t, err)

	_, err = w.Write(content)
	errtest.None(r.t, err)
	errtest.None(r.t, w.Close())

	hash, err := r.store.SetEncodedObject(o)
	errtest.None(r.t, err)

	return hash
}

// tree writes a tree. A path with a slash is below folders.
func (r *testRepo) tree(files map[string]file) plumbing.Hash {
	r.t.Helper()

	entries, below := map[string]object.TreeEntry{}, map[string]map[string]file{}

	for path, f := range files {
		dir, rest, nested := strings.Cut(path, "/")
		if nested && f.mode != 0 {
			if below[dir] == nil {
				below[dir] = map[string]file{}
			}

			below[dir][rest] = f

			continue
		}

		hash := f.hash
		if f.mode != filemode.Submodule {
			hash = r.blob(f.text)
		}

		if f.mode == 0 {
			f.mode = filemode.Regular
		}

		entries[path] = object.TreeEntry{Name: path, Mode: f.mode, Hash: hash}
	}

	for dir, inner := range below {
		entries[dir] = object.TreeEntry{Name: dir, Mode: filemode.Dir, Hash: r.tree(inner)}
	}

	var content []byte
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		content = append(content, strings.TrimPrefix(e.Mode.String(), "0")...)
		content = append(append(content, ' '), name...)
		content = append(append(content, 0), e.Hash[:]...)
	}

	return r.write(plumbing.TreeObject, content)
}

// push commits files to a branch, on top of it. sign may complete the commit.
func (r *testRepo) push(branch string, files map[string]file, sign ...func(*object.Commit)) string {
	r.t.Helper()

	name := plumbing.NewBranchReferenceName(branch)

	var parents []plumbing.Hash
	if old, err := r.store.Reference(name); err == nil {
		parents = []plumbing.Hash{old.Hash()}
	}

	return r.set(name, r.commit(files, parents, sign...))
}

func (r *testRepo) set(name plumbing.ReferenceName, hash plumbing.Hash) string {
	r.t.Helper()
	errtest.None(r.t, r.store.SetReference(plumbing.NewHashReference(name, hash)))
	return hash.String()
}

func (r *testRepo) commit(files map[string]file, parents []plumbing.Hash, sign ...func(*object.Commit)) plumbing.Hash {
	r.t.Helper()

	r.count++
	at := object.Signature{
		Name: "A. Uthor", Email: "a@example.com", When: time.Unix(1_700_000_000+int64(r.count), 0).UTC(),
	}
	c := &object.Commit{
		Author: at, Committer: at, Message: "change \x1b[31m" + string(rune('a'+r.count%26)) + "\n\nbody",
		TreeHash: r.tree(files), ParentHashes: parents,
	}

	for _, f := range sign {
		f(c)
	}

	o := r.store.NewEncodedObject()
	errtest.None(r.t, c.Encode(o))

	hash, err := r.store.SetEncodedObject(o)
	errtest.None(r.t, err)

	return hash
}

// mirror returns a mirror of the repository.
func (r *testRepo) mirror() *Mirror {
	r.t.Helper()
	return &Mirror{Dir: r.t.TempDir(), Options: Options{URL: r.dir, Limits: DefaultLimits}}
}

// files returns the files of a commit with their content.
func files(t *testing.T, m *Mirror, commit string) (map[string]string, error) {
	t.Helper()

	found := map[string]string{}

	err := m.Tree(t.Context(), commit, func(src fs.FS) error {
		return fs.WalkDir(src, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}

			if d.Type() == fs.ModeSymlink {
				target, err := fs.ReadLink(src, path)
				found[path] = "-> " + target
				return err
			}

			info, err := d.Info()
			if err != nil {
				return err
			}

			content, err := fs.ReadFile(src, path)
			found[path] = info.Mode().String() + " " + string(content)

			return err
		})
	})

	return found, err
}

func TestFetch(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	first := r.push("main", playbooks())
	m := r.mirror()

	c, err := m.Fetch(t.Context())
	errtest.None(t, err)

	if c.Hash != first || c.Author != "A. Uthor" || c.Subject != "change ?[31mb" || c.Time.Unix() != 1_700_000_001 {
		t.Errorf("got %+v", c)
	}

	got, err := files(t, m, first)
	errtest.None(t, err)

	want := map[string]string{
		"site.yml": "-rw-r--r-- - hosts: all\n", "cleanup.yml": "-rw-r--r-- - hosts: all\n",
		"roles/own/tasks/main.yml": "-rw-r--r-- []\n", "bin/tool": "-rwxr-xr-x #!/bin/sh\n", "link": "-> roles/own",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q", got)
	}

	// A second fetch brings new objects only.
	changed := playbooks()
	changed["site.yml"] = text("- hosts: others\n")
	second := r.push("main", changed)
	packs := func() int {
		found, err := filepath.Glob(filepath.Join(m.gitDir(), "objects/pack/*.pack"))
		errtest.None(t, err)
		return len(found)
	}

	for range 2 {
		if c, err = m.Fetch(t.Context()); err != nil || c.Hash != second || packs() != 2 {
			t.Fatalf("got %+v, %v, %d packs", c, err, packs())
		}
	}

	log, more, err := m.Log(t.Context(), second, []string{first}, 10)
	if err != nil || more || len(log) != 1 || log[0].Hash != second {
		t.Errorf("log: %v, %v, %v", log, more, err)
	}
	log, more, err = m.Log(t.Context(), second, nil, 1)
	if err != nil || !more || len(log) != 1 {
		t.Errorf("log: %v, %v, %v", log, more, err)
	}

	for old, want := range map[string]bool{first: true, second: true, strings.Repeat("1", 40): false} {
		if got, err := m.Descends(t.Context(), second, old); got != want || err != nil {
			t.Errorf("Descends(%s): %v, %v", old, got, err)
		}
	}

	for _, prefix := range []string{first[:8], first[:9], first} {
		if c, ok, err := m.Lookup(t.Context(), prefix); !ok || c.Hash != first || err != nil {
			t.Errorf("Lookup(%s): %v, %v, %v", prefix, c, ok, err)
		}
	}

	tree := r.tree(changed).String()
	if c, ok, err := m.Lookup(t.Context(), tree[:8]); ok || err != nil {
		t.Errorf("Lookup of a tree: %v, %v", c, err)
	}
}

// TestReferences: a branch, a tag, an annotated tag, a commit, a folder.
func TestReferences(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	first := r.push("main", map[string]file{"deploy/site.yml": text("a"), "other": text("b")})
	branch := r.push("feature/x", playbooks())

	tag := &object.Tag{
		Name: "v1", Message: "m", TargetType: plumbing.CommitObject, Target: plumbing.NewHash(first),
		Tagger: object.Signature{Name: "n", Email: "e", When: time.Unix(1, 0)},
	}
	o := r.store.NewEncodedObject()
	errtest.None(t, tag.Encode(o))

	hash, err := r.store.SetEncodedObject(o)
	errtest.None(t, err)
	r.set("refs/tags/v1", hash)
	r.set("refs/tags/light", plumbing.NewHash(branch))
	r.set("refs/tags/blob", r.blob("x"))

	for _, c := range []struct {
		name   string
		o      Options
		commit string
		err    string
	}{
		{name: "default", commit: first},
		{name: "branch", o: Options{Branch: "feature/x"}, commit: branch},
		{name: "annotated", o: Options{Tag: "v1"}, commit: first},
		{name: "light", o: Options{Tag: "light"}, commit: branch},
		{name: "commit", o: Options{Commit: branch}, commit: branch},
		{name: "gone", o: Options{Branch: "gone"}, err: "has no branch gone; its branches are feature/x, main"},
		{name: "no tag", o: Options{Tag: "v2"}, err: "has no tag v2"},
		{name: "blob", o: Options{Tag: "blob"}, err: "cannot be read as a commit"},
		{name: "no commit", o: Options{Commit: strings.Repeat("ab", 20)}, err: "cannot be fetched"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := r.mirror()
			c.o.URL, c.o.Limits = m.Options.URL, m.Options.Limits
			m.Options = c.o

			got, err := m.Fetch(t.Context())
			expect(t, err, c.err)

			if got.Hash != c.commit {
				t.Errorf("got %s, want %s", got.Hash, c.commit)
			}
		})
	}

	m := r.mirror()
	m.Options.Folder = "deploy"

	_, err = m.Fetch(t.Context())
	errtest.None(t, err)

	got, err := files(t, m, first)
	if err != nil || len(got) != 1 || got["site.yml"] == "" {
		t.Errorf("got %q, %v", got, err)
	}

	m.Options.Folder = "missing"
	_, err = files(t, m, first)
	expect(t, err, "has no folder missing")
}

// expect compares an error with a part of its text; empty: none.
func expect(t *testing.T, err error, want string) {
	t.Helper()

	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %q", err, want)
	}

	if e, ok := err.(*inventory.Error); err != nil && (!ok || e.Remedy == "") { //nolint:errorlint // not wrapped
		t.Errorf("the error %v has no remedy", err)
	}
}

// TestForcePush: the history is replaced, and then the branch removed.
func TestForcePush(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	first := r.push("main", playbooks())
	m := r.mirror()
	m.Options.Branch = "main"

	_, err := m.Fetch(t.Context())
	errtest.None(t, err)

	changed := playbooks()
	changed["new"] = text("new")
	second := r.set("refs/heads/main", r.commit(changed, nil))

	c, err := m.Fetch(t.Context())
	if err != nil || c.Hash != second {
		t.Fatalf("got %v, %v", c, err)
	}

	if descends, err := m.Descends(t.Context(), second, first); descends || err != nil {
		t.Errorf("got %v, %v", descends, err)
	}

	errtest.None(t, r.store.RemoveReference("refs/heads/main"))
	r.push("other", playbooks())

	_, err = m.Fetch(t.Context())
	expect(t, err, "has no branch main")

	if inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("the kind is %s", inventory.KindOf(err))
	}

	// What was fetched is still there.
	if _, err := files(t, m, first); err != nil {
		t.Error(err)
	}
}

// TestBadTrees: each is refused by the name of its file.
func TestBadTrees(t *testing.T) {
	t.Parallel()

	link := func(target string) file { return file{text: target, mode: filemode.Symlink} }

	for _, c := range []struct {
		name string
		path string
		file file
		err  string
	}{
		{"absolute link", "roles/l", link("/etc/passwd"), "roles/l points to /etc/passwd"},
		{"link out", "roles/l", link("../../x"), "roles/l points to ../../x"},
		{"link out and in", "l", link("../repo/site.yml"), "l points to"},
		{"link with control", "l", link("a\x1bb"), `the link l has the target "a\x1bb"`},
		{"long link", "l", link(strings.Repeat("x", 2000)), "the target of the link l is longer"},
		{"control", "roles/a\x1b[2J", text("x"), `"a\x1b[2J" in roles: the name has control`},
		{"newline", "a\nb", text("x"), `"a\nb"`},
		{"not UTF-8", "a\xff", text("x"), "not UTF-8"},
		{"direction", "a\u202eb", text("x"), "control characters"},
		{"dot dot", "..", text("x"), "not the name of a file"},
		{"inner dot dot", "a/../b", text("x"), "not the name of a file"},
		{"dot", ".", text("x"), "not the name of a file"},
		{"git", "roles/.git/config", text("x"), `".git" in roles: the name is reserved`},
		{"GIT", ".GiT", text("x"), "reserved for git"},
		{"git~1", "git~1", text("x"), "reserved for git"},
		{"slash", "a/b", file{}, "contains a slash"},
		{"absolute", "/etc/passwd", file{}, "contains a slash"},
		{"long", strings.Repeat("x", 300), text("x"), "longer than 255"},
		{"deep", strings.Repeat("d/", 70) + "x", text("x"), "nested too deeply"},
		{"long path", strings.Repeat(strings.Repeat("d", 200)+"/", 6) + "x", text("x"), "longer than 1024"},
		{"submodule", "sub", file{mode: filemode.Submodule, hash: plumbing.NewHash("01")}, "sub is a submodule"},
		{"LFS", "files/big", text(pointer + "v1\noid sha256:0\n"), "files/big is kept in Git LFS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			r := newRepo(t)
			all := playbooks()
			all[c.path] = c.file
			commit := r.push("main", all)
			m := r.mirror()

			_, err := m.Fetch(t.Context())
			errtest.None(t, err)

			_, err = files(t, m, commit)
			expect(t, err, c.err)

			if err != nil && !printable(err.Error()) {
				t.Errorf("the error %q is not safe on a terminal", err)
			}
		})
	}
}

// TestLimits: bytes of a fetch, of one object and of a tree, files, time.
func TestLimits(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	all := playbooks()

	// Random enough for the wire.
	var noise strings.Builder
	for i := range 20_000 {
		noise.WriteString(plumbing.ComputeHash(plumbing.BlobObject, []byte{byte(i), byte(i >> 8)}).String())
	}

	all["big"] = text(noise.String())
	all["zeros"] = text(strings.Repeat("\x00", 1<<20))
	commit := r.push("main", all)

	for _, c := range []struct {
		name  string
		limit func(*Limits)
		err   string
		tree  bool
	}{
		{"wire", func(l *Limits) { l.Fetch = 100_000 }, "more than 100000 bytes", false},
		{"object", func(l *Limits) { l.Size = 900_000 }, "has 1048576 bytes, the limit is 900000", false},
		{"tree", func(l *Limits) { l.Size = 1_200_000 }, "more than 1200000 bytes", true},
		{"files", func(l *Limits) { l.Files = 5 }, "more than 5 files", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := r.mirror()
			c.limit(&m.Options.Limits)

			_, err := m.Fetch(t.Context())
			if c.tree {
				errtest.None(t, err)
				_, err = files(t, m, commit)
			}

			expect(t, err, c.err)
		})
	}

	m := r.mirror()
	m.Options.Limits.Time = time.Nanosecond
	_, err := m.Fetch(t.Context())
	expect(t, err, "was not fetched within")
}

func TestUnusable(t *testing.T) {
	t.Parallel()

	empty := newRepo(t)
	m := empty.mirror()
	_, err := m.Fetch(t.Context())
	expect(t, err, "is empty")

	m.Options.URL = filepath.Join(t.TempDir(), "nothing")
	_, err = m.Fetch(t.Context())
	expect(t, err, "is not a git repository")

	// Nothing listens there.
	m.Options.URL = "https://127.0.0.1:1/x.git"
	_, err = m.Fetch(t.Context())
	expect(t, err, "cannot be fetched")

	if inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("the kind is %s", inventory.KindOf(err))
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := m.Fetch(ctx); inventory.KindOf(err) == "" {
		t.Error("a fetch ignores the end of its context")
	}
}

// TestDamagedMirror: it is fetched anew. The remains of an interrupted fetch are removed.
func TestDamagedMirror(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	commit := r.push("main", playbooks())
	m := r.mirror()

	_, err := m.Fetch(t.Context())
	errtest.None(t, err)

	left := filepath.Join(m.Dir, "incoming-1")
	errtest.None(t, os.WriteFile(left, []byte("x"), 0o600))

	packs, err := filepath.Glob(filepath.Join(m.gitDir(), "objects/pack/*.pack"))
	errtest.None(t, err)
	errtest.None(t, os.Chmod(packs[0], 0o600))
	errtest.None(t, os.WriteFile(packs[0], []byte("PACK\x00\x00\x00\x02"), 0o600))

	if _, err := m.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}

	if _, err := files(t, m, commit); err != nil {
		t.Error(err)
	}

	if _, err := os.Stat(left); err == nil {
		t.Error("the remains of a fetch are kept")
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()

	for url, want := range map[string]string{
		"https://git.example.com/a/b.git":       "",
		"ssh://git@git.example.com:2222/a/b":    "",
		"ssh://git.example.com/a":               "",
		"git@git.example.com:a/b.git":           "",
		"/srv/git/playbooks.git":                "",
		"":                                      "not one of a repository",
		"playbooks":                             "not one of a repository",
		"/srv/../etc":                           "is not clean",
		"https://user:pw@git.example.com/a":     "contains credentials",
		"https://token@git.example.com/a":       "contains credentials",
		"ssh://git:pw@git.example.com/a":        "contains credentials",
		"git:pw@git.example.com:a":              "contains credentials",
		"git.example.com:a":                     "not one of a repository",
		"/srv/git:a/playbooks":                  "",
		"http://git.example.com/a":              "http://, which is not supported",
		"git://git.example.com/a":               "git://",
		"file:///srv/git":                       "not one of a repository",
		"ext::sh -c id":                         "not one of a repository",
		"https://git.example.com":               "not one of a repository",
		"https://git.example.com/a?b=c":         "not one of a repository",
		"git@git.example.com:-oProxyCommand=id": "not one of a repository",
		"/srv/a\x1bb":                           "not one of a repository",
	} {
		err := CheckURL(url)
		expect(t, err, want)

		if err != nil && strings.Contains(err.Error(), "pw") {
			t.Errorf("%s: the error %v shows the password", url, err)
		}
	}

	for _, ref := range []string{"main", "feature/x", "v1.2.3", "release-1"} {
		expect(t, CheckRef(ref), "")
	}

	for _, ref := range []string{"", "-x", "a..b", "a b", "refs/../x", "x.lock", "a//b", "/a", "a\x00"} {
		expect(t, CheckRef(ref), "not the name of a branch")
	}

	expect(t, CheckFolder("deploy/playbooks"), "")

	for _, folder := range []string{"/a", "../a", "a/../b", "a/", ".git", "a\n"} {
		expect(t, CheckFolder(folder), "not a folder")
	}
}

// TestTreeFS: files can be read like those of a folder.
func TestTreeFS(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	commit := r.push("main", playbooks())
	m := r.mirror()

	_, err := m.Fetch(t.Context())
	errtest.None(t, err)

	errtest.None(t, m.Tree(t.Context(), commit, func(src fs.FS) error {
		f, err := src.Open("site.yml")
		errtest.None(t, err)
		defer f.Close()

		info, err := f.Stat()
		errtest.None(t, err)

		content, err := io.ReadAll(f)
		if err != nil || int64(len(content)) != info.Size() {
			t.Errorf("%d bytes, %v; want %d", len(content), err, info.Size())
		}

		for _, name := range []string{"missing", "../x", "/site.yml"} {
			if _, err := src.Open(name); err == nil {
				t.Errorf("%s was opened", name)
			}
		}

		return nil
	}))

	err = m.Tree(t.Context(), strings.Repeat("3", 40), func(fs.FS) error { return nil })
	if inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("a missing commit: %v", err)
	}
}

// TestBrokenTree: a commit that lacks an object is refused, known by its hash, and does not
// pass for a damaged mirror.
func TestBrokenTree(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	m := r.mirror()

	r.push("main", playbooks())

	_, err := m.Fetch(t.Context())
	errtest.None(t, err)

	broken := playbooks()
	broken["lost"] = text("an object that disappears")
	commit := r.push("main", broken)
	hash := plumbing.ComputeHash(plumbing.BlobObject, []byte(broken["lost"].text)).String()
	errtest.None(t, os.Remove(filepath.Join(r.dir, "objects", hash[:2], hash[2:])))

	c, err := m.Fetch(t.Context())
	if c.Hash != commit || inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), hash) {
		t.Errorf("got %+v, %v", c, err)
	}

	// A tree that no git can read.
	tree := r.write(plumbing.TreeObject, []byte("100644 site.yml"))
	o := r.store.NewEncodedObject()
	at := object.Signature{Name: "n", Email: "e", When: time.Unix(1, 0)}
	errtest.None(t, (&object.Commit{Author: at, Committer: at, TreeHash: tree}).Encode(o))

	unreadable, err := r.store.SetEncodedObject(o)
	errtest.None(t, err)

	commit = r.set("refs/heads/main", unreadable)

	c, err = m.Fetch(t.Context())
	if c.Hash != commit || inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("got %+v, %v", c, err)
	}
}

// TestMirrorIsFetchedAnew: a mirror that lost an object is fetched anew; a commit that has none
// of it in the repository either is refused.
func TestMirrorIsFetchedAnew(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	commit := r.push("main", playbooks())
	m := r.mirror()

	damage := func() {
		t.Helper()

		_, err := m.Fetch(t.Context())
		errtest.None(t, err)

		packs, err := filepath.Glob(filepath.Join(m.gitDir(), "objects/pack/*.pack"))
		errtest.None(t, err)

		for _, pack := range packs {
			errtest.None(t, os.Chmod(pack, 0o600))
			content, err := os.ReadFile(pack)
			errtest.None(t, err)

			for i := 20; i < len(content); i++ {
				content[i] ^= 0xff
			}

			errtest.None(t, os.WriteFile(pack, content, 0o600))
		}
	}

	damage()

	if got, err := files(t, m, commit); err != nil || len(got) != len(playbooks()) {
		t.Errorf("got %q, %v", got, err)
	}

	damage()

	hash := plumbing.ComputeHash(plumbing.BlobObject, []byte("[]\n")).String()
	errtest.None(t, os.Remove(filepath.Join(r.dir, "objects", hash[:2], hash[2:])))

	_, err := files(t, m, commit)
	if inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("got %v", err)
	}
}

// TestLocalMemory: the objects of a local repository are not in memory together.
func TestLocalMemory(t *testing.T) {
	t.Parallel()

	r := newRepo(t)
	r.push("main", playbooks())

	local := newStorage(r.dir)
	defer local.Close()

	head, err := local.Reference("refs/heads/main")
	errtest.None(t, err)

	c := copier{
		ctx: t.Context(), from: local, have: &mirrored{newStorage(t.TempDir())},
		seen: map[plumbing.Hash]*lazyObject{}, maxSize: DefaultLimits.Size,
	}
	errtest.None(t, c.collect(head.Hash()))

	for _, hash := range c.found {
		o, err := lazyStore{local, c.seen}.EncodedObject(plumbing.AnyObject, hash)
		errtest.None(t, err)

		whole, err := local.EncodedObject(plumbing.AnyObject, hash)
		errtest.None(t, err)

		if o.Type() != whole.Type() || o.Size() != whole.Size() || o.Hash() != whole.Hash() {
			t.Errorf("%s: %s of %d bytes, want %s of %d", hash, o.Type(), o.Size(), whole.Type(), whole.Size())
		}

		if _, loaded := o.(*plumbing.MemoryObject); loaded {
			t.Errorf("%s is in memory", hash)
		}
	}
}
