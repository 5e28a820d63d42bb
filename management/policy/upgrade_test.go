// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

const (
	oldCommit = "1111111111111111111111111111111111111111"
	newCommit = "2222222222222222222222222222222222222222"
)

// follows is a rule for the nodes with the label n.
func follows() policy.UpgradeRule {
	return policy.UpgradeRule{
		Name: "follow", Match: func(n *inventory.Node) bool { return n.Label == "n" }, Selector: "label=n",
		Mode: policy.UpgradeRun, Settle: time.Minute, Spec: rollout.Spec{Action: inventory.VerbApply, Canary: 1},
	}
}

// configured is a node in service with the playbooks of a commit.
func configured(name, commit string) *inventory.Node {
	n := member(name, noon.Add(-time.Hour))
	n.Configured = &inventory.Configured{
		Configuration: inventory.Configuration{Playbooks: "digest of " + commit, Commit: commit, Group: n.Group},
	}

	return n
}

// moved is a world in which the commit is in use since noon, ten minutes ago.
func moved(commit string, nodes ...*inventory.Node) policy.World {
	w := world(nodes...)
	w.Settings.Upgrade = []policy.UpgradeRule{follows()}
	w.Settings.Playbooks = func(*state.View) state.Playbooks {
		return state.Playbooks{Digest: "digest of " + commit, Commit: commit, Since: noon}
	}
	setMemory(w.View, state.AutomationOf(w.View).Turn("follow", state.Switch{On: true, Since: noon.Add(-time.Hour)}))

	return w
}

// upgraded adds a rollout of the policy, with its decision.
func upgraded(w policy.World, commit string, status rollout.Status, nodes ...string) {
	r := rollout.Record{
		ID:     fmt.Sprintf("r%08d", len(record.List(w.View, &rollout.Kind))),
		Status: status, Actor: "policy:follow", Commit: commit,
		Playbooks: "digest of " + commit, Created: noon.Add(-time.Minute),
	}
	for _, n := range nodes {
		r.Nodes = append(r.Nodes, rollout.Node{Name: n, State: rollout.Waiting})
	}

	w.View.View = record.Set(w.View.View, &rollout.Kind, r.ID, &r)
	setMemory(w.View, state.AutomationOf(w.View).With(state.Decision{
		ID: "d/" + r.ID, Time: r.Created, Policy: "follow", Action: state.ActionUpgrade, Commit: commit,
		Playbooks: r.Playbooks, Rollout: r.ID, Phase: state.PhaseDone,
	}))
}

