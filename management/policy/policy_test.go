// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	bootA = "0b1d9b5e-33f1-4c52-9d8a-3f0d6f2a7c11"
	bootB = "f7a0c1d2-1111-2222-3333-444455556666"
)

func settings() policy.Settings {
	return policy.Settings{
		Settle: time.Minute, Jobs: 2, Rate: 5, Groups: inventory.DefaultGroups(), Limit: 4,
		Brake: policy.BrakeSettings{Share: 30, Minimum: 3, Within: 5 * time.Minute, ReleaseAfter: time.Hour},
	}
}

// member is a node in service that the gossip saw at the given time.
func member(name string, at time.Time) *inventory.Node {
	label, serial, _ := strings.Cut(name, "-")
	n, _ := inventory.NewNode(inventory.Observation{
		Observer: inventory.ObserverGossip, Label: label, Serial: serial, Addr: "192.0.2.1", Alive: true,
	}, nil, at)
	n.Status, n.Group, n.Applied, n.Updated = inventory.Allocated, "service-worker", "1", at
	n.HostKeys = []string{"ssh-ed25519 AAAA"}
	n.Presence.Back = inventory.Contact{Time: at, Reached: true, Boot: bootA}

	return &n
}

func seen(n *inventory.Node, alive bool, at time.Time) {
	*n, _, _ = n.Observe(inventory.Observation{
		Observer: inventory.ObserverGossip, Label: n.Label, Serial: n.Serial, Addr: n.Addr, Alive: alive,
	}, at)
}

// back is a node that was away from noon on, for the time, and that ssh reached since.
func back(name string, away time.Duration, answer inventory.Contact) *inventory.Node {
	n := member(name, noon.Add(-time.Hour))
	seen(n, false, noon)
	seen(n, true, noon.Add(away))

	answer.Time = noon.Add(away + 70*time.Second)
	*n = n.Contacted(answer)

	return n
}

var reached = inventory.Contact{Reached: true, Boot: bootA, Agent: noon.Add(-time.Hour)}

// world has the nodes, well after the returns of back.
func world(nodes ...*inventory.Node) policy.World {
	slices.SortFunc(nodes, func(a, b *inventory.Node) int { return strings.Compare(a.Name, b.Name) })

	return policy.World{
		View: &state.View{Snapshot: jobtest.With(nodes...)}, Settings: settings(), Now: noon.Add(10 * time.Minute),
	}
}

// decide returns the plan of the policy returns.
func decide(w policy.World) policy.Plan { return policy.Decide(policy.Returns{}, w) }

// actions returns the decisions of a plan as ACTION NODE.
func actions(p policy.Plan) string {
	var out []string
	for _, d := range p.Decisions {
		out = append(out, string(d.Action)+" "+d.Node)
	}

	return strings.Join(out, ", ")
}

