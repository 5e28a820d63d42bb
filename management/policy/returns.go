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
func (Returns) About(w World) string {
	words := []string{"nodes in service that return: " + string(inventory.DefaultReaction)}
	for _, g := range w.Settings.Groups {
		if g.OnReturn != "" {
			words = append(words, g.Name+" "+string(g.OnReturn))
		}
	}

	return strings.Join(words, ", ")
}

// Judge implements Policy.
func (r Returns) Judge(w World) []Judgement {
	var all []Judgement

	served := w.served()
	w.working = w.work()

	for _, n := range w.View.Nodes() {
		if j := r.judge(w, n, served[n.Name]); j != (Judgement{}) {
			j.Node = n
			all = append(all, j)
		}
	}

	slices.SortStableFunc(all, byTurn)

	limits, held := w.limits(), w.held()

	for i := range all {
		j := &all[i]
		if j.Stage != StageAct {
			continue
		}

		why := "it returned"
		if j.Reason == CaseMasters {
			why = CaseMasters
		}

		// A node that is held takes nothing out of the limits, so that others can go first.
		if v := held(j); !v.OK {
			j.Stage, j.Reason, j.Until = StageTurn, why+", and waits for its repair: "+v.Reason, v.Until
		} else if limits.admit(j) {
			j.Reason = fmt.Sprintf("%s, and the next step is %s", why, j.Action)
		}
	}

	return all
}

// byTurn sorts nodes by their return. Nodes that only lack new masters come after them, and silent nodes
// last.
func byTurn(a, b Judgement) int {
	rank := func(j Judgement) int {
		switch {
		case j.Node.State == inventory.Disappeared:
			return 2
		case j.Reason == CaseMasters:
			return 1
		}

		return 0
	}

	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Node.Presence.Returned().Compare(b.Node.Presence.Returned()),
		strings.Compare(a.Node.Name, b.Node.Name))
}

