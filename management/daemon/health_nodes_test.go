// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestHealthMentionsNodes: health names the nodes in service that are gone, and those that differ,
// with the command that lists them.
func TestHealthMentionsNodes(t *testing.T) {
	t.Parallel()

	nodes := []*inventory.Node{
		{Status: inventory.Allocated, State: inventory.Disappeared},
		{Status: inventory.Unallocated, State: inventory.Disappeared},
		{
			Status: inventory.Allocated, State: inventory.Discovered,
			Verification: &inventory.Verdict{Result: inventory.Drifted},
		},
		{
			Status: inventory.Allocated, State: inventory.Discovered,
			Verification: &inventory.Verdict{Result: inventory.Clean},
		},
	}

	want := []string{
		"1 node in service has disappeared: clusterctl nodes get -l state=Disappeared",
		"1 node differs from the configuration: clusterctl nodes get -l verification=drifted",
	}
	if got := nodeWarnings(nodes); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	if got := nodeWarnings(nodes[3:]); len(got) > 0 {
		t.Errorf("got %q without a problem", got)
	}
}
