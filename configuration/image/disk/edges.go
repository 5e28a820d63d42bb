// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"io/fs"

	"github.com/diskfs/go-diskfs/backend"

	"github.com/contiv/cluster/inventory"
)

// edge is how many bytes at each end of a disk are kept in memory until the rest is written. A GPT of maxEntries fits.
const edge = 1 << 20

// edges is a disk of which both ends are in memory.
type edges struct {
	to         Target
	size       int64
	head, tail []byte
}

func newEdges(to Target, size int64, head []byte) *edges {
	e := &edges{to: to, size: size, head: make([]byte, edge), tail: make([]byte, edge)}
	copy(e.head, head)

	return e
}

// memory returns the bytes in memory from a position on. Without any, the disk itself has the next n bytes.
func (e *edges) memory(at int64) (b []byte, n int64) {
	switch last := e.size - edge; {
	case at < edge:
		return e.head[at:], 0
	case at >= last:
		return e.tail[at-last:], 0
	default:
		return nil, last - at
	}
}

// WriteAt implements io.WriterAt.
func (e *edges) WriteAt(p []byte, at int64) (int, error) {
	return e.each(p, at, func(memory, p []byte) { copy(memory, p) }, Target.WriteAt)
}

// ReadAt implements io.ReaderAt.
func (e *edges) ReadAt(p []byte, at int64) (int, error) {
	return e.each(p, at, func(memory, p []byte) { copy(p, memory) }, Target.ReadAt)
}

// each moves bytes to or from memory and the disk.
func (e *edges) each(
	p []byte, at int64, move func(memory, p []byte), disk func(to Target, p []byte, at int64) (int, error),
) (done int, err error) {
	if at < 0 || int64(len(p)) > e.size-at {
		return 0, tooSmall("the disk in the image", at+int64(len(p)), e.size)
	}

	for done < len(p) {
		rest := p[done:]

		memory, n := e.memory(at + int64(done))
		if memory == nil {
			moved, err := disk(e.to, rest[:min(n, int64(len(rest)))], at+int64(done))
			if done += moved; err != nil {
				return done, err
			}
			continue
		}

		move(memory, rest)
		done += min(len(memory), len(rest))
	}

	return done, nil
}

// onlyEnds is a disk of which nothing but the ends may be used.
type onlyEnds struct{}

var errOnlyEnds = errors.New("it uses more than the ends of the disk")

func (onlyEnds) ReadAt([]byte, int64) (int, error)  { return 0, errOnlyEnds }
func (onlyEnds) WriteAt([]byte, int64) (int, error) { return 0, errOnlyEnds }
func (onlyEnds) Sync() error                        { return errOnlyEnds }

// storage returns the disk for the library.
func (e *edges) storage() storage { return storage{edges: e} }

// storage is a backend.Storage, of which the library uses ReadAt and WriteAt only.
type storage struct {
	backend.Storage // nil
	*edges
}

func (s storage) Writable() (backend.WritableFile, error) { return s, nil }
func (s storage) WriteAt(p []byte, at int64) (int, error) { return s.edges.WriteAt(p, at) }
func (s storage) ReadAt(p []byte, at int64) (int, error)  { return s.edges.ReadAt(p, at) }
func (s storage) Close() error                            { return nil }
func (s storage) Stat() (fs.FileInfo, error)              { return nil, backend.ErrNotSuitable }
func (s storage) Read([]byte) (int, error)                { return 0, backend.ErrNotSuitable }
func (s storage) Seek(int64, int) (int64, error)          { return 0, backend.ErrNotSuitable }

func tooSmall(what string, need, size int64) error {
	return inventory.Errorf(inventory.KindInvalid, "%s has at least %d bytes, and the disk %d", what, need, size).
		Do("choose a larger disk, or a smaller image")
}
