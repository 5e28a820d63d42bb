// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// TestReport: two observers have views of their own, a full report replaces one,
// and a refused observation does not affect the others.
func TestReport(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	report := func(observer string, full bool, observations ...inventory.Observation) map[int]error {
		t.Helper()

		refused, revision, err := b.Report(t.Context(), observer, full, observations)
		b.must(err)
		b.must(b.store.Sync(t.Context()))

		if now := b.View().Revision; revision > now {
			t.Errorf("revision %d, the view is at %d", revision, now)
		}

		return refused
	}

	report("one", true, word("a", true), word("b", true))
	report("two", true, word("b", true), word("c", true))

	if got := b.states(); got != "a-1 Discovered, b-1 Discovered, c-1 Discovered" {
		t.Errorf("after two full reports: %s", got)
	}

	// Only the last observer that sees a node can lose it.
	report("one", true)

	if got := b.states(); got != "a-1 Disappeared, b-1 Discovered, c-1 Discovered" {
		t.Errorf("after an empty full report: %s", got)
	}

	// A partial report changes the nodes that it lists.
	report("two", false, word("c", false))

	if got := b.states(); got != "a-1 Disappeared, b-1 Discovered, c-1 Disappeared" {
		t.Errorf("after a partial report: %s", got)
	}

	injected := word("f", true)
	injected.Others = []string{"10.0.0.9 ansible_connection=local"}

	refused := report("one", true, at("d e", "1", "10.0.0.9", true), word("d", true), injected)
	if len(refused) != 2 || refused[0] == nil || refused[2] == nil {
		t.Errorf("refused: %v, want the observations 0 and 2", refused)
	}

	if got := b.states(); got != "a-1 Disappeared, b-1 Discovered, c-1 Disappeared, d-1 Discovered" {
		t.Errorf("after a partly refused report: %s", got)
	}

	before := b.View().Revision
	report("one", true, word("d", true))

	if now := b.View().Revision; now != before {
		t.Errorf("a repeated report wrote: revision %d after %d", now, before)
	}
}

// TestReportRange: a full report on a range of names loses no node outside of it.
func TestReportRange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	report := func(names inventory.NameRange, observations ...inventory.Observation) {
		t.Helper()
		_, _, err := b.nodes.Report(t.Context(), "one", &names, observations)
		b.must(err)
		b.must(b.store.Sync(t.Context()))
	}

	report(inventory.NameRange{}, word("a", true), word("b", true), word("c", true), word("d", true))
	report(inventory.NameRange{After: "a-1", Until: "c-1"}, word("c", true))

	if got := b.states(); got != "a-1 Discovered, b-1 Disappeared, c-1 Discovered, d-1 Discovered" {
		t.Errorf("after the middle: %s", got)
	}

	report(inventory.NameRange{Until: "b-1"})
	report(inventory.NameRange{After: "c-1"})

	if got := b.states(); got != "a-1 Disappeared, b-1 Disappeared, c-1 Discovered, d-1 Disappeared" {
		t.Errorf("after both ends: %s", got)
	}
}

// TestReportsDisagree: a node that observers see at two addresses stays at the first, and
// no job takes it until they agree. The number of reports does not count.
func TestReportsDisagree(t *testing.T) {
	t.Parallel()
	b := newBench(t)

	here, there := at("a", "1", "10.0.0.1", true), at("a", "1", "10.0.0.9", true)
	report := func(observer string, o inventory.Observation) {
		t.Helper()
		_, _, err := b.Report(t.Context(), observer, false, []inventory.Observation{o})
		b.must(err)
		b.must(b.store.Sync(t.Context()))
	}

	for range 10 {
		report(inventory.ObserverGossip, here)
		report("two", there)
	}

	b.must(b.Observe(t.Context(), inventory.ObserverPost, []inventory.Observation{there}))
	b.restart()

	if n := b.node("a-1"); n.Addr != here.Addr {
		t.Errorf("a report redirected it to %s", n.Addr)
	}

	_, err := b.Submit(t.Context(), job.Request{Verb: commission, Nodes: names("a"), Group: master})
	b.refused(
		err,
		inventory.KindRefused,
		"gossip sees it at 10.0.0.1, two sees it at 10.0.0.9, post sees it at 10.0.0.9",
	)

	entries, err := b.store.History(t.Context(), "a-1", 100)
	b.must(err)

	if len(entries) != 2 {
		t.Errorf("the history has %d entries, want the discovery and the conflict: %+v", len(entries), entries)
	}

	report("two", here)
	b.must(b.Observe(t.Context(), inventory.ObserverPost, []inventory.Observation{here}))
	b.do(commission, "a", master, "Complete")
}
