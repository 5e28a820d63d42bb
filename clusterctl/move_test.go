// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"fmt"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestJoin: nodes with ways of several lengths meet, and each verb of a step is one job.
func TestJoin(t *testing.T) {
	t.Parallel()

	const manage, provide, mend, commission = inventory.VerbManage, inventory.VerbProvide, inventory.VerbClear,
		inventory.VerbCommission

	nodes := []api.Node{{Name: "new"}, {Name: "there"}, {Name: "ready"}, {Name: "fenced"}, {Name: "new-2"}}

	got := fmt.Sprint(join(nodes, [][]inventory.Verb{
		{manage, provide, commission}, nil, {commission}, {mend, commission}, {manage, provide, commission},
	}))

	const want = "[{manage [new new-2]} {provide [new new-2]} {clear [fenced]} {commission [new ready fenced new-2]}]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	if legs := join(nodes[1:2], [][]inventory.Verb{nil}); len(legs) > 0 {
		t.Errorf("nothing is to be done, got %v", legs)
	}
}
