// SPDX-License-Identifier: Apache-2.0

package health

import (
	"path/filepath"
	"slices"
	"strings"
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
	if got := NodeWarnings(nodes); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	if got := NodeWarnings(nodes[3:]); len(got) > 0 {
		t.Errorf("got %q without a problem", got)
	}
}

// TestFreeSpace: a data directory without room shows before jobs fail of it.
func TestFreeSpace(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	if err := freeSpace(dir, 1<<63); err == nil ||
		!strings.Contains(err.Error(), "left on the file system of "+dir) {
		t.Errorf("%v", err)
	}

	if err := freeSpace(filepath.Join(dir, "nope"), 1); err == nil {
		t.Error("there is room where nothing is")
	}
}
