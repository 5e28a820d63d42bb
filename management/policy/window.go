// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// held returns a function that reports whether the action on a node may begin now, after the actions that it
// allowed before. A repair changes its host, so it waits for the observers after a start, for a maintenance
// window, and for the budget of its group. Other actions do not.
func (w World) held() func(*Judgement) window.Verdict {
	var taking *inventory.Taking

	return func(j *Judgement) window.Verdict {
		if j.Action != state.ActionRepair {
			return window.Verdict{OK: true}
		}

		if early, until := w.early(); early != "" {
			return window.Verdict{Reason: early, Until: until}
		}

		if v := w.Settings.Windows.Allowed(w.View, j.Node, w.Now); !v.OK {
			return v
		}

		if taking == nil {
			taking = w.Settings.Groups.Taking(w.View.Nodes(), w.leaving())
		}

		if err := taking.Take(j.Node); err != nil {
			return window.Verdict{Reason: job.Message(err)}
		}

		return window.Verdict{OK: true}
	}
}

// leaving returns the nodes that policies are about to take out of service.
func (w World) leaving() []string {
	var names []string

	for _, j := range w.View.Jobs() {
		if j.Status == job.Queued && state.IsPolicy(j.Actor) && j.ChangesHosts() {
			names = append(names, j.Names()...)
		}
	}

	for _, d := range state.AutomationOf(w.View).Decisions {
		if d.Phase == state.PhaseDecided && d.Action == state.ActionRepair {
			names = append(names, d.Node)
		}
	}

	return names
}
