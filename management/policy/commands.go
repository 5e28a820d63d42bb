// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// Status returns the state of automation as the view shows it.
func (l *Loop) Status() api.Policies {
	v, settings := l.State.View(), l.Settings()
	a := state.AutomationOf(v)

	s := api.Policies{
		Brake: api.Brake{
			Engaged: a.Brake.On, Message: Describe(a.Brake), Since: a.Brake.Since, Until: a.Brake.Until,
			Lost: a.Brake.Lost, Vanished: a.Brake.Vanish, Visible: a.Brake.Visible,
			Released: a.Brake.Released, ReleasedBy: a.Brake.ReleasedBy, Reason: a.Brake.Reason,
		},
		Paused: pauseOf(a, state.AllPolicies), Decisions: newestFirst(a.Decisions),
	}

	w := l.world(v, settings)

	for _, p := range All(settings) {
		of := slices.DeleteFunc(slices.Clone(a.Decisions), func(d state.Decision) bool { return d.Policy != p.Name() })
		status := api.Policy{
			Name: p.Name(), About: p.About(w), On: IsOn(a, p),
			Paused: pauseOf(a, p.Name()), Halted: Halted(a, p), Pending: Pending(p.Judge(w)),
			Roles: rolesOf(p, w), Decisions: newestFirst(of),
		}

		if s, turned := a.Switches[p.Name()]; turned {
			status.Turned = &api.PolicyTurn{On: s.On, Since: s.Since, Actor: s.Actor, Reason: s.Reason}
		}

		s.Policies = append(s.Policies, status)
	}

	return s
}

// rolesOf returns the roles that the policy fills, or nil.
func rolesOf(p Policy, w World) []api.PolicyRole {
	if c, ok := p.(Commission); ok {
		return c.Roles(w)
	}
	return nil
}

// Warnings returns the warnings about automation that is stopped or paused, and about the roles that policies fill.
func (l *Loop) Warnings() (warnings []string) {
	v := l.State.View()
	a := state.AutomationOf(v)

	if text := Describe(a.Brake); text != "" {
		warnings = append(warnings, text+": clusterctl policy release")
	}

	if text := pausedWarning(a); text != "" {
		warnings = append(warnings, text)
	}

	return append(warnings, Warnings(l.world(v, l.Settings()))...)
}

// pausedWarning returns the warning about automation that is paused as a whole, or "".
func pausedWarning(a state.Automation) string {
	p, paused := a.Paused[state.AllPolicies]
	if !paused {
		return ""
	}
	since := stamp(p.Since)
	if p.Actor == access.Manager {
		return fmt.Sprintf(
			"all policies and rollouts are paused since %s: %s; compare the nodes with their hosts, then: "+
				"clusterctl policy resume all, and clusterctl rollout resume ID for each of them that is to go on",
			since,
			p.Reason,
		)
	}

	text := fmt.Sprintf("all policies are paused since %s by %s", since, p.Actor)
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text + "; to go on: clusterctl resume --all"
}

func pauseOf(a state.Automation, name string) *api.PolicyPause {
	if p, ok := a.Paused[name]; ok {
		return (*api.PolicyPause)(&p)
	}
	return nil
}

func newestFirst(decisions []state.Decision) []api.Decision {
	out := make([]api.Decision, 0, len(decisions))
	for _, d := range slices.Backward(decisions) {
		out = append(out, Shown(d))
	}

	return out
}

// Shown returns a decision as the API shows it.
func Shown(d state.Decision) api.Decision {
	return api.Decision{
		ID: d.ID, Time: d.Time, Policy: d.Policy, Node: d.Node, Nodes: d.Nodes, Action: string(d.Action),
		Group: d.Group, Replaces: d.Replaces, Case: d.Case, Evidence: append([]string{}, d.Evidence...),
		Prevent: d.Prevent, Phase: string(d.Phase), Job: d.Job, Result: d.Result, From: d.From, Commit: d.Commit,
		Rollout: d.Rollout,
	}
}