func TestCase(t *testing.T) {
	t.Parallel()

	lost, returned := noon, noon.Add(3*time.Minute)
	present := func(change func(*inventory.Presence)) inventory.Presence {
		p := inventory.Presence{
			Since: returned, Lost: lost, Returns: []time.Time{returned}, Boot: bootA,
			Back: inventory.Contact{
				Time: returned.Add(time.Minute), Reached: true, Boot: bootA,
				Booted: noon.Add(-time.Hour), Agent: noon.Add(-time.Hour),
			},
		}
		change(&p)

		return p
	}

	for _, c := range []struct {
		name     string
		change   func(*inventory.Presence)
		want     policy.Case
		evidence string
	}{
		{"nothing was restarted", func(*inventory.Presence) {}, policy.CaseNetwork, "boot id is 0b1d9b5e as before"},
		{"another boot id", func(p *inventory.Presence) { p.Back.Boot = bootB },
			policy.CaseRebooted, "changed from 0b1d9b5e to f7a0c1d2"},
		// The uptime of a container is that of its host: the boot id counts more.
		{"another boot id, old uptime", func(p *inventory.Presence) {
			p.Back.Boot, p.Back.Booted = bootB, noon.Add(-100*time.Hour)
		}, policy.CaseRebooted, "changed"},
		{"unknown boot id, young uptime", func(p *inventory.Presence) {
			p.Boot, p.Back.Booted = "", noon.Add(20*time.Second)
		}, policy.CaseRebooted, "by its uptime"},
		{"unknown boot id, booted just before the gossip noticed", func(p *inventory.Presence) {
			p.Boot, p.Back.Booted = "", noon.Add(-10*time.Second)
		}, policy.CaseRebooted, "by its uptime"},
		{"unknown boot id, old uptime", func(p *inventory.Presence) { p.Boot = "" },
			policy.CaseNetwork, "by its uptime"},
		{"the agent is young", func(p *inventory.Presence) { p.Back.Agent = noon.Add(2 * time.Minute) },
			policy.CaseAgent, "its agent started at"},
		{"ssh reached it meanwhile", func(p *inventory.Presence) {
			p.Back.Agent = time.Time{}
			p.Away = inventory.Contact{Time: noon.Add(time.Minute), Reached: true}
		}, policy.CaseAgent, "ssh reached it at 2026-03-01 12:01:00 UTC, while"},
		{"ssh did not reach it meanwhile", func(p *inventory.Presence) {
			p.Back.Agent = time.Time{}
			p.Away = inventory.Contact{Time: noon.Add(time.Minute), Silent: true, Reason: "no route"}
		}, policy.CaseNetwork, "either: no route"},
		// The gossip was cut, and ssh was not: the agent never stopped.
		{"ssh reached it, and the agent is old", func(p *inventory.Presence) {
			p.Away = inventory.Contact{Time: noon.Add(time.Minute), Reached: true}
		}, policy.CaseNetwork, "its agent started at 2026-03-01 11:00:00"},
		{"ssh did not reach it, and the agent is young", func(p *inventory.Presence) {
			p.Back.Agent = noon.Add(-time.Second)
			p.Away = inventory.Contact{Time: noon.Add(time.Minute), Silent: true, Reason: "no route"}
		}, policy.CaseNetwork, "either: no route"},
		{"the agent started a while before", func(p *inventory.Presence) { p.Back.Agent = noon.Add(-40 * time.Second) },
			policy.CaseNetwork, "its agent started"},
		{"no evidence on the agent", func(p *inventory.Presence) { p.Back.Agent = time.Time{} },
			policy.CaseRunning, "as before"},
		{"it tells nothing", func(p *inventory.Presence) {
			p.Boot, p.Back = "", inventory.Contact{Time: returned.Add(time.Minute), Reached: true}
		}, policy.CaseUnknown, "neither its boot id nor its uptime"},
		{"ssh has not reached it", func(p *inventory.Presence) {
			p.Back = inventory.Contact{Time: returned.Add(time.Minute), Reason: "no route"}
		}, policy.CaseUnknown, "since its return: no route"},
		{"nobody asked since the return", func(p *inventory.Presence) { p.Back.Time = noon.Add(-time.Minute) },
			policy.CaseUnknown, "has not reached it since"},
	} {
		got, evidence := policy.CaseOf(present(c.change))
		if got != c.want || !strings.Contains(strings.Join(evidence, "\n"), c.evidence) {
			t.Errorf("%s: %q, want %q; evidence %q, want %q in it", c.name, got, c.want, evidence, c.evidence)
		}
	}
}

