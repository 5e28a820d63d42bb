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
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/rogpeppe/go-internal/diff"

	"github.com/contiv/cluster/configuration"
)

// The bounds of a difference.
const (
	maxChanges  = 1000
	maxCompared = 256 << 10 // bytes of a file with its text
	maxShown    = 1 << 20   // bytes of all texts
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

		a, err := readVersion(old, path, before[path])
		if err != nil {
			return nil, false, err
		}

		b, err := readVersion(changed, path, after[path])
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

// unified returns the difference as unified text, in the form of git.
func unified(path string, a, b version) string {
	from, to := "a/"+path, "b/"+path
	head := "diff --git " + from + " " + to + "\n"

	switch {
	case a.mode == 0:
		head += "new file mode " + gitMode(b.mode) + "\n"
		from = "/dev/null"
	case b.mode == 0:
		head += "deleted file mode " + gitMode(a.mode) + "\n"
		to = "/dev/null"
	case gitMode(a.mode) != gitMode(b.mode):
		head += "old mode " + gitMode(a.mode) + "\nnew mode " + gitMode(b.mode) + "\n"
	}

	// The first line is a head, too.
	_, text, _ := strings.Cut(string(diff.Diff(from, a.content, to, b.content)), "\n")

	return head + text
}

// gitMode returns the mode of a file or a link as git writes it.
func gitMode(mode fs.FileMode) string {
	m, _ := filemode.NewFromOSFileMode(mode) // files and links have one
	return fmt.Sprintf("%o", uint32(m))
}
