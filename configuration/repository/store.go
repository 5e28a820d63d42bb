// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// Default bounds of a folder of playbooks.
const (
	DefaultMaxBytes = 64 << 20
	DefaultMaxFiles = 10_000
)

// Names in Store.Dir that are not digests. Prune removes them.
const (
	prefixCopying = ".tmp-"     // a copy in progress, or one that was interrupted
	prefixDamaged = ".damaged-" // a copy that no longer matched its digest
)

// manifestName is the file in a copy with the lines that its digest covers. It is
// no part of the content.
const manifestName = ".clusterm-manifest"

// rolesName is the folder in a copy with the roles of Store.Roles. It is part of the
// content.
const rolesName = ".clusterm-roles"

// Internal reports whether an entry of a copy, or of a folder to copy, is no part of the
// playbooks.
func Internal(path string, d fs.DirEntry) bool { return path == rolesName || omitted(d) }

// Store keeps copies of folders of playbooks, each in a directory named for the
// digest of its content. Its methods may be called concurrently; only one
// process may use Dir.
type Store struct {
	Dir      string // absolute; created with mode 0700
	MaxBytes int64  // size of all files of a folder; 0: DefaultMaxBytes
	MaxFiles int    // number of files, folders and links; 0: DefaultMaxFiles
	// Roles are added to the copy of every directory, so that its playbooks find them
	// as they were. nil: none.
	Roles fs.FS

	mu sync.Mutex // serializes copies and removals
}

// Path returns the directory of the playbooks with that digest. It need not
// exist, see Intact.
func (s *Store) Path(digest string) string { return filepath.Join(s.Dir, digest) }

// RolesPath returns the directory with the roles that were added to the playbooks with
// that digest, or "" if there are none.
func (s *Store) RolesPath(digest string) string {
	dir := filepath.Join(s.Path(digest), rolesName)
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// Intact reports whether the playbooks with that digest are kept, with everything
// that belongs to them. Files that a run has added to the copy do no harm.
func (s *Store) Intact(ctx context.Context, digest string) bool {
	if !digestPattern.MatchString(digest) {
		return false
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	found, err := s.walk(ctx, whole(os.DirFS(s.Path(digest))), nil)
	if err != nil {
		return false
	}
	if digestOf(found) == digest {
		return true
	}

	manifest, err := os.ReadFile(filepath.Join(s.Path(digest), manifestName))
	if err != nil {
		return false
	}
	lines := strings.Split(string(manifest), "\n")
	isMissing := func(line string) bool {
		_, ok := slices.BinarySearch(found, line)
		return !ok
	}

	return digestOf(lines) == digest && !slices.ContainsFunc(lines, isMissing)
}

// KeepDir keeps a copy of a directory together with the roles of the store, see Keep.
// The digest covers both. Links out of the directory are refused.
func (s *Store) KeepDir(ctx context.Context, dir string) (digest string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "the playbook folder cannot be read: %w", err)
	}
	defer root.Close()
	return s.keep(ctx, source{root.FS(), s.Roles})
}

// DigestDir returns the digest that KeepDir would return now, and copies nothing.
func (s *Store) DigestDir(ctx context.Context, dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "the playbook folder cannot be read: %w", err)
	}
	defer root.Close()

	lines, err := s.walk(ctx, source{root.FS(), s.Roles}, nil)
	if err != nil {
		return "", err
	}
	return digestOf(lines), nil
}

// KeepTree keeps a copy of a file system together with the roles of the store, as KeepDir
// does of a directory: the same content has the same digest.
func (s *Store) KeepTree(ctx context.Context, tree fs.FS) (digest string, err error) {
	return s.keep(ctx, source{tree, s.Roles})
}

// Keep copies the playbooks in src and returns the digest of their content.
// Playbooks that are kept already are not copied again. The copy omits .git and
// the files that Python and Ansible leave behind (__pycache__, *.pyc, *.retry),
// and is on disk when Keep returns.
//
// The digest covers paths, permissions, link targets and content. Keep refuses
// links that are dangling or leave the folder, anything but files, folders and
// links, and folders over the bounds, with an error of kind invalid.
func (s *Store) Keep(ctx context.Context, src fs.FS) (digest string, err error) {
	return s.keep(ctx, whole(src))
}

func (s *Store) keep(ctx context.Context, src source) (digest string, err error) {
	if err := configuration.CheckPath("the directory for playbooks", s.Dir); err != nil {
		return "", err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return "", err
	}

	lines, err := s.walk(ctx, src, nil)
	if err != nil {
		return "", err
	}
	if digest = digestOf(lines); s.reuse(ctx, digest) {
		return digest, nil
	}

	return s.copy(ctx, src)
}

