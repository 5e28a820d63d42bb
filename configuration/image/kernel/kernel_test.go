// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/contiv/cluster/configuration/image/kernel"
	"github.com/contiv/cluster/configuration/image/kernel/kerneltest"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

const (
	release = kerneltest.Release
	modules = kerneltest.Modules + "kernel/"
)

func unpack(deb []byte) (*kernel.Kernel, error) {
	return kernel.Unpack(bytes.NewReader(deb), int64(len(deb)))
}

// made makes a package of a kernel with the files.
func made(t testing.TB, files []kerneltest.File) []byte {
	t.Helper()
	return kerneltest.Package(t, kerneltest.Control("linux-image-"+release, "amd64"), files)
}

// written returns the files in the part of an initrd with the modules.
func written(t testing.TB, k *kernel.Kernel) map[string]kerneltest.Unpacked {
	t.Helper()

	var b bytes.Buffer
	errtest.None(t, k.WriteModules(&b))

	packed, err := zstd.NewReader(&b)
	errtest.None(t, err)
	defer packed.Close()

	plain, err := io.ReadAll(packed)
	errtest.None(t, err)

	all, err := kerneltest.Unpack(plain)
	errtest.None(t, err)

	return all
}

// check expects an environment in which each module can be loaded after those before it.
func check(t testing.TB, k *kernel.Kernel) {
	t.Helper()

	files := written(t, k)
	loaded := map[string]bool{}

	var index kernel.Index
	errtest.None(t, json.Unmarshal([]byte(files[kernel.IndexFile].Content), &index))

	for _, m := range index.Modules {
		for _, first := range m.Depends {
			if !loaded[first] {
				t.Errorf("%s depends on %s, which is not before it", m.Name, first)
			}
		}

		if !strings.HasPrefix(files[m.Path].Content, "\x7fELF") {
			t.Errorf("%s is not in the environment", m.Path)
		}
		if loaded[m.Name] {
			t.Errorf("%s is twice in the index", m.Name)
		}

		loaded[m.Name] = true
	}
}

// TestIndex: an environment has the drivers and the file systems, all that they depend on, and nothing else.
func TestIndex(t *testing.T) {
	t.Parallel()

	k, err := unpack(made(t, kerneltest.Files()))
	errtest.None(t, err)

	if k.Release != release || string(k.Image) != "the kernel" || k.Arch != "amd64" || k.Version != "6.1.9-1" {
		t.Errorf("%+v", k)
	}

	in := "lib/modules/" + release + "/kernel/"
	want := kernel.Index{Release: release, Modules: []kernel.Module{
		{
			Name: "ext4", Path: in + "fs/ext4/ext4.ko", Aliases: []string{"fs-ext4"},
			Before: []string{"crc32c_generic"},
		},
		{Name: "failover", Path: in + "net/core/failover.ko"},
		{Name: "net_failover", Path: in + "drivers/net/net_failover.ko", Depends: []string{"failover"}},
		{
			Name: "virtio_net", Path: in + "drivers/net/virtio_net.ko", Aliases: []string{"virtio:d00000001v*"},
			Depends: []string{"net_failover"},
		},
		{Name: "crc32c_generic", Path: in + "crypto/crc32c_generic.ko", Aliases: []string{"crypto-crc32c"}},
	}}
	if !reflect.DeepEqual(k.Index, want) {
		t.Errorf("%+v", k.Index)
	}

	check(t, k)

	files := written(t, k)
	if n := len(files); n != 1+5+11 {
		t.Errorf("the part of the initrd has %d files and folders: %v", n, slices.Collect(keys(files)))
	}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// TestOtherPackages reads packages as later versions of Debian and others have them.
func TestOtherPackages(t *testing.T) {
	t.Parallel()

	said := kerneltest.Tar(t, kerneltest.Control("linux-image-"+release, "amd64"))
	plain := kerneltest.Tar(t, kerneltest.Files())

	var packed bytes.Buffer
	w, err := zstd.NewWriter(&packed)
	errtest.None(t, err)
	_, err = w.Write(plain)
	errtest.None(t, err)
	errtest.None(t, w.Close())

	compressed := kerneltest.Files()
	for i, f := range compressed {
		if strings.HasSuffix(f.Name, ".ko") && f.Type == 0 {
			compressed[i].Name, compressed[i].Content = f.Name+".xz", kerneltest.XZ(t, f.Content)
		}
		compressed[i].Name = strings.Replace(compressed[i].Name, "./lib/", "./usr/lib/", 1)
	}

	for what, deb := range map[string][]byte{
		"plain":              kerneltest.Deb("control.tar", said, "data.tar", plain),
		"zstd":               kerneltest.Deb("control.tar/", said, "data.tar.zst", packed.Bytes()),
		"compressed modules": made(t, compressed),
	} {
		k, err := unpack(deb)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}

		if !slices.ContainsFunc(k.Index.Modules, func(m kernel.Module) bool { return m.Name == "virtio_net" }) {
			t.Errorf("%s: %+v", what, k.Index)
		}

		check(t, k)
	}
}

