// SPDX-License-Identifier: Apache-2.0

// Package probe has the executor of steps that try an ssh login on their hosts.
package probe

import (
	"context"
	"fmt"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// messageLimit bounds the reason of a host, in bytes.
const messageLimit = 200

// Prober tries to reach hosts by ssh, and changes nothing on them.
type Prober interface {
	// Probe returns a result for each host, in order. It blocks until every host
	// has answered or run into a timeout of some seconds, or ctx ends.
	Probe(ctx context.Context, hosts []configuration.Host) []configuration.Reach
}

// Options are the dependencies of an Executor.
type Options struct {
	State    state.Reader
	Prober   Prober
	Settings func() step.Settings
}

// Executor implements step.Executor.
type Executor struct {
	step.Plain

	o Options
}

var _ step.Executor = Executor{}

// New returns the executor.
func New(o Options) Executor { return Executor{o: o} }

// Run probes the hosts until the job is cancelled or has reached its deadline. It may run again after a crash, because
// it changes nothing.
func (x Executor) Run(ctx context.Context, s step.Step, out step.Events) (step.Result, error) {
	in, err := s.Inputs(ctx)
	if err != nil {
		return step.Result{}, err
	}

	run := s.Run()
	settings, view := x.o.Settings(), x.o.State.View()

	hosts := make([]configuration.Host, len(run.Hosts))
	for i := range run.Hosts {
		hosts[i] = settings.Target(view, s.Job, run, i, in)
	}

	within, cancel := s.Until(ctx)
	defer cancel()

	reached := x.o.Prober.Probe(within, hosts)

	if ctx.Err() != nil {
		return step.Result{}, ctx.Err()
	}

	return result(ctx, s, reached, step.Stopped(within), out)
}

// result writes the failures into the job's output.
func result(
	ctx context.Context, s step.Step, reached []configuration.Reach, stopped job.Cause, out step.Events,
) (step.Result, error) {
	r := step.Result{Hosts: map[string]job.HostResult{}}

	var skipped []string

	for i, name := range s.Run().Hosts {
		t, _ := s.Job.Target(name)
		host := resultOf(reached[i])
		r.Hosts[name] = host

		switch {
		case host.Done:
		case t.Skips(host):
			skipped = append(skipped, name)
		default:
			r.Cause = job.CauseFailed

			if err := out.Line(ctx, fmt.Sprintf("# %s is not reachable: %s", name, host.Message)); err != nil {
				return r, err
			}
		}
	}

	if stopped != "" {
		r.Cause = stopped
		return r, nil
	}

	if len(skipped) == 0 {
		return r, nil
	}

	return r, out.Line(ctx, fmt.Sprintf("# skipped %s without an answer: %s",
		inventory.Count(len(skipped), "address", "addresses"), job.ShortList(skipped)))
}

// resultOf returns the result of the probe for one host.
func resultOf(r configuration.Reach) job.HostResult {
	if r.OK() {
		return job.HostResult{Done: true}
	}

	host := job.HostResult{Unreachable: r.Silent, Message: inventory.Shorten(r.Reason(), messageLimit)}
	if !r.Silent {
		host.Failed = 1
	}
	return host
}