// served returns the newest job that completed on each node: it left the node configured
// or verified. A verification on a schedule answers no return.
func (w World) served() map[string]*job.Job {
	served := map[string]*job.Job{}

	for _, j := range w.View.Jobs() {
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

// judge judges a node, whatever the limits are. served is the newest job that completed on
// it, or nil.
func (r Returns) judge(w World, n *inventory.Node, served *job.Job) Judgement {
	switch {
	case n.State == inventory.Disappeared:
		return w.away(n)
	case n.State != inventory.Discovered:
		return Judgement{}
	case !n.Presence.Pending():
		if o := r.settled(w, n); o.Stage != StageNone || !r.lapsed(w, n) {
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
func (w World) away(n *inventory.Node) Judgement {
	lost := n.Presence.Lost
	if n.Status != inventory.Allocated || lost.IsZero() ||
		w.Settings.Groups.Reaction(n.Group) == inventory.ReactionRecord {
		return Judgement{}
	}

	lost = w.past(lost)

	due := lost.Add(secondOpinion)
	if w.Now.Before(due) {
		return Judgement{Until: due}
	}

	return Judgement{Ask: !n.Presence.Away.Reached && w.Now.Before(lost.Add(opinionFor))}
}

// settled judges a present node after the decision on its return: a verification may have
// found it drifted.
func (r Returns) settled(w World, n *inventory.Node) Judgement {
	reaction := w.Settings.Groups.Reaction(n.Group)
	if n.Status != inventory.Allocated || n.Job != "" || reaction != inventory.ReactionVerifyAndRepair {
		return Judgement{}
	}

	found := r.drifted(w, n)
	if found == nil {
		return r.mended(w, n)
	}

	// Nobody holds back a change of the masters on purpose: the node lacks servers that are there already.
	outdated := w.outdated(n)
	if outdated != "" && !w.onlyMasters(n) {
		return r.leaveOutdated(w, n, found, outdated)
	}

	d, s := r.decision(w, n, state.ActionRepair)

	switch occupied := w.occupied(n); {
	case s.decided:
		return Judgement{}
	case w.Now.Before(s.due):
		return s.wait()
	case occupied != "":
		return wait(occupied)
	}

	d.Evidence = append(slices.Clone(found.Evidence), foundBy(n.Verification))
	d.Case, d.Prevent = found.Case, prevents(n, inventory.ReactionVerify, inventory.ReactionRecord)

	if outdated != "" {
		d.Case += "; it is outdated, because the masters have changed"
	}

	return act(d)
}

// CaseMasters is the case of a repair of a node that did not return.
const CaseMasters = "only its masters have changed since it was configured"

// onlyMasters reports whether the node is outdated by its masters alone.
func (w World) onlyMasters(n *inventory.Node) bool {
	return slices.Equal(w.differs(n), []inventory.Part{inventory.PartMasters})
}

// mended judges a node without known drift. If only its masters changed, it is configured again, once for
// each configuration.
func (r Returns) mended(w World, n *inventory.Node) Judgement {
	if n.Presence.Pending() || !w.onlyMasters(n) {
		return Judgement{}
	}

	s := w.standing(fmt.Sprintf("%s/%s/masters/%s", r.Name(), n.Name, n.Applied))
	wait := func(text string) Judgement { return wait(CaseMasters + "; it waits: " + text) }

	switch busy, occupied := w.busyMaster(n), w.occupied(n); {
	case s.decided:
		return Judgement{}
	case w.Now.Before(s.due):
		return s.wait()
	case occupied != "":
		return wait(occupied)
	case busy != nil:
		return wait(fmt.Sprintf("job %s changes the masters (%s)", busy.Job, busy.Name))
	}

	return act(state.Decision{
		ID: s.id, Time: w.Now, Policy: r.Name(), Node: n.Name, Action: state.ActionRepair, Case: CaseMasters,
		Evidence: []string{w.outdated(n)}, Phase: state.PhaseDecided,
		Prevent: append(prevents(n, inventory.ReactionVerify, inventory.ReactionRecord)[:2], "an apply of an operator"),
	})
}

// busyMaster returns another node of a group that others require that a job holds, or nil.
func (w World) busyMaster(n *inventory.Node) *inventory.Node {
	i := slices.IndexFunc(w.View.Nodes(), func(m *inventory.Node) bool {
		return m.Job != "" && m.Name != n.Name && w.Settings.Groups.Required(m.Group) > 0
	})
	if i < 0 {
		return nil
	}
	return w.View.Nodes()[i]
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
func (r Returns) leaveOutdated(w World, n *inventory.Node, found *state.Decision, outdated string) Judgement {
	d, s := r.decision(w, n, state.ActionRecord)
	if s.decided {
		return Judgement{}
	}
	d.Case = "it differs, and its configuration is outdated: that may be the difference, so it is not repaired"
	d.Evidence = append(slices.Clone(found.Evidence), foundBy(n.Verification))

	if !slices.Contains(d.Evidence, outdated) {
		d.Evidence = append(d.Evidence, outdated)
	}

	d.Prevent = []string{"an apply of its configuration by an operator, before it returned"}

	return act(d)
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
func (r Returns) returned(w World, n *inventory.Node, served *job.Job) Judgement {
	p, reaction := n.Presence, w.Settings.Groups.Reaction(n.Group)
	returned := p.Returned()
	guarded := n.Status == inventory.Unallocated && len(n.HostKeys) > 0

	switch excluded := exclusion(n); {
	case n.Job != "":
		return wait("job " + n.Job + " holds it")
	case excluded != "":
		return wait(excluded)
	case n.Status != inventory.Allocated && !guarded:
		return note(fmt.Sprintf("it returned, and stays %s", n.Status))
	case n.Status == inventory.Allocated && reaction == inventory.ReactionRecord:
		return note("it returned; nothing is done, because on_return of " + n.Group + " is " + string(reaction))
	case served != nil && served.Ended.After(returned) && !w.future(served.Ended):
		return note(fmt.Sprintf("it returned, and job %s (%s of %s) completed on it since",
			served.ID, served.Verb, job.OrSomebody(served.Actor)))
	case len(n.Duplicates) > 0:
		return wait(claimed(n))
	}

	if due, why := w.due(p); w.Now.Before(due) {
		return Judgement{Stage: StageWait, Reason: why, Until: due}
	}

	switch {
	case p.Back.Time.Before(returned), !w.recent(p.Back):
		return Judgement{Stage: StageWait, Ask: true, Reason: "ssh is asked what happened to it"}
	case p.Back.Foreign:
		return r.quarantine(w, n)
	case !p.Back.Reached:
		return Judgement{Stage: StageWait, Ask: true, Reason: "ssh does not reach it yet" + because(p.Back.Reason)}
	case guarded:
		return note("it returned with its recorded ssh host key, and stays " + string(n.Status))
	}

	if occupied := w.occupied(n); occupied != "" {
		return wait(occupied)
	}

	return r.act(w, n, reaction)
}

// act returns the decision on a node in service, once its evidence is complete.
func (r Returns) act(w World, n *inventory.Node, reaction inventory.Reaction) Judgement {
	action, weaker := state.ActionVerify, []inventory.Reaction{inventory.ReactionRecord}
	if reaction == inventory.ReactionRepair {
		action, weaker = state.ActionRepair, []inventory.Reaction{inventory.ReactionVerify, inventory.ReactionRecord}
	}

	// A former process recorded it, and has not marked the node yet.
	d, s := r.decision(w, n, action)

	switch {
	case s.decided:
		return wait("the decision is being carried out")
	case w.Now.Before(s.due):
		return s.wait()
	}

	d.Prevent = prevents(n, weaker...)

	if outdated := w.outdated(n); outdated != "" {
		d.Evidence = append(d.Evidence, outdated)
	}

	return act(d)
}

// quarantine judges a node with another host key: it is to be fenced.
func (r Returns) quarantine(w World, n *inventory.Node) Judgement {
	d, s := r.decision(w, n, state.ActionQuarantine)
	if s.decided {
		return wait("the decision is being carried out")
	}
	d.Case = "another host answers under its name"
	d.Evidence = append(d.Evidence, "ssh: "+n.Presence.Back.Reason)
	d.Prevent = []string{"trust in the new ssh host key, by an operator, before the node returned"}

	return act(d)
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

// work returns the first job that has not ended on each node.
func (w World) work() map[string]*job.Job {
	work := map[string]*job.Job{}

	for _, j := range w.View.Jobs() {
		for _, t := range j.Targets {
			if !j.Status.Ended() && work[t.Name] == nil {
				work[t.Name] = j
			}
		}
	}

	return work
}

// exclusion returns the alert that excludes the node from policies, in words, or "".
func exclusion(n *inventory.Node) string {
	a := n.Alerted(inventory.Excluded)
	if a == nil {
		return ""
	}
	return "it has an alert that excludes it: " + a.String()
}

// occupied returns why no policy acts on a node now, in words, or "".
func (w World) occupied(n *inventory.Node) string {
	due, excluded := w.working[n.Name], exclusion(n)

	switch {
	case excluded != "":
		return excluded
	case n.State != inventory.Discovered:
		return "the observers do not see it"
	case n.Job != "":
		return "job " + n.Job + " holds it"
	case len(n.Duplicates) > 0:
		return claimed(n)
	case due != nil:
		return fmt.Sprintf("job %s (%s) of %s is due on it first", due.ID, due.Verb, job.OrSomebody(due.Actor))
	}

	return ""
}
