// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
)

// Choose returns the disk that the hints of an order mean, unless none can be installed on it.
func Choose(hints map[string]any, disks []facts.Disk) (facts.Disk, error) {
	d, err := facts.RootDevice(hints, disks)

	switch {
	case err != nil:
		return d, inventory.Errorf(inventory.KindNotFound, "%w", err).
			Do("correct the hints for the root device of this node")
	case d.Name == "" || !filepath.IsLocal(d.Name):
		return d, refused(d, "the kernel has no name for it")
	case d.Removable:
		return d, refused(d, "it is removable")
	case d.SizeBytes == 0:
		return d, refused(d, "it has no medium")
	}

	return d, nil
}

// Open opens a disk that nothing else uses, and returns its size in bytes.
func Open(d facts.Disk) (*os.File, int64, error) {
	// The kernel has ! in the names of devices that are in a folder of /dev.
	path := filepath.Join("/dev", strings.ReplaceAll(d.Name, "!", "/"))

	f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, 0, refused(d, "it is in use, such as in an array or by a file system that is mounted")
	}
	if err != nil {
		return nil, 0, refused(d, "%w", err)
	}

	size, err := examine(f)
	if err != nil {
		f.Close()
		return nil, 0, refused(d, "%w", err)
	}

	return f, size, nil
}

// examine returns the size of an open disk, or an error if it cannot take an image.
func examine(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if info.Mode()&os.ModeDevice == 0 || info.Mode()&os.ModeCharDevice != 0 {
		return 0, errors.New("it is no block device")
	}

	readOnly, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKROGET)
	if err != nil {
		return 0, fmt.Errorf("cannot tell whether it is read-only: %w", err)
	}
	sectorSize, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKSSZGET)
	if err != nil {
		return 0, fmt.Errorf("cannot tell the size of its sectors: %w", err)
	}
	size, err := f.Seek(0, io.SeekEnd)

	switch {
	case err != nil:
		return 0, fmt.Errorf("cannot tell its size: %w", err)
	case readOnly != 0:
		return 0, errors.New("it is read-only")
	case size == 0:
		return 0, errors.New("it has no medium")
	case sectorSize != sector:
		return 0, fmt.Errorf("its sectors have %d bytes, and those of images %d", sectorSize, sector)
	}

	return size, nil
}

func refused(d facts.Disk, format string, args ...any) error {
	return inventory.Errorf(inventory.KindRefused, "nothing is installed on the disk %s: %w", d.Label(),
		fmt.Errorf(format, args...)).Do("correct the hints for the root device of this node, or replace the disk")
}
