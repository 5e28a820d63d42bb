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
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// newcomer is a node that the gossip saw for the first time at the given time.
func newcomer(name string, at time.Time) *inventory.Node {
	n := member(name, at)
	n.Status, n.Group, n.Applied, n.HostKeys, n.Presence.Back = inventory.Unallocated, "", "", nil, inventory.Contact{}
	return n
}

// workers is a rule for the nodes with the label n.
func workers() policy.Rule {
	return policy.Rule{
		Name: "workers", Match: func(n *inventory.Node) bool { return n.Label == "n" }, Selector: "label=n",
		Group: "service-worker", Maximum: 10, Rate: 3, Quiet: 5 * time.Minute, Failures: 2,
	}
}

// masters is a rule for the same nodes that comes first.
func masters() policy.Rule {
	r := workers()
	r.Name, r.Group, r.Priority, r.Maximum = "masters", "service-master", 10, 3
	return r
}

// fresh is a world with a master, and the rules turned on.
func freshWorld(rules []policy.Rule, nodes ...*inventory.Node) policy.World {
	m := member("m-0", noon.Add(-time.Hour))
	m.Group = "service-master"

	w := world(append(nodes, m)...)
	w.Settings.Commission, w.Settings.Jobs = rules, 100

	for _, r := range rules {
		setMemory(w.View, state.AutomationOf(w.View).Turn(r.Name, state.Switch{On: true, Since: noon.Add(-time.Hour)}))
	}

	return w
}

// commissionedBefore has the policy commission a provided node by a job that has ended, and somebody provide it again.
func commissionedBefore(w *policy.World, n *inventory.Node, ended job.Status) {
	n.PrevStatus = inventory.Cleaning

	d := policy.Decide(policy.Commission{Rule: w.Settings.Commission[0]}, *w).Decisions[0]
	d.Phase, d.Job, d.Time = state.PhaseDone, "4", noon.Add(-time.Hour)
	setMemory(w.View, state.AutomationOf(w.View).With(d))

	w.View.SetJobs([]*job.Job{{
		ID: "4", Verb: inventory.VerbCommission, Status: ended, Actor: state.PolicyPrincipal("workers"),
		Targets: []job.Target{{Name: n.Name}}, Accepted: noon.Add(-time.Hour), Ended: noon.Add(-time.Hour),
	}}...)
}

func plan(w policy.World, r policy.Rule) string {
	return actions(policy.Decide(policy.Commission{Rule: r}, w))
}

