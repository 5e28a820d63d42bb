// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

const (
	// Reserve is the space in bytes that content leaves free on its file system. clusterm refuses changes below 64 MiB.
	Reserve = 256 << 20
	// pieceSize is what is read and written at once, in bytes.
	pieceSize = 1 << 20
	// spaceEvery is the number of bytes after which a write looks at the free space again.
	spaceEvery = 16 << 20
	// keepEvery is the number of bytes after which a write makes what has come, and the state of its hash, durable.
	keepEvery = 64 << 20

	algorithm  = "sha256:"
	partSuffix = ".part"
	sumSuffix  = ".sum"
	// ownerFile has the identity of the manager that a folder belongs to.
	ownerFile = ".clusterm-images"
)

// Options of a Store.
type Options struct {
	Dir string // made with mode 0700 by the first write
	// Owner returns the identity of the manager that the folder has to belong to; empty: it is not known yet. nil: the
	// folder may be anybody's.
	Owner func() string
	// Free returns the free bytes of the file system of a directory; nil: as the kernel says.
	Free func(dir string) (int64, error)
	// Flush makes what was written to a file durable; nil: fsync. For tests.
	Flush func(*os.File) error
	// Lock locks a file, and does not wait; nil: flock. For tests.
	Lock func(*os.File) error
	// Content returns what is read of a file; nil: the file. For tests.
	Content func(*os.File) io.Reader
}

// Store keeps content by digest: DIR/HEX has what is complete, DIR/HEX.part what has come of the rest, and DIR/HEX.sum
// the state of its hash. Its methods may be called at once, also by several processes.
type Store struct{ Options }

// NewStore returns the store of a folder, which need not exist.
func NewStore(o Options) *Store {
	if o.Free == nil {
		o.Free = freeSpace
	}
	if o.Lock == nil {
		o.Lock = func(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
	}
	if o.Content == nil {
		o.Content = func(f *os.File) io.Reader { return f }
	}

	return &Store{o}
}

func freeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Frsize, nil //nolint:gosec // no file system is that large
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// IsDigest reports whether a text is a digest: sha256: and 64 digits, in lower case.
func IsDigest(text string) bool { return digestForm.MatchString(text) }

// path returns the path of what is complete. No digest leads out of the folder.
func (s *Store) path(digest string) (string, error) {
	if !IsDigest(digest) {
		return "", inventory.Errorf(inventory.KindInvalid, "%q is no digest", inventory.Shorten(digest, 100)).
			Do("write sha256: and 64 hexadecimal digits in lower case, as sha256sum prints them")
	}
	return filepath.Join(s.Dir, strings.TrimPrefix(digest, algorithm)), nil
}

// Owned refuses a folder that belongs to another manager or to something else, with KindRefused. One that is empty, or
// missing, is free.
func (s *Store) Owned() error {
	_, err := s.owned()
	return err
}

// owned also reports whether the folder is marked.
func (s *Store) owned() (marked bool, err error) {
	if s.Owner == nil {
		return true, nil
	}

	self := s.Owner()
	if self == "" {
		return false, inventory.Errorf(inventory.KindUnavailable, "the identity of the manager is not known yet").
			Do("try again once the store accepts changes")
	}

	marker := filepath.Join(s.Dir, ownerFile)
	refused := func(format string, args ...any) error {
		return inventory.Errorf(inventory.KindRefused, "the folder of images "+format, args...).
			Do("set images.folder to a folder for this manager alone; if all content of this one may be removed: "+
				"echo %s >%s", self, marker)
	}

	owner, err := readOwner(marker)
	switch {
	case err == nil && owner == self:
		return true, nil
	case err == nil:
		return false, refused("%s belongs to the manager %q", s.Dir, owner)
	case !errors.Is(err, fs.ErrNotExist):
		return false, s.failed(err)
	}

	files, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, s.failed(err)
	}

	for _, f := range files {
		if name := f.Name(); name != "lost+found" && !strings.HasPrefix(name, ".") {
			return false, refused("%s has other files, such as %s, and no file %s", s.Dir, inventory.Shorten(name, 100),
				ownerFile)
		}
	}

	return false, nil
}

