// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/facts"
)

const mib = 1 << 20

var testSeed = Seed{MetaData: "instance-id: r1\n", UserData: "#cloud-config\n" + strings.Repeat("# x\n", 5000)}

// target is a disk in a file that counts what happens to it.
type target struct {
	*os.File

	failAt int // the operation from which on all fail; 0: none
	ops    []op
}

type op struct {
	at   int64 // -1: Sync
	size int
	zero bool
}

func newTarget(t *testing.T, size int64) *target {
	t.Helper()

	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	errtest.None(t, err)
	t.Cleanup(func() { f.Close() })
	errtest.None(t, f.Truncate(size))

	// The disk has had a system.
	for _, at := range []int64{0, edge, size - edge} {
		_, err = f.WriteAt(bytes.Repeat([]byte("old system"), edge/10), at)
		errtest.None(t, err)
	}

	return &target{File: f}
}

func (d *target) do(o op) error {
	d.ops = append(d.ops, o)
	if d.failAt > 0 && len(d.ops) >= d.failAt {
		return unix.EIO
	}
	return nil
}

func (d *target) WriteAt(p []byte, at int64) (int, error) {
	if err := d.do(op{at, len(p), len(bytes.Trim(p, "\x00")) == 0}); err != nil {
		return 0, err
	}
	return d.File.WriteAt(p, at)
}

func (d *target) Sync() error { return d.do(op{at: -1}) }

func (d *target) bytes(t *testing.T, at, n int64) []byte {
	t.Helper()

	b := make([]byte, n)
	_, err := d.ReadAt(b, at)
	errtest.None(t, err)

	return b
}

// boots reports whether anything is where a firmware looks.
func (d *target) boots(t *testing.T) bool {
	t.Helper()

	size, err := d.Seek(0, io.SeekEnd)
	errtest.None(t, err)

	both := slices.Concat(d.bytes(t, 0, edge), d.bytes(t, size-edge, edge))

	return len(bytes.Trim(both, "\x00")) > 0
}

func fill32(b []byte, values ...uint32) {
	for i, v := range values {
		binary.LittleEndian.PutUint32(b[4*i:], v)
	}
}

// noise returns bytes of which half can be compressed.
func noise(size int64) []byte {
	b := make([]byte, size)
	for at := int64(0); at < size; at += 8192 {
		for i := at; i < min(size, at+4096); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], rand.Uint64())
		}
	}

	return b
}

// entry is a partition.
type entry struct {
	index       int
	first, last uint64
	name        string
	attributes  uint64
}

var (
	testParts = []entry{{1, 4096, 8191, "root", 1 << 59}, {15, 2048, 4095, "EFI system partition", 1}}
	testGUID  = []byte("a GUID of 16 B..")
)

// gptImage returns the image of a disk with a GPT.
func gptImage(size int64, parts ...entry) []byte {
	b := noise(size)
	clear(b[440 : 34*sector])
	clear(b[size-33*sector:])
	b[510], b[511] = 0x55, 0xaa
	b[mbrEntries+mbrType] = protective
	fill32(b[mbrEntries+mbrStart:], 1, uint32(size/sector-1))

	entries := make([]byte, 128*128)
	for _, p := range parts {
		e := entries[128*(p.index-1):]
		copy(e, "a type of a part")
		copy(e[16:], fmt.Sprintf("partition %6d", p.index))
		binary.LittleEndian.PutUint64(e[32:], p.first)
		binary.LittleEndian.PutUint64(e[40:], p.last)
		binary.LittleEndian.PutUint64(e[48:], p.attributes)
		for i, unit := range utf16.Encode([]rune(p.name)) {
			binary.LittleEndian.PutUint16(e[56+2*i:], unit)
		}
	}

	last := uint64(size/sector - 1)
	putHeader(b[sector:], 1, last, last, 2, entries)
	putHeader(b[last*sector:], last, 1, last, last-32, entries)
	copy(b[2*sector:], entries)
	copy(b[(last-32)*sector:], entries)

	return b
}

func putHeader(h []byte, own, other, last, array uint64, entries []byte) {
	copy(h, "EFI PART\x00\x00\x01\x00\x5c\x00\x00\x00")
	for i, v := range []uint64{own, other, 34, last - 33} {
		binary.LittleEndian.PutUint64(h[24+8*i:], v)
	}
	copy(h[56:], testGUID)
	binary.LittleEndian.PutUint64(h[72:], array)
	fill32(h[80:], 128, 128, crc32.ChecksumIEEE(entries))
	fill32(h[16:], 0)
	fill32(h[16:], crc32.ChecksumIEEE(h[:92]))
}

