// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// Files that are derived from content are in DIR/HEX.VERSION. That folder is made as DIR/HEX.VERSION.part-RANDOM, and
// renamed once all files in it are on the disk: it has all of them, or is not there.

// staleAfter is the age of a folder of derived files that nobody completes any more.
const staleAfter = time.Hour

var (
	versionForm     = regexp.MustCompile(`^[0-9a-f]{8,64}$`)
	derivedNameForm = regexp.MustCompile(`^[a-z]{1,20}$`)
	derivedForm     = regexp.MustCompile(`^([0-9a-f]{64})\.([0-9a-f]{8,64})(\.part-[0-9]+)?$`)
)

// derivedPath returns the folder of the files of a version.
func (s *Store) derivedPath(digest, version string) (string, error) {
	path, err := s.path(digest)
	if err == nil && !versionForm.MatchString(version) {
		err = inventory.Errorf(inventory.KindInvalid, "%q is no version of derived files",
			inventory.Shorten(version, 100))
	}

	return path + "." + version, err
}

// IsDerived reports whether the files of a version can be opened.
func (s *Store) IsDerived(digest, version string, names []string) bool {
	_, complete := s.Received(digest)

	return complete && !slices.ContainsFunc(names, func(name string) bool {
		f, err := s.OpenDerived(digest, version, name)
		if err == nil {
			_ = f.Close()
		}
		return err != nil
	})
}

// OpenDerived opens a file that was derived from content, or returns KindNotFound: if it was not made for the version,
// or if the content is not here any more. The caller has to close it.
func (s *Store) OpenDerived(digest, version, name string) (*os.File, error) {
	path, err := s.derivedPath(digest, version)
	if err != nil {
		return nil, err
	}

	missing := inventory.Errorf(inventory.KindNotFound, "%s is not derived from %s in %s",
		inventory.Shorten(name, 100), digest, s.Dir)

	if _, complete := s.Received(digest); !complete || !derivedNameForm.MatchString(name) {
		return nil, missing
	}

	f, _, err := open(filepath.Join(path, name), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing
	}

	return f, err
}

// Derive makes files of content, unless those of the version are here. The function writes them, in the order of their
// names, and need not sync. They can be opened once all are whole, and survive a crash then; after an error, or if the
// content is removed meanwhile (KindConflict), there is none of them. Content that is damaged is KindUnavailable.
// Callers at once make the files twice, and one of them counts.
func (s *Store) Derive(
	ctx context.Context, digest, version string, names []string,
	write func(ctx context.Context, deb *os.File, size int64, to []io.Writer) error,
) error {
	path, err := s.derivedPath(digest, version)
	if err != nil {
		return err
	}
	if s.IsDerived(digest, version, names) {
		return nil
	}
	if err := s.own(); err != nil {
		return err
	}

	is, ok, err := s.Verify(ctx, digest)
	if err != nil {
		return err
	}
	if !ok {
		return inventory.Errorf(inventory.KindUnavailable, "the content %s is damaged", digest).
			Do("compare it with its digest, which removes what is damaged, and add it again")
	}

	content, err := s.Open(digest)
	if err != nil {
		return err
	}
	defer content.Close()

	if err := s.room(is.Size); err != nil { // what is made of it is seldom larger
		return err
	}

	part, err := os.MkdirTemp(s.Dir, filepath.Base(path)+".part-")
	if err != nil {
		return s.failed(err)
	}
	// After a success it is renamed, and this does nothing.
	defer os.RemoveAll(part)

	if err := s.writeDerived(part, names, func(to []io.Writer) error {
		return write(ctx, content, is.Size, to)
	}); err != nil {
		return err
	}

	if _, complete := s.Received(digest); !complete {
		return inventory.Errorf(inventory.KindConflict, "the content %s was removed meanwhile", digest).
			Do("add it again")
	}

	return s.nameDerived(part, path, func() bool { return s.IsDerived(digest, version, names) })
}

