// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/contiv/cluster/inventory"
	jobs "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

const (
	rolloutAtOnce = 10
	// rolloutJob is the duration of a simulated job. Those of real hosts take longer.
	rolloutJob = time.Second
)

// ideal returns the duration of a rollout whose decisions take no time.
func (b *bench) ideal() side {
	return func() float64 { return (time.Duration(b.rollout/rolloutAtOnce) * rolloutJob).Seconds() }
}

var idealSchedule = fmt.Sprintf("the ideal schedule of jobs of %s, %d at once", rolloutJob, rolloutAtOnce)

// rollouts measures the time that the engine of rollouts itself needs for all decisions about
// a fleet, against the ideal schedule of its jobs. The fleet is simulated in this process.
func rollouts(_ context.Context, b *bench) []row {
	return []row{{
		Name: fmt.Sprintf("rollout, decisions about %d nodes", b.rollout), Unit: "s", Against: idealSchedule, Rounds: 5,
		floor:    atMost(0.05, 0, "<= 0.05"),
		Note:     "simulated executors; without the store, see the row rollout-store",
		baseline: b.ideal(),
		product: func() float64 {
			f := newRolloutFleet(b.rollout)
			return timed(f.carryOut)
		},
	}}
}

// rolloutFleet is a simulated fleet: its jobs end after their time, on a clock that jumps.
type rolloutFleet struct {
	snapshot jobs.Snapshot
	names    []string
	byID     map[string]jobs.Job
	ends     map[string]time.Time // of the jobs that run
}

func newRolloutFleet(nodes int) *rolloutFleet {
	f := &rolloutFleet{byID: map[string]jobs.Job{}, ends: map[string]time.Time{}}

	for i := range nodes {
		n := &inventory.Node{
			Name: fmt.Sprintf("w-%05d", i), Status: inventory.Allocated, State: inventory.Discovered,
			Group: inventory.GroupWorker,
		}
		f.names = append(f.names, n.Name)
		f.snapshot.PutNode(n)
	}

	return f
}

// writes returns the writes of its nodes.
func (f *rolloutFleet) writes() (all []state.NodeWrite) {
	for _, n := range f.snapshot.Nodes() {
		all = append(all, state.NodeWrite{Node: *n})
	}
	return all
}

// request is the request for a rollout over the fleet.
func (f *rolloutFleet) request() rollout.Request {
	return rollout.Request{
		Spec: rollout.Spec{
			Action: inventory.VerbApply, MaxUnavailable: strconv.Itoa(rolloutAtOnce),
			Gate: rollout.Gate{SkipVerify: true},
		},
		Nodes: f.names,
	}
}

// carryOut carries a rollout out.
func (f *rolloutFleet) carryOut() {
	now := time.Unix(0, 0)
	r := must(rollout.Make(f.snapshot, inventory.DefaultGroups(), nil, f.request(), now))
	world := rollout.World{
		Node: func(name string) *inventory.Node { return f.snapshot.Find(name) },
		Job:  func(id string) (jobs.Job, bool) { j, ok := f.byID[id]; return j, ok },
		Room: len(f.names),
	}

	for r = r.Begin("bench", now); !r.Status.Ended(); {
		steps := rollout.Next(r, world, now)
		r = steps.Record

		for _, b := range steps.Begin {
			j := jobs.Job{ID: strconv.Itoa(len(f.byID) + 1), Status: jobs.Running}
			f.byID[j.ID], f.ends[j.ID] = j, now.Add(rolloutJob)
			r = r.Begun(b, j, now)
		}

		if len(steps.Begin) == 0 && len(f.ends) > 0 {
			now = f.jump()
		}
	}

	f.succeeded(r)
}

// succeeded requires the success of every node.
func (f *rolloutFleet) succeeded(r rollout.Record) {
	if c := r.Count(); c.Succeeded != len(f.names) {
		fail("the rollout ended with %s", r.Reason)
	}
}

// jump ends the jobs that end next, and returns the time of that.
func (f *rolloutFleet) jump() (next time.Time) {
	for _, at := range f.ends {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}

	for id, at := range f.ends {
		if !at.After(next) {
			j := f.byID[id]
			j.Status = jobs.Complete
			f.byID[id] = j
			delete(f.ends, id)
		}
	}

	return next
}
