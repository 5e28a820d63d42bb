// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
)

// Principals of the tests.
var (
	ann = access.Caller{Principal: "ann"}
	bob = access.Caller{Principal: "bob"}
)

// fleet brings nodes into service, with playbooks that fail on the hosts of the file fault,
// and wait at the FIFO fault.wait while it exists.
func (s *site) fleet(labels string) (names []string, fault string) {
	s.t.Helper()

	for _, l := range strings.Fields(labels) {
		names = append(names, l+"-1")
	}

	s.report(labels)

	if j := s.runJob(api.JobRequest{
		Verb: inventory.VerbCommission, Nodes: names, Group: inventory.GroupMaster,
	}); j.Status != api.Complete {
		s.t.Fatalf("%+v", j)
	}

	fault = filepath.Join(s.dir, "fault")
	s.site("# fault: " + fault)

	return names, fault
}

// site adds a line to the playbook.
func (s *site) site(line string) {
	s.t.Helper()

	name := filepath.Join(s.dir, "playbooks", "site.yml")
	text, err := os.ReadFile(name)
	s.must(err)
	s.must(os.WriteFile(name, append(text, []byte(line+"\n")...), 0o600))
}

// rollout returns the newest record.
func (s *site) rollout(id string) rollout.Record {
	r := record.Get(s.View(), &rollout.Kind, id)
	if r == nil {
		return rollout.Record{}
	}
	return *r
}

// reach waits until the rollout meets the condition.
func (s *site) reach(id, what string, ok func(rollout.Record) bool) rollout.Record {
	s.t.Helper()

	deadline := time.After(patience)

	for {
		changed := s.store.Changed()

		r := s.rollout(id)
		if ok(r) {
			return r
		}

		select {
		case <-changed:
		case <-deadline:
			s.t.Fatalf("%s: not reached: %s, %q, waits %q, %+v", what, r.Status, r.Reason, r.Waits, r.Nodes)
		}
	}
}

func is(status rollout.Status) func(rollout.Record) bool {
	return func(r rollout.Record) bool { return r.Status == status }
}

// apply is a rollout of apply without a verification, which the fake playbooks cannot pass.
func apply(nodes []string, change func(*rollout.Request)) rollout.Request {
	req := rollout.Request{
		Spec:  rollout.Spec{Action: inventory.VerbApply, Gate: rollout.Gate{SkipVerify: true}},
		Nodes: nodes,
	}
	if change != nil {
		change(&req)
	}
	return req
}

// attempts counts the jobs of the rollout by node.
func (s *site) attempts(id string) map[string]int {
	count := map[string]int{}

	for _, j := range s.View().Jobs() {
		if j.Rollout == id && j.Verb != inventory.VerbVerify {
			count[j.Names()[0]]++
		}
	}

	return count
}

// TestRolloutStopsAndGoesOn: two of eight nodes fail, max_failures is 1. It stops, is
// corrected, and goes on with a retry.
func TestRolloutStopsAndGoesOn(t *testing.T) {
	t.Parallel()
	s := begin(t)
	names, fault := s.fleet("a b c d e f g h")
	s.must(os.WriteFile(fault, []byte("b-1\nd-1\n"), 0o600))

	r, err := s.Rollouts().Start(s.ctx(), ann, apply(names, func(r *rollout.Request) {
		r.MaxFailures, r.Reason = 1, "the new kernel"
		r.Extra = configuration.Vars{"motd": "hello"}
	}))
	s.must(err)

	r = s.reach(r.ID, "it stops", func(r rollout.Record) bool {
		return r.Status == rollout.Stopped && r.Count().InProgress == 0
	})
	if c := r.Count(); c.Failed != 2 || c.Succeeded != 2 || c.Waiting != 4 ||
		!strings.Contains(r.Reason, "max_failures is 1") {
		t.Errorf("%+v, %q", c, r.Reason)
	}

	for _, j := range s.View().Jobs() {
		if j.Rollout == r.ID && (j.Actor != "rollout:"+r.ID || !strings.Contains(j.Reason, "of ann: the new kernel") ||
			!slices.Equal(j.ExtraNames, []string{"motd"})) {
			t.Errorf("%+v", j)
		}
	}

	// Another rollout of the same nodes is refused meanwhile.
	_, err = s.Rollouts().Start(s.ctx(), bob, apply(names[7:], nil))
	checkError(t, err, inventory.KindRefused, "h-1", r.ID)

	s.must(os.WriteFile(fault, nil, 0o600))
	_, err = s.Rollouts().Control(s.ctx(), bob, r.ID, rollout.ActRetry, rollout.ActOptions{})
	s.must(err)

	r = s.reach(r.ID, "it is done", is(rollout.Done))
	if c := r.Count(); c.Succeeded != 8 {
		t.Errorf("%+v", c)
	}

	want := map[string]int{"a-1": 1, "b-1": 2, "c-1": 1, "d-1": 2, "e-1": 1, "f-1": 1, "g-1": 1, "h-1": 1}
	if got := s.attempts(r.ID); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v", got)
	}
}

