// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/state"
)

// fail lets the job of a decision fail, as on a host whose service does not start.
func fail(w *policy.World, d state.Decision, id string) {
	d.Phase, d.Job = state.PhaseDone, id
	setMemory(w.View, state.AutomationOf(w.View).With(d))
	w.View.PutJob(&job.Job{
		ID: id, Verb: inventory.VerbCommission, Actor: "policy:" + d.Policy, Status: job.Errored, Group: d.Group,
		Targets: []job.Target{{Name: d.Node}}, Accepted: w.Now, Ended: w.Now, Message: "etcd is not healthy",
		Runs: []job.Run{{}},
	})

	n := w.View.Find(d.Node)
	n.PrevStatus, n.LastError = inventory.Provisioning, "etcd is not healthy"
}

// answers is ssh not reaching the lost nodes a minute ago.
func answers(w policy.World, lost ...*inventory.Node) {
	for _, n := range lost {
		*n = n.Contacted(inventory.Contact{Time: w.Now.Add(-time.Minute), Silent: true, Reason: "no route"})
	}
}

// masterLost is a site of three masters whose first one is lost, with fresh nodes.
func masterLost(fresh int) (policy.World, *inventory.Node) {
	lost := master("m-0", "a")
	nodes := []*inventory.Node{lost, master("m-1", "b"), master("m-2", "c")}

	for i := range fresh {
		nodes = append(nodes, inRack(fmt.Sprintf("n-%d", i), "a", noon.Add(time.Duration(i)*time.Second)))
	}

	r := siteRule()
	r.Roles = r.Roles[:1]
	w := siteWorld(r, nodes...)
	lose(w, lost, time.Hour)

	return w, lost
}

// TestReplacementFailed: a place whose replacement failed is not given away: that is a warning, and
// another node is tried, after a minute and then after two. After three failures no other node is
// used up, also if other commissions of the policy succeed between them, until the policy is turned
// on anew.
func TestReplacementFailed(t *testing.T) {
	t.Parallel()

	w, lost := masterLost(6)
	rule := policy.Commission{Rule: w.Settings.Commission[0]}
	delays := []time.Duration{time.Minute, 2 * time.Minute}
	last := ""

	for i := range 3 {
		p := policy.Decide(rule, w)
		if got, want := joins(p), fmt.Sprintf("n-%d master", i); got != want || p.Decisions[0].Replaces != "m-0" {
			t.Fatalf("attempt %d: %q, want %q", i, got, want)
		}

		last = fmt.Sprint(7 + i)
		fail(&w, p.Decisions[0], last)
		succeed(&w, i)

		role := rule.Roles(w)[0]
		want := fmt.Sprintf("%d attempt", i+1)

		for what, texts := range map[string][]string{
			"the health": policy.Warnings(w), "the policy": role.Warnings, "the notes": role.Notes,
			"the explanation": {findings(rule, w, *lost)[0].Message},
			"the next node":   {findings(rule, w, *w.View.Find(fmt.Sprint("n-", i+1)))[0].Message},
		} {
			text := strings.Join(texts, "\n")
			if !strings.Contains(text, want) || !strings.Contains(text, "job "+last+" on n-"+fmt.Sprint(i)+
				": etcd is not healthy") || strings.Contains(text, "takes its place") {
				t.Errorf("attempt %d: %s says %q", i, what, text)
			}
		}

		if i < len(delays) {
			due := w.Now.Add(delays[i])
			if p := policy.Decide(rule, w); len(p.Decisions) > 0 || !p.Next.Equal(due) {
				t.Errorf("attempt %d: %s, and the next one at %s", i, joins(p), p.Next)
			}
			w.Now = due
			answers(w, lost)
		}
	}

	w.Now = w.Now.Add(24 * time.Hour)
	answers(w, lost)

	if p := policy.Decide(rule, w); len(p.Decisions) > 0 {
		t.Errorf("a fourth node is used up: %+v", p.Decisions)
	}

	if text := strings.Join(policy.Warnings(w), "\n"); !strings.Contains(text, "no other node is tried") ||
		!strings.Contains(text, "disable and enable the policy") {
		t.Error(text)
	}

	setMemory(w.View, state.AutomationOf(w.View).Turn("site", state.Switch{On: true, Since: w.Now.Add(-time.Second)}))

	if got := joins(policy.Decide(rule, w)); got != "n-3 master" {
		t.Errorf("turned on anew: %q", got)
	}
}

// succeed adds a commission of the policy that went well, so that no failures are in a row.
func succeed(w *policy.World, i int) {
	w.View.PutJob(&job.Job{
		ID: fmt.Sprint(100 + i), Verb: inventory.VerbCommission, Actor: "policy:site", Status: job.Complete,
		Group: "service-worker", Targets: []job.Target{{Name: "w-0"}}, Accepted: w.Now, Ended: w.Now.Add(time.Second),
	})
}

// TestReplacementStops: a policy that turned itself off because its replacements failed is in the
// health.
func TestReplacementStops(t *testing.T) {
	t.Parallel()

	w, lost := masterLost(5)
	rule := policy.Commission{Rule: w.Settings.Commission[0]}

	for i := range 3 {
		p := policy.Decide(rule, w)
		if got, want := joins(p), fmt.Sprintf("n-%d master", i); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
		fail(&w, p.Decisions[0], fmt.Sprint(7+i))

		w.Now = w.Now.Add(time.Hour)
		answers(w, lost)
	}

	p := policy.Decide(rule, w)
	if len(p.Decisions) != 1 || p.Decisions[0].Action != state.ActionStop {
		t.Fatalf("%+v", p.Decisions)
	}
	setMemory(w.View, state.AutomationOf(w.View).Turn("site", state.Switch{
		Since: w.Now, Actor: "policy:site", Reason: p.Decisions[0].Case,
	}))

	text := strings.Join(policy.Warnings(w), "\n")
	if !strings.Contains(text, "policy site turned itself off") || !strings.Contains(text, "then enable it") ||
		!strings.Contains(text, "job 9 on n-2: etcd is not healthy") {
		t.Error(text)
	}

	// A person who turned it off knows.
	setMemory(w.View, state.AutomationOf(w.View).Turn("site", state.Switch{Since: w.Now, Actor: "ann"}))

	if text := policy.Warnings(w); len(text) > 0 {
		t.Error(text)
	}
}

