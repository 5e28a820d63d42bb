// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/contiv/cluster/inventory"
)

// The bounds of a path in a tree.
const (
	maxDepth  = 64
	maxName   = 255
	maxPath   = 1024
	maxTarget = 1024 // bytes of a link
)

// Tree calls use with the playbooks of a commit of the mirror, while nobody else uses the
// mirror. A commit without a signature that Options demand, and a tree with a path, a link
// or a size that may harm, are KindRefused, with the name of the file. A commit that the
// mirror lacks is KindNotFound. A damaged mirror is fetched anew, for Limits.Time at most.
func (m *Mirror) Tree(ctx context.Context, commit string, use func(fs.FS) error) error {
	return m.trees(ctx, []string{commit}, true, func(trees []fs.FS) error { return use(trees[0]) })
}

// Trees is Tree for several commits, to read and not to run them: it checks no signature.
func (m *Mirror) Trees(ctx context.Context, commits []string, use func([]fs.FS) error) error {
	return m.trees(ctx, commits, false, use)
}

func (m *Mirror) trees(ctx context.Context, commits []string, signed bool, use func([]fs.FS) error) error {
	empty := false

	err := m.within(ctx, func(store *mirrored) error {
		if empty {
			bounded, cancel := context.WithTimeout(ctx, m.Options.Limits.Time)
			defer cancel()

			if _, err := m.fetch(bounded, store); err != nil {
				return err
			}
		}

		// If it runs again, the mirror was damaged.
		empty = true

		trees := make([]fs.FS, len(commits))
		modules := &modules{m: m, store: store, signed: signed, left: m.Options.Limits.Fetch}

		for i, commit := range commits {
			var err error
			if trees[i], err = m.tree(ctx, store, modules, commit); err != nil {
				return err
			}
		}

		return use(trees)
	})

	if errors.Is(err, errDamaged) {
		return m.broken(err)
	}

	return err
}

// tree returns the playbooks of a commit.
func (m *Mirror) tree(ctx context.Context, store *mirrored, modules *modules, commit string) (fs.FS, error) {
	c, err := object.GetCommit(store, plumbing.NewHash(commit))
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return nil, inventory.Errorf(inventory.KindNotFound, "the commit %s is not in the mirror of %s",
			commit, m.Options.URL).Do("name a commit that the log of the repository lists")
	}

	if err != nil {
		return nil, damaged(err)
	}

	if modules.signed {
		if err := m.verify(c); err != nil {
			return nil, err
		}
	}

	root, err := m.folder(store, c)
	if err != nil {
		return nil, err
	}

	modules.count = 0
	t := &tree{
		modules: modules, entries: map[string]*entry{}, limits: m.Options.Limits,
		bytesLeft: m.Options.Limits.Size, time: c.Committer.When,
	}
	top := level{url: m.Options.URL, root: c.TreeHash, at: m.Options.Folder, under: "."}

	if err := t.add(ctx, top, root, ".", 0); err != nil {
		return nil, err
	}

	return t, t.check()
}

// folder returns the hash of the configured folder in a commit.
func (m *Mirror) folder(store *mirrored, c *object.Commit) (plumbing.Hash, error) {
	if m.Options.Folder == "" {
		return c.TreeHash, nil
	}

	root, err := object.GetTree(store, c.TreeHash)
	if err != nil {
		return plumbing.ZeroHash, damaged(err)
	}
	e, err := root.FindEntry(m.Options.Folder)
	if err != nil || e.Mode != filemode.Dir {
		return plumbing.ZeroHash, inventory.Errorf(inventory.KindRefused, "commit %s has no folder %s",
			short(c.Hash), m.Options.Folder).Do("push it, or correct repository.folder in the configuration file")
	}

	return e.Hash, nil
}

func short(h plumbing.Hash) string { return h.String()[:12] }

// tree is the file system of a commit.
type tree struct {
	modules   *modules
	entries   map[string]*entry // by path; "." is the root
	limits    Limits
	bytesLeft int64
	time      time.Time
}

var _ fs.ReadLinkFS = (*tree)(nil)

// entry is a file, a folder or a link. It implements fs.FileInfo and fs.DirEntry.
type entry struct {
	name     string
	mode     fs.FileMode
	size     int64
	hash     plumbing.Hash
	target   string // of a link
	children []fs.DirEntry
	time     time.Time
}

