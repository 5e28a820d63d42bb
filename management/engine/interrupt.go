// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// Settle makes a restored store that of a manager which waits for an operator: it freezes all changes, and interrupts
// the jobs. Nothing acts then before somebody has compared the records with the hosts, and has lifted the freeze.
func (e *Engine) Settle(ctx context.Context, restored state.Restored) error {
	self := access.Caller{Principal: "clusterm restore"}
	reason := fmt.Sprintf("the store was restored at %s from the backup of %s: what happened since then is not in it",
		restored.At.Format(time.RFC3339), restored.Backup.Format(time.RFC3339))

	return access.Audited(ctx, e.audit, self, access.Record{Action: "backup.restore", Reason: reason},
		func(ctx context.Context, r *access.Record) (err error) {
			_, _, err = record.Decide(ctx, e.records, func(tx *record.Tx) (struct{}, error) {
				record.Put(tx, &window.FreezeKind, &window.Freeze{
					On: true, Since: restored.At, Actor: self.Principal, Reason: reason,
				})
				return struct{}{}, nil
			})
			if err != nil {
				return err
			}

			r.Targets, err = e.Interrupt(ctx, reason)

			return err
		})
}

// Interrupt ends every job that runs, without running anything, and releases its nodes: after a restore nobody knows
// what they have done since. It also ends queued jobs that no freeze would hold. The engine has not started, and no
// other one works with the store. Interrupt returns the numbers of the jobs, and may be repeated.
func (e *Engine) Interrupt(ctx context.Context, reason string) (ids []string, err error) {
	for _, queued := range e.state.View().Jobs() {
		var end func(*job.Job)

		switch {
		case queued.Status == job.Running:
			end = func(j *job.Job) { *j = j.Interrupted(reason) }
		case queued.Status == job.Queued && queued.OverrideWindow && queued.ChangesHosts():
			end = func(j *job.Job) { j.Cause, j.Message = job.CauseInterrupted, reason }
		default:
			continue
		}

		// A record without its log is no reason to leave it Running.
		_, logged := e.logLine(ctx, *queued, fmt.Sprintf("# job %s ended %s: %s", queued.ID, job.Errored, reason))

		if err := e.interrupt(ctx, queued.ID, end); err != nil {
			return ids, errors.Join(err, logged)
		}

		ids = append(ids, queued.ID)
	}

	return ids, nil
}

func (e *Engine) interrupt(ctx context.Context, id string, end func(*job.Job)) error {
	j, err := e.state.View().Job(id)
	if err != nil {
		return err
	}

	// An outcome that was decided is the truth, even if the nodes do not have it yet.
	if j.Outcomes == nil {
		end(&j)
	}

	now := time.Now()
	j.Status, j.Ended = endStatus(j.Cause), now
	_, err = e.storeEnd(ctx, j, release(e.state.View(), j, now))

	if inventory.KindOf(err) == inventory.KindConflict {
		return fmt.Errorf("job %s changed while the store was restored: %w", id, err)
	}

	return err
}
