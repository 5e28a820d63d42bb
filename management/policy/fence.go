// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Fence is how a lost node is kept from acting as a member before a new one takes its place.
type Fence string

// FencePower is the BMC of the node: that turns it off, and says that it is off.
const FencePower Fence = "power"

// fencing is how far a lost node is kept from acting. All false: it keeps its place, for the reason in text.
type fencing struct {
	done   bool // it cannot act, or its role does not ask for that
	due    bool // it is to be turned off
	busy   bool // that is under way
	failed bool // an operator is needed
	text   string
	until  time.Time // of a wait, if it is a time
}

// fencing judges how far the node is turned off. A policy turns it off once in an absence. After a failure it tries
// again only once its BMC has said something else, or another BMC is registered.
func (c Commission) fencing(w World, r Role, a absence) fencing {
	if r.Fence == "" {
		return fencing{done: true}
	}

	n := a.node
	row, _ := inventory.TransitionOf(inventory.VerbPower)
	id, tries := c.fences(w, a)
	s := w.standing(id)

	var last *state.Decision
	if len(tries) > 0 {
		last = tries[len(tries)-1]
	}

	switch before, text := w.turnedOff(n); {
	case !a.lost && before != nil && !before.Time.After(a.since):
		return fencing{failed: true, text: text} // it had returned in between
	case !a.lost:
		return fencing{}
	case last != nil && w.under(last):
		return fencing{busy: true, text: "it is being turned off" + byJob(last)}
	case last != nil && w.turns(last):
		return w.seenOff(last)
	case n.Job != "" || w.working[n.Name] != nil:
		return fencing{busy: true, text: "it is not turned off while a job is due on it"}
	case n.Alerted(row.RefusedBy) != nil:
		return fencing{failed: true, text: "its BMC must not turn it off, because of its alert: " +
			n.Alerted(row.RefusedBy).String()}
	case !record.Get(w.View, &state.Machines, n.Name).HasBMC():
		return fencing{failed: true, text: "it has no BMC that could turn it off, so nothing takes its place: " +
			"register its BMC, or turn it off by hand and decommission it"}
	case last == nil && s.reason == "" && !s.decided:
		return fencing{due: true, text: "its BMC turns it off first"}
	}

	return w.again(n, s, tries)
}

// again judges a node that could not be turned off.
func (w World) again(n *inventory.Node, s standing, tries []*state.Decision) fencing {
	f, due := fencing{failed: true}, s.due

	if len(tries) > 0 {
		last := tries[len(tries)-1]
		f.text = "it could not be turned off, so nothing takes its place: " + cmp.Or(last.Result, "job "+last.Job)
		ended := last.Time

		if j, err := w.View.Job(last.Job); err == nil {
			f.text = "it could not be turned off, so nothing takes its place: " + ending(&j)
			ended = j.Ended
		}
		if after := w.settled(ended).Add(retryDelay(len(tries))); after.After(due) {
			due = after
		}
	} else {
		f.text = "it cannot be turned off yet: " + s.reason
	}

	p := record.Get(w.View, &state.Powers, n.Name)

	switch {
	case s.decided, len(tries) > 0 && p != nil && p.Problem != "":
		f.text += "; it is tried again once its BMC answers or says something else; mend that; or correct what is " +
			"registered of it; or turn the node off by hand and decommission it"
	case w.Now.Before(due):
		f.until = due
		f.text += "; it is tried again not before " + stamp(due)
	default:
		f.due = true
	}

	return f
}

// seenOff judges a node that its BMC has turned off.
func (w World) seenOff(d *state.Decision) fencing {
	p := record.Get(w.View, &state.Powers, d.Node)

	switch {
	case p == nil:
		return fencing{failed: true, text: "it was turned off" + byJob(d) + ", and has no BMC any more that says so"}
	case p.Problem != "":
		return fencing{failed: true, text: "it was turned off" + byJob(d) +
			", and its BMC does not say whether it is off still: " + p.Problem}
	case p.Power != "off":
		return fencing{failed: true, text: "it was turned off" + byJob(d) + ", and is " + cmp.Or(p.Power, "on") +
			" since: it is left so, and keeps its place; bring it back, or turn it off"}
	}

	return fencing{done: true, text: "it was turned off" + byJob(d) + ", and its BMC says that it is off"}
}