func TestUpgrade(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name   string
		change func(w *policy.World, n *inventory.Node)
		want   state.Action
		text   string // of the explanation of the node; empty: there is none
	}{
		{"outdated", nil, state.ActionUpgrade, "a rollout of 1 node brings it to commit 222222222222 now"},
		{"current", func(_ *policy.World, n *inventory.Node) { *n = *configured("n-1", newCommit) }, "", ""},
		{"its configuration is not known", func(_ *policy.World, n *inventory.Node) { n.Configured = nil },
			state.ActionUpgrade, "a rollout of 1 node brings it"},
		{"it does not match", func(_ *policy.World, n *inventory.Node) { n.Label = "x" }, "", ""},
		{"not in service", func(_ *policy.World, n *inventory.Node) { n.Status = inventory.Quarantined }, "", ""},
		{"not seen", func(_ *policy.World, n *inventory.Node) { n.State = inventory.Disappeared }, "",
			"the observers do not see it"},
		{"it is being verified", func(_ *policy.World, n *inventory.Node) {
			n.Status, n.Job, n.Verb = inventory.Maintenance, "9", inventory.VerbVerify
		}, "", "left out for now: job 9 holds it"},
		{"it is being commissioned", func(_ *policy.World, n *inventory.Node) {
			n.Status, n.Job, n.Verb, n.Configured = inventory.Provisioning, "9", inventory.VerbCommission, nil
		}, "", "left out for now: job 9 holds it"},
		{"two hosts claim to be it", func(_ *policy.World, n *inventory.Node) {
			n.Duplicates = []string{"192.0.2.66"}
		}, "", "claimed by several live hosts"},
		{"a member announces it, and no host key is known", func(_ *policy.World, n *inventory.Node) {
			n.AnnouncedFrom, n.HostKeys = "192.0.2.7", nil
		}, "", "no ssh host key shows that it is there"},
		{"its return is not decided on", func(_ *policy.World, n *inventory.Node) {
			seen(n, false, noon.Add(8*time.Minute))
			seen(n, true, noon.Add(9*time.Minute))
		}, "", "policy returns has not decided on it yet"},
		{"it returned, and nobody decides on returns", func(w *policy.World, n *inventory.Node) {
			seen(n, false, noon.Add(8*time.Minute))
			seen(n, true, noon.Add(9*time.Minute))
			setMemory(w.View, state.AutomationOf(w.View).Turn("returns", state.Switch{}))
		}, state.ActionUpgrade, "a rollout of 1 node brings it"},
		{"off", func(w *policy.World, _ *inventory.Node) {
			w.View.View = record.Change(w.View.View, &state.Memory, func(a *state.Automation) { a.Switches = nil })
		}, "", ""},
		{"paused", func(w *policy.World, _ *inventory.Node) {
			setPaused(w.View, map[string]state.Pause{state.AllPolicies: {Actor: "ann"}})
		}, "", "nothing is done: ann paused it"},
		{"the brake is on", func(w *policy.World, _ *inventory.Node) { setBrake(w.View, state.Brake{On: true}) }, "",
			"nothing is done: the brake holds"},
		{"too early", func(w *policy.World, _ *inventory.Node) { w.Now = noon.Add(59 * time.Second) }, "",
			"not before 2026"},
		{"a folder", func(w *policy.World, _ *inventory.Node) {
			w.Settings.Playbooks = func(*state.View) state.Playbooks { return state.Playbooks{Digest: "d"} }
		}, "", ""},
		{"its rollout runs", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, newCommit, rollout.Running, "n-1")
		}, "", "rollout r00000000 (Running) is at commit 222222222222"},
		{"its canary failed", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, newCommit, rollout.Stopped, "n-1")
		}, "", "the commit is not tried again until the repository moves"},
		{"its canary failed, and it was turned on again", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, newCommit, rollout.Stopped, "n-1")
			setMemory(w.View, state.AutomationOf(w.View).Turn("follow", state.Switch{On: true, Since: noon}))
		}, state.ActionSupersede, "turned on again after rollout r00000000"},
		{"a newer commit, while one runs", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, oldCommit, rollout.Running, "n-1")
		}, state.ActionSupersede, "and rollout r00000000 is of commit 111111111111"},
		{"a newer commit, while one awaits its approval", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, oldCommit, rollout.AwaitingApproval, "n-1")
		}, state.ActionSupersede, "and rollout r00000000 is of commit 111111111111"},
		{"a newer commit too early, while one runs", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, oldCommit, rollout.Running, "n-1")
			w.Now = noon.Add(59 * time.Second)
		}, "", "not before 2026"},
		{"a newer commit, while one finishes", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, oldCommit, rollout.Aborting, "n-1")
		}, "", "rollout r00000000 finishes the nodes in hand"},
		{"a newer commit, while an operator holds one", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, oldCommit, rollout.Paused, "n-1")
		}, "", "until an operator resumes or aborts it"},
		{"a newer commit after one that stopped", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, oldCommit, rollout.Aborted, "n-1")
		}, state.ActionUpgrade, "a rollout of 1 node brings it"},
		{"the rollout was aborted", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, newCommit, rollout.Aborted, "n-1")
		}, "", "it is not tried again until the repository moves"},
		{"aborted, and turned on again", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, newCommit, rollout.Aborted, "n-1")
			setMemory(w.View, state.AutomationOf(w.View).Turn("follow", state.Switch{On: true, Since: noon}))
		}, state.ActionUpgrade, "a rollout of 1 node brings it"},
		{"it failed in a rollout that is done", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, newCommit, rollout.Done, "n-1")
		}, "", "rollout r00000000 of commit 222222222222 has had n-1 already"},
		{"it was away in a rollout that is done", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, newCommit, rollout.Done, "n-2")
		}, state.ActionUpgrade, "a rollout of 1 node brings it"},
		{"it was aborted, and another commit has the same playbooks", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, newCommit, rollout.Aborted, "n-1")
			w.Settings.Playbooks = func(*state.View) state.Playbooks {
				return state.Playbooks{Digest: "digest of " + newCommit, Commit: "3", Since: noon}
			}
		}, "", "it is not tried again until the repository moves"},
		{"the rollout is no longer kept", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, newCommit, rollout.Stopped, "n-1")
			w.View.View = record.WithList(w.View.View, &rollout.Kind)
		}, "", "it is not tried again"},
		{"the rollout was refused", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, newCommit, rollout.Done)
			d := &state.AutomationOf(w.View).Decisions[0]
			d.Phase, d.Rollout, d.Result = state.PhaseRefused, "", "no play for the group"
		}, "", "was refused: no play for the group"},
		{"the decision was withdrawn", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, newCommit, rollout.Done)
			state.AutomationOf(w.View).Decisions[0].Phase = state.PhaseWithdrawn
		}, state.ActionUpgrade, "a rollout of 1 node brings it"},
		{"the decision is being carried out", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, newCommit, rollout.Done)
			state.AutomationOf(w.View).Decisions[0].Phase = state.PhaseDecided
		}, "", "is being carried out"},
		{"a rollout of a person has it", func(w *policy.World, _ *inventory.Node) {
			upgraded(*w, oldCommit, rollout.Paused, "n-1")
			record.List(w.View, &rollout.Kind)[0].Actor = "ann"
		}, "", "rollout r00000000 (Paused) of ann is to change n-1 first"},
		{"the rate is used up", func(w *policy.World, _ *inventory.Node) {
			w.Settings.Rate = 1
			setMemory(w.View, state.AutomationOf(w.View).With(state.Decision{
				ID: "x", Time: w.Now, Policy: "returns", Action: state.ActionVerify, Phase: state.PhaseDone,
			}))
		}, "", "it waits for its turn: 1 automatic job or rollout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			n := configured("n-1", oldCommit)
			w := moved(newCommit, n, configured("n-2", newCommit))

			if c.change != nil {
				c.change(&w, n)
			}

			u := policy.Upgrade{Rule: follows()}
			if got := actions(policy.Decide(u, w)); strings.TrimSpace(got) != string(c.want) {
				t.Errorf("decided %q, want %q", got, c.want)
			}

			text := ""
			for _, f := range findings(u, w, *n) {
				text += f.Message
			}

			if (text == "") != (c.text == "") || !strings.Contains(text, c.text) {
				t.Errorf("explained %q, want %q", text, c.text)
			}
		})
	}
}

