// SPDX-License-Identifier: Apache-2.0

package compression_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/contiv/cluster/configuration/image/compression"
	"github.com/contiv/cluster/inventory/errtest"
)

var content = bytes.Repeat([]byte("content of an image "), 20_000)

func compressed(t testing.TB, open func(io.Writer) (io.WriteCloser, error)) []byte {
	t.Helper()

	var b bytes.Buffer

	w, err := open(&b)
	errtest.None(t, err)
	_, err = w.Write(content)
	errtest.None(t, err)
	errtest.None(t, w.Close())

	return b.Bytes()
}

// inBlocks is xz of several blocks, with the check after each.
func inBlocks(check byte) func(io.Writer) (io.WriteCloser, error) {
	return func(w io.Writer) (io.WriteCloser, error) {
		return xz.WriterConfig{BlockSize: 50_001, CheckSum: check}.NewWriter(w)
	}
}

func open(packed []byte) ([]byte, error) { return openIn(packed, 128<<20) }

// openIn decompresses with that many bytes of memory.
func openIn(packed []byte, memory int64) ([]byte, error) {
	m := compression.Of(packed)
	if m == nil {
		return packed, nil
	}

	r, err := m.Open(bytes.NewReader(packed), memory)
	if err != nil {
		return nil, err
	}

	return io.ReadAll(r)
}

// TestOpen decompresses all of content, whatever its blocks.
func TestOpen(t *testing.T) {
	t.Parallel()

	for name, by := range map[string]func(io.Writer) (io.WriteCloser, error){
		"gzip":          func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
		"zstd":          func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
		"xz":            func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) },
		"xz of blocks":  inBlocks(xz.CRC64),
		"xz of SHA-256": inBlocks(xz.SHA256),
		"xz of CRC-32":  inBlocks(xz.CRC32),
	} {
		packed := compressed(t, by)
		if got, err := open(packed); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if _, err := open(packed[:len(packed)/2]); err == nil {
			t.Errorf("%s: half of it is all", name)
		}
	}
}

// TestOpenRefuses: no block takes more memory than is allowed, and there are not too many.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()

	const start, size = 12, 12

	packed := compressed(t, inBlocks(xz.CRC64))
	second := start + size + bytes.Index(packed[start+size:], packed[start:start+size-4])

	if second < start+size {
		t.Fatal("there is no second block")
	}

	header := packed[second : second+size]
	header[4] = 36 // its dictionary has 1 GiB
	binary.LittleEndian.PutUint32(header[size-4:], crc32.ChecksumIEEE(header[:size-4]))

	if got, err := open(packed); err == nil || len(got) < 50_000 {
		t.Errorf("a later block: %d bytes, %v", len(got), err)
	}

	// Blocks with nothing in them, and the index after them: nothing else is wrong than their number.
	first := compressed(t, func(w io.Writer) (io.WriteCloser, error) {
		return xz.WriterConfig{DictCap: 4 << 10, BlockSize: 50_001, CheckSum: xz.CRC64}.NewWriter(w)
	})
	block := append(bytes.Clone(first[start:start+size]), make([]byte, 4+8)...)

	for count, want := range map[int]bool{1024: true, 1025: false} {
		all := append(append(first[:start:start], bytes.Repeat(block, count)...), 0)
		if got, err := open(all); len(got) > 0 || (err == nil) != want {
			t.Errorf("%d blocks: %d bytes, %v", count, len(got), err)
		}
	}
}

// TestOpenMemory: no content takes more memory than its caller has for it.
func TestOpenMemory(t *testing.T) {
	t.Parallel()

	for name, by := range map[string]func(io.Writer) (io.WriteCloser, error){
		"xz": func(w io.Writer) (io.WriteCloser, error) { return xz.WriterConfig{DictCap: 8 << 20}.NewWriter(w) },
		"zstd": func(w io.Writer) (io.WriteCloser, error) {
			return zstd.NewWriter(w, zstd.WithWindowSize(8<<20), zstd.WithSingleSegment(false))
		},
	} {
		packed := compressed(t, by)
		if got, err := openIn(packed, 8<<20); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s with the memory that it needs: %d bytes, %v", name, len(got), err)
		}

		_, err := openIn(packed, 4<<20)
		if err == nil || !strings.Contains(err.Error(), "more than the 4 MiB of memory") {
			t.Errorf("%s with half the memory that it needs: %v", name, err)
		}
	}
}