// reuse reports whether an intact copy with that digest exists, and marks it as
// used now.
func (s *Store) reuse(ctx context.Context, digest string) bool {
	dir := s.Path(digest)
	if _, err := os.Lstat(dir); err != nil {
		return false
	}

	// The account may have edited the copy, which a digest must not hide.
	lines, err := s.walk(ctx, whole(os.DirFS(dir)), nil)
	now := time.Now()

	return err == nil && digestOf(lines) == digest && os.Chtimes(dir, now, now) == nil
}

// copy copies src into the store and returns the digest of the copy.
func (s *Store) copy(ctx context.Context, src source) (digest string, err error) {
	tmp, err := os.MkdirTemp(s.Dir, prefixCopying)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp) // Prune removes leftovers

	dst, err := os.OpenRoot(tmp)
	if err != nil {
		return "", err
	}
	defer dst.Close() // walk has synced it

	// src may have changed since the first walk, so the copy's own digest counts.
	lines, err := s.walk(ctx, src, dst)
	if err != nil {
		return "", err
	}
	if digest = digestOf(lines); s.reuse(ctx, digest) {
		return digest, nil
	}

	manifest := []byte(strings.Join(lines, "\n"))
	if err := localfile.Replace(filepath.Join(tmp, manifestName), manifest); err != nil {
		return "", err
	}

	//nolint:gosec // the data directory above it is closed; become users read roles
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}

	// A copy that exists but cannot be reused is damaged: put it out of the way.
	if _, err := os.Lstat(s.Path(digest)); err == nil {
		damaged := filepath.Join(s.Dir, prefixDamaged+filepath.Base(tmp))
		if err := os.Rename(s.Path(digest), damaged); err != nil {
			return "", err
		}
	}

	return digest, localfile.Rename(tmp, s.Path(digest))
}

var digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Prune removes the playbooks that are not in keep and that no Keep has
// returned within the given time, and the leftovers of interrupted copies. It
// returns the digests removed, also with an error.
func (s *Store) Prune(keep []string, unused time.Duration) (removed []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	var errs []error
	for _, e := range entries {
		name := e.Name()
		isDigest := digestPattern.MatchString(name)
		isLeftover := strings.HasPrefix(name, prefixCopying) || strings.HasPrefix(name, prefixDamaged)

		if !isDigest && !isLeftover || slices.Contains(keep, name) {
			continue
		}

		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < unused {
			continue
		}

		if err := os.RemoveAll(filepath.Join(s.Dir, name)); err != nil {
			errs = append(errs, err)
		} else if isDigest {
			removed = append(removed, name)
		}
	}

	return removed, errors.Join(errs...)
}

// digestOf returns the digest of a folder from the sorted lines of its description.
func digestOf(lines []string) string {
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:])
}

// source is the content of a copy.
type source struct {
	folder fs.FS
	roles  fs.FS // to be added to the folder; nil: none
}

// whole is a folder that may contain the roles.
func whole(folder fs.FS) source { return source{folder: folder} }

// walk returns the description of src: a line for each entry, sorted. If dst is not
// nil, it also copies src there, durably.
func (s *Store) walk(ctx context.Context, src source, dst *os.Root) ([]string, error) {
	w := &walker{
		dst:      dst,
		maxFiles: cmp.Or(s.MaxFiles, DefaultMaxFiles),
		maxBytes: cmp.Or(s.MaxBytes, DefaultMaxBytes),
		buffer:   make([]byte, 32<<10),
	}
	w.bytesLeft = w.maxBytes

	if err := w.walk(ctx, src.folder, "", src.roles != nil); err != nil {
		return nil, err
	}

	if src.roles != nil {
		if err := w.walk(ctx, src.roles, rolesName, false); err != nil {
			return nil, err
		}
	}

	if dst != nil {
		if err := w.finish(); err != nil {
			return nil, refusef("%w", err)
		}
	}

	slices.Sort(w.lines)

	return w.lines, nil
}

func refusef(format string, args ...any) *inventory.Error {
	return inventory.Errorf(inventory.KindInvalid, "the playbook folder cannot be used: "+format, args...)
}

// walker collects the description of a folder, one line per entry, and copies
// the entries if dst is not nil.
type walker struct {
	src       fs.FS  // that is being walked
	prefix    string // of its names in the copy, with a slash, or empty
	dst       *os.Root
	maxFiles  int
	maxBytes  int64
	bytesLeft int64
	buffer    []byte // for the content of one file after the other

	lines []string
	links []string
	dirs  []string
}

