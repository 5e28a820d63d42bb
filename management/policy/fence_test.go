// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// fenceSite is a site of masters of which the first one is lost, as masterLost, with BMCs that turn lost ones off.
func fenceSite(fresh int) (policy.World, *inventory.Node, policy.Commission) {
	w, lost := masterLost(fresh)
	w.Settings.Commission[0].Roles[0].Fence = policy.FencePower
	says(w, lost, 1, inventory.Power{Power: "on"})
	registers(w, lost, 1)

	return w, lost, policy.Commission{Rule: w.Settings.Commission[0]}
}

// registers registers the BMC of a node.
func registers(w policy.World, n *inventory.Node, revision int64) {
	m := &state.Machine{Machine: machine.Machine{
		Node: n.Name, BMC: &machine.BMC{Driver: machine.IPMI, Address: "127.9.0.1"},
	}}
	w.View.View = record.SetAt(w.View.View, &state.Machines, n.Name, m, revision)
}

// says is what the BMC of a node says.
func says(w policy.World, n *inventory.Node, revision int64, p inventory.Power) {
	p.Node = n.Name
	w.View.View = record.SetAt(w.View.View, &state.Powers, n.Name, &p, revision)
}

// turnOff has the job of a decision in that status.
func turnOff(w policy.World, d state.Decision, id string, status job.Status) {
	d.Phase, d.Job = state.PhaseDone, id
	a := state.AutomationOf(w.View)
	if a.Find(d.ID) != nil {
		a = a.Replace(d)
	} else {
		a = a.With(d)
	}
	setMemory(w.View, a)

	j := job.Job{
		ID: id, Verb: inventory.VerbPower, Actor: "policy:" + d.Policy, Status: status,
		Targets: []job.Target{{Name: d.Node}}, Accepted: w.Now, Runs: []job.Run{{}},
	}
	if status.Ended() {
		j.Ended = w.Now
	}
	if status == job.Errored {
		j.Message = "the BMC does not answer"
	}
	w.View.SetJobs(append(slices.DeleteFunc(w.View.Jobs(), func(k *job.Job) bool { return k.ID == id }), &j)...)
}

// next is the decisions of the policy as ACTION NODE.
func next(c policy.Commission, w policy.World) string {
	var all []string
	for _, d := range policy.Decide(c, w).Decisions {
		all = append(all, string(d.Action)+" "+cmp.Or(d.Node, d.Cancel))
	}

	return strings.Join(all, ", ")
}

// TestFence: before a lost node is replaced, its BMC turns it off. Its place is not given away while the job has not
// ended, nor before the BMC says that the node is off; and then the commission names that as its evidence.
func TestFence(t *testing.T) {
	t.Parallel()

	w, lost, c := fenceSite(2)

	p := policy.Decide(c, w)
	if got := next(c, w); got != "poweroff m-0" {
		t.Fatalf("%q: %+v", got, p.Decisions)
	}
	d := p.Decisions[0]
	confirmAll(t, "power off", w, p)

	for _, status := range []job.Status{job.Queued, job.Running} {
		turnOff(w, d, "7", status)

		if got := next(c, w); got != "" {
			t.Errorf("%s: %s", status, got)
		}
		if text := findings(c, w, *lost)[0].Message; !strings.Contains(text, "it is being turned off by job 7") {
			t.Errorf("%s: %s", status, text)
		}
	}

	turnOff(w, d, "7", job.Complete)

	for _, p := range []inventory.Power{{Power: "on"}, {Power: "changing"}, {Power: "off", Problem: "silent"}, {}} {
		says(w, lost, 2, p)

		if got := next(c, w); got != "" {
			t.Errorf("its BMC says %+v: %s", p, got)
		}
		if len(policy.Warnings(w)) != 1 {
			t.Errorf("its BMC says %+v: %q", p, policy.Warnings(w))
		}
	}

	says(w, lost, 3, inventory.Power{Power: "off"})

	p = policy.Decide(c, w)
	if got := next(c, w); got != "commission n-0" || p.Decisions[0].Replaces != "m-0" ||
		!strings.Contains(strings.Join(p.Decisions[0].Evidence, "\n"), "its BMC says that it is off") {
		t.Fatalf("%q: %+v", got, p.Decisions)
	}
	confirmAll(t, "commission", w, p)

	// Between the decision and its job somebody turns the lost node on.
	setMemory(w.View, state.AutomationOf(w.View).With(p.Decisions[0]))
	says(w, lost, 4, inventory.Power{Power: "on"})

	if why := policy.Confirm(c, w, p.Decisions[0]); !strings.Contains(why, "it is left so") {
		t.Errorf("the commission is confirmed: %q", why)
	}
}