// mbrImage returns the image of a disk with an MBR and that many partitions.
func mbrImage(size int64, parts int) []byte {
	b := noise(size)
	clear(b[mbrEntries:510])
	b[510], b[511] = 0x55, 0xaa
	for i := range parts {
		e := b[mbrEntries+i*mbrEntry:]
		e[0], e[mbrType] = byte(0x80*(1-min(i, 1))), 0x83
		fill32(e[mbrStart:], uint32(2048*(i+1)), 2048)
	}

	return b
}

func pack(t *testing.T, method string, b []byte) []byte {
	t.Helper()

	var packed bytes.Buffer
	var w io.WriteCloser
	var err error
	switch method {
	case "gzip":
		w = gzip.NewWriter(&packed)
	case "xz":
		w, err = xz.WriterConfig{BlockSize: 2 * mib}.NewWriter(&packed)
	case "zstd":
		w, err = zstd.NewWriter(&packed)
	default:
		return b
	}
	errtest.None(t, err)

	_, err = w.Write(b)
	errtest.None(t, err)
	errtest.None(t, w.Close())

	return packed.Bytes()
}

func imageOf(content []byte, method string) Image {
	return Image{
		Digest:      fmt.Sprintf("sha256:%x", sha256.Sum256(content)),
		Size:        int64(len(content)),
		Compression: method,
	}
}

func writeTo(t *testing.T, d *target, size int64, content []byte, image Image, seed Seed) (bool, error) {
	t.Helper()
	return Write(t.Context(), d, size, bytes.NewReader(content), image, seed, func(int64) {})
}

// checkGPT checks both copies of a GPT, and returns the last partition by place.
func checkGPT(t *testing.T, d *target, size int64) (seed []byte) {
	t.Helper()

	last := uint64(size/sector - 1)
	for _, at := range []uint64{1, last} {
		h := d.bytes(t, int64(at)*sector, sector)
		u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(h[at:]) }
		entries := d.bytes(t, int64(u64(72))*sector, 128*128)

		want := make([]byte, sector)
		putHeader(want, at, 1+last-at, last, map[uint64]uint64{1: 2, last: last - 32}[at], entries)
		if !bytes.Equal(h, want) {
			t.Fatalf("the header in sector %d is\n%x, not\n%x", at, h[:92], want[:92])
		}

		image := gptImage(8*mib, testParts...)[2*sector:]
		for i := range 128 {
			entry := entries[128*i : 128*(i+1)]
			if was := image[128*i : 128*(i+1)]; bytes.Equal(entry, was) {
				continue
			}
			if i != 1 || (at == last && !bytes.Equal(seed, entry)) {
				t.Errorf("partition %d has become %x", i+1, entry)
			}
			seed = entry
		}
	}

	if got := binary.LittleEndian.Uint32(d.bytes(t, mbrEntries+mbrCount, 4)); uint64(got) != last {
		t.Errorf("the protective partition has %d sectors of %d", got, last)
	}

	return seed
}

// checkSeed reads the seed with the library and, if they are there, by mtools and fsck.
func checkSeed(t *testing.T, d *target, at int64, seed Seed) {
	t.Helper()

	if path := tool("fsck.vfat"); path != "" {
		part := filepath.Join(t.TempDir(), "part")
		errtest.None(t, os.WriteFile(part, d.bytes(t, at, seedSize), 0o600))
		if out, err := exec.Command(path, "-n", part).CombinedOutput(); err != nil {
			t.Errorf("fsck: %v\n%s", err, out)
		}
	} else {
		t.Log("fsck.vfat is not installed (dosfstools)")
	}

	mtype := tool("mtype")
	if mtype == "" {
		t.Log("mtype is not installed (mtools)")
		return
	}
	for name, want := range map[string]string{
		"meta-data": seed.MetaData, "user-data": cmp.Or(seed.UserData, noUserData),
		"network-config": seed.NetworkConfig,
	} {
		out, err := exec.Command(mtype, "-i", fmt.Sprintf("%s@@%d", d.Name(), at), "::/"+name).Output()
		if string(out) != want || (err != nil) != (name == "network-config" && want == "") {
			t.Errorf("%s is %.60q: %v", name, out, err)
		}
	}

	out, err := exec.Command(cmp.Or(tool("blkid"), "true"), "-p", "-O", fmt.Sprint(at), d.Name()).Output()
	if err != nil || len(out) > 0 && !strings.Contains(string(out), ` LABEL="CIDATA"`) {
		t.Errorf("blkid: %v: %s", err, out)
	}
}

