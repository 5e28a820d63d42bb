// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// Status is the state of automation.
type Status struct {
	Brake     state.Brake
	Problem   string // the brake in words; empty: it is off
	Paused    *state.Pause
	Policies  []PolicyStatus
	Decisions []state.Decision // the newest first
}

// PolicyStatus is the state of one policy.
type PolicyStatus struct {
	Name      string
	About     string
	On        bool
	Switch    *state.Switch // the newest turn; nil: as it begins
	Paused    *state.Pause
	Halted    string // why it does not act now, in words; may be empty
	Pending   int    // nodes that it has not decided on
	Roles     []RoleState
	Decisions []state.Decision
}

// RoleState is the nodes of a role of a policy.
type RoleState = policy.RoleState

// Status returns the state of automation as the view shows it.
func (l *Leader) Status() Status {
	v, settings := l.State.View(), l.Settings()
	a := state.AutomationOf(v)

	s := Status{
		Brake: a.Brake, Problem: policy.Describe(a.Brake), Paused: pauseOf(a, state.AllPolicies),
		Decisions: newestFirst(a.Decisions),
	}

	w := l.world(v, settings)

	for _, p := range policy.All(settings.Settings) {
		of := slices.DeleteFunc(slices.Clone(a.Decisions), func(d state.Decision) bool { return d.Policy != p.Name() })
		status := PolicyStatus{
			Name: p.Name(), About: w.Describe(p), On: policy.IsOn(a, p),
			Paused: pauseOf(a, p.Name()), Halted: policy.Halted(a, p), Pending: p.Pending(w),
			Roles: rolesOf(p, w), Decisions: newestFirst(of),
		}

		if s, turned := a.Switches[p.Name()]; turned {
			status.Switch = &s
		}

		s.Policies = append(s.Policies, status)
	}

	return s
}

// rolesOf returns the roles that the policy fills, or nil.
func rolesOf(p policy.Policy, w policy.World) []RoleState {
	if c, ok := p.(policy.Commission); ok {
		return c.Roles(w)
	}

	return nil
}

// Warnings returns what an operator should know about the roles that policies fill.
func (l *Leader) Warnings() []string {
	return policy.Warnings(l.world(l.State.View(), l.Settings()))
}

func pauseOf(a state.Automation, name string) *state.Pause {
	if p, ok := a.Paused[name]; ok {
		return &p
	}

	return nil
}

func newestFirst(decisions []state.Decision) []state.Decision {
	out := slices.Clone(decisions)
	slices.Reverse(out)

	return out
}

// check refuses the name of a policy that does not exist. One that was removed may be paused, or
// have left a rollout.
func (l *Leader) check(name string) error {
	v := l.State.View()

	if _, paused := state.AutomationOf(v).Paused[name]; paused || name == state.AllPolicies ||
		policy.Named(l.Settings().Settings, name) != nil || rolls(v, name) {
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
func (l *Leader) Pause(ctx context.Context, c access.Caller, name, reason string) (Status, error) {
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
func (l *Leader) Resume(ctx context.Context, c access.Caller, name, reason string) (Status, error) {
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
func (l *Leader) Release(ctx context.Context, c access.Caller, reason string) (Status, error) {
	return l.control(ctx, c, "policies.release", state.AllPolicies, reason, func(a *state.Automation) error {
		if !a.Brake.On {
			return inventory.Errorf(inventory.KindRefused, "the brake is off: nothing holds automation").
				Do("list the policies").With(inventory.ListPolicies())
		}

		brake, d := policy.Release(a.Brake, time.Now(), c.Principal, reason)
		a.Brake = brake
		*a = a.With(*d)

		return nil
	})
}

// control carries out a change of an operator.
func (l *Leader) control(
	ctx context.Context, c access.Caller, action, name, reason string, change func(*state.Automation) error,
) (Status, error) {
	if err := l.check(name); err != nil {
		return Status{}, err
	}

	if err := inventory.CheckReason(reason); err != nil {
		return Status{}, err
	}

	record := access.Record{Action: action, Targets: []string{name}, Reason: reason}

	err := access.Audited(ctx, l.Audit, c, record, func(*access.Record) error {
		return state.RetryConflict(ctx, l.State, func(v *state.View) error {
			v, err := c.Check(ctx, l.State, v, nil)
			if err != nil {
				return err
			}

			a := state.AutomationOf(v)
			if err := change(&a); err != nil {
				return err
			}

			return l.remember(ctx, a)
		})
	})
	if err != nil {
		return Status{}, err
	}

	l.Kick()

	return l.Status(), nil
}