// TestSelection: a machine finds its network, its disks and its keyboard, also those at USB.
func TestSelection(t *testing.T) {
	t.Parallel()

	files := kerneltest.Files()
	wanted := []string{
		"ata/ahci", "hid/hid-generic", "hid/usbhid/usbhid", "input/keyboard/atkbd", "input/serio/i8042",
		"mmc/core/mmc_block", "net/usb/r8152", "scsi/sd_mod", "usb/host/ehci-pci", "usb/host/ohci-pci",
		"usb/host/uhci-hcd", "usb/host/xhci-pci", "usb/storage/uas", "usb/storage/usb-storage",
	}
	other := []string{"hid/hid-sony", "input/keyboard/gpio_keys", "net/wireless/b43", "usb/serial/ftdi_sio"}

	for _, name := range slices.Concat(wanted, other) {
		files = append(files, kerneltest.File{
			Name: modules + "drivers/" + name + ".ko", Content: kerneltest.Module("depends="),
		})
	}

	k, err := unpack(made(t, files))
	errtest.None(t, err)

	var paths []string
	for _, m := range k.Index.Modules {
		_, path, _ := strings.Cut(m.Path, "/drivers/")
		paths = append(paths, strings.TrimSuffix(path, ".ko"))
	}

	for _, name := range wanted {
		if !slices.Contains(paths, name) {
			t.Errorf("the environment lacks %s", name)
		}
	}
	for _, name := range other {
		if slices.Contains(paths, name) {
			t.Errorf("the environment has %s", name)
		}
	}
}

