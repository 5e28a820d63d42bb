// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// messageLimit bounds the message of a host in the record of its job, in bytes.
const messageLimit = 600

// Task is what a step does on each of its hosts.
type Task struct {
	Name  string
	Limit int // of hosts at a time
	// Once: it must not be done twice on a host, so its begin is recorded first. After a restart of the manager, a host
	// that was begun and has no result fails. Any other task must be idempotent.
	Once bool
	// Pause is the least time from the begin on a host to that on the next one.
	Pause time.Duration
	// PerPart is the number of hosts at a time of those with the same Part; 0: no further limit.
	PerPart int
	Part    func(host string) string
	Do      func(ctx context.Context, host string) error
}

// Each carries out a task on every host of the step, on at most limit hosts at a time. See Task.Each.
func Each(
	ctx context.Context, s Step, out Events, limit int, task string, do func(ctx context.Context, host string) error,
) (Result, error) {
	return Task{Name: task, Limit: limit, Do: do}.Each(ctx, s, out)
}

// Each carries out the task on every host of the step, and reports how it went on each. A cancel or the deadline of the
// job ends the context of Do, and no further host is begun.
//
// After a restart of the manager, hosts with a recorded result keep it, and the others have their turn again.
func (t Task) Each(ctx context.Context, s Step, out Events) (Result, error) {
	within, cancel := s.Until(ctx)
	defer cancel()

	hosts := s.Run().Hosts
	results := make([]job.HostResult, len(hosts))
	failures := make([]error, len(hosts))
	turns := t.turns(s)
	kept := &journal{out: out}

	recording, stop := context.WithCancel(ctx)
	defer stop()

	var tasks, recorder sync.WaitGroup

	recorder.Go(func() { kept.keep(recording) })

	for i, host := range hosts {
		before := s.Run().Results[host]
		if before.Done || before.Failed > 0 {
			results[i] = before
			continue
		}

		on := hostTask{Task: t, host: host, interrupted: t.Once && before.Begun, out: out, kept: kept}

		tasks.Go(func() {
			if !on.interrupted {
				defer turns.take(within, host)()
			}

			// The turn may have come with the end.
			if within.Err() == nil || on.interrupted {
				results[i], failures[i] = on.do(ctx, within)
			}
		})
	}

	tasks.Wait()
	stop()
	recorder.Wait()

	// The next owner of the job goes on with the step.
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}

	r := Result{Cause: Stopped(within), Hosts: make(map[string]job.HostResult, len(hosts))}

	for i, host := range hosts {
		if failures[i] != nil {
			return Result{}, failures[i]
		}

		if r.Hosts[host] = results[i]; !results[i].Done {
			r.Cause = cmp.Or(r.Cause, job.CauseFailed)
		}
	}

	return r, nil
}

// turns says when a host has its turn.
type turns struct {
	all   chan struct{}
	parts map[string]chan struct{} // by host; nil: no limit
	pace  *rate.Limiter
}

func (t Task) turns(s Step) turns {
	u := turns{all: make(chan struct{}, max(t.Limit, 1)), pace: rate.NewLimiter(rate.Every(t.Pause), 1)}

	// The process before this one may have begun a host just now.
	if len(s.Run().Results) > 0 {
		u.pace.Allow()
	}

	if t.PerPart == 0 {
		return u
	}

	u.parts = map[string]chan struct{}{}
	of := map[string]chan struct{}{}

	for _, host := range s.Run().Hosts {
		part := t.Part(host)
		if of[part] == nil {
			of[part] = make(chan struct{}, t.PerPart)
		}
		u.parts[host] = of[part]
	}

	return u
}

// take waits until the host has its turn, or ctx ends. It returns how the turn is given back.
func (u turns) take(ctx context.Context, host string) (give func()) {
	var taken []chan struct{}

	// A host that waits for its part must not keep the others waiting.
	for _, slots := range []chan struct{}{u.parts[host], u.all} {
		if slots == nil {
			continue
		}

		select {
		case slots <- struct{}{}:
			taken = append(taken, slots)
		case <-ctx.Done():
		}
	}

	_ = u.pace.Wait(ctx) // the caller looks at the context

	return func() {
		for _, slots := range taken {
			<-slots
		}
	}
}

// hostTask is a task on one host.
type hostTask struct {
	Task

	host        string
	interrupted bool // an earlier process has begun it, and has recorded no result
	out         Events
	kept        *journal
}

// untouched is a failure of a task that has changed nothing on its host.
type untouched struct{ error }

func (u untouched) Unwrap() error { return u.error }

// Untouched returns the failure of a task that has changed nothing on its host.
func Untouched(err error) error {
	if err == nil {
		return nil
	}
	return untouched{err}
}

// errInterrupted is the failure of a task that must not be done twice.
var errInterrupted = errors.New("the manager ended while this was under way; it may or may not have happened, and is " +
	"not repeated by itself: look at the node, then retry")

// do carries the task out, and reports it. The error is that of the report.
func (t hostTask) do(ctx, within context.Context) (job.HostResult, error) {
	if err := t.out.Event(ctx, Event{Kind: configuration.EventTask, Target: t.host, Task: t.Name}); err != nil {
		return job.HostResult{}, err
	}

	begun := time.Now()

	failure := errInterrupted
	if !t.interrupted {
		if t.Once {
			if err := t.kept.write(ctx, t.host, job.HostResult{Begun: true}); err != nil {
				return job.HostResult{}, err
			}
		}
		failure = t.Do(within, t.host)
	}

	// A call that ended with the ownership of the job has no result.
	if ctx.Err() != nil {
		return job.HostResult{}, ctx.Err()
	}

	end := Event{Kind: configuration.EventOK, Target: t.host, Task: t.Name, Took: time.Since(begun)}
	result := job.HostResult{Begun: true, Done: true, OK: 1}
	line := t.host + ": " + t.Name + ": ok"

	if failure != nil {
		end.Kind, end.Message = configuration.EventFailed, failure.Error()
		_, untouched := errors.AsType[untouched](failure)
		result = job.HostResult{
			Begun: !untouched, Failed: 1, Task: t.Name, Message: inventory.Shorten(failure.Error(), messageLimit),
		}
		line = t.host + ": " + t.Name + ": failed: " + failure.Error()
	}

	if t.Once {
		if err := t.kept.write(ctx, t.host, result); err != nil {
			return result, err
		}
	} else {
		t.kept.add(t.host, result)
	}

	if err := t.out.Event(ctx, end); err != nil {
		return result, err
	}

	return result, t.out.Line(ctx, line)
}