// walk visits the entries of src, which is the folder at in the copy. replaced: the
// roles of a former copy in it are left out.
func (w *walker) walk(ctx context.Context, src fs.FS, at string, replaced bool) error {
	w.src, w.prefix = src, ""

	if at != "" {
		if err := w.dir(at); err != nil {
			return err
		}

		w.prefix = at + "/"
	}

	return fs.WalkDir(src, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return refusef("%w", err)
		case ctx.Err() != nil:
			return ctx.Err()
		case replaced && name == rolesName && d.IsDir():
			return fs.SkipDir
		case replaced && name == rolesName:
			return nil
		}

		return w.visit(name, d)
	})
}

func (w *walker) visit(name string, d fs.DirEntry) error {
	switch {
	case name == ".":
		return nil
	case omitted(d) && d.IsDir():
		return fs.SkipDir
	case omitted(d):
		return nil
	case !utf8.ValidString(name):
		return refusef("the name %q is not UTF-8; rename it", name)
	case len(w.lines) >= w.maxFiles:
		return refusef("it holds more than %d files", w.maxFiles)
	}

	switch d.Type() {
	case fs.ModeDir:
		return w.dir(name)
	case fs.ModeSymlink:
		return w.link(name)
	case 0:
		return w.file(name)
	}

	return refusef("%s is neither a file nor a folder nor a link", name)
}

func omitted(d fs.DirEntry) bool {
	name := d.Name()
	if d.IsDir() {
		return name == ".git" || name == "__pycache__"
	}

	// .git is a file in a worktree and in a submodule.
	return name == ".git" || name == manifestName ||
		strings.HasSuffix(name, ".pyc") || strings.HasSuffix(name, ".retry")
}

func (w *walker) dir(name string) error {
	name = w.prefix + name
	w.lines = append(w.lines, fmt.Sprintf("dir %q", name))
	w.dirs = append(w.dirs, name)

	if w.dst == nil {
		return nil
	}
	return w.dst.Mkdir(name, 0o755)
}

func (w *walker) link(name string) error {
	target, err := fs.ReadLink(w.src, name)
	if err != nil {
		return refusef("%w", err)
	}
	if path.IsAbs(target) {
		return refusef("the link %s points to %s; links must be relative and stay inside the folder", name, target)
	}

	name = w.prefix + name
	w.lines = append(w.lines, fmt.Sprintf("link %q %q", name, target))
	w.links = append(w.links, name)

	if w.dst == nil {
		return nil
	}

	return w.dst.Symlink(target, name)
}

var errTooLarge = errors.New("too large")

func (w *walker) file(name string) error {
	f, err := w.src.Open(name)
	if err != nil {
		return refusef("%w", err)
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return refusef("%w", err)
	}

	// Open follows a link that has replaced the file since the walk listed it.
	if !info.Mode().IsRegular() {
		return refusef("%s changed while it was read", name)
	}

	// Without read permission for the owner, the copy could not be verified.
	mode := info.Mode().Perm() | 0o400
	name = w.prefix + name

	sum, err := w.copyFile(name, f, mode)
	if errors.Is(err, errTooLarge) {
		return refusef("it holds more than %d bytes: %s, of %d bytes, is too much; keep large files elsewhere",
			w.maxBytes, name, info.Size())
	}

	if err != nil {
		return refusef("%w", err)
	}

	w.lines = append(w.lines, fmt.Sprintf("file %q %o %x", name, mode, sum))

	return nil
}

// copyFile hashes a file and copies it if there is a destination. It charges
// the file's size to bytesLeft.
func (w *walker) copyFile(name string, from io.Reader, mode fs.FileMode) (sum []byte, err error) {
	hash := sha256.New()
	to := io.Writer(hash)

	var out *os.File
	if w.dst != nil {
		if out, err = w.dst.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
			return nil, err
		}

		to = io.MultiWriter(hash, out)
	}

	// One byte more than allowed shows that the file is too large.
	n, err := io.CopyBuffer(to, io.LimitReader(from, w.bytesLeft+1), w.buffer)
	if out != nil {
		err = errors.Join(err, out.Chmod(mode), out.Sync(), out.Close())
	}
	if err == nil && n > w.bytesLeft {
		err = errTooLarge
	}

	w.bytesLeft -= n

	return hash.Sum(nil), err
}

// finish checks the links of the copy and syncs its folders. The links are
// checked in the copy, because src may change while it is walked.
func (w *walker) finish() error {
	for _, link := range w.links {
		_, err := w.dst.Stat(link)
		if err == nil {
			continue
		}

		target, _ := w.dst.Readlink(link)

		return fmt.Errorf("the link %s points to %s; links must lead to something inside the folder: %w",
			link, target, err)
	}

	for _, dir := range append(w.dirs, ".") {
		d, err := w.dst.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
	}

	return nil
}
