// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
)

// TestPinnedRetry asks once more for what failed: with the inputs of then, whatever
// was changed since, but over the connections of now.
func TestPinnedRetry(t *testing.T) {
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
		job.Request{
			Verb:  commission,
			Nodes: names("a b"),
			Group: master,
			JobOptions: inventory.JobOptions{
				OnFailure:     inventory.OnFailureFailed,
				SharedOptions: inventory.SharedOptions{Reason: "growth"},
			},
			Extra: configuration.Vars{"size": int64(3)},
		},
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

	pinned := func(id string) (job.Job, error) {
		return b.Engine.Retry(ctx, access.Caller{Principal: "ben"}, id, job.RetryRequest{Pinned: true})
	}

	// All of it: a is in service already, and left out.
	b.books.on(job.PlaybookSite, succeeds)
	again, err := pinned("last")
	b.must(err)
	done := b.end(again.ID, "Complete")
	b.are("a Allocated service-master, b Allocated service-master")

	if got := strings.Join(done.Differences, "; "); !strings.HasPrefix(got, "left out: a-1 is Allocated") ||
		strings.Contains(got, "variables") {
		t.Errorf("the differences are %q", got)
	}

	if done.RetryOf != "1" || done.PlaybookDigest != "tree-1" || done.Group != master ||
		done.OnFailure != inventory.OnFailureFailed ||
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
	before := b.View().Newest()
	_, err = b.Retry(ctx, again.ID, false, "ben", nil)
	b.refused(err, inventory.KindRefused, "nothing failed in job 2", "there is nothing to repeat")
	_, err = b.Retry(ctx, first.ID, true, "ben", nil)
	b.refused(err, inventory.KindRefused, "nothing is left to repeat of job 1")
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
	_, err = pinned(upgrade.ID)
	b.refused(err, inventory.KindInvalid, "no such folder")
	folder(true, "tree-3", nil)
	_, err = pinned(upgrade.ID)
	b.refused(err, inventory.KindRefused, "no longer kept on this host", "retry-job nodes=a-1 job=3")
	folder(true, "tree-2", nil) // the copy is gone, and the folder is as it was
	g := newGate()
	b.books.on(job.PlaybookUpgrade, g.script)
	running, err := pinned(upgrade.ID)
	b.must(err)
	b.begun(g)
	_, err = b.Retry(ctx, running.ID, false, "ben", nil)
	b.refused(err, inventory.KindRefused, "has not ended", "cancel-job job=4")
	g.open <- succeeds
	b.end(running.ID, "Complete")

	if got := b.View().Newest(); got != before+2 {
		t.Errorf("the newest job is %d, want %d", got, before+2)
	}
}

// TestRetry repeats a job with the playbooks and variables of today, and lists the
// differences by name.
func TestRetry(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a b")

	ctx := t.Context()
	set := func(vars configuration.Vars) {
		t.Helper()
		_, _, err := b.SetVars(ctx, state.ScopeGlobal, vars, "anna", nil)
		b.must(err)
	}

	set(configuration.Vars{"release": "one", "kept": "k", "old": "o"})
	b.books.on(job.PlaybookSite, failsOn("a-1", "b-1"))

	extra := configuration.Vars{"size": int64(3)}
	asked, err := b.Submit(ctx, job.Request{Verb: commission, Nodes: names("a b"), Group: master, Extra: extra})
	b.must(err)
	b.end(asked.ID, "Errored failed")

	set(configuration.Vars{"release": "secret two", "kept": "k", "new": "n"})
	b.books.mu.Lock()
	b.books.pinned = "tree-2-with-a-long-name"
	b.books.mu.Unlock()
	b.books.on(job.PlaybookSite, succeeds)

	again, err := b.Retry(ctx, asked.ID, true, "ben", nil)
	b.must(err)

	done := b.end(again.ID, "Complete")
	b.are("a Allocated service-master, b Allocated service-master")

	want := []string{"playbooks: tree-2-with- now, tree-1 then", "variables: new, old, release changed"}
	if !slices.Equal(done.Differences, want) || done.PlaybookDigest != "tree-2-with-a-long-name" ||
		done.RetryOf != "1" {
		t.Errorf("%q, %+v", done.Differences, done)
	}

	specs := b.books.started()
	last := specs[len(specs)-1]

	if got := fmt.Sprintf("%v %v", last.Hosts[0].Vars["release"].Value, last.Extra["size"]); got != "secret two 3" {
		t.Errorf("the retry ran with %s", got)
	}
}

