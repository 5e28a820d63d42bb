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

// nightly is a rule for the nodes with the label n, each day at noon.
func nightly(t *testing.T) policy.VerifyRule {
	t.Helper()

	times, err := window.ParseTimes("0 12 * * *", "")
	errtest.None(t, err)

	return policy.VerifyRule{
		Name: "nightly", Match: func(n *inventory.Node) bool { return n.Label == "n" }, Selector: "label=n",
		Times: times, Spread: new(time.Hour), Batch: 2, Jobs: 1,
	}
}

// verified is a node in service that was verified at the time; zero: never.
func verified(name string, at time.Time) *inventory.Node {
	n := member(name, noon.Add(-100*time.Hour))
	if !at.IsZero() {
		n.Verification = &inventory.Verdict{Result: inventory.Clean, Time: at}
	}
	return n
}

// night is a world ten minutes after the time of the rule, which is on since the day before.
func night(r policy.VerifyRule, nodes ...*inventory.Node) policy.World {
	w := world(nodes...)
	w.Settings.Verify, w.Settings.Jobs = []policy.VerifyRule{r}, 5
	setMemory(
		w.View,
		state.AutomationOf(w.View).Turn("nightly", state.Switch{On: true, Since: noon.Add(-24 * time.Hour)}),
	)

	return w
}

func batches(p policy.Plan) string {
	var out []string
	for _, d := range p.Decisions {
		out = append(out, string(d.Action)+" "+strings.Join(append(d.Nodes, d.Cancel), " "))
	}

	return strings.TrimSpace(strings.Join(out, ", "))
}