func TestCommission(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name   string
		change func(w *policy.World, n *inventory.Node)
		want   string
		text   string // of the explanation
	}{
		{"new", nil, "commission n-1", "it is commissioned to service-worker now"},
		{"off", func(w *policy.World, _ *inventory.Node) {
			w.View.View = record.Change(w.View.View, &state.Memory, func(a *state.Automation) { a.Switches = nil })
		}, "", ""},
		{"turned off", func(w *policy.World, _ *inventory.Node) {
			setMemory(w.View, state.AutomationOf(w.View).Turn("workers", state.Switch{}))
		}, "", ""},
		{"paused", func(w *policy.World, _ *inventory.Node) {
			setPaused(w.View, map[string]state.Pause{"workers": {Actor: "ann"}})
		}, "", "nothing is done: ann paused it"},
		{"the brake is on", func(w *policy.World, _ *inventory.Node) { setBrake(w.View, state.Brake{On: true}) }, "",
			"nothing is done: the brake holds"},
		{"it does not match", func(_ *policy.World, n *inventory.Node) { n.Label = "x" }, "", ""},
		{"the quiet period", func(w *policy.World, _ *inventory.Node) { w.Now = noon.Add(5*time.Minute - 1) }, "",
			"commissioned not before 2026-03-01 12:05:00 UTC (policies.commission.workers.quiet)"},
		{"it flaps", func(w *policy.World, n *inventory.Node) {
			seen(n, false, w.Now.Add(-4*time.Minute))
			seen(n, true, w.Now.Add(-3*time.Minute))
		}, "", "not before 2026-03-01 12:12:00 UTC"},
		{"gone", func(w *policy.World, n *inventory.Node) { seen(n, false, w.Now) }, "", "do not see it"},
		{"its last commission failed", func(_ *policy.World, n *inventory.Node) { n.LastError = "no such package" },
			"", ""},
		{"it was used before", func(_ *policy.World, n *inventory.Node) { n.PrevStatus = inventory.Decommissioning },
			"", ""},
		{"it was provided", func(_ *policy.World, n *inventory.Node) { n.PrevStatus = inventory.Cleaning },
			"commission n-1", "it is commissioned to service-worker now"},
		{"its agent came after its registration", func(_ *policy.World, n *inventory.Node) {
			n.PrevStatus = inventory.Enrolled
		}, "commission n-1", "it is commissioned to service-worker now"},
		{"it was commissioned, taken out of service, and provided again", func(w *policy.World, n *inventory.Node) {
			commissionedBefore(w, n, job.Complete)
		}, "commission n-1", "it is commissioned to service-worker now"},
		{"a person cancelled its commission", func(w *policy.World, n *inventory.Node) {
			commissionedBefore(w, n, job.Cancelled)
		}, "", ""},
		{"it carries a residue", func(_ *policy.World, n *inventory.Node) { n.Residue = []string{"service-worker"} },
			"", ""},
		{"Quarantined", func(_ *policy.World, n *inventory.Node) { n.Status = inventory.Quarantined }, "", ""},
		{"two hosts claim to be it", func(_ *policy.World, n *inventory.Node) { n.Duplicates = []string{"192.0.2.9"} },
			"",
			"several live hosts"},
		{"an alert excludes it", func(_ *policy.World, n *inventory.Node) {
			n.Alerts = []inventory.Alert{{Reason: "on the bench", Effects: []inventory.Effect{inventory.Excluded}}}
		}, "", "it has an alert that excludes it: on the bench"},
		{"an alert refuses it", func(_ *policy.World, n *inventory.Node) {
			n.Alerts = []inventory.Alert{{Reason: "it is hot", Effects: []inventory.Effect{inventory.BlocksCommission}}}
		}, "", "it has an alert that refuses it: it is hot"},
		{"an alert informs", func(_ *policy.World, n *inventory.Node) {
			n.Alerts = []inventory.Alert{{Reason: "it is hot", Effects: []inventory.Effect{inventory.BlocksPower}}}
		}, "commission n-1", "it is commissioned to service-worker now"},
		{"a person wants it", func(w *policy.World, _ *inventory.Node) {
			w.View.SetJobs([]*job.Job{{
				ID: "4", Verb: inventory.VerbCommission, Status: job.Queued, Actor: "ann",
				Targets: []job.Target{{Name: "n-1"}},
			}}...)
		}, "", "job 4 (commission) of ann is due on it first"},
		{"no master is there", func(w *policy.World, _ *inventory.Node) {
			w.View.Nodes()[0].Status = inventory.Decommissioned
		},
			"", "it cannot join yet: a new node cannot join service-worker: it requires"},
		{"one master is too few", func(w *policy.World, _ *inventory.Node) {
			groups := inventory.DefaultGroups()
			groups[1].Requires = inventory.Requirements{inventory.GroupMaster: 2}
			w.Settings.Groups = groups
		},
			"", "requires 2 healthy nodes of service-master outside this request, and there is 1"},
		{"the group is full", func(w *policy.World, _ *inventory.Node) { w.Settings.Commission[0].Maximum = 0 },
			"", ""},
		{"automatic jobs are at work", func(w *policy.World, _ *inventory.Node) { w.Settings.Jobs = 0 }, "",
			"it waits for its turn: 0 automatic jobs are at work"},
	} {
		n := newcomer("n-1", noon)
		w := freshWorld([]policy.Rule{workers()}, n)

		if c.change != nil {
			c.change(&w, n)
		}

		rule := policy.Commission{Rule: w.Settings.Commission[0]}
		p := policy.Decide(rule, w)

		if got := actions(p); got != c.want {
			t.Errorf("%s: decided %q, want %q", c.name, got, c.want)
		}

		var text string
		for _, f := range findings(rule, w, *n) {
			text += f.Message
		}

		if !strings.Contains(text, c.text) || text != "" && c.text == "" {
			t.Errorf("%s: explained %q, want %q", c.name, text, c.text)
		}

		for _, d := range p.Decisions {
			if d.Group != "service-worker" || len(d.Evidence) != 3 || len(d.Prevent) == 0 || d.Case == "" ||
				!strings.Contains(d.Evidence[1], "label=n") || policy.Confirm(rule, w, d) != "" {
				t.Errorf("%s: %+v", c.name, d)
			}

			setMemory(w.View, state.AutomationOf(w.View).With(d))

			if again := policy.Decide(rule, w); len(again.Decisions) > 0 {
				t.Errorf("%s: decided twice", c.name)
			}

			if why := policy.Confirm(rule, w, d); why != "" {
				t.Errorf("%s: its own decision is in its way: %s", c.name, why)
			}

			seen(n, false, w.Now)

			if why := policy.Confirm(rule, w, d); why == "" {
				t.Errorf("%s: it holds for a node that is gone", c.name)
			}
		}
	}
}

