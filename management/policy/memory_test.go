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

// flood records so many decisions that everything else would be forgotten.
func flood(w policy.World) state.Automation {
	a := state.AutomationOf(w.View)

	for i := range 3 * state.MaxDecisions {
		a = policy.Remember(w, a.With(state.Decision{
			ID: fmt.Sprint("record/", i), Time: w.Now, Policy: "returns", Action: state.ActionRecord,
			Phase: state.PhaseDone,
		}))
	}

	return a
}

// TestCapIsNotForgotten: the nodes that the policy has quarantined count for its limit as long as
// they are quarantined, however many decisions come after.
func TestCapIsNotForgotten(t *testing.T) {
	t.Parallel()

	var nodes []*inventory.Node
	for i := range 20 {
		nodes = append(nodes, member(fmt.Sprintf("n-%02d", i), noon.Add(-time.Hour)))
	}

	// One more host has another key.
	changed := back("n-05", 2*time.Minute, inventory.Contact{Foreign: true, Reason: "another ssh host key"})
	nodes[5] = changed

	w := world(nodes...)
	w.Settings.Brake.Minimum, w.Settings.Brake.Share = 3, 1

	for _, n := range nodes[:2] {
		n.Status = inventory.Quarantined
		setMemory(w.View, state.AutomationOf(w.View).With(state.Decision{
			ID: n.Name, Time: noon.Add(-time.Hour), Policy: "returns", Node: n.Name, Action: state.ActionQuarantine,
			Phase: state.PhaseDone,
		}))
	}

	if got := actions(decide(w)); got != "" {
		t.Fatalf("with all decisions: %q", got)
	}

	setMemory(w.View, flood(w))

	if a := state.AutomationOf(w.View); len(a.Decisions) != state.MaxDecisions || a.Find("n-00") != nil ||
		!slices.Equal(a.Fenced, []string{"n-00", "n-01"}) {
		t.Fatalf("%d decisions, fenced %v", len(a.Decisions), a.Fenced)
	}

	if got := actions(decide(w)); got != "" {
		t.Errorf("after the flood: %q", got)
	}

	// An operator has cleared one, so that there is room for another.
	nodes[0].Status = inventory.Allocated

	if got := actions(decide(w)); got != "quarantine "+changed.Name {
		t.Errorf("after a clear: %q", got)
	}

	if a := policy.Remember(w, state.AutomationOf(w.View)); !slices.Equal(a.Fenced, []string{"n-01"}) {
		t.Errorf("after a clear: %v", a.Fenced)
	}
}

// TestRateIsNotForgotten: the actions of the last minutes count for the rate, and those that are
// not carried out yet are kept.
func TestRateIsNotForgotten(t *testing.T) {
	t.Parallel()

	w := world(member("b-1", noon.Add(-time.Hour)))

	for i, d := range []state.Decision{
		{Time: w.Now.Add(-time.Minute), Action: state.ActionVerify, Phase: state.PhaseDone},
		{Time: w.Now.Add(-time.Hour), Action: state.ActionVerify, Phase: state.PhaseDecided},
		{Time: w.Now.Add(-time.Hour), Action: state.ActionVerify, Phase: state.PhaseDone},
		{Time: w.Now.Add(-time.Minute), Action: state.ActionVerify, Phase: state.PhaseWithdrawn},
	} {
		d.ID, d.Policy = fmt.Sprint(i), "returns"
		setMemory(w.View, state.AutomationOf(w.View).With(d))
	}

	a := flood(w)
	for i, kept := range []bool{true, true, false, false} {
		if (a.Find(fmt.Sprint(i)) != nil) != kept {
			t.Errorf("decision %d: kept is not %t", i, kept)
		}
	}

	if len(a.Decisions) != state.MaxDecisions || a.Count != 4+3*state.MaxDecisions {
		t.Errorf("%d decisions of %d", len(a.Decisions), a.Count)
	}
}

// TestFailuresAreNotForgotten: refused commissions count until the policy is turned off by them.
func TestFailuresAreNotForgotten(t *testing.T) {
	t.Parallel()

	rule := workers()
	w := world(member("b-1", noon.Add(-time.Hour)))
	w.Settings.Commission = []policy.Rule{rule}
	setMemory(w.View, state.AutomationOf(w.View).Turn(rule.Name, state.Switch{On: true, Since: noon.Add(-time.Hour)}).
		With(state.Decision{
			ID: "refused", Time: noon, Policy: rule.Name, Node: "c-1", Action: state.ActionCommission,
			Phase: state.PhaseRefused,
		}))

	if a := flood(w); a.Find("refused") == nil {
		t.Error("the refused commission is forgotten")
	}
}