func TestVerify(t *testing.T) {
	t.Parallel()

	byPolicy := func(w *policy.World, status job.Status, accepted time.Time) {
		w.View.PutJob(&job.Job{
			ID: "7", Verb: inventory.VerbVerify, Actor: "policy:nightly", Status: status, Accepted: accepted,
			Started: accepted, Targets: []job.Target{{Name: "n-1"}},
		})
	}

	for _, c := range []struct {
		name   string
		change func(w *policy.World, n *inventory.Node)
		want   string
		text   string // of the explanation
	}{
		{"never verified", nil, "verify n-1", "it is verified now"},
		{"verified in the run before", func(_ *policy.World, n *inventory.Node) {
			n.Verification = verified("n-1", noon.Add(-23*time.Hour)).Verification
		}, "verify n-1", "it is verified now"},
		{"verified by a person in the half period before", func(_ *policy.World, n *inventory.Node) {
			n.Verification = verified("n-1", noon.Add(-3*time.Hour)).Verification
		}, "", ""},
		{"verified in the run", func(_ *policy.World, n *inventory.Node) {
			n.Verification = verified("n-1", noon.Add(time.Minute)).Verification
		}, "", ""},
		{"failed the gate of a rollout in the run", func(_ *policy.World, n *inventory.Node) {
			failed := n.FailGate("no answer", noon.Add(time.Minute))
			n.Verification = failed.Verification
		}, "verify n-1", "it is verified now"},
		{"turned on after the time", func(w *policy.World, _ *inventory.Node) {
			on := state.Switch{On: true, Since: noon.Add(time.Second)}
			setMemory(w.View, state.AutomationOf(w.View).Turn("nightly", on))
		}, "", ""},
		{"off", func(w *policy.World, _ *inventory.Node) {
			w.View.View = record.Change(w.View.View, &state.Memory, func(a *state.Automation) { a.Switches = nil })
		}, "", ""},
		{"paused", func(w *policy.World, _ *inventory.Node) {
			setPaused(w.View, map[string]state.Pause{"nightly": {Actor: "ann"}})
		}, "", "nothing is done: ann paused it"},
		{"the brake is on", func(w *policy.World, _ *inventory.Node) { setBrake(w.View, state.Brake{On: true}) }, "",
			"nothing is done: the brake holds"},
		{"it does not match", func(_ *policy.World, n *inventory.Node) { n.Label = "x" }, "", ""},
		{"not in service", func(_ *policy.World, n *inventory.Node) { n.Status = inventory.Unallocated }, "", ""},
		{"not seen", func(_ *policy.World, n *inventory.Node) { n.State = inventory.Disappeared }, "",
			"the observers do not see it"},
		{"two hosts claim to be it", func(_ *policy.World, n *inventory.Node) {
			n.Duplicates = []string{"192.0.2.66"}
		}, "", "several live hosts claim to be it"},
		{"its return is not decided on", func(_ *policy.World, n *inventory.Node) {
			seen(n, false, noon.Add(8*time.Minute))
			seen(n, true, noon.Add(9*time.Minute))
		}, "", "policy returns has not decided on it yet"},
		{"it returned, and nobody decides on returns", func(w *policy.World, n *inventory.Node) {
			seen(n, false, noon.Add(8*time.Minute))
			seen(n, true, noon.Add(9*time.Minute))
			setMemory(w.View, state.AutomationOf(w.View).Turn("returns", state.Switch{}))
		}, "verify n-1", "it is verified now"},
		{"held by a job", func(_ *policy.World, n *inventory.Node) { n.Job = "9" }, "", "job 9 holds it"},
		{"wanted by a person", func(w *policy.World, _ *inventory.Node) {
			w.View.SetJobs([]*job.Job{{
				ID: "9", Verb: inventory.VerbApply, Actor: "ann", Status: job.Queued,
				Targets: []job.Target{{Name: "n-1"}},
			}}...)
		}, "", "job 9 (apply) of ann is due on it first"},
		{"its job runs", func(w *policy.World, _ *inventory.Node) { byPolicy(w, job.Running, noon) }, "", ""},
		{"its job failed", func(w *policy.World, _ *inventory.Node) { byPolicy(w, job.Errored, noon) }, "", ""},
		{"its job made room for a person", func(w *policy.World, _ *inventory.Node) {
			byPolicy(w, job.Cancelled, noon)
		}, "verify n-1", "it is verified now"},
		{"a job of the run before failed", func(w *policy.World, _ *inventory.Node) {
			byPolicy(w, job.Errored, noon.Add(-time.Hour))
		}, "verify n-1", "it is verified now"},
		{"it was refused", func(w *policy.World, _ *inventory.Node) {
			setMemory(w.View, state.AutomationOf(w.View).With(state.Decision{
				ID: "d", Time: noon, Policy: "nightly", Action: state.ActionVerify, Nodes: []string{"n-1"},
				Phase: state.PhaseRefused,
			}))
		}, "", ""},
		{"no automatic job may begin", func(w *policy.World, _ *inventory.Node) { w.Settings.Jobs = 0 }, "",
			"it waits for its turn: 0 automatic jobs"},
		{"days after a time that was missed", func(w *policy.World, _ *inventory.Node) {
			w.Now = noon.Add(5*24*time.Hour + 30*time.Minute)
		}, "verify n-1", "it is verified now"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			n := verified("n-1", time.Time{})
			rule := nightly(t)
			w := night(rule, n)

			if c.change != nil {
				c.change(&w, n)
			}

			v := policy.Verify{Rule: rule}
			if got := batches(policy.Decide(v, w)); got != c.want {
				t.Errorf("decided %q, want %q", got, c.want)
			}

			text := ""
			for _, f := range findings(v, w, *n) {
				text += f.Message
			}

			if (text == "") != (c.text == "") || !strings.Contains(text, c.text) {
				t.Errorf("explained %q, want %q", text, c.text)
			}
		})
	}
}