func (e *entry) Name() string               { return e.name }
func (e *entry) Size() int64                { return e.size }
func (e *entry) Mode() fs.FileMode          { return e.mode }
func (e *entry) ModTime() time.Time         { return e.time }
func (e *entry) IsDir() bool                { return e.mode.IsDir() }
func (e *entry) Sys() any                   { return nil }
func (e *entry) Type() fs.FileMode          { return e.mode.Type() }
func (e *entry) Info() (fs.FileInfo, error) { return e, nil }

// add adds a folder with all below it.
func (t *tree) add(ctx context.Context, l level, hash plumbing.Hash, at string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	if depth > maxDepth {
		return refusef("the folders of %s are nested too deeply", path.Dir(at))
	}

	content, err := object.GetTree(t.modules.store, hash)
	if err != nil {
		return damaged(err)
	}

	dir := &entry{name: path.Base(at), mode: fs.ModeDir | 0o755, time: t.time}
	t.entries[at] = dir

	for _, e := range content.Entries {
		if err := t.entry(ctx, l, dir, at, e, depth); err != nil {
			return err
		}
	}

	slices.SortFunc(dir.children, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })

	return nil
}

func (t *tree) entry(ctx context.Context, l level, dir *entry, at string, e object.TreeEntry, depth int) error {
	full := path.Join(at, e.Name)

	// Before anything is joined: a name such as .. would disappear.
	if err := checkName(e.Name); err != nil {
		return refusef("%q in %s: %w", inventory.Shorten(e.Name, 100), at, err)
	}

	if len(full) > maxPath {
		return refusef("the path %s… is longer than %d bytes", full[:100], maxPath)
	}

	if t.entries[full] != nil {
		return refusef("%s is twice in its folder", full)
	}

	if len(t.entries) > t.limits.Files {
		return refusef("it has more than %d files and folders (repository.limits.files)", t.limits.Files)
	}

	err := t.insert(ctx, l, full, e, depth)
	if added := t.entries[full]; err == nil && added != nil {
		dir.children = append(dir.children, added)
	}

	return err
}

func (t *tree) insert(ctx context.Context, l level, full string, e object.TreeEntry, depth int) error {
	added := &entry{name: e.Name, hash: e.Hash, time: t.time}

	switch e.Mode {
	case filemode.Dir:
		return t.add(ctx, l, e.Hash, full, depth+1)
	case filemode.Regular, filemode.Deprecated:
		added.mode = 0o644
	case filemode.Executable:
		added.mode = 0o755
	case filemode.Symlink:
		added.mode = fs.ModeSymlink | 0o777
	case filemode.Submodule:
		return t.submodule(ctx, l, full, e.Hash, depth)
	default:
		return refusef("%s has the unknown mode %o", full, uint32(e.Mode))
	}

	size, err := t.modules.store.EncodedObjectSize(e.Hash)
	if err != nil {
		return damaged(err)
	}
	if t.bytesLeft -= size; t.bytesLeft < 0 {
		return refusef("its files have more than %d bytes, at %s (repository.limits.size)", t.limits.Size, full)
	}

	added.size = size
	t.entries[full] = added

	if added.mode.Type() == fs.ModeSymlink {
		return t.link(full, added)
	}

	return nil
}

// submodule adds the tree of a submodule.
func (t *tree) submodule(ctx context.Context, l level, full string, hash plumbing.Hash, depth int) error {
	if !t.modules.m.Options.Submodules {
		return inventory.Errorf(inventory.KindRefused,
			"the commit cannot be used: %s is a submodule, and submodules are not fetched", full).
			Do("put its files into the repository, or set repository.submodules to true in the configuration file")
	}

	inner, c, err := t.modules.open(ctx, l, full, hash)
	if err != nil {
		return err
	}
	return t.add(ctx, inner, c.TreeHash, full, depth+1)
}

// link reads a link, and refuses one that leads out of the tree.
func (t *tree) link(full string, e *entry) error {
	if e.size > maxTarget {
		return refusef("the target of the link %s is longer than %d bytes", full, maxTarget)
	}

	content, err := t.read(e)
	if err != nil {
		return err
	}
	e.target = string(content)

	switch {
	case !printable(e.target) || e.target == "":
		return refusef("the link %s has the target %q", full, e.target)
	case path.IsAbs(e.target), !filepath.IsLocal(path.Join(path.Dir(full), e.target)):
		return refusef("the link %s points to %s, out of the folder of playbooks", full, e.target)
	}

	return nil
}