// TestCommissionWaitsForTheQuietPeriod: the next decision is due at its end.
func TestCommissionWaitsForTheQuietPeriod(t *testing.T) {
	t.Parallel()

	w := freshWorld([]policy.Rule{workers()}, newcomer("n-1", noon.Add(8*time.Minute)))

	p := policy.Decide(policy.Commission{Rule: workers()}, w)
	if len(p.Decisions) > 0 || !p.Next.Equal(noon.Add(13*time.Minute)) {
		t.Errorf("%s, next %s", actions(p), p.Next)
	}
}

// TestCommissionLimits: the rate, the maximum of the group and the priority of two rules.
// The nodes that were discovered first come first.
func TestCommissionLimits(t *testing.T) {
	t.Parallel()

	var nodes []*inventory.Node
	for i := range 20 {
		nodes = append(nodes, newcomer(fmt.Sprintf("n-%02d", i), noon.Add(-time.Duration(i)*time.Second)))
	}

	w := freshWorld([]policy.Rule{workers(), masters()}, nodes...)
	// One master is in service, and there may be three.
	if got := plan(w, masters()); got != "commission n-19, commission n-18" {
		t.Errorf("masters: %s", got)
	}

	if got := plan(w, workers()); got != "commission n-17, commission n-16, commission n-15" {
		t.Errorf("workers: %s", got)
	}

	p := policy.Decide(policy.Commission{Rule: workers()}, w)
	setMemory(w.View, state.AutomationOf(w.View).With(p.Decisions...))
	w.Now = w.Now.Add(time.Minute)

	again := policy.Decide(policy.Commission{Rule: workers()}, w)
	if len(again.Decisions) > 0 || !again.Next.Equal(noon.Add(20*time.Minute)) {
		t.Errorf("over the rate: %s, next %s", actions(again), again.Next)
	}

	// Without the rule for masters, or if that is paused with its priority, its nodes are
	// free or kept for it.
	off := w
	view := *w.View
	setMemory(&view, state.Automation{}.Turn("workers", state.Switch{On: true}))
	off.View = &view

	if got := plan(off, workers()); got != "commission n-19, commission n-18, commission n-17" {
		t.Errorf("workers alone: %s", got)
	}

	// With seven workers in service there is room for three.
	serving := fleet(8)
	for _, n := range serving {
		n.Name = "w-" + n.Serial
	}

	full := freshWorld([]policy.Rule{workers()}, append(slices.Clone(nodes), serving...)...)
	full.Settings.Commission[0].Rate = 100

	p = policy.Decide(policy.Commission{Rule: full.Settings.Commission[0]}, full)
	if len(p.Decisions) != 2 {
		t.Errorf("two of ten are missing: %s", actions(p))
	}
}

