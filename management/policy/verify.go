// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// VerifyRule says which nodes in service are verified at which times. Its name is that of a
// policy.
type VerifyRule struct {
	Name string
	// Match reports whether the rule is for a node; Selector is its text. All: it is for
	// every node.
	Match    func(*inventory.Node) bool
	Selector string
	All      bool
	Times    window.Times
	// Spread is the time over which the nodes of one run become due; nil: an hour, but half of
	// the time between two runs at most.
	Spread *time.Duration
	Batch  int // nodes of one job
	Jobs   int // of the policy, at a time
}

// Verify is the policy that verifies nodes in service on a schedule, under one rule. It is off
// until an operator turns it on.
type Verify struct{ Rule VerifyRule }

var _ Policy = Verify{}

// defaultSpread is the spread of a rule that has none.
const defaultSpread = time.Hour

// Name implements Policy.
func (v Verify) Name() string { return v.Rule.Name }

// Kind implements Selecting.
func (v Verify) Kind() string { return "verify" }

// Scope implements Selecting.
func (v Verify) Scope() (selector string, all bool) { return v.Rule.Selector, v.Rule.All }

// About implements Policy.
func (v Verify) About(Settings) string {
	r := v.Rule

	return fmt.Sprintf("verifies nodes in service (%s) at %s: %s of up to %s at a time",
		matches(r.Selector, r.All), r.Times, inventory.Count(r.Jobs, "job", "jobs"),
		inventory.Count(r.Batch, "node", "nodes"))
}

// run is one time of the schedule.
type run struct {
	at     time.Time // zero: there was none since the policy was turned on
	begins time.Time // the first turn: later than at if that was missed
	recent time.Time // a verification since then counts for the run
	next   time.Time // of the schedule
	spread time.Duration
	// claimed are the nodes that another policy is about to verify, with its name.
	claimed map[string]string
}

// run returns the newest run. Missed ones before it are left out, so that a manager that was
// down verifies once.
func (v Verify) run(w World) run {
	r := run{at: v.Rule.Times.Last(w.Now), next: v.Rule.Times.Next(w.Now), claimed: v.claimed(w)}

	// The very first time has none before it.
	period := r.next.Sub(r.at)
	if before := v.Rule.Times.Last(r.at.Add(-time.Second)); !r.at.IsZero() && !before.IsZero() {
		period = r.at.Sub(before)
	}

	r.recent = r.at.Add(-period / 2)

	r.spread = min(defaultSpread, period/2)
	if v.Rule.Spread != nil {
		r.spread = *v.Rule.Spread
	}

	// An operator who turns the policy on at noon does not expect last night's run, nor does one who
	// changes its schedule.
	a := state.AutomationOf(w.View)
	seen, known := a.Schedules[v.Name()]

	if r.at.Before(w.past(a.Switches[v.Name()].Since)) || r.at.Before(w.past(seen.Since)) ||
		known && seen.Times != v.Rule.Times.String() {
		r.at = time.Time{}
	}

	r.begins = r.at
	if seen.Run.Equal(r.at) && seen.Began.After(r.at) {
		r.begins = w.past(seen.Began)
	}

	return r
}

// claimed returns the nodes that another policy, which may act, is about to verify. Its job is
// not in the view yet.
func (v Verify) claimed(w World) map[string]string {
	on, claimed := map[string]bool{}, map[string]string{}

	for _, rule := range w.Settings.Verify {
		other := Verify{rule}
		on[other.Name()] = other.Name() != v.Name() && Halted(state.AutomationOf(w.View), other) == ""
	}

	for _, d := range state.AutomationOf(w.View).Decisions {
		if on[d.Policy] && d.Action == state.ActionVerify && d.Phase == state.PhaseDecided {
			for _, name := range d.Nodes {
				claimed[name] = d.Policy
			}
		}
	}

	return claimed
}

