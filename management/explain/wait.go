// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// Wait is what a job waits for. What happens after it, without an operator, is the Next of the explanation.
type Wait struct {
	For   string
	Since time.Time
	// Until is the end of the wait at the latest, and Origin where that comes from; zero: nothing ends it but what it
	// is for.
	Until  time.Time
	Origin string
}

// waitOf returns what a job that has not ended waits for; nil: for nothing.
func (f Facts) waitOf(j job.Job) *Wait {
	run := j.LastRun()

	switch {
	case j.Status == job.Queued:
		return f.turnOf(j)
	case j.Status != job.Running || j.Outcomes != nil || run == nil:
		return nil
	}

	w := &Wait{For: string(run.Phase), Since: run.Started, Until: j.Due(), Origin: f.deadlineOf(j)}
	if run.Playbook != "" {
		w.For += " (" + run.Playbook + ")"
	}
	if len(run.Hosts) > 0 {
		w.For += " of " + job.ShortList(run.Hosts)
	}

	if j.Former != "" && !run.Bound {
		w.For = fmt.Sprintf("the end of what the instance %s, which is gone, has started", j.Former)
		w.Origin += "; jobs.runner_lease ends the wait before"
	}

	return w
}

// turnOf returns what a Queued job waits for: its window, or jobs, with the latest of their deadlines.
func (f Facts) turnOf(j job.Job) *Wait {
	t := f.turn(j)
	if t.Err != nil || t.Claim {
		return nil
	}

	w := &Wait{For: t.Reason, Since: j.Accepted}

	if verdict := f.Windows.Judge(f.View, j, f.Now); t.Reason == verdict.Reason {
		w.Until, w.Origin = verdict.Until, "the window or the freeze"
	}

	for _, id := range t.WaitsFor {
		other, err := f.View.Job(id)

		switch {
		case err != nil: // no longer kept
		case other.Due().IsZero():
			// It has no deadline before it runs, and neither has this one.
			w.Until, w.Origin = time.Time{}, ""
			return w
		case other.Due().After(w.Until):
			w.Until, w.Origin = other.Due(), "the deadline of job "+id
		}
	}

	if w.Until.IsZero() {
		w.Origin = ""
	}

	return w
}

// deadlineOf describes the deadline of a job, where it comes from, and how long such jobs take.
func (f Facts) deadlineOf(j job.Job) string {
	v := f.View
	if f.Sees != nil {
		v = f.Sees.View
	}

	text := inventory.ShortDuration(j.Timeout) + " after its start"
	if j.Phase() == job.PhaseUndo {
		text = inventory.ShortDuration(j.Timeout) + " after the start of the cleanup"
	}

	if j.TimeoutFrom != "" {
		text += ", from " + j.TimeoutFrom
	}
	if runs, p99 := v.Took(j); runs > 0 {
		text += fmt.Sprintf("; p99 of %d runs: %s", runs, inventory.ShortDuration(p99.Round(time.Second)))
	}

	return text
}
