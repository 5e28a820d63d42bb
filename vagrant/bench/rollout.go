// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/contiv/cluster/inventory"
	jobs "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/rollout"
)

const (
	rolloutNodes  = 1000
	rolloutAtOnce = 10
	// rolloutJob is the duration of a simulated job. Those of real hosts take longer.
	rolloutJob = time.Second
)

// rollouts measures the time that the engine of rollouts itself needs for all decisions about
// a fleet, against the ideal schedule of its jobs. The fleet is simulated in this process.
func rollouts(ctx context.Context, b *bench) error {
	ideal := rolloutNodes / rolloutAtOnce * rolloutJob

	return b.compare(ctx, comparison{
		name:     fmt.Sprintf("rollout, decisions about %d nodes", rolloutNodes),
		unit:     "s",
		against:  fmt.Sprintf("the ideal schedule of jobs of %s, %d at once", rolloutJob, rolloutAtOnce),
		rounds:   5,
		floor:    atMost(0.05, 0, "<= 0.05"),
		baseline: func(context.Context) (float64, error) { return ideal.Seconds(), nil },
		product: func(context.Context) (float64, error) {
			took, err := newRolloutFleet().run()
			return took.Seconds(), err
		},
		note: "simulated executors; without the store, see the row rollout-store",
	})
}

// rolloutFleet is a simulated fleet: its jobs end after their time, on a clock that jumps.
type rolloutFleet struct {
	snapshot jobs.Snapshot
	names    []string
	byID     map[string]jobs.Job
	ends     map[string]time.Time // of the jobs that run
}

func newRolloutFleet() *rolloutFleet {
	f := &rolloutFleet{byID: map[string]jobs.Job{}, ends: map[string]time.Time{}}

	for i := range rolloutNodes {
		n := &inventory.Node{
			Name: fmt.Sprintf("w-%05d", i), Status: inventory.Allocated, State: inventory.Discovered,
			Group: inventory.GroupWorker,
		}
		f.names, f.snapshot.Nodes = append(f.names, n.Name), append(f.snapshot.Nodes, n)
	}

	return f
}

// run carries a rollout out, and returns the time that its decisions took.
func (f *rolloutFleet) run() (took time.Duration, err error) {
	now := time.Unix(0, 0)
	begun := time.Now()

	r, err := rollout.Make(f.snapshot, inventory.DefaultGroups(), nil, rollout.Request{
		Spec: rollout.Spec{
			Action: inventory.VerbApply, MaxUnavailable: strconv.Itoa(rolloutAtOnce),
			Gate: rollout.Gate{SkipVerify: true},
		},
		Nodes: f.names,
	}, now)
	if err != nil {
		return 0, err
	}

	world := rollout.World{
		Node: func(name string) *inventory.Node { return jobs.Find(f.snapshot.Nodes, name) },
		Job:  func(id string) (jobs.Job, bool) { j, ok := f.byID[id]; return j, ok },
		Room: rolloutNodes,
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

	if c := r.Count(); c.Succeeded != rolloutNodes {
		return 0, errors.New("the rollout ended with " + r.Reason)
	}

	return time.Since(begun), nil
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
