// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration/image"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// room is a file system with that many bytes free, beyond those that stay free.
func room(t *testing.T, more int64) *image.Store {
	t.Helper()

	return image.NewStore(image.Options{
		Dir: filepath.Join(t.TempDir(), "images"), Free: func(string) (int64, error) { return 256<<20 + more, nil },
	})
}

// onDisk returns the names and contents of all files in the folder.
func onDisk(t *testing.T, s *image.Store) map[string]string {
	t.Helper()

	all := map[string]string{}

	files, err := os.ReadDir(s.Dir)
	errtest.None(t, err)

	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(s.Dir, f.Name()))
		errtest.None(t, err)
		all[f.Name()] = string(content)
	}

	return all
}

func kind(t *testing.T, err error, want inventory.Kind) {
	t.Helper()

	if inventory.KindOf(err) != want {
		t.Fatalf("%v is %q, and not %q", err, inventory.KindOf(err), want)
	}
}

// TestWriteRemoved: content whose part was removed and begun anew meanwhile does not take the place of the new part.
func TestWriteRemoved(t *testing.T) {
	t.Parallel()

	content := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	digest, size := digestOf(content), int64(len(content))
	s := room(t, 1<<30)
	part := filepath.Join(s.Dir, strings.TrimPrefix(digest, "sha256:")+".part")

	between := readerFunc(func([]byte) (int, error) {
		// It is being written, so it stays.
		kind(t, s.Remove(only(t, s)), inventory.KindConflict)
		if _, err := os.Lstat(part); err != nil {
			t.Error(err)
		}

		// Somebody else does not ask.
		errtest.None(t, os.Remove(part))
		errtest.None(t, os.WriteFile(part, content[:1000], 0o600))

		return 0, io.EOF
	})

	err := s.Write(digest, size, 0, io.MultiReader(bytes.NewReader(content[:1_500_000]), between,
		bytes.NewReader(content[1_500_000:])))
	kind(t, err, inventory.KindConflict)

	if _, complete := s.Received(digest); complete {
		t.Error("incomplete content counts as complete")
	}

	errtest.None(t, s.Remove(only(t, s)))
	if _, err := os.Lstat(part); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the part that nobody writes: %v", err)
	}
}

// only returns the only content in the folder.
func only(t *testing.T, s *image.Store) image.Entry {
	t.Helper()

	list, err := s.List()
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}

	return list[0]
}

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestWriteLoses: what a disk has not taken does not count as come, also if the next attempt to flush it succeeds.
func TestWriteLoses(t *testing.T) {
	t.Parallel()

	content := bytes.Repeat([]byte("0123456789abcdef"), 10_000)
	digest, size := digestOf(content), int64(len(content))
	half := io.MultiReader(bytes.NewReader(content[:size/2]), iotest.ErrReader(errors.New("the network is gone")))

	for what, r := range map[string]io.Reader{"whole": bytes.NewReader(content), "half": half} {
		s := room(t, 1<<30)
		failed := false
		s.Flush = func(f *os.File) error {
			if !failed {
				failed = true
				return errors.New("input/output error")
			}
			return f.Sync()
		}

		kind(t, s.Write(digest, size, 0, r), inventory.KindUnavailable)

		if n, complete := s.Received(digest); n != 0 || complete || !failed {
			t.Errorf("%s: %d bytes have come, complete: %t", what, n, complete)
		}

		errtest.None(t, s.Write(digest, size, 0, bytes.NewReader(content)))

		if got := onDisk(t, s); got[strings.TrimPrefix(digest, "sha256:")] != string(content) {
			t.Errorf("%s: the content is not on the disk", what)
		}
	}
}

