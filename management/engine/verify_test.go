// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	. "github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/state"
)

// foresees ends with differences on the hosts of label b, with their events.
func foresees(r *scriptedRun) {
	results := map[string]job.HostResult{}
	for _, h := range r.acted() {
		results[h] = job.HostResult{Begun: true, Done: true, OK: 2, Judged: 2, Unjudged: 1}
		r.says(job.StreamEvents, `{"event":"skipped","host":"%s","task":"Command","unjudged":true}`+"\n", h)

		if h == "b-1" {
			results[h] = job.HostResult{Begun: true, Done: true, OK: 2, Judged: 2, Changed: 1, Foreseen: 1}
			r.says(job.StreamEvents, `{"event":"ok","host":"b-1","task":"Write","changed":true,"foreseen":true,`+
				`"path":"site.yml:3","diff":"-x\n+y"}`+"\n")
		}
	}

	r.ends(RunExit{}, results)
}

// TestVerify: each node is compared with the playbooks that configured it, and gets a
// verdict; the rest of its record stays.
func TestVerify(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a b")
	b.do(commission, "a", master, "Complete")
	b.books.configure("tree-2")
	b.do(commission, "b", worker, "Complete")

	b.books.on(job.PlaybookSite, failsOn("b-1"))
	b.do(apply, "b", "", "Errored failed")

	b.books.mu.Lock()
	b.books.pinned = "tree-3"
	b.books.outlines[[2]string{"tree-1", job.PlaybookVerify}] = configuration.Outline{Missing: true}
	b.books.outlines[[2]string{"tree-2", job.PlaybookSite}] = configuration.Outline{Plays: []configuration.Play{
		{Hosts: []string{worker}, Executed: []configuration.Executed{
			{Name: "Risky", Path: "site.yml:9"},
			{Name: "Read", Path: "site.yml:12", Reads: true},
			{Name: "the role x", Path: "site.yml:15", Dynamic: true},
			{Name: "the lookup pipe", Path: "site.yml:17", Manager: true},
		}},
		{Hosts: []string{master}, Executed: []configuration.Executed{{Name: "Elsewhere", Path: "site.yml:20"}}},
	}}
	b.books.mu.Unlock()
	b.books.on(job.PlaybookSite, foresees)
	b.books.on(job.PlaybookVerify, resultsOn(RunExit{}, job.HostResult{Begun: true, Done: true, OK: 3, Judged: 3}))

	record := func(name string) inventory.Node {
		n := b.node(name)
		n.Verification, n.Revision, n.Entries, n.Updated = nil, 0, 0, n.Created
		return n
	}
	before := []inventory.Node{record("a-1"), record("b-1")}
	_, err := b.Difference(t.Context(), b.View(), "a-1")
	b.refused(err, inventory.KindNotFound, "a-1 was not verified", "submit verb=verify nodes=a-1")

	// A gate is no verification.
	gated := b.node("a-1").FailGate("no answer", time.Now())
	_, err = b.Difference(t.Context(), &state.View{Snapshot: jobtest.With(&gated)}, "a-1")
	b.refused(err, inventory.KindNotFound, "a-1 was not verified", "submit verb=verify nodes=a-1")

	runs := len(b.books.started())
	j := b.ask(inventory.VerbVerify, "a b", "")

	if want := []string{
		"a-1: the playbooks have no verify.yml, so only site.yml is compared",
		"executed in spite of check mode, because of check_mode: false: Risky (site.yml:9)",
		"on the host of the manager, evaluated in spite of check mode: the lookup pipe (site.yml:17)",
		"cannot be known to respect check mode, because only Ansible can resolve them: the role x (site.yml:15)",
	}; !reflect.DeepEqual(j.Warnings, want) || !strings.HasSuffix(j.Note, "(changed_when: false): Read (site.yml:12)") {
		t.Errorf("warnings %q, note %q", j.Warnings, j.Note)
	}

	j = b.end(j.ID, "Errored drifted")
	if j.Message != "1 of 2 nodes drifted: b-1 (1 task would change)" ||
		j.Note != "a-1: 1 task not judged by check mode" {
		t.Errorf("%q, note %q", j.Message, j.Note)
	}

	var got []string
	for _, s := range b.books.started()[runs:] {
		got = append(got, strings.TrimSpace(s.PlaybookDigest+" "+s.Playbook+" "+s.Ansible.String()))
	}

	if want := []string{
		"tree-2 verify.yml", "tree-1 site.yml check; diff", "tree-2 site.yml check; diff",
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("the runs are %q", got)
	}

	if after := []inventory.Node{record("a-1"), record("b-1")}; !reflect.DeepEqual(after, before) {
		t.Errorf("the records are\n%+v, were\n%+v", after, before)
	}

	if v := b.node("a-1").Verification; v.Result != inventory.Clean || v.Job != j.ID || v.Unjudged != 1 {
		t.Errorf("%+v", v)
	}

	found, err := b.Difference(t.Context(), b.View(), "b-1")
	b.must(err)

	if want := []api.TaskFinding{
		{Kind: api.FindingUnjudged, Playbook: "site.yml", Task: "Command"},
		{Kind: api.FindingDiffers, Playbook: "site.yml", Task: "Write", Path: "site.yml:3", Diff: "-x\n+y"},
	}; !reflect.DeepEqual(found.Tasks, want) || found.Verdict.Result != inventory.Drifted || found.Truncated {
		t.Errorf("%+v", found)
	}

	if e, err := b.Explain(t.Context(), b.View(), "b-1"); err != nil ||
		!strings.Contains(e.Summary, "drifted: 1 task would change") {
		t.Errorf("%q, %v", e.Summary, err)
	}

	// The next configuration ends the verdict.
	b.books.on(job.PlaybookSite, succeeds)
	b.do(apply, "b", "", "Complete")

	if v := b.node("b-1").Verification; v != nil {
		t.Errorf("after apply: %+v", v)
	}

	b.dropJob(j.ID)
	_, err = b.Difference(t.Context(), b.View(), "a-1")
	b.refused(err, inventory.KindNotFound, "job "+j.ID+", which has expired", "submit verb=verify nodes=a-1")
}