func readOwner(marker string) (string, error) {
	f, _, err := open(marker, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()

	content, err := io.ReadAll(io.LimitReader(f, 100))

	return strings.TrimSpace(string(content)), err
}

// own makes the folder, and marks it.
func (s *Store) own() error {
	marked, err := s.owned()
	if err != nil {
		return err
	}

	err = errors.Join(os.MkdirAll(s.Dir, 0o700), localfile.SyncDir(filepath.Dir(s.Dir)))
	if err == nil && !marked {
		err = localfile.Replace(filepath.Join(s.Dir, ownerFile), []byte(s.Owner()+"\n"))
	}
	if err != nil {
		return s.failed(err)
	}

	return nil
}

// open opens a regular file of the folder, and nothing that a link leads to.
func open(path string, flag int) (*os.File, int64, error) {
	f, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, 0, err
	}

	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}

	return f, info.Size(), nil
}

// Open opens complete content, or returns KindNotFound. The caller has to close it.
func (s *Store) Open(digest string) (*os.File, error) {
	path, err := s.path(digest)
	if err != nil {
		return nil, err
	}

	f, _, err := open(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, inventory.Errorf(inventory.KindNotFound, "%s is not in %s", digest, s.Dir)
	}
	if err != nil {
		return nil, s.unreadable(err)
	}

	return f, nil
}

// Received returns how many bytes of content are here, and whether that is all of it.
func (s *Store) Received(digest string) (size int64, complete bool) {
	path, err := s.path(digest)
	if err != nil {
		return 0, false
	}

	for _, p := range []string{path, path + partSuffix} {
		if info, err := os.Lstat(p); err == nil && info.Mode().IsRegular() {
			return info.Size(), p == path
		}
	}

	return 0, false
}

// Write appends content to what is here of the digest, from the offset on, up to its size in bytes. It refuses another
// offset than the end of what is here with KindPrecondition, and a second writer with KindConflict. Once all of it has
// come, and is what the digest says, it is complete and survives a crash. What has come of it before an error stays,
// except for content that is not what the digest says. Content that is complete already is not read.
func (s *Store) Write(digest string, size, offset int64, content io.Reader) error {
	path, err := s.path(digest)
	if err != nil {
		return err
	}
	if err := s.own(); err != nil {
		return err
	}
	if _, complete := s.Received(digest); complete {
		return nil
	}

	p, err := s.lock(path+partSuffix, os.O_CREATE)
	if err != nil {
		return err
	}
	p.flush = s.Flush
	defer p.Close()

	// The writer before may have completed it: this part is a new one then.
	if _, complete := s.Received(digest); complete {
		return p.discard()
	}

	if err := s.begin(p, size, offset); err != nil {
		return err
	}

	if err := s.room(size - p.has); err != nil {
		return err
	}

	if err := s.fill(p, size, content); err != nil {
		return errors.Join(err, p.keep())
	}

	if got := algorithm + hex.EncodeToString(p.sum.Sum(nil)); got != digest {
		return errors.Join(p.discard(), inventory.
			Errorf(inventory.KindInvalid, "the content has the digest %s, and not %s", got, digest).
			Do("add it again, from its beginning"))
	}

	if err := p.sync(); err != nil {
		return s.failed(err)
	}
	if !p.named() {
		return p.removed()
	}
	if err := localfile.Rename(p.Name(), path); err != nil {
		return s.failed(err)
	}

	_ = os.Remove(path + sumSuffix) // of no use, and of no harm

	return nil
}

// part is the file with what has come, or with complete content, locked against others.
type part struct {
	*os.File

	has  int64
	sum  hash.Hash // of what it has, once it has begun
	kept int64     // how much of it the kept state of the hash is of

	flush func(*os.File) error
	lost  bool // some of it could not be made durable
}

// lock opens a file, and locks it. It returns KindConflict if another writer has it.
func (s *Store) lock(path string, flag int) (*part, error) {
	for {
		f, size, err := open(path, os.O_RDWR|flag)
		if err != nil {
			return nil, s.failed(err)
		}

		if err := s.Lock(f); err != nil {
			return nil, errors.Join(s.locked(err), f.Close())
		}

		// Another writer may have completed, or removed, this file before the lock.
		p := &part{File: f, sum: sha256.New()}
		if info, err := f.Stat(); err == nil && p.named() {
			p.has = max(size, info.Size())
			return p, nil
		}

		_ = f.Close()
	}
}

// locked returns why a file cannot be locked.
func (s *Store) locked(err error) error {
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return inventory.Errorf(inventory.KindConflict, "the same content is being written now").
			Do("wait until that ends, and try again")
	case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		return inventory.Errorf(inventory.KindUnavailable, "the file system of %s cannot lock files: %w", s.Dir, err).
			Do("mount it with locks (NFS: start rpc.statd, or use version 4), or set images.folder to a local folder")
	default:
		return s.failed(err)
	}
}