// TestReturned is the table of nodes that returned, with the action on each.
func TestReturned(t *testing.T) {
	t.Parallel()

	mode := func(m inventory.Reaction) func(*policy.World, *inventory.Node) {
		return func(w *policy.World, _ *inventory.Node) {
			w.Settings.Groups = reacting(m)
		}
	}
	with := func(f func(n *inventory.Node)) func(*policy.World, *inventory.Node) {
		return func(_ *policy.World, n *inventory.Node) { f(n) }
	}

	for _, c := range []struct {
		name    string
		change  func(*policy.World, *inventory.Node)
		actions string
		note    string
		ask     bool
	}{
		{"by default", nil, "verify b-1", "", false},
		{"verify-and-repair", mode(inventory.ReactionVerifyAndRepair), "verify b-1", "", false},
		{"repair", mode(inventory.ReactionRepair), "repair b-1", "", false},
		{"record", mode(inventory.ReactionRecord),
			"", "nothing is done, because on_return of service-worker is record", false},
		{"Decommissioned", with(func(n *inventory.Node) { n.Status, n.Group = inventory.Decommissioned, "" }),
			"", "it returned, and stays Decommissioned", false},
		{"Quarantined by its tombstone", with(func(n *inventory.Node) { n.Status = inventory.Quarantined }),
			"", "it returned, and stays Quarantined", false},
		{"Unallocated", with(func(n *inventory.Node) { n.Status, n.Group = inventory.Unallocated, "" }),
			"", "with its recorded ssh host key, and stays Unallocated", false},
		{"Unallocated, another host key", with(func(n *inventory.Node) {
			n.Status, n.Group = inventory.Unallocated, ""
			n.Presence.Back.Foreign, n.Presence.Back.Reached = true, false
		}), "quarantine b-1", "", false},
		{"another host key", with(func(n *inventory.Node) {
			n.Presence.Back.Foreign, n.Presence.Back.Reached = true, false
		}), "quarantine b-1", "", false},
		// Gossip is no authority: a rogue member must not fence a node.
		{"two hosts claim to be it", with(func(n *inventory.Node) { n.Duplicates = []string{"192.0.2.9"} }),
			"", "", false},
		{"held by a job", with(func(n *inventory.Node) { n.Status, n.Job = inventory.Maintenance, "7" }),
			"", "", false},
		{"ssh does not reach it", with(func(n *inventory.Node) { n.Presence.Back.Reached = false }), "", "", true},
		{"not asked yet", with(func(n *inventory.Node) { n.Presence.Back = inventory.Contact{} }), "", "", true},
		{"too early", func(w *policy.World, _ *inventory.Node) { w.Now = noon.Add(2*time.Minute + 30*time.Second) },
			"", "", false},
		{"gone again", with(func(n *inventory.Node) { seen(n, false, noon.Add(5*time.Minute)) }), "", "", true},
		{"paused", func(w *policy.World, _ *inventory.Node) {
			setPaused(w.View, map[string]state.Pause{"returns": {}})
		}, "", "", false},
		{"all paused", func(w *policy.World, _ *inventory.Node) {
			setPaused(w.View, map[string]state.Pause{state.AllPolicies: {}})
		}, "", "", false},
		{"the brake is on", func(w *policy.World, _ *inventory.Node) { setBrake(w.View, state.Brake{On: true}) },
			"", "", false},
		{"a person verified it since", func(w *policy.World, _ *inventory.Node) {
			w.View.SetJobs([]*job.Job{{
				ID: "3", Verb: inventory.VerbVerify, Status: job.Complete, Actor: "root",
				Ended: noon.Add(5 * time.Minute), Targets: []job.Target{{Name: "b-1"}},
			}}...)
		}, "", "job 3 (verify of root) completed on it since", false},
		{"a person verified it before", func(w *policy.World, _ *inventory.Node) {
			w.View.SetJobs([]*job.Job{{
				ID: "3", Verb: inventory.VerbVerify, Status: job.Complete, Ended: noon,
				Targets: []job.Target{{Name: "b-1"}},
			}}...)
		}, "verify b-1", "", false},
		{"a person's job failed since", func(w *policy.World, _ *inventory.Node) {
			w.View.SetJobs([]*job.Job{{
				ID: "3", Verb: inventory.VerbApply, Status: job.Errored, Ended: noon.Add(5 * time.Minute),
				Targets: []job.Target{{Name: "b-1"}},
			}}...)
		}, "verify b-1", "", false},
		{"a person's job is queued", func(w *policy.World, _ *inventory.Node) {
			w.View.SetJobs([]*job.Job{{
				ID: "3", Verb: inventory.VerbUpdate, Status: job.Queued, Actor: "root",
				Targets: []job.Target{{Name: "b-1"}},
			}}...)
		}, "", "", false},
	} {
		n := back("b-1", 2*time.Minute, reached)
		w := world(member("a-1", noon.Add(-time.Hour)), n)

		if c.change != nil {
			c.change(&w, n)
		}

		p := decide(w)
		if got := actions(p); got != c.actions {
			t.Errorf("%s: decided %q, want %q", c.name, got, c.actions)
		}
		if got := p.Notes["b-1"]; got != c.note && !strings.Contains(got, c.note) || got != "" && c.note == "" {
			t.Errorf("%s: note %q, want %q", c.name, got, c.note)
		}

		if got := slices.Contains(p.Ask, "b-1"); got != c.ask {
			t.Errorf("%s: ask %t, want %t", c.name, got, c.ask)
		}

		for _, d := range p.Decisions {
			if len(d.Evidence) == 0 || d.Case == "" || len(d.Prevent) == 0 || d.ID == "" ||
				d.Phase != state.PhaseDecided {
				t.Errorf("%s: the decision is not explained: %+v", c.name, d)
			}
		}
	}
}

// TestDecidedOnce: a decision that is recorded is not taken again, whether its node is
// marked yet or not.
func TestDecidedOnce(t *testing.T) {
	t.Parallel()

	n := back("b-1", 2*time.Minute, reached)
	w := world(n)
	p := decide(w)

	setMemory(w.View, state.AutomationOf(w.View).With(p.Decisions...))

	if again := decide(w); len(again.Decisions) > 0 {
		t.Errorf("decided again: %s", actions(again))
	}

	*n, _ = n.Decided(inventory.Trigger{Time: w.Now})
	setMemory(w.View, state.Automation{})

	if again := decide(w); len(again.Decisions) > 0 {
		t.Errorf("decided again on a marked node: %s", actions(again))
	}

	// The next return is a new one.
	seen(n, false, w.Now.Add(time.Minute))
	seen(n, true, w.Now.Add(2*time.Minute))

	w.Now = w.Now.Add(time.Hour)
	*n = n.Contacted(inventory.Contact{Time: w.Now, Reached: true, Boot: bootB})

	if again := decide(w); actions(again) != "verify b-1" || again.Decisions[0].Case != string(policy.CaseRebooted) ||
		again.Decisions[0].ID == p.Decisions[0].ID {
		t.Errorf("on the next return: %+v", again.Decisions)
	}
}

