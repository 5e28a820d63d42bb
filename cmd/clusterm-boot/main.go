// SPDX-License-Identifier: Apache-2.0

// Command clusterm-boot is the init of the environment that machines boot to be inspected. It is small and static:
// clusterm has it inside, and puts it into an initrd with the modules of a kernel. Elsewhere it does nothing.
package main

import (
	"fmt"
	"os"

	"github.com/contiv/cluster/configuration/image/installer"
	"github.com/contiv/cluster/inventory/facts/collect"
)

func main() {
	// ghw warns of whatever a machine does not have.
	_ = os.Setenv("GHW_DISABLE_WARNINGS", "1")

	// It returns only outside of the environment.
	fmt.Fprintln(os.Stderr, "clusterm-boot:", installer.Init(collect.Collect))
	os.Exit(1)
}
