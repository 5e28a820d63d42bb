// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// newGroupBench returns a bench with variables and ssh parameters of their own for each group.
func newGroupBench(t *testing.T, change ...func(*bench)) *bench {
	t.Helper()

	b := newBench(t, append(change, func(b *bench) {
		b.settings.Vars = configuration.Vars{"file": "site"}
		b.settings.Connections = map[string]configuration.Connection{
			master: {User: "masters", KeyFile: "/masters"}, worker: {User: "workers", KeyFile: "/workers"},
		}
	})...)
	b.see("a b")
	b.setFile(state.ScopeGlobal, "global")
	b.setFile(state.ScopeGroup(master), "master")
	b.setFile(state.ScopeGroup(worker), "worker")
	b.do(commission, "a b", master, "Complete")

	return b
}

func (b *bench) setFile(scope state.Scope, value string) {
	b.t.Helper()
	_, _, err := b.SetVars(b.t.Context(), scope, configuration.Vars{"file": value}, "anna", nil)
	b.must(err)
}

// files returns the runs since the first ones: the playbook of each, and for each target its variable file
// and its ssh user, which must be of the same group as the key.
func (b *bench) files(since int) string {
	b.t.Helper()

	var runs []string

	for _, spec := range b.books.started()[since:] {
		var targets []string

		for _, h := range spec.Hosts {
			if h.Role != configuration.RoleTarget {
				continue
			}

			targets = append(targets, fmt.Sprintf(" %s %v %s", h.Label, h.Vars["file"].Value, h.Connection.User))

			if h.Connection.KeyFile != "/"+h.Connection.User {
				b.t.Errorf("%s of %s has the key %s", spec.Playbook, h.Name, h.Connection.KeyFile)
			}
		}

		slices.Sort(targets)

		name, _, _ := strings.Cut(spec.Playbook, ".")
		runs = append(runs, name+strings.Join(targets, ","))
	}

	return strings.Join(runs, "; ")
}

