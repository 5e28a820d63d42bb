// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

const (
	// secondOpinion is the time between the loss of a node and the first attempt to
	// reach it over ssh. Attempts go on for opinionFor.
	secondOpinion = 15 * time.Second
	opinionFor    = time.Hour
	// flapWindow is the time in which returns of a node count together.
	flapWindow = time.Hour
	// maxBackoff is the longest delay before a node that returned is acted on.
	maxBackoff = time.Hour
	// repairWithin is how old a verification may be whose result leads to a repair.
	repairWithin = 24 * time.Hour
	// EvidenceFor is how long an answer of a host counts: an older one is asked for again.
	EvidenceFor = 30 * time.Minute
	// maxNotes bounds the nodes of one plan without an action.
	maxNotes = 500
)

// Returns is the policy on nodes that disappeared and are seen again.
type Returns struct{}

var _ Policy = Returns{}

// Name implements Policy.
func (Returns) Name() string { return "returns" }

// About implements Policy.
func (Returns) About(s Settings) string {
	words := []string{"nodes in service that return: " + string(inventory.DefaultReaction)}
	for _, g := range s.Groups {
		if g.OnReturn != "" {
			words = append(words, g.Name+" "+string(g.OnReturn))
		}
	}

	return strings.Join(words, ", ")
}

// stage is the next step on one node.
type stage int

const (
	stageNone stage = iota
	stageAsk        // reach it over ssh
	stageWait       // for the time, or for a change
	stageNote       // leave it as it is
	stageAct
)

// outlook is the judgement of one node.
type outlook struct {
	stage    stage
	text     string    // the condition of a wait, or the reason of a note
	until    time.Time // the end of the wait, if it is a time
	ask      bool      // also reach it over ssh
	decision state.Decision
}

// Decide implements Policy.
func (r Returns) Decide(w World) Plan {
	plan := Plan{Decisions: w.yields(r.Name()), Notes: map[string]string{}}
	served := w.served()

	var due, mends, first, later []outlookOf

	for _, n := range w.View.Nodes {
		o := r.judge(w, n, served[n.Name])

		if !o.until.IsZero() {
			plan.at(o.until)
		}

		if o.ask && n.Presence.Pending() {
			first = append(first, outlookOf{o, n})
		} else if o.ask {
			later = append(later, outlookOf{o, n})
		}

		switch {
		case o.stage == stageNote:
			if len(plan.Notes) < maxNotes {
				plan.Notes[n.Name] = o.text
			}
		case o.stage == stageAct && o.decision.Case == CaseMasters:
			mends = append(mends, outlookOf{o, n})
		case o.stage == stageAct:
			due = append(due, outlookOf{o, n})
		}
	}

	slices.SortStableFunc(due, byReturn)
	due = append(due, mends...) // nodes that returned come first
	slices.SortStableFunc(first, byReturn)

	for _, o := range slices.Concat(first, later) {
		plan.Ask = append(plan.Ask, o.node.Name)
	}

	limits, hold := w.limits(), w.hold()

	for _, o := range due {
		// A node that is held takes nothing out of the limits, so that others can go first.
		if held := hold(o.outlook, o.node); !held.OK {
			if !held.Until.IsZero() {
				plan.at(held.Until)
			}

			continue
		}

		ok, _, next := limits.take(o.decision.Action)
		if ok {
			plan.Decisions = append(plan.Decisions, o.decision)
		} else if !next.IsZero() {
			plan.at(next)
		}
	}

	return plan
}

// outlookOf is the outlook of a node.
type outlookOf struct {
	outlook
	node *inventory.Node
}

func byReturn(a, b outlookOf) int {
	return cmp.Or(a.node.Presence.Returned().Compare(b.node.Presence.Returned()),
		strings.Compare(a.node.Name, b.node.Name))
}

