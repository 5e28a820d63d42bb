// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// messageLimit bounds the message of a host in the record of its job, in bytes.
const messageLimit = 600

// Each carries out a task on every host of the step, on at most limit hosts at a time, and reports how it went on each.
// A cancel or the deadline of the job ends the context of do, and no further host is begun.
//
// After a restart of the manager all hosts have their turn again, so do must be idempotent.
func Each(
	ctx context.Context, s Step, out Events, limit int, task string, do func(ctx context.Context, host string) error,
) (Result, error) {
	within, cancel := s.Until(ctx)
	defer cancel()

	hosts := s.Run().Hosts
	results := make([]job.HostResult, len(hosts))
	failures := make([]error, len(hosts))
	slots := make(chan struct{}, max(limit, 1))

	var tasks sync.WaitGroup

	for i, host := range hosts {
		tasks.Go(func() {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-within.Done():
			}

			// Both may be ready.
			if within.Err() == nil {
				results[i], failures[i] = one(ctx, within, out, task, host, do)
			}
		})
	}

	tasks.Wait()

	// The next owner of the job begins the step anew.
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

// one carries out the task on one host. The error is that of the report.
func one(
	ctx, within context.Context, out Events, task, host string, do func(context.Context, string) error,
) (job.HostResult, error) {
	if err := out.Event(ctx, Event{Kind: configuration.EventTask, Target: host, Task: task}); err != nil {
		return job.HostResult{}, err
	}

	begun := time.Now()
	failure := do(within, host)
	end := Event{Kind: configuration.EventOK, Target: host, Task: task, Took: time.Since(begun)}
	result := job.HostResult{Begun: true, Done: true, OK: 1}
	line := host + ": " + task + ": ok"

	if failure != nil {
		end.Kind, end.Message = configuration.EventFailed, failure.Error()
		result = job.HostResult{
			Begun: true, Failed: 1, Task: task, Message: inventory.Shorten(failure.Error(), messageLimit),
		}
		line = host + ": " + task + ": failed: " + failure.Error()
	}

	if err := out.Event(ctx, end); err != nil {
		return result, err
	}

	return result, out.Line(ctx, line)
}