// TestRepairAfterVerification: only a verification of the policy that found a drift leads
// to a repair, once, and only in the mode for it.
func TestRepairAfterVerification(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name   string
		mode   inventory.Reaction
		result inventory.VerdictResult
		job    string
		age    time.Duration
		want   string
	}{
		{"drifted", inventory.ReactionVerifyAndRepair, inventory.Drifted, "5", time.Minute, "repair b-1"},
		{"clean", inventory.ReactionVerifyAndRepair, inventory.Clean, "5", time.Minute, ""},
		{"unknown", inventory.ReactionVerifyAndRepair, inventory.Unverified, "5", time.Minute, ""},
		{"found by a person", inventory.ReactionVerifyAndRepair, inventory.Drifted, "6", time.Minute, ""},
		{"only to be verified", inventory.ReactionVerify, inventory.Drifted, "5", time.Minute, ""},
		{"long ago", inventory.ReactionVerifyAndRepair, inventory.Drifted, "5", 25 * time.Hour, ""},
		{"outdated", inventory.ReactionVerifyAndRepair, inventory.Drifted, "5", time.Minute, "record b-1"},
		{"only its masters have changed", inventory.ReactionVerifyAndRepair, inventory.Drifted, "5", time.Minute,
			"repair b-1"},
		{"outdated when it was verified", inventory.ReactionVerifyAndRepair, inventory.Drifted, "5", time.Minute,
			"record b-1"},
		{"outdated before it was verified", inventory.ReactionVerifyAndRepair, inventory.Drifted, "5", time.Minute,
			"record b-1"},
		{"a person's job waits", inventory.ReactionVerifyAndRepair, inventory.Drifted, "5", time.Minute, ""},
		{"two hosts claim to be it", inventory.ReactionVerifyAndRepair, inventory.Drifted, "5", time.Minute, ""},
	} {
		n := back("b-1", 2*time.Minute, reached)
		w := world(n)
		w.Settings.Groups = reacting(c.mode)

		if c.name == "outdated before it was verified" {
			w.Settings.Outdated = differing(inventory.PartMasters, inventory.PartVariables)
		}

		d := decide(w).Decisions[0]
		d.Phase, d.Job = state.PhaseDone, "5"
		setMemory(w.View, state.AutomationOf(w.View).With(d))
		*n, _ = n.Decided(inventory.Trigger{Time: w.Now})
		n.Verification = &inventory.Verdict{Result: c.result, Job: c.job, Time: w.Now, Differences: 2}
		w.Now = w.Now.Add(c.age)

		switch c.name {
		case "outdated":
			w.Settings.Outdated = differing(inventory.PartMasters, inventory.PartVariables)
		case "only its masters have changed":
			w.Settings.Outdated = differing(inventory.PartMasters)
			n.Verification.Outdated = true
		case "outdated when it was verified":
			n.Verification.Outdated = true
		case "a person's job waits":
			w.View.SetJobs([]*job.Job{
				{
					ID:      "9",
					Verb:    inventory.VerbUpdate,
					Status:  job.Queued,
					Actor:   "ann",
					Targets: []job.Target{{Name: "b-1"}},
				},
			}...)
		case "two hosts claim to be it":
			n.Duplicates = []string{"192.0.2.9"}
		}

		p := decide(w)
		if got := actions(p); got != c.want {
			t.Errorf("%s: decided %q, want %q", c.name, got, c.want)
			continue
		}

		setMemory(w.View, state.AutomationOf(w.View).With(p.Decisions...))

		if again := decide(w); len(again.Decisions) > 0 {
			t.Errorf("%s: decided again: %s", c.name, actions(again))
		}

		if c.want == "" {
			continue
		}

		evidence := p.Decisions[0].Evidence
		if sorted := slices.Sorted(slices.Values(evidence)); len(slices.Compact(sorted)) < len(evidence) {
			t.Errorf("%s: doubled evidence: %q", c.name, evidence)
		}

		if text := policy.Sentence(p.Decisions[0]); !strings.Contains(
			text,
			"job 5 found it drifted: 2 tasks would change",
		) ||
			strings.Contains(text, "configuration is outdated") != strings.HasPrefix(c.name, "outdated") {
			t.Errorf("%s: %s", c.name, text)
		}
	}
}