// begin reads what has come before, and compares its end with the offset.
func (s *Store) begin(p *part, size, offset int64) error {
	if p.has > size {
		return inventory.Errorf(inventory.KindInvalid,
			"%d bytes of it are here already, and it should have %d", p.has, size).
			Do("add it again, with its size")
	}

	if offset != p.has {
		return inventory.
			Errorf(inventory.KindPrecondition, "%d bytes of it are here, and the request goes on at %d", p.has, offset).
			Do("send it from byte %d on", p.has)
	}

	at := p.recall()
	if _, err := p.Seek(at, io.SeekStart); err != nil {
		return s.unreadable(err)
	}

	for end := p.has; at < end; {
		n, err := io.CopyN(p.sum, p, min(keepEvery, end-at))
		if err != nil {
			return s.unreadable(err)
		}

		at += n
		p.has = at

		if err := p.keepSome(); err != nil {
			return s.failed(err)
		}
	}

	return nil
}

// sumPath is that of the file with the state of the hash, and how many bytes that is of.
func (p *part) sumPath() string { return strings.TrimSuffix(p.Name(), partSuffix) + sumSuffix }

// recall takes the kept state of the hash, and returns how many bytes it is of. One that cannot be of this part is
// removed, so that it is not taken for that of a longer one later.
func (p *part) recall() int64 {
	kept, err := os.ReadFile(p.sumPath())
	if err == nil {
		var n int64

		head, err := binary.Decode(kept, binary.BigEndian, &n)
		if err == nil && n >= 0 && n <= p.has &&
			p.sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(kept[head:]) == nil {
			p.kept = n
			return n
		}
	}

	p.sum.Reset()
	_ = os.Remove(p.sumPath())

	return 0
}

// sync makes what has come durable. After a failure what came since the last success is dropped: the kernel reports it
// once, and may show what the disk does not have.
func (p *part) sync() error {
	flush := p.flush
	if flush == nil {
		flush = (*os.File).Sync
	}

	err := flush(p.File)
	if err == nil {
		return nil
	}

	p.lost = true

	return errors.Join(err, p.Truncate(p.kept))
}

// keep makes what has come durable, and then the state of its hash, so that the next writer need not read it.
func (p *part) keep() error {
	if p.lost || !p.named() {
		return nil
	}
	if err := p.sync(); err != nil {
		return err
	}

	state, err := p.sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return err
	}

	head, err := binary.Append(nil, binary.BigEndian, p.has)
	if err != nil {
		return err
	}

	p.kept = p.has

	return localfile.Replace(p.sumPath(), append(head, state...))
}

func (p *part) keepSome() error {
	if p.has-p.kept < keepEvery {
		return nil
	}
	return p.keep()
}

// named reports whether the part still has its name. Whoever removed it may have begun another one.
func (p *part) named() bool {
	own, err := p.Stat()
	named, gone := os.Lstat(p.Name())

	return err == nil && gone == nil && os.SameFile(own, named)
}

func (p *part) removed() error {
	return inventory.Errorf(inventory.KindConflict, "what had come of it was removed meanwhile").
		Do("add it again, from its beginning")
}

func (p *part) discard() error {
	if !p.named() {
		return nil
	}

	_ = os.Remove(p.sumPath())

	return os.Remove(p.Name())
}

// fill appends the content until the part has its size.
func (s *Store) fill(p *part, size int64, content io.Reader) error {
	piece := make([]byte, pieceSize)
	checked := p.has

	for {
		n, err := io.ReadFull(content, piece)
		if p.has+int64(n) > size {
			return errors.Join(p.discard(), inventory.
				Errorf(inventory.KindInvalid, "the content is longer than the %d bytes that it should have", size).
				Do("add it again, with its size"))
		}

		if p.has-checked >= spaceEvery {
			if err := s.room(0); err != nil {
				return err
			}
			checked = p.has
		}

		if _, err := p.Write(piece[:n]); err != nil {
			return s.failed(err)
		}
		_, _ = p.sum.Write(piece[:n]) // it never fails
		p.has += int64(n)

		if err := p.keepSome(); err != nil {
			return s.failed(err)
		}

		switch {
		case err == nil:
		case p.has == size && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
			return nil
		default:
			// What has come is kept, and the next request goes on after it.
			kind := inventory.KindUnavailable
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				kind = inventory.KindInvalid // it ended before
			}

			return inventory.
				Errorf(kind, "the content broke off after %d of %d bytes: %w", p.has, size, err).
				Do("repeat it, from byte %d on", p.has)
		}
	}
}

