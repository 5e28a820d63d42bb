// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// Rule says which newly discovered nodes are commissioned without a person. Its name names the policy.
type Rule struct {
	Name string
	// Match reports whether the rule is for a node; Selector is its text. All: it is for
	// every node.
	Match    func(*inventory.Node) bool
	Selector string
	All      bool
	// Group is the group that the nodes join, until Maximum of it are in service.
	Group string
	// Roles are the groups instead, in the order in which they are filled; Maximum then
	// limits the nodes of all of them, and 0 is no limit.
	Roles []Role
	// Priority decides between rules for the same node: the highest, then the first name.
	Priority int
	Maximum  int           // nodes in service, up to which it commissions
	Rate     int           // commissions within RateWindow
	Quiet    time.Duration // how long a node has to be Discovered
	Failures int           // failed commissions in a row after which the policy stops
}

// roles returns the roles of the rule. A rule for one group has one role.
func (r Rule) roles() []Role {
	if len(r.Roles) > 0 {
		return r.Roles
	}
	return []Role{{Group: r.Group, Count: r.Maximum, plain: true}}
}

// Commission is the policy on newly discovered nodes under one rule. It is off until an
// operator turns it on.
type Commission struct{ Rule Rule }

var _ Policy = Commission{}

// Name implements Policy.
func (c Commission) Name() string { return c.Rule.Name }

// Selects implements Selecting.
func (c Commission) Selects() (kind, selector string, all bool) {
	return "commission", c.Rule.Selector, c.Rule.All
}

// About implements Policy.
func (c Commission) About(World) string {
	r := c.Rule

	target := fmt.Sprintf("%s: up to %d of the group", r.Group, r.Maximum)

	if len(r.Roles) > 0 {
		words := make([]string, len(r.Roles))
		for i, role := range r.Roles {
			words[i] = role.String()
		}

		target = strings.Join(words, "; then ")
		if r.Maximum > 0 {
			target += fmt.Sprintf("; up to %d in all", r.Maximum)
		}
	}

	return fmt.Sprintf("commissions newly discovered nodes (%s) to %s, %d within %s, after %s; stops after %s in a row",
		matches(r.Selector, r.All), target, r.Rate, short(RateWindow), short(r.Quiet),
		inventory.Count(r.Failures, "failure", "failures"))
}

// Judge implements Policy.
func (c Commission) Judge(w World) []Judgement {
	all, limits := w.share(c.Name()), w.limits()
	left, reason, next := c.rate(w)
	failed := c.failed(w)
	stops := len(failed) >= c.Rule.Failures

	for i := range all {
		j := &all[i]

		switch {
		case j.Stage != StageAct:
		case stops:
			j.Stage, j.Reason = StageTurn, "it waits: the policy stops, because commissions failed"
		case left == 0:
			j.hold(reason, next)
		case !limits.admit(j):
		case j.Action == state.ActionPowerOff:
			j.Reason = "it is turned off now: " + j.Reason
		default:
			left--

			if j.Reason = "it is commissioned to " + j.Group + " now"; j.Decision.Replaces != "" {
				j.Reason += ", in the place of " + j.Decision.Replaces
			}
		}
	}

	if stops {
		all = append(all, act(c.stop(w, failed)))
	}

	return all
}

// isOff reports whether the policy is turned off: it need not stop then.
func (c Commission) isOff(w World) bool { return !IsOn(state.AutomationOf(w.View), c) }

// stop returns the decision to turn the policy off.
func (c Commission) stop(w World, failed []attempt) state.Decision {
	evidence := make([]string, len(failed))
	for i, a := range failed {
		evidence[i] = a.text
	}

	return state.Decision{
		ID: fmt.Sprintf("%s/stop/%s", c.Name(), failed[0].id), Time: w.Now, Policy: c.Name(), Action: state.ActionStop,
		Case: fmt.Sprintf("%s failed in a row: the policy is turned off",
			inventory.Count(len(failed), "commission", "commissions")),
		Evidence: evidence,
		Prevent:  []string{fmt.Sprintf("policies.commission.%s.failures above %d", c.Name(), len(failed))},
		Phase:    state.PhaseDone,
	}
}

// attempt is a commission of the policy that has ended.
type attempt struct {
	id     string // of its job, or of its refused decision
	at     time.Time
	failed bool
	text   string
}

