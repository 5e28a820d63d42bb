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

// share is the part of the new nodes that falls to a rule.
type share struct {
	outlooks []outlookOf
	// ask are silent nodes of its roles to be reached over ssh, before they count as lost.
	ask []string
}

// assign returns the share of each rule that is on. A rule takes its nodes before those of
// lower priority, and leaves them those that it has no place for.
func (w World) assign() map[string]share {
	m := w.muster()
	shares := map[string]share{}

	for _, c := range w.rules() {
		shares[c.Name()] = c.take(m)
	}

	return shares
}

// muster is one assignment of the new nodes to the rules.
type muster struct {
	World

	free    []*inventory.Node // without a rule so far, the oldest first
	crews   map[string]*crew
	joins   map[string]string   // why no new node can join a group; "": it can
	busy    map[string]*job.Job // the first job that is due on a node
	decided map[string]bool     // nodes with a decision
}

func (w World) muster() *muster {
	m := &muster{
		World: w, free: w.fresh(), crews: w.crews(), joins: map[string]string{}, busy: map[string]*job.Job{},
		decided: map[string]bool{},
	}

	for i := range w.View.Jobs {
		j := &w.View.Jobs[i]
		if j.Status.Ended() {
			continue
		}

		for _, name := range j.Names() {
			if m.busy[name] == nil {
				m.busy[name] = j
			}
		}
	}

	for _, d := range w.View.Automation.Decisions {
		m.decided[d.Node] = true
	}

	return m
}

// crew returns the nodes of a group.
func (m *muster) crew(group string) *crew {
	c := m.crews[group]
	if c == nil {
		c = &crew{coming: map[string]*inventory.Node{}}
		m.crews[group] = c
	}

	return c
}

// cannotJoin returns why no new node can join the group, in words, or "". It is the same
// for all of them, because a new node provides nothing.
func (m *muster) cannotJoin(group string) string {
	text, known := m.joins[group]
	if known {
		return text
	}

	if err := m.Settings.Groups.CheckJoin(m.View.Nodes, []string{"a new node"}, group); err != nil {
		text = "it cannot join yet: " + job.Message(err)
	}

	m.joins[group] = text

	return text
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

// fresh returns the nodes that were discovered and never used, the oldest first. One that
// a decision is about to take is none.
func (w World) fresh() []*inventory.Node {
	var fresh []*inventory.Node

	decided := map[string]bool{}

	for _, d := range w.View.Automation.Decisions {
		if d.Phase == state.PhaseDecided && d.Action == state.ActionCommission {
			decided[d.Node] = true
		}
	}

	for _, n := range w.View.Nodes {
		unused := n.Status == inventory.Unallocated && n.PrevStatus == "" && n.LastError == "" && len(n.Residue) == 0
		if unused && !decided[n.Name] {
			fresh = append(fresh, n)
		}
	}

	slices.SortStableFunc(fresh, func(a, b *inventory.Node) int { return a.Created.Compare(b.Created) })

	return fresh
}

// take takes the new nodes of the rule out of the free ones.
func (c Commission) take(m *muster) share {
	room, wanted := c.room(m)
	if !wanted {
		return share{}
	}

	t := c.taking(m)
	t.room = room

	for _, r := range c.Rule.roles() {
		t.fill(m.crew(r.Group).tally(m.World, r))
	}

	m.free = slices.DeleteFunc(m.free, func(n *inventory.Node) bool { return t.used[n.Name] })

	return t.share
}

// room returns how many nodes the rule may add by its maximum, and whether a role wants any.
func (c Commission) room(m *muster) (room int, wanted bool) {
	room = math.MaxInt
	if c.Rule.Maximum > 0 && len(c.Rule.Roles) > 0 {
		room = c.Rule.Maximum
	}

	for _, r := range c.Rule.roles() {
		t := m.crew(r.Group).tally(m.World, r)
		wanted = wanted || t.missing > 0
		room -= t.present + t.held
	}

	return max(room, 0), wanted
}

// taking is the part of an assignment that concerns one rule.
type taking struct {
	share

	rule  Commission
	m     *muster
	room  int         // nodes that may still join
	ready []outlookOf // that could join, or can at a known time; the oldest first
	stuck []outlookOf // that wait for something else
	used  map[string]bool
	acts  int // nodes that join now
}

// taking sorts the free nodes of the rule.
func (c Commission) taking(m *muster) *taking {
	t := &taking{rule: c, m: m, used: map[string]bool{}}

	for _, n := range m.free {
		if !c.Rule.Match(n) {
			continue
		}

		switch o := c.judge(m, n); {
		case o.stage == stageNone:
			t.used[n.Name] = true
		case o.stage == stageAct, !o.until.IsZero():
			t.ready = append(t.ready, outlookOf{outlook: o, node: n})
		default:
			t.stuck = append(t.stuck, outlookOf{outlook: o, node: n})
		}
	}

	return t
}

// fill gives nodes to a role.
func (t *taking) fill(role tally) {
	places, replaced := role.places()
	kept := max(role.missing-places, 0)
	places = min(places, t.room)

	order := role.spread(t.ready)
	joining := min(places, len(order))
	kept = min(kept, len(order)-joining)

	for _, o := range order[:joining] {
		t.join(&role, o, replaced)
	}

	for _, o := range order[joining : joining+kept] {
		t.keep(role, o)
	}

	if joining+kept > 0 {
		t.ready = slices.DeleteFunc(t.ready, func(o outlookOf) bool { return t.used[o.node.Name] })
	}

	// A node that is not ready takes a place only if no other one does.
	waiting := min(places-joining, len(t.stuck))
	for _, o := range t.stuck[:waiting] {
		t.give(role.Group, o)
	}

	t.stuck = t.stuck[waiting:]
}

// give gives a node to the rule.
func (t *taking) give(group string, o outlookOf) {
	o.group = group
	t.outlooks = append(t.outlooks, o)
	t.used[o.node.Name] = true
}

// join gives a node to a role, whose counts then include it.
func (t *taking) join(role *tally, o outlookOf, replaced *absence) {
	if text := t.m.cannotJoin(role.Group); o.stage == stageAct && text != "" {
		o.outlook = outlook{stage: stageWait, text: text}
	}

	// No more can begin at once, and the words cost time.
	if o.stage == stageAct && t.acts < t.rule.Rule.Rate {
		t.acts++
		o.decision = t.rule.decision(t.m.World, o.node, *role, replaced)
	}

	t.give(role.Group, o)
	t.room--
	role.add(o.node)
}

// keep keeps a node for the place of another one.
func (t *taking) keep(role tally, o outlookOf) {
	reason, until := role.keeps()
	o.outlook = outlook{stage: stageWait, text: "it is kept for " + role.Group + ": " + reason, until: until}

	t.give(role.Group, o)
	role.crew.kept++

	for _, a := range role.absences {
		if a.ask && !slices.Contains(t.ask, a.node.Name) {
			t.ask = append(t.ask, a.node.Name)
		}
	}
}