// TestOutdatedByMasters: a node of which only the masters have changed is configured again in place, without a return,
// once for what configured it, where the group lets the policy repair, and not while the masters are being changed.
func TestOutdatedByMasters(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name   string
		mode   inventory.Reaction
		change func(*policy.World, *inventory.Node)
		want   string
		wait   string // in the explanation
	}{
		{"by masters alone", inventory.ReactionVerifyAndRepair, nil, "repair b-1", "the next step is repair"},
		{"only to be verified", inventory.ReactionVerify, nil, "", ""},
		{"to be cleaned when it returns", inventory.ReactionRepair, nil, "", ""},
		{"by variables too", inventory.ReactionVerifyAndRepair, func(w *policy.World, _ *inventory.Node) {
			w.Settings.Outdated = differing(inventory.PartMasters, inventory.PartVariables)
		}, "", ""},
		{"a job holds it", inventory.ReactionVerifyAndRepair, func(_ *policy.World, n *inventory.Node) {
			n.Job = "9"
		}, "", ""},
		{"a master comes", inventory.ReactionVerifyAndRepair, func(w *policy.World, _ *inventory.Node) {
			w.View.PutNode(&inventory.Node{
				Name: "m-2", Group: inventory.GroupMaster, Status: inventory.Provisioning, Job: "8",
			})
		}, "", "only its masters have changed since it was configured; it waits: job 8 changes the masters (m-2)"},
	} {
		n := member("b-1", noon.Add(-time.Hour))
		n.Applied = "4"
		w := world(n)
		w.Settings.Groups, w.Settings.Outdated = reacting(c.mode), differing(inventory.PartMasters)

		if c.change != nil {
			c.change(&w, n)
		}

		var words []string
		for _, f := range findings(policy.Returns{}, w, *n) {
			words = append(words, f.Message)
		}

		if text := strings.Join(words, "; "); !strings.Contains(text, c.wait) || c.wait == "" && text != "" {
			t.Errorf("%s: explained %q, want %q", c.name, text, c.wait)
		}

		p := decide(w)
		if got := actions(p); got != c.want {
			t.Errorf("%s: decided %q, want %q", c.name, got, c.want)
			continue
		}

		if c.want == "" {
			continue
		}

		d := p.Decisions[0]

		why := policy.Confirm(policy.Returns{}, w, d)
		if why != "" || d.Case != policy.CaseMasters || len(d.Evidence) == 0 {
			t.Errorf("%s: %q, %+v", c.name, why, d)
		}

		d.Phase, d.Job = state.PhaseDone, "5"
		setMemory(w.View, state.AutomationOf(w.View).With(d))

		if again := decide(w); len(again.Decisions) > 0 {
			t.Errorf("%s: decided again: %s", c.name, actions(again))
		}

		n.Applied = "5" // and the masters have changed once more

		if again := decide(w); actions(again) != c.want {
			t.Errorf("%s: decided %q once it was configured", c.name, actions(again))
		}
	}
}

// TestConfirm: a decision that was held is judged again, and one that was withdrawn makes
// room for the next.
func TestConfirm(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name   string
		change func(*policy.World, *inventory.Node)
		want   string
	}{
		{"nothing changed", func(*policy.World, *inventory.Node) {}, ""},
		{"half an hour passed", func(w *policy.World, _ *inventory.Node) { w.Now = w.Now.Add(30 * time.Minute) },
			"ssh is asked"},
		{"half an hour passed, and ssh reached it", func(w *policy.World, n *inventory.Node) {
			w.Now = w.Now.Add(30 * time.Minute)
			n.Presence.Back.Time = w.Now
		}, ""},
		{"a person's job waits", func(w *policy.World, _ *inventory.Node) {
			w.View.SetJobs([]*job.Job{{
				ID: "9", Verb: inventory.VerbUpdate, Status: job.Queued, Actor: "ann",
				Targets: []job.Target{{Name: "b-1"}},
			}}...)
		}, "job 9 (update) of ann is due on it first"},
		{"a person verified it", func(w *policy.World, _ *inventory.Node) {
			w.View.SetJobs([]*job.Job{{
				ID: "9", Verb: inventory.VerbVerify, Status: job.Complete, Actor: "ann", Ended: w.Now,
				Targets: []job.Target{{Name: "b-1"}},
			}}...)
		}, "completed on it since"},
		{"two hosts claim to be it", func(_ *policy.World, n *inventory.Node) { n.Duplicates = []string{"192.0.2.9"} },
			"several live hosts"},
		{"gone again", func(w *policy.World, n *inventory.Node) { seen(n, false, w.Now) }, "disappeared again"},
		{"returned again", func(w *policy.World, n *inventory.Node) {
			seen(n, false, w.Now)
			seen(n, true, w.Now)
		}, "it returned 2 times in 8m"},
		{"decommissioned", func(_ *policy.World, n *inventory.Node) { n.Status = inventory.Decommissioned },
			"stays Decommissioned"},
		{"forgotten", func(w *policy.World, _ *inventory.Node) { w.View.SetNodes() }, "no longer known"},
		{"to be repaired", func(w *policy.World, _ *inventory.Node) {
			w.Settings.Groups = reacting(inventory.ReactionRepair)
		}, "the next step is repair now"},
		{"to be recorded", func(w *policy.World, _ *inventory.Node) {
			w.Settings.Groups = reacting(inventory.ReactionRecord)
		}, "on_return of service-worker is record"},
	} {
		n := back("b-1", 2*time.Minute, reached)
		w := world(n)
		d := decide(w).Decisions[0]
		setMemory(w.View, state.AutomationOf(w.View).With(d))
		c.change(&w, n)

		got := policy.Confirm(policy.Returns{}, w, d)
		if got != c.want && !strings.Contains(got, c.want) || got != "" && c.want == "" {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}

	w := world(back("b-1", 2*time.Minute, reached))
	first := decide(w).Decisions[0]
	first.Phase = state.PhaseWithdrawn
	setMemory(w.View, state.AutomationOf(w.View).With(first))

	if again := decide(w); len(again.Decisions) > 0 || !again.Next.Equal(w.Now.Add(time.Minute)) {
		t.Errorf("at once after a withdrawal: %s, next %s", actions(again), again.Next)
	}

	w.Now = w.Now.Add(time.Minute)

	second := decide(w).Decisions
	if len(second) != 1 || second[0].ID != first.ID+"/2" {
		t.Fatalf("after a withdrawal: %+v", second)
	}
	setMemory(w.View, state.AutomationOf(w.View).With(second...))

	if why := policy.Confirm(policy.Returns{}, w, second[0]); why != "" {
		t.Errorf("the second one: %s", why)
	}
}

