// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/contiv/cluster/configuration/image"
	"github.com/contiv/cluster/configuration/image/kernel/kerneltest"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// qcow2 is the header of a version 3 of a disk of 20 GiB, changed by edit.
func qcow2(edit func(head []byte)) []byte {
	head := make([]byte, 512)
	copy(head, "QFI\xfb")
	binary.BigEndian.PutUint32(head[4:], 3)
	binary.BigEndian.PutUint32(head[20:], 16)
	binary.BigEndian.PutUint64(head[24:], 20<<30)
	binary.BigEndian.PutUint32(head[100:], 104)

	if edit != nil {
		edit(head)
	}

	return head
}

func rawDisk() []byte {
	disk := make([]byte, 4096)
	disk[510], disk[511] = 0x55, 0xaa

	return disk
}

func tarball(t testing.TB) []byte {
	t.Helper()

	var b bytes.Buffer
	w := tar.NewWriter(&b)
	errtest.None(t, w.WriteHeader(&tar.Header{Name: "etc/hostname", Mode: 0o644, Size: 2}))
	_, err := w.Write([]byte("a\n"))
	errtest.None(t, err)
	errtest.None(t, w.Close())

	return b.Bytes()
}

func deb(t testing.TB) []byte {
	t.Helper()
	return kerneltest.Package(t, kerneltest.Control("linux-image-6.1.0-9-amd64", "amd64"), kerneltest.Files())
}

func compressed(t testing.TB, plain []byte, by func(io.Writer) (io.WriteCloser, error)) []byte {
	t.Helper()

	var b bytes.Buffer
	w, err := by(&b)
	errtest.None(t, err)
	_, err = w.Write(plain)
	errtest.None(t, err)
	errtest.None(t, w.Close())

	return b.Bytes()
}

func byGzip(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }
func byXZ(w io.Writer) (io.WriteCloser, error)   { return xz.NewWriter(w) }
func byZstd(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }

func detect(content []byte) (image.Found, error) {
	return image.Detect(bytes.NewReader(content), int64(len(content)))
}