// TestFenceOffByItself: a node that is off already is turned off all the same: its BMC looks once more, and the history
// has it.
func TestFenceOffByItself(t *testing.T) {
	t.Parallel()

	w, lost, c := fenceSite(1)
	says(w, lost, 2, inventory.Power{Power: "off"})

	if got := next(c, w); got != "poweroff m-0" {
		t.Error(got)
	}
}

// TestFenceNever: what cannot be turned off is not replaced, which is a warning with its remedy. Nothing is turned off
// before a new node could take its place.
func TestFenceNever(t *testing.T) {
	t.Parallel()

	for what, change := range map[string]func(w *policy.World, lost *inventory.Node){
		"register its BMC": func(w *policy.World, lost *inventory.Node) {
			w.View.View = record.SetAt(w.View.View, &state.Machines, lost.Name, nil, 1)
		},
		"its alert": func(_ *policy.World, lost *inventory.Node) {
			refuses := []inventory.Effect{inventory.BlocksPower}
			lost.Alerts = []inventory.Alert{{ID: "1", Reason: "cooling", Effects: refuses}}
		},
		"": func(w *policy.World, _ *inventory.Node) { w.View.Find("n-0").Presence.Since = w.Now },
	} {
		w, lost, c := fenceSite(1)
		change(&w, lost)

		if got := next(c, w); got != "" {
			t.Errorf("%s: %s", what, got)
		}
		if text := strings.Join(policy.Warnings(w), ""); what != "" && !strings.Contains(text, what) ||
			what == "" && text != "" {
			t.Errorf("%s: %q", what, text)
		}
		if text := findings(c, w, *lost)[0].Message; !strings.Contains(text, what) {
			t.Errorf("%s: %q", what, text)
		}
	}
}

// TestFenceFails: after a failure the node is not replaced, and is turned off again once something has changed: what
// its BMC says, what is registered of it, or the policy was turned on anew; and not too soon.
func TestFenceFails(t *testing.T) {
	t.Parallel()

	w, lost, c := fenceSite(2)
	turnOff(w, policy.Decide(c, w).Decisions[0], "7", job.Errored)

	later := func(d time.Duration) {
		w.Now = w.Now.Add(d)
		answers(w, lost)
	}

	later(24 * time.Hour)

	if got := next(c, w); got != "" {
		t.Fatalf("nothing has changed: %s", got)
	}
	for what, text := range map[string]string{
		"the health": strings.Join(policy.Warnings(w), ""), "the node": findings(c, w, *lost)[0].Message,
		"the new node": findings(c, w, *w.View.Find("n-0"))[0].Message,
	} {
		if !strings.Contains(text, "job 7 on m-0: the BMC does not answer") ||
			!strings.Contains(text, "turn the node off") {
			t.Errorf("%s says %q", what, text)
		}
	}

	says(w, lost, 2, inventory.Power{Power: "on", Problem: "no answer"})

	if got := next(c, w); got != "" {
		t.Errorf("its BMC still fails: %s", got)
	}

	// Each change is worth one attempt. Its job fails at once.
	changes := map[string]func(revision int64){
		"the BMC answers":    func(revision int64) { says(w, lost, revision, inventory.Power{Power: "on"}) },
		"it has another BMC": func(revision int64) { registers(w, lost, revision) },
		"the policy is on anew": func(int64) {
			setMemory(w.View, state.AutomationOf(w.View).Turn("site", state.Switch{On: true, Since: w.Now}))
			w.Now = w.Now.Add(time.Second)
		},
	}
	for i, what := range []string{"the BMC answers", "it has another BMC", "the BMC answers", "the policy is on anew"} {
		changes[what](int64(10 + i))

		d := policy.Decide(c, w).Decisions
		if len(d) != 1 || d[0].Action != state.ActionPowerOff {
			t.Fatalf("%d, %s: %q", i, what, next(c, w))
		}
		turnOff(w, d[0], fmt.Sprint(8+i), job.Errored)

		if got := next(c, w); got != "" {
			t.Errorf("%d, %s: it is tried twice: %s", i, what, got)
		}

		// Not too soon after the last failure.
		if i == 0 {
			registers(w, lost, 9)
			if p := policy.Decide(c, w); len(p.Decisions) > 0 || !p.Next.Equal(w.Now.Add(2*time.Minute)) {
				t.Errorf("it is tried at once, or at %s: %+v", p.Next, p.Decisions)
			}
		}

		later(2 * time.Hour)
	}
}