// TestFences: fencing is limited in time, and stops before as many nodes are fenced as set
// off the brake.
func TestFences(t *testing.T) {
	t.Parallel()

	stranger := inventory.Contact{Foreign: true, Reason: "another ssh host key"}

	for _, c := range []struct {
		nodes, foreign int
		rate           int
		want           int
		why            string
	}{
		{40, 5, 20, 5, ""},
		// The rate is for jobs: a fence has its own limit.
		{40, 5, 1, 5, ""},
		{40, 40, 40, 11, "11 of 40 nodes are quarantined by the policy"},
		{3, 3, 20, 2, "2 of 3 nodes are quarantined by the policy"},
	} {
		var nodes []*inventory.Node
		for i := range c.nodes {
			n := member(fmt.Sprintf("n-%02d", i), noon.Add(-time.Hour))
			if i < c.foreign {
				n = back(n.Name, time.Minute+time.Duration(i)*time.Second, stranger)
			}
			nodes = append(nodes, n)
		}

		w := world(nodes...)
		w.Settings.Rate = c.rate

		p := decide(w)
		setMemory(w.View, state.AutomationOf(w.View).With(p.Decisions...))
		p.Decisions = append(p.Decisions, decide(w).Decisions...)

		if len(p.Decisions) != c.want {
			t.Errorf("%d of %d: %s", c.foreign, c.nodes, actions(p))
		}

		if c.why == "" {
			continue
		}

		last := nodes[c.foreign-1]
		findings := findings(policy.Returns{}, w, *last)

		if len(findings) == 0 || !strings.Contains(findings[0].Message, c.why) {
			t.Errorf("%d of %d: %+v", c.foreign, c.nodes, findings)
		}
	}
}

// differing returns these parts for every node.
func differing(parts ...inventory.Part) func(*state.View, *inventory.Node) []inventory.Part {
	return func(*state.View, *inventory.Node) []inventory.Part { return parts }
}

// TestOutdated: a node with a desired configuration that changed while it was away is named.
func TestOutdated(t *testing.T) {
	t.Parallel()

	w := world(back("b-1", 2*time.Minute, reached))
	w.Settings.Outdated = differing(inventory.PartPlaybooks, inventory.PartTags)

	if p := decide(w); !slices.Contains(p.Decisions[0].Evidence,
		"its desired configuration is not the applied one: playbooks, tags") {
		t.Errorf("%q", p.Decisions[0].Evidence)
	}
}

// TestFlapping: each return doubles the delay up to an hour, and the reason is shown.
func TestFlapping(t *testing.T) {
	t.Parallel()

	n := member("b-1", noon.Add(-time.Hour))

	var delays []time.Duration

	at := noon
	for range 9 {
		seen(n, false, at)
		seen(n, true, at.Add(30*time.Second))

		w := world(n)
		w.Now = at.Add(31 * time.Second)
		p := decide(w)

		if len(p.Decisions) > 0 || len(p.Ask) > 0 {
			t.Fatalf("acted on a flapping node: %+v", p)
		}

		delays = append(delays, p.Next.Sub(at.Add(30*time.Second)))
		at = at.Add(time.Minute)
	}

	want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60}
	for i := range want {
		if delays[i] != want[i]*time.Minute {
			t.Errorf("delay %d is %s, want %s", i, delays[i], want[i]*time.Minute)
		}
	}

	w := world(n)
	w.Now = at

	findings := findings(policy.Returns{}, w, *n)
	if len(findings) != 1 || !strings.Contains(findings[0].Message,
		"it returned 9 times in 8m; next step not before 2026-03-01 13:08:30 UTC") {
		t.Errorf("%+v", findings)
	}
}