// served returns the newest job that completed on each node: it left the node configured
// or verified. A verification on a schedule answers no return.
func (w World) served() map[string]*job.Job {
	served := map[string]*job.Job{}

	for _, j := range w.View.Jobs {
		row, known := inventory.TransitionOf(j.Verb)
		if !known || row.Success != inventory.Allocated || !j.Status.Ended() || w.scheduled(j) {
			continue
		}

		for _, t := range j.Targets {
			completed := j.Status == job.Complete || row.Verifies && j.Outcomes[t.Name].Verdict != nil
			if old := served[t.Name]; completed && (old == nil || old.Ended.Before(j.Ended)) {
				served[t.Name] = j
			}
		}
	}

	return served
}

// scheduled reports whether the job is one of a policy that verifies on a schedule, also if there
// is no such policy any more.
func (w World) scheduled(j *job.Job) bool {
	return j.Verb.Verifies() && state.IsPolicy(j.Actor) && j.Actor != state.PolicyPrincipal(Returns{}.Name())
}

// judge returns the outlook of a node. served is the newest job that completed on
// it, or nil.
func (r Returns) judge(w World, n *inventory.Node, served *job.Job) outlook {
	switch {
	case n.State == inventory.Disappeared:
		return w.away(n)
	case n.State != inventory.Discovered:
		return outlook{}
	case !n.Presence.Pending():
		if o := r.settled(w, n); o.stage != stageNone || !r.lapsed(w, n) {
			return o
		}
	}

	return r.returned(w, n, served)
}

// lapsed reports whether the job of the newest decision on the return of a node never began: the return is undecided.
func (r Returns) lapsed(w World, n *inventory.Node) bool {
	for _, d := range slices.Backward(state.AutomationOf(w.View).Of(n.Name)) {
		if strings.HasPrefix(d.ID, r.episode(n)+"/") && d.Phase == state.PhaseDone {
			return w.neverBegan(d.Job) != nil
		}
	}

	return false
}

// away asks for a second opinion about a silent node in service.
func (w World) away(n *inventory.Node) outlook {
	lost := n.Presence.Lost
	if n.Status != inventory.Allocated || lost.IsZero() ||
		w.Settings.Groups.Reaction(n.Group) == inventory.ReactionRecord {
		return outlook{}
	}

	lost = w.past(lost)

	due := lost.Add(secondOpinion)
	if w.Now.Before(due) {
		return outlook{until: due}
	}

	return outlook{ask: !n.Presence.Away.Reached && w.Now.Before(lost.Add(opinionFor))}
}

// settled judges a present node after the decision on its return: a verification may have
// found it drifted.
func (r Returns) settled(w World, n *inventory.Node) outlook {
	reaction := w.Settings.Groups.Reaction(n.Group)
	if n.Status != inventory.Allocated || n.Job != "" || reaction != inventory.ReactionVerifyAndRepair {
		return outlook{}
	}

	found := r.drifted(w, n)
	if found == nil {
		return r.mended(w, n)
	}

	// Other masters are no change that an operator holds back: the node lacks what serves already.
	outdated := w.outdated(n)
	if outdated != "" && !w.onlyMasters(n) {
		return r.leaveOutdated(w, n, found, outdated)
	}

	d, s := r.decision(w, n, state.ActionRepair)

	switch waiting := w.wanted(n.Name); {
	case s.decided:
		return outlook{}
	case w.Now.Before(s.due):
		return s.wait()
	case len(n.Duplicates) > 0:
		return outlook{stage: stageWait, text: claimed(n)}
	case waiting != "":
		return outlook{stage: stageWait, text: waiting}
	}

	d.Evidence = append(slices.Clone(found.Evidence), foundBy(n.Verification))
	d.Case, d.Prevent = found.Case, prevents(n, inventory.ReactionVerify, inventory.ReactionRecord)

	if outdated != "" {
		d.Case += "; it is outdated, because the masters have changed"
	}

	return outlook{stage: stageAct, decision: d}
}

// CaseMasters is the case of a repair of a node that did not return.
const CaseMasters = "only its masters have changed since it was configured"

// onlyMasters reports whether the node is outdated by its masters alone.
func (w World) onlyMasters(n *inventory.Node) bool {
	return slices.Equal(w.differs(n), []inventory.Part{inventory.PartMasters})
}

