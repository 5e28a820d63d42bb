// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// candidate is a new node that a rule may take. It has a decision if it may join now, for as many as may begin at once.
type candidate struct {
	Judgement

	slot    int  // of the node among the free ones
	refused bool // by a rule, and perhaps not by the others
}

// share judges the new nodes of a rule: none while it is off. Rules of higher priority choose first, and
// leave the nodes that they have no place for. It also asks for silent nodes of the roles to be reached over
// ssh, before they count as lost.
func (w World) share(name string) []Judgement {
	rules := w.rules()

	i := slices.IndexFunc(rules, func(c Commission) bool { return c.Name() == name })
	if i < 0 {
		return nil
	}

	// The rules before take their nodes, without the words.
	m := w.assignment()
	for _, c := range rules[:i] {
		c.take(m, 0)
	}

	return rules[i].take(m, rules[i].Rule.Rate)
}

// assignment distributes the new nodes over the rules.
type assignment struct {
	World

	free    []*inventory.Node   // without a rule so far, the oldest first
	groups  map[string]*members // by name
	joins   map[string]string   // why no new node can join a group; "": it can
	decided map[string]bool     // nodes with a decision
}

func (w World) assignment() *assignment {
	m := &assignment{
		World: w, free: w.fresh(), groups: w.groups(), joins: map[string]string{},
		decided: map[string]bool{},
	}

	m.working = w.work()

	for _, d := range state.AutomationOf(w.View).Decisions {
		m.decided[d.Node] = true
	}

	return m
}

// of returns the members of a group.
func (m *assignment) of(group string) *members {
	c := m.groups[group]
	if c == nil {
		c = &members{coming: map[string]*inventory.Node{}}
		m.groups[group] = c
	}

	return c
}

// cannotJoin returns why no new node can join the group, in words, or "". It is the same
// for all of them, because a new node provides nothing.
func (m *assignment) cannotJoin(group string) string {
	text, known := m.joins[group]
	if known {
		return text
	}
	if err := m.Settings.Groups.CheckJoin(m.View.Nodes(), []string{"a new node"}, group); err != nil {
		text = "it cannot join yet: " + job.Message(err)
	}

	m.joins[group] = text

	return text
}

// rules returns the policies of the rules that are on, in the order of their priority.
func (w World) rules() []Commission {
	var rules []Commission

	for _, r := range w.Settings.Commission {
		if IsOn(state.AutomationOf(w.View), Commission{r}) {
			rules = append(rules, Commission{r})
		}
	}

	slices.SortFunc(rules, func(a, b Commission) int {
		return cmp.Or(cmp.Compare(b.Rule.Priority, a.Rule.Priority), strings.Compare(a.Name(), b.Name()))
	})

	return rules
}

// fresh returns the nodes that are offered and were not used since, the oldest first. One that a decision is about to
// take is none.
func (w World) fresh() []*inventory.Node {
	var fresh []*inventory.Node

	decided := map[string]bool{}

	for _, d := range state.AutomationOf(w.View).Decisions {
		if d.Phase == state.PhaseDecided && d.Action == state.ActionCommission {
			decided[d.Node] = true
		}
	}

	for _, n := range w.View.Nodes() {
		if n.Fresh() && !decided[n.Name] {
			fresh = append(fresh, n)
		}
	}

	slices.SortStableFunc(fresh, func(a, b *inventory.Node) int { return a.Created.Compare(b.Created) })

	return fresh
}

// take takes the new nodes of the rule out of the free ones, with that many decisions in
// words: no more can begin at once, and the words cost time.
func (c Commission) take(m *assignment, words int) []Judgement {
	room, wanted := c.room(m)
	if !wanted {
		return nil
	}

	t := c.taking(m)
	t.room, t.words = room, words

	for _, r := range c.Rule.roles() {
		t.fill(m.of(r.Group).count(m.World, c, r))
	}

	// The slots are positions in the list of before.
	left := m.free[:0]

	for slot, n := range m.free {
		if !t.used[slot] {
			left = append(left, n)
		}
	}

	m.free = left

	return t.judged
}

// room returns how many nodes the rule may add by its maximum, and whether a role wants any.
func (c Commission) room(m *assignment) (room int, wanted bool) {
	// The maximum of a rule for one group is the count of its role.
	room = math.MaxInt
	if c.Rule.Maximum > 0 && len(c.Rule.Roles) > 0 {
		room = c.Rule.Maximum
	}

	for _, r := range c.Rule.roles() {
		t := m.of(r.Group).count(m.World, c, r)
		wanted = wanted || t.missing > 0
		room -= t.present + t.held
	}

	return max(room, 0), wanted
}