// TestMassReturn: no more jobs at a time and within the window than configured, in the
// order of the returns.
func TestMassReturn(t *testing.T) {
	t.Parallel()

	var nodes []*inventory.Node
	for i := range 40 {
		nodes = append(nodes, back(fmt.Sprintf("n-%02d", i), time.Minute+time.Duration(i)*time.Second, reached))
	}

	w := world(nodes...)

	var began []string

	for range 4 {
		p := decide(w)
		if len(p.Decisions) > w.Settings.Jobs {
			t.Fatalf("%d jobs at a time: %s", len(p.Decisions), actions(p))
		}

		for _, d := range p.Decisions {
			n, _ := w.View.Lookup(d.Node)
			i := slices.IndexFunc(nodes, func(o *inventory.Node) bool { return o.Name == d.Node })
			n, _ = n.Decided(inventory.Trigger{Time: w.Now})
			nodes[i] = &n

			d.Phase = state.PhaseDone
			setMemory(w.View, state.AutomationOf(w.View).With(d))
			began = append(began, d.Node)
		}

		w.View.SetNodes(nodes...)
		w.View.SetJobs()
		w.Now = w.Now.Add(time.Minute)
	}

	if want := "n-00 n-01 n-02 n-03 n-04"; strings.Join(began, " ") != want {
		t.Errorf("began %v, want %s", began, want)
	}

	p := decide(w)
	if len(p.Decisions) > 0 || !p.Next.Equal(noon.Add(20*time.Minute)) {
		t.Errorf("over the rate: %s, next %s", actions(p), p.Next)
	}

	findings := findings(policy.Returns{}, w, *nodes[9])
	if len(findings) != 1 || !strings.Contains(findings[0].Message, "which is the limit (policies.rate)") {
		t.Errorf("%+v", findings)
	}

	// Jobs that still run count as well.
	w.View.View = record.Change(w.View.View, &state.Memory, func(a *state.Automation) { a.Decisions = nil })
	w.View.SetJobs([]*job.Job{
		{ID: "1", Status: job.Running, Actor: "policy:returns", Verb: inventory.VerbVerify},
		{ID: "2", Status: job.Running, Actor: "root", Verb: inventory.VerbVerify},
	}...)

	if p := decide(w); len(p.Decisions) != 1 {
		t.Errorf("beside a running job: %s", actions(p))
	}
}

// TestWindow: a repair waits for the maintenance window of its node, and a verification
// does not.
func TestWindow(t *testing.T) {
	t.Parallel()

	w := world(back("b-1", time.Minute, reached))

	var err error

	w.Settings.Windows, err = window.New([]window.Spec{
		{Name: "evening", Cron: "0 18 * * *", Duration: time.Hour, Groups: []string{"service-worker"}},
	}, inventory.DefaultGroups())
	errtest.None(t, err)

	if p := decide(w); actions(p) != "verify b-1" {
		t.Errorf("got %s", actions(p))
	}

	w.Settings.Groups = reacting(inventory.ReactionRepair)
	evening := time.Date(w.Now.Year(), w.Now.Month(), w.Now.Day(), 18, 0, 0, 0, time.UTC)

	if p := decide(w); len(p.Decisions) > 0 || !p.Next.Equal(evening) {
		t.Errorf("before its window: %s, next %s", actions(p), p.Next)
	}

	n, _ := w.View.Lookup("b-1")
	if f := findings(policy.Returns{}, w, n); len(f) != 1 ||
		!strings.Contains(f[0].Message, "waits for its repair: b-1 is outside of the maintenance window evening") {
		t.Errorf("%+v", f)
	}

	// The host is asked again, because its answer is old.
	w.Now = evening
	if p := decide(w); len(p.Decisions) > 0 || !slices.Equal(p.Ask, []string{"b-1"}) {
		t.Errorf("within its window: %s, asks %v", actions(p), p.Ask)
	}

	w.View.Nodes()[0].Presence.Back.Time = evening
	if p := decide(w); actions(p) != "repair b-1" {
		t.Errorf("within its window: %s", actions(p))
	}
}

// TestRepairWithinBudget: a repair that the budget of its group does not allow waits for another node, and says so.
func TestRepairWithinBudget(t *testing.T) {
	t.Parallel()

	w := world(back("b-1", time.Minute, reached), back("b-2", 2*time.Minute, reached), member("b-3", noon))
	w.Settings.Groups = inventory.Groups{{
		Name: "service-worker", OnReturn: inventory.ReactionRepair, Budget: inventory.Budget{MaxUnavailable: "1"},
	}}

	p := decide(w)
	if actions(p) != "repair b-1" {
		t.Fatalf("two repairs, one of which fits: %q", actions(p))
	}
	setMemory(w.View, state.AutomationOf(w.View).With(p.Decisions...))

	if again := decide(w); len(again.Decisions) > 0 {
		t.Errorf("the first one is about to begin: %q", actions(again))
	}

	setMemory(w.View, state.Automation{})
	w.View.Nodes()[2].Status = inventory.Maintenance

	if again := decide(w); len(again.Decisions) > 0 {
		t.Errorf("another node is down: %q", actions(again))
	}

	n, _ := w.View.Lookup("b-1")
	if f := findings(policy.Returns{}, w, n); len(f) != 1 ||
		!strings.Contains(f[0].Message, "waits for its repair: ") || !strings.Contains(f[0].Message, "b-3") {
		t.Errorf("%+v", f)
	}

	w.View.Nodes()[2].Status = inventory.Allocated
	if again := decide(w); actions(again) != "repair b-1" {
		t.Errorf("there is room again: %q", actions(again))
	}
}