// TestVerifySpread: the batches of a fleet come one after the other, over the spread; the last
// turn is before its end.
func TestVerifySpread(t *testing.T) {
	t.Parallel()

	var nodes []*inventory.Node
	for i := range 8 {
		nodes = append(nodes, verified(fmt.Sprintf("n-%d", i), time.Time{}))
	}

	rule := nightly(t)
	w := night(rule, nodes...)
	v := policy.Verify{Rule: rule}

	for _, c := range []struct {
		after time.Duration
		jobs  int
		want  string
		next  time.Duration
	}{
		{-time.Second, 9, "", 0},
		{0, 9, "verify n-0 n-1", 15 * time.Minute},
		{14 * time.Minute, 9, "verify n-0 n-1", 15 * time.Minute},
		{30 * time.Minute, 9, "verify n-0 n-1, verify n-2 n-3, verify n-4 n-5", 45 * time.Minute},
		{30 * time.Minute, 1, "verify n-0 n-1", 45 * time.Minute},
		{10 * time.Hour, 2, "verify n-0 n-1, verify n-2 n-3", 24 * time.Hour},
	} {
		v.Rule.Jobs, w.Settings.Jobs, w.Settings.Rate = c.jobs, 100, 100
		w.Now = noon.Add(c.after)

		// The day before is over.
		if c.after < 0 {
			setMemory(
				w.View,
				state.AutomationOf(w.View).Turn("nightly", state.Switch{On: true, Since: noon.Add(-time.Hour)}),
			)
		}

		spaced := func(p policy.Plan) string { return strings.ReplaceAll(batches(p), " ,", ",") }

		plan := policy.Decide(v, w)
		if got := spaced(plan); got != c.want {
			t.Errorf("after %s with %d jobs: %q, want %q", c.after, c.jobs, got, c.want)
		}
		if !plan.Next.Equal(noon.Add(c.next)) {
			t.Errorf("after %s: next at %s, want noon and %s", c.after, plan.Next, c.next)
		}
	}
}

// TestVerifyDecision has its evidence, its own id for each batch, and holds only while all of
// its nodes are due.
func TestVerifyDecision(t *testing.T) {
	t.Parallel()

	rule := nightly(t)
	rule.Jobs = 2
	at := noon.Add(-30 * time.Hour)
	w := night(rule, verified("n-1", time.Time{}), verified("n-2", at), verified("n-3", at))
	w.Now = noon.Add(time.Hour)
	// n-1 was verified, and upgraded after that.
	w.View.Nodes()[0].Configured = &inventory.Configured{Time: at}
	v := policy.Verify{Rule: rule}

	decided := policy.Decide(v, w).Decisions
	if len(decided) != 2 || decided[0].ID == decided[1].ID {
		t.Fatalf("%+v", decided)
	}
	d := decided[0]
	if !slices.Equal(d.Nodes, []string{"n-1", "n-2"}) ||
		!strings.HasPrefix(d.Evidence[1], "n-1 was not verified since it was configured at 2026") ||
		!strings.Contains(d.Evidence[2], "n-2 was verified at 2026") {
		t.Errorf("%+v", d)
	}

	setMemory(w.View, state.AutomationOf(w.View).With(decided...))

	if again := policy.Decide(v, w).Decisions; len(again) > 0 {
		t.Errorf("decided twice: %+v", again)
	}

	if why := policy.Confirm(v, w, d); why != "" {
		t.Error(why)
	}

	w.View.Find("n-2").Job = "9"

	if why := policy.Confirm(v, w, d); why != "n-2: it waits: job 9 holds it" {
		t.Error(why)
	}
}

// TestVerifyYields: a job of a person never waits for a batch.
func TestVerifyYields(t *testing.T) {
	t.Parallel()

	rule := nightly(t)
	n := verified("n-1", time.Time{})
	n.Job, n.Status = "7", inventory.Maintenance
	w := night(rule, n)
	w.View.SetJobs([]*job.Job{
		{
			ID: "7", Verb: inventory.VerbVerify, Actor: "policy:nightly", Status: job.Running, Accepted: noon,
			Started: noon, Targets: []job.Target{{Name: "n-1"}},
		},
		{ID: "8", Verb: inventory.VerbApply, Actor: "ann", Status: job.Queued, Targets: []job.Target{{Name: "n-1"}}},
	}...)

	if got := batches(policy.Decide(policy.Verify{Rule: rule}, w)); got != "yield 7" {
		t.Errorf("decided %q", got)
	}
}

// TestScheduledVerificationAnswersNoReturn: a verification on a schedule does not replace what
// is done about a return, and one of a person does.
func TestScheduledVerificationAnswersNoReturn(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ actor, want string }{
		{"policy:nightly", "verify n-1"}, {"policy:returns", ""}, {"ann", ""},
	} {
		w := world(back("n-1", time.Minute, reached))
		w.View.SetJobs([]*job.Job{{
			ID: "5", Verb: inventory.VerbVerify, Actor: c.actor, Status: job.Complete,
			Started: noon.Add(3 * time.Minute), Ended: noon.Add(4 * time.Minute), Targets: []job.Target{{Name: "n-1"}},
		}}...)

		if got := actions(decide(w)); got != c.want {
			t.Errorf("verified by %s: %q, want %q", c.actor, got, c.want)
		}
	}
}