// writeDerived writes files into a folder, durably.
func (s *Store) writeDerived(folder string, names []string, write func(to []io.Writer) error) (err error) {
	files := make([]*os.File, len(names))
	to := make([]io.Writer, len(names))

	defer func() {
		for _, f := range files {
			if f != nil {
				_ = f.Close() // what was written is synced by then
			}
		}
	}()

	for i, name := range names {
		if !derivedNameForm.MatchString(name) {
			return inventory.Errorf(inventory.KindInvalid, "%q is no name of a derived file", name)
		}

		flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
		if files[i], err = os.OpenFile(filepath.Join(folder, name), flags, 0o600); err != nil {
			return s.failed(err)
		}
		to[i] = &bounded{Writer: files[i], s: s}
	}

	if err := write(to); err != nil {
		return err
	}

	flush := s.Flush
	if flush == nil {
		flush = (*os.File).Sync
	}

	for _, f := range files {
		if err := flush(f); err != nil {
			return s.failed(err)
		}
	}

	if err := localfile.SyncDir(folder); err != nil {
		return s.failed(err)
	}

	return nil
}

// nameDerived gives a folder with complete files its name. What has the name already stays if it is complete, too.
func (s *Store) nameDerived(part, path string, isDerived func() bool) error {
	err := localfile.Rename(part, path)
	if !errors.Is(err, fs.ErrExist) { // also a folder that is not empty
		if err != nil {
			err = s.failed(err)
		}
		return err
	}
	if isDerived() {
		return nil
	}

	// Somebody has taken a file out of it.
	if err = removeFolder(path); err == nil {
		err = localfile.Rename(part, path)
	}
	if err != nil {
		err = s.failed(err)
	}

	return err
}

// bounded keeps the Reserve of a store free.
type bounded struct {
	io.Writer

	s       *Store
	written int64 // since it looked at the free space
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.written >= spaceEvery {
		if err := b.s.room(0); err != nil {
			return 0, err
		}
		b.written = 0
	}

	n, err := b.Writer.Write(p)
	b.written += int64(n)

	if err != nil {
		err = b.s.failed(err)
	}

	return n, err
}

// TidyDerived removes derived files of other versions than these, those whose content is not here any more, and what
// was not completed.
func (s *Store) TidyDerived(versions []string) error {
	return s.removeDerived(func(name []string, folder fs.FileInfo) bool {
		digest, version, part := algorithm+name[1], name[2], name[3]
		if part != "" {
			return time.Since(folder.ModTime()) > staleAfter
		}

		_, complete := s.Received(digest)

		return !complete || !slices.Contains(versions, version)
	})
}

// removeDerivedOf removes all that was derived from content.
func (s *Store) removeDerivedOf(digest string) error {
	return s.removeDerived(func(name []string, _ fs.FileInfo) bool {
		return algorithm+name[1] == digest && name[3] == ""
	})
}

// removeDerived removes folders of derived files, by the parts of their name.
func (s *Store) removeDerived(which func(name []string, folder fs.FileInfo) bool) error {
	files, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return s.failed(err)
	}

	for _, file := range files {
		name := derivedForm.FindStringSubmatch(file.Name())
		info, err := file.Info()

		if name == nil || err != nil || !info.IsDir() || !which(name, info) {
			continue
		}
		if err := s.Owned(); err != nil {
			return err
		}

		path := filepath.Join(s.Dir, file.Name())
		if name[3] != "" {
			err = os.RemoveAll(path)
		} else {
			err = removeFolder(path)
		}
		if err != nil {
			return s.failed(err)
		}
	}

	return nil
}

// removeFolder removes a folder with derived files at once: a crash leaves all of it, or nothing that can be opened.
func removeFolder(path string) error {
	away := path + ".part-0"

	err := os.RemoveAll(away) // what a crash has left
	if err == nil {
		err = localfile.Rename(path, away)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	return errors.Join(err, os.RemoveAll(away))
}
