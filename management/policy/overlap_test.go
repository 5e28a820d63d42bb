// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// TestUpgradeOverlap: a node of two policies is of the first by name that is on, and the other one
// says so.
func TestUpgradeOverlap(t *testing.T) {
	t.Parallel()

	w := moved(newCommit, configured("n-1", oldCommit), configured("n-2", oldCommit))

	first := follows()
	first.Name, first.Match = "a", func(n *inventory.Node) bool { return n.Name == "n-1" }
	w.Settings.Upgrade = []policy.UpgradeRule{first, follows()}

	a, follow := policy.Upgrade{Rule: first}, policy.Upgrade{Rule: follows()}

	nodes := func(u policy.Upgrade) string {
		var names []string
		for _, o := range u.Judge(w) {
			names = append(names, o.Node.Name)
		}

		return strings.Join(names, " ")
	}

	if got := nodes(follow); got != "n-1 n-2" || strings.Contains(follow.About(w), "falls") {
		t.Errorf("while a is off: %s; %s", got, follow.About(w))
	}

	setMemory(w.View, state.AutomationOf(w.View).Turn("a", policy.Scoped(state.Switch{On: true, Since: noon}, a)))

	for _, paused := range []bool{false, true} {
		if paused {
			w.View.View = record.Change(
				w.View.View,
				&state.Memory,
				func(a *state.Automation) { a.Paused = map[string]state.Pause{"a": {Actor: "ann"}} },
			)
		}

		if got, of := nodes(follow), nodes(a); got != "n-2" || of != "n-1" {
			t.Errorf("a is paused %t, and has %s; follow has %s", paused, of, got)
		}
	}

	if text := follow.About(w); !strings.HasSuffix(text, "; 1 node falls to a, which comes first by name") {
		t.Error(text)
	}

	if text := a.About(w); strings.Contains(text, "falls") {
		t.Error(text)
	}

	if p := policy.Decide(follow, w); len(p.Decisions) != 1 || follow.Request(w, p.Decisions[0]).Nodes[0] != "n-2" ||
		policy.Pending(follow.Judge(w)) != 1 {
		t.Errorf("%+v", p)
	}
}

// twoNights is a fleet of a node, and two policies that are to verify it.
func twoNights(t *testing.T) (w policy.World, first, second policy.Verify) {
	t.Helper()

	rule := nightly(t)
	other := rule
	other.Name = "other"

	w = night(rule, verified("n-1", time.Time{}))
	w.Settings.Verify = append(w.Settings.Verify, other)
	setMemory(
		w.View,
		state.AutomationOf(w.View).Turn("other", state.Switch{On: true, Since: noon.Add(-24 * time.Hour)}),
	)

	return w, policy.Verify{Rule: rule}, policy.Verify{Rule: other}
}

// TestVerifyOverlap: two policies for the same nodes at the same time verify each node once.
func TestVerifyOverlap(t *testing.T) {
	t.Parallel()

	w, first, second := twoNights(t)

	plan := policy.Decide(first, w)
	if batches(plan) != "verify n-1" || batches(policy.Decide(second, w)) != "verify n-1" {
		t.Fatal(batches(plan))
	}
	setMemory(w.View, state.AutomationOf(w.View).With(plan.Decisions...))

	if got := batches(policy.Decide(second, w)); got != "" {
		t.Errorf("the first one has decided, and the second one decides on %s", got)
	}

	if o := second.Judge(w); !strings.Contains(o[0].Reason, "policy nightly is about to verify it") {
		t.Errorf("%+v", o)
	}

	done := plan.Decisions[0]
	done.Phase, done.Job = state.PhaseDone, "7"
	setMemory(w.View, state.AutomationOf(w.View).Replace(done))
	w.View.Nodes()[0].Verification = &inventory.Verdict{Result: inventory.Clean, Time: w.Now}

	if got := batches(policy.Decide(second, w)); got != "" {
		t.Errorf("the node is verified, and the second one decides on %s", got)
	}
}

// TestVerifyBesideAPolicyThatIsOff: the decisions of a policy that was turned off keep no other
// one from a node.
func TestVerifyBesideAPolicyThatIsOff(t *testing.T) {
	t.Parallel()

	w, first, second := twoNights(t)
	setMemory(w.View, state.AutomationOf(w.View).With(policy.Decide(first, w).Decisions...))

	if got := batches(policy.Decide(second, w)); got != "" {
		t.Fatalf("both decide on the node: %s", got)
	}

	setMemory(w.View, state.AutomationOf(w.View).Turn(first.Name(), state.Switch{Since: w.Now}))

	if got := batches(policy.Decide(second, w)); got == "" {
		t.Errorf("nobody decides on the node: %+v", second.Judge(w))
	}
}
