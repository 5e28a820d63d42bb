// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/selector"
	"github.com/contiv/cluster/management/state"
)

// policyFloor is the time in ms for one evaluation over all nodes.
const policyFloor = 50

// policies measures one evaluation of a selector, and of all policies, over a simulated fleet
// in this process. The baseline is a loop over the same nodes that only compares labels. The
// shortest round counts on both sides: an evaluation waits for nothing, so the others measure
// what else the machine does.
func policies(_ context.Context, b *bench) (rows []row) {
	for _, r := range []struct {
		name, note string
		fresh      int // new nodes; the others are in service
		found      func(world policy.World) int
	}{
		{"selector", "rack in (…), zone!=z9, status=Unallocated, parsed each time", b.nodes, selected},
		{"policies, a tenth of the nodes new", "the brake, returns and four rules, two of them with roles",
			b.nodes / 10, decided},
		{"policies, all nodes new", "likewise", b.nodes, decided},
	} {
		world := policyFleet(b.nodes, r.fresh)
		evaluated := func(found func(policy.World) int) side {
			return func() float64 {
				return 1000 * timed(func() {
					if n := found(world); n == 0 {
						fail("an evaluation finds nothing")
					}
				})
			}
		}

		rows = append(rows, row{
			Name:      fmt.Sprintf("%s, %d nodes", r.name, b.nodes),
			Unit:      "ms",
			Against:   "a loop that compares two labels",
			Rounds:    15,
			Note:      r.note,
			summarize: slices.Min[[]float64],
			floor:     atMost(0, policyFloor, fmt.Sprintf("<= %d ms", policyFloor)),
			baseline:  evaluated(compared),
			product:   evaluated(r.found),
		})
	}

	return rows
}

func compared(world policy.World) (found int) {
	for _, n := range world.View.Nodes() {
		if n.Labels["rack"] == "r001" && n.Labels["zone"] == "z1" {
			found++
		}
	}

	return found
}

// policySelector is the selector of the row.
const policySelector = "rack in (r001,r002,r003,r004), zone!=z9, status=Unallocated"

func selected(world policy.World) (found int) {
	s := must(selector.Parse(policySelector, nil))

	for _, n := range world.View.Nodes() {
		if s.Matches(n) {
			found++
		}
	}

	return found
}

// decided evaluates each policy once, as the leader does in a round.
func decided(world policy.World) (decisions int) {
	policy.Brake(world)

	for _, p := range policy.All(world.Settings) {
		decisions += len(policy.Decide(p, world).Decisions)
	}

	return decisions
}

// policyFleet returns a fleet in 200 racks: three masters, of which one is lost, workers, and
// new nodes. Four rules are on.
func policyFleet(nodes, fresh int) policy.World {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	world := policy.World{
		Now:  now,
		View: &state.View{},
		Settings: policy.Settings{
			Settle: time.Minute, Jobs: 100, Rate: 100, Limit: 100, Groups: inventory.DefaultGroups(),
			Brake: policy.BrakeSettings{Share: 30, Minimum: 3, Within: 5 * time.Minute},
		},
	}

	all := make([]*inventory.Node, nodes)

	for i := range nodes {
		n, _ := inventory.NewNode(inventory.Observation{
			Observer: inventory.ObserverGossip, Label: "host", Serial: fmt.Sprintf("%06d", i), Addr: "192.0.2.1",
			Alive: true,
		}, nil, now.Add(-time.Duration(nodes-i)*time.Second-time.Hour))
		n.Labels = map[string]string{"rack": fmt.Sprintf("r%03d", i%200), "zone": fmt.Sprintf("z%d", i%7)}

		if i < nodes-fresh {
			n.Status, n.PrevStatus, n.Group = inventory.Allocated, inventory.Provisioning, inventory.GroupWorker
			if i < 3 {
				n.Group = inventory.GroupMaster
			}
		}

		all[i] = &n
	}

	world.View.SetNodes(all...)

	if fresh < nodes {
		loseMaster(world)
	}

	addRules(&world)

	return world
}

// loseMaster makes the first node silent for an hour.
func loseMaster(world policy.World) {
	n, _, _ := world.View.Nodes()[0].Observe(inventory.Observation{
		Observer: inventory.ObserverGossip, Label: "host", Serial: world.View.Nodes()[0].Serial, Addr: "192.0.2.1",
	}, world.Now.Add(-time.Hour))
	n = n.Contacted(inventory.Contact{Time: world.Now.Add(-time.Minute), Silent: true, Reason: "no route"})
	world.View.PutNode(&n)
}

// addRules adds the rules to the fleet, turned on.
func addRules(world *policy.World) {
	// Each rule has places for all nodes, so the first ones that match take most.
	master := policy.Role{Group: inventory.GroupMaster, Count: 3, Spread: "rack", ReplaceAfter: 30 * time.Minute}

	for i, r := range []policy.Rule{
		{Selector: "zone in (z0,z1,z2)", Roles: []policy.Role{
			master, {Group: inventory.GroupWorker, Count: len(world.View.Nodes())},
		}},
		{Selector: "zone=z3, rack!=r001", Group: inventory.GroupWorker, Maximum: len(world.View.Nodes())},
		{Selector: "zone in (z4)", Group: inventory.GroupWorker, Maximum: len(world.View.Nodes())},
		{Selector: "rack", Roles: []policy.Role{
			master, {Group: inventory.GroupWorker, Spread: "rack", Rest: true},
		}},
	} {
		r.Name, r.Match, r.Priority = fmt.Sprintf("rule%d", i), must(selector.Parse(r.Selector, nil)).Matches, -i
		r.Rate, r.Quiet, r.Failures = 100, 5*time.Minute, 3
		world.Settings.Commission = append(world.Settings.Commission, r)
		world.View.View = record.WithOne(
			world.View.View,
			&state.Memory,
			state.AutomationOf(world.View).Turn(r.Name, state.Switch{On: true, Since: world.Now}),
		)
	}
}
