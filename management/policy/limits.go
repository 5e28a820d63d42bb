// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/state"
)

// RateWindow is the time in which Settings.Rate automatic actions may begin.
const RateWindow = 10 * time.Minute

// limits are the automatic actions that may still begin now.
type limits struct {
	jobs, fences, rate       int
	noJob, noFence, overRate string // the reasons for no more
	again                    time.Time
}

// limits returns the actions that may still begin now, on top of the decisions so far.
func (w World) limits() *limits {
	active, recent, oldest := 0, 0, w.Now

	for _, j := range w.View.Jobs {
		if !j.Status.Ended() && state.IsPolicy(j.Actor) {
			active++
		}
	}

	for _, d := range w.View.Automation.Decisions {
		if !d.Action.Acts() || d.Phase == state.PhaseWithdrawn {
			continue
		}

		// Its job is not in the view yet.
		if d.Phase == state.PhaseDecided && d.Action.NeedsJob() {
			active++
		}

		if begun := d.Time; begun.After(w.Now.Add(-RateWindow)) {
			recent++

			if begun.Before(oldest) {
				oldest = begun
			}
		}
	}

	fences, noFence := w.fences()

	return &limits{
		jobs: max(w.Settings.Jobs-active, 0), fences: fences, rate: max(w.Settings.Rate-recent, 0),
		noJob: fmt.Sprintf("%s at work, which is the limit (policies.jobs)",
			inventory.Count(active, "automatic job is", "automatic jobs are")),
		noFence: noFence,
		overRate: fmt.Sprintf("%d automatic jobs and quarantines began within %s, which is the limit (policies.rate)",
			recent, short(RateWindow)),
		again: oldest.Add(RateWindow),
	}
}

// fences returns the number of nodes that may still be fenced: fewer than set off the
// brake. Many hosts with other keys are a fault of the network, or a change by people.
func (w World) fences() (left int, reason string) {
	names := w.fenced()

	for _, d := range w.View.Automation.Decisions {
		if d.Action != state.ActionQuarantine || d.Phase != state.PhaseDecided {
			continue
		}

		if _, known := w.View.Lookup(d.Node); known {
			names[d.Node] = true
		}
	}

	fenced := len(names)

	all, s := len(w.View.Nodes), w.Settings.Brake
	// The smallest number that sets off the brake: at least Minimum, and at least the share.
	braked := max(s.Minimum, (s.Share*all+99)/100)

	return max(braked-1-fenced, 0), fmt.Sprintf(
		"%d of %d nodes are quarantined by the policy, and one more would be as many as set off the brake "+
			"(policies.brake): an operator decides on it", fenced, all)
}

// take takes one action out of the limits, or returns why it has to wait, and until when
// if that is a time.
func (l *limits) take(a state.Action) (ok bool, reason string, next time.Time) {
	switch {
	case !a.Acts():
		return true, "", time.Time{}
	case a.NeedsJob() && l.jobs == 0:
		return false, l.noJob, time.Time{}
	case a == state.ActionQuarantine && l.fences == 0:
		return false, l.noFence, time.Time{}
	case l.rate == 0:
		return false, l.overRate, l.again
	}

	l.rate--

	switch {
	case a.NeedsJob():
		l.jobs--
	case a == state.ActionQuarantine: // a rollout takes neither
		l.fences--
	}

	return true, "", time.Time{}
}
