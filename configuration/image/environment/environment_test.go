// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/contiv/cluster/configuration/image/installer"
	"github.com/contiv/cluster/configuration/image/kernel"
	"github.com/contiv/cluster/configuration/image/kernel/kerneltest"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// packed is the program of these tests.
func packed(t *testing.T) []byte {
	t.Helper()

	var b bytes.Buffer

	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte("the program"))
	errtest.None(t, err)
	errtest.None(t, w.Close())

	return b.Bytes()
}

func kernelPackage(t *testing.T) []byte {
	t.Helper()
	return kerneltest.Package(t, kerneltest.Control("linux-image-6.1.0-9-amd64", "amd64"), kerneltest.Files())
}

// TestMake makes a kernel, and an initrd with the program and the modules. An order before it changes neither.
func TestMake(t *testing.T) {
	t.Parallel()

	var vmlinuz, big bytes.Buffer

	deb := kernelPackage(t)

	made, err := makeWith(t.Context(), packed(t), bytes.NewReader(deb), int64(len(deb)), "amd64", &vmlinuz, &big)
	if err != nil || made.Release != kerneltest.Release || made.Modules == 0 {
		t.Fatalf("%+v, %v", made, err)
	}

	if vmlinuz.String() != "the kernel" {
		t.Errorf("%q is the kernel", vmlinuz.String())
	}

	order, err := WithOrder(installer.Order{Interface: installer.Interface{
		Address: netip.MustParsePrefix("10.9.1.100/24"),
	}})
	errtest.None(t, err)

	if len(order)%512 != 0 || big.Len()%512 != 0 {
		t.Errorf("%d and %d bytes: what follows is not aligned", len(order), big.Len())
	}

	initrd := slices.Concat(order, big.Bytes())

	at := bytes.Index(initrd, []byte("\x28\xb5\x2f\xfd"))
	if at < 0 || at%4 != 0 {
		t.Fatalf("the modules begin at %d", at)
	}

	first, err := kerneltest.Unpack(initrd[:at])
	if err != nil || first["init"] != (kerneltest.Unpacked{Mode: 0o100755, Content: "the program"}) {
		t.Errorf("%+v, %v", first, err)
	}

	found, err := installer.Decode([]byte(first[installer.OrderFile].Content))
	if err != nil || first[installer.OrderFile].Mode != 0o100600 ||
		found.Interface.Address.String() != "10.9.1.100/24" {
		t.Errorf("%+v, %v", first, err)
	}

	r, err := zstd.NewReader(bytes.NewReader(bytes.TrimRight(initrd[at:], "\x00")))
	errtest.None(t, err)
	defer r.Close()

	plain, err := io.ReadAll(r)
	errtest.None(t, err)

	modules, err := kerneltest.Unpack(plain)
	if err != nil || !strings.Contains(modules[kernel.IndexFile].Content, "virtio_net") {
		t.Errorf("%+v, %v", modules, err)
	}
}

// failing fails at every write.
type failing struct{}

var errFull = errors.New("full")

func (failing) Write([]byte) (int, error) { return 0, errFull }

// TestMakeRefuses: what is no package for the architecture, a writer that fails, and the end of the context.
func TestMakeRefuses(t *testing.T) {
	t.Parallel()

	good := kernelPackage(t)
	program := packed(t)
	run := func(ctx context.Context, deb []byte, arch string, vmlinuz, initrd io.Writer) error {
		_, err := makeWith(ctx, program, bytes.NewReader(deb), int64(len(deb)), arch, vmlinuz, initrd)
		return err
	}

	for what, err := range map[string]error{
		"a text":               run(t.Context(), []byte("text"), "amd64", io.Discard, io.Discard),
		"cut off":              run(t.Context(), good[:len(good)-200], "amd64", io.Discard, io.Discard),
		"another architecture": run(t.Context(), good, "arm64", io.Discard, io.Discard),
	} {
		if inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}

	for _, w := range [][2]io.Writer{{failing{}, io.Discard}, {io.Discard, failing{}}} {
		if err := run(t.Context(), good, "amd64", w[0], w[1]); !errors.Is(err, errFull) {
			t.Error(err)
		}
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errFull)

	if err := run(ctx, good, "amd64", io.Discard, io.Discard); !errors.Is(err, errFull) {
		t.Error(err)
	}

	if _, err := WithOrder(installer.Order{Interface: installer.Interface{MAC: "x"}}); inventory.KindOf(err) !=
		inventory.KindInvalid {
		t.Error(err)
	}

	_, err := Make(t.Context(), bytes.NewReader(good), int64(len(good)), "riscv64", io.Discard, io.Discard)
	if inventory.KindOf(err) != inventory.KindRefused {
		t.Error(err)
	}
}

// TestVersion: another program or another layout is another version, which is fit to be part of a file name.
func TestVersion(t *testing.T) {
	t.Parallel()

	base := versionOf("1", []byte("a"))
	if len(base) != 16 || versionOf("1", []byte("a")) != base {
		t.Error(base)
	}

	for _, other := range []string{versionOf("1", []byte("b")), versionOf("2", []byte("a"))} {
		if other == base {
			t.Error("another one has the same version")
		}
	}

	if _, err := Version("riscv64"); inventory.KindOf(err) != inventory.KindRefused {
		t.Error(err)
	}
}