// TestTriedIsNotForgotten: a new node with a commission that an operator cancelled is not tried again.
func TestTriedIsNotForgotten(t *testing.T) {
	t.Parallel()

	n := newcomer("n-1", noon.Add(-time.Hour))
	w := freshWorld([]policy.Rule{workers()}, n)
	d := policy.Decide(policy.Commission{Rule: workers()}, w).Decisions[0]
	d.Phase, d.Job, d.Time = state.PhaseDone, "3", noon.Add(-50*time.Minute)
	w.View.SetJobs([]*job.Job{{
		ID: "3", Actor: "policy:workers", Verb: inventory.VerbCommission, Status: job.Cancelled, CancelBy: "ann",
		Accepted: d.Time, Ended: d.Time, Targets: []job.Target{{Name: n.Name}},
	}}...)
	setMemory(w.View, state.AutomationOf(w.View).With(d))
	setMemory(w.View, flood(w))

	if got := plan(w, workers()); got != "" || state.AutomationOf(w.View).Find(d.ID) == nil {
		t.Errorf("tried again: %q", got)
	}

	// Once it was used, the decision is as old as any other.
	n.PrevStatus = inventory.Decommissioning

	if a := flood(w); a.Find(d.ID) != nil {
		t.Error("it is kept for ever")
	}
}

// TestReplacementIsNotForgotten: a node that returned is named with the one in its place.
func TestReplacementIsNotForgotten(t *testing.T) {
	t.Parallel()

	m := []*inventory.Node{master("m-0", "a"), master("m-1", "b"), master("m-2", "c"), master("m-3", "a")}
	w := siteWorld(siteRule(), m...)
	setMemory(w.View, state.AutomationOf(w.View).With(state.Decision{
		ID: "1", Time: noon.Add(-time.Hour), Policy: "site", Node: "m-3", Action: state.ActionCommission,
		Group: "service-master", Replaces: "m-0", Phase: state.PhaseDone,
	}))
	setMemory(w.View, flood(w))

	text := policy.Warnings(w)
	if len(text) != 1 || !strings.Contains(text[0], "m-0 returned after m-3 took its place") {
		t.Errorf("%q", text)
	}

	m[0].Group = ""

	if a := flood(w); a.Find("1") != nil {
		t.Error("it is kept for ever")
	}
}

// TestDriftIsNotForgotten: a node that a verification after its return found drifted is repaired
// once, however many decisions come before and after.
func TestDriftIsNotForgotten(t *testing.T) {
	t.Parallel()

	n := back("n-1", 2*time.Minute, reached)
	w := world(n)
	w.Settings.Groups = reacting(inventory.ReactionVerifyAndRepair)

	d := decide(w).Decisions[0]
	d.Phase, d.Job = state.PhaseDone, "4"
	w.View.SetJobs([]*job.Job{{
		ID: "4", Verb: inventory.VerbVerify, Status: job.Running, Actor: "policy:returns",
		Targets: []job.Target{{Name: "n-1"}},
	}}...)
	setMemory(w.View, state.AutomationOf(w.View).With(d))
	*n, _ = n.Decided(inventory.Trigger{Time: w.Now})
	w.Now = w.Now.Add(time.Hour)
	setMemory(w.View, flood(w))

	w.View.Jobs()[0].Status, w.View.Jobs()[0].Ended = job.Complete, w.Now
	n.Verification = &inventory.Verdict{Result: inventory.Drifted, Time: w.Now, Job: "4"}
	w.Now = w.Now.Add(time.Hour)
	setMemory(w.View, flood(w))

	p := decide(w)
	if got := actions(p); got != "repair n-1" {
		t.Fatalf("%q", got)
	}
	p.Decisions[0].Phase = state.PhaseDone
	setMemory(w.View, state.AutomationOf(w.View).With(p.Decisions...))
	w.Now = w.Now.Add(time.Hour)
	setMemory(w.View, flood(w))

	if got := actions(decide(w)); got != "" {
		t.Errorf("again: %q", got)
	}
}