// fences returns the decisions of the policy to turn a node off in its newest absence, since the policy was turned on,
// that were carried out or could not be, the oldest first; and the id of the next one on what is known now of its BMC.
func (c Commission) fences(w World, a absence) (id string, tries []*state.Decision) {
	since := c.counted(w, a)
	all := state.AutomationOf(w.View).Decisions

	for i := range all {
		d := &all[i]
		if d.Policy == c.Name() && d.Action == state.ActionPowerOff && d.Node == a.node.Name && d.Time.After(since) &&
			d.Phase != state.PhaseWithdrawn && !w.madeRoom(d.Job) && w.neverBegan(d.Job) == nil {
			tries = append(tries, d)
		}
	}

	return fmt.Sprintf("%s/%s/%d/%s/%d-%d", c.Name(), a.node.Name, since.UnixNano(), state.ActionPowerOff,
		record.Revision(w.View, &state.Machines, a.node.Name),
		record.Revision(w.View, &state.Powers, a.node.Name)), tries
}

// under reports whether a decision is being carried out.
func (w World) under(d *state.Decision) bool {
	j, err := w.View.Job(d.Job)
	return d.Phase == state.PhaseDecided || err == nil && !j.Status.Ended()
}

// turns reports whether the decision has turned its node off. Without its job, which may have failed, the BMC tells.
func (w World) turns(d *state.Decision) bool {
	if d.Phase != state.PhaseDone {
		return false
	}
	if j, err := w.View.Job(d.Job); err == nil {
		return j.Status == job.Complete
	}

	return w.View.PowerOf(d.Node) == "off"
}

// turnedOff returns the decision of a policy by which a node is off, and that in words, or nil.
func (w World) turnedOff(n *inventory.Node) (d *state.Decision, text string) {
	if w.View.PowerOf(n.Name) != "off" {
		return nil, ""
	}

	for _, d := range slices.Backward(state.AutomationOf(w.View).Of(n.Name)) {
		if d.Action != state.ActionPowerOff || !w.turns(&d) {
			continue
		}

		text = fmt.Sprintf("policy %s turned it off%s, decided on %s", d.Policy, byJob(&d), stamp(d.Time))
		if n.Presence.Returned().After(d.Time) {
			text += ", although it returned meanwhile"
		}

		return &d, text + ": it stays off until somebody turns it on"
	}

	return nil, ""
}

// off reports whether the node that a decision replaces is off as the role asks for it.
func (w World) off(by Policy, d state.Decision) bool {
	c, _ := by.(Commission)
	i := slices.IndexFunc(c.Rule.Roles, func(r Role) bool { return r.Group == d.Group })

	return i < 0 || c.Rule.Roles[i].Fence == "" || w.View.PowerOf(d.Replaces) == "off"
}

// powerOff returns the decision to turn a lost node off.
func (c Commission) powerOff(w World, t roleCount, lost absence) state.Decision {
	id, _ := c.fences(w, lost)

	return state.Decision{
		ID: w.standing(id).id, Time: w.Now, Policy: c.Name(), Node: lost.node.Name, Action: state.ActionPowerOff,
		Case: "it is lost, and is turned off before a new node takes its place in " + t.Group,
		Evidence: []string{
			lost.text,
			fmt.Sprintf("%d of %d nodes of %s are healthy; the majority is %d",
				t.members.healthy, t.Count, t.Group, t.majority()),
			w.powerText(lost.node.Name),
		},
		Prevent: []string{
			"its return before that", "a longer replace_after", "a role without fence",
			"the policy turned off or paused", "an alert on it that refuses power, or excludes it",
		},
		Phase: state.PhaseDecided,
	}
}

// powerText describes what the BMC of a node last said.
func (w World) powerText(name string) string {
	switch p := record.Get(w.View, &state.Powers, name); {
	case p == nil:
		return "its BMC was not asked yet"
	case p.Problem != "":
		return "its BMC does not answer: " + p.Problem
	case p.Since != nil:
		return fmt.Sprintf("its BMC says that it is %s, since %s", p.Power, stamp(*p.Since))
	default:
		return "its BMC says that it is " + p.Power
	}
}

// byJob names the job of a decision, if there is one.
func byJob(d *state.Decision) string {
	if d.Job == "" {
		return ""
	}
	return " by job " + d.Job
}