// TestVariablesOfTheCleanedGroup: each cleanup has the variables and the ssh parameters of the group that
// it cleans, whatever group the node is in or enters.
func TestVariablesOfTheCleanedGroup(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name string
		do   func(*bench)
		want string
	}{
		{
			"residue", func(b *bench) {
				b.books.on(job.PlaybookCleanup, failsOn("a-1"))
				b.do(decommission, "a", "", "Complete")
				b.books.on(job.PlaybookCleanup, succeeds)
				b.do(decommission, "a", "", "Complete")
			},
			"cleanup a master masters; cleanup a master masters",
		},
		{
			"commission with residue", func(b *bench) {
				b.books.on(job.PlaybookCleanup, failsOn("a-1"))
				b.do(decommission, "a", "", "Complete")
				b.books.on(job.PlaybookCleanup, succeeds)
				b.do(commission, "a", worker, "Complete")
			},
			"cleanup a master masters; cleanup a master masters; site a worker workers",
		},
		{
			"residue of a node with variables", func(b *bench) {
				b.books.on(job.PlaybookCleanup, failsOn("a-1"))
				b.do(decommission, "a", "", "Complete")
				b.books.on(job.PlaybookCleanup, succeeds)
				b.setFile(state.ScopeNode("a-1"), "node")
				b.do(decommission, "a", "", "Complete")
			},
			"cleanup a master masters; cleanup a node masters",
		},
		{
			"update to another group", func(b *bench) { b.do(update, "a", worker, "Complete") },
			"cleanup a master masters; site a worker workers",
		},
		{
			"failed cleanup of an update", func(b *bench) {
				b.books.on(job.PlaybookCleanup, failsOn("a-1"))
				b.do(update, "a", worker, "Errored failed")
				b.books.on(job.PlaybookCleanup, succeeds)
				b.do(clearing, "a", "", "Complete")
			},
			"cleanup a master masters; cleanup a master masters; cleanup a master masters",
		},
		{
			"failed update", func(b *bench) {
				b.books.on(job.PlaybookSite, failsOn("a-1"))
				b.do(update, "a", worker, "Errored failed")
			},
			"cleanup a master masters; site a worker workers; cleanup a worker workers",
		},
		{
			"failed commission", func(b *bench) {
				b.do(decommission, "a", "", "Complete")
				b.books.on(job.PlaybookSite, failsOn("a-1"))
				b.do(commission, "a", worker, "Errored failed")
			},
			"cleanup a master masters; site a worker workers; cleanup a worker workers",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newGroupBench(t)
			since := len(b.books.started())
			c.do(b)

			if got := b.files(since); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

// TestVariablesOfTheCleanedGroupArePinned: what is changed after a job was accepted does not change its cleanups.
func TestVariablesOfTheCleanedGroupArePinned(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	since := len(b.books.started())
	_, g := b.held(job.PlaybookUpgrade, maintenance, "a", "")

	j := b.ask(update, "a", worker)
	b.setFile(state.ScopeGroup(master), "changed")
	b.setFile(state.ScopeGroup(worker), "changed")
	g.open <- succeeds
	b.end(j.ID, "Complete")

	if got, want := b.files(since), "rolling-upgrade a master masters; cleanup a master masters; "+
		"site a worker workers"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestVariablesAfterAFailureAhead: a job whose nodes are in another group than the jobs ahead promised has the
// variables of the group that it finds.
func TestVariablesAfterAFailureAhead(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	since := len(b.books.started())
	ahead, g := b.held(job.PlaybookCleanup, update, "a", worker)
	j := b.ask(decommission, "a", "")

	g.open <- func(r *scriptedRun) {
		r.ends(RunExit{Code: 4}, map[string]job.HostResult{"a-1": {Unreachable: true}})
	}

	b.end(ahead.ID, "Errored failed")

	g.open <- succeeds
	b.end(j.ID, "Complete")

	if got, want := b.files(since), "cleanup a master masters; cleanup a master masters"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestRetryOfACleanupHasTheSameVariables: a node that left its group is cleaned again with the same variables, so
// nothing has changed.
func TestRetryOfACleanupHasTheSameVariables(t *testing.T) {
	t.Parallel()

	for _, pinned := range []bool{false, true} {
		b := newGroupBench(t)
		since := len(b.books.started())

		b.books.on(job.PlaybookCleanup, failsOn("a-1"))
		first := b.do(decommission, "a", "", "Complete")
		b.books.on(job.PlaybookCleanup, succeeds)

		if pinned {
			b.setFile(state.ScopeGroup(master), "changed")
		}

		want := "cleanup a master masters; cleanup a master masters"

		j, err := b.Engine.Retry(t.Context(), anna(), first.ID, job.RetryRequest{Pinned: pinned})
		b.must(err)
		b.end(j.ID, "Complete")

		if got := b.files(since); got != want || len(j.Differences) > 0 {
			t.Errorf("pinned %v: %s, differences %q\nwant %s", pinned, got, j.Differences, want)
		}

		if in, err := b.Inputs(t.Context(), j.ID); err != nil || in.Vars["a-1"]["file"].Value != "master" {
			t.Errorf("pinned %v: %+v, %v", pinned, in, err)
		}
	}
}

// TestVariablesOfFormerInputs: the inputs of jobs accepted by a version that kept one group for each target.
func TestVariablesOfFormerInputs(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t, func(b *bench) { b.wrap = func(s keeper) keeper { return formerStore{s} } })
	since := len(b.books.started())

	b.books.on(job.PlaybookCleanup, failsOn("a-1"))
	b.do(decommission, "a", "", "Complete")
	b.books.on(job.PlaybookCleanup, succeeds)
	b.do(decommission, "a", "", "Complete")
	b.do(commission, "a", master, "Complete")
	b.do(update, "b", worker, "Complete")

	if got, want := b.files(since), "cleanup a master masters; cleanup a master masters; site a master masters; "+
		"cleanup b master masters; site b worker workers"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// formerStore returns inputs as former versions stored them.
type formerStore struct{ keeper }

func (s formerStore) Inputs(ctx context.Context, id string) (job.Inputs, error) {
	in, err := s.keeper.Inputs(ctx, id)
	return job.Inputs{Vars: in.Vars, Connections: in.Connections, Extra: in.Extra}, err
}
