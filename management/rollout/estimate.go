// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/plan"
)

// ownSamples is the number of its own nodes from which a rollout estimates by them.
const ownSamples = 3

// pace returns the expected duration of a node, from earlier jobs of the action and of the
// verification.
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

// Remaining returns how long the rollout is expected to take from now on, if nothing fails or
// waits, and whether that is known. It goes by the median of its own nodes once some are done,
// and by earlier jobs before. It is not known while something else than its own nodes holds
// the rollout back. limit is the number of jobs that may run at a time.
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

	// A node that soaks needs a place of the window, and no job.
	places = min(places, len(r.Nodes))
	if r.Spec.Soak == 0 {
		places = min(places, max(limit, 1))
	}
	return r.schedule(each, places, now), true
}

// perNode returns the duration of a node with its gate and soak.
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

// schedule returns the time until the last node is done: each place takes the next node when
// it is free.
func (r Record) schedule(each time.Duration, places int, now time.Time) time.Duration {
	var free []time.Duration // when each place is free, the soonest first

	waiting := 0

	for i := range r.Nodes {
		switch n := &r.Nodes[i]; {
		case n.State == Waiting:
			waiting++
		case n.State.InProgress():
			// A node that takes longer than expected may end at any moment.
			free = append(free, max(0, each-now.Sub(n.Begun)))
		}
	}

	for len(free) < places {
		free = append(free, 0)
	}

	slices.Sort(free)

	last := free[len(free)-1]

	// Every place does its share; equal durations keep the order of the places.
	for k := range waiting {
		at := free[k%len(free)] + each
		free[k%len(free)] = at
		last = max(last, at)
	}

	return last
}
