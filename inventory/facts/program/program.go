// SPDX-License-Identifier: Apache-2.0

// Package program has the program clusterm-facts for every architecture, as `make` builds it into clusterm.
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

// Archs are the architectures as uname -m prints them, with the words of Go for them.
var Archs = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// For returns the program for an architecture as uname -m prints it, compressed by gzip.
func For(arch string) ([]byte, error) {
	word, known := Archs[arch]
	if !known {
		return nil, inventory.Errorf(inventory.KindRefused,
			"there is no program that collects facts for the architecture %q", inventory.Shorten(arch, 40)).
			Do("x86_64 and aarch64 are supported")
	}

	b, err := built.ReadFile("built/clusterm-facts-" + word + ".gz")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, inventory.Errorf(inventory.KindRefused,
			"this clusterm was built without the program that collects facts").
			Do("build it with make, or install a package of it")
	}

	return b, err
}
