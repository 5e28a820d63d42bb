// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// VerifyRule says which nodes in service are verified at which times. Its name names the
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

// Selects implements Selecting.
func (v Verify) Selects() (kind, selector string, all bool) {
	return "verify", v.Rule.Selector, v.Rule.All
}

// About implements Policy.
func (v Verify) About(World) string {
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

// Judge implements Policy.
func (v Verify) Judge(w World) []Judgement {
	r := v.run(w)
	w.working = w.work()
	all := v.judgements(w, r)
	limits, room := w.spare(), v.room(w)

	// Others must not lose their turn again to a node that vanished from a job of this run.
	alone := v.vanished(w, r)
	slices.SortStableFunc(all, func(a, b Judgement) int {
		switch last := alone[a.Node.Name]; {
		case last == alone[b.Node.Name]:
			return 0
		case last:
			return 1
		}

		return -1
	})

	var (
		why   string
		until time.Time
	)

	// What does not fit now is due again in the next round.
	for k, batch := range v.batches(all, alone) {
		if k == room && why == "" {
			why = "other nodes come first"
		}

		if why == "" {
			why, until = limits.take(state.ActionVerify)
		}

		if why != "" {
			for _, j := range batch {
				j.hold(why, until)
			}

			continue
		}

		d := v.decision(w, r, batch, k)
		for _, j := range batch {
			j.Decision, j.Reason = &d, "it is verified now"
		}
	}

	return append(all, Judgement{Until: r.next})
}

// batches returns the due nodes in batches. Each node in alone has a batch of its own.
func (v Verify) batches(all []Judgement, alone map[string]bool) (batches [][]*Judgement) {
	for i := range all {
		j, last := &all[i], len(batches)-1

		switch {
		case j.Stage != StageAct:
		case last >= 0 && len(batches[last]) < v.Rule.Batch && !alone[j.Node.Name]:
			batches[last] = append(batches[last], j)
		default:
			batches = append(batches, []*Judgement{j})
		}
	}

	return batches
}

// vanished returns the nodes that were lost since the acceptance of a job of this run that was
// cancelled.
func (v Verify) vanished(w World, r run) map[string]bool {
	vanished := map[string]bool{}

	for _, j := range w.View.Jobs() {
		if j.Actor != state.PolicyPrincipal(v.Name()) || j.Accepted.Before(r.at) || j.Status != job.Cancelled {
			continue
		}

		for _, t := range j.Targets {
			if n := w.View.Find(t.Name); n != nil && n.Presence.Lost.After(j.Accepted) {
				vanished[t.Name] = true
			}
		}
	}

	return vanished
}

// room returns how many jobs the policy may begin now.
func (v Verify) room(w World) int {
	u := w.usage(func(j *job.Job) bool { return j.Actor == state.PolicyPrincipal(v.Name()) },
		func(d *state.Decision) bool { return d.Policy == v.Name() })

	return max(v.Rule.Jobs-u.active, 0)
}

// decision returns the decision to verify a batch of nodes, the k-th of its plan. The count of all decisions
// makes its id unique.
func (v Verify) decision(w World, r run, batch []*Judgement, k int) state.Decision {
	evidence := []string{fmt.Sprintf("%s came at %s", v.Rule.Times, stamp(r.at))}

	nodes := make([]string, len(batch))
	for i, j := range batch {
		nodes[i] = j.Node.Name
		evidence = append(evidence, nodes[i]+" "+lastVerified(j.Node))
	}

	return state.Decision{
		ID: fmt.Sprintf("%s/%s/%d/%d", v.Name(), state.ActionVerify, r.at.Unix(),
			state.AutomationOf(w.View).Count+uint64(k)), //nolint:gosec // k is not negative
		Time: w.Now, Policy: v.Name(), Nodes: nodes, Action: state.ActionVerify,
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

// judgements judges each node of the rule in service, whatever the limits are.
func (v Verify) judgements(w World, r run) []Judgement {
	var nodes []*inventory.Node

	for _, n := range w.View.Nodes() {
		if n.InService() && v.Rule.Match(n) {
			nodes = append(nodes, n)
		}
	}

	tried := v.tried(w, r)
	out := make([]Judgement, len(nodes), len(nodes)+1)

	for i, n := range nodes {
		// The turns of all nodes fill the spread. The nodes of a batch have the same turn.
		turn := r.spread * time.Duration(i/v.Rule.Batch*v.Rule.Batch) / time.Duration(len(nodes))
		out[i] = v.judge(w, r, n, turn, tried[n.Name])

		if out[i].Node = n; out[i].Stage != StageNone {
			out[i].Action = state.ActionVerify
		}
	}

	return out
}

// judge judges a node whose turn comes that long after the beginning of a run.
// tried is the verification of this run, in words, or "".
func (v Verify) judge(w World, r run, n *inventory.Node, turn time.Duration, tried string) Judgement {
	later := Judgement{Until: r.next.Add(turn), Reason: fmt.Sprintf("verified next at %s", stamp(r.next.Add(turn)))}
	if r.at.IsZero() {
		return later
	}

	last := n.Verification
	if last != nil && !last.ByGate() && !last.Time.Before(r.recent) && !w.future(last.Time) {
		later.Reason = fmt.Sprintf("it was verified at %s; ", stamp(last.Time)) + later.Reason
		return later
	}

	if tried != "" {
		later.Reason = tried + "; " + later.Reason
		return later
	}

	due := r.begins.Add(turn)
	waits := func(text string) Judgement { return wait("it waits: " + text) }

	switch occupied := w.occupied(n); {
	case w.Now.Before(due):
		return Judgement{Stage: StageWait, Until: due, Reason: fmt.Sprintf(
			"it is verified at %s (policies.verify.%s.spread)", stamp(due), v.Name())}
	case occupied != "":
		return waits(occupied)
	case n.Status != inventory.Allocated:
		return waits("it is " + string(n.Status))
	case w.undecided(n):
		return waits(undecided)
	case r.claimed[n.Name] != "":
		return waits("policy " + r.claimed[n.Name] + " is about to verify it")
	}

	return Judgement{Stage: StageAct}
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

	for _, j := range w.View.Jobs() {
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