// TestReplacementUnderWay: until its job has ended, a replacement has the place.
func TestReplacementUnderWay(t *testing.T) {
	t.Parallel()

	w, lost := masterLost(2)
	rule := policy.Commission{Rule: w.Settings.Commission[0]}
	fail(&w, policy.Decide(rule, w).Decisions[0], "7")

	j, n := w.View.Jobs()[0], w.View.Find("n-0")
	j.Status, j.Ended, j.Message = job.Running, time.Time{}, ""
	n.Status, n.Group, n.Job = inventory.Provisioning, "service-master", "7"

	f := findings(rule, w, *lost)
	if len(f) != 1 || !strings.HasSuffix(f[0].Message, "; n-0 takes its place") || len(policy.Warnings(w)) > 0 {
		t.Errorf("%+v, %q", f, policy.Warnings(w))
	}

	if p := policy.Decide(rule, w); len(p.Decisions) > 0 {
		t.Errorf("%+v", p.Decisions)
	}
}

// TestReplacementTwoLost: of three masters two are lost at once. Nothing is replaced and no new node
// is used up, not even for workers; the health, the policy and the new nodes give the reason.
func TestReplacementTwoLost(t *testing.T) {
	t.Parallel()

	m := []*inventory.Node{master("m-0", "a"), master("m-1", "b"), master("m-2", "c")}
	w := siteWorld(siteRule(), append(slices.Clone(m), inRack("n-0", "a", noon), inRack("n-1", "b", noon))...)
	rule := policy.Commission{Rule: siteRule()}

	lose(w, m[0], time.Minute)
	lose(w, m[1], time.Minute)

	for _, since := range []time.Duration{time.Minute, 29 * time.Minute, time.Hour, 48 * time.Hour} {
		w.Now = m[0].Presence.Since.Add(since)
		answers(w, m[0], m[1])

		if p := policy.Decide(rule, w); len(p.Decisions) > 0 {
			t.Errorf("after %s: %s", since, joins(p))
		}

		const reason = "1 of 3 nodes of service-master are healthy, fewer than the majority of 2: nothing is replaced"

		for what, texts := range map[string][]string{
			"the health": policy.Warnings(w), "the policy": rule.Roles(w)[0].Warnings,
			"the new node": {findings(rule, w, *w.View.Find("n-1"))[0].Message},
			"the lost one": {findings(rule, w, *m[0])[0].Message},
		} {
			if text := strings.Join(texts, "\n"); !strings.Contains(text, reason) {
				t.Errorf("after %s: %s says %q", since, what, text)
			}
		}
	}
}

// TestReplacementOfSeveral: of five masters two are lost, the second one later. While that one may
// return, no node is used up for the first: a cluster takes no member while another one is silent.
// Then the decision names both.
func TestReplacementOfSeveral(t *testing.T) {
	t.Parallel()

	r := siteRule()
	r.Roles[0].Count, r.Roles = 5, r.Roles[:1]

	var m []*inventory.Node
	for i := range 5 {
		m = append(m, master(fmt.Sprintf("m-%d", i), fmt.Sprint(i)))
	}

	w := siteWorld(r, append(slices.Clone(m), inRack("n-0", "a", noon), inRack("n-1", "b", noon))...)
	rule := policy.Commission{Rule: r}

	lose(w, m[0], time.Hour)
	lose(w, m[1], 20*time.Minute)

	if p := policy.Decide(rule, w); len(p.Decisions) > 0 || !p.Next.Equal(w.Now.Add(10*time.Minute)) {
		t.Errorf("%s, next %s", joins(p), p.Next)
	}

	w.Now = w.Now.Add(10 * time.Minute)
	answers(w, m[0], m[1])

	d := policy.Decide(rule, w).Decisions
	if len(d) != 1 || d[0].Replaces != "m-0" || !slices.Equal(d[0].Lost, []string{"m-0", "m-1"}) {
		t.Errorf("%+v", d)
	}

	// Its agent alone has stopped, so its cluster hears it.
	m[1].Presence.Away.Reached = true

	d = policy.Decide(rule, w).Decisions
	if len(d) != 1 || !slices.Equal(d[0].Lost, []string{"m-0"}) {
		t.Errorf("%+v", d)
	}
}

// TestFailedReplacementIsNotForgotten: failures count while the node is lost, however many decisions follow.
func TestFailedReplacementIsNotForgotten(t *testing.T) {
	t.Parallel()

	w, lost := masterLost(2)
	rule := policy.Commission{Rule: w.Settings.Commission[0]}
	fail(&w, policy.Decide(rule, w).Decisions[0], "7")

	// Jobs are kept for a shorter time.
	w.View.SetJobs()
	w.Now = w.Now.Add(time.Hour)
	setMemory(w.View, flood(w))

	if text := strings.Join(policy.Warnings(w), ""); !strings.Contains(text, "1 attempt to replace it failed") {
		t.Errorf("%q", text)
	}

	lost.Group = ""

	if a := flood(w); len(a.Of("n-0")) > 0 {
		t.Error("it is kept for ever")
	}
}