// TestCheck: what a package has decides whether it is taken, and not its name; the error names another one.
func TestCheck(t *testing.T) {
	t.Parallel()

	files := kerneltest.Files()
	of := func(name string, files []kerneltest.File) []byte {
		return kerneltest.Package(t, kerneltest.Control(name, "amd64"), files)
	}
	debug := []kerneltest.File{{
		Name: "./usr/lib/debug/lib/modules/" + release + "/kernel/fs/a.ko", Content: kerneltest.Module("depends="),
	}}

	for what, c := range map[string]struct {
		deb []byte
		why string // what the error says; empty: there is none
	}{
		"a kernel":         {of("linux-image-6.1.0-9-amd64", files), ""},
		"an unsigned one":  {of("linux-image-6.1.0-9-amd64-unsigned", files), ""},
		"one of one's own": {of("our-kernel", files), ""},
		"a debugger's":     {of("linux-image-6.1-amd64-dbg", debug), "apt-get download linux-image-6.1-amd64"},
		"a meta package":   {of("linux-image-amd64", nil), "apt-cache depends linux-image-amd64"},
		"only a kernel":    {of("linux-binary-6.1", files[:2]), "its modules are in another package"},
		"only modules":     {of("linux-modules-6.1", files[2:]), "their kernel is in another package"},
	} {
		err := kernel.Check(bytes.NewReader(c.deb), int64(len(c.deb)))
		if c.why == "" && err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if c.why != "" && (inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestWishes: what a module would like to have is in the environment, and costs no module one that it depends on.
func TestWishes(t *testing.T) {
	t.Parallel()

	file := func(name string, info ...string) kerneltest.File {
		return kerneltest.File{Name: modules + name + ".ko", Content: kerneltest.Module(info...)}
	}

	// The first would like to have the second before, and the second depends on it.
	k, err := unpack(made(t, append(kerneltest.Files(),
		file("drivers/net/a", "softdep=pre: b nowhere post: c", "depends="), file("drivers/net/b", "depends=a"),
		file("other/c", "depends=d"), file("other/d", "depends="),
		file("drivers/net/mlx4_en", "depends=mlx4_core"), file("drivers/net/mlx4_core", "depends="))))
	errtest.None(t, err)
	check(t, k)

	want := map[string][3][]string{
		"a": {nil, {"b"}, {"c"}}, "b": {{"a"}, nil, nil}, "c": {{"d"}, nil, nil}, "d": {},
		"mlx4_core": {nil, nil, {"mlx4_en"}}, "mlx4_en": {{"mlx4_core"}, nil, nil},
	}
	for _, m := range k.Index.Modules {
		if w, ok := want[m.Name]; ok {
			delete(want, m.Name)
			if got := [3][]string{m.Depends, m.Before, m.After}; !reflect.DeepEqual(got, w) {
				t.Errorf("%s: %q, not %q", m.Name, got, w)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("the environment lacks %v", want)
	}
}

// TestUnpackRefuses: nothing in a package is trusted.
func TestUnpackRefuses(t *testing.T) {
	t.Parallel()

	said := kerneltest.Tar(t, kerneltest.Control("linux-image-"+release, "amd64"))
	files := kerneltest.Files()
	good := made(t, files)
	with := func(more ...kerneltest.File) []byte { return made(t, slices.Concat(files, more)) }
	file := func(name string, content []byte) kerneltest.File {
		return kerneltest.File{Name: name, Content: content}
	}

	control := func(content []byte) []kerneltest.File { return []kerneltest.File{file("./control", content)} }
	noKernel := kerneltest.Without(files, "vmlinuz-"+release)
	link := kerneltest.File{Name: "./boot/vmlinuz-" + release, Type: tar.TypeLink}

	module := kerneltest.Module("depends=")
	// These have all that a package needs, but for what they are refused for.
	longControl := slices.Concat(kerneltest.Control("linux-image-"+release, "amd64")[0].Content,
		[]byte("Description: "+strings.Repeat("x", 64<<10)+"\n"))

	versionless := slices.Clone(files)
	for i, f := range versionless {
		versionless[i].Name = strings.ReplaceAll(f.Name, release, "...")
	}

	needsA, needsB := kerneltest.Module("depends=a"), kerneltest.Module("depends=b")
	undescribed := bytes.Replace(module, []byte(".modinfo"), []byte(".modinfx"), 1)
	damaged := []byte("\xfd7zXZ\x00xxxxxxxxxxxxxxxxx")
	large := append(bytes.Clone(module), make([]byte, 65<<20)...)

	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(large)
	errtest.None(t, err)
	errtest.None(t, w.Close())

	cut := bytes.Clone(good)
	copy(cut[8+60+4+48:], "99999999  ")

	negative := bytes.Clone(good)
	copy(negative[8+60+4+48:], "-9        ")

	// What a module says is kept, also if it is nothing.
	talk := slices.Clone(files)
	for i := range 70 {
		name := fmt.Sprintf("%sfs/talk%d.ko", modules, i)
		talk = append(talk, file(name, kerneltest.Module(strings.Repeat("alias=\x00", 140_000))))
	}

	var names strings.Builder
	for i := range 20_001 {
		fmt.Fprintf(&names, "m%d.alias=\x00", i)
	}
	many := append(slices.Clone(files), file(kerneltest.Modules+"modules.builtin.modinfo", []byte(names.String())))

	for what, deb := range map[string][]byte{
		"empty":                  nil,
		"text":                   []byte("#!/bin/sh\n"),
		"another archive":        []byte("!<arch>\n" + strings.Repeat("x", 200)),
		"only a beginning":       good[:100],
		"cut off":                good[:len(good)/2],
		"a member beyond":        cut,
		"a negative member":      negative,
		"no control":             made(t, nil)[:8+60+4],
		"an empty control":       kerneltest.Package(t, control(nil), files),
		"a large control":        kerneltest.Package(t, control(longControl), files),
		"much about itself":      kerneltest.Deb("control.tar", said, "data.tar", kerneltest.Tar(t, talk)),
		"built in without end":   kerneltest.Deb("control.tar", said, "data.tar", kerneltest.Tar(t, many)),
		"no data":                kerneltest.Deb("control.tar", said, "x", nil),
		"damaged data":           kerneltest.Deb("control.tar", said, "data.tar.xz", damaged),
		"no kernel":              made(t, noKernel),
		"no modules":             made(t, files[:2]),
		"two kernels":            with(file("./boot/vmlinuz-6.1.0-10-amd64", nil)),
		"a kernel of no version": made(t, versionless),
		"modules of another":     with(file("./lib/modules/6.1.0-10-amd64/kernel/fs/a.ko", module)),
		"a path up":              with(file("../../etc/passwd", nil)),
		"a path up inside":       with(file(modules+"../../../../etc/a.ko", module)),
		"an absolute path":       with(file("/etc/passwd", nil)),
		"a module twice":         with(file(modules+"fs/xfs/virtio-net.ko", module)),
		"no ELF":                 with(file(modules+"fs/a.ko", []byte("text"))),
		"no description":         with(file(modules+"fs/a.ko", undescribed)),
		"damaged module":         with(file(modules+"fs/a.ko.xz", damaged)),
		"a module of 65 MiB":     with(file(modules+"fs/b.ko", large)),
		"it unpacks to 65 MiB":   with(file(modules+"fs/a.ko.gz", packed.Bytes())),
		"a circle":               with(file(modules+"fs/xfs/a.ko", needsB), file(modules+"fs/b.ko", needsA)),
		"without a dependency":   made(t, kerneltest.Without(files, "/failover.ko")),
		"only a link to kernel":  made(t, append(noKernel, link)),
	} {
		if k, err := unpack(deb); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %+v, %v", what, k, err)
		} else if e := err.Error(); !strings.Contains(e, "apt-get download") {
			t.Errorf("%s: the error does not say what to give: %v", what, err)
		}
	}
}

// TestProgram: the program finds the devices that it needs before it can mount any.
func TestProgram(t *testing.T) {
	t.Parallel()

	var b bytes.Buffer
	errtest.None(t, kernel.WriteProgram(&b, []byte("the program")))

	got, err := kerneltest.Unpack(b.Bytes())
	want := map[string]kerneltest.Unpacked{
		"init": {Mode: 0o100755, Content: "the program"}, "dev": {Mode: 0o040755},
		"dev/console": {Mode: 0o020600, Device: [2]int{5, 1}}, "dev/null": {Mode: 0o020666, Device: [2]int{1, 3}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestJoin: the kernel finds every part of an initrd, whatever the length of those before it.
func TestJoin(t *testing.T) {
	t.Parallel()

	part := func(name, content string) io.Reader {
		var b bytes.Buffer

		a := kernel.NewArchive(&b)
		errtest.None(t, a.Add(name, 0o755, []byte(content)))
		errtest.None(t, a.Close())

		// Other tools pad less.
		return bytes.NewReader(bytes.TrimRight(b.Bytes(), "\x00"))
	}

	var initrd bytes.Buffer
	errtest.None(t, kernel.Join(&initrd, part("init", "the program"), part("lib/modules/a.ko", "x"),
		part("boot.json", "{}"), part("init", "another one")))

	got, err := kerneltest.Unpack(initrd.Bytes())
	file := func(content string) kerneltest.Unpacked { return kerneltest.Unpacked{Mode: 0o100755, Content: content} }
	want := map[string]kerneltest.Unpacked{
		"init": file("another one"), "lib": {Mode: 0o040755}, "lib/modules": {Mode: 0o040755},
		"lib/modules/a.ko": file("x"), "boot.json": file("{}"),
	}

	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}

	if n := initrd.Len(); n%512 != 0 {
		t.Errorf("the initrd has %d bytes", n)
	}
}

// FuzzUnpack expects every content to be refused, or to be an environment whose modules can be loaded.
func FuzzUnpack(f *testing.F) {
	control := kerneltest.Tar(f, kerneltest.Control("linux-image-"+release, "amd64"))
	files := kerneltest.Tar(f, kerneltest.Files())

	f.Add(made(f, kerneltest.Files()))
	f.Add(kerneltest.Deb("control.tar", control, "data.tar", files))
	f.Add(kerneltest.Deb("control.tar", control, "data.tar", files[:len(files)/2]))

	f.Fuzz(func(t *testing.T, deb []byte) {
		k, err := unpack(deb)
		if err != nil {
			if inventory.KindOf(err) != inventory.KindInvalid {
				t.Fatal(err)
			}
			return
		}

		check(t, k)
	})
}
