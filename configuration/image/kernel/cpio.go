// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path"
)

const (
	// alignment is what each part of an initrd is padded to, in bytes. The kernel finds the next part at multiples of
	// four only, and unpacks nothing after a part elsewhere.
	alignment = 512

	modeFolder, modeFile, modeCharacter = 0o040000, 0o100000, 0o020000
)

// Program is the path of the program in an environment that the kernel starts.
const Program = "init"

// WriteProgram writes the part of an initrd with the program. Before that can mount anything it needs two devices: a
// program of Go does not start without /dev/null if the kernel has no console to open for it.
func WriteProgram(w io.Writer, program []byte) error {
	a := NewArchive(w)

	return errors.Join(
		a.folder("dev"),
		a.entry("dev/console", modeCharacter|0o600, device{5, 1}, nil),
		a.entry("dev/null", modeCharacter|0o666, device{1, 3}, nil),
		a.Add(Program, 0o755, program), a.Close())
}

// device is the number of a device of the kernel; zero: a file is none.
type device struct{ major, minor int }

// Archive writes a part of an initrd: a cpio archive in the format newc.
type Archive struct {
	w     *padded
	made  map[string]bool // folders
	inode uint32
}

// NewArchive returns one without files. It is complete after Close.
func NewArchive(w io.Writer) *Archive {
	return &Archive{w: &padded{Writer: w}, made: map[string]bool{".": true}}
}

// Add adds a file, and the folders that it is in. The path is one without a leading slash, and mode has permissions.
func (a *Archive) Add(name string, mode uint32, content []byte) error {
	if int64(len(content)) > math.MaxUint32 {
		return fmt.Errorf("%s has %d bytes, and a file of an initrd less than 4 GiB", name, len(content))
	}

	if err := a.folder(path.Dir(name)); err != nil {
		return err
	}

	return a.entry(name, modeFile|mode, device{}, content)
}

// folder adds a folder, unless it is there. The kernel makes none by itself.
func (a *Archive) folder(name string) error {
	if a.made[name] {
		return nil
	}
	if err := a.folder(path.Dir(name)); err != nil {
		return err
	}

	a.made[name] = true

	return a.entry(name, modeFolder|0o755, device{}, nil)
}

// entry writes the header of an entry, with its name, and the content, both padded to four bytes.
func (a *Archive) entry(name string, mode uint32, is device, content []byte) error {
	a.inode++

	// After the magic: inode, mode, owner, group, links, time, size, two numbers of the device it is on, two of its
	// own, the length of the name, and no check.
	_, err := fmt.Fprintf(a.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, is.major, is.minor, len(name)+1, 0, name)
	if err = errors.Join(err, a.w.pad(4)); err != nil {
		return err
	}

	_, err = a.w.Write(content)

	return errors.Join(err, a.w.pad(4))
}

// Close ends the archive.
func (a *Archive) Close() error {
	return errors.Join(a.entry("TRAILER!!!", 0, device{}, nil), a.w.pad(alignment))
}

// Join makes an initrd of its parts: cpio archives, each compressed or not.
func Join(w io.Writer, parts ...io.Reader) error {
	out := &padded{Writer: w}
	for _, part := range parts {
		if _, err := io.Copy(out, part); err != nil {
			return err
		}
		if err := out.pad(alignment); err != nil {
			return err
		}
	}

	return nil
}

// padded counts what is written.
type padded struct {
	io.Writer

	n int64
}

// Write implements io.Writer.
func (p *padded) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	p.n += int64(n)

	return n, err
}

// pad writes zeros up to the next multiple of that many bytes.
func (p *padded) pad(to int64) error {
	_, err := p.Write(make([]byte, -p.n&(to-1)))
	return err
}
