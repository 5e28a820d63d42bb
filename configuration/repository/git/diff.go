// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	format "github.com/go-git/go-git/v5/plumbing/format/diff"
	linediff "github.com/go-git/go-git/v5/utils/diff"
	"github.com/sergi/go-diff/diffmatchpatch"

	"github.com/contiv/cluster/configuration"
)

// The bounds of a difference.
const (
	maxChanges  = 1000
	maxCompared = 256 << 10 // bytes of a file with its text
	maxShown    = 1 << 20   // bytes of all texts
	contextSize = 3         // lines around a change
)

// Diff compares two file systems, and returns the files that differ, sorted by their
// paths. more reports that files or texts were left out. skip leaves files and folders
// out. It follows no link, and keeps no file in memory that is too long to show.
func Diff(
	ctx context.Context, old, changed fs.FS, skip func(path string, d fs.DirEntry) bool,
) (changes []configuration.FileChange, more bool, err error) {
	before, err := list(old, skip)
	if err != nil {
		return nil, false, err
	}

	after, err := list(changed, skip)
	if err != nil {
		return nil, false, err
	}

	paths := slices.Sorted(maps.Keys(before))

	for path := range after {
		if _, both := before[path]; !both {
			paths = append(paths, path)
		}
	}

	slices.Sort(paths)

	left := maxShown

	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}

		a, b, err := read(old, changed, before, after, path)
		if err != nil {
			return nil, false, err
		}

		if a.equal(b) {
			continue
		}

		if len(changes) == maxChanges {
			return changes, true, nil
		}

		change := compare(path, a, b)
		if left -= len(change.Text); left < 0 {
			change.Text, change.Note, more = "", "the text is left out: the difference is too long", true
		}

		changes = append(changes, change)
	}

	return changes, more, nil
}

// version is one side of a file.
type version struct {
	mode    fs.FileMode // zero: there is no file
	size    int64
	content []byte            // of a link: its target; nil if size is over maxCompared
	sum     [sha256.Size]byte // of the content, if that is nil
}

func (v version) equal(other version) bool {
	return v.mode == other.mode && v.size == other.size && v.sum == other.sum && bytes.Equal(v.content, other.content)
}

func list(src fs.FS, skip func(string, fs.DirEntry) bool) (map[string]fs.FileMode, error) {
	files := map[string]fs.FileMode{}

	err := fs.WalkDir(src, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == ".":
			return nil
		case skip(path, d) && d.IsDir():
			return fs.SkipDir
		case d.IsDir() || skip(path, d):
			return nil
		}

		info, err := d.Info()
		if err == nil {
			files[path] = info.Mode()
		}

		return err
	})

	return files, err
}

func read(old, changed fs.FS, before, after map[string]fs.FileMode, path string) (a, b version, err error) {
	a, err = readVersion(old, path, before[path])
	if err != nil {
		return a, b, err
	}

	b, err = readVersion(changed, path, after[path])

	return a, b, err
}

func readVersion(src fs.FS, path string, mode fs.FileMode) (version, error) {
	v := version{mode: mode}

	var err error

	switch {
	case mode == 0:
	case mode.Type() == fs.ModeSymlink:
		var target string
		target, err = fs.ReadLink(src, path)
		v.mode, v.content, v.size = fs.ModeSymlink, []byte(target), int64(len(target))
	case mode.IsRegular():
		err = v.read(src, path)
	default:
		err = errors.New("it is neither a file nor a link")
	}

	if err != nil {
		return v, fmt.Errorf("%s cannot be read: %w", path, err)
	}

	return v, nil
}

// read takes the content of a file: all of it, or the sum of one that is too long.
func (v *version) read(src fs.FS, path string) error {
	f, err := src.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()

	// One byte more than the bound shows that there is more.
	start, err := io.ReadAll(io.LimitReader(f, maxCompared+1))
	v.size = int64(len(start))

	if err != nil || v.size <= maxCompared {
		v.content = start
		return err
	}

	hash := sha256.New()
	hash.Write(start) // a hash takes everything

	rest, err := io.Copy(hash, f)
	v.size += rest
	hash.Sum(v.sum[:0])

	return err
}

// compare describes the difference of two versions that are not equal.
func compare(path string, a, b version) configuration.FileChange {
	change := configuration.FileChange{Path: path, Kind: configuration.FileChanged}

	switch {
	case a.mode == 0:
		change.Kind = configuration.FileAdded
	case b.mode == 0:
		change.Kind = configuration.FileRemoved
	}

	switch {
	case a.size > maxCompared || b.size > maxCompared:
		change.Note = fmt.Sprintf("%d and %d bytes: too long to compare", a.size, b.size)
	case !isText(a.content) || !isText(b.content):
		change.Note = fmt.Sprintf("binary: %d and %d bytes", a.size, b.size)
	default:
		change.Text = unified(path, a, b)
	}

	return change
}

func isText(content []byte) bool { return utf8.Valid(content) && bytes.IndexByte(content, 0) < 0 }

// unified returns the difference as unified text.
func unified(path string, a, b version) string {
	p := patch{path: path, a: a, b: b}

	for _, d := range linediff.DoWithTimeout(string(a.content), string(b.content), 2*time.Second) {
		operation := format.Equal

		switch d.Type {
		case diffmatchpatch.DiffInsert:
			operation = format.Add
		case diffmatchpatch.DiffDelete:
			operation = format.Delete
		case diffmatchpatch.DiffEqual:
		}

		p.chunks = append(p.chunks, chunk{d.Text, operation})
	}

	var text strings.Builder

	// A strings.Builder takes everything.
	_ = format.NewUnifiedEncoder(&text, contextSize).Encode(p)

	return text.String()
}

// patch is the difference of one file. It implements Patch and FilePatch.
type patch struct {
	path   string
	a, b   version
	chunks []format.Chunk
}

func (p patch) FilePatches() []format.FilePatch { return []format.FilePatch{p} }
func (p patch) Message() string                 { return "" }
func (p patch) IsBinary() bool                  { return false }
func (p patch) Chunks() []format.Chunk          { return p.chunks }

func (p patch) Files() (from, to format.File) {
	if p.a.mode != 0 {
		from = side{p.path, p.a}
	}

	if p.b.mode != 0 {
		to = side{p.path, p.b}
	}

	return from, to
}

// side is one side of a patch.
type side struct {
	path string
	v    version
}

func (s side) Path() string        { return s.path }
func (s side) Hash() plumbing.Hash { return plumbing.ComputeHash(plumbing.BlobObject, s.v.content) }

func (s side) Mode() filemode.FileMode {
	switch {
	case s.v.mode.Type() == fs.ModeSymlink:
		return filemode.Symlink
	case s.v.mode.Perm()&0o111 != 0:
		return filemode.Executable
	}

	return filemode.Regular
}

// chunk is a part of a file.
type chunk struct {
	text      string
	operation format.Operation
}

func (c chunk) Content() string        { return c.text }
func (c chunk) Type() format.Operation { return c.operation }
