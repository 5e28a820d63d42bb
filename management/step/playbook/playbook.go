// SPDX-License-Identifier: Apache-2.0

// Package playbook has the executor of steps that run a playbook: what a job of playbooks needs at its acceptance, the
// run under supervision, and its results. The programs behind it are the daemon's.
package playbook

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// Options are the dependencies of an Executor.
type Options struct {
	State     state.Reader
	Inputs    step.Archive
	Runner    Runner
	Playbooks Playbooks
	Content   Content
	Sources   Sources // nil: no variable has a source outside
	Settings  func() step.Settings
	Logger    logrus.FieldLogger
}

// Executor implements step.Executor. Its Playbooks are those that jobs pin.
type Executor struct {
	Playbooks

	o Options
}

var (
	_ step.Executor = (*Executor)(nil)
	_ step.Claimer  = (*Executor)(nil)
	_ step.Recorder = (*Executor)(nil)
)

// New returns the executor.
func New(o Options) *Executor {
	return &Executor{Playbooks: o.Playbooks, o: o}
}

// Keep reports whether the playbooks with that digest are on this host.
// If they are not, it restores them, if that is possible.
func (x *Executor) Keep(ctx context.Context, digest string) (bool, error) {
	if x.Kept(ctx, digest) {
		return true, nil
	}
	return x.Restore(ctx, digest)
}

// HostKeys returns the ssh host keys that a run on this host has recorded, by host; none if there is no such run.
func (x *Executor) HostKeys(run string) (map[string][]string, error) {
	active, err := x.o.Runner.Attach(run)
	if err != nil {
		return nil, nil //nolint:nilerr // after a takeover, the run and its keys are on another host
	}
	return active.HostKeys()
}

// Describe returns the file of the playbook.
func (*Executor) Describe(s job.Step) string { return s.Playbook }

// Adopt supervises the run that an earlier process has started.
func (x *Executor) Adopt(ctx context.Context, s step.Step, out step.Events) (step.Result, error) {
	active, err := x.o.Runner.Attach(s.ID())

	switch {
	case err == nil:
		return x.supervise(ctx, s, active, out)
	case errors.Is(err, ErrNeverStarted):
		return step.Result{}, step.ErrNotHere
	case time.Now().Before(s.Job.Due()):
		// The run may go on, so a failure to read its files is no end of it.
		return step.Result{}, err
	}

	return resultOf(s, *interrupted("its files cannot be read: " + err.Error()), nil), nil
}

// Run starts the run and supervises it.
func (x *Executor) Run(ctx context.Context, s step.Step, out step.Events) (step.Result, error) {
	run := s.Run()

	if s.Job.Cancels(run) {
		exit := &RunExit{Cause: job.CauseCancelled, Message: "cancelled before it began here"}
		return resultOf(s, *exit.notBegun(run), nil), nil
	}

	// An outage of the store is no fault of the job, within its deadline.
	spec, err := x.spec(ctx, s)
	if err != nil {
		if inventory.KindOf(err) == inventory.KindUnavailable && time.Now().Before(s.Job.Deadline) || ctx.Err() != nil {
			return step.Result{}, err
		}
		return resultOf(s, *startFailed(&NotBegunError{job.CauseInternal, err}, run), nil), nil
	}

	// Another instance may own the job by now.
	if ctx.Err() != nil {
		return step.Result{}, ctx.Err()
	}

	// A stop of the daemon must not interrupt a start: the runner outlives the
	// daemon, and the start has a deadline of its own.
	active, err := x.o.Runner.Start(context.WithoutCancel(ctx), spec)

	switch {
	case ctx.Err() != nil:
		return step.Result{}, ctx.Err()
	case err != nil:
		return resultOf(s, *startFailed(err, run), nil), nil
	}

	return x.supervise(ctx, s, active, out)
}

// startFailed returns the exit to record for a failed start. Unless it is known
// that the playbook was not executed, the run was interrupted.
func startFailed(err error, run job.Run) *RunExit {
	message := "the runner did not start: " + err.Error()

	e, known := errors.AsType[*NotBegunError](err)
	if !known {
		return interrupted(message)
	}
	return (&RunExit{Cause: e.Cause, Message: message}).notBegun(run)
}

func interrupted(message string) *RunExit {
	return &RunExit{Cause: job.CauseInterrupted, Message: message, Incomplete: true}
}

// notBegun marks the exit of a run that did not begin here. It may have begun
// before another instance lost the job.
func (x *RunExit) notBegun(run job.Run) *RunExit {
	x.NotBegun, x.Incomplete = !run.TakenOver, run.TakenOver
	return x
}

// supervise renews the lease of a run, copies its output and returns its result.
// All tasks end with this call.
func (x *Executor) supervise(ctx context.Context, s step.Step, active Run, out step.Events) (step.Result, error) {
	within, release := context.WithCancel(ctx)

	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer release()

	tasks.Go(func() { x.renew(within, s.Job.ID, s.Run(), active) })

	streams := []job.Stream{job.StreamText, job.StreamEvents}
	copied := make(chan error, len(streams))

	for _, stream := range streams {
		tasks.Go(func() { copied <- out.Copy(within, stream, active.Tail) })
	}

	// Copy everything before the step ends: a follower stops at the end of the job.
	exit, err := active.Wait(ctx)
	if err != nil {
		return step.Result{}, err
	}

	for range streams {
		if err := <-copied; err != nil {
			return step.Result{}, err
		}
	}

	return x.result(ctx, s, exit, active), nil
}

// boundMargin is how long before the end of the ownership a bound run ends: more than its runner needs for that.
const boundMargin = 2 * time.Second

// lease returns how long a run may go on without a renewal. A bound one has ended when another instance can own the
// job.
func (x *Executor) lease(ctx context.Context, run job.Run) time.Time {
	until := time.Now().Add(x.o.Settings().Lease)

	if owned := cluster.OwnedUntil(ctx); run.Bound && !owned.IsZero() && owned.Add(-boundMargin).Before(until) {
		until = owned.Add(-boundMargin)
	}

	return until
}

// renew extends the runner's lease, and passes a cancel on, until ctx ends. ctx ends with the ownership of the job.
func (x *Executor) renew(ctx context.Context, id string, run job.Run, active Run) {
	every := max(x.o.Settings().Lease/4, time.Second)
	if run.Bound {
		every = time.Second
	}

	tick := time.NewTicker(every)
	defer tick.Stop()

	log := x.o.Logger.WithField("job", id)
	passed := 0 // cancel requests that were passed on

	pending := func(j job.Job) bool { return j.Cancels(run) && passed < j.Cancel }

	for {
		changed, v := x.o.State.Changed(), x.o.State.View()

		// While the store does not answer, the job may get another owner, which waits for the lease of a run that is
		// not bound.
		if (run.Bound || !v.Stale) && cluster.Owned(ctx) {
			if err := active.Renew(x.lease(ctx, run)); err != nil {
				log.WithError(err).Warn("the runner's lease could not be renewed")
			}
		}

		if j, err := v.Job(id); err == nil && pending(j) {
			if err := active.Cancel(ctx); err != nil {
				log.WithError(err).Warn("the cancel could not be passed to the runner")
			} else {
				passed = j.Cancel
			}
		}

		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				waiting = false
			case <-changed:
				changed = x.o.State.Changed()
				j, err := x.o.State.View().Job(id)
				waiting = err == nil && !pending(j)
			}
		}
	}
}
