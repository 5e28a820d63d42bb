// SPDX-License-Identifier: Apache-2.0

// Command clusterm-facts prints the facts of the machine that it runs on, as JSON. It is small and static: clusterm has
// it inside, sends it to machines over ssh, and removes it afterwards. It changes nothing there.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/contiv/cluster/inventory/facts/collect"
)

// timeout bounds the collection.
const timeout = 40 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()

	// ghw warns of whatever a machine does not have.
	_ = os.Setenv("GHW_DISABLE_WARNINGS", "1")

	if err := json.NewEncoder(os.Stdout).Encode(collect.Collect(ctx, "/")); err != nil {
		fmt.Fprintln(os.Stderr, "clusterm-facts:", err)
		os.Exit(1)
	}
}