// TestUpgradeEvidence: the decision has both commits and the nodes, and becomes the rollout of
// exactly these nodes. Nobody starts one without an approval in the mode plan.
func TestUpgradeEvidence(t *testing.T) {
	t.Parallel()

	away := configured("n-9", oldCommit)
	away.State = inventory.Disappeared

	first, second := configured("n-1", oldCommit), configured("n-2", oldCommit)
	busy := configured("n-8", oldCommit)
	busy.Job = "9"

	w := moved(newCommit, first, second, configured("n-3", newCommit), busy, away)
	rule := follows()
	rule.Mode, rule.Spec.Canary = policy.UpgradePlan, 5
	u := policy.Upgrade{Rule: rule}
	w.Settings.TakenBack = func(_ *state.View, n *inventory.Node) string {
		return map[string]string{"n-2": "n-2: it takes back shopd", "n-3": "n-3: it takes back shopd"}[n.Name]
	}

	decided := policy.Decide(u, w).Decisions
	if len(decided) != 1 {
		t.Fatalf("%+v", decided)
	}
	d := decided[0]
	if strings.Contains(strings.Join(d.Evidence, "\n"), "n-3: it") {
		t.Errorf("%q", d.Evidence)
	}
	evidence := strings.Join(d.Evidence, "\n")

	for _, want := range []string{
		"commit " + newCommit + " is in use since 2026", "outdated are n-1, n-2", "2 nodes have commit " + oldCommit,
		"n-2: it takes back shopd",
		"left out, because they are not seen, or cannot be changed now: n-8, n-9",
	} {
		if !strings.Contains(evidence, want) {
			t.Errorf("no %q in:\n%s", want, evidence)
		}
	}

	if d.From != oldCommit || d.Commit != newCommit || d.Phase != state.PhaseDecided || len(d.Prevent) == 0 {
		t.Errorf("%+v", d)
	}

	setMemory(w.View, state.AutomationOf(w.View).With(d))

	if again := policy.Decide(u, w).Decisions; len(again) > 0 {
		t.Errorf("decided twice: %+v", again)
	}

	if why := policy.Confirm(u, w, d); why != "" {
		t.Error(why)
	}

	r := u.Request(w, d)
	if !slices.Equal(r.Nodes, []string{"n-1", "n-2"}) || !r.RequireApproval || r.Canary != 2 ||
		r.Selector != "label=n" || r.Playbooks != "digest of "+newCommit ||
		!strings.Contains(r.Reason, "commit 222222222222 came into use after 111111111111") {
		t.Errorf("%+v", r)
	}

	// The repository moves back before the rollout starts.
	back := moved(oldCommit, w.View.Nodes()...)
	setMemory(back.View, state.AutomationOf(w.View))

	if why := policy.Confirm(u, back, d); why == "" {
		t.Error("a decision about a commit that is no longer in use is carried out")
	}
}

