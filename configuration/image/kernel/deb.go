// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/contiv/cluster/configuration/image/compression"
	"github.com/contiv/cluster/inventory"
)

const (
	arMagic  = "!<arch>\n"
	arHeader = 60 // bytes before each member
	// maxMembers is how many members of a package are looked at: it has three, and some tools add a signature.
	maxMembers = 8

	// maxControl is the size in bytes of all files in the control archive, and maxControlFile that of the file control.
	maxControl, maxControlFile = 16 << 20, 64 << 10

	// controlMemory and dataMemory are for the decompression of the two archives, in bytes. dpkg takes 8 MiB, and 64
	// MiB with the best compression.
	controlMemory, dataMemory = 16 << 20, 64 << 20
)

// archive is one of the two in a package.
type archive struct {
	name   string
	limit  int64 // bytes that its files may have in all
	memory int64 // for its decompression
}

var (
	controlArchive = archive{"control.tar", maxControl, controlMemory}
	dataArchive    = archive{"data.tar", maxData, dataMemory}
)

// Control is what a Debian package says about itself.
type Control struct{ Package, Version, Arch string }

// invalid is the error for a package that is none, or not one of a kernel.
func invalid(format string, args ...any) *inventory.Error {
	return inventory.Errorf(inventory.KindInvalid, format, args...).
		Do("give the package of a kernel as Debian has it: apt-get download linux-image-VERSION-amd64, with the " +
			"version in its name")
}

// IsPackage reports whether content begins as a Debian package does.
func IsPackage(head []byte) bool { return bytes.HasPrefix(head, []byte(arMagic+"debian-binary")) }

// ReadControl reads what a Debian package of that many bytes says about itself.
func ReadControl(deb io.ReaderAt, size int64) (Control, error) {
	var c Control

	err := walk(deb, size, controlArchive, func(name string, content *tar.Reader, size int64) error {
		if name != "control" {
			return nil
		}

		text, err := readFile(name, content, size, maxControlFile)
		if err != nil {
			return err
		}

		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(line, ":")
			value = strings.TrimSpace(value)

			switch key {
			case "Package":
				c.Package = value
			case "Version":
				c.Version = value
			case "Architecture":
				c.Arch = value
			}
		}

		return errDone
	})
	if err == nil && (c.Package == "" || c.Version == "" || c.Arch == "") {
		err = invalid("the package does not say its name, version and architecture")
	}

	return c, err
}

var (
	errDone     = errors.New("the rest is not needed") // ends a walk before the last file
	errTooLarge = errors.New("it is too large")
)

// walk calls each with the regular files of an archive in a Debian package. Its error ends the walk.
func walk(deb io.ReaderAt, size int64, of archive, each func(string, *tar.Reader, int64) error) error {
	packed, err := member(deb, size, of.name)
	if err != nil {
		return err
	}

	limit := of.limit

	plain, err := decompressed(bufio.NewReaderSize(packed, 1<<16), limit, of.memory)
	if err != nil {
		return invalid("the archive %s of the package cannot be decompressed: %w", of.name, err)
	}

	for files := tar.NewReader(plain); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}

		// A sparse file has more than what is read.
		if err == nil {
			if limit -= h.Size; limit < 0 {
				err = errTooLarge
			}
		}
		if err != nil {
			return invalid("the archive %s of the package cannot be read: %w", of.name, err)
		}

		if h.Typeflag != tar.TypeReg {
			continue
		}

		err = each(strings.TrimPrefix(h.Name, "./"), files, h.Size)
		if errors.Is(err, errDone) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// member finds an archive in a Debian package, whatever its compression.
func member(deb io.ReaderAt, size int64, archive string) (*io.SectionReader, error) {
	head := make([]byte, len(arMagic)+arHeader)
	if n, err := deb.ReadAt(head, 0); n < len(head) || !IsPackage(head) {
		if err == nil || errors.Is(err, io.EOF) {
			err = invalid("the content is no Debian package")
		}
		return nil, err
	}

	at := int64(len(arMagic))

	for range maxMembers {
		head := head[:arHeader]
		if n, err := deb.ReadAt(head, at); n < len(head) {
			if err == nil || errors.Is(err, io.EOF) {
				break
			}
			return nil, err
		}

		at += arHeader

		has, err := strconv.ParseInt(strings.TrimSpace(string(head[48:58])), 10, 64)
		if err != nil || has < 0 || has > size-at || string(head[58:]) != "`\n" {
			return nil, invalid("the package is cut off or malformed")
		}

		// GNU ends a name with a slash.
		name := strings.TrimSuffix(strings.TrimSpace(string(head[:16])), "/")
		if name == archive || strings.HasPrefix(name, archive+".") {
			return io.NewSectionReader(deb, at, has), nil
		}

		at += has + has&1
	}

	return nil, invalid("the package has no %s", archive)
}

// decompressed returns the content of r, of which there may be that many bytes, and which takes so much memory.
func decompressed(r *bufio.Reader, limit, memory int64) (io.Reader, error) {
	var plain io.Reader = r

	head, err := r.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}

	if m := compression.Of(head); m != nil {
		if plain, err = m.Open(r, memory); err != nil {
			return nil, err
		}
	}

	return &limited{plain, limit}, nil
}

// limited fails after that many bytes, where io.LimitedReader ends.
type limited struct {
	io.Reader

	left int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, errTooLarge
	}

	return n, err
}