// TestYield: an automatic verification is cancelled for a person's job, for a host that
// is gone, and in the queue under the brake; a repair that runs goes on.
func TestYield(t *testing.T) {
	t.Parallel()

	automatic := func(verb inventory.Verb, status job.Status) job.Job {
		return job.Job{
			ID: "1", Verb: verb, Status: status, Actor: "policy:returns",
			Targets: []job.Target{{Name: "b-1", Addr: "192.0.2.1"}},
		}
	}
	person := func(node string) job.Job {
		return job.Job{
			ID: "2", Verb: inventory.VerbUpdate, Status: job.Queued, Actor: "root",
			Targets: []job.Target{{Name: node, From: inventory.Allocated}},
		}
	}

	for _, c := range []struct {
		name  string
		jobs  []job.Job
		gone  bool
		brake bool
		want  string
	}{
		{"nobody waits", []job.Job{automatic(inventory.VerbVerify, job.Running)}, false, false, ""},
		{"a person waits", []job.Job{automatic(inventory.VerbVerify, job.Running), person("b-1")},
			false, false, "yield b-1"},
		{"a person waits for a queued one", []job.Job{automatic(inventory.VerbVerify, job.Queued), person("b-1")},
			false, false, "yield b-1"},
		{"a person waits, under the brake", []job.Job{automatic(inventory.VerbVerify, job.Running), person("b-1")},
			false, true, "yield b-1"},
		{"another node", []job.Job{automatic(inventory.VerbVerify, job.Running), person("a-1")}, false, false, ""},
		{"a repair goes on", []job.Job{automatic(inventory.VerbReapply, job.Running), person("b-1")}, false, false, ""},
		{"a repair that has not begun", []job.Job{automatic(inventory.VerbReapply, job.Queued), person("b-1")},
			false, false, "yield b-1"},
		{"the host is gone", []job.Job{automatic(inventory.VerbVerify, job.Running)}, true, false, "yield b-1"},
		{"the brake is on", []job.Job{automatic(inventory.VerbVerify, job.Queued)}, false, true, "yield b-1"},
		{"it runs under the brake", []job.Job{automatic(inventory.VerbVerify, job.Running)}, false, true, ""},
	} {
		a, b := member("a-1", noon.Add(-time.Hour)), member("b-1", noon.Add(-time.Hour))

		if c.gone {
			seen(b, false, noon)
		}

		w := world(a, b)
		w.View.SetJobs(jobtest.List(c.jobs...)...)
		setBrake(w.View, state.Brake{On: c.brake})
		p := decide(w)

		if got := actions(p); got != c.want {
			t.Errorf("%s: decided %q, want %q", c.name, got, c.want)
		}

		setMemory(w.View, state.AutomationOf(w.View).With(p.Decisions...))

		if again := decide(w); len(again.Decisions) > 0 {
			t.Errorf("%s: decided twice", c.name)
		}
	}
}

func TestSecondOpinion(t *testing.T) {
	t.Parallel()

	n := member("b-1", noon.Add(-time.Hour))
	seen(n, false, noon)

	w := world(n)
	for _, c := range []struct {
		after time.Duration
		away  inventory.Contact
		ask   bool
		gone  bool
	}{
		{5 * time.Second, inventory.Contact{}, false, false},
		{15 * time.Second, inventory.Contact{}, true, false},
		{time.Minute, inventory.Contact{Time: noon.Add(20 * time.Second), Reached: true}, false, false},
		{time.Minute, inventory.Contact{Time: noon.Add(20 * time.Second), Silent: true}, true, true},
		{2 * time.Hour, inventory.Contact{Time: noon.Add(20 * time.Second), Silent: true}, false, true},
	} {
		n.Presence.Away, w.Now = c.away, noon.Add(c.after)

		p := decide(w)
		if got := slices.Contains(p.Ask, "b-1"); got != c.ask || policy.Gone(*n) != c.gone || len(p.Decisions) > 0 {
			t.Errorf("after %s: ask %t, gone %t, %+v", c.after, got, policy.Gone(*n), p.Decisions)
		}
	}

	n.Presence.Away = inventory.Contact{Time: noon, Reached: true}

	findings := findings(policy.Returns{}, w, *n)
	if len(findings) != 1 || !strings.Contains(findings[0].Message, "its agent has stopped or the gossip is cut") {
		t.Errorf("%+v", findings)
	}
}

// TestQuiet: nobody logs in to a host that never was away.
func TestQuiet(t *testing.T) {
	t.Parallel()

	n := member("b-1", noon.Add(-time.Hour))
	n.Presence.Back = inventory.Contact{}

	if p := decide(world(n)); len(p.Ask)+len(p.Decisions)+len(p.Notes) > 0 || !p.Next.IsZero() {
		t.Errorf("%+v", p)
	}
}

// reacting returns the groups with a reaction to the return of workers.
func reacting(r inventory.Reaction) inventory.Groups {
	groups := inventory.DefaultGroups()
	groups[1].OnReturn = r
	return groups
}