// TestUpgradeTest shows the nodes of the rollout, and is for none without a repository.
func TestUpgradeTest(t *testing.T) {
	t.Parallel()

	w := moved(newCommit, configured("n-1", oldCommit), configured("n-2", newCommit))

	out := policy.Upgrade{Rule: follows()}.Judge(w)
	if len(out) != 1 || out[0].Node.Name != "n-1" || out[0].Stage != policy.StageAct ||
		out[0].Action != state.ActionUpgrade {
		t.Errorf("%+v", out)
	}

	w.Now = noon

	out = policy.Upgrade{Rule: follows()}.Judge(w)
	if len(out) != 1 || out[0].Stage == policy.StageAct || !out[0].Until.Equal(noon.Add(time.Minute)) {
		t.Errorf("too early: %+v", out)
	}
}

// TestUpgradeIsRemembered: the decision about the commit outlives all others, or a bad commit
// would be tried again.
func TestUpgradeIsRemembered(t *testing.T) {
	t.Parallel()

	w := moved(newCommit, configured("n-1", oldCommit))
	upgraded(w, newCommit, rollout.Aborted, "n-1")

	for i := range 2 * state.MaxDecisions {
		setMemory(w.View, state.AutomationOf(w.View).With(state.Decision{
			ID: fmt.Sprint(i), Time: noon.Add(-time.Hour), Policy: "returns", Action: state.ActionVerify,
			Phase: state.PhaseDone,
		}))
	}

	setMemory(w.View, policy.Remember(w, state.AutomationOf(w.View)))

	if n := len(state.AutomationOf(w.View).Decisions); n != state.MaxDecisions {
		t.Errorf("%d decisions are kept", n)
	}

	if d := policy.Decide(policy.Upgrade{Rule: follows()}, w).Decisions; len(d) > 0 {
		t.Errorf("%+v", d)
	}
}

