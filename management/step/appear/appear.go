// SPDX-License-Identifier: Apache-2.0

// Package appear has the executor of steps that wait until their hosts are observed as nodes.
package appear

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// Options are the dependencies of an Executor.
type Options struct {
	State    state.Reader
	Store    node.Putter
	Settings func() step.Settings
	// Keys returns the ssh host keys that a run on this host has recorded, by address; none after it ran elsewhere.
	Keys func(run string) (map[string][]string, error)
}

// Executor implements step.Executor.
type Executor struct {
	step.Plain

	o Options
}

var _ step.Executor = Executor{}

// New returns the executor.
func New(o Options) Executor { return Executor{o: o} }

// Run waits until every address belongs to a Discovered node, and gives the nodes the host keys that the run
// before has recorded. It does not wait if that run broke off.
func (x Executor) Run(ctx context.Context, s step.Step, out step.Events) (step.Result, error) {
	j, run := s.Job, s.Run()

	before := j.Runs[s.Index-1].Exit
	broken := before != job.ExitDone && before != string(job.CauseFailed)

	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		changed := x.o.State.Changed()

		// Count from the recorded start, so that a restart does not prolong the wait.
		now, v := s.Now()
		deadline, until := s.Due(now), s.PutOff(run.Started, run.Started.Add(x.o.Settings().Appear), now)

		current, err := v.Job(j.ID)
		if err != nil {
			return step.Result{}, err
		}

		seen, absent := appeared(v, j, run)

		switch {
		case current.Cancel > 0:
			return x.end(ctx, s, seen, step.Result{Cause: job.CauseCancelled}, out)
		case len(absent) == 0:
			return x.end(ctx, s, seen, step.Result{}, out)
		case !now.Before(deadline):
			return x.end(ctx, s, seen, step.Result{Cause: job.CauseDeadline}, out)
		case broken:
			return x.end(ctx, s, seen, step.Result{
				Cause:   job.CauseAbsent,
				Message: "not seen when the run before broke off: " + strings.Join(absent, ", "),
			}, out)
		case !now.Before(until):
			return x.end(ctx, s, seen, step.Result{Cause: job.CauseAbsent, Message: fmt.Sprintf(
				"configured, but not seen within %s: %s; see 'journalctl -u clusterm-agent' there, "+
					"and whether it can reach the gossip port of this host",
				x.o.Settings().Appear, strings.Join(absent, ", "))}, out)
		}

		if deadline.Before(until) {
			until = deadline
		}

		timer.Reset(until.Sub(now))

		select {
		case <-ctx.Done():
			return step.Result{}, ctx.Err()
		case <-changed:
		case <-timer.C:
		}
	}
}

// appeared returns the names of the Discovered nodes that are targets, or have their addresses, by target, and the
// other targets.
func appeared(v *state.View, j job.Job, run job.Run) (seen map[string]string, absent []string) {
	seen = map[string]string{}
	for _, name := range run.Hosts {
		t, _ := j.Target(name)

		i := slices.IndexFunc(v.Nodes(), func(n *inventory.Node) bool {
			is := n.Name == t.Name
			if j.TakesAddrs() {
				is = n.Addr == t.Addr
			}

			return is && n.State == inventory.Discovered
		})
		if i < 0 {
			absent = append(absent, name)
			continue
		}

		seen[name] = v.Nodes()[i].Name
	}

	return seen, absent
}

// end returns the end of the wait.
func (x Executor) end(
	ctx context.Context, s step.Step, seen map[string]string, r step.Result, out step.Events,
) (step.Result, error) {
	keys, err := x.o.Keys(step.RunID(s.Job, s.Index-1))
	if err != nil {
		return r, err
	}

	// Keys are recorded by target, which may be an address. The nodes have names now.
	r.Keys = map[string][]string{}

	for _, target := range slices.Sorted(maps.Keys(seen)) {
		name := seen[target]
		given, _ := s.Job.Target(target)

		if verified := slices.Concat(given.HostKeys, keys[target]); len(verified) > 0 {
			r.Keys[name] = verified
		}

		line := fmt.Sprintf("# %s is node %s", target, name)
		if name == target {
			line = fmt.Sprintf("# the agent of %s speaks", name)
		}
		if err := out.Line(ctx, line); err != nil {
			return r, err
		}
	}

	r.Hosts = map[string]job.HostResult{}

	for _, name := range s.Run().Hosts {
		host := job.HostResult{Done: seen[name] != ""}
		host.Begun = host.Done

		if !host.Done {
			host.Message = "not seen"
		}

		r.Hosts[name] = host
	}

	return r, x.noteTakeOver(ctx, s.Job, slices.Sorted(maps.Values(seen)))
}

// noteTakeOver records in the histories of the nodes that the job may have taken
// them from another manager.
func (x Executor) noteTakeOver(ctx context.Context, j job.Job, names []string) error {
	if !j.TakeOver {
		return nil
	}

	trigger := inventory.Trigger{Actor: j.Actor, Job: j.ID, Reason: "take-over: " + j.Reason, Time: time.Now()}

	return step.Retry(ctx, func() error {
		return state.RetryConflict(ctx, x.o.State, func(v *state.View) error {
			var writes []state.NodeWrite
			for _, name := range names {
				if n, ok := v.Lookup(name); ok {
					noted, entry := n.Note(j.Verb, trigger)
					writes = append(writes, state.NodeWrite{Node: noted, Entries: []inventory.HistoryEntry{entry}})
				}
			}

			return node.PutNodes(ctx, x.o.Store, writes)
		})
	})
}