// TestScheduledVerificationLeavesRoom: verifications on a schedule take half of the limits at
// most, and one action at least, so that returns come to their turn; a fence waits for neither.
func TestScheduledVerificationLeavesRoom(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ jobs, rate, want, more int }{
		{jobs: 10, rate: 4, want: 2, more: 2},
		{jobs: 4, rate: 20, want: 2, more: 2},
		{jobs: 1, rate: 1, want: 1, more: 0},
		{jobs: 2, rate: 2, want: 1, more: 1},
	} {
		rule := nightly(t)
		rule.Batch, rule.Jobs = 1, 100

		var nodes []*inventory.Node
		for i := range 10 {
			nodes = append(nodes, verified(fmt.Sprintf("n-%d", i), time.Time{}))
		}

		w := night(rule, nodes...)
		w.Now = noon.Add(2 * time.Hour)
		w.Settings.Jobs, w.Settings.Rate = c.jobs, c.rate
		v := policy.Verify{Rule: rule}

		p := policy.Decide(v, w)
		if len(p.Decisions) != c.want {
			t.Errorf("%+v: %s", c, batches(p))
		}

		now := 0

		for _, o := range v.Judge(w) {
			if o.Stage == policy.StageAct {
				now++
			} else if o.Node != nil && !strings.Contains(o.Reason, "waits for its turn") {
				t.Errorf("%+v: %+v", c, o)
			}
		}

		if now != c.want {
			t.Errorf("%+v: %d in the test", c, now)
		}

		setMemory(w.View, state.AutomationOf(w.View).With(p.Decisions...))

		if again := policy.Decide(v, w); len(again.Decisions) != 0 {
			t.Errorf("%+v: then %s", c, batches(again))
		}

		foreign := inventory.Contact{Foreign: true, Reason: "another ssh host key"}
		for i := range 4 {
			n := back(fmt.Sprintf("x-%d", i), time.Minute, reached)
			if i == 3 {
				n = back("x-3", 2*time.Minute, foreign)
			}
			n.Presence.Back.Time = w.Now
			w.View.PutNode(n)
		}

		got := actions(decide(w))
		if strings.Count(got, "verify") != min(c.more, 3) || !strings.Contains(got, "quarantine x-3") {
			t.Errorf("%+v: returns %q", c, got)
		}
	}
}