// check refuses the name of a policy that does not exist. One that was removed may be paused, or
// have left a rollout.
func (l *Loop) check(name string) error {
	v := l.State.View()

	if _, paused := state.AutomationOf(v).Paused[name]; paused || name == state.AllPolicies ||
		Named(l.Settings(), name) != nil || rolls(v, name) {
		return nil
	}

	return errNoPolicy(name)
}

// rolls reports whether a rollout of the policy of that name has not ended.
func rolls(v *state.View, name string) bool {
	return slices.ContainsFunc(record.List(v, &rollout.Kind), func(r *rollout.Record) bool {
		return r.Actor == state.PolicyPrincipal(name) && !r.Status.Ended()
	})
}

func errNoPolicy(name string) error {
	return inventory.Errorf(inventory.KindNotFound, "there is no policy %q", inventory.Shorten(name, 100)).
		Do("list the policies").With(inventory.ListPolicies())
}

// Pause stops a policy, or state.AllPolicies, until Resume. Decisions that
// have not begun are held back as well. A further pause with a reason replaces
// the reason and its actor; without one it changes nothing.
func (l *Loop) Pause(ctx context.Context, c access.Caller, name, reason string) (api.Policies, error) {
	return l.control(ctx, c, "policies.pause", name, reason, func(a *state.Automation) error {
		before, paused := a.Paused[name]
		if paused && (reason == "" || reason == before.Reason) {
			return nil
		}

		since := time.Now()
		if paused {
			since = before.Since
		}

		// The map is shared with the view, and others read it at the same time.
		a.Paused = maps.Clone(a.Paused)
		if a.Paused == nil {
			a.Paused = map[string]state.Pause{}
		}

		a.Paused[name] = state.Pause{Since: since, Actor: c.Principal, Reason: reason}

		return nil
	})
}

// Resume ends a pause. A policy that is not paused stays as it is.
func (l *Loop) Resume(ctx context.Context, c access.Caller, name, reason string) (api.Policies, error) {
	return l.control(ctx, c, "policies.resume", name, reason, func(a *state.Automation) error {
		if _, paused := a.Paused[name]; !paused {
			return nil
		}

		a.Paused = maps.Clone(a.Paused)
		delete(a.Paused, name)
		a.Resumed = state.Pause{Since: time.Now(), Actor: c.Principal, Reason: reason}

		return nil
	})
}

// Release releases the brake. It is KindRefused while the brake is off.
func (l *Loop) Release(ctx context.Context, c access.Caller, reason string) (api.Policies, error) {
	return l.control(ctx, c, "policies.release", state.AllPolicies, reason, func(a *state.Automation) error {
		if !a.Brake.On {
			return inventory.Errorf(inventory.KindRefused, "the brake is off: nothing holds automation").
				Do("list the policies").With(inventory.ListPolicies())
		}

		brake, d := Release(a.Brake, time.Now(), c.Principal, reason)
		a.Brake = brake
		*a = a.With(*d)

		return nil
	})
}

// control carries out a change of an operator.
func (l *Loop) control(
	ctx context.Context, c access.Caller, action, name, reason string, change func(*state.Automation) error,
) (api.Policies, error) {
	if err := l.check(name); err != nil {
		return api.Policies{}, err
	}

	if err := inventory.CheckReason(reason); err != nil {
		return api.Policies{}, err
	}

	record := access.Record{Action: action, Targets: []string{name}, Reason: reason}

	err := access.Audited(ctx, l.Audit, c, record, func(ctx context.Context, _ *access.Record) error {
		return l.change(ctx, c, func(_ *state.View, a state.Automation) (*state.Automation, error) {
			return &a, change(&a)
		})
	})
	if err != nil {
		return api.Policies{}, err
	}

	l.Kick()

	return l.Status(), nil
}

