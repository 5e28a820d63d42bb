// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/configuration/image/environment"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/api"
)

// The files of a boot environment.
const (
	bootKernel = "vmlinuz"
	bootInitrd = "initrd"
)

// bootFiles writes the files of a boot environment into a folder.
func bootFiles(ctx context.Context, c *call) error {
	name, folder := c.args[0], c.args[1]

	i, err := c.manager.Image(ctx, name)
	if err != nil {
		return err
	}
	if i.Kind != api.ImageKernel || len(i.Files) != 1 {
		return exit.Errorf(exit.Refused, "the image %s is of the kind %s, and has no kernel to boot", name, i.Kind).
			Try("name an image of the kind kernel; to list the images: %s image list", c.self())
	}

	if _, err := environment.Version(i.Arch); err != nil {
		return err // before the package is received in vain
	}

	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // servers read it
		return bootNotWritten(err)
	}

	deb, err := os.CreateTemp(folder, ".package-*")
	if err != nil {
		return bootNotWritten(err)
	}
	defer func() {
		_ = deb.Close()
		_ = os.Remove(deb.Name())
	}()

	if err := c.receivePackage(ctx, name, i.Files[0], deb); err != nil {
		return err
	}

	c.say("unpacking the kernel")

	var made environment.Made

	err = replaceFiles(folder, []string{bootKernel, bootInitrd}, func(to []io.Writer) (err error) {
		made, err = environment.Make(ctx, deb, i.Files[0].Size, i.Arch, to[0], to[1])
		return err
	})
	if ctx.Err() != nil {
		return exit.Errorf(exit.Interrupted, "interrupted").Try("the same command begins anew")
	}
	if err != nil {
		return err
	}

	c.say("%s and %s in %s boot Linux %s with %d modules", bootKernel, bootInitrd, folder, made.Release, made.Modules)

	return nil
}

// receivePackage receives the only file of an image, and compares it with its digest.
func (c *call) receivePackage(ctx context.Context, name string, f api.ImageFile, to io.Writer) error {
	content, err := c.manager.ImageContent(ctx, name, f.Role, 0)
	if err != nil {
		return err
	}
	defer content.Close()

	sum, done := sha256.New(), c.progress("receiving the "+f.Role, 0, f.Size)
	_, err = io.Copy(io.MultiWriter(to, sum), io.LimitReader(counted{content, done}, f.Size+1))
	done.end()

	if err != nil {
		return exit.Errorf(exit.Failed, "the content of %s did not come whole: %v", name, err).
			Try("repeat the command")
	}

	if "sha256:"+hex.EncodeToString(sum.Sum(nil)) != f.Digest {
		return exit.Errorf(exit.Failed, "the content of %s is not what its digest says", name).
			Try("%s image verify %s finds out whether it is damaged", c.self(), name)
	}

	return nil
}

// replaceFiles writes files that everybody may read. Their names appear one right after the other, once all are whole:
// a kernel boots with the modules of no other one.
func replaceFiles(folder string, names []string, write func(to []io.Writer) error) (err error) {
	parts := make([]*os.File, len(names))
	to := make([]io.Writer, len(names))

	// After a success they are closed and renamed, and it does nothing.
	defer func() {
		for _, part := range parts {
			if part != nil {
				_ = part.Close()
				_ = os.Remove(part.Name())
			}
		}
	}()

	for i, name := range names {
		if parts[i], err = os.CreateTemp(folder, "."+name+".*"); err != nil {
			return bootNotWritten(err)
		}
		to[i] = parts[i]
	}

	if err := write(to); err != nil {
		if _, ours := errors.AsType[*inventory.Error](err); ours {
			return err
		}
		return bootNotWritten(err)
	}

	for _, part := range parts {
		if err := errors.Join(part.Chmod(0o644), part.Sync(), part.Close()); err != nil {
			return bootNotWritten(err)
		}
	}

	for i, name := range names {
		if err := localfile.Rename(parts[i].Name(), filepath.Join(folder, name)); err != nil {
			return bootNotWritten(err)
		}
	}

	return nil
}

func bootNotWritten(err error) error {
	return exit.Errorf(exit.Failed, "cannot write the boot files: %v", err).Try("check the folder and its free space")
}
