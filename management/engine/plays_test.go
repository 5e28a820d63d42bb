// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/job"
)

// TestNoPlayForTheGroup: a group without a play is a refusal, where the playbook
// shows that.
func TestNoPlayForTheGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	b.do(commission, "a", master, "Complete")

	b.books.mu.Lock()
	b.books.hosts = []string{"service-master:&job_targets"}
	b.books.mu.Unlock()

	_, err := b.Submit(t.Context(), job.Request{Verb: commission, Nodes: names("b"), Group: worker})
	b.refused(err, inventory.KindRefused,
		"no play of site.yml is for the group service-worker of b-1: ",
		"its plays have the hosts service-master:&job_targets",
		"add a play for the group to the playbook, or choose another group")
	b.are("b Unallocated")

	b.do(apply, "a", "", "Complete")
	b.do(maintenance, "a", "", "Complete")

	_, err = b.Submit(t.Context(), job.Request{Verb: update, Nodes: names("a"), Group: worker})
	b.refused(err, inventory.KindRefused)

	b.books.mu.Lock()
	b.books.hosts = []string{"{{ some_group }}"}
	b.books.mu.Unlock()
	b.do(commission, "b", worker, "Complete")

	b.books.mu.Lock()
	b.books.hosts = []string{"service-worker"}
	b.books.mu.Unlock()

	_, err = b.Submit(t.Context(), job.Request{Verb: maintenance, Nodes: names("a b")})
	b.refused(err, inventory.KindRefused, "no play of rolling-upgrade.yml is for the group service-master of a-1")
	b.do(decommission, "b", "", "Complete")
	b.do(decommission, "a", "", "Complete")
}

// actsOn succeeds, and acts on some of the hosts only.
func actsOn(hosts ...string) func(*scriptedRun) {
	return func(r *scriptedRun) {
		results := map[string]job.HostResult{}
		for _, h := range hosts {
			results[h] = job.HostResult{Begun: true, Done: true, OK: 2}
		}

		r.ends(RunExit{}, results)
	}
}

// TestUntouched: a target on which no play acted has failed, whatever the exit
// status.
func TestUntouched(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	b.books.on(job.PlaybookSite, actsOn("a-1"))

	j, err := b.Submit(t.Context(), job.Request{
		Verb: commission, Nodes: names("a b"), Group: master, OnFailure: job.OnFailureFailed,
	})
	b.must(err)

	const why = "no play of site.yml acted on it, so it is not configured; its group in this run is service-master"
	if ended := b.end(j.ID, "Errored failed"); ended.Message != "site.yml failed on b-1: "+why {
		t.Errorf("the message is %q", ended.Message)
	}

	b.are("a Allocated service-master, b Unallocated")

	if n, _ := b.View().Lookup("b-1"); n.LastError != why {
		t.Errorf("the error of b is %q", n.LastError)
	}

	b.books.on(job.PlaybookUpgrade, actsOn())
	j = b.ask(maintenance, "a", "")
	b.end(j.ID, "Errored failed")
	b.are("a Allocated service-master")

	if n, _ := b.View().Lookup("a-1"); n.Applied != "1" {
		t.Errorf("a is configured by job %q", n.Applied)
	}

	// A cleanup has nothing to act on in many groups.
	b.books.on(job.PlaybookCleanup, actsOn())
	b.do(decommission, "a", "", "Complete")
}