// TestWriteResumes: content that broke off goes on where it stopped, by another store as after a crash, and at no other
// byte.
func TestWriteResumes(t *testing.T) {
	t.Parallel()

	content := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // several pieces
	digest, size := digestOf(content), int64(len(content))
	s := room(t, 1<<30)

	const first = 2_500_000

	broken := io.MultiReader(bytes.NewReader(content[:first]), iotest.ErrReader(errors.New("the network is gone")))
	kind(t, s.Write(digest, size, 0, broken), inventory.KindUnavailable)

	hex := strings.TrimPrefix(digest, "sha256:")
	if got := onDisk(t, s); len(got) != 2 || got[hex+".part"] != string(content[:first]) {
		t.Fatalf("%d files, a part of %d bytes", len(got), len(got[hex+".part"]))
	}

	if _, err := s.Open(digest); inventory.KindOf(err) != inventory.KindNotFound {
		t.Fatalf("incomplete content is open: %v", err)
	}

	again := image.NewStore(s.Options)
	if n, complete := again.Received(digest); n != first || complete {
		t.Errorf("%d bytes have come, complete: %t", n, complete)
	}

	for _, offset := range []int64{0, first - 1, first + 1, size} {
		err := again.Write(digest, size, offset, bytes.NewReader(content[min(offset, size):]))
		kind(t, err, inventory.KindPrecondition)

		if !strings.Contains(err.Error(), "2500000 bytes") {
			t.Errorf("the error does not say what is here: %v", err)
		}
	}

	errtest.None(t, again.Write(digest, size, first, bytes.NewReader(content[first:])))

	if got := onDisk(t, s); len(got) != 1 || got[hex] != string(content) {
		t.Fatalf("%d files, %d bytes", len(got), len(got[hex]))
	}

	// What is complete is not written again.
	errtest.None(t, again.Write(digest, size, 0, iotest.ErrReader(errors.New("it is read"))))
}

// TestWriteKeepsHash: what has come is not read again, neither after an error nor after a crash, unless the kept hash
// is of more than that.
func TestWriteKeepsHash(t *testing.T) {
	t.Parallel()

	content := bytes.Repeat([]byte("0123456789abcdef"), 5<<20) // 80 MiB
	digest, size := digestOf(content), int64(len(content))
	name := strings.TrimPrefix(digest, "sha256:")

	const first = 72 << 20

	s, crashed := room(t, 1<<30), room(t, 1<<30)
	crash := readerFunc(func([]byte) (int, error) {
		errtest.None(t, os.CopyFS(crashed.Dir, os.DirFS(s.Dir)))
		return 0, errors.New("the network is gone")
	})
	kind(t, s.Write(digest, size, 0, io.MultiReader(bytes.NewReader(content[:first]), crash)),
		inventory.KindUnavailable)

	for what, s := range map[string]*image.Store{"error": s, "crash": crashed} {
		// Whoever reads the part again finds that it is not the content.
		part, err := os.OpenFile(filepath.Join(s.Dir, name+".part"), os.O_RDWR, 0)
		errtest.None(t, err)
		_, err = part.WriteAt([]byte("X"), 5)
		errtest.None(t, errors.Join(err, part.Close()))

		if err := s.Write(digest, size, first, bytes.NewReader(content[first:])); err != nil {
			t.Errorf("after the %s: %v", what, err)
		}
		if got := onDisk(t, s); len(got) != 1 {
			t.Errorf("after the %s there are %d files", what, len(got))
		}
	}

	// A part that is shorter than its hash.
	s = room(t, 1<<30)
	broken := iotest.ErrReader(errors.New("the network is gone"))
	kind(t, s.Write(digest, size, 0, io.MultiReader(bytes.NewReader(content[:2000]), broken)),
		inventory.KindUnavailable)
	errtest.None(t, os.Truncate(filepath.Join(s.Dir, name+".part"), 1000))
	errtest.None(t, s.Write(digest, size, 1000, bytes.NewReader(content[1000:])))
}