// tool returns the path of a program that may be missing.
func tool(name string) string {
	for _, folder := range []string{"/usr/sbin", "/usr/bin", "/sbin"} {
		if path := filepath.Join(folder, name); exec.Command("test", "-x", path).Run() == nil {
			return path
		}
	}
	return ""
}

// TestWriteGPT writes an image in each compression, with a seed and without, twice each.
func TestWriteGPT(t *testing.T) {
	t.Parallel()

	const imageSize, size = 6*mib + 512, 100*mib + 1536

	b := gptImage(imageSize, testParts...)

	for _, method := range []string{"", "gzip", "xz", "zstd"} {
		content := pack(t, method, b)
		seeds := []Seed{testSeed}
		if method == "" {
			seeds = append(seeds, Seed{}, Seed{MetaData: "{}", NetworkConfig: "version: 2"})
		}

		for _, seed := range seeds {
			t.Run(fmt.Sprintf("%s seed %d", method, len(seed.NetworkConfig)+len(seed.MetaData)), func(t *testing.T) {
				t.Parallel()

				d := newTarget(t, size)
				for range 2 {
					touched, err := writeTo(t, d, size, content, imageOf(content, method), seed)
					if err != nil || !touched {
						t.Fatalf("%t, %v", touched, err)
					}
				}

				for _, part := range [][2]int64{{0, mbrEntries}, {34 * sector, imageSize}} {
					if !bytes.Equal(d.bytes(t, part[0], part[1]-part[0]), b[part[0]:part[1]]) {
						t.Errorf("the disk is not the image from %d to %d", part[0], part[1])
					}
				}

				entry := checkGPT(t, d, size)
				if (entry == nil) != (seed == Seed{}) {
					t.Fatalf("the partition for the seed: %x", entry)
				}
				if out, err := exec.Command(cmp.Or(tool("sgdisk"), "true"), "-v", d.Name()).
					CombinedOutput(); err != nil ||
					len(out) > 0 && !strings.Contains(string(out), "No problems found") {
					t.Errorf("sgdisk: %v: %s", err, out)
				}
				if entry == nil {
					return
				}

				first, last := binary.LittleEndian.Uint64(entry[32:]), binary.LittleEndian.Uint64(entry[40:])
				if first%2048 != 0 || (last-first+1)*sector != seedSize || int64(last+1)*sector < size-2*mib {
					t.Errorf("the seed is in the sectors %d to %d", first, last)
				}
				checkSeed(t, d, int64(first)*sector, seed)
			})
		}
	}
}

// TestWriteMBR adds a partition, if one is left.
func TestWriteMBR(t *testing.T) {
	t.Parallel()

	const size = 100 * mib
	for parts, why := range map[int]string{0: "no partition", 1: "", 3: "", 4: "four partitions"} {
		b := mbrImage(10*mib, parts)
		d := newTarget(t, size)

		touched, err := writeTo(t, d, size, b, imageOf(b, ""), testSeed)
		if why != "" {
			if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), why) || touched {
				t.Errorf("%d partitions: %t, %v", parts, touched, err)
			}
			continue
		}
		errtest.None(t, err)

		table := slices.Clone(b[:sector])
		e := table[mbrEntries+parts*mbrEntry:]
		e[mbrType] = 0x0c
		fill32(e[mbrStart:], size/sector-seedSize/sector, seedSize/sector)

		if !bytes.Equal(d.bytes(t, 0, sector), table) || !bytes.Equal(d.bytes(t, sector, 10*mib-sector), b[sector:]) {
			t.Errorf("%d partitions: not the image", parts)
		}
		checkSeed(t, d, size-seedSize, testSeed)
	}

	// Without a seed, the table is nobody's business.
	b := mbrImage(10*mib, 4)
	d := newTarget(t, size)
	_, err := writeTo(t, d, size, b, imageOf(b, ""), Seed{})
	errtest.None(t, err)
	if !bytes.Equal(d.bytes(t, 0, 10*mib), b) {
		t.Error("not the image")
	}
}