// TestVanishingNodeIsVerifiedAlone: a node that vanished from a batch of this run does not cost
// the others their turn again.
func TestVanishingNodeIsVerifiedAlone(t *testing.T) {
	t.Parallel()

	rule := nightly(t)
	rule.Jobs = 9
	w := night(rule, verified("n-0", time.Time{}), verified("n-1", time.Time{}), verified("n-2", time.Time{}))
	w.Now, w.Settings.Rate, w.Settings.Jobs = noon.Add(2*time.Hour), 100, 100
	setMemory(w.View, state.AutomationOf(w.View).Turn("returns", state.Switch{}))

	cancelled := func(accepted time.Time) {
		w.View.SetJobs([]*job.Job{{
			ID: "1", Verb: inventory.VerbVerify, Actor: "policy:nightly", Status: job.Cancelled,
			CancelBy: "policy:nightly", Accepted: accepted, Started: accepted, Ended: accepted.Add(time.Minute),
			Targets: []job.Target{{Name: "n-0"}, {Name: "n-1"}},
		}}...)
	}

	n := w.View.Nodes()[0]
	seen(n, false, noon.Add(90*time.Minute))
	seen(n, true, noon.Add(91*time.Minute))

	for _, c := range []struct {
		name     string
		accepted time.Duration
		want     string
	}{
		{"it vanished in the job", 89 * time.Minute, "verify n-1 n-2 , verify n-0"},
		{"it vanished before the job", 95 * time.Minute, "verify n-0 n-1 , verify n-2"},
		{"the job was of another run", -time.Hour, "verify n-0 n-1 , verify n-2"},
	} {
		cancelled(noon.Add(c.accepted))

		if got := batches(policy.Decide(policy.Verify{Rule: rule}, w)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestChangedSchedule: a run from before the schedule changed is not made up for, and one that
// was missed begins when that is noticed: its nodes have their turns from then on.
func TestChangedSchedule(t *testing.T) {
	t.Parallel()

	rule := nightly(t)
	rule.Batch = 1
	w := night(rule, verified("n-1", time.Time{}), verified("n-2", time.Time{}))
	w.Now, w.Settings.Rate, w.Settings.Jobs = noon.Add(-time.Hour), 100, 100
	v := policy.Verify{Rule: rule}

	remember := func(want bool) {
		t.Helper()

		schedules, changed := policy.Scheduled(w)
		if changed != want {
			t.Errorf("the memory changes: %t", changed)
		}
		w.View.View = record.Change(w.View.View, &state.Memory, func(a *state.Automation) { a.Schedules = schedules })
	}
	wants := func(when, want string, next time.Time) {
		t.Helper()

		p := policy.Decide(v, w)
		if got := batches(p); got != want || !p.Next.Equal(next) {
			t.Errorf("%s: %q and next at %s, want %q and %s", when, got, p.Next, want, next)
		}
	}

	remember(true)
	remember(false)

	// No manager was there for six hours.
	w.Now = noon.Add(6 * time.Hour)

	remember(true)
	wants("the run was missed", "verify n-1", noon.Add(6*time.Hour+30*time.Minute))

	// The operator changes noon to four, at six.
	v.Rule.Times, _ = window.ParseTimes("0 16 * * *", "")
	w.Settings.Verify = []policy.VerifyRule{v.Rule}

	wants("the schedule changed", "", noon.Add(28*time.Hour))
	remember(true)
	wants("that is remembered", "", noon.Add(28*time.Hour))

	w.Now = noon.Add(28 * time.Hour)

	remember(true)
	wants("the next run", "verify n-1", noon.Add(28*time.Hour+30*time.Minute))

	// Nobody has turned it on or off: there is nothing to remember.
	w.View.View = record.Change(
		w.View.View,
		&state.Memory,
		func(a *state.Automation) { a.Switches, a.Schedules = nil, nil },
	)

	remember(false)
}

// TestFailedVerificationIsNotRepeated in its run, also if its job is no longer kept. One that was
// cancelled is.
func TestFailedVerificationIsNotRepeated(t *testing.T) {
	t.Parallel()

	cancelled := job.Job{
		ID: "7", Verb: inventory.VerbVerify, Actor: "policy:nightly", Status: job.Cancelled, Accepted: noon,
		Targets: []job.Target{{Name: "n-1"}},
	}
	yield := state.Decision{
		ID: "yield/7", Policy: "nightly", Action: state.ActionYield, Cancel: "7", Phase: state.PhaseDone,
	}

	for _, c := range []struct {
		name    string
		decided time.Time
		jobs    []job.Job
		further []state.Decision
		want    string
	}{
		{"the job is gone", noon.Add(time.Minute), nil, nil, ""},
		{"the job is gone, of the run before", noon.Add(-time.Hour), nil, nil, "verify n-1"},
		{"the job was cancelled", noon.Add(time.Minute), []job.Job{cancelled}, nil, "verify n-1"},
		{"the job was cancelled, and is gone", noon.Add(time.Minute), nil, []state.Decision{yield}, "verify n-1"},
	} {
		w := night(nightly(t), verified("n-1", time.Time{}))
		w.View.SetJobs(jobtest.List(c.jobs...)...)
		setMemory(w.View, state.AutomationOf(w.View).With(state.Decision{
			ID: "d", Time: c.decided, Policy: "nightly", Nodes: []string{"n-1"}, Action: state.ActionVerify,
			Phase: state.PhaseDone, Job: "7",
		}).With(c.further...))

		if got := batches(policy.Decide(policy.Verify{Rule: nightly(t)}, w)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