// hold makes the playbooks wait, until the function that it returns is called.
func (s *site) hold(fault string) (release func()) {
	s.t.Helper()

	name := s.fifo(filepath.Base(fault) + ".wait")

	// A writer, so that every reader sees the end once it is closed.
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	s.must(err)

	return sync.OnceFunc(func() {
		_ = os.Remove(name) // before the end, so that later ones do not wait
		_ = f.Close()
	})
}

// TestRolloutIsSurvived kills the manager in the middle of a rollout, while its playbooks run.
// The next one continues, and no node is visited twice.
func TestRolloutIsSurvived(t *testing.T) {
	t.Parallel()
	s := begin(t)
	names, fault := s.fleet("a b c d e f")
	release := s.hold(fault)
	t.Cleanup(release)

	r, err := s.Rollouts().Start(s.ctx(), ann, apply(names, func(r *rollout.Request) { r.MaxUnavailable = "2" }))
	s.must(err)

	r = s.reach(r.ID, "two begin", func(r rollout.Record) bool { return r.Count().InProgress == 2 })
	s.waitOutput(r.Nodes[0].Job, "waiting\n")
	s.restart()

	got := s.rollout(r.ID)
	if got.Status != rollout.Running || got.Count().InProgress != 2 || got.Nodes[0].Job != r.Nodes[0].Job {
		t.Fatalf("%+v", got)
	}

	release()

	r = s.reach(r.ID, "it is done", is(rollout.Done))
	if c, jobs := r.Count(), s.attempts(r.ID); c.Succeeded != 6 || len(jobs) != 6 {
		t.Errorf("%+v, %v", c, jobs)
	}

	for name, n := range s.attempts(r.ID) {
		if n != 1 {
			t.Errorf("%s was visited %d times", name, n)
		}
	}
}

// TestRolloutAborted: an abort cancels the waiting and the running jobs, and leaves no node held.
func TestRolloutAborted(t *testing.T) {
	t.Parallel()
	s := begin(t, "jobs: {limit: 1}")
	names, fault := s.fleet("a b c d")
	release := s.hold(fault)
	t.Cleanup(release)

	r, err := s.Rollouts().Start(s.ctx(), ann, apply(names, func(r *rollout.Request) { r.MaxUnavailable = "3" }))
	s.must(err)

	// One of three runs, because one job may.
	r = s.reach(r.ID, "three begin", func(r rollout.Record) bool { return r.Count().InProgress == 3 })
	s.waitOutput(r.Nodes[0].Job, "waiting\n")

	_, err = s.Rollouts().Control(s.ctx(), bob, r.ID, rollout.ActAbort, rollout.ActOptions{Reason: "the wrong kernel"})
	s.must(err)

	// The queued ones end at once; the running one finishes.
	r = s.reach(r.ID, "queued ones end", func(r rollout.Record) bool { return r.Count().InProgress == 1 })
	if j, err := s.View().Job(r.Nodes[0].Job); err != nil || j.Status != job.Running || j.Cancel != 0 {
		t.Errorf("%+v, %v", j, err)
	}

	// A second abort may be harder than the first.
	_, err = s.Rollouts().Control(s.ctx(), bob, r.ID, rollout.ActAbort, rollout.ActOptions{Cancel: true})
	s.must(err)

	r = s.reach(r.ID, "it is aborted", is(rollout.Aborted))
	if c := r.Count(); c.Failed != 3 || c.Skipped != 1 {
		t.Errorf("%+v: %+v", c, r.Nodes)
	}

	for _, n := range s.View().Nodes() {
		if n.Status.InProgress() || n.Job != "" {
			t.Errorf("%s is %s by job %s", n.Name, n.Status, n.Job)
		}
	}
}