// Enable turns a policy on. One that is for every node needs all. Failures from before
// count no more.
func (l *Loop) Enable(
	ctx context.Context, c access.Caller, name string, all bool, reason string,
) (api.Policies, error) {
	p := Named(l.Settings(), name)
	if p == nil {
		return api.Policies{}, errNoPolicy(name)
	}

	if rule, ok := p.(Selecting); ok {
		_, selector, every := rule.Selects()

		switch {
		case all && !every:
			return api.Policies{}, inventory.Errorf(inventory.KindInvalid,
				"policy %s is not for every node: it is for %s", name, selector).
				Do("leave all out")
		case every && !all:
			return api.Policies{}, inventory.Errorf(inventory.KindRefused, "policy %s is for every node", name).
				Do("test what it would do, and then turn it on for all").
				With(inventory.TestPolicy(name), inventory.EnableForAll(name))
		}
	}

	return l.control(ctx, c, "policies.enable", name, reason, func(a *state.Automation) error {
		if !IsOn(*a, p) {
			*a = a.Turn(name, Scoped(turned(c, true, reason), p))
		}
		return nil
	})
}

// Disable turns a policy off. It works for a removed policy too, as long as a rollout of it is open. A
// decision that has not begun is dropped once the policy is turned on again, if it no longer holds.
func (l *Loop) Disable(ctx context.Context, c access.Caller, name, reason string) (api.Policies, error) {
	p := Named(l.Settings(), name)
	if p == nil && !rolls(l.State.View(), name) {
		return api.Policies{}, errNoPolicy(name)
	}

	return l.control(ctx, c, "policies.disable", name, reason, func(a *state.Automation) error {
		// A switch for other nodes is on, and the policy is off.
		if a.Switches[name].On || p != nil && IsOn(*a, p) {
			*a = a.Turn(name, Scoped(turned(c, false, reason), p))
		}
		return nil
	})
}

func turned(c access.Caller, on bool, reason string) state.Switch {
	return state.Switch{On: on, Since: time.Now(), Actor: c.Principal, Reason: reason}
}

// MaxTested is the number of nodes of a given inventory.
const MaxTested = 10_000

// Test returns the actions that a policy would take with the inventory of today, or with the given nodes.
// It changes nothing.
func (l *Loop) Test(name string, given []inventory.Node) (api.PolicyTested, error) {
	settings := l.Settings()

	p := Named(settings, name)
	if p == nil {
		return api.PolicyTested{}, errNoPolicy(name)
	}

	v := *l.State.View()
	a := state.AutomationOf(v)

	out := api.PolicyTested{Policy: name, On: IsOn(a, p), Halted: Halted(a, p), Outlooks: []api.PolicyOutlook{}}

	now, start := l.start()
	a.Brake, a.Paused = state.Brake{}, nil

	if !out.On {
		a = a.Turn(name, Scoped(state.Switch{On: true, Since: now}, p))
	}

	if given != nil {
		nodes, err := givenNodes(given, now)
		if err != nil {
			return api.PolicyTested{}, err
		}

		// Jobs, rollouts and decisions are about the nodes of the store, and not about the given ones.
		v.SetNodes(nodes...)
		v.SetJobs()
		a.Decisions = nil
		v.View = record.WithList(v.View, &rollout.Kind)
	}

	out.Nodes = len(v.Nodes())

	w := World{View: withMemory(&v, a), Settings: settings, Now: now}
	if given == nil {
		w.Start = start
	}
	out.About, out.Roles = p.About(w), rolesOf(p, w)

	for _, j := range p.Judge(w) {
		if j.Node != nil && j.Reason != "" {
			out.Outlooks = append(out.Outlooks, api.PolicyOutlook{
				Node: j.Node.Name, Action: string(j.Action), Group: j.Group, Now: j.Stage == StageAct,
				Message: j.Reason, Until: j.Until,
			})
		}
	}

	return out, nil
}

// longAgo is since when a node of a given inventory is gone that does not say so.
var longAgo = time.Unix(0, 0)

// givenNodes returns the nodes of a given inventory by name. It has no answers of ssh, so a Disappeared node
// counts as unreachable by ssh.
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
