// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"slices"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	. "github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
)

// TestEveryMutationIsAudited carries out each mutation once and reads its audit
// record: those of callers, refusals, and decisions of the manager itself.
func TestEveryMutationIsAudited(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()

	expect := func(mutation string, want ...string) {
		t.Helper()

		if got := b.audit.wait(b.within(patience), len(want)); !slices.Equal(got, want) {
			t.Errorf("%s: audit records %q, want %q", mutation, got, want)
		}
	}

	b.see("a b")
	expect("an event", "monitor:gossip nodes.observe a-1,b-1")

	_, _, err := b.Report(ctx, "rack", false, []inventory.Observation{word("a", true)})
	b.must(err)
	expect("a report", "monitor:rack nodes.observe a-1")

	_, _, err = b.Report(ctx, "rack", false, []inventory.Observation{word("a", true)})
	b.must(err)
	expect("a report without a change")

	_, err = b.nodes.Patch(ctx, anna(), "a-1", node.Patch{Connection: &configuration.Connection{Port: 2222}})
	b.must(err)
	expect("a patch of a node", "anna nodes.patch a-1")

	_, err = b.variables.Set(ctx, anna(), state.ScopeGlobal, configuration.Vars{"x": "1"})
	b.must(err)
	_, err = b.variables.Patch(ctx, anna(), state.ScopeNode("a-1"), configuration.Vars{"x": "2"})
	b.must(err)
	expect("variables", "anna variables.set global", "anna variables.patch node/a-1")

	b.books.on("site.yml", failsOn("a-1"))
	b.do(commission, "a", master, "Errored failed")
	expect("a job", "anna jobs.submit.commission a-1")

	_, err = b.Submit(ctx, job.Request{Verb: commission, Nodes: []string{"x-1"}, Group: master})
	b.refused(err, inventory.KindNotFound)
	expect("a refused job", "anna jobs.submit.commission x-1 not-found")

	_, err = b.Engine.Retry(ctx, anna(), "77", job.RetryRequest{})
	b.refused(err, inventory.KindNotFound)
	expect("a refused retry", "anna jobs.retry 77 not-found")

	hold := newGate()
	b.books.on("site.yml", hold.script)

	retried, err := b.Engine.Retry(ctx, anna(), "1", job.RetryRequest{})
	b.must(err)
	b.begun(hold)
	expect("a retry", "anna jobs.retry.commission a-1")

	// The worker is legal only if the master before it succeeds.
	worker, err := b.Submit(ctx, job.Request{Verb: commission, Nodes: names("b"), Group: inventory.GroupWorker})
	b.must(err)

	_, err = b.Engine.Cancel(ctx, access.Caller{Principal: "ben"}, retried.ID)
	b.must(err)
	b.end(retried.ID, "Cancelled cancelled")
	b.end(worker.ID, "Errored precondition")
	expect("a cancel, and a job whose precondition failed",
		"anna jobs.submit.commission b-1", "ben jobs.cancel "+retried.ID, access.Manager+" jobs.end b-1")

	b.lose("a b")
	b.audit.take()

	_, err = b.nodes.Forget(ctx, anna(), node.ForgetRequest{Nodes: names("b"), Force: true})
	b.must(err)
	expect("a forget", "anna nodes.forget b-1")

	b.set(func(s *Settings) { s.Retention.Count = 1 })
	b.restart()
	b.until("the old jobs are dropped", func(v *state.View) bool { return len(v.Jobs()) == 1 })
	expect("the retention", access.Manager+" jobs.expire 2,1")
}
