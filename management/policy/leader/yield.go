// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"slices"
	"time"

	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/state"
)

// yieldTime is how long Yield waits for the end of jobs.
const yieldTime = 20 * time.Second

// Yield makes room for a person's change of nodes: it cancels the automatic jobs that hold
// them and have changed no host, and waits for their end, for yieldTime at most. After
// that, or with an error of the store, the change is judged as with any other job.
func (l *Leader) Yield(ctx context.Context, who string, nodes []string) error {
	if len(held(l.State.View(), nodes)) == 0 {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, yieldTime)
	defer cancel()

	err := state.RetryConflict(ctx, l.State, func(v *state.View) error {
		var decisions []state.Decision

		for _, j := range held(v, nodes) {
			d := policy.YieldOf(*j, job.OrSomebody(who)+" changes the node", time.Now())
			if state.AutomationOf(v).Find(d.ID) == nil {
				decisions = append(decisions, d)
			}
		}

		if len(decisions) == 0 {
			return nil
		}

		return l.record(ctx, state.AutomationOf(v), decisions...)
	})
	if err != nil {
		return err
	}

	l.Kick()

	for {
		// Take the channel first: a change after the look at the view must end the wait.
		changed := l.State.Changed()
		if len(held(l.State.View(), nodes)) == 0 {
			return nil
		}

		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// held returns the automatic jobs that yield and hold one of the nodes.
func held(v *state.View, nodes []string) []*job.Job {
	holds := func(j *job.Job) bool {
		return slices.ContainsFunc(nodes, func(name string) bool {
			n, known := v.Lookup(name)
			return known && n.Job == j.ID || slices.Contains(j.Helpers, name)
		})
	}

	return slices.DeleteFunc(slices.Clone(v.Jobs), func(j *job.Job) bool { return !policy.Yields(*j) || !holds(j) })
}
