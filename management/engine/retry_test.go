// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
)

// TestRetry asks once more for what failed: with the inputs of then, whatever
// was changed since, but over the connections of now.
func TestRetry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	ctx := t.Context()
	set := func(value string) {
		t.Helper()
		_, _, err := b.SetVars(ctx, state.ScopeGlobal, configuration.Vars{"release": value}, "anna", nil)
		b.must(err)
	}
	set("one")
	b.books.on(job.PlaybookSite, failsOn("b-1"))
	asked, err := b.Submit(
		ctx,
		job.Request{Verb: commission, Nodes: names("a b"), Group: master, OnFailure: job.OnFailureFailed,
			Extra: configuration.Vars{"size": int64(3)}, Reason: "growth"},
	)
	b.must(err)
	first := b.end(asked.ID, "Errored failed")
	b.are("a Allocated service-master, b Unallocated")

	set("two")
	b.books.mu.Lock()
	b.books.pinned = "tree-2"
	b.books.mu.Unlock()
	_, err = b.PatchNode(ctx, "b-1", node.Patch{Connection: &configuration.Connection{User: "admin"}}, "anna", nil)
	b.must(err)

	// All of it: a is in service already.
	_, err = b.Retry(ctx, first.ID, false, "ben", nil)
	b.refused(err, inventory.KindRefused, "a-1 is Allocated", "[retry-job job=1 failed]")
	b.books.on(job.PlaybookSite, succeeds)
	again, err := b.Retry(ctx, "last", true, "ben", nil)
	b.must(err)
	done := b.end(again.ID, "Complete")
	b.are("a Allocated service-master, b Allocated service-master")

	if done.RetryOf != "1" || done.PlaybookDigest != "tree-1" || done.Group != master ||
		done.OnFailure != job.OnFailureFailed ||
		done.Reason != "growth" ||
		done.Actor != "ben" ||
		!slices.Equal(done.Names(), []string{"b-1"}) {
		t.Errorf("%+v", done)
	}

	specs := b.books.started()
	last := specs[len(specs)-1]

	i := slices.IndexFunc(last.Hosts, func(h configuration.Host) bool { return h.Name == "b-1" })
	if h := last.Hosts[i]; last.PlaybookDigest != "tree-1" ||
		fmt.Sprintf("%v %v", h.Vars["release"].Value, last.Extra["size"]) != "one 3" ||
		h.Connection.User != "admin" {
		t.Errorf("%+v", last)
	}

	// What cannot be retried.
	before := b.View().Seq
	_, err = b.Retry(ctx, again.ID, false, "ben", nil)
	b.refused(
		err,
		inventory.KindRefused,
		"nothing failed in job 2",
		"submit verb=commission nodes=b-1 group=service-master",
	)
	_, err = b.Retry(ctx, first.ID, true, "ben", nil)
	b.refused(err, inventory.KindRefused, "b-1 is Allocated")
	_, err = b.Retry(ctx, "77", false, "ben", nil)
	b.refused(err, inventory.KindNotFound, `no job "77"`)
	b.books.on(job.PlaybookUpgrade, failsOn("a-1"))
	upgrade := b.do(maintenance, "a", "", "Errored failed")
	folder := func(lost bool, tree string, err error) {
		b.books.mu.Lock()
		defer b.books.mu.Unlock()
		b.books.lost, b.books.pinned, b.books.pin = lost, tree, err
	}
	folder(true, "", inventory.Errorf(inventory.KindInvalid, "no such folder")) // whether it is as it was, nobody knows
	_, err = b.Retry(ctx, upgrade.ID, false, "ben", nil)
	b.refused(err, inventory.KindInvalid, "no such folder")
	folder(true, "tree-3", nil)
	_, err = b.Retry(ctx, upgrade.ID, false, "ben", nil)
	b.refused(err, inventory.KindRefused, "no longer kept on this host", "submit verb=maintenance nodes=a-1")
	folder(true, "tree-2", nil) // the copy is gone, and the folder is as it was
	g := newGate()
	b.books.on(job.PlaybookUpgrade, g.script)
	running, err := b.Retry(ctx, upgrade.ID, true, "ben", nil)
	b.must(err)
	b.begun(g)
	_, err = b.Retry(ctx, running.ID, false, "ben", nil)
	b.refused(err, inventory.KindRefused, "has not ended", "cancel-job job=4")
	g.open <- succeeds
	b.end(running.ID, "Complete")

	if got := b.View().Seq; got != before+2 {
		t.Errorf("the newest job is %d, want %d", got, before+2)
	}
}

// TestExplainForgotten: what was forgotten is explained as such, also when it
// is seen again.
func TestExplainForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	b.lose("a")
	_, err := b.Forget(t.Context(), names("a"), false, "sold", "anna", nil)
	b.must(err)
	_, err = b.Explain(t.Context(), b.View(), "a-1")
	b.refused(err, inventory.KindNotFound, "a-1 was forgotten on", "by anna: sold")
	b.see("a")
	e, err := b.Explain(t.Context(), b.View(), "a-1")
	b.must(err)

	if e.Ready || len(e.Findings) < 2 || e.Findings[0].About != explain.AboutQuarantine ||
		e.Findings[1].About != explain.AboutTombstone ||
		e.StateSince.IsZero() {
		t.Errorf("%+v", e)
	}

	_, err = b.Explain(t.Context(), b.View(), "b-1")
	b.refused(err, inventory.KindNotFound, `no node "b-1"`)
}
