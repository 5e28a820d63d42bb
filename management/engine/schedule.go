// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

const (
	scheduleInterval = 5 * time.Second  // between looks at an unchanged queue
	maxJobBackoff    = 30 * time.Second // longest delay before a failed job is continued
)

// schedule claims jobs and runs them until ctx ends, while this instance leads.
// A job that is Running but
// has no goroutine here belongs to an earlier process, or the answer to its
// claim was lost: it is continued first.
func (e *Engine) schedule(ctx context.Context) {
	retry := time.NewTicker(scheduleInterval)
	defer retry.Stop()

	for {
		// Take the channel first: a change during the work must wake the wait.
		changed := e.state.Changed()

		// Most changes are reports, and most of the time there is nothing to run.
		if e.members.Leads() && e.state.Narrow().Busy() {
			e.resume(ctx)

			if e.advance(ctx) {
				continue // a job was claimed or ended: look again
			}
		}

		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-retry.C:
		}
	}
}

// resume continues every Running job without a goroutine.
func (e *Engine) resume(ctx context.Context) {
	for _, j := range e.state.View().Jobs {
		if j.Status == job.Running && e.launch(ctx, j) {
			e.log.WithFields(logrus.Fields{"job": j.ID, "phase": j.Phase()}).Info("continuing a running job")
		}
	}
}

// advance claims or ends the first queued job that need not wait. It reports whether
// the queue changed.
func (e *Engine) advance(ctx context.Context) bool {
	v, settings := e.state.View(), e.settings()
	hold := settings.Windows.Hold(v, time.Now())

	for _, j := range v.Jobs {
		if j.Status != job.Queued {
			continue
		}

		if ctx.Err() != nil {
			return false
		}

		t := job.TurnOf(v.Snapshot, settings.Groups, settings.JobLimit, j, hold)

		var err error
		switch {
		case t.Err != nil:
			err = e.end(ctx, t.Job, t.Err)
		case t.Claim:
			err = e.claim(ctx, v, t.Job)
		default:
			continue
		}

		if ctx.Err() != nil {
			return false
		}

		log := e.log.WithError(err).WithField("job", j.ID)
		switch inventory.KindOf(err) {
		case "":
			return true
		case inventory.KindConflict:
			// Look again only at a newer view, or the loop would spin.
			return e.state.Sync(ctx) == nil && e.state.View().Revision > v.Revision
		case inventory.KindUnavailable: // the same would happen to the other jobs
			log.Warn("the job could not be claimed; retrying")
			return false
		case inventory.KindInternal: // jobs behind it that need none of its nodes go on
			log.Error("the job could not be claimed; retrying")
		default: // a retry would fail the same way
			log.Warn("the job could not be claimed")

			if e.end(ctx, t.Job, err) == nil {
				return true
			}
		}
	}

	return false
}

// end ends a job that holds no nodes, because its precondition failed.
func (e *Engine) end(ctx context.Context, j job.Job, failed error) error {
	j.Status, j.Cause, j.Message, j.Ended = job.Errored, job.CausePrecondition, failed.Error(), time.Now()
	if err := e.logLine(ctx, j.ID, fmt.Sprintf("# job %s ended %s: %s", j.ID, j.Status, j.Message)); err != nil {
		return err
	}

	record := access.Record{Action: "jobs.end", Targets: j.Names(), Job: j.ID, Reason: j.Message}

	return e.decideItself(ctx, record, func() error {
		_, err := e.store.Finish(ctx, j, nil)
		return err
	})
}

// claim takes all nodes of the job into the in-progress status, or none.
func (e *Engine) claim(ctx context.Context, v *state.View, j job.Job) error {
	// A node may have got the address of another one since the acceptance.
	if err := checkAddrs(v, j); err != nil {
		return err
	}

	now := time.Now()
	j.Status, j.Instance, j.Started, j.Deadline = job.Running, e.self.Node, now, now.Add(j.Timeout)

	j.WithoutVerify = e.withoutVerify(ctx, j)

	writes, err := reserve(v, j, now)
	if err != nil {
		return err
	}

	// The generation guards the group rules: they depend on nodes outside the job.
	claimed, err := e.store.Claim(ctx, v.Generation, j, writes)
	if err != nil {
		return err
	}

	e.log.WithFields(logrus.Fields{"job": j.ID, "verb": j.Verb, "nodes": j.Names()}).Info("job started")
	e.launch(ctx, claimed)

	return nil
}

