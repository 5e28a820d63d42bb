// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/state"
)

// Stage is how far the next step of a policy is.
type Stage int

// The stages.
const (
	StageNone Stage = iota // nothing is to be done
	StageWait              // for a time, or for a change
	StageTurn              // due, and a limit, a window or a budget holds it
	StageNote              // leave the node as it is, with the reason in its history
	StageAct
)

// Judgement is the next step of a policy on a node. What a policy decides, confirms, explains and
// shows is read from its judgements.
type Judgement struct {
	Node   *inventory.Node // nil: on the policy as a whole
	Stage  Stage
	Action state.Action // of the step, as far as it is known
	Group  string       // that the node would join; mostly empty
	Reason string       // the condition of a wait, or the step in words
	Until  time.Time    // when to judge again, if it is a time
	Ask    bool         // reach its host over ssh
	// Decision takes the step. Nodes that are changed together have the same one. It may be nil
	// unless the policy acts.
	Decision *state.Decision
}

// wait returns the judgement that a node waits.
func wait(reason string) Judgement { return Judgement{Stage: StageWait, Reason: reason} }

// note returns the judgement that a node is left as it is.
func note(reason string) Judgement { return Judgement{Stage: StageNote, Reason: reason} }

// act returns the judgement that the decision is to be taken.
func act(d state.Decision) Judgement {
	return Judgement{Stage: StageAct, Action: d.Action, Group: d.Group, Reason: d.Case, Decision: &d}
}

// hold has a step wait for its turn.
func (j *Judgement) hold(reason string, until time.Time) {
	j.Stage, j.Reason, j.Until = StageTurn, "it waits for its turn: "+reason, until
}

// Decide returns the plan of a policy as far as it may act now: a policy that is halted
// asks nothing and only makes room for people.
func Decide(p Policy, w World) Plan {
	plan := Plan{Decisions: w.yields(p.Name()), Notes: map[string]string{}}
	if Halted(state.AutomationOf(w.View), p) != "" {
		return plan
	}

	for _, j := range p.Judge(w) {
		plan.Next = control.Earliest(plan.Next, j.Until)

		if j.Ask {
			plan.Ask = append(plan.Ask, j.Node.Name)
		}

		switch {
		case j.Stage == StageNote && len(plan.Notes) < maxNotes:
			plan.Notes[j.Node.Name] = j.Reason
		case j.Stage == StageAct && !plan.has(j.Decision.ID):
			plan.Decisions = append(plan.Decisions, *j.Decision)
		}
	}

	return plan
}

func (p *Plan) has(id string) bool {
	return slices.ContainsFunc(p.Decisions, func(d state.Decision) bool { return d.ID == id })
}

// Confirm returns why the policy would no longer take a decision, in words, or "". It is asked
// before the decision is carried out, which may be hours later: the nodes are judged as if it had not
// been taken.
func Confirm(p Policy, w World, d state.Decision) string {
	w.View = w.without(d.ID)
	all := p.Judge(w)

	if len(d.Nodes) == 0 {
		return confirm(w, all, d, d.Node)
	}

	for _, name := range d.Nodes {
		if why := confirm(w, all, d, name); why != "" {
			return name + ": " + why
		}
	}

	return ""
}

// confirm confirms a decision for one of its nodes, or on the policy as a whole: "".
func confirm(w World, all []Judgement, d state.Decision, name string) string {
	var j Judgement
	if i := slices.IndexFunc(all, func(j Judgement) bool { return name == "" || j.on(name) }); i >= 0 {
		j = all[i]
	}

	switch n, known := w.View.Lookup(name); {
	case j.Stage == StageAct || j.Stage == StageTurn:
		return j.differs(d)
	case j.Reason != "":
		return j.Reason
	case name == "":
		return "there is nothing to do any more"
	case !known:
		return "it is no longer known"
	case n.State == inventory.Disappeared:
		return "it disappeared again"
	}

	return "it no longer falls to the policy"
}

func (j *Judgement) on(name string) bool { return j.Node != nil && j.Node.Name == name }

// differs returns the step of the judgement if the decision is on another one, or "".
func (j *Judgement) differs(d state.Decision) string {
	next := cmp.Or(j.Decision, &d)

	switch {
	case j.Group != d.Group:
		return "it would join " + j.Group + " now"
	case j.Action != d.Action:
		return fmt.Sprintf("the next step is %s now", j.Action)
	case next.Commit != d.Commit:
		return fmt.Sprintf("the next step is %s of commit %s now", j.Action, shortHash(next.Commit))
	case next.Rollout != d.Rollout:
		return "rollout " + d.Rollout + " has ended"
	case d.Node != "" && next.ID != d.ID: // the ids of several nodes are unique
		return "it changed since: " + j.Reason
	}

	return ""
}

// Pending returns the number of nodes that a policy has not decided on.
func Pending(judgements []Judgement) (n int) {
	for _, j := range judgements {
		if j.Node != nil && j.Stage != StageNone {
			n++
		}
	}

	return n
}

// Explain returns the next step of each policy on a node, and the newest decision on it.
func Explain(w World, n inventory.Node) (reasons []state.PolicyReason) {
	isReturn := func(policy string) bool { return policy == Returns{}.Name() }

	if _, text := w.turnedOff(&n); text != "" {
		reasons = append(reasons, state.PolicyReason{Message: text})
	}

	if text := opinion(n); text != "" {
		reasons = append(reasons, state.PolicyReason{Return: true, Message: text})
	}

	for _, p := range All(w.Settings) {
		if text := explained(p, w, n); text != "" {
			reasons = append(reasons, state.PolicyReason{
				Return: isReturn(p.Name()), Message: fmt.Sprintf("policy %s: %s", p.Name(), text),
			})
		}
	}

	if of := state.AutomationOf(w.View).Of(n.Name); len(of) > 0 {
		d := of[len(of)-1]
		reasons = append(reasons, state.PolicyReason{
			Return: isReturn(d.Policy), Job: d.Job, Since: d.Time, Message: Sentence(d),
		})
	}

	return reasons
}

// explained returns the next step of a policy on a node in words, or "". Only the policy on returns speaks while it
// is off: the others are off until an operator wants them.
func explained(p Policy, w World, n inventory.Node) string {
	a := state.AutomationOf(w.View)
	if !IsOn(a, p) && p.Name() != (Returns{}).Name() {
		return ""
	}

	for _, j := range p.Judge(w) {
		if !j.on(n.Name) || j.Stage == StageNone {
			continue
		}

		if halted := Halted(a, p); halted != "" && j.Stage != StageNote {
			return "it is for the node, and nothing is done: " + halted
		}
		return j.Reason
	}

	if c, ok := p.(Commission); ok {
		return c.explainMember(w, n)
	}

	return ""
}
