// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

const (
	scheduleInterval = 5 * time.Second  // between looks at an unchanged queue
	maxJobBackoff    = 30 * time.Second // longest delay before a failed job is continued
)

// schedule returns the leader's loop, which claims jobs, and assigns them to instances. What the
// former leader has begun must be seen first.
func (e *Engine) schedule(ctx context.Context) *control.Loop {
	return control.New(control.Options{
		Name:    "queue of jobs",
		Duty:    e.members.Leads,
		Begin:   e.state.Sync,
		Changed: e.state.Changed,
		Every:   scheduleInterval,
		Round: func(context.Context) (control.Next, error) {
			// Most changes are reports, and most of the time there is nothing to run.
			if !e.state.View().Busy() {
				return control.Next{}, nil
			}

			err := e.reassign(ctx)
			e.advance(ctx)

			return control.Next{}, err
		},
		Trouble: "the queue of jobs waits for the store",
		Logger:  e.log,
	})
}

// own returns the loop that runs the jobs that are assigned to this instance, under ctx. One that is Running without a
// goroutine here was begun by an earlier process, or was assigned by the leader.
func (e *Engine) own(ctx context.Context) *control.Loop {
	return control.New(control.Options{
		Name:    "jobs of this instance",
		Changed: e.state.Changed,
		Every:   scheduleInterval,
		Round: func(context.Context) (control.Next, error) {
			v := e.state.View()
			e.outages.Note(v.Stale, time.Now())

			for _, j := range v.Jobs() {
				if e.isMine(j) && e.launch(ctx, j.ID) && len(j.Runs) > 0 {
					e.log.WithFields(logrus.Fields{"job": j.ID, "phase": j.Phase()}).Info("continuing a running job")
				}
			}

			return control.Next{}, nil
		},
		Logger: e.log,
	})
}

// isMine reports whether this instance is to run the job.
func (e *Engine) isMine(j *job.Job) bool { return j.Status == job.Running && j.Instance == e.self.Node }

// advance begins to claim or to end the queued jobs that need not wait. Each of them has a
// goroutine of its own: a large claim delays no other.
func (e *Engine) advance(ctx context.Context) {
	// Take the claims first: one that ends in between is in the view.
	claiming := e.claimsUnderWay()
	v, settings := e.state.View(), e.settings()
	hold := settings.hold(v, time.Now())
	runners := e.runners(v, v, claiming)

	for t := range job.Turns(v.Snapshot, settings.Groups, settings.JobLimit, claiming, hold) {
		if ctx.Err() != nil {
			return
		}

		if _, already := claiming[t.Job.ID]; already {
			continue
		}

		if t.Err == nil {
			t.Job.Instance = runners.choose(t.Job)
		}

		e.mu.Lock()
		e.claiming[t.Job.ID] = t
		e.mu.Unlock()

		e.tasks.Go(func() {
			again := e.carryOut(ctx, v, t)

			e.mu.Lock()
			delete(e.claiming, t.Job.ID)
			e.mu.Unlock()

			if again {
				e.scheduling.Kick()
			}
		})
	}
}

// claimsUnderWay returns the decisions about queued jobs that are being carried out.
func (e *Engine) claimsUnderWay() map[string]job.Turn {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.claiming)
}

// carryOut claims or ends a queued job. It reports whether to look at the queue again.
func (e *Engine) carryOut(ctx context.Context, v *state.View, t job.Turn) bool {
	var err error
	if t.Err != nil {
		err = e.end(ctx, t.Job, t.Err)
	} else {
		err = e.claim(ctx, v, t)
	}

	if ctx.Err() != nil {
		return false
	}

	log := e.log.WithError(err).WithField("job", t.Job.ID)
	switch inventory.KindOf(err) {
	case "":
		return true
	case inventory.KindConflict:
		// Look again only at a newer view, or the loop would spin.
		return e.state.Sync(ctx) == nil && e.state.View().Revision > v.Revision
	case inventory.KindUnavailable, inventory.KindInternal:
		log.Warn("the job could not be claimed; retrying")
		return e.settle(ctx, v, t.Job.ID)
	default: // a retry would fail the same way
		log.Warn("the job could not be claimed")
		return e.end(ctx, t.Job, err) == nil
	}
}