// failed returns the newest commissions of the policy that failed without a success after
// them, the newest first. Those from before it was turned on do not count, nor do those
// that were cancelled or never began.
func (c Commission) failed(w World) []attempt {
	since := w.past(state.AutomationOf(w.View).Switches[c.Name()].Since)

	var ended []attempt

	for _, j := range w.View.Jobs() {
		verb, _ := job.VerbOf(j.Verb)
		if verb.Joins && j.Actor == state.PolicyPrincipal(c.Name()) && j.Accepted.After(since) &&
			!w.future(j.Accepted) &&
			(j.Status == job.Complete || j.Status == job.Errored && !isRefused(j)) {
			ended = append(ended, attempt{
				id:     j.ID,
				at:     j.Ended,
				failed: j.Status == job.Errored,
				text:   ending(j),
			})
		}
	}

	for _, d := range state.AutomationOf(w.View).Decisions {
		commission := d.Policy == c.Name() && d.Action == state.ActionCommission
		if commission && d.Phase == state.PhaseRefused && d.Time.After(since) && !w.future(d.Time) {
			ended = append(
				ended,
				attempt{id: d.ID, at: d.Time, failed: true, text: d.Node + " was refused: " + d.Result},
			)
		}
	}

	slices.SortStableFunc(ended, func(a, b attempt) int { return b.at.Compare(a.at) })

	if i := slices.IndexFunc(ended, func(a attempt) bool { return !a.failed }); i >= 0 {
		ended = ended[:i]
	}

	return ended
}

// rate returns how many commissions may still begin, why there are no more, and when there
// are again.
func (c Commission) rate(w World) (left int, reason string, next time.Time) {
	u := w.usage(func(*job.Job) bool { return false }, func(d *state.Decision) bool {
		return d.Policy == c.Name() && d.Action == state.ActionCommission
	})

	reason = fmt.Sprintf("%s began within %s, which is its limit",
		inventory.Count(u.recent, "commission", "commissions"), short(RateWindow))

	return max(c.Rule.Rate-u.recent, 0), reason + w.jumped(), u.oldest.Add(RateWindow)
}

// judge judges a new node for the rule, whatever group it joins.
func (c Commission) judge(m *assignment, n *inventory.Node) candidate {
	if m.decided[n.Name] {
		s := m.standing(c.situation(n))
		if s.decided {
			return candidate{}
		}
		if m.Now.Before(s.due) {
			return candidate{Judgement: s.wait(), refused: true}
		}
	}

	wait := func(text string) candidate { return candidate{Judgement: wait(text)} }
	quiet := m.settled(n.Presence.Since).Add(c.Rule.Quiet)

	row, _ := inventory.TransitionOf(inventory.VerbCommission)

	switch occupied := m.occupied(n); {
	case occupied != "":
		return wait(occupied)
	case n.Alerted(row.RefusedBy) != nil:
		return wait("it has an alert that refuses it: " + n.Alerted(row.RefusedBy).String())
	case n.Presence.Pending() && len(n.HostKeys) > 0:
		return wait("it returned, and policy " + Returns{}.Name() + " has not decided on it")
	case m.Now.Before(quiet):
		p := wait(fmt.Sprintf("it is seen since %s; commissioned not before %s (policies.commission.%s.quiet)",
			stamp(n.Presence.Since), stamp(quiet), c.Name()))
		p.Until = quiet
		return p
	}

	return candidate{Judgement: Judgement{Stage: StageAct}}
}

// situation names a new node in the ids of decisions.
func (c Commission) situation(n *inventory.Node) string {
	return fmt.Sprintf("%s/%s/%d/%s", c.Name(), n.Name, n.Created.UnixNano(), state.ActionCommission)
}

// decision returns the decision to commission a node for the role, in the place of a lost
// node or of none.
func (c Commission) decision(w World, n *inventory.Node, t roleCount, replaced *absence) state.Decision {
	which := "it matches " + c.Rule.Selector
	if c.Rule.All {
		which = "the policy is for all nodes"
	}

	d := state.Decision{
		ID: w.standing(
			c.situation(n),
		).id,
		Time:   w.Now,
		Policy: c.Name(),
		Node:   n.Name,
		Action: state.ActionCommission,
		Group:  t.Group,
		Case:   "a new node for " + t.Group,
		Evidence: []string{
			fmt.Sprintf("discovered at %s, and seen at %s since %s", stamp(n.Created), n.Addr, stamp(n.Presence.Since)),
			which,
			t.evidence(),
		},
		Prevent: []string{
			"the policy turned off or paused",
			"a selector that does not match it (policies.commission." + c.Name() + ")",
			"a job of an operator on the node",
		},
		Phase: state.PhaseDecided,
	}

	if where := t.spreadText(n); where != "" {
		d.Evidence = append(d.Evidence, where)
	}

	if replaced != nil {
		d.Replaces = replaced.node.Name
		d.Case += ", in the place of " + replaced.node.Name
		healthy := fmt.Sprintf("%d of %d nodes of %s are healthy; the majority is %d",
			t.members.healthy, t.Count, t.Group, t.majority())
		d.Evidence = append(d.Evidence, replaced.text, healthy)
		if replaced.fence.text != "" {
			d.Evidence = append(d.Evidence, replaced.fence.text)
		}

		for _, a := range t.absences {
			if a.lost {
				d.Lost = append(d.Lost, a.node.Name)
			}
		}

		d.Prevent = append(d.Prevent, "the return of "+replaced.node.Name+" before that, or a longer replace_after")
	}

	return d
}
