// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// Selecting is a policy for the nodes of a selector, or for every node.
type Selecting interface {
	// Selects returns the part of the settings that has the policy, and its nodes.
	Selects() (kind, selector string, all bool)
}

// Named returns the policy of that name under the settings, or nil.
func Named(s Settings, name string) Policy {
	for _, p := range All(s) {
		if p.Name() == name {
			return p
		}
	}

	return nil
}

// Scoped returns the switch with the kind and the nodes of the policy of today. A policy without
// a selector has none.
func Scoped(s state.Switch, p Policy) state.Switch {
	if rule, ok := p.(Selecting); ok {
		s.Kind, s.Selector, s.All = rule.Selects()
	}
	return s
}

// IsOn reports whether the policy is turned on. A policy that changes hosts which nobody
// has used yet is off until an operator turns it on. One that is of another kind by now, or for
// other nodes, is off until that happens again.
func IsOn(a state.Automation, p Policy) bool {
	if s, turned := a.Switches[p.Name()]; turned {
		return s.On && !moved(s, p)
	}
	return p.Name() == Returns{}.Name()
}

// moved reports whether the policy changed since it was turned on: its kind, or its nodes. Switches of
// policies without a selector have no kind, and old ones have none either.
func moved(s state.Switch, p Policy) bool { return s.Kind != "" && s != Scoped(s, p) }

// Halted returns why the policy may not act, in words, or "". There may be none any more: nil.
func Halted(a state.Automation, p Policy) string {
	if a.Brake.On {
		return "the brake holds automation since " + stamp(a.Brake.Since)
	}

	if p == nil {
		return "it is no longer among the settings (policies)"
	}

	if !IsOn(a, p) {
		return off(a, p)
	}

	if by, paused := a.IsPaused(p.Name()); paused {
		return fmt.Sprintf("%s paused it on %s%s", by.Actor, stamp(by.Since), because(by.Reason))
	}

	return ""
}

// HaltedRollout returns why automation holds a rollout back, in words, or "". Under the brake no rollout
// begins a node. A rollout of a policy begins none while the policy may not act, unless a person approved it.
func HaltedRollout(s Settings, a state.Automation, r rollout.Record) string {
	if a.Brake.On {
		return Describe(a.Brake)
	}

	name := state.PolicyOf(r.Actor)
	if name == "" || r.Approved != nil {
		return ""
	}
	held := Halted(a, Named(s, name))
	if held == "" {
		return ""
	}
	return fmt.Sprintf("policy %s started it: %s", name, held)
}

// off returns why the policy is off.
func off(a state.Automation, p Policy) string {
	s, turned := a.Switches[p.Name()]

	switch {
	case !turned:
		return "it is off until an operator turns it on"
	case !s.On:
		return fmt.Sprintf("%s turned it off on %s%s", s.Actor, stamp(s.Since), because(s.Reason))
	}

	now := Scoped(s, p)

	return fmt.Sprintf("%s turned it on on %s as policies.%s for %s, and it is policies.%s for %s now: "+
		"it is off until an operator turns it on again",
		s.Actor, stamp(s.Since), s.Kind, matches(s.Selector, s.All), now.Kind, matches(now.Selector, now.All))
}