// mended judges a node that is not known to have drifted: one of which only the masters have changed is configured
// again, once for each configuration.
func (r Returns) mended(w World, n *inventory.Node) outlook {
	if n.Presence.Pending() || !w.onlyMasters(n) {
		return outlook{}
	}

	s := w.standing(fmt.Sprintf("%s/%s/masters/%s", r.Name(), n.Name, n.Applied))
	wait := func(text string) outlook { return outlook{stage: stageWait, text: CaseMasters + "; it waits: " + text} }

	switch busy, waiting := w.busyMaster(n), w.wanted(n.Name); {
	case s.decided:
		return outlook{}
	case w.Now.Before(s.due):
		return s.wait()
	case len(n.Duplicates) > 0:
		return wait(claimed(n))
	case waiting != "":
		return wait(waiting)
	case busy != nil:
		return wait(fmt.Sprintf("job %s changes the masters (%s)", busy.Job, busy.Name))
	}

	return outlook{stage: stageAct, decision: state.Decision{
		ID: s.id, Time: w.Now, Policy: r.Name(), Node: n.Name, Action: state.ActionRepair, Case: CaseMasters,
		Evidence: []string{w.outdated(n)}, Phase: state.PhaseDecided,
		Prevent: append(prevents(n, inventory.ReactionVerify, inventory.ReactionRecord)[:2], "an apply of an operator"),
	}}
}

// busyMaster returns another node of a group that others require that a job holds, or nil.
func (w World) busyMaster(n *inventory.Node) *inventory.Node {
	i := slices.IndexFunc(w.View.Nodes, func(m *inventory.Node) bool {
		return m.Job != "" && m.Name != n.Name && w.Settings.Groups.Required(m.Group) > 0
	})
	if i < 0 {
		return nil
	}

	return w.View.Nodes[i]
}

// drifted returns the decision to verify the node after its newest return, if that
// verification found it drifted not long ago, or nil.
func (r Returns) drifted(w World, n *inventory.Node) *state.Decision {
	v := n.Verification
	if v == nil || v.Result != inventory.Drifted || w.future(v.Time) ||
		v.Time.Before(w.Now.Add(-repairWithin)) {
		return nil
	}

	for _, d := range state.AutomationOf(w.View).Of(n.Name) {
		if d.Action == state.ActionVerify && d.Job == v.Job && strings.HasPrefix(d.ID, r.episode(n)+"/") {
			return &d
		}
	}

	return nil
}

// leaveOutdated returns the decision, once, to leave a drifted node as it is: the drift
// may be the change that was not applied, and a repair would apply it.
func (r Returns) leaveOutdated(w World, n *inventory.Node, found *state.Decision, outdated string) outlook {
	d, s := r.decision(w, n, state.ActionRecord)
	if s.decided {
		return outlook{}
	}

	d.Case = "it differs, and its configuration is outdated: that may be the difference, so it is not repaired"
	d.Evidence = append(slices.Clone(found.Evidence), foundBy(n.Verification))

	if !slices.Contains(d.Evidence, outdated) {
		d.Evidence = append(d.Evidence, outdated)
	}

	d.Prevent = []string{"an apply of its configuration by an operator, before it returned"}

	return outlook{stage: stageAct, decision: d}
}

// outdated returns in words that a node was, or is to be, compared with a configuration
// that was not applied to it, or "".
func (w World) outdated(n *inventory.Node) string {
	var words []string
	for _, part := range w.differs(n) {
		words = append(words, string(part))
	}

	if len(words) > 0 {
		return "its desired configuration is not the applied one: " + strings.Join(words, ", ")
	}

	if n.Verification != nil && n.Verification.Outdated {
		return "its desired configuration was not the applied one when it was verified"
	}

	return ""
}

// differs returns the parts in which the node is outdated.
func (w World) differs(n *inventory.Node) []inventory.Part {
	if w.Settings.Outdated == nil {
		return nil
	}

	return w.Settings.Outdated(w.View, n)
}

func foundBy(v *inventory.Verdict) string {
	return fmt.Sprintf("job %s found it %s: %s", v.Job, v.Result, v.Detail())
}