// settle waits until it is definite whether a claim without an answer was made: the store may
// still carry it out. A write of the queued job succeeds, and the claim never will, or it is
// a conflict, because the claim came first. Until then the job counts as if it ran.
func (e *Engine) settle(ctx context.Context, v *state.View, id string) bool {
	queued, err := v.Job(id)
	if err != nil {
		return false
	}

	write := func() (struct{}, error) {
		_, err := record.Replace(ctx, e.records, &job.Kind, id, queued.Revision, &queued)

		// Everything else is an answer.
		switch inventory.KindOf(err) {
		case inventory.KindUnavailable, inventory.KindInternal:
			return struct{}{}, err
		default:
			return struct{}{}, nil
		}
	}

	delays := &backoff.ExponentialBackOff{
		InitialInterval: e.jobBackoff, Multiplier: 2, MaxInterval: maxJobBackoff, RandomizationFactor: 0.2,
	}

	// Only the end of the engine ends it: it runs in the task of the claim.
	_, err = backoff.Retry(ctx, write, backoff.WithBackOff(delays), backoff.WithMaxElapsedTime(0))

	return err == nil && e.state.Sync(ctx) == nil
}

// end ends a job that holds no nodes, because its precondition failed.
func (e *Engine) end(ctx context.Context, j job.Job, failed error) error {
	j.Status, j.Cause, j.Message, j.Ended = job.Errored, job.CausePrecondition, failed.Error(), time.Now()
	j.Instance = "" // none has begun it
	if _, err := e.logLine(ctx, j, fmt.Sprintf("# job %s ended %s: %s", j.ID, j.Status, j.Message)); err != nil {
		return err
	}

	record := access.Record{Action: "jobs.end", Targets: j.Names(), Job: j.ID, Reason: j.Message}

	return e.decideItself(ctx, record, func(ctx context.Context) error {
		_, err := e.storeEnd(ctx, j, nil)
		return err
	})
}

// completeClaim has the executors of the job look at it once more.
func (e *Engine) completeClaim(ctx context.Context, j *job.Job) error {
	executors, err := e.executorsOf(j.Verb)

	for _, executor := range executors {
		if c, ok := executor.(step.Claimer); ok {
			c.Claim(ctx, j)
		}
	}

	return err
}

// claim takes all nodes of the job into the in-progress status, or none.
func (e *Engine) claim(ctx context.Context, v *state.View, t job.Turn) error {
	j := t.Job

	// A node may have got the address of another one since the acceptance.
	if err := checkAddrs(v, j); err != nil {
		return err
	}

	now := time.Now()
	j.Status, j.Started, j.Deadline = job.Running, now, now.Add(j.Timeout)

	if err := e.completeClaim(ctx, &j); err != nil {
		return err
	}

	writes, err := reserve(v, j, now)
	if err != nil {
		return err
	}

	// The rules, the budgets and the helpers depend on nodes outside of the job.
	claimed, err := e.store.Claim(ctx, state.Claim{
		Job: j, Writes: writes, Revision: v.Revision, Uses: t.Footprint.Uses,
	})
	if err != nil {
		return err
	}

	e.log.WithFields(logrus.Fields{
		"job": j.ID, "verb": j.Verb, "nodes": j.Names(), "instance": j.Instance,
	}).Info("job started")

	if e.isMine(&claimed) {
		e.launch(ctx, claimed.ID)
	}

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
func (e *Engine) launch(ctx context.Context, id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()

	if _, launched := e.running[id]; launched {
		return false
	}

	e.running[id] = time.Time{}
	e.tasks.Go(func() {
		defer func() {
			e.mu.Lock()
			delete(e.running, id)
			e.mu.Unlock()
		}()

		e.persevere(ctx, id)
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
	var (
		owned   context.Context
		release func()
	)

	err := e.retryConflict(ctx, func(v *state.View) error {
		j, err := v.Job(id)
		if err != nil || !e.isMine(&j) {
			return backoff.Permanent(cluster.ErrOwnershipLost)
		}
		owned, release, err = e.members.Own(ctx, id, j.Revision)
		return err
	})
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
