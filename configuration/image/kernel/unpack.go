// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"archive/tar"
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/contiv/cluster/inventory"
)

const (
	// maxData is the size in bytes of all files of a package, and of all its modules decompressed. That of Debian 12
	// has 410 MB.
	maxData = 2 << 30
	// maxImage, maxModule and maxBuiltIn bound single files, in bytes.
	maxImage, maxModule, maxBuiltIn = 128 << 20, 64 << 20, 16 << 20
	// maxModules is the number of modules, and maxIndex the size in bytes of all that they say about themselves.
	maxModules, maxIndex = 20_000, 64 << 20
	// maxInitrd is the size in bytes of all modules of an environment, which has to fit into memory with them.
	maxInitrd = 1 << 30

	// maxLook is how many bytes of files are looked at for a kernel and a module, which come first.
	maxLook = 256 << 20

	imagePrefix = "boot/vmlinuz-"

	maxShown = 80 // bytes of a name in an error
)

// folders are those whose modules an environment has, below that of all modules; unwanted are exceptions.
var (
	folders = []string{
		"drivers/ata/", "drivers/block/", "drivers/char/hw_random/virtio-rng.", "drivers/hid/hid-generic.",
		"drivers/hid/usbhid/usbhid.", "drivers/input/keyboard/atkbd.", "drivers/input/serio/i8042.",
		"drivers/message/fusion/", "drivers/mmc/", "drivers/net/", "drivers/nvme/host/", "drivers/pci/controller/",
		"drivers/scsi/", "drivers/usb/host/", "drivers/usb/storage/", "drivers/virtio/", "fs/btrfs/", "fs/ext4/",
		"fs/fat/", "fs/xfs/",
	}
	unwanted = []string{
		"drivers/net/can/", "drivers/net/ieee802154/", "drivers/net/wireless/", "drivers/net/wwan/",
	}
)

// Kernel is what a Debian package of a kernel has for an environment.
type Kernel struct {
	Control

	Release string
	Image   []byte // vmlinuz
	Index   Index  // the modules, each after those that it depends on

	deb   io.ReaderAt
	size  int64
	files map[string]string // the path in the environment, by the name in the package
}

func shown(name string) string { return inventory.Shorten(name, maxShown) }

var (
	releaseForm = regexp.MustCompile(`^[0-9][0-9A-Za-z.+~_-]{0,99}$`)
	moduleForm  = regexp.MustCompile(`^kernel/[0-9A-Za-z/.+_-]+\.ko(\.(gz|xz|zst))?$`)
	suffixes    = regexp.MustCompile(`\.ko(\.[a-z]+)?$`)
)

// Unpack reads a Debian package of a kernel, of that many bytes.
func Unpack(deb io.ReaderAt, size int64) (*Kernel, error) {
	control, err := ReadControl(deb, size)
	if err != nil {
		return nil, err
	}

	k := &Kernel{Control: control, deb: deb, size: size, files: map[string]string{}}
	r := reading{Kernel: k, all: map[string]*candidate{}}

	if err := walk(deb, size, dataArchive, r.take); err != nil {
		return nil, err
	}

	if k.Image == nil || len(r.all) == 0 {
		return nil, noKernel(control, k.Image != nil, len(r.all) > 0)
	}
	if r.release != k.Release {
		return nil, invalid("the package %s has the modules of another kernel than its own", shown(control.Package))
	}

	if !addBuiltIn(r.all, r.builtIn) {
		return nil, errTooMany()
	}

	k.Index.Release = k.Release
	if k.Index.Modules, err = choose(r.all); err != nil {
		return nil, err
	}

	for i, m := range k.Index.Modules {
		// In the environment it is not compressed.
		inside := "lib/modules/" + k.Release + "/" + suffixes.ReplaceAllString(m.Path, ".ko")
		k.Index.Modules[i].Path = inside
		k.files[r.all[m.Name].file] = inside
	}

	return k, nil
}

// Check refuses a Debian package that has no kernel with its modules. It reads no more than its beginning.
func Check(deb io.ReaderAt, size int64) error {
	control, err := ReadControl(deb, size)
	if err != nil {
		return err
	}

	hasImage, hasModules := false, false

	beginning := archive{dataArchive.name, maxLook, dataMemory}
	err = walk(deb, size, beginning, func(name string, _ *tar.Reader, _ int64) error {
		_, _, inside := splitModule(name)
		hasModules = hasModules || moduleForm.MatchString(inside)
		hasImage = hasImage || strings.HasPrefix(name, imagePrefix)

		if hasImage && hasModules {
			return errDone
		}
		return nil
	})

	switch {
	case hasImage && hasModules:
		return nil
	case err != nil && !errors.Is(err, errTooLarge):
		return err
	}

	return noKernel(control, hasImage, hasModules)
}

// noKernel is the error for a package without a kernel, or without its modules, and names the one to take.
func noKernel(c Control, hasImage, hasModules bool) error {
	const takeBoth = "take a package with both, as Debian 12 and 13 have them: apt-get download linux-image-VERSION-%s"

	name := shown(c.Package)
	errorf := func(format string) *inventory.Error { return inventory.Errorf(inventory.KindInvalid, format, name) }

	switch plain, isDebug := strings.CutSuffix(c.Package, "-dbg"); {
	case isDebug:
		return errorf("the package %s has what a debugger needs, and no kernel").
			Do("take the package without -dbg: apt-get download %s", shown(plain))
	case hasImage:
		return errorf("the package %s has a kernel, and its modules are in another package").
			Do(takeBoth, c.Arch)
	case hasModules:
		return errorf("the package %s has modules, and their kernel is in another package").
			Do(takeBoth, c.Arch)
	}

	return errorf("the package %s has no kernel").
		Do("take the one that apt-cache depends linux-image-%s names: apt-get download linux-image-VERSION-%s", c.Arch,
			c.Arch)
}

