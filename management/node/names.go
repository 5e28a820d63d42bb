// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// names finds the nodes that agents announce. Most have the announced name. A registered machine keeps its own
// name: the agent is told by the address at its first report, and from then on by the label and serial number of that
// report.
type names struct {
	announced map[string]string   // nodes with another name than the announced one, by that
	waiting   map[string][]string // registered machines whose agent has not spoken, by address
}

func newReport(v *state.View) report {
	r := report{view: v, accepted: map[string]inventory.Observation{}}
	r.names = names{announced: map[string]string{}, waiting: map[string][]string{}}

	for name := range record.All(v, &state.Machines) {
		n, known := v.Lookup(name)

		switch {
		case !known:
		case n.OwnName() != "":
			r.names.announced[n.Announced()] = name
		case n.Label == "" && n.Addr != "":
			r.names.waiting[n.Addr] = append(r.names.waiting[n.Addr], name)
		}
	}

	return r
}

// of returns the name of the node that an observation is about, which may be new. It is an error if the
// observation fits several registered machines: none of them is taken for the host.
func (ns names) of(v *state.View, o inventory.Observation) (string, error) {
	announced := inventory.NodeName(o.Label, o.Serial)
	if name := ns.announced[announced]; name != "" {
		return name, nil
	}

	if n, known := v.Lookup(announced); known && n.Label != "" {
		return announced, nil
	}

	found := ns.waiting[o.Addr]

	switch {
	case len(found) > 1:
		slices.Sort(found)

		return "", inventory.Errorf(inventory.KindRefused,
			"the agent of %s speaks at %s, which is the address of several registered machines: %s",
			announced, o.Addr, strings.Join(found, ", ")).
			Do("correct their addresses, by another import").About(found...)
	case len(found) == 1:
		return found[0], nil
	}

	// The machine of that name is another one, unless nothing is known of its address.
	if n, known := v.Lookup(announced); known && n.Addr != "" {
		return "", inventory.Errorf(inventory.KindRefused,
			"%s is the name of a registered machine at %s, and an agent announces it at %s", announced, n.Addr, o.Addr).
			Do("correct the address, by another import, or give the host another label or serial").About(announced)
	}

	return announced, nil
}