// Scheduled returns the schedules as they are to be remembered now, and whether one of them
// changes.
func Scheduled(w World) (schedules map[string]state.Schedule, changed bool) {
	old := state.AutomationOf(w.View).Schedules
	schedules = maps.Clone(old)

	for _, rule := range w.Settings.Verify {
		v := Verify{rule}
		if _, turned := state.AutomationOf(w.View).Switches[v.Name()]; !turned {
			continue
		}

		s, known := old[v.Name()]
		if text := rule.Times.String(); s.Times != text {
			s = state.Schedule{Times: text}
			if known {
				s.Since = w.Now
			}
		}

		if at := rule.Times.Last(w.Now); !at.Equal(s.Run) {
			s.Run, s.Began = at, w.Now
		}

		if s == old[v.Name()] {
			continue
		}

		if schedules == nil {
			schedules = map[string]state.Schedule{}
		}

		schedules[v.Name()], changed = s, true
	}

	return schedules, changed
}

// Decide implements Policy.
func (v Verify) Decide(w World) Plan {
	plan := Plan{Decisions: w.yields(v.Name())}
	r := v.run(w)

	if !r.next.IsZero() {
		plan.at(r.next)
	}

	var due []*inventory.Node

	for _, o := range v.outlooks(w, r) {
		switch {
		case o.stage == stageAct:
			due = append(due, o.node)
		case o.stage == stageWait && !o.until.IsZero():
			plan.at(o.until)
		}
	}

	// What does not fit now is due again in the next round.
	fit, _, again := v.fit(w, r, due)
	for _, batch := range fit {
		plan.Decisions = append(plan.Decisions, v.decision(w, r, batch, len(plan.Decisions)))
	}

	if !again.IsZero() {
		plan.at(again)
	}

	return plan
}

// fit returns the batches of the due nodes that begin now, and why no more do, if there are any,
// and until when if that is a time.
func (v Verify) fit(w World, r run, due []*inventory.Node) (fit [][]*inventory.Node, why string, again time.Time) {
	limits, room := w.spare(), v.room(w)

	for _, batch := range v.batches(w, r, due) {
		if room == len(fit) {
			return fit, "other nodes come first", time.Time{}
		}

		ok, why, again := limits.take(state.ActionVerify)
		if !ok {
			return fit, why, again
		}

		fit = append(fit, batch)
	}

	return fit, "", time.Time{}
}

// batches returns the due nodes in batches. A node that vanished from one of this run comes
// last, alone: others must not lose their turn to it again.
func (v Verify) batches(w World, r run, due []*inventory.Node) [][]*inventory.Node {
	alone := v.vanished(w, r)

	var together, apart [][]*inventory.Node

	for _, n := range due {
		last := len(together) - 1

		switch {
		case alone[n.Name]:
			apart = append(apart, []*inventory.Node{n})
		case last >= 0 && len(together[last]) < v.Rule.Batch:
			together[last] = append(together[last], n)
		default:
			together = append(together, []*inventory.Node{n})
		}
	}

	return append(together, apart...)
}

// vanished returns the nodes that were lost since the acceptance of a job of this run that was
// cancelled.
func (v Verify) vanished(w World, r run) map[string]bool {
	vanished := map[string]bool{}

	for _, j := range w.View.Jobs {
		if j.Actor != state.PolicyPrincipal(v.Name()) || j.Accepted.Before(r.at) || j.Status != job.Cancelled {
			continue
		}

		for _, t := range j.Targets {
			if n := job.Find(w.View.Nodes, t.Name); n != nil && n.Presence.Lost.After(j.Accepted) {
				vanished[t.Name] = true
			}
		}
	}

	return vanished
}

// room returns how many jobs the policy may begin now.
func (v Verify) room(w World) int {
	active := 0

	for _, j := range w.View.Jobs {
		if !j.Status.Ended() && j.Actor == state.PolicyPrincipal(v.Name()) {
			active++
		}
	}

	// Their jobs are not in the view yet.
	for _, d := range state.AutomationOf(w.View).Decisions {
		if d.Policy == v.Name() && d.Phase == state.PhaseDecided && d.Action == state.ActionVerify {
			active++
		}
	}

	return max(v.Rule.Jobs-active, 0)
}

