// SPDX-License-Identifier: Apache-2.0

// Package step is the contract between the engine, which carries jobs out, and the executors of their steps. A kind of
// step is a value: its executor, which the daemon hands to the engine under the name that verbs give to their steps.
//
// The engine schedules and claims jobs, plans their steps, owns them, keeps their logs, and turns results into outcomes
// of nodes. An executor knows how one kind of step is done, and what that needs. See README.md.
package step

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// Executor carries out one kind of step. All methods may be called at once.
//
// The context of Run and Adopt ends when this instance no longer owns the job, or stops. They return its error then,
// and another call, perhaps by another process or instance, continues the step. After an error, the call is repeated.
type Executor interface {
	// Prepare is asked before a job with such steps is accepted. It refuses what could not run, and returns how the
	// result is pinned. It may block for seconds.
	Prepare(ctx context.Context, r Request) (Pin, error)
	// Run carries out a step nothing of which has begun, and returns at its end.
	Run(ctx context.Context, s Step, out Events) (Result, error)
	// Adopt continues what an earlier process has begun, and returns at its end. If there is nothing to continue, it
	// returns ErrNotBegun or ErrNotHere, and Run is called.
	Adopt(ctx context.Context, s Step, out Events) (Result, error)
	// Describe names what a step does, in a few words, for the headline of its output; "": its phase says it all.
	Describe(s job.Step) string
}

// Claimer is implemented by executors that look at a job once more when its turn has come.
type Claimer interface {
	// Claim completes the job before its nodes are taken.
	Claim(ctx context.Context, j *job.Job)
}

// Recorder is implemented by executors that add to the record of a run before it begins.
type Recorder interface {
	// Record completes the run, which is about to be stored.
	Record(ctx context.Context, v *state.View, j job.Job, run *job.Run) error
}

// Executors are the executors by the kind of step that they carry out.
type Executors map[job.StepKind]Executor

// Of returns the executors of the steps that the verb may have.
func (x Executors) Of(v job.Verb) ([]Executor, error) {
	all := make([]Executor, 0, len(v.Steps))

	for _, kind := range v.Steps {
		executor, err := x.Get(kind)
		if err != nil {
			return nil, err
		}
		all = append(all, executor)
	}

	return all, nil
}

// Get returns the executor of a kind of step.
func (x Executors) Get(kind job.StepKind) (Executor, error) {
	if executor, ok := x[kind]; ok {
		return executor, nil
	}
	return nil, inventory.Errorf(inventory.KindInternal, "this manager has no executor for steps of the kind %q", kind)
}

// Request is a job that is about to be accepted.
type Request struct {
	View *state.View
	Job  job.Job // as it would be accepted on the view
	// Extra are the variables of the request: those of playbooks, and the arguments of other executors.
	Extra configuration.Vars
	// Playbooks chooses the playbooks, if a plan, a rollout or a retry is bound to some; nil: those of today.
	Playbooks func(context.Context) (digest string, err error)
}

// Pin adds to a job what was prepared for it. It is called on the newest view, and again if that changed before the job
// was stored. nil pins nothing.
type Pin func(ctx context.Context, v *state.View, j *job.Job) error

// ErrNotBegun is returned by Adopt: nothing of the step has begun, or it is begun anew without harm.
var ErrNotBegun = errors.New("the step has not begun")

// ErrNotHere is returned by Adopt: nothing of the step has begun on this host. What another instance began on its host
// may go on until its lease is over, unless the run is bound to the ownership; the engine waits for that.
var ErrNotHere = errors.New("the step has not begun on this host")

// Step is a step of a Running job whose run is recorded.
type Step struct {
	Job   job.Job // when the call was made
	Index int     // of the run in Job.Runs

	state   state.Reader
	inputs  Archive
	outages *state.Outages // may be nil
}

// New returns the step of the run at the index of the job.
func New(r state.Reader, a Archive, j job.Job, index int) Step {
	return Step{Job: j, Index: index, state: r, inputs: a}
}

// Counting returns the step with a deadline that does not count the outages of the store.
func (s Step) Counting(o *state.Outages) Step {
	s.outages = o
	return s
}

// Now returns the time and the newest view.
func (s Step) Now() (time.Time, *state.View) {
	now, v := time.Now(), s.state.View()
	s.outages.Note(v.Stale, now)

	return now, v
}