// TestCommissionStops after failures in a row, once; a success between them, a cancel and
// any failure before it was turned on do not count.
func TestCommissionStops(t *testing.T) {
	t.Parallel()

	ended := func(id string, status job.Status, minute int) job.Job {
		at := noon.Add(time.Duration(minute) * time.Minute)

		return job.Job{
			ID: id, Verb: inventory.VerbCommission, Status: status, Actor: "policy:workers", Accepted: at, Ended: at,
			Message: "no such package", Targets: []job.Target{{Name: "n-" + id}},
		}
	}

	for _, c := range []struct {
		name string
		jobs []job.Job
		want string
	}{
		{"one failure", []job.Job{ended("1", job.Errored, 1)}, "commission n-9"},
		{"two failures", []job.Job{ended("1", job.Errored, 1), ended("2", job.Errored, 2)}, "stop "},
		{"a success between", []job.Job{
			ended("1", job.Errored, 1), ended("2", job.Complete, 2), ended("3", job.Errored, 3),
		}, "commission n-9"},
		{"a cancel between", []job.Job{
			ended("1", job.Errored, 1), ended("2", job.Cancelled, 2), ended("3", job.Errored, 3),
		}, "stop "},
		{"before it was turned on", []job.Job{ended("1", job.Errored, -61), ended("2", job.Errored, 2)},
			"commission n-9"},
	} {
		w := freshWorld([]policy.Rule{workers()}, newcomer("n-9", noon))
		w.View.SetJobs(jobtest.List(c.jobs...)...)

		p := policy.Decide(policy.Commission{Rule: workers()}, w)
		if got := actions(p); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
			continue
		}

		if c.want != "stop " {
			continue
		}

		d := p.Decisions[0]
		if d.Phase != state.PhaseDone || len(d.Evidence) != 2 ||
			!strings.Contains(d.Evidence[1], "job 1 on n-1: no such package") {
			t.Errorf("%s: %+v", c.name, d)
		}

		setMemory(w.View, state.AutomationOf(w.View).With(d).Turn("workers", state.Switch{Since: w.Now}))

		if again := policy.Decide(policy.Commission{Rule: workers()}, w); len(again.Decisions) > 0 {
			t.Errorf("%s: off, and decided %s", c.name, actions(again))
		}

		setMemory(w.View, state.AutomationOf(w.View).Turn("workers", state.Switch{On: true, Since: w.Now}))

		if got := plan(w, workers()); got != "commission n-9" {
			t.Errorf("%s: turned on again, %q", c.name, got)
		}
	}

	refused := freshWorld([]policy.Rule{workers()}, newcomer("n-9", noon))
	for i := range 2 {
		setMemory(refused.View, state.AutomationOf(refused.View).With(state.Decision{
			ID: fmt.Sprint(i), Time: noon.Add(time.Minute), Policy: "workers", Node: "n-1", Phase: state.PhaseRefused,
			Action: state.ActionCommission, Result: "no play",
		}))
	}

	if got := plan(refused, workers()); got != "stop " {
		t.Errorf("two refusals: %q", got)
	}
}

// TestCommissionAfterYield: a commission that made room before it began is decided again,
// and one that a person cancelled is not.
func TestCommissionAfterYield(t *testing.T) {
	t.Parallel()

	for by, want := range map[string]string{"policy:workers": "commission n-1", "ann": ""} {
		w := freshWorld([]policy.Rule{workers()}, newcomer("n-1", noon))

		d := policy.Decide(policy.Commission{Rule: workers()}, w).Decisions[0]
		d.Phase, d.Job = state.PhaseDone, "7"
		setMemory(w.View, state.AutomationOf(w.View).With(d))
		w.View.SetJobs([]*job.Job{{
			ID: "7", Verb: inventory.VerbCommission, Actor: "policy:workers", Status: job.Cancelled, CancelBy: by,
			Targets: []job.Target{{Name: "n-1"}},
		}}...)

		if got := plan(w, workers()); got != want {
			t.Errorf("cancelled by %s: %q, want %q", by, got, want)
		}
	}
}

// TestPolicyTest: the actions that the policies would take, in words.
func TestPolicyTest(t *testing.T) {
	t.Parallel()

	w := freshWorld([]policy.Rule{workers()}, back("b-1", 2*time.Minute, reached),
		newcomer("n-1", noon), newcomer("n-2", noon.Add(9*time.Minute)))

	got := policy.Commission{Rule: workers()}.Judge(w)
	if len(got) != 2 || !acts(got[0], "n-1") || got[0].Group != "service-worker" ||
		got[1].Stage == policy.StageAct || !got[1].Until.Equal(noon.Add(14*time.Minute)) {
		t.Errorf("%+v", got)
	}

	got = policy.Returns{}.Judge(w)
	if len(got) != 1 || got[0].Node.Name != "b-1" || got[0].Action != state.ActionVerify ||
		got[0].Stage != policy.StageAct {
		t.Errorf("%+v", got)
	}
}

// TestCommissionOfManyNodes: the evaluation over 10 000 nodes.
func TestCommissionOfManyNodes(t *testing.T) {
	t.Parallel()

	var nodes []*inventory.Node
	for i := range 10_000 {
		nodes = append(nodes, newcomer(fmt.Sprintf("n-%05d", i), noon))
	}

	w := freshWorld([]policy.Rule{workers(), masters()}, nodes...)

	begun := time.Now()
	p := policy.Decide(policy.Commission{Rule: workers()}, w)

	if len(p.Decisions) != 3 {
		t.Errorf("%d decisions", len(p.Decisions))
	}

	t.Logf("10 000 nodes in %s", time.Since(begun))
}
