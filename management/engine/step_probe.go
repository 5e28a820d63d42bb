// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// Prober tries to reach hosts by ssh, and changes nothing on them.
type Prober interface {
	// Probe returns a result for each host, in order. It blocks until every host
	// has answered or run into a timeout of some seconds, or ctx ends.
	Probe(ctx context.Context, hosts []configuration.Host) []configuration.Reach
}

// probe is the executor of StepProbe. It may run again after a crash, because it
// changes nothing.
func (e *Engine) probe(ctx context.Context, j job.Job, index int) error {
	run := j.Runs[index]

	var in job.Inputs

	err := e.retryUnavailable(ctx, func() (err error) {
		in, err = e.store.Inputs(ctx, j.ID)
		return err
	})
	if err != nil {
		return err
	}

	hosts := make([]configuration.Host, len(run.Hosts))
	for i, name := range run.Hosts {
		hosts[i] = target(e.state.View(), e.settings(), j, run, i, in, nil, name)
	}

	reached, stopped := e.probeUnlessStopped(ctx, j, hosts)
	if ctx.Err() != nil {
		return ctx.Err()
	}

	return e.recordProbe(ctx, j, index, reached, stopped)
}

// probeUnlessStopped probes the hosts until the job is cancelled or has reached
// its deadline. stopped is the cause of such an end, or "".
func (e *Engine) probeUnlessStopped(
	ctx context.Context, j job.Job, hosts []configuration.Host,
) (reached []configuration.Reach, stopped job.Cause) {
	ctx, cancel := context.WithDeadline(ctx, j.Deadline)
	defer cancel()

	done := make(chan []configuration.Reach, 1)
	go func() { done <- e.prober.Probe(ctx, hosts) }()

	for {
		changed := e.state.Changed()
		if current, err := e.state.View().Job(j.ID); err == nil && current.Cancel > 0 && stopped == "" {
			stopped = job.CauseCancelled

			cancel()
		}

		select {
		case reached = <-done:
			if stopped == "" && ctx.Err() != nil {
				stopped = job.CauseDeadline
			}

			return reached, stopped
		case <-changed:
		}
	}
}

// recordProbe records the end of the probe and writes the result into the job's
// output.
func (e *Engine) recordProbe(
	ctx context.Context, j job.Job, index int, reached []configuration.Reach, stopped job.Cause,
) error {
	run := j.Runs[index]
	results := map[string]job.HostResult{}
	exit := job.ExitDone

	var skipped []string
	for i, name := range run.Hosts {
		t, _ := j.Target(name)
		r := probeResult(reached[i])
		results[name] = r

		switch {
		case r.Done:
		case t.Skips(r):
			skipped = append(skipped, name)
		default:
			exit = string(job.CauseFailed)

			if _, err := e.logLine(ctx, j, fmt.Sprintf("# %s is not reachable: %s", name, r.Message)); err != nil {
				return err
			}
		}
	}

	if stopped != "" {
		exit = string(stopped)
	}

	if len(skipped) > 0 && stopped == "" {
		line := fmt.Sprintf("# skipped %s without an answer: %s",
			inventory.Count(len(skipped), "address", "addresses"), job.ShortList(skipped))
		if _, err := e.logLine(ctx, j, line); err != nil {
			return err
		}
	}

	_, err := e.update(ctx, j.ID, func(j *job.Job) {
		run := &j.Runs[index]
		run.Ended, run.Exit, run.Results = time.Now(), exit, results
	})

	return err
}

// probeResult returns the result of the probe for one host.
func probeResult(r configuration.Reach) job.HostResult {
	if r.OK() {
		return job.HostResult{Done: true}
	}

	result := job.HostResult{Unreachable: r.Silent, Message: inventory.Shorten(r.Reason(), messageLeast)}
	if !r.Silent {
		result.Failed = 1
	}

	return result
}
