// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration/image/compression"
	"github.com/contiv/cluster/inventory"
)

const (
	// minSize is the size of the smallest disk that is written.
	minSize = 4 * edge
	// first is how much of a disk is written last of all: the boot sector and the header of a GPT.
	first = 4 << 10

	// chunkSize is how much is written at once, and chunks how many are in memory.
	chunkSize = 4 << 20
	chunks    = 4
	// syncEach is how much is written until the kernel has to say that it is on the disk.
	syncEach = 64 << 20

	// maxMemory is what decompression may take. xz -9 takes 64 MiB, and zstd --ultra 128 MiB.
	maxMemory = 128 << 20
)

// Target is an open disk.
type Target interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

// Image is what is written.
type Image struct {
	Digest      string // sha256:HEX of the content
	Size        int64  // bytes of the content
	Compression string // gzip, xz or zstd; empty: none
	Virtual     int64  // bytes of the disk in it; 0: unknown
}

// Write writes an image and a seed, if there is one, to a disk of that size in bytes. content is the image as it is
// served. If touched is false, the disk is as it was; after any other error, nothing on it boots.
//
// progress gets how many bytes of the content are on the disk, after each 64 MiB of the disk. It is called in another
// goroutine, which has ended when Write returns. After the end of ctx, only a blocked read of content or write to the
// disk delays Write.
//
// The error is KindUnavailable if content could not be read to its end, KindConflict if it is not that of the image,
// and KindInvalid if the image and the disk do not fit.
func Write(
	ctx context.Context, to Target, size int64, content io.Reader, image Image, seed Seed, progress func(written int64),
) (touched bool, err error) {
	size = size / sector * sector

	need := image.Virtual
	if image.Compression == "" {
		need = max(need, image.Size)
	}
	if need = max(need, minSize); need > size {
		return false, tooSmall("the disk in the image", need, size)
	}

	from := &source{from: content, size: image.Size, sum: sha256.New()}

	plain, err := open(from, image.Compression)
	if err != nil {
		return false, from.explain(err, image)
	}

	head := make([]byte, edge)
	n, err := fill(plain, head)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, from.explain(err, image)
	}

	planned, err := plan(head, size, seed != Seed{})
	if err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, context.Cause(ctx)
	}

	disk := newEdges(to, size, head)
	defer func() {
		if err != nil {
			_ = wipe(to, size)
		}
	}()
	if err := wipe(to, size); err != nil {
		return true, badDisk(err)
	}

	if n == edge {
		err := copyTo(ctx, disk, plain, from, progress)
		switch {
		case ctx.Err() != nil:
			return true, context.Cause(ctx)
		case err != nil:
			return true, from.explain(err, image)
		}
	}
	if err := from.verify(image); err != nil {
		return true, err
	}

	return true, finish(ctx, disk, planned, seed)
}

// open decompresses content.
func open(content io.Reader, method string) (io.Reader, error) {
	if method == "" {
		return content, nil
	}

	m := compression.Named(method)
	if m == nil {
		return nil, fmt.Errorf("the compression %q is unknown", method)
	}

	return m.Open(content, maxMemory)
}

// wipe overwrites both ends of a disk.
func wipe(to Target, size int64) error {
	zeros := make([]byte, edge)
	for _, at := range []int64{0, size - edge} {
		if _, err := to.WriteAt(zeros, at); err != nil {
			return err
		}
	}

	return to.Sync()
}

// chunk is a piece of the disk in the image.
type chunk struct {
	b       []byte
	content int64 // bytes of the content up to its end
}