// decision returns the decision to verify a batch of nodes; k counts those of one plan. The
// count of all decisions makes its id unique.
func (v Verify) decision(w World, r run, batch []*inventory.Node, k int) state.Decision {
	evidence := []string{fmt.Sprintf("%s came at %s", v.Rule.Times, stamp(r.at))}

	for _, n := range batch {
		evidence = append(evidence, n.Name+" "+lastVerified(n))
	}

	return state.Decision{
		ID: fmt.Sprintf("%s/%s/%d/%d", v.Name(), state.ActionVerify, r.at.Unix(),
			state.AutomationOf(w.View).Count+uint64(k)), //nolint:gosec // k is not negative
		Time: w.Now, Policy: v.Name(), Nodes: names(batch), Action: state.ActionVerify,
		Case:     fmt.Sprintf("scheduled verification of %s", inventory.Count(len(batch), "node", "nodes")),
		Evidence: evidence,
		Prevent: []string{
			"the policy turned off or paused",
			"another selector or schedule (policies.verify." + v.Name() + ")",
			"a verification since " + stamp(r.recent),
		},
		Phase: state.PhaseDecided,
	}
}

// lastVerified describes the last verification of a node. Each configuration removes the verdict
// from the record, so its absence does not mean that the node was never verified.
func lastVerified(n *inventory.Node) string {
	switch {
	case n.Verification != nil && !n.Verification.ByGate():
		return "was verified at " + stamp(n.Verification.Time)
	case n.Configured != nil:
		return "was not verified since it was configured at " + stamp(n.Configured.Time)
	}

	return "was not verified since it was last configured"
}

// outlooks returns the outlook of each node of the rule in service, in the order of their
// turns.
func (v Verify) outlooks(w World, r run) []outlookOf {
	var nodes []*inventory.Node

	for _, n := range w.View.Nodes {
		if n.InService() && v.Rule.Match(n) {
			nodes = append(nodes, n)
		}
	}

	tried := v.tried(w, r)
	out := make([]outlookOf, len(nodes))

	for i, n := range nodes {
		// The turns of all nodes fill the spread, those of a batch come at once.
		turn := r.spread * time.Duration(i/v.Rule.Batch*v.Rule.Batch) / time.Duration(len(nodes))
		out[i] = outlookOf{v.judge(w, r, n, turn, tried[n.Name]), n}
	}

	return out
}

// judge returns the outlook of a node whose turn comes that long after the beginning of a run.
// tried is the verification of this run, in words, or "".
func (v Verify) judge(w World, r run, n *inventory.Node, turn time.Duration, tried string) outlook {
	later := outlook{until: r.next.Add(turn), text: fmt.Sprintf("verified next at %s", stamp(r.next.Add(turn)))}
	if r.at.IsZero() {
		return later
	}

	last := n.Verification
	if last != nil && !last.ByGate() && !last.Time.Before(r.recent) && !w.future(last.Time) {
		later.text = fmt.Sprintf("it was verified at %s; ", stamp(last.Time)) + later.text
		return later
	}

	if tried != "" {
		later.text = tried + "; " + later.text
		return later
	}

	due := r.begins.Add(turn)
	waits := func(text string) outlook { return outlook{stage: stageWait, text: "it waits: " + text} }

	switch waiting := w.wanted(n.Name); {
	case w.Now.Before(due):
		return outlook{stage: stageWait, until: due, text: fmt.Sprintf(
			"it is verified at %s (policies.verify.%s.spread)", stamp(due), v.Name())}
	case n.State != inventory.Discovered:
		return waits("the observers do not see it")
	case n.Job != "" || n.Status != inventory.Allocated:
		return waits("job " + n.Job + " holds it")
	case len(n.Duplicates) > 0:
		return waits(claimed(n))
	case w.undecided(n):
		return waits(undecided)
	case waiting != "":
		return waits(waiting)
	case r.claimed[n.Name] != "":
		return waits("policy " + r.claimed[n.Name] + " is about to verify it")
	}

	return outlook{stage: stageAct}
}

