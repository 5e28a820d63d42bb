// SPDX-License-Identifier: Apache-2.0

package program_test

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"io"
	"os"
	"testing"

	"github.com/contiv/cluster/configuration/image/program"
	"github.com/contiv/cluster/inventory"
)

// TestFor expects a static program for each architecture: an initrd has no libraries.
func TestFor(t *testing.T) {
	t.Parallel()

	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		if _, err := os.Stat("built/clusterm-boot-" + arch + ".gz"); err != nil {
			t.Skip("the program is not built: run `make facts`")
		}

		packed, err := program.For(arch)
		if err != nil {
			t.Fatal(err)
		}

		unpacked, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}

		content, err := io.ReadAll(unpacked)
		if err != nil {
			t.Fatal(err)
		}

		f, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}

		libraries, err := f.ImportedLibraries()
		if f.Machine != machine || len(libraries) > 0 || f.Section(".interp") != nil {
			t.Errorf("%s: the program is for %s, and needs the libraries %q (%v)", arch, f.Machine, libraries, err)
		}
	}
}

func TestForRefuses(t *testing.T) {
	t.Parallel()

	for _, arch := range []string{"", "x86_64", "riscv64", "../README.md"} {
		if _, err := program.For(arch); inventory.KindOf(err) != inventory.KindRefused {
			t.Errorf("%q: %v", arch, err)
		}
	}
}
