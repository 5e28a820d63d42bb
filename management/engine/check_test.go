// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/job"
)

// resultsOn ends with the same result on every host.
func resultsOn(exit RunExit, result job.HostResult) func(*scriptedRun) {
	return func(r *scriptedRun) {
		results := map[string]job.HostResult{}
		for _, h := range r.acted() {
			results[h] = result
		}

		r.ends(exit, results)
	}
}

// TestCheck: a check reaches the runner, and leaves the record of the node as it was,
// however it ends.
func TestCheck(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a")
	b.do(commission, "a", master, "Complete")
	b.books.on(job.PlaybookSite, failsOn("a-1"))
	b.do(apply, "a", "", "Errored failed")

	record := func() any {
		n := b.node("a-1")
		return []any{n.Status, n.PrevStatus, n.Group, n.Applied, n.Playbooks, n.Residue, n.LastError, n.Job, n.Before}
	}
	before := record()

	b.books.mu.Lock()
	b.books.pinned = "tree-2"
	b.books.mu.Unlock()

	options := inventory.JobOptions{Check: true, Diff: true, Verbosity: 1}
	request := job.Request{Verb: apply, Nodes: names("a"), JobOptions: options}

	b.books.on(job.PlaybookSite, resultsOn(RunExit{}, job.HostResult{Begun: true, Done: true, Changed: 2}))

	j, err := b.Submit(t.Context(), request)
	b.must(err)

	j = b.end(j.ID, "Complete")
	if j.Message != "checked; nothing was changed" || j.Note != "would change a-1: 2 tasks" {
		t.Errorf("%q, note %q", j.Message, j.Note)
	}

	if after := record(); !reflect.DeepEqual(after, before) {
		t.Errorf("after the check %v, before %v", after, before)
	}

	specs := b.books.started()

	want := configuration.AnsibleOptions{Check: true, Diff: true, Verbosity: 1}
	if got := specs[len(specs)-1].Ansible; !reflect.DeepEqual(got, want) {
		t.Errorf("the runner got %+v", got)
	}

	if text := b.log(j.ID, job.StreamText); !strings.Contains(text, "(site.yml), check; diff; verbosity 1\n") ||
		!strings.Contains(text, "ended Complete: checked; nothing was changed") {
		t.Errorf("%q", text)
	}

	b.books.on(job.PlaybookSite, failsOn("a-1"))

	j, err = b.Submit(t.Context(), request)
	b.must(err)

	j = b.end(j.ID, "Errored failed")
	if result := j.TargetResult("a-1"); result.OK || !strings.Contains(result.Error, "no space left") {
		t.Errorf("%+v", result)
	}

	if after := record(); !reflect.DeepEqual(after, before) {
		t.Errorf("after the failed check %v, before %v", after, before)
	}

	again, err := b.Retry(t.Context(), j.ID, false, "", nil)
	b.must(err)

	if again = b.end(again.ID, "Errored failed"); !reflect.DeepEqual(again.JobOptions, options) {
		t.Errorf("the retry has %+v", again.JobOptions)
	}
}

// TestTags: with tags that select no task for a node, nothing was done to it.
func TestTags(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a")
	b.do(commission, "a", master, "Complete")

	request := job.Request{
		Verb:       apply,
		Nodes:      names("a"),
		JobOptions: inventory.JobOptions{SharedOptions: inventory.SharedOptions{Tags: []string{"web"}}},
	}
	b.books.on(job.PlaybookSite, resultsOn(RunExit{}, job.HostResult{Begun: true, Done: true, OK: 1}))

	j, err := b.Submit(t.Context(), request)
	b.must(err)

	const why = "no task of site.yml for it is selected (tags web), so nothing was done"
	if j = b.end(j.ID, "Errored failed"); j.Message != "site.yml failed on a-1: "+why {
		t.Errorf("%q", j.Message)
	}

	if n := b.node("a-1"); n.Applied != "1" || n.LastError != why {
		t.Errorf("%+v", n)
	}

	b.books.on(job.PlaybookSite, resultsOn(RunExit{}, job.HostResult{Begun: true, Done: true, OK: 1, Selected: true}))

	j, err = b.Submit(t.Context(), request)
	b.must(err)
	b.end(j.ID, "Complete")

	if n := b.node("a-1"); n.Applied != "" || n.LastError != "" {
		t.Errorf("%+v", n)
	}
}

// TestSecretsOfTheRun: the runner gets the values that the output hides.
func TestSecretsOfTheRun(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.set(func(s *Settings) { s.Secrets = configuration.DefaultSecrets() })
	b.see("a")

	j, err := b.Submit(t.Context(), job.Request{
		Verb: commission, Nodes: names("a"), Group: master,
		Extra: configuration.Vars{"db_password": "hunter2", "motd": "shown"},
	})
	b.must(err)
	b.end(j.ID, "Complete")

	if got := b.books.started()[0].Secrets; !slices.Equal(got, []string{"hunter2"}) {
		t.Errorf("%q", got)
	}
}