// room refuses what would leave less than Reserve free.
func (s *Store) room(more int64) error {
	free, err := s.Free(s.Dir)
	if err != nil {
		return s.failed(err)
	}

	if free-more < Reserve {
		return inventory.Errorf(inventory.KindRefused, "there is no room for the content: it needs %d MiB more, and "+
			"%d MiB are free on the file system of %s, of which %d MiB have to stay free", toMiB(more), free>>20, s.Dir,
			Reserve>>20).Do("free some space there, or remove images; then repeat it")
	}

	return nil
}

func toMiB(n int64) int64 { return (n + 1<<20 - 1) >> 20 }

func (s *Store) failed(err error) error {
	remedy := "check the folder and its file system, and repeat it"

	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		remedy = "free space and inodes there, or remove images; then repeat it"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		remedy = "let the user of clusterm write to the folder, and to all that is in it; then repeat it"
	}

	return inventory.Errorf(inventory.KindUnavailable, "cannot write content to %s: %w", s.Dir, err).Do("%s", remedy)
}

// unreadable is the error for content that is here, and cannot be read.
func (s *Store) unreadable(err error) error {
	return inventory.Errorf(inventory.KindUnavailable, "cannot read content in %s: %w", s.Dir, err).
		Do("check the file system and its disk, and repeat it; if the disk has lost the file, remove that by hand, " +
			"and add the image again")
}

// Verify reads complete content, and reports whether it is what the digest says. What cannot be read is an error, since
// it may be as good as new on a network file system that is back. It blocks until then, or until ctx ends.
func (s *Store) Verify(ctx context.Context, digest string) (e Entry, ok bool, err error) {
	f, err := s.Open(digest)
	if err != nil {
		return e, false, err
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return e, false, s.unreadable(err)
	}
	e = entry(digest, true, info)

	sum, content := sha256.New(), s.Content(f)
	for err == nil && ctx.Err() == nil {
		_, err = io.CopyN(sum, content, spaceEvery)
	}

	if ctx.Err() != nil {
		return e, false, ctx.Err()
	}
	if !errors.Is(err, io.EOF) {
		return e, false, s.unreadable(err)
	}

	return e, algorithm+hex.EncodeToString(sum.Sum(nil)) == digest, nil
}

// Remove removes the file that an entry is about, durably, if it has not changed since, and what was derived from it.
// It returns KindConflict for what is being written. What is not here any more is no error.
func (s *Store) Remove(e Entry) error {
	path, err := s.path(e.Digest)
	if err != nil {
		return err
	}
	if err := s.Owned(); err != nil {
		return err
	}
	if !e.Complete {
		path += partSuffix
	}

	p, err := s.lock(path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.Close()

	now, err := p.Stat()
	if err == nil && e.isOf(now) {
		err = errors.Join(p.discard(), localfile.SyncDir(s.Dir))
		if e.Complete {
			err = errors.Join(err, s.removeDerivedOf(e.Digest))
		}
	}
	if err != nil {
		return s.failed(err)
	}

	return nil
}

// Entry is content in the folder.
type Entry struct {
	Digest   string
	Size     int64 // of what is here
	Complete bool
	Changed  time.Time // the last write

	file fs.FileInfo
}

func entry(digest string, complete bool, file fs.FileInfo) Entry {
	return Entry{digest, file.Size(), complete, file.ModTime(), file}
}

// isOf reports whether the entry is about a file, as that is now.
func (e Entry) isOf(file fs.FileInfo) bool {
	return os.SameFile(e.file, file) && e.Size == file.Size() && e.Changed.Equal(file.ModTime())
}

// List returns all content, by digest. What else is in the folder is not looked at.
func (s *Store) List() ([]Entry, error) {
	files, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, s.failed(err)
	}

	var all []Entry

	for _, file := range files {
		name, isPart := strings.CutSuffix(file.Name(), partSuffix)

		info, err := file.Info()
		if !IsDigest(algorithm+name) || err != nil || !info.Mode().IsRegular() {
			continue
		}

		all = append(all, entry(algorithm+name, !isPart, info))
	}

	return all, nil
}