// TestOwned: nothing comes into a folder, or is removed from it, that belongs to another manager or to something else.
func TestOwned(t *testing.T) {
	t.Parallel()

	content := []byte("the image")
	digest, size := digestOf(content), int64(len(content))
	of := func(dir, owner string) *image.Store {
		return image.NewStore(image.Options{
			Dir: dir, Owner: func() string { return owner }, Free: func(string) (int64, error) { return 1 << 40, nil },
		})
	}

	dir := filepath.Join(t.TempDir(), "images")
	own := of(dir, "m-1")
	errtest.None(t, own.Owned())
	errtest.None(t, own.Write(digest, size, 0, bytes.NewReader(content)))
	errtest.None(t, own.Owned())

	unmarked := t.TempDir()
	errtest.None(t, os.CopyFS(unmarked, os.DirFS(dir)))
	errtest.None(t, os.Remove(filepath.Join(unmarked, ".clusterm-images")))

	for what, c := range map[string]struct {
		s    *image.Store
		want inventory.Kind
	}{
		"of another manager": {of(dir, "m-2"), inventory.KindRefused},
		"with other files":   {of(unmarked, "m-1"), inventory.KindRefused},
		"not known yet":      {of(dir, ""), inventory.KindUnavailable},
	} {
		before := onDisk(t, c.s)

		kind(t, c.s.Owned(), c.want)
		kind(t, c.s.Remove(only(t, c.s)), c.want)
		kind(t, c.s.Write(digest, size, 0, bytes.NewReader(content)), c.want)
		kind(t, c.s.Write(digestOf(nil), 1, 0, bytes.NewReader(content)), c.want)

		if got := onDisk(t, c.s); !maps.Equal(got, before) {
			t.Errorf("a folder %s has %q, and had %q", what, got, before)
		}
	}

	// The root of a file system is as good as empty.
	mount := t.TempDir()
	errtest.None(t, os.Mkdir(filepath.Join(mount, "lost+found"), 0o700))
	errtest.None(t, of(mount, "m-1").Write(digest, size, 0, bytes.NewReader(content)))

	errtest.None(t, own.Remove(only(t, own)))
}

// TestRemoveChanged: what has taken the place of a file is not removed for it.
func TestRemoveChanged(t *testing.T) {
	t.Parallel()

	s := room(t, 1<<30)
	content := []byte("the image")
	digest := digestOf(content)
	path := filepath.Join(s.Dir, strings.TrimPrefix(digest, "sha256:"))

	errtest.None(t, os.MkdirAll(s.Dir, 0o700))
	errtest.None(t, os.WriteFile(path, []byte("the imagE"), 0o600))

	damaged, ok, err := s.Verify(t.Context(), digest)
	if ok || err != nil {
		t.Fatalf("%t, %v", ok, err)
	}

	errtest.None(t, os.Rename(path, path+".old")) // it keeps its inode
	errtest.None(t, s.Write(digest, int64(len(content)), 0, bytes.NewReader(content)))
	errtest.None(t, s.Remove(damaged))

	if _, ok, err := s.Verify(t.Context(), digest); !ok || err != nil {
		t.Errorf("what has come since: %t, %v", ok, err)
	}
}

// TestWriteRefuses: content that is not what the digest and the size say leaves nothing behind.
func TestWriteRefuses(t *testing.T) {
	t.Parallel()

	content := []byte("the kernel")
	digest, size := digestOf(content), int64(len(content))

	for name, bad := range map[string]string{
		"other": "the kerneL", "longer": "the kernels", "much longer": strings.Repeat("x", 3<<20),
	} {
		s := room(t, 1<<30)
		kind(t, s.Write(digest, size, 0, strings.NewReader(bad)), inventory.KindInvalid)

		if got := onDisk(t, s); len(got) != 0 {
			t.Errorf("%s content left %q", name, got)
		}
	}

	// A part that is not the beginning of the content, as after a crash of the host.
	s := room(t, 1<<30)
	hex := strings.TrimPrefix(digest, "sha256:")
	errtest.None(t, os.MkdirAll(s.Dir, 0o700))
	errtest.None(t, os.WriteFile(filepath.Join(s.Dir, hex+".part"), make([]byte, 4), 0o600))
	kind(t, s.Write(digest, size, 4, bytes.NewReader(content[4:])), inventory.KindInvalid)

	if got := onDisk(t, s); len(got) != 0 {
		t.Errorf("damaged content left %q", got)
	}

	errtest.None(t, s.Write(digest, size, 0, bytes.NewReader(content)))
}

