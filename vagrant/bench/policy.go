// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	jobs "github.com/contiv/cluster/management/job"
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
func policies(ctx context.Context, b *bench) error {
	for _, row := range []struct {
		name, note string
		fresh      int // new nodes; the others are in service
		evaluate   func(world policy.World) error
	}{
		{"selector", "rack in (…), zone!=z9, status=Unallocated, parsed each time", b.nodes, selects},
		{"policies, a tenth of the nodes new", "the brake, returns and four rules, two of them with roles",
			b.nodes / 10, decides},
		{"policies, all nodes new", "likewise", b.nodes, decides},
	} {
		world, err := policyFleet(b.nodes, row.fresh)
		if err != nil {
			return err
		}

		err = b.compare(ctx, comparison{
			name:      fmt.Sprintf("%s, %d nodes", row.name, b.nodes),
			unit:      "ms",
			against:   "a loop that compares two labels",
			rounds:    15,
			summarize: slices.Min[[]float64],
			floor:     atMost(0, policyFloor, fmt.Sprintf("<= %d ms", policyFloor)),
			note:      row.note,
			baseline:  func(context.Context) (float64, error) { return millis(world, compares) },
			product:   func(context.Context) (float64, error) { return millis(world, row.evaluate) },
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// millis returns the duration of an evaluation in ms.
func millis(world policy.World, evaluate func(policy.World) error) (float64, error) {
	begun := time.Now()
	err := evaluate(world)

	return float64(time.Since(begun).Microseconds()) / 1000, err
}

func compares(world policy.World) error {
	found := 0

	for _, n := range world.View.Nodes {
		if n.Labels["rack"] == "r001" && n.Labels["zone"] == "z1" {
			found++
		}
	}

	if found == len(world.View.Nodes) {
		return errors.New("every node is in one rack")
	}

	return nil
}

// policySelector is the selector of the row.
const policySelector = "rack in (r001,r002,r003,r004), zone!=z9, status=Unallocated"

func selects(world policy.World) error {
	s, err := selector.Parse(policySelector, nil)
	if err != nil {
		return err
	}

	found := 0

	for _, n := range world.View.Nodes {
		if s.Matches(n) {
			found++
		}
	}

	if found == 0 {
		return errors.New("the selector matches nothing")
	}

	return nil
}

// decides evaluates each policy once, as the leader does in a round.
func decides(world policy.World) error {
	policy.Brake(world)

	decisions := 0
	for _, p := range policy.All(world.Settings) {
		decisions += len(policy.Decide(p, world).Decisions)
	}

	if decisions == 0 {
		return errors.New("the policies decide nothing")
	}

	return nil
}

// policyFleet returns a fleet in 200 racks: three masters, of which one is lost, workers, and
// new nodes. Four rules are on.
func policyFleet(nodes, fresh int) (policy.World, error) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	world := policy.World{
		Now:  now,
		View: &state.View{Snapshot: jobs.Snapshot{Nodes: make([]*inventory.Node, nodes)}},
		Settings: policy.Settings{
			Settle: time.Minute, Jobs: 100, Rate: 100, Limit: 100, Groups: inventory.DefaultGroups(),
			Brake: policy.BrakeSettings{Share: 30, Minimum: 3, Within: 5 * time.Minute},
		},
	}

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

		world.View.Nodes[i] = &n
	}

	if fresh < nodes {
		loseMaster(world)
	}

	return world, addRules(&world)
}

// loseMaster makes the first node silent for an hour.
func loseMaster(world policy.World) {
	n, _, _ := world.View.Nodes[0].Observe(inventory.Observation{
		Observer: inventory.ObserverGossip, Label: "host", Serial: world.View.Nodes[0].Serial, Addr: "192.0.2.1",
	}, world.Now.Add(-time.Hour))
	n = n.Contacted(inventory.Contact{Time: world.Now.Add(-time.Minute), Silent: true, Reason: "no route"})
	world.View.Nodes[0] = &n
}

// addRules adds the rules to the fleet, turned on.
func addRules(world *policy.World) error {
	// Each rule has places for all nodes, so the first ones that match take most.
	master := policy.Role{Group: inventory.GroupMaster, Count: 3, Spread: "rack", ReplaceAfter: 30 * time.Minute}

	for i, r := range []policy.Rule{
		{Selector: "zone in (z0,z1,z2)", Roles: []policy.Role{
			master, {Group: inventory.GroupWorker, Count: len(world.View.Nodes)},
		}},
		{Selector: "zone=z3, rack!=r001", Group: inventory.GroupWorker, Maximum: len(world.View.Nodes)},
		{Selector: "zone in (z4)", Group: inventory.GroupWorker, Maximum: len(world.View.Nodes)},
		{Selector: "rack", Roles: []policy.Role{
			master, {Group: inventory.GroupWorker, Spread: "rack", Rest: true},
		}},
	} {
		s, err := selector.Parse(r.Selector, nil)
		if err != nil {
			return err
		}

		r.Name, r.Match, r.Priority = fmt.Sprintf("rule%d", i), s.Matches, -i
		r.Rate, r.Quiet, r.Failures = 100, 5*time.Minute, 3
		world.Settings.Commission = append(world.Settings.Commission, r)
		world.View.View = record.WithOne(world.View.View, &state.Memory, state.AutomationOf(world.View).Turn(r.Name, state.Switch{On: true, Since: world.Now}))
	}

	return nil
}