// claimed describes a node with several live hosts.
func claimed(n *inventory.Node) string {
	return "several live hosts claim to be it: " + job.ShortList(append([]string{n.Addr}, n.Duplicates...))
}

// returned judges a node after a return, before the decision on it.
func (r Returns) returned(w World, n *inventory.Node, served *job.Job) outlook {
	p, reaction := n.Presence, w.Settings.Groups.Reaction(n.Group)
	returned := p.Returned()
	guarded := n.Status == inventory.Unallocated && len(n.HostKeys) > 0

	switch {
	case n.Job != "":
		return outlook{stage: stageWait, text: "job " + n.Job + " holds it"}
	case n.Status != inventory.Allocated && !guarded:
		return outlook{stage: stageNote, text: fmt.Sprintf("it returned, and stays %s", n.Status)}
	case n.Status == inventory.Allocated && reaction == inventory.ReactionRecord:
		return outlook{stage: stageNote, text: "it returned; nothing is done, because on_return of " + n.Group +
			" is " + string(reaction)}
	case served != nil && served.Ended.After(returned) && !w.future(served.Ended):
		return outlook{stage: stageNote, text: fmt.Sprintf("it returned, and job %s (%s of %s) completed on it since",
			served.ID, served.Verb, job.OrSomebody(served.Actor))}
	case len(n.Duplicates) > 0:
		return outlook{stage: stageWait, text: claimed(n)}
	}

	if due, why := w.due(p); w.Now.Before(due) {
		return outlook{stage: stageWait, text: why, until: due}
	}

	switch {
	case p.Back.Time.Before(returned), !w.recent(p.Back):
		return outlook{stage: stageAsk, ask: true, text: "ssh is asked what happened to it"}
	case p.Back.Foreign:
		return r.quarantine(w, n)
	case !p.Back.Reached:
		return outlook{stage: stageWait, ask: true, text: "ssh does not reach it yet" + because(p.Back.Reason)}
	case guarded:
		return outlook{
			stage: stageNote,
			text:  "it returned with its recorded ssh host key, and stays " + string(n.Status),
		}
	}

	if waiting := w.wanted(n.Name); waiting != "" {
		return outlook{stage: stageWait, text: waiting}
	}

	return r.act(w, n, reaction)
}

// act returns the decision on a node in service, once its evidence is complete.
func (r Returns) act(w World, n *inventory.Node, reaction inventory.Reaction) outlook {
	action, weaker := state.ActionVerify, []inventory.Reaction{inventory.ReactionRecord}
	if reaction == inventory.ReactionRepair {
		action, weaker = state.ActionRepair, []inventory.Reaction{inventory.ReactionVerify, inventory.ReactionRecord}
	}

	// A former process recorded it, and has not marked the node yet.
	d, s := r.decision(w, n, action)

	switch {
	case s.decided:
		return outlook{stage: stageWait, text: "the decision is being carried out"}
	case w.Now.Before(s.due):
		return s.wait()
	}

	d.Prevent = prevents(n, weaker...)

	if outdated := w.outdated(n); outdated != "" {
		d.Evidence = append(d.Evidence, outdated)
	}

	return outlook{stage: stageAct, decision: d}
}

// quarantine returns the outlook of a node with another host key: it is to be fenced.
func (r Returns) quarantine(w World, n *inventory.Node) outlook {
	d, s := r.decision(w, n, state.ActionQuarantine)
	if s.decided {
		return outlook{stage: stageWait, text: "the decision is being carried out"}
	}

	d.Case = "another host answers under its name"
	d.Evidence = append(d.Evidence, "ssh: "+n.Presence.Back.Reason)
	d.Prevent = []string{"trust in the new ssh host key, by an operator, before the node returned"}

	return outlook{stage: stageAct, decision: d}
}

// episode names the newest return of a node in the ids of decisions.
func (r Returns) episode(n *inventory.Node) string {
	return fmt.Sprintf("%s/%s/%d", r.Name(), n.Name, n.Presence.Returned().UnixNano())
}

