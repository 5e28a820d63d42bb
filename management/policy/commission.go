// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// Rule says which newly discovered nodes are commissioned without a person. Its name is
// that of a policy.
type Rule struct {
	Name string
	// Match reports whether the rule is for a node; Selector is its text. All: it is for
	// every node.
	Match    func(*inventory.Node) bool
	Selector string
	All      bool
	Group    string // that the nodes join
	// Priority decides between rules for the same node: the highest, then the first name.
	Priority int
	Maximum  int           // nodes of the group in service, up to which it commissions
	Rate     int           // commissions within RateWindow
	Quiet    time.Duration // how long a node has to be Discovered
	Failures int           // failed commissions in a row after which the policy stops
}

// Commission is the policy on newly discovered nodes under one rule. It is off until an
// operator turns it on.
type Commission struct{ Rule Rule }

var _ Policy = Commission{}

// Name implements Policy.
func (c Commission) Name() string { return c.Rule.Name }

// About implements Policy.
func (c Commission) About(Settings) string {
	r := c.Rule

	return fmt.Sprintf("commissions newly discovered nodes (%s) to %s: up to %d of the group, %d within %s, "+
		"after %s; stops after %s in a row", c.matches(), r.Group, r.Maximum, r.Rate, short(RateWindow),
		short(r.Quiet), inventory.Count(r.Failures, "failure", "failures"))
}

// matches describes the nodes of the rule.
func (c Commission) matches() string {
	if c.Rule.All {
		return "all"
	}

	return c.Rule.Selector
}

// Decide implements Policy.
func (c Commission) Decide(w World) Plan {
	plan := Plan{Decisions: w.yields(c.Name())}

	if failed := c.failed(w); len(failed) >= c.Rule.Failures {
		if !c.isOff(w) {
			plan.Decisions = append(plan.Decisions, c.stop(w, failed))
		}

		return plan
	}

	limits := w.limits()
	left, _, next := c.rate(w)

	for _, o := range c.outlooks(w) {
		if o.stage == stageWait && !o.until.IsZero() {
			plan.at(o.until)
		}

		if o.stage != stageAct {
			continue
		}

		if left == 0 {
			plan.at(next)
			break
		}

		ok, _, again := limits.take(state.ActionCommission)
		if !ok {
			if !again.IsZero() {
				plan.at(again)
			}

			break
		}

		left--
		plan.Decisions = append(plan.Decisions, o.decision)
	}

	return plan
}