// TestFullDisk: content never takes the last room of its file system, also if another program does so meanwhile.
func TestFullDisk(t *testing.T) {
	t.Parallel()

	content := make([]byte, 40<<20)
	digest, size := digestOf(content), int64(len(content))

	s := room(t, size-1)
	kind(t, s.Write(digest, size, 0, bytes.NewReader(content)), inventory.KindRefused)

	free := int64(256<<20) + size
	shrinking := image.NewStore(image.Options{Dir: s.Dir, Free: func(string) (int64, error) {
		defer func() { free -= 25 << 20 }()
		return free, nil
	}})
	kind(t, shrinking.Write(digest, size, 0, bytes.NewReader(content)), inventory.KindRefused)

	n, complete := s.Received(digest)
	if complete || n == 0 || n >= size {
		t.Fatalf("%d bytes have come, complete: %t", n, complete)
	}

	// With room again it goes on; what has come needs none.
	errtest.None(t, room2(s, size-n).Write(digest, size, n, bytes.NewReader(content[n:])))
}

// room2 is the store with another free space.
func room2(s *image.Store, more int64) *image.Store {
	return image.NewStore(image.Options{Dir: s.Dir, Free: func(string) (int64, error) { return 256<<20 + more, nil }})
}

// TestOneWriter: a second writer of the same content is refused while the first writes, and what it would have done is
// no loss.
func TestOneWriter(t *testing.T) {
	t.Parallel()

	content := []byte("the initrd")
	digest, size := digestOf(content), int64(len(content))
	s := room(t, 1<<30)

	source, sink := io.Pipe()
	done := make(chan error, 1)

	go func() { done <- s.Write(digest, size, 0, source) }()

	_, err := sink.Write(content[:3])
	errtest.None(t, err)

	kind(t, image.NewStore(s.Options).Write(digest, size, 0, bytes.NewReader(content)), inventory.KindConflict)

	_, err = sink.Write(content[3:])
	errtest.None(t, err)
	errtest.None(t, sink.Close())
	errtest.None(t, <-done)

	got := onDisk(t, s)
	if len(got) != 1 || got[strings.TrimPrefix(digest, "sha256:")] != string(content) {
		t.Errorf("%q", got)
	}
}

// TestNoPathTricks: no digest and no link leads out of the folder.
func TestNoPathTricks(t *testing.T) {
	t.Parallel()

	content := []byte("root:x:0:0")
	digest, size := digestOf(content), int64(len(content))
	hex := strings.TrimPrefix(digest, "sha256:")
	s := room(t, 1<<30)
	errtest.None(t, os.MkdirAll(s.Dir, 0o700))

	secret := filepath.Join(t.TempDir(), "secret")
	errtest.None(t, os.WriteFile(secret, content, 0o600))

	for _, bad := range []string{
		"", "sha256:", "sha256:../../etc/passwd", digest + "/x", "sha512:" + hex, strings.ToUpper(digest),
		"sha256:" + hex[:63] + "/", digest + "\n",
	} {
		kind(t, s.Write(bad, size, 0, bytes.NewReader(content)), inventory.KindInvalid)
		_, err := s.Open(bad)
		kind(t, err, inventory.KindInvalid)
		kind(t, s.Remove(image.Entry{Digest: bad, Complete: true}), inventory.KindInvalid)
	}

	for _, name := range []string{hex, hex + ".part"} {
		errtest.None(t, os.Symlink(secret, filepath.Join(s.Dir, name)))
	}

	if f, err := s.Open(digest); err == nil {
		t.Errorf("a link is open: %s", f.Name())
	}
	if err := s.Write(digest, size, 0, bytes.NewReader(content)); err == nil {
		t.Error("a link is written to")
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}

	left, err := os.ReadFile(secret)
	if err != nil || string(left) != string(content) {
		t.Errorf("%q, %v", left, err)
	}
}

