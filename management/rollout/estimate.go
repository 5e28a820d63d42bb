// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/plan"
)

// ownSamples is the number of finished nodes from which on a rollout estimates by its own durations.
const ownSamples = 3

// pace returns the expected duration per node, from the history of the action and its verification.
func pace(jobs []*job.Job, s Spec) Pace {
	expected := plan.Expect(jobs, job.Job{
		Verb: s.Action, JobOptions: inventory.JobOptions{SharedOptions: s.SharedOptions},
	})
	if expected == nil {
		return Pace{}
	}
	p := Pace{Jobs: expected.Jobs, Node: time.Duration(expected.Median)}

	if verify := plan.Expect(jobs, job.Job{Verb: inventory.VerbVerify}); s.Verifies() && verify != nil {
		p.Node += time.Duration(verify.Median)
	}

	return p
}

// Remaining estimates the remaining duration, if nothing fails or waits. It uses the median of the
// rollout's own nodes once some are done, and earlier jobs before. known is false while something other
// than its own nodes holds the rollout back. limit is the number of jobs that may run at a time.
func (r Record) Remaining(limit int, now time.Time) (left time.Duration, known bool) {
	switch {
	case r.Status.Ended():
		return 0, true
	case r.Waits != "":
		return 0, false
	}

	each, known := r.perNode()
	if !known {
		return 0, false
	}

	places, err := Window(r.Spec.MaxUnavailable, len(r.Nodes))
	if err != nil {
		return 0, false
	}

	// A soaking node occupies a slot of the window, but no job.
	places = min(places, len(r.Nodes))
	if r.Spec.Soak == 0 {
		places = min(places, max(limit, 1))
	}
	return r.schedule(each, places, now), true
}

// perNode returns the duration of a node including gate and soak.
func (r Record) perNode() (time.Duration, bool) {
	var own []time.Duration
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.State == Succeeded && n.Since.After(n.Begun) {
			own = append(own, n.Since.Sub(n.Begun))
		}
	}

	if len(own) >= ownSamples {
		slices.Sort(own)
		return own[len(own)/2], true
	}

	return r.Estimate.Node + r.Spec.Soak, r.Estimate.Jobs > 0
}

// schedule returns the time until the last node is done, if each free slot takes the next node at once.
func (r Record) schedule(each time.Duration, places int, now time.Time) time.Duration {
	var free []time.Duration // when each slot becomes free, the soonest first

	waiting := 0

	for i := range r.Nodes {
		switch n := &r.Nodes[i]; {
		case n.State == Waiting:
			waiting++
		case n.State.InProgress():
			// An overdue node may finish at any moment.
			free = append(free, max(0, each-now.Sub(n.Begun)))
		}
	}

	for len(free) < places {
		free = append(free, 0)
	}

	slices.Sort(free)

	last := free[len(free)-1]

	// All nodes take equally long, so slots become free in turn.
	for k := range waiting {
		at := free[k%len(free)] + each
		free[k%len(free)] = at
		last = max(last, at)
	}

	return last
}