// TestVerifyWithoutPlaybooks: a verification needs the playbooks of the node, and names
// the way out.
func TestVerifyWithoutPlaybooks(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a")
	b.do(commission, "a", master, "Complete")

	b.books.mu.Lock()
	b.books.pinned, b.books.gone = "tree-2", []string{"tree-1"}
	b.books.mu.Unlock()

	request := job.Request{Verb: inventory.VerbVerify, Nodes: names("a")}
	_, err := b.Submit(t.Context(), request)
	b.refused(err, inventory.KindRefused, "missing or damaged", "submit verb=verify nodes=a-1", "playbooks=current")

	request.Playbooks = inventory.PlaybooksCurrent
	j, err := b.Submit(t.Context(), request)
	b.must(err)
	b.end(j.ID, "Complete")

	_, err = b.Submit(
		t.Context(),
		job.Request{Verb: apply, Nodes: names("a"), JobOptions: inventory.JobOptions{Strict: true}},
	)
	b.refused(err, inventory.KindInvalid, "apply does not accept strict", "verify")
}

// TestVerifyBehindAnotherJob: a job ahead configures the node with playbooks that have no
// verify.yml.
func TestVerifyBehindAnotherJob(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a")
	b.do(commission, "a", master, "Complete")

	b.books.mu.Lock()
	b.books.pinned = "tree-2"
	b.books.outlines[[2]string{"tree-2", job.PlaybookVerify}] = configuration.Outline{Missing: true}
	b.books.mu.Unlock()

	g := newGate()
	b.books.on(job.PlaybookSite, g.script)
	ahead := b.ask(apply, "a", "")
	run := b.begun(g)

	verify := b.ask(inventory.VerbVerify, "a", "")
	b.books.on(job.PlaybookSite, resultsOn(RunExit{}, job.HostResult{Begun: true, Done: true, Judged: 1}))
	succeeds(run)
	b.end(ahead.ID, "Complete")

	j := b.end(verify.ID, "Complete")
	if got := phases(j); got != "drift:done" || j.Runs[0].PlaybookDigest != "tree-2" {
		t.Errorf("%s with %s", got, j.Runs[0].PlaybookDigest)
	}
}

// TestVerifyWithoutResult: an exit status without the counts of the host is no verdict,
// because the events that lack them may have had differences.
func TestVerifyWithoutResult(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.see("a")
	b.do(commission, "a", master, "Complete")

	b.books.on(job.PlaybookVerify, resultsOn(RunExit{}, job.HostResult{Begun: true, Done: true, Judged: 1}))
	b.books.on(job.PlaybookSite, resultsOn(RunExit{}, job.HostResult{Begun: true, OK: 3}))

	j := b.do(inventory.VerbVerify, "a", "", "Errored failed")

	const want = "unknown: a-1 (site.yml in check mode: the events of the run lack its result)"
	if !strings.Contains(j.Message, want) {
		t.Errorf("%q", j.Message)
	}
}

