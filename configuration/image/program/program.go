// SPDX-License-Identifier: Apache-2.0

// Package program has the program clusterm-boot for every architecture, as `make` builds it into clusterm.
package program

import (
	"embed"
	"errors"
	"io/fs"

	"github.com/contiv/cluster/inventory"
)

// built has what `make facts` has built. Its README.md is always there, so that `go build` needs nothing else.
//
//go:embed built
var built embed.FS

// For returns the program for the architecture of an image, amd64 or arm64, compressed by gzip.
func For(arch string) ([]byte, error) {
	if arch != "amd64" && arch != "arm64" {
		return nil, inventory.Errorf(inventory.KindRefused,
			"there is no boot environment for the architecture %q", inventory.Shorten(arch, 40)).
			Do("amd64 and arm64 are supported")
	}

	b, err := built.ReadFile("built/clusterm-boot-" + arch + ".gz")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, inventory.Errorf(inventory.KindRefused,
			"this clusterm was built without the program of the boot environment").
			Do("build it with make, or install a package of it")
	}

	return b, err
}
