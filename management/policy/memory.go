// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/state"
)

// Remember bounds the decisions before they are stored. Beyond state.MaxDecisions it drops the oldest, but
// none that is not carried out yet, and none that a limit still counts. The newest rollout of a policy is
// kept, so that the policy does not try its commit again. Quarantined nodes are kept by name, because a
// quarantine may outlast any number of decisions.
func Remember(w World, a state.Automation) state.Automation {
	w.View = withMemory(w.View, a)

	// The names come from the decisions before some of them are dropped.
	a.Fenced = slices.Sorted(maps.Keys(w.fenced()))
	counts := w.counts()
	excess := len(a.Decisions) - state.MaxDecisions

	a.Decisions = slices.DeleteFunc(slices.Clone(a.Decisions), func(d state.Decision) bool {
		if excess <= 0 || d.Phase == state.PhaseDecided || counts(d) {
			return false
		}

		excess--
		return true
	})

	return a
}

// counts returns whether a decision that was carried out still counts: for the rate of
// automatic actions, for the failures in a row that turn a commission off, as the newest
// rollout of a policy, or as the newest time that it turned a node off.
func (w World) counts() func(state.Decision) bool {
	failures := map[string]bool{}

	for _, r := range w.Settings.Commission {
		for _, f := range (Commission{r}).failed(w) {
			failures[f.id] = true
		}
	}

	// One that is not carried out yet may still be withdrawn, and then the one before it counts.
	newest := map[string]string{}

	for _, d := range state.AutomationOf(w.View).Decisions {
		if d.Phase != state.PhaseDone && d.Phase != state.PhaseRefused {
			continue
		}

		switch d.Action {
		case state.ActionUpgrade:
			newest[d.Policy] = d.ID
		case state.ActionPowerOff:
			newest[d.Policy+" "+d.Node] = d.ID
		}
	}

	begin := w.Now.Add(-RateWindow)

	return func(d state.Decision) bool {
		begun := d.Action.Acts() && d.Phase != state.PhaseWithdrawn && d.Time.After(begin)
		_, known := w.View.Lookup(d.Node)
		off := known && newest[d.Policy+" "+d.Node] == d.ID

		return begun || failures[d.ID] || newest[d.Policy] == d.ID || off || w.matters(d)
	}
}

// matters reports whether the next step on a node still depends on a decision: on a new node that was tried
// already, on a node that took the place of another one or failed to, and on a node that is being verified or
// was found drifted.
func (w World) matters(d state.Decision) bool {
	n, known := w.View.Lookup(d.Node)
	if !known || d.Phase == state.PhaseWithdrawn {
		return false
	}

	if d.Action == state.ActionCommission {
		lost, exists := w.View.Lookup(d.Replaces)
		failed := n.Status == inventory.Unallocated // it counts for Rule.Failures
		return n.Fresh() || exists && lost.Group == d.Group && (failed || n.Group == d.Group)
	}

	r := Returns{}
	if d.Policy != r.Name() || !strings.HasPrefix(d.ID, r.episode(&n)+"/") {
		return false
	}

	j, err := w.View.Job(d.Job)
	verifying := d.Action == state.ActionVerify && err == nil && !j.Status.Ended()

	return verifying || r.drifted(w, &n) != nil
}

// fenced returns the nodes that a policy has quarantined, and that are so still.
func (w World) fenced() map[string]bool {
	names := map[string]bool{}

	for _, d := range state.AutomationOf(w.View).Decisions {
		if d.Action == state.ActionQuarantine && d.Phase == state.PhaseDone {
			names[d.Node] = true
		}
	}

	for _, name := range state.AutomationOf(w.View).Fenced {
		names[name] = true
	}

	maps.DeleteFunc(names, func(name string, _ bool) bool {
		n, known := w.View.Lookup(name)
		return !known || n.Status != inventory.Quarantined
	})

	return names
}
