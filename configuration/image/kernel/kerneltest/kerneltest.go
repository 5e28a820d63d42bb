// SPDX-License-Identifier: Apache-2.0

// Package kerneltest makes small Debian packages of kernels, and reads what was made of them.
package kerneltest

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"

	"github.com/contiv/cluster/inventory/errtest"
)

// Release is that of the kernel in Files.
const Release = "6.1.0-9-amd64"

// Modules is the folder of all modules.
const Modules = "./lib/modules/" + Release + "/"

// File is a file of a package.
type File struct {
	Name    string // as in the archive
	Content []byte
	Type    byte // of tar; 0: a regular file
}

// Control is the file control of a package.
func Control(name, arch string) []File {
	text := "Package: " + name + "\nVersion: 6.1.9-1\nArchitecture: " + arch + "\n"

	return []File{{Name: "./control", Content: []byte(text)}}
}

// Files are those of a package of a kernel: a driver of a network and a file system with what they depend on, and
// modules that nobody needs.
func Files() []File {
	at := Modules + "kernel/"
	intel := Module("alias=crypto-crc32c", "alias=cpu:type:x86,*")
	virtio := Module("alias=virtio:d00000001v*", "depends=net-failover,virtio")

	return []File{
		{Name: "./boot/vmlinuz-" + Release, Content: []byte("the kernel")},
		{Name: "./boot/config-" + Release, Content: []byte("CONFIG_X=y")},
		{Name: at + "drivers/net/virtio_net.ko", Content: virtio},
		{Name: at + "drivers/net/net_failover.ko", Content: Module("depends=failover")},
		{Name: at + "net/core/failover.ko", Content: Module("license=GPL", "depends=")},
		{Name: at + "drivers/net/wireless/wifi.ko", Content: Module("depends=")},
		{
			Name:    at + "fs/ext4/ext4.ko",
			Content: Module("alias=fs-ext4", "softdep=pre: crypto-crc32c crypto-x", "depends="),
		},
		{Name: at + "arch/x86/crypto/crc32c-intel.ko", Content: intel},
		{Name: at + "crypto/crc32c_generic.ko", Content: Module("alias=crypto-crc32c")},
		{Name: at + "fs/minix/minix.ko", Content: Module("depends=crc32c_intel")},
		{Name: at + "drivers/virtio/link.ko", Type: tar.TypeSymlink},
		{Name: Modules + "modules.builtin.modinfo", Content: []byte("virtio.license=GPL\x00virtio.file=x\x00")},
	}
}

// Package makes a package with a control file, and files.
func Package(t testing.TB, control, files []File) []byte {
	t.Helper()
	return Deb("control.tar.xz", XZ(t, Tar(t, control)), "data.tar.xz", XZ(t, Tar(t, files)))
}

// Deb makes a package of two archives.
func Deb(control string, c []byte, data string, d []byte) []byte {
	var b bytes.Buffer
	b.WriteString("!<arch>\n")

	for _, m := range []struct {
		name    string
		content []byte
	}{{"debian-binary", []byte("2.0\n")}, {control, c}, {data, d}} {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, 0, 0, 0, "100644", len(m.content))
		b.Write(m.content)

		if len(m.content)%2 != 0 {
			b.WriteByte('\n')
		}
	}

	return b.Bytes()
}

// Tar makes an archive.
func Tar(t testing.TB, files []File) []byte {
	t.Helper()

	var b bytes.Buffer

	w := tar.NewWriter(&b)
	for _, f := range files {
		errtest.None(t, w.WriteHeader(&tar.Header{
			Name: f.Name, Typeflag: f.Type, Linkname: "x", Mode: 0o644, Size: int64(len(f.Content)),
		}))

		_, err := w.Write(f.Content)
		errtest.None(t, err)
	}

	errtest.None(t, w.Close())

	return b.Bytes()
}

// XZ compresses content.
func XZ(t testing.TB, content []byte) []byte {
	t.Helper()

	var b bytes.Buffer

	w, err := xz.NewWriter(&b)
	errtest.None(t, err)
	_, err = w.Write(content)
	errtest.None(t, err)
	errtest.None(t, w.Close())

	return b.Bytes()
}

// Module is a module of a kernel that says that about itself, and does nothing.
func Module(info ...string) []byte {
	const headerSize, sectionSize = 64, 64

	names := "\x00.modinfo\x00.shstrtab\x00"
	said := strings.Join(info, "\x00") + "\x00"

	var b bytes.Buffer

	put := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	put(elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: headerSize,
		Shoff: headerSize, Shentsize: sectionSize, Shnum: 3, Shstrndx: 2,
	})

	at := uint64(headerSize + 3*sectionSize)
	put(elf.Section64{})
	put(elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: at, Size: uint64(len(said))})
	put(elf.Section64{
		Name: 10, Type: uint32(elf.SHT_STRTAB), Off: at + uint64(len(said)), Size: uint64(len(names)),
	})
	b.WriteString(said + names)

	return b.Bytes()
}

// Unpacked is a file of an initrd.
type Unpacked struct {
	Mode    int
	Content string
	Device  [2]int // of a device: its major and its minor number
}

// Unpack unpacks an initrd as the kernel does, whose parts are not compressed: an archive begins at a multiple of four
// bytes, zeros are skipped, and a file needs its folder.
func Unpack(initrd []byte) (map[string]Unpacked, error) {
	const headerSize = 110

	all := map[string]Unpacked{}
	inArchive := false

	for at := 0; at < len(initrd); {
		if initrd[at] == 0 && !inArchive {
			at++
			continue
		}
		if at%4 != 0 || len(initrd)-at < headerSize || !bytes.HasPrefix(initrd[at:], []byte("070701")) {
			return nil, fmt.Errorf("there is no archive at %d", at)
		}

		field := func(i int) int {
			n, err := strconv.ParseInt(string(initrd[at+6+8*i:at+14+8*i]), 16, 64)
			if err != nil {
				return len(initrd) + 1
			}
			return int(n)
		}

		mode, size, nameSize := field(1), field(6), field(11)
		device := [2]int{field(9), field(10)}

		begin := (at + headerSize + nameSize + 3) &^ 3
		if nameSize < 1 || begin+size > len(initrd) {
			return nil, io.ErrUnexpectedEOF
		}

		name := string(initrd[at+headerSize : at+headerSize+nameSize-1])
		at = (begin + size + 3) &^ 3
		inArchive = name != "TRAILER!!!"

		if i := strings.LastIndex(name, "/"); i > 0 && all[name[:i]].Mode&0o170000 != 0o040000 {
			return nil, fmt.Errorf("%s has no folder", name)
		}
		if inArchive {
			all[name] = Unpacked{mode, string(initrd[begin : begin+size]), device}
		}
	}

	if inArchive {
		return nil, io.ErrUnexpectedEOF
	}

	return all, nil
}

// Without returns files without the one whose name ends so.
func Without(files []File, suffix string) []File {
	return slices.DeleteFunc(slices.Clone(files), func(f File) bool { return strings.HasSuffix(f.Name, suffix) })
}
