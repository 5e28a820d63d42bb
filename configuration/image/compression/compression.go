// SPDX-License-Identifier: Apache-2.0

// Package compression decompresses content that nobody vouches for, in bounded memory.
package compression

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz/lzma"
)

const (
	// maxWindow is the memory in bytes that content may ask for whose beginning is decompressed.
	maxWindow = 128 << 20
	// smallWindow suffices for what is near the beginning.
	smallWindow = 64 << 10
	// maxBlocks bounds the blocks of xz, each of which takes its memory anew.
	maxBlocks = 1 << 10
)

// Method is a way to compress.
type Method struct {
	Name string // gzip, xz or zstd

	magic     string
	open      func(r io.Reader, memory int64) (io.Reader, error)
	beginning func(io.Reader) (io.Reader, error)
}

var methods = []*Method{
	{"gzip", "\x1f\x8b", openGzip, whole(openGzip)},
	{"xz", "\xfd7zXZ\x00", openXZ, beginningOfXZ},
	{"zstd", "\x28\xb5\x2f\xfd", openZstd, whole(openZstd)},
}

// Names returns the names of all methods.
func Names() []string {
	names := make([]string, len(methods))
	for i, m := range methods {
		names[i] = m.Name
	}

	return names
}

// Named returns the method with a name; nil: there is none.
func Named(name string) *Method {
	i := slices.Index(Names(), name)
	if i < 0 {
		return nil
	}
	return methods[i]
}

// Of returns how content is compressed, by its first bytes; nil: it is not.
func Of(head []byte) *Method {
	for _, m := range methods {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return m
		}
	}

	return nil
}

// Open decompresses content, and refuses what needs more than that many bytes of memory. How much comes is for the
// caller to bound.
func (m *Method) Open(r io.Reader, memory int64) (io.Reader, error) { return m.open(r, memory) }

// Beginning decompresses the first bytes of content, and may end after more than 64 KiB.
func (m *Method) Beginning(r io.Reader) (io.Reader, error) { return m.beginning(r) }

func whole(open func(io.Reader, int64) (io.Reader, error)) func(io.Reader) (io.Reader, error) {
	return func(r io.Reader) (io.Reader, error) { return open(r, maxWindow) }
}

// openGzip needs 32 KiB.
func openGzip(r io.Reader, _ int64) (io.Reader, error) { return gzip.NewReader(r) }

func openZstd(r io.Reader, memory int64) (io.Reader, error) {
	packed, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(uint64(memory))) //nolint:gosec // a constant of the caller
	if err != nil {
		return nil, err
	}

	return zstdReader{packed, memory}, nil
}

// zstdReader says how much memory is too little.
type zstdReader struct {
	io.Reader

	memory int64
}

// Read implements io.Reader.
func (z zstdReader) Read(p []byte) (int, error) {
	n, err := z.Reader.Read(p)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		err = fmt.Errorf("it needs more than the %d MiB of memory that it may have", z.memory>>20)
	}

	return n, err
}

// xzReader decompresses a stream of xz, block by block. The reader of the library takes the memory that the header of
// each block asks for. Checks of blocks and the index at the end are not read: whoever needs to know that content is
// whole has its digest.
type xzReader struct {
	from   *counting
	check  int64 // bytes after each block
	memory int64 // that a block may ask for
	window int64 // that a block gets, at most
	block  io.Reader
	begin  int64 // where the block begins
	blocks int
}

// counting counts what is read.
type counting struct {
	io.Reader

	n int64
}

// Read implements io.Reader.
func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)

	return n, err
}

// checkSizes are the bytes of each kind of check.
var checkSizes = [16]int64{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}

func openXZ(r io.Reader, memory int64) (io.Reader, error) {
	x, err := newXZ(r, memory, memory)
	return x, err
}

// beginningOfXZ decompresses the first block of xz.
func beginningOfXZ(r io.Reader) (io.Reader, error) {
	x, err := newXZ(r, maxWindow, smallWindow)
	if err != nil {
		return nil, err
	}

	return x.block, nil
}

func newXZ(r io.Reader, memory, window int64) (*xzReader, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}

	x := &xzReader{from: &counting{Reader: r}, check: checkSizes[head[7]&0xf], memory: memory, window: window}

	err := x.next()
	if errors.Is(err, io.EOF) {
		err = errors.New("it has no block")
	}

	return x, err
}

// next opens the next block. It returns io.EOF if there is none.
func (x *xzReader) next() error {
	// The header of a block has its size, the flags and, if they say so, two numbers of variable length before the
	// filter.
	const flagSizes, flagFilters, lzma2 = 0xc0, 0x03, 0x21

	var size [1]byte
	if _, err := io.ReadFull(x.from, size[:]); err != nil {
		return cutOff(err)
	}
	if size[0] == 0 {
		return io.EOF // the index
	}
	if x.blocks++; x.blocks > maxBlocks {
		return errors.New("it has too many blocks")
	}

	block := make([]byte, 4*int(size[0])+3)
	if _, err := io.ReadFull(x.from, block); err != nil {
		return cutOff(err)
	}
	if block[0]&flagFilters != 0 {
		return errors.New("it has a block with more than one filter")
	}

	filter := block[1:]
	for sizes := block[0] & flagSizes; sizes != 0; sizes &= sizes - 1 {
		_, n := binary.Uvarint(filter)
		if n <= 0 {
			return errors.New("a size is malformed")
		}
		filter = filter[n:]
	}

	if len(filter) < 3 || filter[0] != lzma2 || filter[1] != 1 {
		return errors.New("its filter is not LZMA2")
	}

	window, err := lzma.DecodeDictCap(filter[2])
	if err != nil || window > x.memory {
		return fmt.Errorf("it needs more than the %d MiB of memory that it may have", x.memory>>20)
	}

	x.begin = x.from.n
	x.block, err = lzma.Reader2Config{DictCap: int(max(lzma.MinDictCap, min(window, x.window)))}.NewReader2(x.from)

	return err
}

// Read implements io.Reader.
func (x *xzReader) Read(p []byte) (int, error) {
	for {
		n, err := x.block.Read(p)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		if n > 0 {
			return n, nil
		}

		// A block ends at a multiple of four bytes, and its check follows.
		rest := -(x.from.n-x.begin)&3 + x.check
		if _, err := io.CopyN(io.Discard, x.from, rest); err != nil {
			return 0, cutOff(err)
		}
		if err := x.next(); err != nil {
			return 0, err
		}
	}
}

// cutOff is the error for content that ends too early.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