// TestDetect tells each format, also compressed.
func TestDetect(t *testing.T) {
	t.Parallel()

	disk := image.Found{Format: "qcow2", Virtual: 20 << 30}
	by := func(compression string) image.Found { f := disk; f.Compression = compression; return f }

	cases := map[string]struct {
		content []byte
		want    image.Found
	}{
		"raw":        {rawDisk(), image.Found{Format: "raw", Virtual: 4096}},
		"qcow2":      {qcow2(nil), disk},
		"tar":        {tarball(t), image.Found{Format: "tar"}},
		"text":       {[]byte("#!/bin/sh\n"), image.Found{Format: "data"}},
		"nothing":    {nil, image.Found{Format: "data"}},
		"raw.gz":     {compressed(t, rawDisk(), byGzip), image.Found{Format: "raw", Compression: "gzip"}},
		"raw.xz":     {compressed(t, rawDisk(), byXZ), image.Found{Format: "raw", Compression: "xz"}},
		"qcow2.xz":   {compressed(t, qcow2(nil), byXZ), by("xz")},
		"qcow2.zstd": {compressed(t, qcow2(nil), byZstd), by("zstd")},
		"tar.zstd":   {compressed(t, tarball(t), byZstd), image.Found{Format: "tar", Compression: "zstd"}},
		"deb":        {deb(t), image.Found{Format: "deb", Package: "linux-image-6.1.0-9-amd64", Arch: "amd64"}},
		"deb.gz":     {compressed(t, deb(t), byGzip), image.Found{Format: "data", Compression: "gzip"}},
		"text.gz":    {compressed(t, []byte("x"), byGzip), image.Found{Format: "data", Compression: "gzip"}},
	}
	for name, c := range cases {
		if got, err := detect(c.content); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestDetectRefuses: a header is not trusted.
func TestDetectRefuses(t *testing.T) {
	t.Parallel()

	big := binary.BigEndian
	xzHuge := compressed(t, rawDisk(), byXZ)
	xzHuge[16] = 40 // the dictionary of the first block has 4 GiB

	for name, content := range map[string][]byte{
		"cut off":        qcow2(nil)[:60],
		"cut off in v3":  qcow2(nil)[:80],
		"version 4":      qcow2(func(h []byte) { h[7] = 4 }),
		"backing file":   qcow2(func(h []byte) { big.PutUint64(h[8:], 300) }),
		"clusters":       qcow2(func(h []byte) { h[23] = 40 }),
		"encrypted":      qcow2(func(h []byte) { h[35] = 1 }),
		"external data":  qcow2(func(h []byte) { h[79] = 4 }),
		"corrupt":        qcow2(func(h []byte) { h[79] = 2 }),
		"no size":        qcow2(func(h []byte) { big.PutUint64(h[24:], 0) }),
		"huge":           qcow2(func(h []byte) { big.PutUint64(h[24:], 1<<63) }),
		"backing in gz":  compressed(t, qcow2(func(h []byte) { h[15] = 1 }), byGzip),
		"broken gzip":    []byte("\x1f\x8bxxxxxxxxxxxxxxxxx"),
		"broken xz":      []byte("\xfd7zXZ\x00xxxxxxxxxxxxxxxxxxxx"),
		"memory of xz":   xzHuge,
		"broken zstd":    []byte("\x28\xb5\x2f\xfdxxxxxxxxxxxxx"),
		"header of gzip": []byte("\x1f\x8b"),
		"half a deb":     deb(t)[:300],
	} {
		if got, err := detect(content); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// endless is content that repeats a text, and counts what is read. It ends by an error after 64 MiB.
type endless struct {
	text []byte
	read int64
}

// ReadAt implements io.ReaderAt.
func (e *endless) ReadAt(p []byte, at int64) (int, error) {
	if e.read > 64<<20 {
		return 0, errors.New("too much was read")
	}

	for n := range p {
		p[n] = e.text[(at+int64(n))%int64(len(e.text))]
	}

	e.read += int64(len(p))

	return len(p), nil
}

// TestDetectReadsLittle: content that decompresses to nothing is not read to its end.
func TestDetectReadsLittle(t *testing.T) {
	t.Parallel()

	for name, text := range map[string][]byte{
		"empty members of gzip": compressed(t, nil, byGzip),
		"empty frames of zstd":  compressed(t, nil, byZstd),
	} {
		e := &endless{text: text}
		if got, err := image.Detect(e, 1<<40); err == nil && got.Format != image.Data {
			t.Errorf("%s: %+v", name, got)
		}
		if e.read > 8<<20 {
			t.Errorf("%s: %d bytes were read", name, e.read)
		}
	}
}

// TestDetectLaterBlock: no block of xz takes more memory than the first may. It measures the memory of the process, so
// it is not parallel.
func TestDetectLaterBlock(t *testing.T) {
	content := compressed(t, rawDisk(), func(w io.Writer) (io.WriteCloser, error) {
		return xz.WriterConfig{BlockSize: 600}.NewWriter(w)
	})

	const start, size = 12, 12

	second := start + size + bytes.Index(content[start+size:], content[start:start+size-4])
	if second < start+size {
		t.Fatal("there is no second block")
	}

	header := content[second : second+size]
	header[4] = 36 // its dictionary has 1 GiB
	binary.LittleEndian.PutUint32(header[size-4:], crc32.ChecksumIEEE(header[:size-4]))

	var before, after runtime.MemStats

	runtime.ReadMemStats(&before)

	if got, err := detect(content); err != nil || got.Format != image.Raw {
		t.Errorf("%+v, %v", got, err)
	}

	runtime.ReadMemStats(&after)

	if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 {
		t.Errorf("it took %d MiB of memory", took>>20)
	}
}

// FuzzDetect expects every content to be told or refused, and no disk of an impossible size.
func FuzzDetect(f *testing.F) {
	for _, plain := range [][]byte{rawDisk()[:1024], qcow2(nil), tarball(f)[:1024], deb(f), {}} {
		f.Add(plain)

		for _, by := range []func(io.Writer) (io.WriteCloser, error){byGzip, byXZ, byZstd} {
			f.Add(compressed(f, plain, by))
		}
	}

	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := detect(content)
		if err != nil {
			if inventory.KindOf(err) != inventory.KindInvalid {
				t.Fatal(err)
			}
			return
		}

		if got.Virtual < 0 || got.Virtual > 64<<40 || got.Format == "" {
			t.Fatalf("%+v", got)
		}
	})
}
