// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// retentionInterval is the time between two applications of the retention.
const retentionInterval = time.Minute

// retention returns the loop that applies the retention: every instance to the files of its host, and the leader to
// the records.
func (e *Engine) retention() *control.Loop {
	return control.New(control.Options{
		Name:    "retention",
		Every:   retentionInterval,
		Trouble: "old jobs could not be removed; retrying",
		Round: func(ctx context.Context) (control.Next, error) {
			if e.members.Leads() {
				return control.Next{}, e.Prune(ctx)
			}
			return control.Next{}, e.pruneFiles(ctx)
		},
		Logger: e.log,
	})
}

// Prune removes jobs outside the retention, plans that have expired, stored results, old tombstones, and files that
// nothing needs any more. It only deletes, so it works in a full store, except for tombstones. Under incomplete
// settings it keeps all jobs: the operator may have chosen to keep more.
func (e *Engine) Prune(ctx context.Context) error {
	now := time.Now()
	settings := e.settings()

	var expired []string
	if settings.Incomplete == nil {
		expired = settings.Retention.Expired(e.state.View().Jobs(), now)
	}

	if len(expired) > 0 {
		record := access.Record{Action: "jobs.expire", Targets: expired, Reason: "outside the configured retention"}

		err := e.decideItself(ctx, record, func(context.Context) error {
			return e.drop(ctx, expired, state.DropJob)
		})
		if err != nil {
			return err
		}
	}

	if err := e.expirePlans(ctx, now); err != nil {
		return err
	}

	if err := e.results.DropResults(ctx, now.Add(-access.ResultAge), access.ResultLimit); err != nil {
		return err
	}

	if err := e.pruneFiles(ctx); err != nil {
		return err
	}

	// The last, because a full store refuses it.
	return e.expireTombstones(ctx, now)
}

// drop removes records, each in a transaction of its own: a job may have many logs.
func (e *Engine) drop(ctx context.Context, ids []string, remove func(tx *record.Tx, id string)) error {
	for _, id := range ids {
		_, _, err := record.Decide(ctx, e.records, func(tx *record.Tx) (any, error) {
			remove(tx, id)
			return nil, nil
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// pruneFiles removes files of this host that nothing needs any more.
func (e *Engine) pruneFiles(ctx context.Context) error {
	// A run of an unreadable job may go on. The health names the record.
	if e.state.View().UnreadableFiles() != nil {
		return nil
	}
	return e.playbooks.Prune(ctx, e.inUse)
}

// maxRemoved is the number of records that one transaction removes.
const maxRemoved = 100

func (e *Engine) expireTombstones(ctx context.Context, now time.Time) error {
	names := inventory.ExpiredTombstones(record.List(e.state.View(), &state.Tombstones), now)

	for batch := range slices.Chunk(names, maxRemoved) {
		entry := access.Record{Action: "tombstones.expire", Targets: batch, Reason: "too old, or too many"}

		err := e.decideItself(ctx, entry, func(ctx context.Context) error {
			_, _, err := record.Decide(ctx, e.records, func(tx *record.Tx) (any, error) {
				for _, name := range inventory.ExpiredTombstones(record.List(tx, &state.Tombstones), now) {
					if slices.Contains(batch, name) {
						record.Remove(tx, &state.Tombstones, name)
					}
				}

				return nil, nil
			})

			return err
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// inUse returns the runs of jobs that have not ended, and the playbooks of all
// jobs, because an ended job can be retried, and those that configured a node,
// because they clean it, and those of plans that can be applied and of rollouts, which
// may be undone.
func (e *Engine) inUse() (runs, digests []string) {
	v := e.state.View()
	kept := map[string]bool{}

	for _, n := range v.Nodes() {
		for _, digest := range n.Playbooks {
			kept[digest] = true
		}
	}

	for _, t := range record.All(v, &state.Tombstones) {
		for _, digest := range t.Playbooks {
			kept[digest] = true
		}
	}

	for _, p := range record.All(v, &plan.Kind) {
		for _, digest := range p.InUse(time.Now()) {
			kept[digest] = true
		}
	}

	for _, r := range record.All(v, &rollout.Kind) {
		for _, digest := range r.InUse() {
			kept[digest] = true
		}
	}

	for _, j := range v.Jobs() {
		for _, digest := range j.InUse() {
			kept[digest] = true
		}

		if j.Status.Ended() {
			continue
		}

		for i := range j.Runs {
			runs = append(runs, step.RunID(*j, i))
		}
	}

	return runs, slices.Sorted(maps.Keys(kept))
}
