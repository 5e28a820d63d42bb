// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// Enable turns a policy on. One that is for every node needs all. Failures from before
// count no more.
func (l *Leader) Enable(ctx context.Context, c access.Caller, name string, all bool, reason string) (Status, error) {
	p := policy.Named(l.Settings().Settings, name)
	if p == nil {
		return Status{}, errNoPolicy(name)
	}

	if rule, ok := p.(policy.Selecting); ok {
		selector, every := rule.Scope()

		switch {
		case all && !every:
			return Status{}, inventory.Errorf(inventory.KindInvalid, "policy %s is not for every node: it is for %s",
				name, selector).Do("leave all out")
		case every && !all:
			return Status{}, inventory.Errorf(inventory.KindRefused, "policy %s is for every node", name).
				Do("test what it would do, and then turn it on for all").
				With(inventory.TestPolicy(name), inventory.EnableForAll(name))
		}
	}

	return l.enable(ctx, c, p, reason)
}

// Disable turns a policy off, also one that was removed from the settings and has left a rollout.
// A decision that has not begun is dropped once the policy is turned on again and the decision no
// longer holds.
func (l *Leader) Disable(ctx context.Context, c access.Caller, name, reason string) (Status, error) {
	p := policy.Named(l.Settings().Settings, name)
	if p == nil && !rolls(l.State.View(), name) {
		return Status{}, errNoPolicy(name)
	}

	return l.control(ctx, c, "policies.disable", name, reason, func(a *state.Automation) error {
		// A switch for other nodes is on, and the policy is off.
		if a.Switches[name].On || p != nil && policy.IsOn(*a, p) {
			*a = a.Turn(name, policy.Scoped(turned(c, false, reason), p))
		}

		return nil
	})
}

// enable turns a policy on. One that is on stays as it is.
func (l *Leader) enable(ctx context.Context, c access.Caller, p policy.Policy, reason string) (Status, error) {
	return l.control(ctx, c, "policies.enable", p.Name(), reason, func(a *state.Automation) error {
		if !policy.IsOn(*a, p) {
			*a = a.Turn(p.Name(), policy.Scoped(turned(c, true, reason), p))
		}

		return nil
	})
}

func turned(c access.Caller, on bool, reason string) state.Switch {
	return state.Switch{On: on, Since: time.Now(), Actor: c.Principal, Reason: reason}
}

// Tested is the actions that a policy would take if it were turned on and nothing held it.
type Tested struct {
	Policy   string
	About    string
	On       bool
	Halted   string // why it does not act now, in words; may be empty
	Nodes    int    // of the inventory
	Outlooks []policy.Outlook
	Roles    []RoleState
}

// MaxTested is the number of nodes of a given inventory.
const MaxTested = 10_000

// Test returns the actions that a policy would take with the inventory of today, or with the given nodes.
// It changes nothing.
func (l *Leader) Test(name string, given []inventory.Node) (Tested, error) {
	settings := l.Settings().Settings

	p := policy.Named(settings, name)
	if p == nil {
		return Tested{}, errNoPolicy(name)
	}

	v := *l.State.View()
	a := state.AutomationOf(v)

	out := Tested{
		Policy: name, On: policy.IsOn(a, p), Halted: policy.Halted(a, p),
	}

	now, start := l.start()
	a.Brake, a.Paused = state.Brake{}, nil

	if !out.On {
		a = a.Turn(name, policy.Scoped(state.Switch{On: true, Since: now}, p))
	}

	if given != nil {
		nodes, err := givenNodes(given, now)
		if err != nil {
			return Tested{}, err
		}

		// Jobs, rollouts and decisions are about the nodes of the store, and not about the given ones.
		v.Nodes, v.Jobs, a.Decisions = nodes, nil, nil
		v.View = record.WithList(v.View, &rollout.Kind)
	}

	v.View = record.WithOne(v.View, &state.Memory, a)
	out.Nodes = len(v.Nodes)

	w := policy.World{View: &v, Settings: settings, Now: now}
	if given == nil {
		w.Start = start
	}

	out.About = w.Describe(p)
	out.Outlooks, out.Roles = p.Test(w), rolesOf(p, w)

	return out, nil
}

// longAgo is since when a node of a given inventory is gone that does not say so.
var longAgo = time.Unix(0, 0)

// givenNodes returns the nodes of a given inventory by name. It has no answers of ssh, so a
// node that is Disappeared counts as one that ssh does not reach either.
func givenNodes(given []inventory.Node, now time.Time) ([]*inventory.Node, error) {
	if len(given) > MaxTested {
		return nil, inventory.Errorf(inventory.KindInvalid, "the inventory has %d nodes; the limit is %d",
			len(given), MaxTested)
	}

	nodes := make([]*inventory.Node, len(given))
	for i := range given {
		n := given[i]
		if n.State == inventory.Disappeared {
			n.Presence.Since = longAgo
			if !n.Updated.IsZero() {
				n.Presence.Since = n.Updated
			}

			n.Presence.Away = inventory.Contact{Time: now, Silent: true, Reason: "the inventory is given"}
		}

		nodes[i] = &n
	}

	slices.SortFunc(nodes, func(a, b *inventory.Node) int { return strings.Compare(a.Name, b.Name) })

	for i := 1; i < len(nodes); i++ {
		if nodes[i].Name == nodes[i-1].Name {
			return nil, inventory.Errorf(inventory.KindInvalid, "the inventory has the node %s twice", nodes[i].Name)
		}
	}

	return nodes, nil
}