// splitModule returns the release of the kernel in the path of a file below its modules, and the path below that.
func splitModule(name string) (isBelow bool, release, inside string) {
	below, ok := strings.CutPrefix(strings.TrimPrefix(name, "usr/"), "lib/modules/")
	release, inside, found := strings.Cut(below, "/")

	if !ok || !found {
		return false, "", ""
	}
	return true, release, inside
}

// reading is a package that is being read.
type reading struct {
	*Kernel

	release string                // of the modules
	all     map[string]*candidate // by name
	said    int                   // bytes that modules say about themselves
	total   int                   // bytes of modules, decompressed
	builtIn []byte                // modules.builtin.modinfo
}

// take reads a file of the package.
func (r *reading) take(name string, content *tar.Reader, size int64) error {
	if !fs.ValidPath(name) {
		return invalid("the package has a file with the malformed name %q", shown(name))
	}

	if release, ok := strings.CutPrefix(name, imagePrefix); ok {
		if r.Image != nil || !releaseForm.MatchString(release) {
			return invalid("the package has more than one kernel, or one without a version")
		}

		image, err := readFile(name, content, size, maxImage)
		r.Image, r.Release = image, release

		return err
	}

	isBelow, release, inside := splitModule(name)
	if !isBelow {
		return nil
	}

	if r.release == "" && releaseForm.MatchString(release) {
		r.release = release
	}

	switch {
	case release != r.release:
		return invalid("the package has modules of more than one kernel, or of one without a version")
	case inside == "modules.builtin.modinfo":
		text, err := readFile(name, content, size, maxBuiltIn)
		r.builtIn = text

		return err
	case moduleForm.MatchString(inside):
		return r.module(name, inside, content, size)
	}

	return nil
}

// module reads what a module says about itself.
func (r *reading) module(name, inside string, content *tar.Reader, size int64) error {
	text, err := readModule(name, content, size)
	if err != nil {
		return err
	}

	m, err := describe(text)
	if err != nil {
		return invalid("the file %s is no module: %w", shown(name), err)
	}

	m.Name = underscored(suffixes.ReplaceAllString(path.Base(name), ""))
	r.said += m.said
	r.total += len(text)

	if len(r.all) == maxModules || r.said > maxIndex || r.total > maxData {
		return errTooMany()
	}
	if r.all[m.Name] != nil {
		return invalid("the package has the module %s twice", shown(m.Name))
	}

	below := strings.TrimPrefix(inside, "kernel/")
	isIn := func(folder string) bool { return strings.HasPrefix(below, folder) }

	m.Path, m.file = inside, name
	m.wanted = slices.ContainsFunc(folders, isIn) && !slices.ContainsFunc(unwanted, isIn)
	r.all[m.Name] = m

	return nil
}

func errTooMany() error {
	return invalid("the package has too many modules, or they say too much about themselves")
}

func readFile(name string, content io.Reader, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, invalid("the file %s of the package has %d bytes, and may have %d", shown(name), size, limit)
	}

	text, err := io.ReadAll(content)
	if err != nil {
		err = invalid("the file %s of the package cannot be read: %w", shown(name), err)
	}

	return text, err
}

// readModule reads a module, which may be compressed.
func readModule(name string, content io.Reader, size int64) ([]byte, error) {
	if path.Ext(name) != ".ko" {
		plain, err := decompressed(bufio.NewReader(content), maxModule, dataMemory)
		if err != nil {
			return nil, invalid("the file %s cannot be decompressed: %w", shown(name), err)
		}
		content = plain
	}

	return readFile(name, content, size, maxModule)
}

// WriteModules writes the part of an initrd with the index and the modules, compressed by zstd, which kernels from 5.9
// on unpack. It reads the package again, so that no more than one module is in memory.
func (k *Kernel) WriteModules(w io.Writer) error {
	packed, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}

	err = k.writeModules(NewArchive(packed))

	return errors.Join(err, packed.Close())
}

func (k *Kernel) writeModules(archive *Archive) error {
	index, err := json.Marshal(k.Index)
	if err != nil {
		return err
	}

	if err := archive.Add(IndexFile, 0o644, index); err != nil {
		return err
	}

	left := len(k.files)
	total := 0

	err = walk(k.deb, k.size, dataArchive, func(name string, content *tar.Reader, size int64) error {
		inside, ok := k.files[name]
		if !ok {
			return nil
		}

		module, err := readModule(name, content, size)
		if err != nil {
			return err
		}
		if total += len(module); total > maxInitrd {
			return invalid("the modules of an environment have more than %d bytes", maxInitrd)
		}
		if err := archive.Add(inside, 0o644, module); err != nil {
			return err
		}

		if left--; left == 0 {
			return errDone
		}

		return nil
	})
	if err == nil && left > 0 {
		err = invalid("the package has changed while it was read")
	}
	if err != nil {
		return err
	}

	return archive.Close()
}