// read returns the content of a file or a link.
func (t *tree) read(e *entry) ([]byte, error) {
	blob, err := object.GetBlob(t.modules.store, e.hash)
	if err != nil {
		return nil, damaged(err)
	}
	return readBlob(blob)
}

func readBlob(blob *object.Blob) ([]byte, error) {
	r, err := blob.Reader()
	if err != nil {
		return nil, damaged(err)
	}
	defer r.Close()

	content, err := io.ReadAll(r)

	return content, damaged(err)
}

// pointer is the beginning of a file with its content in Git LFS.
const pointer = "version https://git-lfs.github.com/spec/"

// check refuses trees with files that are elsewhere.
func (t *tree) check() error {
	for full, e := range t.entries {
		const longest = 1024 // bytes of a pointer

		if !e.mode.IsRegular() || e.size > longest || e.size < int64(len(pointer)) {
			continue
		}

		content, err := t.read(e)
		if err != nil {
			return err
		}
		if bytes.HasPrefix(content, []byte(pointer)) {
			return refusef("%s is kept in Git LFS, which is not fetched; put the file itself into the repository", full)
		}
	}

	return nil
}

func refusef(format string, args ...any) error {
	return inventory.Errorf(inventory.KindRefused, "the commit cannot be used: "+format, args...).
		Do("correct it with another commit")
}

// checkPath refuses a relative path with a part that checkName refuses.
func checkPath(name string) error {
	for _, part := range strings.Split(name, "/") {
		if err := checkName(part); err != nil {
			return err
		}
	}

	return nil
}

// checkName refuses the name of a file that could lead elsewhere, or harm a terminal.
func checkName(name string) error {
	lower := strings.ToLower(name)

	switch {
	case name == "" || name == "." || name == "..":
		return errors.New("it is not the name of a file")
	case strings.Contains(name, "/"):
		return errors.New("the name contains a slash")
	case len(name) > maxName:
		return fmt.Errorf("the name is longer than %d bytes", maxName)
	case !printable(name):
		return errors.New("the name has control characters or is not UTF-8")
	case lower == ".git", strings.HasPrefix(lower, "git~"), strings.HasPrefix(lower, ".git "), lower == ".git.":
		return errors.New("the name is reserved for git")
	}

	return nil
}

// Open opens a file or a folder.
func (t *tree) Open(name string) (fs.File, error) {
	e, err := t.find("open", name)
	if err != nil {
		return nil, err
	}
	if !e.mode.IsRegular() {
		return &opened{entry: e, left: e.children}, nil
	}

	blob, err := object.GetBlob(t.modules.store, e.hash)
	if err != nil {
		return nil, damaged(err)
	}
	r, err := blob.Reader()

	return &opened{entry: e, content: r}, damaged(err)
}

func (t *tree) find(op, name string) (*entry, error) {
	if e := t.entries[name]; e != nil && fs.ValidPath(name) {
		return e, nil
	}
	return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// Lstat describes a file, a folder or a link.
func (t *tree) Lstat(name string) (fs.FileInfo, error) { return t.find("lstat", name) }

// ReadLink returns the target of a link.
func (t *tree) ReadLink(name string) (string, error) {
	e, err := t.find("readlink", name)
	if err == nil && e.mode.Type() != fs.ModeSymlink {
		err = &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}

	if err != nil {
		return "", err
	}

	return e.target, nil
}

// opened is an open file or folder. A link is not followed.
type opened struct {
	*entry

	content io.ReadCloser // nil: it is not a file
	left    []fs.DirEntry // that were not read yet
}

func (f *opened) Stat() (fs.FileInfo, error) { return f.entry, nil }

func (f *opened) Read(p []byte) (int, error) {
	if f.content == nil {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrInvalid}
	}
	return f.content.Read(p)
}

// ReadDir lists a folder.
func (f *opened) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 && len(f.left) == 0 {
		return nil, io.EOF
	}

	if n <= 0 || n > len(f.left) {
		n = len(f.left)
	}

	next := f.left[:n]
	f.left = f.left[n:]

	return next, nil
}

func (f *opened) Close() error {
	if f.content == nil {
		return nil
	}
	return f.content.Close()
}
