// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestServesMeanwhile: a node under a job that leaves it in service is in service.
func TestServesMeanwhile(t *testing.T) {
	t.Parallel()

	node := func(v inventory.Verb, s inventory.State) api.Node {
		return api.Node{Name: "a-1", Status: inventory.Maintenance, State: s, Job: "7", Verb: v}
	}

	for _, row := range []struct {
		node api.Node
		want string
	}{
		{node(inventory.VerbApply, inventory.Discovered), "yes, meanwhile: job 7 holds it"},
		{node(inventory.VerbVerify, inventory.Discovered), "yes, meanwhile: job 7 holds it"},
		{node(inventory.VerbReapply, inventory.Discovered), "no: job 7 holds it"},
		{node(inventory.VerbApply, inventory.Disappeared), "no: job 7 holds it"},
	} {
		p := &Printer{}
		p.NodeExplanation(api.NodeExplanation{Node: row.node, Summary: "job 7 holds it"}, "clusterctl")

		if text := string(p.Bytes()); !strings.Contains(text, row.want) {
			t.Errorf("%s: %q is missing in\n%s", row.node.Verb, row.want, text)
		}
	}
}
