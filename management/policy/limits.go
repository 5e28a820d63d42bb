// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
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

// usage counts automatic actions against the limits.
type usage struct {
	active, recent int
	oldest         time.Time // of the recent ones
}

// usage counts the chosen jobs and decisions.
func (w World) usage(ofJob func(*job.Job) bool, ofDecision func(*state.Decision) bool) usage {
	u := usage{oldest: w.Now}

	for _, j := range w.View.Jobs() {
		// One that waits for a window leaves its turn to the others.
		held := j.Status == job.Queued && !w.Settings.Windows.Judge(w.View, *j, w.Now).OK
		if !j.Status.Ended() && !held && state.IsPolicy(j.Actor) && ofJob(j) {
			u.active++
		}
	}

	for i := range state.AutomationOf(w.View).Decisions {
		d := &state.AutomationOf(w.View).Decisions[i]
		if !d.Action.Acts() || d.Phase == state.PhaseWithdrawn || !ofDecision(d) {
			continue
		}

		// Its job is not in the view yet.
		if d.Phase == state.PhaseDecided && d.Action.NeedsJob() {
			u.active++
		}

		// Quarantines have a limit of their own.
		if begun := w.settled(d.Time); d.Action != state.ActionQuarantine && begun.After(w.Now.Add(-RateWindow)) {
			u.recent++

			if begun.Before(u.oldest) {
				u.oldest = begun
			}
		}
	}

	return u
}

// limits returns the actions that may still begin now, on top of the decisions so far.
func (w World) limits() *limits {
	u := w.usage(func(*job.Job) bool { return true }, func(*state.Decision) bool { return true })
	fences, noFence := w.fences()

	return &limits{
		jobs: max(w.Settings.Jobs-u.active, 0), fences: fences, rate: max(w.Settings.Rate-u.recent, 0),
		noJob: fmt.Sprintf("%s at work, which is the limit (policies.jobs)",
			inventory.Count(u.active, "automatic job is", "automatic jobs are")),
		noFence: noFence,
		overRate: fmt.Sprintf("%s within %s, which is the limit (policies.rate)",
			inventory.Count(u.recent, "automatic job or rollout began", "automatic jobs and rollouts began"),
			short(RateWindow)) + w.jumped(),
		again: u.oldest.Add(RateWindow),
	}
}

// spare returns the limits for verifications on a schedule. They take at most half of each, and
// may always take one: returns and new nodes do not wait until all nodes are verified.
func (w World) spare() *limits {
	l := w.limits()
	u := w.usage(w.scheduled, func(d *state.Decision) bool {
		return d.Action == state.ActionVerify && d.Policy != Returns{}.Name()
	})

	if left := max(max(w.Settings.Jobs/2, 1)-u.active, 0); left < l.jobs {
		l.jobs, l.noJob = left, fmt.Sprintf("%s at work, which is their half of the limit (policies.jobs)",
			inventory.Count(u.active, "scheduled verification is", "scheduled verifications are"))
	}

	if left := max(max(w.Settings.Rate/2, 1)-u.recent, 0); left < l.rate {
		l.rate, l.again = left, u.oldest.Add(RateWindow)
		l.overRate = fmt.Sprintf(
			"%s within %s, which is their half of the limit (policies.rate)",
			inventory.Count(u.recent, "scheduled verification began", "scheduled verifications began"),
			short(RateWindow),
		)
	}

	return l
}

// fences returns the number of nodes that may still be fenced: fewer than set off the
// brake. Many hosts with other keys are a fault of the network, or a change by people.
func (w World) fences() (left int, reason string) {
	names := w.fenced()

	for _, d := range state.AutomationOf(w.View).Decisions {
		if d.Action != state.ActionQuarantine || d.Phase != state.PhaseDecided {
			continue
		}

		if _, known := w.View.Lookup(d.Node); known {
			names[d.Node] = true
		}
	}

	fenced := len(names)

	all, s := len(w.View.Nodes()), w.Settings.Brake
	// The smallest number that sets off the brake: at least Minimum, and at least the share.
	braked := max(s.Minimum, (s.Share*all+99)/100)

	return max(braked-1-fenced, 0), fmt.Sprintf(
		"%d of %d nodes are quarantined by the policy, and one more would be as many as set off the brake "+
			"(policies.brake): an operator decides on it", fenced, all)
}

// admit takes a step out of the limits, or has it wait for its turn.
func (l *limits) admit(j *Judgement) bool {
	reason, until := l.take(j.Action)
	if reason != "" {
		j.hold(reason, until)
	}
	return reason == ""
}

// take takes one action out of the limits, or returns why it has to wait, and until when
// if that is a time.
func (l *limits) take(a state.Action) (reason string, until time.Time) {
	switch fence := a == state.ActionQuarantine; {
	case !a.Acts():
		return "", time.Time{}
	case a.NeedsJob() && l.jobs == 0:
		return l.noJob, time.Time{}
	case fence && l.fences == 0:
		return l.noFence, time.Time{}
	case !fence && l.rate == 0:
		return l.overRate, l.again
	case fence:
		l.fences--
		return "", time.Time{}
	case a.NeedsJob(): // a rollout takes none
		l.jobs--
	}

	l.rate--

	return "", time.Time{}
}