// copyTo writes all that follows the head, and reads ahead meanwhile.
func copyTo(ctx context.Context, disk *edges, plain io.Reader, from *source, progress func(int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	full, empty := make(chan chunk, chunks), make(chan []byte, chunks)
	for range chunks {
		empty <- make([]byte, chunkSize)
	}

	written := make(chan error, 1)
	go func() {
		err := write(disk, full, empty, progress)
		cancel(err)
		written <- err
	}()

	readErr := read(ctx, plain, from, full, empty)
	close(full)

	if err := <-written; err != nil {
		return err
	}

	return readErr
}

// read fills chunks until the end of the image.
func read(ctx context.Context, plain io.Reader, from *source, full chan<- chunk, empty <-chan []byte) error {
	for {
		var b []byte
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case b = <-empty:
		}

		n, err := fill(plain, b)
		if n > 0 {
			full <- chunk{b[:n], from.n}
		}

		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// fill reads until b is full. Unlike io.ReadFull, it tells the end from content that is cut off.
func fill(from io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var more int
		more, err = from.Read(b[n:])
		n += more
	}

	return n, err
}

// write writes chunks, and returns the first error.
func write(disk *edges, full <-chan chunk, empty chan<- []byte, progress func(int64)) error {
	at, synced := int64(edge), int64(edge)

	for c := range full {
		if _, err := disk.WriteAt(c.b, at); err != nil {
			return badDisk(err)
		}

		// The kernel begins at once, so that the disk is busy until Sync, which reports errors.
		if f, ok := disk.to.(*os.File); ok {
			_ = unix.SyncFileRange(int(f.Fd()), at, int64(len(c.b)), unix.SYNC_FILE_RANGE_WRITE)
		}

		if at += int64(len(c.b)); at-synced >= syncEach {
			if err := disk.to.Sync(); err != nil {
				return badDisk(err)
			}
			synced = at
			progress(c.content)
		}

		empty <- c.b[:cap(c.b)]
	}

	return nil
}

// finish writes the seed and both ends of the disk, its first sectors last.
func finish(ctx context.Context, disk *edges, planned layout, seed Seed) error {
	if err := planned.write(disk, seed); err != nil {
		return badDisk(err)
	}

	if err := disk.to.Sync(); err != nil {
		return badDisk(err)
	}

	for _, part := range []struct {
		b  []byte
		at int64
	}{{disk.tail, disk.size - edge}, {disk.head[first:], first}, {disk.head[:first], 0}} {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, err := disk.to.WriteAt(part.b, part.at); err != nil {
			return badDisk(err)
		}
		if err := disk.to.Sync(); err != nil {
			return badDisk(err)
		}
	}

	return nil
}

// source is the content as it is served.
type source struct {
	from io.Reader
	size int64
	n    int64 // bytes that were read
	sum  hash.Hash
	err  error // why no more is read; nil: it is not the fault of the content
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}

	n, err := s.from.Read(p)
	s.n += int64(n)
	s.sum.Write(p[:n])

	switch {
	case s.n > s.size:
		s.err = otherContent("it has more than %d bytes", s.size)
	case err != nil && !errors.Is(err, io.EOF):
		s.err = inventory.Errorf(inventory.KindUnavailable, "the transfer of the image failed after %d of %d bytes: %w",
			s.n, s.size, err).Do("check the network between the machine and the manager")
	case err != nil && s.n < s.size:
		s.err = inventory.Errorf(inventory.KindUnavailable, "the transfer of the image ended after %d of %d bytes",
			s.n, s.size).Do("check the network between the machine and the manager")
	default:
		return n, err
	}

	return n, s.err
}

// verify reads what decompression has left, and compares all of the content with the digest.
func (s *source) verify(image Image) error {
	if _, err := io.Copy(io.Discard, s); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(s.sum.Sum(nil)); got != image.Digest {
		return otherContent("it has the digest %s, not %s", got, image.Digest)
	}

	return nil
}

// explain returns why content could not be written. If it cannot be decompressed, the rest tells whether it is that of
// the image at all.
func (s *source) explain(err error, image Image) error {
	var known *inventory.Error
	switch {
	case s.err != nil:
		return s.err
	case errors.As(err, &known):
		return err
	}
	if other := s.verify(image); other != nil {
		return other
	}

	return badImage("it cannot be decompressed: %w", err)
}

func otherContent(format string, args ...any) error {
	return inventory.Errorf(inventory.KindConflict, "the content is not that of the image: "+format, args...).
		Do("verify the image on each instance, and add it again if it is damaged")
}

// badDisk returns why a disk could not be written, unless the error says that already.
func badDisk(err error) error {
	var known *inventory.Error
	if errors.As(err, &known) {
		return err
	}

	return inventory.Errorf(inventory.KindInternal, "cannot write to the disk: %w", err).
		Do("replace the disk, or choose another one")
}
