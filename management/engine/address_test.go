// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/job"
)

// TestSharedAddress: a node does not enter service under the address of another
// one. The node that is in service stays there.
func TestSharedAddress(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b c")
	b.do(commission, "a", master, "Complete")

	thief := word("b", true)
	thief.Addr = word("a", true).Addr
	b.must(b.Observe(b.within(patience), "gossip", []inventory.Observation{thief}))

	_, err := b.Submit(b.within(patience), job.Request{
		Verb: commission, Nodes: []string{"b-1", "c-1"}, Group: inventory.GroupWorker,
	})
	if inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "b-1 has the address "+thief.Addr+", and so has a-1") {
		t.Errorf("%v", err)
	}

	for _, name := range []string{"a-1", "b-1"} {
		e, err := b.Explain(b.within(patience), b.View(), name)
		b.must(err)

		if !slices.ContainsFunc(e.Findings, func(f explain.Finding) bool { return f.About == explain.AboutAddress }) {
			t.Errorf("%s: %+v", name, e.Findings)
		}
	}

	b.do(maintenance, "a", "", "Complete")
	b.do(commission, "c", inventory.GroupWorker, "Complete")
}

// TestSharedAddressAtTheClaim: a node that got the address of another one while its
// job was queued does not enter service either.
func TestSharedAddressAtTheClaim(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.settings.JobLimit = 1 })
	b.see("a b")
	b.do(commission, "a", master, "Complete")

	first, g := b.held(job.PlaybookUpgrade, maintenance, "a", "")

	queued := b.ask(commission, "b", master)
	thief := word("b", true)
	thief.Addr = word("a", true).Addr
	b.must(b.Observe(b.within(patience), "gossip", []inventory.Observation{thief}))

	g.open <- succeeds
	b.end(first.ID, "Complete")

	j := b.end(queued.ID, "Errored precondition")
	if !strings.Contains(j.Message, "b-1 has the address "+thief.Addr+", and so has a-1") || len(j.Runs) > 0 {
		t.Errorf("%q after %d runs", j.Message, len(j.Runs))
	}

	b.are("b Unallocated")
}