// TestRolloutCanaryAndUndo: another person approves it, a bad playbook stops at the canary and
// leaves the other hosts alone, a good one is promoted, and an undo brings the former
// playbooks back.
func TestRolloutCanaryAndUndo(t *testing.T) {
	t.Parallel()
	s := begin(t)
	names, fault := s.fleet("a b c")
	former := s.View().Nodes()[0].Playbooks[inventory.GroupMaster]
	s.must(os.WriteFile(fault, []byte("a-1\n"), 0o600))

	r, err := s.Rollouts().Start(s.ctx(), ann, apply(names, func(r *rollout.Request) {
		r.Canary, r.Promote, r.RequireApproval, r.MaxFailures, r.MaxUnavailable = 1, true, true, 3, "3"
	}))
	s.must(err)

	_, err = s.Rollouts().Control(s.ctx(), ann, r.ID, rollout.ActApprove, rollout.ActOptions{})
	checkError(t, err, inventory.KindRefused, "another person")

	if got := s.rollout(r.ID); got.Status != rollout.AwaitingApproval || len(s.attempts(r.ID)) > 0 {
		t.Fatalf("%+v", got)
	}

	_, err = s.Rollouts().Control(s.ctx(), bob, r.ID, rollout.ActApprove, rollout.ActOptions{Reason: "reviewed"})
	s.must(err)

	r = s.reach(r.ID, "the canary fails", is(rollout.Stopped))
	if c := r.Count(); c.Failed != 1 || c.Waiting != 2 || !strings.Contains(r.Reason, "the canary failed: a-1") {
		t.Errorf("%+v, %q", c, r.Reason)
	}

	// The correction is a new folder, and the retry takes it.
	s.site("# corrected")
	s.must(os.WriteFile(fault, nil, 0o600))

	// Bob has not approved these playbooks.
	_, err = s.Rollouts().Control(s.ctx(), ann, r.ID, rollout.ActRetry, rollout.ActOptions{PlaybooksNow: true})
	checkError(t, err, inventory.KindRefused, "its playbooks changed since")
	_, err = s.Rollouts().Control(s.ctx(), ann, r.ID, rollout.ActResume, rollout.ActOptions{PlaybooksNow: true})
	checkError(t, err, inventory.KindRefused, "its playbooks changed since")

	_, err = s.Rollouts().Control(s.ctx(), bob, r.ID, rollout.ActRetry, rollout.ActOptions{PlaybooksNow: true})
	s.must(err)

	s.reach(r.ID, "the canary is done", is(rollout.AwaitingPromotion))
	_, err = s.Rollouts().Control(s.ctx(), bob, r.ID, rollout.ActPromote, rollout.ActOptions{})
	s.must(err)

	r = s.reach(r.ID, "it is done", is(rollout.Done))
	if left, known := s.Rollouts().Remaining(r); left != 0 || !known {
		t.Errorf("%s, %t", left, known)
	}

	for _, n := range s.View().Nodes() {
		if n.Playbooks[inventory.GroupMaster] != r.Playbooks || former == r.Playbooks {
			t.Errorf("%s has %v, want %s", n.Name, n.Playbooks, r.Playbooks)
		}
	}

	// Back to the configuration of the commission.
	u, err := s.Rollouts().Undo(s.ctx(), ann, r.ID, "too slow")
	s.must(err)
	u = s.reach(u.ID, "it is undone", is(rollout.Done))

	for _, n := range s.View().Nodes() {
		if n.Playbooks[inventory.GroupMaster] != former {
			t.Errorf("%s has %v, want %s: %+v", n.Name, n.Playbooks, former, u.Nodes)
		}
	}

	_, err = s.Rollouts().Undo(s.ctx(), ann, r.ID, "again")
	checkError(t, err, inventory.KindRefused, "no node of rollout "+r.ID+" can go back")
}