// TestWriteRefuses expects that a disk stays as it was.
func TestWriteRefuses(t *testing.T) {
	t.Parallel()

	const size = 200 * mib
	good := gptImage(10*mib, testParts...)
	edit := func(at int, value byte) []byte {
		b := slices.Clone(good)
		b[at] = value
		h := b[sector : 2*sector]
		fill32(h[16:], 0)
		fill32(h[16:], crc32.ChecksumIEEE(h[:92]))
		return b
	}
	wide := noise(10 * mib)
	wide[510], wide[511] = 0x55, 0xaa
	copy(wide[4096:], gptMagic)

	for name, c := range map[string]struct {
		b    []byte
		size int64
		edit func(*Image)
		why  string
	}{
		"no boot sector":    {noise(10 * mib), size, nil, "boot sector"},
		"4 KiB sectors":     {wide, size, nil, "sectors of 4096"},
		"entries elsewhere": {edit(sector+72, 9), size, nil, "usual place"},
		"header elsewhere":  {edit(sector+24, 9), size, nil, "usual place"},
		"no entries":        {edit(sector+80, 0), size, nil, "0 entries"},
		"many entries":      {edit(sector+82, 9), size, nil, "entries"},
		"entries of none":   {edit(sector+84, 0), size, nil, "usual form"},
		"entries damaged":   {edit(2*sector, 0), size, nil, "hecksum"},
		"a larger GPT": {
			pack(t, "gzip", good), 9 * mib, func(i *Image) { i.Compression = "gzip" },
			"has at least 10485760 bytes, and the disk 9437184",
		},
		"a huge GPT":      {edit(sector+37, 1), size, nil, "impossible backup"},
		"larger":          {good, 9 * mib, nil, "has at least 10485760 bytes, and the disk 9437184"},
		"larger virtual":  {good, size, func(i *Image) { i.Virtual = size + 1 }, "has at least"},
		"tiny":            {good, 2 * mib, func(i *Image) { i.Size = 1 }, "has at least"},
		"no room":         {good, 66 * mib, nil, "with the seed"},
		"no compression":  {good, size, func(i *Image) { i.Compression = "br" }, "unknown"},
		"not compressed":  {good, size, func(i *Image) { i.Compression = "zstd" }, "decompressed"},
		"cut off at once": {good[:1000], size, func(i *Image) { i.Size = mib }, "after 1000 of 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := newTarget(t, size)
			image := imageOf(c.b, "")
			if c.edit != nil {
				c.edit(&image)
			}

			touched, err := writeTo(t, d, c.size, c.b, image, testSeed)
			if err == nil || touched || len(d.ops) > 0 || !strings.Contains(err.Error(), c.why) {
				t.Errorf("touched %t, %d operations: %v", touched, len(d.ops), err)
			}
		})
	}
}

// TestWriteFails expects a disk that does not boot.
func TestWriteFails(t *testing.T) {
	t.Parallel()

	const size = 100 * mib
	good := gptImage(10*mib, testParts...)
	broken := errors.New("connection reset")
	packed := pack(t, "gzip", good)
	large := pack(t, "gzip", slices.Concat(good, make([]byte, 95*mib)))

	for name, c := range map[string]struct {
		content io.Reader
		edit    func(*Image)
		kind    inventory.Kind
		why     string
	}{
		"another digest": {
			bytes.NewReader(slices.Concat(good[:9*mib], make([]byte, mib))), nil, inventory.KindConflict, "digest",
		},
		"shorter": {
			bytes.NewReader(good[:7*mib]), nil, inventory.KindUnavailable, "ended after 7340032 of 10485760",
		},
		"longer": {
			bytes.NewReader(slices.Concat(good, good)), nil, inventory.KindConflict, "more than 10485760 bytes",
		},
		"breaks off": {
			io.MultiReader(bytes.NewReader(good[:7*mib]), iotest.ErrReader(broken)), nil,
			inventory.KindUnavailable, "failed after 7340032 of 10485760 bytes: connection reset",
		},
		"packed, cut off": {
			bytes.NewReader(packed[:len(packed)-3000]),
			func(i *Image) { *i = imageOf(packed[:len(packed)-3000], "gzip") },
			inventory.KindInvalid, "decompressed: unexpected EOF",
		},
		"packed, changed": {
			bytes.NewReader(slices.Concat(packed[:2*mib], make([]byte, len(packed)-2*mib))),
			func(i *Image) { *i = imageOf(packed, "gzip") }, inventory.KindConflict, "digest",
		},
		"larger than the disk": {
			bytes.NewReader(large), func(i *Image) { *i = imageOf(large, "gzip") },
			inventory.KindInvalid, "and the disk 104857600",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := newTarget(t, size)
			image := imageOf(good, "")
			if c.edit != nil {
				c.edit(&image)
			}

			touched, err := Write(t.Context(), d, size, c.content, image, testSeed, func(int64) {})
			if inventory.KindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.why) || !touched || d.boots(t) {
				t.Fatalf("touched %t, boots %t: %v", touched, d.boots(t), err)
			}

			touched, err = writeTo(t, d, size, good, imageOf(good, ""), testSeed)
			if err != nil || !touched || !d.boots(t) {
				t.Errorf("the next time: %t, %v", touched, err)
			}
		})
	}
}

