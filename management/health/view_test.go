// SPDX-License-Identifier: Apache-2.0

package health

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
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

// TestVersionWarnings names the instances while their versions differ, and what waits for the newer one.
func TestVersionWarnings(t *testing.T) {
	t.Parallel()

	old := &state.Instance{Identity: cluster.Identity{ID: "1", Node: "b-1"}, Version: "v1.2", Schema: "3"}
	same := &state.Instance{Identity: cluster.Identity{ID: "2", Node: "c-1"}, Version: "v1.2", Schema: "3"}
	newer := &state.Instance{Identity: cluster.Identity{ID: "3", Node: "a-1"}, Version: "v1.3", Schema: "3"}
	step := &state.Instance{Identity: cluster.Identity{ID: "4", Node: "d-1"}, Version: "v1.4", Schema: "4"}

	for _, c := range []struct {
		instances []*state.Instance
		want      []string
	}{
		{nil, nil},
		{[]*state.Instance{old}, nil},
		{[]*state.Instance{old, same}, nil},
		{[]*state.Instance{old, same, newer}, []string{"the instances run different versions: a-1 v1.3, b-1 v1.2, " +
			"c-1 v1.2; what only the newer one has works once all have it"}},
		{[]*state.Instance{old, step}, []string{"the instances run different versions: b-1 v1.2, d-1 v1.4; what only " +
			"the newer one has works, and the stored data change to its version, once all have it"}},
	} {
		v := &state.View{}
		v.View = record.WithList(v.View, &state.Instances, c.instances...)

		if got := VersionWarnings(v); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
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
