// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/contiv/cluster/configuration/image/compression"
	"github.com/contiv/cluster/configuration/image/kernel"
	"github.com/contiv/cluster/inventory"
)

// The formats of content.
const (
	Raw   = "raw"   // a disk with a partition table
	Qcow2 = "qcow2" // a disk of qemu
	Tar   = "tar"   // an archive of files
	Deb   = "deb"   // a package of Debian
	Data  = "data"  // anything else
)

const (
	headSize = 1 << 10
	// maxRead is how many bytes of content are read, which may decompress to nothing.
	maxRead = 4 << 20
	// maxVirtual is the largest disk in bytes.
	maxVirtual = 1 << 46
)

// Found is what content is, by its first bytes.
type Found struct {
	Format      string // that of the decompressed content
	Compression string // gzip, xz or zstd; empty: none
	// Virtual is the size in bytes of the disk that it is written to; 0: unknown, as of a compressed raw disk.
	Virtual int64
	// Package and Arch are the name and the architecture of a package of Debian.
	Package, Arch string
}

// Detect tells content by its first bytes, decompressed; size is that of all of it in bytes. It reads maxRead of it at
// most. It returns KindInvalid for what cannot be decompressed, and for a qcow2 that depends on other files or cannot
// be a disk.
func Detect(content io.ReaderAt, size int64) (Found, error) {
	var f Found

	beginning := io.NewSectionReader(content, 0, min(size, maxRead))

	head, err := headOf(beginning)
	if err != nil {
		return f, err
	}

	if m := compression.Of(head); m != nil {
		if _, err := beginning.Seek(0, io.SeekStart); err != nil {
			return f, err
		}

		plain, err := m.Beginning(beginning)
		if err == nil {
			head, err = headOf(plain)
		}
		if err != nil {
			return f, inventory.
				Errorf(inventory.KindInvalid, "the content looks like %s, and cannot be decompressed: %w", m.Name, err).
				Do("check the file, and fetch or make it again")
		}

		f.Compression, size = m.Name, 0
	}

	switch {
	case bytes.HasPrefix(head, []byte(qcow2Magic)):
		f.Format = Qcow2
		f.Virtual, err = qcow2Size(head)
	case len(head) >= 512 && head[510] == 0x55 && head[511] == 0xaa:
		f.Format, f.Virtual = Raw, size
	case len(head) >= 262 && string(head[257:262]) == "ustar":
		f.Format = Tar
	case f.Compression == "" && kernel.IsPackage(head):
		var control kernel.Control
		control, err = kernel.ReadControl(beginning, size)
		f.Format, f.Package, f.Arch = Deb, control.Package, control.Arch
	default:
		f.Format = Data
	}

	return f, err
}

// headOf reads the first bytes.
func headOf(r io.Reader) ([]byte, error) {
	head := make([]byte, headSize)

	n, err := io.ReadFull(r, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && n > 0 {
		err = nil
	}

	return head[:n], err
}

const qcow2Magic = "QFI\xfb"

// qcow2Size returns the size in bytes of the disk of a qcow2.
func qcow2Size(head []byte) (int64, error) {
	const (
		smallV2, smallV3 = 72, 104
		knownFeatures    = 1 | 1<<3 | 1<<4 // dirty, another compression, extended L2 entries
		externalData     = 1 << 2
	)

	bad := func(reason string) (int64, error) {
		return 0, inventory.Errorf(inventory.KindInvalid, "the qcow2 %s", reason).
			Do("make it anew: qemu-img convert -O qcow2 FILE NEWFILE; qemu-img info FILE describes it")
	}

	if len(head) < smallV2 {
		return bad("is cut off in its header")
	}

	version := binary.BigEndian.Uint32(head[4:])
	if version != 2 && version != 3 {
		return bad("has an unknown version")
	}

	// Whoever reads such a disk reads another file of the host.
	if binary.BigEndian.Uint64(head[8:]) != 0 {
		return bad("depends on a backing file, which is not in it")
	}
	if bits := binary.BigEndian.Uint32(head[20:]); bits < 9 || bits > 21 {
		return bad("has clusters of an impossible size")
	}
	if binary.BigEndian.Uint32(head[32:]) != 0 {
		return bad("is encrypted")
	}

	if version == 3 {
		if len(head) < smallV3 {
			return bad("is cut off in its header")
		}

		features := binary.BigEndian.Uint64(head[72:])
		switch {
		case features&externalData != 0:
			return bad("has its data in another file")
		case features&^knownFeatures != 0:
			return bad("is marked as corrupt, or has features that are not known")
		}
	}

	size := binary.BigEndian.Uint64(head[24:])
	if size == 0 || size > maxVirtual {
		return bad("has a disk of an impossible size")
	}

	return int64(size), nil
}