// TestDifferenceOfToleratedFailures: nodes diff shows a failure that the playbook ignores
// or rescues, unless the task was executed in spite of check mode.
func TestDifferenceOfToleratedFailures(t *testing.T) {
	t.Parallel()

	found := job.Difference{Node: "a-1"}
	run := job.Run{
		Playbook: job.PlaybookSite, Phase: job.PhaseDrift, Results: map[string]job.HostResult{"a-1": {Done: true}},
	}

	for _, e := range []configuration.Event{
		{Event: configuration.EventFailed, Host: "a-1", Task: "ignored", Ignored: true},
		{Event: configuration.EventFailed, Host: "a-1", Task: "rescued"},
		{Event: configuration.EventFailed, Host: "a-1", Task: "probe", Ignored: true, Executed: true},
		{Event: configuration.EventFailed, Host: "a-1", Task: "excused", Ignored: true, Unjudged: true},
		{Event: configuration.EventUnreachable, Host: "a-1", Task: "silent", Ignored: true, Executed: true},
	} {
		found.Add(run, e)
	}

	var got []string
	for _, f := range found.Tasks {
		got = append(got, string(f.Kind)+" "+f.Task)
	}

	want := []string{"failed ignored", "failed rescued", "unjudged excused", "failed silent"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	found.Add(run, configuration.Event{Event: configuration.EventStats, Lost: 1})

	if !found.Truncated {
		t.Error("the lost event is not shown")
	}
}

// TestVerifyHidesFormerSecrets: a verification hides the secrets with which its nodes were
// configured, besides those of now.
func TestVerifyHidesFormerSecrets(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.set(func(s *Settings) { s.Secrets = configuration.DefaultSecrets() })
	b.see("a b")

	for _, c := range []struct{ node, secret string }{{"a", "of-a"}, {"b", "of-b"}} {
		j, err := b.Submit(t.Context(), job.Request{
			Verb: commission, Nodes: names(c.node), Group: master, Extra: configuration.Vars{"db_password": c.secret},
		})
		b.must(err)
		b.end(j.ID, "Complete")
	}

	begun := len(b.books.started())
	j, err := b.Submit(t.Context(), job.Request{
		Verb: inventory.VerbVerify, Nodes: names("a"), Extra: configuration.Vars{"db_password": "of-now"},
	})
	b.must(err)
	b.end(j.ID, "Complete")

	for _, s := range b.books.started()[begun:] {
		want := []string{"of-now"}
		if s.Ansible.Diff {
			want = []string{"of-a", "of-now"}
		}
		if !reflect.DeepEqual(s.Secrets, want) {
			t.Errorf("%s hides %q, want %q", s.Playbook, s.Secrets, want)
		}
	}
}

// TestDifferencesHideSecretsOfFailedJobs: after applies that failed, a node may have the secrets of each of them, and
// those of the job that configured it whole. An apply with --check --diff and a verification hide them all.
func TestDifferencesHideSecretsOfFailedJobs(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.set(func(s *Settings) { s.Secrets = configuration.DefaultSecrets() })
	b.see("a b")

	options := inventory.JobOptions{}
	do := func(verb inventory.Verb, node, group, secret, how string) {
		t.Helper()

		j, err := b.Submit(t.Context(), job.Request{
			Verb: verb, Nodes: names(node), Group: group, Extra: configuration.Vars{"db_password": secret},
			JobOptions: options,
		})
		b.must(err)
		b.end(j.ID, how)
	}

	do(commission, "a", master, "of-the-first", "Complete")
	do(commission, "b", master, "of-another-node", "Complete")
	do(apply, "a", "", "of-the-whole", "Complete")

	b.books.on(job.PlaybookSite, failsOn("a-1"))
	do(apply, "a", "", "of-a-failure", "Errored failed")
	do(apply, "a", "", "of-the-next", "Errored failed")
	b.books.on(job.PlaybookSite, resultsOn(RunExit{}, job.HostResult{Begun: true, Done: true, OK: 1, Selected: true}))

	for _, verb := range []inventory.Verb{apply, inventory.VerbVerify} {
		options = inventory.JobOptions{Check: verb == apply, Diff: verb == apply}
		begun := len(b.books.started())
		do(verb, "a", "", "of-now", "Complete")

		want := []string{"of-a-failure", "of-now", "of-the-next", "of-the-whole"}
		if i := slices.IndexFunc(b.books.started()[begun:], func(s RunSpec) bool {
			return s.Ansible.Diff && reflect.DeepEqual(s.Secrets, want)
		}); i < 0 {
			t.Errorf("%s: no run of %+v hides %q", verb, b.books.started()[begun:], want)
		}
	}
}