// isOff reports whether the policy is turned off: it need not stop then.
func (c Commission) isOff(w World) bool { return !IsOn(w.View.Automation, c.Name()) }

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
// that were cancelled.
func (c Commission) failed(w World) []attempt {
	since := w.View.Automation.Switches[c.Name()].Since

	var ended []attempt

	for _, j := range w.View.Jobs {
		if j.Actor == state.PolicyPrincipal(c.Name()) && j.Accepted.After(since) &&
			(j.Status == job.Complete || j.Status == job.Errored) {
			ended = append(ended, attempt{
				id:     j.ID,
				at:     j.Ended,
				failed: j.Status == job.Errored,
				text: fmt.Sprintf(
					"job %s on %s: %s",
					j.ID,
					job.ShortList(j.Names()),
					cmp.Or(j.Message, string(j.Status)),
				),
			})
		}
	}

	for _, d := range w.View.Automation.Decisions {
		if d.Policy == c.Name() && d.Phase == state.PhaseRefused && d.Time.After(since) {
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
	recent, oldest := 0, w.Now

	for _, d := range w.View.Automation.Decisions {
		begun := d.Policy == c.Name() && d.Action == state.ActionCommission && d.Phase != state.PhaseWithdrawn
		if !begun || !d.Time.After(w.Now.Add(-RateWindow)) {
			continue
		}

		recent++

		if d.Time.Before(oldest) {
			oldest = d.Time
		}
	}

	return max(c.Rule.Rate-recent, 0), fmt.Sprintf("%s began within %s, which is its limit",
		inventory.Count(recent, "commission", "commissions"), short(RateWindow)), oldest.Add(RateWindow)
}

// outlooks returns the outlook of every new node of the rule: the nodes that were
// discovered first come first. Those beyond its maximum have none.
func (c Commission) outlooks(w World) []outlookOf {
	all := w.assign()

	return all[c.Name()]
}

// assign returns the outlooks of the new nodes by the rule that they fall to. A rule that
// is off, or that has all nodes it wants, leaves its nodes to the next one.
func (w World) assign() map[string][]outlookOf {
	rules := w.rules()
	room := make([]int, len(rules))

	for i, c := range rules {
		room[i] = max(c.Rule.Maximum-w.population(c.Rule.Group), 0)
	}

	assigned := map[string][]outlookOf{}

	for _, n := range w.fresh() {
		for i, c := range rules {
			if room[i] == 0 || !c.Rule.Match(n) {
				continue
			}

			o := c.judge(w, n)
			// A decision on the node stands already, so no other rule may take it.
			if o.stage == stageNone {
				break
			}

			// A rule for the same group counts the same nodes.
			for k, other := range rules {
				if other.Rule.Group == c.Rule.Group {
					room[k]--
				}
			}

			assigned[c.Name()] = append(assigned[c.Name()], outlookOf{o, n})

			break
		}
	}

	return assigned
}

// rules returns the policies of the rules that are on, in the order of their priority.
func (w World) rules() []Commission {
	var rules []Commission

	for _, r := range w.Settings.Commission {
		if IsOn(w.View.Automation, r.Name) {
			rules = append(rules, Commission{r})
		}
	}

	slices.SortFunc(rules, func(a, b Commission) int {
		return cmp.Or(cmp.Compare(b.Rule.Priority, a.Rule.Priority), strings.Compare(a.Name(), b.Name()))
	})

	return rules
}

// population returns the number of nodes of a group that are in service, or on their way.
func (w World) population(group string) int {
	names := map[string]bool{}

	for _, n := range w.View.Nodes {
		if n.InService() && n.Group == group {
			names[n.Name] = true
		}
	}

	for _, j := range w.View.Jobs {
		if j.Status.Ended() || j.Group != group {
			continue
		}

		for _, name := range j.Names() {
			names[name] = true
		}
	}

	for _, d := range w.View.Automation.Decisions {
		// Its job may not exist yet, and without it the group could grow over its maximum.
		if d.Phase == state.PhaseDecided && d.Action == state.ActionCommission && d.Group == group {
			names[d.Node] = true
		}
	}

	return len(names)
}

// fresh returns the nodes that were discovered and never used, the oldest first.
func (w World) fresh() []*inventory.Node {
	var fresh []*inventory.Node

	for _, n := range w.View.Nodes {
		if n.Status == inventory.Unallocated && n.PrevStatus == "" && n.LastError == "" && len(n.Residue) == 0 {
			fresh = append(fresh, n)
		}
	}

	slices.SortStableFunc(fresh, func(a, b *inventory.Node) int { return a.Created.Compare(b.Created) })

	return fresh
}

// judge returns the outlook of a new node that falls to the rule.
func (c Commission) judge(w World, n *inventory.Node) outlook {
	id, decided := w.standing(c.situation(n))
	if decided {
		return outlook{}
	}

	quiet := n.Presence.Since.Add(c.Rule.Quiet)
	join := w.Settings.Groups.CheckJoin(w.View.Nodes, []string{n.Name}, c.Rule.Group)

	switch waiting := w.wanted(n.Name); {
	case n.State != inventory.Discovered:
		return outlook{stage: stageWait, text: "the observers do not see it"}
	case n.Job != "":
		return outlook{stage: stageWait, text: "job " + n.Job + " holds it"}
	case len(n.Duplicates) > 0:
		return outlook{stage: stageWait, text: claimed(n)}
	case w.Now.Before(quiet):
		return outlook{stage: stageWait, text: fmt.Sprintf("it is seen since %s; commissioned not before %s "+
			"(policies.commission.%s.quiet)", stamp(n.Presence.Since), stamp(quiet), c.Name()), until: quiet}
	case n.Presence.Pending() && len(n.HostKeys) > 0:
		return outlook{stage: stageWait, text: "it returned, and policy " + Returns{}.Name() + " has not decided on it"}
	case waiting != "":
		return outlook{stage: stageWait, text: waiting}
	case join != nil:
		return outlook{stage: stageWait, text: "it cannot join yet: " + job.Message(join)}
	}

	return outlook{stage: stageAct, decision: c.decision(w, n, id)}
}

// situation names a new node in the ids of decisions.
func (c Commission) situation(n *inventory.Node) string {
	return fmt.Sprintf("%s/%s/%d/%s", c.Name(), n.Name, n.Created.UnixNano(), state.ActionCommission)
}

// decision returns the decision to commission a node.
func (c Commission) decision(w World, n *inventory.Node, id string) state.Decision {
	which := "it matches " + c.Rule.Selector
	if c.Rule.All {
		which = "the policy is for all nodes"
	}

	return state.Decision{
		ID: id, Time: w.Now, Policy: c.Name(), Node: n.Name, Action: state.ActionCommission, Group: c.Rule.Group,
		Case: "a new node for " + c.Rule.Group,
		Evidence: []string{
			fmt.Sprintf("discovered at %s, and seen at %s since %s", stamp(n.Created), n.Addr, stamp(n.Presence.Since)),
			which,
			fmt.Sprintf("%d of at most %d nodes of %s are in service, or on their way",
				w.population(c.Rule.Group), c.Rule.Maximum, c.Rule.Group),
		},
		Prevent: []string{
			"the policy turned off or paused",
			"a selector that does not match it (policies.commission." + c.Name() + ")",
			"a job of an operator on the node",
		},
		Phase: state.PhaseDecided,
	}
}

// Confirm implements Policy.
func (c Commission) Confirm(w World, d state.Decision) string {
	w.View = w.without(d.ID)

	for _, o := range c.outlooks(w) {
		switch {
		case o.node.Name != d.Node:
		case o.stage != stageAct:
			return o.text
		case o.decision.Group != d.Group:
			return "it would join " + o.decision.Group + " now"
		default:
			return ""
		}
	}

	return "it no longer falls to the policy"
}

// Explain implements Policy.
func (c Commission) Explain(w World, n inventory.Node) []explain.Finding {
	if !c.isOff(w) {
		if text := c.intent(w, n.Name); text != "" {
			return []explain.Finding{{
				About: explain.AboutPolicy, Nodes: []string{n.Name},
				Message: fmt.Sprintf("policy %s: %s", c.Name(), text),
			}}
		}
	}

	if d := c.newest(w, n.Name); d != nil && n.Status == inventory.Unallocated {
		return []explain.Finding{{
			About: explain.AboutPolicy, Nodes: []string{n.Name}, Job: d.Job, Since: d.Time, Message: Sentence(*d),
		}}
	}

	return nil
}

// intent returns the action that the policy is about to take on the node, in words, or "".
func (c Commission) intent(w World, name string) string {
	for _, o := range c.Test(w) {
		if o.Node != name {
			continue
		}

		if halted := Halted(w.View.Automation, c.Name()); halted != "" {
			return "it is for the node, and nothing is done: " + halted
		}

		return o.Text
	}

	return ""
}

// newest returns the newest decision of the policy on the node, or nil.
func (c Commission) newest(w World, name string) *state.Decision {
	all := w.View.Automation.Of(name)
	for i := range slices.Backward(all) {
		if all[i].Policy == c.Name() {
			return &all[i]
		}
	}

	return nil
}

// Pending implements Policy.
func (c Commission) Pending(w World) int { return len(c.outlooks(w)) }

// Test implements Policy.
func (c Commission) Test(w World) []Outlook {
	var out []Outlook

	limits := w.limits()
	left, reason, next := c.rate(w)
	stopped := len(c.failed(w)) >= c.Rule.Failures

	for _, o := range c.outlooks(w) {
		shown := Outlook{
			Node:   o.node.Name,
			Action: state.ActionCommission,
			Group:  c.Rule.Group,
			Text:   o.text,
			Until:  o.until,
		}

		if o.stage == stageAct {
			shown.Text = "it is commissioned to " + c.Rule.Group + " now"
			ok, why, again := limits.take(state.ActionCommission)

			switch {
			case stopped:
				shown.Text = "it waits: the policy stops, because commissions failed"
			case left == 0:
				shown.Text, shown.Until = "it waits for its turn: "+reason, next
			case !ok:
				shown.Text, shown.Until = "it waits for its turn: "+why, again
			default:
				shown.Now = true
				left--
			}
		}

		out = append(out, shown)
	}

	return out
}