// TestRetryWithVariables: variables of the retry override those of the original request, and add to them.
func TestRetryWithVariables(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a")
	b.books.on(job.PlaybookSite, failsOn("a-1"))

	asked, err := b.Submit(t.Context(), job.Request{
		Verb: commission, Nodes: names("a"), Group: master, Extra: configuration.Vars{"size": int64(3), "kept": "k"},
	})
	b.must(err)
	b.end(asked.ID, "Errored failed")
	b.books.on(job.PlaybookSite, succeeds)

	again, err := b.Engine.Retry(t.Context(), access.Caller{Principal: "ben"}, asked.ID, job.RetryRequest{
		Extra: configuration.Vars{"size": int64(4), "more": "m"},
	})
	b.must(err)
	b.end(again.ID, "Complete")

	specs := b.books.started()
	if got := fmt.Sprint(specs[len(specs)-1].Extra); got != "map[kept:k more:m size:4]" {
		t.Errorf("the retry ran with %s", got)
	}
}

// TestRetryOfAnUpdate commissions the nodes that an update has taken out of
// service, into the group of the update, and leaves the others to a retry of
// their own.
func TestRetryOfAnUpdate(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.inService("m", "a b c d")

	ctx := t.Context()
	request := job.Request{
		Verb:       update,
		Nodes:      names("a b c d"),
		Group:      master,
		JobOptions: inventory.JobOptions{Serial: "1"},
		Extra:      configuration.Vars{"size": int64(3)},
	}
	b.books.on(job.PlaybookSite, where("b-1", failsOn("b-1")))

	asked, err := b.Submit(ctx, request)
	b.must(err)
	b.end(asked.ID, "Errored failed")
	b.are("a Allocated service-master, b Unallocated, c Allocated service-worker, d Allocated service-worker")
	b.books.on(job.PlaybookSite, succeeds)

	_, err = b.Retry(ctx, asked.ID, true, "ben", nil)
	b.refused(err, inventory.KindRefused, "need 2 jobs now: b-1 (commission as service-master); c-1, d-1 (update)",
		"retry-job nodes=b-1 job=3", "retry-job nodes=c-1,d-1 job=3")

	on := func(labels, how string) job.Job {
		t.Helper()

		j, err := b.Engine.Retry(ctx, anna(), asked.ID, job.RetryRequest{Nodes: names(labels)})
		b.must(err)
		return b.end(j.ID, how)
	}

	_, err = b.Engine.Retry(ctx, anna(), asked.ID, job.RetryRequest{Nodes: []string{"m-1"}})
	b.refused(err, inventory.KindInvalid, "m-1 is no target of job 3")
	_, err = b.Engine.Retry(ctx, anna(), asked.ID, job.RetryRequest{Failed: true, Nodes: []string{"a-1"}})
	b.refused(err, inventory.KindRefused, "job 3 did not fail on a-1")

	j := on("b", "Complete")
	b.are("b Allocated service-master")

	if got := strings.Join(j.Differences, "; "); j.Verb != commission ||
		got != "commission as service-master in place of update: b-1 is out of service; "+
			"all nodes at once: commission takes no batches" {
		t.Errorf("%s %q", j.Verb, got)
	}

	if j := on("d c", "Complete"); !slices.Equal(j.Names(), names("c d")) || j.Serial != "1" || j.Group != master {
		t.Errorf("%+v", j)
	}

	b.are("c Allocated service-master, d Allocated service-master")

	// Another retry would take nodes out of service that are as the update wants them.
	_, err = b.Retry(ctx, asked.ID, true, "ben", nil)
	b.refused(err, inventory.KindRefused, "nothing is left to repeat of job 3")
}

// TestRetrySparesSuccess: a retry does not take nodes out of service again on which
// the update has succeeded, unless the request names them.
func TestRetrySparesSuccess(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.inService("m", "a b")
	b.books.on(job.PlaybookSite, where("b-1", failsOn("b-1")))

	id := b.askInBatches(update, "a b", 0)
	b.end(id, "Errored failed")
	b.are("a Allocated service-worker, b Unallocated")
	b.books.on(job.PlaybookSite, succeeds)

	retry := func(r job.RetryRequest) (job.Job, error) { return b.Engine.Retry(t.Context(), anna(), id, r) }

	_, err := retry(job.RetryRequest{All: true})
	b.refused(err, inventory.KindRefused, "need 2 jobs now: a-1 (update); b-1 (commission as service-worker)")
	_, err = retry(job.RetryRequest{All: true, Failed: true})
	b.refused(err, inventory.KindInvalid, "all excludes failed and nodes")

	j, err := retry(job.RetryRequest{})
	b.must(err)

	if j = b.end(j.ID, "Complete"); !slices.Equal(j.Names(), names("b")) ||
		!slices.Contains(j.Differences, "left out, because the job succeeded on them: a-1") {
		t.Errorf("%v %q", j.Names(), j.Differences)
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