// tried returns the nodes that the policy has verified in the run, or is about to, in words.
// One that made room for a person is verified again.
func (v Verify) tried(w World, r run) map[string]string {
	tried, jobs, cancelled := map[string]string{}, map[string]bool{}, map[string]bool{}

	for _, d := range state.AutomationOf(w.View).Decisions {
		if d.Action == state.ActionYield && d.Phase == state.PhaseDone {
			cancelled[d.Cancel] = true
		}
	}

	for _, j := range w.View.Jobs {
		jobs[j.ID] = true

		if j.Actor != state.PolicyPrincipal(v.Name()) || j.Accepted.Before(r.at) || j.Status == job.Cancelled ||
			j.Status.Ended() && w.future(j.Accepted) {
			continue
		}

		for _, t := range j.Targets {
			tried[t.Name] = fmt.Sprintf("job %s of this run is %s", j.ID, j.Status)
		}
	}

	for _, d := range state.AutomationOf(w.View).Decisions {
		if d.Policy != v.Name() || d.Action != state.ActionVerify || d.Time.Before(r.at) ||
			d.Phase != state.PhaseDecided && w.future(d.Time) {
			continue
		}

		for _, name := range d.Nodes {
			switch d.Phase {
			case state.PhaseDecided:
				tried[name] = "the decision is being carried out"
			case state.PhaseDone:
				// Its job may no longer be kept.
				if !jobs[d.Job] && !cancelled[d.Job] {
					tried[name] = fmt.Sprintf("job %s of this run has ended", d.Job)
				}
			case state.PhaseRefused:
				tried[name] = "the verification of this run was refused: " + d.Result
			}
		}
	}

	return tried
}

// Confirm implements Policy.
func (v Verify) Confirm(w World, d state.Decision) string {
	w.View = w.without(d.ID)

	due := map[string]bool{}

	for _, o := range v.outlooks(w, v.run(w)) {
		due[o.node.Name] = o.stage == stageAct
		if slices.Contains(d.Nodes, o.node.Name) && o.stage != stageAct {
			return o.node.Name + ": " + o.text
		}
	}

	// A node that was forgotten, or left the selector, has no outlook.
	for _, name := range d.Nodes {
		if !due[name] {
			return name + " no longer falls to the policy"
		}
	}

	return ""
}

// Explain implements Policy.
func (v Verify) Explain(w World, n inventory.Node) []explain.Finding {
	if !IsOn(state.AutomationOf(w.View), v) || !n.InService() || !v.Rule.Match(&n) {
		return nil
	}

	for _, o := range v.Test(w) {
		// A node that has had its turn, or that waits for the next run, needs no words.
		if o.Node != n.Name || o.Action == "" {
			continue
		}

		text := o.Text
		if halted := Halted(state.AutomationOf(w.View), v); halted != "" {
			text = "it is for the node, and nothing is done: " + halted
		}

		return []explain.Finding{{
			About: explain.AboutPolicy, Nodes: []string{n.Name}, Message: fmt.Sprintf("policy %s: %s", v.Name(), text),
		}}
	}

	return nil
}

// Pending implements Policy.
func (v Verify) Pending(w World) int {
	pending := 0

	for _, o := range v.outlooks(w, v.run(w)) {
		if o.stage != stageNone {
			pending++
		}
	}

	return pending
}

// Test implements Policy.
func (v Verify) Test(w World) []Outlook {
	var (
		out []Outlook
		due []*inventory.Node
	)

	r := v.run(w)
	outlooks := v.outlooks(w, r)

	for _, o := range outlooks {
		if o.stage == stageAct {
			due = append(due, o.node)
		}
	}

	fit, why, again := v.fit(w, r, due)
	now := slices.Concat(fit...)

	for _, o := range outlooks {
		shown := Outlook{Node: o.node.Name, Text: o.text, Until: o.until}

		if o.stage != stageNone {
			shown.Action = state.ActionVerify
		}

		switch {
		case slices.Contains(now, o.node):
			shown.Text, shown.Now = "it is verified now", true
		case o.stage == stageAct:
			shown.Text, shown.Until = "it waits for its turn: "+why, again
		}

		out = append(out, shown)
	}

	return out
}