// TestBadCommitIsRemembered also while the decision about the next commit may be withdrawn.
func TestBadCommitIsRemembered(t *testing.T) {
	t.Parallel()

	w := moved(newCommit, configured("n-1", oldCommit))
	upgraded(w, newCommit, rollout.Aborted, "n-1")

	next := state.Decision{
		ID: "next", Time: w.Now, Policy: "follow", Action: state.ActionUpgrade, Commit: "3", Playbooks: "digest of 3",
		Phase: state.PhaseDecided,
	}
	setMemory(w.View, state.AutomationOf(w.View).With(next))
	setMemory(w.View, flood(w))
	next.Phase = state.PhaseWithdrawn
	setMemory(w.View, state.AutomationOf(w.View).Replace(next))

	if d := policy.Decide(policy.Upgrade{Rule: follows()}, w).Decisions; len(d) > 0 {
		t.Errorf("tried again: %+v", d)
	}
}

// TestUpgradeHeedsPeople: playbooks whose rollout a person aborted or took back, or whose nodes
// failed in it, are not rolled out by the policy, until an operator turns it off and on.
func TestUpgradeHeedsPeople(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name   string
		change func(of, undo *rollout.Record)
		why    string // empty: the commit is rolled out
	}{
		{"aborted", func(of, _ *rollout.Record) { of.Status = rollout.Aborted },
			"rollout r1 of ann of commit 222222222222 is Aborted; it is not tried again"},
		{"failed", func(of, _ *rollout.Record) { of.Status = rollout.Fruitless }, "is Failed; it is not tried again"},
		{"stopped", func(of, _ *rollout.Record) { of.Status = rollout.Stopped }, "is Stopped; it is not tried again"},
		{"failed beyond the limit", func(of, _ *rollout.Record) {
			of.Status, of.Reason = rollout.Fruitless, "2 failed, and max_failures is 1"
		}, "is Failed (2 failed, and max_failures is 1); it is not tried again"},
		{"done beyond the limit, by a former version", func(of, _ *rollout.Record) {
			of.Nodes = []rollout.Node{{Name: "n-2", State: rollout.Succeeded}, {Name: "n-3", State: rollout.Failed}}
		}, "is Done (1 node failed, and max_failures is 0; n-3: ); it is not tried again"},
		{"undone", func(_, undo *rollout.Record) { undo.UndoOf = "r1" }, "was undone by bob (rollout r2)"},
		{"done", func(_, _ *rollout.Record) {}, ""},
		{"aborted, of other playbooks", func(of, _ *rollout.Record) {
			of.Status, of.Playbooks = rollout.Aborted, "digest of "+oldCommit
		}, ""},
		{"aborted before the commit came into use", func(of, _ *rollout.Record) {
			of.Status, of.Created = rollout.Aborted, noon.Add(-time.Second)
		}, ""},
	} {
		n := configured("n-1", oldCommit)
		w := moved(newCommit, n)
		of, undo := &rollout.Record{
			ID: "r1", Status: rollout.Done, Actor: "ann", Playbooks: "digest of " + newCommit,
			Created: noon.Add(time.Minute),
		}, &rollout.Record{ID: "r2", Status: rollout.Done, Actor: "bob", Created: noon.Add(3 * time.Minute)}
		c.change(of, undo)
		w.View.View = record.WithList(w.View.View, &rollout.Kind, of, undo)

		u := policy.Upgrade{Rule: follows()}
		if got := len(policy.Decide(u, w).Decisions) > 0; got != (c.why == "") {
			t.Errorf("%s: decided is %t", c.name, got)
		}
		if f := findings(u, w, *n); len(f) != 1 || !strings.Contains(f[0].Message, c.why) {
			t.Errorf("%s: %+v", c.name, f)
		}

		on := state.Switch{On: true, Since: noon.Add(5 * time.Minute)}
		setMemory(w.View, state.AutomationOf(w.View).Turn("follow", on))

		if len(policy.Decide(u, w).Decisions) != 1 {
			t.Errorf("%s: it was turned off and on, and nothing is decided", c.name)
		}
	}
}
