// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"slices"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/evidence"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/record"
)

// TestEvidenceOf: a machine that was registered twice, by its BMC and by its address, is known as one after an
// inspection. What a host makes up, or what no BMC has set, says nothing.
func TestEvidenceOf(t *testing.T) {
	t.Parallel()

	v := &View{}
	v.View = record.Set(v.View, &Machines, "r1", &Machine{Machine: machine.Machine{
		Node: "r1", BMC: &machine.BMC{Driver: machine.Redfish, Address: "10.9.0.5", System: "/redfish/v1/Systems/1"},
		Ports: []machine.Port{{MAC: "52:54:00:aa:00:01"}},
	}})

	registered := EvidenceOf(v, &inventory.Node{Name: "r1"})

	inspected := func(bmc string, macs ...string) evidence.Set {
		f := facts.Facts{BMC: facts.BMCPort{Address: bmc}, System: facts.System{Serial: "To Be Filled By O.E.M."}}
		for _, mac := range macs {
			f.Interfaces = append(f.Interfaces, facts.Interface{MAC: mac})
		}

		return EvidenceOf(v, &inventory.Node{
			Name: "h1", Addr: "10.0.0.1", Hardware: HardwareOf(f, facts.Inspection{Number: 1}),
		})
	}

	for _, c := range []struct {
		found evidence.Set
		score int
	}{
		{inspected("10.9.0.5", "52:54:00:aa:00:02", "52:54:00:aa:00:01"), 80},
		{inspected("10.9.0.5", "52:54:00:aa:00:02"), 30},
		{inspected("0.0.0.0", "52:54:00:aa:00:01"), 40},
		{inspected("169.254.0.5", "evil\ntext", ""), 0},
	} {
		if v := evidence.Compare(registered, c.found); v.Score != c.score {
			t.Errorf("%+v: %s, want %d", c.found, v, c.score)
		}
	}

	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("52:54:00:aa:01:%02x", i))
	}

	if got := inspected("", many...).MACs; !slices.Equal(got, many[:inventory.MaxMACs]) {
		t.Errorf("%d MACs are kept: %q", len(got), got)
	}
}
