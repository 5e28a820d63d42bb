// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"testing"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/fleet"
)

// BenchmarkFleet reads the export of 10 000 nodes and compares it with the manager, where
// every node is in another group.
func BenchmarkFleet(b *testing.B) {
	s := manager(b, "m-1 m Allocated Discovered")
	for i := range 10_000 {
		name := fmt.Sprintf("n%05d-1", i)
		s.Nodes = append(s.Nodes, &inventory.Node{
			Name: name, Status: inventory.Allocated, State: inventory.Discovered, Group: inventory.GroupWorker,
			Labels: map[string]string{"rack": fmt.Sprint("r", i%40), "zone": "z"},
		})
		s.Vars["node/"+name] = configuration.Vars{"weight": int64(i), "list": []any{"a", int64(1)}}
	}

	data, err := print.Answer{Wire: fleet.Export(s)}.Render(print.FormatYAML, print.Style{})
	errtest.None(b, err)

	for i := range s.Nodes {
		s.Nodes[i].Group = inventory.GroupMaster
	}

	b.SetBytes(int64(len(data)))

	for b.Loop() {
		d, err := fleet.Read(api.FleetFile{Name: "f", Text: string(data)})
		errtest.None(b, err)
		plan, err := fleet.Compare(d, s, fleet.Options{Prune: true})
		errtest.None(b, err)
		steps := plan.Steps
		if len(plan.Jobs) != 1 || len(plan.Jobs[0].Nodes) != 10_000 || len(steps) == 0 {
			b.Fatal(len(plan.Jobs), plan.Obstacles)
		}
	}
}