// TestWriteStops expects a disk that does not boot, wherever the writing ends before that of the first sectors.
func TestWriteStops(t *testing.T) {
	t.Parallel()

	const size = 100 * mib
	b := gptImage(6*mib, testParts...)
	good := newTarget(t, size)
	_, err := writeTo(t, good, size, b, imageOf(b, ""), testSeed)
	errtest.None(t, err)

	// The last operations are: a Sync, the end, a Sync, the head, a Sync, the first sectors, a Sync.
	n := len(good.ops)
	for failAt := 1; failAt <= n; failAt += 1 + min(5, max(0, n-10-failAt)) {
		d := newTarget(t, size)
		d.failAt = failAt

		touched, err := writeTo(t, d, size, b, imageOf(b, ""), testSeed)
		if !strings.Contains(fmt.Sprint(err), unix.EIO.Error()) || inventory.KindOf(err) != inventory.KindInternal ||
			!touched {
			t.Errorf("failing at %d of %d: %t, %v", failAt, n, touched, err)
		}
		if failAt > 3 && failAt < n && len(bytes.Trim(d.bytes(t, 0, first), "\x00")) > 0 {
			t.Errorf("failing at %d of %d: the disk boots", failAt, n)
		}
	}
}

// TestWriteOrder expects that nothing at the ends of the disk but zeros comes before all else is on it.
func TestWriteOrder(t *testing.T) {
	t.Parallel()

	b := gptImage(10*mib, testParts...)

	for _, c := range []struct {
		size int64
		seed Seed
	}{{100 * mib, testSeed}, {10 * mib, Seed{}}} { // the latter as large as the image
		size := c.size
		d := newTarget(t, size)
		_, err := writeTo(t, d, size, b, imageOf(b, ""), c.seed)
		errtest.None(t, err)

		n := len(d.ops)
		if !slices.Equal(d.ops[:3], []op{{0, edge, true}, {size - edge, edge, true}, {at: -1}}) {
			t.Errorf("it begins with %+v", d.ops[:3])
		}
		end := []op{
			{at: -1},
			{size - edge, edge, false},
			{at: -1},
			{first, edge - first, false},
			{at: -1},
			{0, first, false},
			{at: -1},
		}
		if !slices.Equal(d.ops[n-7:], end) {
			t.Errorf("it ends with %+v", d.ops[n-7:])
		}
		for _, o := range d.ops[3 : n-7] {
			if o.at >= 0 && (o.at < edge || o.at+int64(o.size) > size-edge) {
				t.Errorf("in the midst of it: %+v", o)
			}
		}
	}
}

// TestWriteProgress says what is on the disk, and no more than that.
func TestWriteProgress(t *testing.T) {
	t.Parallel()

	const size = 80 * mib
	b := gptImage(70*mib, testParts...)
	d := newTarget(t, size)

	var got []int64
	_, err := Write(t.Context(), d, size, bytes.NewReader(b), imageOf(b, ""), Seed{}, func(written int64) {
		if last := d.ops[len(d.ops)-1]; last.at != -1 {
			t.Errorf("%d bytes are not on the disk", written)
		}
		got = append(got, written)
	})
	errtest.None(t, err)
	if !slices.Equal(got, []int64{65 * mib}) {
		t.Errorf("%d", got)
	}
}