// decision returns a decision on the newest return of a node, and those for the action so far.
func (r Returns) decision(w World, n *inventory.Node, action state.Action) (state.Decision, standing) {
	c, evidence := CaseOf(n.Presence)
	s := w.standing(r.episode(n) + "/" + string(action))

	return state.Decision{
		ID: s.id, Time: w.Now, Policy: r.Name(), Node: n.Name, Action: action, Case: string(c), Evidence: evidence,
		Phase: state.PhaseDecided,
	}, s
}

// Confirm implements Policy. A decision may have been held for hours: it is judged as if it
// had not been taken.
func (r Returns) Confirm(w World, d state.Decision) string {
	n := job.Find(w.View.Nodes, d.Node)

	switch {
	case n == nil:
		return "it is no longer known"
	case n.State != inventory.Discovered:
		return "it disappeared again"
	case d.Case != CaseMasters && !strings.HasPrefix(d.ID, r.episode(n)+"/"):
		return "it disappeared and returned again"
	}

	w.View = w.without(d.ID)

	var o outlook
	if d.Action == state.ActionRepair && w.Settings.Groups.Reaction(n.Group) == inventory.ReactionVerifyAndRepair {
		o = r.settled(w, n)
	} else {
		o = r.returned(w, n, w.served()[n.Name])
	}

	switch {
	case o.stage == stageAct && o.decision.Action == d.Action:
		return ""
	case o.stage == stageAct:
		return "the next step on it is " + string(o.decision.Action) + " now"
	}

	return cmp.Or(o.text, "the reason for it is gone")
}

// Pending implements Policy.
func (Returns) Pending(w World) int {
	pending := 0

	for _, n := range w.View.Nodes {
		if n.State == inventory.Discovered && n.Presence.Pending() {
			pending++
		}
	}

	return pending
}

// Test implements Policy.
func (r Returns) Test(w World) []Outlook {
	limits, served := w.limits(), w.served()

	var out []Outlook

	for _, n := range w.View.Nodes {
		o := r.judge(w, n, served[n.Name])
		shown := Outlook{Node: n.Name, Text: o.text, Until: o.until}

		switch o.stage {
		case stageNone:
			continue
		case stageAct:
			shown.Action, shown.Text = o.decision.Action, o.decision.Case

			ok, why, again := limits.take(o.decision.Action)
			if !ok {
				shown.Text, shown.Until = "it waits for its turn: "+why, again
			}

			shown.Now = ok
		}

		out = append(out, shown)
	}

	return out
}

// prevents names the conditions that would have prevented a decision on the node.
func prevents(n *inventory.Node, reactions ...inventory.Reaction) []string {
	words := make([]string, len(reactions))
	for i, m := range reactions {
		words[i] = string(m)
	}

	return []string{
		fmt.Sprintf("on_return of group %s set to %s", n.Group, strings.Join(words, " or ")),
		"a pause of the policy", "a verification or another job of an operator on the node since its return",
	}
}

// due returns when a node that returned is acted on, and why then: each further return
// within flapWindow doubles the delay.
func (w World) due(p inventory.Presence) (time.Time, string) {
	returned := p.Returned()
	times := max(p.ReturnsSince(returned.Add(-flapWindow)), 1)

	delay := w.Settings.Settle
	for range times - 1 {
		// A settle time above maxBackoff is a choice of the operator, and is not cut.
		delay = min(2*delay, max(maxBackoff, w.Settings.Settle))
	}

	due := w.settled(returned).Add(delay)
	if times == 1 {
		return due, fmt.Sprintf(
			"it returned at %s; next step not before %s (policies.settle)",
			stamp(returned),
			stamp(due),
		)
	}

	first := p.Returns[len(p.Returns)-times]

	return due, fmt.Sprintf("it returned %d times in %s; next step not before %s",
		times, short(returned.Sub(first)), stamp(due))
}

// wanted returns the job of a person that waits for the node, in words, or "".
func (w World) wanted(name string) string {
	for _, j := range w.View.Jobs {
		if _, target := j.Target(name); target && !j.Status.Ended() {
			return isDue(*j)
		}
	}

	return ""
}

func isDue(j job.Job) string {
	return fmt.Sprintf("job %s (%s) of %s is due on it first", j.ID, j.Verb, job.OrSomebody(j.Actor))
}