// TestFenceReturns: a node that returns keeps its place. The job that is to turn it off is cancelled while it waits.
// One that was faster leaves the node off, which the health and the explanation say, and it is lost only anew.
func TestFenceReturns(t *testing.T) {
	t.Parallel()

	w, lost, c := fenceSite(2)
	d := policy.Decide(c, w).Decisions[0]
	setMemory(w.View, state.AutomationOf(w.View).With(d))

	back := func() { seen(lost, true, w.Now) }
	before := lost.Clone()

	back()

	if why := policy.Confirm(c, w, d); why == "" {
		t.Error("it is turned off although it returned")
	}

	turnOff(w, d, "7", job.Queued)

	if got := policy.Decide(c, w).Decisions; len(got) != 1 || got[0].Cancel != "7" {
		t.Errorf("the job is not cancelled: %+v", got)
	}

	*lost = before

	if got := next(c, w); got != "" {
		t.Errorf("the job of a lost node is cancelled: %s", got)
	}

	w.Now = w.Now.Add(time.Second)
	back()

	w.Now = w.Now.Add(10 * time.Second)
	turnOff(w, d, "7", job.Complete)
	says(w, lost, 2, inventory.Power{Power: "off"})
	seen(lost, false, w.Now)

	if got := next(c, w); got != "" {
		t.Errorf("its place is given away: %s", got)
	}

	for what, text := range map[string]string{
		"the health": strings.Join(policy.Warnings(w), ""), "the node": findings(c, w, *lost)[0].Message,
	} {
		if !strings.Contains(text, "policy site turned it off by job 7") ||
			!strings.Contains(text, "although it returned meanwhile: it stays off until somebody turns it on") {
			t.Errorf("%s says %q", what, text)
		}
	}

	w.Now = w.Now.Add(30 * time.Minute)
	answers(w, lost)

	if got := next(c, w); got != "poweroff m-0" {
		t.Errorf("lost anew: %q", got)
	}
}

// TestFenceQuarantined: the host of a Quarantined node is turned off before the node is replaced. The job leaves the
// status with its time.
func TestFenceQuarantined(t *testing.T) {
	t.Parallel()

	w, n, c := fenceSite(1)
	seen(n, true, w.Now)
	*n, _ = n.Quarantine(inventory.Trigger{Actor: "policy:returns", Time: w.Now.Add(-time.Hour)})

	d := policy.Decide(c, w).Decisions
	if len(d) != 1 || d[0].Action != state.ActionPowerOff {
		t.Fatalf("%+v", d)
	}

	row, _ := inventory.TransitionOf(inventory.VerbPower)

	held, _, err := n.Hold(row, "", inventory.Trigger{Job: "7", Time: w.Now})
	if err != nil {
		t.Fatal(err)
	}

	w.Now = w.Now.Add(time.Minute)
	left := inventory.Outcome{Status: inventory.Quarantined, Group: n.Group}
	*n, _ = held.Release(left, inventory.Trigger{Time: w.Now})
	turnOff(w, d[0], "7", job.Complete)
	says(w, n, 2, inventory.Power{Power: "off"})

	if got := next(c, w); got != "commission n-0" {
		t.Errorf("%q; %q", got, policy.Warnings(w))
	}
}

// TestFenceOneAtATime: of five masters two are lost. One is turned off at a time, and the other one where that fails.
func TestFenceOneAtATime(t *testing.T) {
	t.Parallel()

	w, _, c := fenceSite(1)
	w.Settings.Commission[0].Roles[0].Count = 5
	c.Rule = w.Settings.Commission[0]

	other := master("m-3", "d")
	w.View.PutNode(other)
	w.View.PutNode(master("m-4", "e"))
	lose(w, other, 50*time.Minute)
	registers(w, other, 1)

	p := policy.Decide(c, w)
	if got := next(c, w); got != "poweroff m-0" {
		t.Fatal(got)
	}
	turnOff(w, p.Decisions[0], "7", job.Running)

	if got := next(c, w); got != "" {
		t.Errorf("while one is being turned off: %s", got)
	}

	// The second one goes on where the first one cannot.
	turnOff(w, p.Decisions[0], "7", job.Errored)

	if got := next(c, w); got != "poweroff m-3" {
		t.Errorf("after the failure: %q", got)
	}
}

// TestFenceIsNotForgotten: however many decisions follow, it is known that the policy has turned the node off.
func TestFenceIsNotForgotten(t *testing.T) {
	t.Parallel()

	w, lost, c := fenceSite(1)
	turnOff(w, policy.Decide(c, w).Decisions[0], "7", job.Complete)
	says(w, lost, 2, inventory.Power{Power: "off"})

	w.View.SetJobs()
	w.Now = w.Now.Add(time.Hour)
	answers(w, lost)
	setMemory(w.View, flood(w))

	if got := next(c, w); got != "commission n-0" {
		t.Errorf("%q", got)
	}
}
