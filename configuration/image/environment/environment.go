// SPDX-License-Identifier: Apache-2.0

// Package environment makes the files of a boot environment: the kernel of a Debian package, and an initrd with its
// modules and the program that runs as init.
package environment

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/contiv/cluster/configuration/image/installer"
	"github.com/contiv/cluster/configuration/image/kernel"
	"github.com/contiv/cluster/configuration/image/program"
	"github.com/contiv/cluster/inventory"
)

// layout is part of each Version. Raise it with a change to what Make writes for the same package and program, such as
// other modules, so that files of a former clusterm are made anew.
const layout = "1"

// Made describes the files of an environment.
type Made struct {
	Release string `json:"release"` // of the kernel
	Modules int    `json:"modules"` // how many
}

// Version identifies what Make makes of a package for the architecture: hexadecimal digits that change with the program
// and with the layout of the initrd.
func Version(arch string) (string, error) {
	if of, ok := versions[arch]; ok {
		return of()
	}
	return version(arch)
}

// versions are computed once.
var versions = map[string]func() (string, error){
	"amd64": sync.OnceValues(func() (string, error) { return version("amd64") }),
	"arm64": sync.OnceValues(func() (string, error) { return version("arm64") }),
}

func version(arch string) (string, error) {
	packed, err := program.For(arch)
	if err != nil {
		return "", err
	}

	return versionOf(layout, packed), nil
}

func versionOf(layout string, packed []byte) string {
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, layout) // it never fails
	_, _ = sum.Write(packed)

	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// Make writes the kernel of a Debian package of that many bytes, and the initrd for it. A package for another
// architecture, or one without a kernel, is KindInvalid. It takes up to 20 seconds of one processor, and ends soon
// after ctx. After an error, what was written is of no use.
func Make(ctx context.Context, deb io.ReaderAt, size int64, arch string, vmlinuz, initrd io.Writer) (Made, error) {
	packed, err := program.For(arch)
	if err != nil {
		return Made{}, err
	}

	return makeWith(ctx, packed, deb, size, arch, vmlinuz, initrd)
}

// makeWith makes the files with a program, which is compressed by gzip.
func makeWith(
	ctx context.Context, packed []byte, deb io.ReaderAt, size int64, arch string, vmlinuz, initrd io.Writer,
) (Made, error) {
	made, err := write(packed, readerAt{ctx, deb}, size, arch, vmlinuz, initrd)
	if ctx.Err() != nil {
		return Made{}, context.Cause(ctx)
	}

	return made, err
}

func write(packed []byte, deb io.ReaderAt, size int64, arch string, vmlinuz, initrd io.Writer) (Made, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return Made{}, err
	}

	init, err := io.ReadAll(unpacked)
	if err != nil {
		return Made{}, err
	}

	k, err := kernel.Unpack(deb, size)
	if err != nil {
		return Made{}, err
	}
	if k.Arch != arch {
		return Made{}, inventory.Errorf(inventory.KindInvalid, "the package is for %s, and the image for %s",
			inventory.Shorten(k.Arch, 40), arch).Do("add the package again, as an image for its architecture")
	}

	var first bytes.Buffer
	if err := kernel.WriteProgram(&first, init); err != nil {
		return Made{}, err
	}

	if _, err := vmlinuz.Write(k.Image); err != nil {
		return Made{}, err
	}

	modules, sink := io.Pipe()
	written := make(chan struct{})

	go func() {
		defer close(written)
		_ = sink.CloseWithError(k.WriteModules(sink))
	}()

	err = kernel.Join(initrd, &first, modules)
	_ = modules.Close()
	<-written

	return Made{Release: k.Release, Modules: len(k.Index.Modules)}, err
}

// WithOrder returns the archive with an order, to stand before the initrd that Make writes. An order that the program
// would refuse is KindInvalid.
func WithOrder(o installer.Order) ([]byte, error) {
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if _, err := installer.Decode(order); err != nil {
		return nil, err
	}

	// Padded, so that another part of an initrd may follow.
	var b bytes.Buffer

	archive := kernel.NewArchive(&b)
	err = errors.Join(archive.Add(installer.OrderFile, 0o600, order), archive.Close())

	return b.Bytes(), err
}

// readerAt fails once the context ends.
type readerAt struct {
	ctx context.Context //nolint:containedctx // it is what it is for
	io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (r readerAt) ReadAt(p []byte, at int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.ReaderAt.ReadAt(p, at)
}