// TestWriteCancelled ends in the midst of an image.
func TestWriteCancelled(t *testing.T) {
	t.Parallel()

	const size = 80 * mib
	b := gptImage(70*mib, testParts...)
	d := newTarget(t, size)
	gone := errors.New("the manager does not want the machine")
	ctx, cancel := context.WithCancelCause(t.Context())

	touched, err := Write(ctx, d, size, bytes.NewReader(b), imageOf(b, ""), testSeed, func(int64) { cancel(gone) })
	if !touched || !errors.Is(err, gone) || d.boots(t) {
		t.Errorf("%t, %v", touched, err)
	}
}

// TestProtectiveEntry: an MBR cannot count the sectors of a large disk, and a hybrid one has other entries.
func TestProtectiveEntry(t *testing.T) {
	t.Parallel()

	b := gptImage(2*mib, entry{index: 3, first: 100, last: 200})
	fill32(b[mbrEntries+mbrEntry+mbrStart:], 100, 101)
	b[mbrEntries+mbrEntry+mbrType] = 0x0c

	const size = 3 << 40
	l, err := plan(b[:edge], size, true)
	errtest.None(t, err)

	e := newEdges(onlyEnds{}, size, b[:edge])
	errtest.None(t, l.table.Write(e.storage(), size))

	want := slices.Clone(b[:sector])
	fill32(want[mbrEntries+mbrCount:], 1<<32-1)
	if !bytes.Equal(e.head[:sector], want) || l.seed < size-66*mib {
		t.Errorf("%x, and a seed at %d", e.head[mbrEntries:sector], l.seed)
	}

	// The partition table of an MBR ends at 2 TiB.
	b = mbrImage(2*mib, 1)
	l, err = plan(b[:edge], size, true)
	if errtest.None(t, err); l.seed > 2<<40-seedSize || l.seed < 2<<40-seedSize-2*mib {
		t.Errorf("a seed at %d", l.seed)
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()

	disks := []facts.Disk{
		{Name: "sda", SizeBytes: 9 << 30}, {Name: "sdb", Removable: true, SizeBytes: 8 << 30},
		{Name: "sdc"}, {Place: "Bay 1", SizeBytes: 7 << 30, Model: "X"}, {Name: "../etc/x", SizeBytes: 9 << 40},
	}

	for _, c := range []struct {
		hints map[string]any
		want  string
		kind  inventory.Kind
		why   string
	}{
		{map[string]any{"name": "sda"}, "sda", "", ""},
		{map[string]any{"name": "/dev/sdb"}, "", inventory.KindRefused, "disk sdb: it is removable"},
		{map[string]any{"name": "sdc"}, "", inventory.KindRefused, "no medium"},
		{map[string]any{"model": "X"}, "", inventory.KindRefused, "no name"},
		{map[string]any{"size": "> 1000"}, "", inventory.KindRefused, "no name"},
		{map[string]any{"serial": "X"}, "", inventory.KindNotFound, "no disk fits the hint serial=X"},
	} {
		d, err := Choose(c.hints, disks)
		if inventory.KindOf(err) != c.kind || err == nil && d.Name != c.want ||
			err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v: %s, %v", c.hints, d.Name, err)
		}
	}

	if d, err := Choose(nil, disks[:3]); err != nil || d.Name != "sda" {
		t.Errorf("%s, %v", d.Name, err)
	}
}

// TestOpen refuses what is no disk.
func TestOpen(t *testing.T) {
	t.Parallel()

	for _, name := range []string{"null", "none", "shm"} {
		if f, _, err := Open(facts.Disk{Name: name}); inventory.KindOf(err) != inventory.KindRefused ||
			!strings.Contains(err.Error(), "the disk "+name+": ") {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}

// FuzzPlan expects that no image makes it fail, or writes outside of the ends of the disk.
func FuzzPlan(f *testing.F) {
	f.Add(gptImage(mib, entry{index: 1, first: 40, last: 50})[:40*sector], true)
	f.Add(mbrImage(mib, 2)[:sector], true)

	f.Fuzz(func(t *testing.T, b []byte, seeded bool) {
		head := make([]byte, edge)
		copy(head, b)

		const size = 100 * mib
		l, err := plan(head, size, seeded)
		if err != nil {
			if inventory.KindOf(err) != inventory.KindInvalid {
				t.Error(err)
			}
			return
		}
		if l.seed != 0 && (l.seed < edge || l.seed+seedSize > size) {
			t.Errorf("a seed at %d", l.seed)
		}
		if l.table != nil {
			errtest.None(t, l.table.Write(newEdges(onlyEnds{}, size, head).storage(), size))
		}
	})
}