// TestVerifyUnreadable: content that cannot be read now is not damaged.
func TestVerifyUnreadable(t *testing.T) {
	t.Parallel()

	s := room(t, 1<<30)
	content := []byte("the image")
	digest := digestOf(content)
	errtest.None(t, s.Write(digest, int64(len(content)), 0, bytes.NewReader(content)))

	for _, away := range []error{unix.EIO, unix.ESTALE} {
		s.Content = func(f *os.File) io.Reader {
			return io.MultiReader(io.LimitReader(f, 3), iotest.ErrReader(away))
		}

		_, ok, err := s.Verify(t.Context(), digest)
		kind(t, err, inventory.KindUnavailable)

		if ok || !errors.Is(err, away) || !strings.Contains(err.Error(), s.Dir) {
			t.Errorf("%t, %v", ok, err)
		}
	}
}

// TestLock: a file that cannot be opened or locked is not that of another writer, and the error says what to do.
func TestLock(t *testing.T) {
	t.Parallel()

	content := []byte("the image")
	digest, size := digestOf(content), int64(len(content))

	for failure, want := range map[error]struct {
		kind inventory.Kind
		text string
	}{
		unix.EWOULDBLOCK: {inventory.KindConflict, "is being written now"},
		unix.ENOLCK:      {inventory.KindUnavailable, "cannot lock files"},
		unix.EIO:         {inventory.KindUnavailable, "check the folder"},
		unix.EACCES:      {inventory.KindUnavailable, "let the user of clusterm write"},
		unix.ENOSPC:      {inventory.KindUnavailable, "free space and inodes"},
	} {
		s := room(t, 1<<30)
		s.Lock = func(*os.File) error { return failure }

		err := s.Write(digest, size, 0, bytes.NewReader(content))
		kind(t, err, want.kind)

		if !strings.Contains(err.Error(), want.text) {
			t.Errorf("%v: %v", failure, err)
		}
	}

	// It cannot be opened at all.
	s := room(t, 1<<30)
	errtest.None(t, os.MkdirAll(filepath.Join(s.Dir, strings.TrimPrefix(digest, "sha256:")+".part"), 0o700))
	kind(t, s.Write(digest, size, 0, bytes.NewReader(content)), inventory.KindUnavailable)
}

// TestVerifyListRemove: damage is found, the list has what is here and nothing else, and one removal removes one file.
func TestVerifyListRemove(t *testing.T) {
	t.Parallel()

	s := room(t, 1<<30)
	content := []byte("the image")
	digest := digestOf(content)

	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("a folder that does not exist has %+v, %v", list, err)
	}

	errtest.None(t, s.Write(digest, int64(len(content)), 0, bytes.NewReader(content)))

	_, ok, err := s.Verify(t.Context(), digest)
	if !ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}

	path := filepath.Join(s.Dir, strings.TrimPrefix(digest, "sha256:"))
	errtest.None(t, os.WriteFile(path, []byte("the imagE"), 0o600))

	if _, ok, err = s.Verify(t.Context(), digest); ok || err != nil {
		t.Errorf("damaged: %t, %v", ok, err)
	}

	errtest.None(t, os.WriteFile(path+".part", nil, 0o600))
	errtest.None(t, os.WriteFile(filepath.Join(s.Dir, "README"), nil, 0o600))

	list, err := s.List()
	if err != nil || len(list) != 2 || !list[0].Complete || list[0].Size != 9 || list[1].Complete {
		t.Fatalf("%+v, %v", list, err)
	}

	errtest.None(t, s.Remove(list[1]))
	errtest.None(t, s.Remove(list[1])) // no error

	if got := onDisk(t, s); len(got) != 2 || got[filepath.Base(path)] == "" {
		t.Errorf("%q", got)
	}

	errtest.None(t, s.Remove(list[0]))

	if got := onDisk(t, s); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
