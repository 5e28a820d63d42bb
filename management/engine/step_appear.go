// SPDX-License-Identifier: Apache-2.0

package engine

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
)

// awaitAppearance is the executor of StepAppear. It waits until every address
// belongs to a Discovered node, and gives the nodes the host keys that the run
// before has recorded. It does not wait if that run broke off.
func (e *Engine) awaitAppearance(ctx context.Context, j job.Job, index int) error {
	run := j.Runs[index]

	// Count from the recorded start, so that a restart does not prolong the wait.
	until := run.Started.Add(e.settings().Appear)
	if j.Deadline.Before(until) {
		until = j.Deadline
	}

	before := j.Runs[index-1].Exit
	broken := before != job.ExitDone && before != string(job.CauseFailed)

	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()

	for {
		changed, v := e.state.Changed(), e.state.View()

		current, err := v.Job(j.ID)
		if err != nil {
			return err
		}

		seen, absent := appeared(v, j, run)

		switch {
		case current.Cancel > 0:
			return e.recordAppearance(ctx, j, index, seen, RunExit{Cause: job.CauseCancelled})
		case len(absent) == 0:
			return e.recordAppearance(ctx, j, index, seen, RunExit{})
		case !time.Now().Before(j.Deadline):
			return e.recordAppearance(ctx, j, index, seen, RunExit{Cause: job.CauseDeadline})
		case broken:
			return e.recordAppearance(ctx, j, index, seen, RunExit{
				Cause:   job.CauseAbsent,
				Message: "not seen when the run before broke off: " + strings.Join(absent, ", "),
			})
		case !time.Now().Before(until):
			return e.recordAppearance(ctx, j, index, seen, RunExit{Cause: job.CauseAbsent, Message: fmt.Sprintf(
				"configured, but not seen within %s: %s; see 'journalctl -u clusterm-agent' there, "+
					"and whether it can reach the gossip port of this host",
				e.settings().Appear, strings.Join(absent, ", "))})
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-timer.C:
		}
	}
}

// appeared returns the node names of the addresses that belong to a Discovered
// node, and the other addresses.
func appeared(v *state.View, j job.Job, run job.Run) (seen map[string]string, absent []string) {
	seen = map[string]string{}
	for _, name := range run.Hosts {
		t, _ := j.Target(name)

		i := slices.IndexFunc(v.Nodes, func(n *inventory.Node) bool {
			return n.Addr == t.Addr && n.State == inventory.Discovered
		})
		if i < 0 {
			absent = append(absent, t.Addr)
			continue
		}

		seen[t.Addr] = v.Nodes[i].Name
	}

	return seen, absent
}

// recordAppearance records the end of the wait.
func (e *Engine) recordAppearance(
	ctx context.Context, j job.Job, index int, seen map[string]string, exit RunExit,
) error {
	// After a takeover, the run before and its keys are on another host.
	keys := map[string][]string{}
	if configured, err := e.runner.Attach(runID(j, index-1)); err == nil {
		if keys, err = configured.HostKeys(); err != nil {
			return err
		}
	}

	// Keys are recorded by address. The nodes have names now.
	named := map[string][]string{}
	for _, addr := range slices.Sorted(maps.Keys(seen)) {
		name := seen[addr]
		given, _ := j.Target(addr)

		if verified := slices.Concat(given.HostKeys, keys[addr]); len(verified) > 0 {
			named[name] = verified
		}

		if _, err := e.logLine(ctx, j, fmt.Sprintf("# %s is node %s", addr, name)); err != nil {
			return err
		}
	}

	if err := e.recordKeys(ctx, named); err != nil {
		return err
	}

	if err := e.noteTakeOver(ctx, j, slices.Sorted(maps.Values(seen))); err != nil {
		return err
	}

	_, err := e.update(ctx, j.ID, func(j *job.Job) {
		run := &j.Runs[index]
		run.Ended, run.Message, run.Exit = time.Now(), exit.Message, string(exit.Cause)

		if exit.Cause == "" {
			run.Exit = job.ExitDone
		}

		run.Results = map[string]job.HostResult{}
		for _, name := range run.Hosts {
			t, _ := j.Target(name)
			r := job.HostResult{Done: seen[t.Addr] != "", Begun: true}

			if !r.Done {
				r.Message = "not seen"
			}

			run.Results[t.Name] = r
		}
	})

	return err
}

// noteTakeOver records in the histories of the nodes that the job may have taken
// them from another manager.
func (e *Engine) noteTakeOver(ctx context.Context, j job.Job, names []string) error {
	if !j.TakeOver {
		return nil
	}

	trigger := inventory.Trigger{Actor: j.Actor, Job: j.ID, Reason: "take-over: " + j.Reason, Time: time.Now()}

	return e.retryUnavailable(ctx, func() error {
		return e.retryConflict(ctx, func(v *state.View) error {
			var writes []state.NodeWrite
			for _, name := range names {
				if n, ok := v.Lookup(name); ok {
					noted, entry := n.Note(j.Verb, trigger)
					writes = append(writes, state.NodeWrite{Node: noted, Entries: []inventory.HistoryEntry{entry}})
				}
			}

			return node.PutNodes(ctx, e.store, writes)
		})
	})
}