// taking is the part of an assignment that concerns one rule.
type taking struct {
	judged []Judgement

	rule  Commission
	m     *assignment
	room  int         // nodes that may still join
	words int         // decisions that may still be made
	ready []candidate // that could join, or can at a known time; the oldest first
	stuck []candidate // that wait for something else
	used  []bool      // by the slot of a node
}

// taking sorts the free nodes of the rule.
func (c Commission) taking(m *assignment) *taking {
	t := &taking{
		rule: c, m: m, used: make([]bool, len(m.free)), ready: make([]candidate, 0, len(m.free)),
	}

	for slot, n := range m.free {
		if !c.Rule.Match(n) {
			continue
		}

		p := c.judge(m, n)
		p.Node, p.Action, p.slot = n, state.ActionCommission, slot

		switch {
		case p.Stage == StageNone:
			t.used[slot] = true
		case p.Stage == StageAct, !p.Until.IsZero() && !p.refused:
			t.ready = append(t.ready, p)
		default:
			t.stuck = append(t.stuck, p)
		}
	}

	return t
}

// fill gives nodes to a role.
func (t *taking) fill(role roleCount) {
	places, replaced := role.places()
	if replaced != nil && replaced.fence.due {
		t.powerOff(role, *replaced)

		places = 0
	}

	kept := max(role.missing-places, 0)
	places = min(places, t.room)

	joining := min(places, len(t.ready))
	kept = min(kept, len(t.ready)-joining)

	if joining+kept > 0 {
		role.countLabels()

		t.judged = slices.Grow(t.judged, joining+kept)

		order := role.spread(t.ready)
		for _, p := range order[:joining] {
			t.join(&role, p, replaced)
		}

		for _, p := range order[joining : joining+kept] {
			t.keep(role, p)
		}

		t.ready = slices.DeleteFunc(t.ready, func(p candidate) bool { return t.used[p.slot] })
	}

	// A node that is not ready takes a place only if no other one does.
	waiting := min(places-joining, len(t.stuck))
	for _, p := range t.stuck[:waiting] {
		t.give(role.Group, p)
	}

	t.stuck = t.stuck[waiting:]
}

// give gives a node to the rule.
func (t *taking) give(group string, p candidate) {
	p.Group = group
	t.judged = append(t.judged, p.Judgement)
	t.used[p.slot] = true
}

// join gives a node to a role, and counts it there.
func (t *taking) join(role *roleCount, p candidate, replaced *absence) {
	if text := t.m.cannotJoin(role.Group); p.Stage == StageAct && text != "" {
		p.Stage, p.Reason = StageWait, text
	}

	t.window(&p.Judgement, role.Group)

	if p.Stage == StageAct && t.words > 0 {
		t.words--
		d := t.rule.decision(t.m.World, p.Node, *role, replaced)
		p.Decision = &d
	}

	t.give(role.Group, p)
	t.room--
	role.add(p.Node)
}

// window has a step wait for a window: a job that waits for one could not be taken back when the lost node returns.
func (t *taking) window(j *Judgement, group string) {
	if j.Stage != StageAct {
		return
	}
	if v := t.m.Settings.Windows.Allowed(t.m.View, j.Node, t.m.Now, group); !v.OK {
		j.Stage, j.Reason, j.Until = StageWait, "it waits: "+v.Reason, v.Until
	}
}

// powerOff turns a lost node off, if a new node could take its place at once.
func (t *taking) powerOff(role roleCount, lost absence) {
	ready := t.room > 0 && t.m.cannotJoin(role.Group) == "" && slices.ContainsFunc(t.ready, func(p candidate) bool {
		t.window(&p.Judgement, role.Group)
		return p.Stage == StageAct
	})
	if !ready {
		return
	}

	j := act(t.rule.powerOff(t.m.World, role, lost))
	j.Node = lost.node
	t.window(&j, role.Group)
	t.judged = append(t.judged, j)
}

// keep keeps a node for the place of another one.
func (t *taking) keep(role roleCount, p candidate) {
	reason, until := role.keeps()
	p.Stage, p.Until, p.Reason = StageWait, until, "it is kept for "+role.Group+": "+reason

	t.give(role.Group, p)
	role.members.kept++

	// Ask only while a node is there that could take the place.
	for _, a := range role.absences {
		if a.ask && !slices.ContainsFunc(t.judged, func(j Judgement) bool { return j.Node == a.node }) {
			t.judged = append(t.judged, Judgement{Node: a.node, Ask: true})
		}
	}
}