// PutOff returns the end of a wait that began at some time. Outages of the store put it off: nobody could see what is
// waited for.
func (s Step) PutOff(began, end, now time.Time) time.Time {
	return end.Add(s.outages.Between(began, now))
}

// Due returns the deadline of the step as it is now.
func (s Step) Due(now time.Time) time.Time { return s.PutOff(s.Job.Counted(), s.Job.Due(), now) }

// Inputs reads the values that the job was accepted with, and repeats that while the store is unavailable.
func (s Step) Inputs(ctx context.Context) (job.Inputs, error) {
	return InputsOf(ctx, s.inputs, s.Job.ID)
}

// View returns the newest view.
func (s Step) View() *state.View { return s.state.View() }

// Run returns the record of the step: its phase, and its hosts with their groups.
func (s Step) Run() job.Run { return s.Job.Runs[s.Index] }

// ID returns the id of the run, which is never reused.
func (s Step) ID() string { return RunID(s.Job, s.Index) }

// RunID returns the id of the run at the index of the job.
func RunID(j job.Job, index int) string { return fmt.Sprintf("%s-%d", j.ID, index) }

// stopped is the cause of a context that ends because the job is to stop.
type stopped struct{ job.Cause }

func (s stopped) Error() string { return "the job is to stop: " + string(s.Cause) }

// Until returns a context that also ends when the job is cancelled at this step, or has reached its deadline; see
// Stopped.
func (s Step) Until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)

	go func() {
		timer := time.NewTimer(0)
		defer timer.Stop()

		for ctx.Err() == nil {
			changed := s.state.Changed()

			now, v := s.Now()
			if j, err := v.Job(s.Job.ID); err == nil && j.Cancels(s.Run()) {
				cancel(stopped{job.CauseCancelled})
			}

			left := s.Due(now).Sub(now)
			if left <= 0 {
				cancel(stopped{job.CauseDeadline})
			}

			timer.Reset(left)

			select {
			case <-ctx.Done():
			case <-timer.C:
			case <-changed:
			}
		}
	}()

	return ctx, func() { cancel(context.Canceled) }
}

// Stopped returns why a context of Until has ended, if it is the end of the job; else "".
func Stopped(ctx context.Context) job.Cause {
	s, _ := errors.AsType[stopped](context.Cause(ctx))
	return s.Cause
}

// Result is the end of a step.
type Result struct {
	Cause    job.Cause // "": it succeeded on every host
	Message  string    // explains the cause
	Code     int       // exit status of a program
	NotBegun bool      // it is known that no host was touched
	Lost     bool      // it ended because this instance lost the job
	// Hosts has the result of each host of the run, and of each other one that was acted on.
	Hosts map[string]job.HostResult
	// Keys are the ssh host keys of first contacts, by node. The engine stores them with nodes without one.
	Keys map[string][]string
}

// Events takes what a step reports. All methods may be called at once, and block while the store is unavailable.
type Events interface {
	// Line adds a line to the text of the job.
	Line(ctx context.Context, text string) error
	// Event adds an event to the events of the job.
	Event(ctx context.Context, e Event) error
	// Results records results of hosts before the end of the step; Begun alone: what becomes of the host is not known
	// yet. After a restart, they are in the record of the run.
	Results(ctx context.Context, hosts map[string]job.HostResult) error
	// Copy copies a stream of a program into that of the job byte for byte, from where an earlier process ended. tail
	// emits the stream from the offset on, to its end.
	Copy(ctx context.Context, s job.Stream, tail Tail) error
}

// Tail emits a stream from the offset on, until it has ended and everything is emitted.
type Tail func(ctx context.Context, s job.Stream, offset int64, emit func([]byte) error) error

// Event is an event of a step. Fields that do not apply are empty.
type Event struct {
	Kind    configuration.EventKind
	Target  string // a host of the run
	Task    string
	Message string // why the task failed, or how far it is
	Took    time.Duration
}

// Plain is embedded by executors that need nothing at acceptance, and begin anew after a restart.
type Plain struct{}

// Prepare accepts every job.
func (Plain) Prepare(context.Context, Request) (Pin, error) { return nil, nil }

// Adopt returns ErrNotBegun.
func (Plain) Adopt(context.Context, Step, Events) (Result, error) { return Result{}, ErrNotBegun }

// Describe returns "".
func (Plain) Describe(job.Step) string { return "" }
