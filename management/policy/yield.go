// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"slices"
	"time"

	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// yieldTime is how long Yield waits for the end of jobs.
const yieldTime = 20 * time.Second

// Yield makes room for a person's change of nodes: it cancels the automatic jobs that hold
// them and have changed no host, and waits for their end, for yieldTime at most. After
// that, or with an error of the store, the change is judged as with any other job.
func (l *Loop) Yield(ctx context.Context, who string, nodes []string) error {
	if len(held(l.State.View(), nodes)) == 0 {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, yieldTime)
	defer cancel()

	announced, _, err := record.Decide(ctx, l.Store, func(tx *record.Tx) (func(), error) {
		v, a := state.ViewOf(tx), record.One(tx, &state.Memory)

		var decisions []state.Decision

		for _, j := range held(v, nodes) {
			d := YieldOf(*j, job.OrSomebody(who)+" changes the node", time.Now())
			if a.Find(d.ID) == nil {
				decisions = append(decisions, d)
			}
		}

		if len(decisions) == 0 {
			return func() {}, nil
		}

		a = Remember(l.world(v, l.Settings()), a.With(decisions...))
		record.Put(tx, &state.Memory, &a)

		entries, announced := l.announce(ctx, decisions)
		for _, entry := range entries {
			tx.Attach(entry)
		}

		return announced, nil
	})
	if err != nil {
		return err
	}

	announced()
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

	return slices.DeleteFunc(slices.Clone(v.Jobs()), func(j *job.Job) bool { return !Yields(*j) || !holds(j) })
}
