// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
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

	if j := b.do(decommission, "b", "", "Complete"); len(j.Warnings) > 0 {
		t.Errorf("the warnings are %q", j.Warnings)
	}

	if j := b.do(decommission, "a", "", "Complete"); !slices.Equal(j.Warnings, []string{
		"a-1: no play of cleanup.yml is for the group service-master, so nothing is cleaned of it",
	}) {
		t.Errorf("the warnings are %q", j.Warnings)
	}
}

// TestPrompts: a playbook that asks a person for a variable needs it in the request; a
// cleanup is never refused for that.
func TestPrompts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	b.do(commission, "a", master, "Complete")

	b.books.mu.Lock()
	b.books.hosts, b.books.asks = []string{"all"}, []string{"release", "sure"}
	b.books.mu.Unlock()

	given := configuration.Vars{"sure": true}

	for _, verb := range []inventory.Verb{apply, maintenance, update} {
		_, err := b.Submit(t.Context(), job.Request{Verb: verb, Nodes: names("a"), Extra: given})
		if verb == maintenance {
			b.refused(err, inventory.KindRefused, "rolling-upgrade.yml asks for release (vars_prompt)")
			continue
		}

		b.refused(err, inventory.KindRefused,
			"site.yml asks for release (vars_prompt), and nobody can answer in a job",
			"give a value with the variables of the request, or a default in the playbook")
	}

	b.are("a Allocated service-master")

	// The value counts, not its content.
	given = configuration.Vars{"sure": true, "release": nil}
	if _, err := b.Submit(t.Context(), job.Request{Verb: apply, Nodes: names("a"), Extra: given}); err != nil {
		t.Error(err)
	}

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
		Verb:       commission,
		Nodes:      names("a b"),
		Group:      master,
		JobOptions: inventory.JobOptions{OnFailure: inventory.OnFailureFailed},
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
}

// TestUncleaned: a target on which no play of the cleanup acted carries its group
// still, whatever the exit status.
func TestUncleaned(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a b")
	b.do(commission, "a", master, "Complete")
	b.books.on(job.PlaybookCleanup, actsOn())

	const why = "no play of cleanup.yml acted on it, so it is not cleaned; its group in this run is service-master"
	errorOf := func(label, want string) {
		t.Helper()

		if n, _ := b.View().Lookup(label + "-1"); !strings.Contains(n.LastError, want) {
			t.Errorf("the error of %s is %q", label, n.LastError)
		}
	}

	// Nothing was touched, so an update leaves the node in service.
	b.do(update, "a", "", "Errored failed")
	b.are("a Allocated service-master")
	errorOf("a", why)

	b.books.on(job.PlaybookSite, failsOn("b-1"))
	b.do(commission, "b", master, "Errored failed")
	b.are("b Quarantined service-master")
	errorOf("b", "the cleanup failed: "+why)
	b.do(clearing, "b", "", "Errored failed")
	b.are("b Quarantined service-master")

	if j := b.do(decommission, "a b", "", "Complete"); !strings.Contains(j.Message, why) {
		t.Errorf("the message is %q", j.Message)
	}

	for _, name := range names("a b") {
		n, _ := b.View().Lookup(name)
		if n.Status != inventory.Decommissioned || !slices.Equal(n.Residue, []string{master}) {
			t.Errorf("%s is %s with the residue %v", name, n.Status, n.Residue)
		}
	}

	b.books.on(job.PlaybookSite, succeeds)
	b.do(commission, "a", master, "Errored failed")

	// A decommission again is a way to clean them that brings none into service.
	b.do(decommission, "a b", "", "Complete")
	b.are("a Decommissioned, b Decommissioned")
	b.books.on(job.PlaybookCleanup, succeeds)
	b.do(decommission, "b", "", "Complete")
	b.are("b Decommissioned")

	if n, _ := b.View().Lookup("b-1"); len(n.Residue) > 0 || n.LastError != "" {
		t.Errorf("b has the residue %v, %s", n.Residue, n.LastError)
	}

	_, err := b.Submit(t.Context(), job.Request{Verb: decommission, Nodes: names("b")})
	b.refused(err, inventory.KindRefused, "b-1 is Decommissioned")

	b.do(commission, "a", master, "Complete")
	b.are("a Allocated service-master")

	if n, _ := b.View().Lookup("a-1"); len(n.Residue) > 0 {
		t.Errorf("a has the residue %v", n.Residue)
	}
}

// TestJumpHostFailure: the connection of the job decides whether a message of ssh is
// about the node or about its jump host, also after a change of the node's settings.
func TestJumpHostFailure(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a b")
	b.do(commission, "a b", master, "Complete")

	jump := func(host string) {
		_, err := b.PatchNode(
			t.Context(),
			"a-1",
			node.Patch{Connection: &configuration.Connection{Jump: host}},
			"anna",
			nil,
		)
		b.must(err)
	}
	jump("ops@10.0.0.9")
	b.books.on(job.PlaybookUpgrade, func(r *scriptedRun) {
		jump("")

		results := map[string]job.HostResult{}
		for _, h := range r.acted() {
			results[h] = job.HostResult{
				Unreachable: true,
				Message:     "Host key for 10.0.0.9 has changed and you have requested strict checking.",
			}
		}

		r.ends(RunExit{Code: 4}, results)
	})

	j := b.do(maintenance, "a b", "", "Errored failed")

	for name, want := range map[string]string{
		"a-1": "the ssh host key of the jump host 10.0.0.9 has changed",
		"b-1": "the ssh host key of 10.0.0.9 is not the one recorded",
	} {
		if got := j.LastRun().Results[name].Message; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
