// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// replacement returns the newest decision that gave the place of the node to another one,
// or nil. The other one is on its way, or in the group: a job that failed gave nothing away.
func (w World) replacement(name string) *state.Decision {
	all := state.AutomationOf(w.View).Decisions

	for i := range slices.Backward(all) {
		if d := &all[i]; d.Replaces == name && w.holds(d) {
			return d
		}
	}

	return nil
}

// holds reports whether the node of a decision is on its way to the group, or in it.
func (w World) holds(d *state.Decision) bool {
	if d.Phase != state.PhaseDone {
		return d.Phase == state.PhaseDecided
	}

	if j, err := w.View.Job(d.Job); err == nil && !j.Status.Ended() {
		return true
	}

	n, known := w.View.Lookup(d.Node)

	return known && n.Group == d.Group && n.InService()
}

// attempts returns the attempts of the policy to give the place of a lost node away that failed
// since its loss, the oldest first. Those from before the policy was turned on do not count.
func (c Commission) attempts(w World, a absence) (failed []attempt) {
	since := c.counted(w, a)
	all := state.AutomationOf(w.View).Decisions
	for i := range all {
		d := &all[i]
		if d.Policy != c.Name() || d.Replaces != a.node.Name || !d.Time.After(since) || w.holds(d) {
			continue
		}
		j, err := w.View.Job(d.Job)

		switch {
		case d.Phase == state.PhaseRefused:
			failed = append(failed, attempt{d.ID, d.Time, true, d.Node + " was refused: " + d.Result})
		case d.Phase == state.PhaseDone && d.Job != "" && err != nil: // the job is no longer kept
			failed = append(failed, attempt{d.Job, d.Time, true, "job " + d.Job + " on " + d.Node})
		case d.Phase == state.PhaseDone && j.Status == job.Errored && !isRefused(&j):
			failed = append(failed, attempt{j.ID, j.Ended, true, ending(&j)})
		}
	}

	return failed
}

// counted returns since when attempts count for an absence: its begin, or when the policy was turned on.
func (c Commission) counted(w World, a absence) time.Time {
	if s := state.AutomationOf(w.View).Switches[c.Name()]; s.On && w.past(s.Since).After(a.since) {
		return w.past(s.Since)
	}
	return a.since
}

// ending describes the end of a job.
func ending(j *job.Job) string {
	return fmt.Sprintf("job %s on %s: %s", j.ID, job.ShortList(j.Names()), cmp.Or(j.Message, string(j.Status)))
}

// retry says who has the place of a node that is out of service, and whether another new node is
// tried now: not until some time after a failure, and after Rule.Failures never.
func (c Commission) retry(w World, a *absence) {
	if d := w.replacement(a.node.Name); d != nil {
		a.taken = d.Node
		return
	}

	failed := c.attempts(w, *a)
	if len(failed) == 0 {
		return
	}
	last := failed[len(failed)-1]
	a.failed = fmt.Sprintf("%s to replace it failed, the last one as %s",
		inventory.Count(len(failed), "attempt", "attempts"), last.text)
	due := w.settled(last.at).Add(retryDelay(len(failed)))

	switch {
	case len(failed) >= c.Rule.Failures:
		a.hold = fmt.Sprintf(
			"no other node is tried (policies.commission.%s.failures); remove the cause, then disable "+
				"and enable the policy",
			c.Name(),
		)
	case c.isOff(w):
		a.hold = "no other node is tried while the policy is off"
	case w.Now.Before(due):
		a.hold = "another new node is tried not before " + stamp(due)
		a.until = due
	}
}

// retryDelay returns the delay after that many failures.
func retryDelay(failures int) time.Duration {
	delay := firstRetry
	for range failures - 1 {
		delay = min(2*delay, maxBackoff)
	}

	return delay
}

// describe returns the absence in words, with what became of the place.
func (a absence) describe() string {
	text := a.text

	switch {
	case a.taken != "":
		return text + "; " + a.taken + " takes its place"
	case a.failed == "":
	case a.hold == "":
		text += "; " + a.failed + "; another new node is tried"
	default:
		text += "; " + a.failed + "; " + a.hold
	}

	if a.fence.text != "" {
		text += "; " + a.fence.text
	}

	return text
}