// reserve returns the writes that take the job's nodes into the in-progress status.
func reserve(v *state.View, j job.Job, now time.Time) ([]state.NodeWrite, error) {
	verb, err := job.VerbOf(j.Verb)
	if err != nil || !verb.Row.ChangesStatus() {
		return nil, err
	}

	var writes []state.NodeWrite
	for _, target := range j.Targets {
		n, ok := v.Lookup(target.Name)
		if !ok {
			return nil, inventory.Errorf(inventory.KindConflict, "%s is gone", target.Name)
		}

		group := ""
		if verb.GroupAtClaim {
			group = target.Group
		}

		trigger := inventory.Trigger{Actor: j.Actor, Job: j.ID, Reason: j.Reason, Time: now}

		held, entry, err := n.Hold(verb.Row, group, trigger)
		if err != nil {
			return nil, err
		}

		writes = append(writes, state.NodeWrite{Node: held, Entries: []inventory.HistoryEntry{entry}})
	}

	return writes, nil
}

// launch runs a job in a goroutine of its own, unless it has one already. It
// reports whether it did.
func (e *Engine) launch(ctx context.Context, j job.Job) bool {
	e.mu.Lock()
	defer e.mu.Unlock()

	if _, launched := e.running[j.ID]; launched {
		return false
	}

	e.running[j.ID] = time.Time{}
	e.tasks.Go(func() {
		defer func() {
			e.mu.Lock()
			delete(e.running, j.ID)
			e.mu.Unlock()
		}()

		e.persevere(ctx, j.ID)
	})

	return true
}

// persevere executes a job until it has ended or ctx ends, with exponential
// backoff between failures.
func (e *Engine) persevere(ctx context.Context, id string) {
	log := e.log.WithField("job", id)
	delays := &backoff.ExponentialBackOff{
		InitialInterval: e.jobBackoff, Multiplier: 2, MaxInterval: maxJobBackoff, RandomizationFactor: 0.2,
	}

	notify := func(err error, _ time.Duration) {
		switch {
		case errors.Is(err, cluster.ErrOwnershipLost):
			delays.Reset() // the job itself has not failed
			log.Warn("the ownership of the job was lost; its run goes on, and so does the job if it is regained")
		case inventory.KindOf(err) == inventory.KindRefused:
			log.WithError(err).Warn("the job cannot be continued here; retrying")
		default:
			log.WithError(err).Error("the job could not be continued; retrying")
		}
	}

	_, _ = backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, e.executeOwned(ctx, id) },
		backoff.WithBackOff(delays), backoff.WithMaxElapsedTime(0), backoff.WithNotify(notify))
}

// executeOwned executes a job as its owner. It returns ErrOwnershipLost if the
// ownership was lost before the job ended.
func (e *Engine) executeOwned(ctx context.Context, id string) error {
	owned, release, err := e.members.Own(ctx, id)
	if err != nil {
		return err
	}
	defer release()

	e.mu.Lock()
	e.running[id] = time.Now()
	e.mu.Unlock()

	err = e.executeRecovered(owned, id)
	if lost := context.Cause(owned); err != nil && errors.Is(lost, cluster.ErrOwnershipLost) {
		return lost // err is only its consequence
	}

	return err
}

// executeRecovered is execute with a panic turned into an error: a fault in one
// job must not end the daemon and with it all other jobs.
func (e *Engine) executeRecovered(ctx context.Context, id string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a fault of clusterm: %v\n%s", p, debug.Stack())
		}
	}()

	return e.execute(ctx, id)
}
