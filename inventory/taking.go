// SPDX-License-Identifier: Apache-2.0

package inventory

// Taking answers, node by node, which nodes may go out of service together under the
// budgets of their groups. It counts all nodes once, so that an answer does not depend on
// their number. It is for one goroutine.
type Taking struct {
	groups map[string]*groupTaking
}

// groupTaking is the use of the budget of one group.
type groupTaking struct {
	partTaking

	parts map[string]*partTaking // by the value of the label of the budget
}

// partTaking is the use of a budget in a part of its group. What was refused once stays
// so, because nodes are only added.
type partTaking struct {
	usage

	refused error
}

// Taking returns the answers for the nodes as they are. Those of taken go out of service
// in any case.
func (gs Groups) Taking(nodes []*Node, taken []string) *Taking {
	t := &Taking{groups: map[string]*groupTaking{}}
	goes := set(taken)

	for _, g := range gs {
		if g.Budget != (Budget{}) {
			t.groups[g.Name] = &groupTaking{
				partTaking: partTaking{usage: usage{group: g}}, parts: map[string]*partTaking{},
			}
		}
	}

	for _, n := range nodes {
		g := t.groups[n.Group]
		if g == nil || !n.member() {
			continue
		}
		for _, u := range []*usage{&g.usage, &g.part(n).usage} {
			u.add(n, goes[n.Name])
		}
	}

	return t
}

// part returns the part of the group to which the node belongs.
func (g *groupTaking) part(n *Node) *partTaking {
	value := ""
	if per := g.group.Budget.Per; per != "" {
		value = n.Labels[per]
	}
	p := g.parts[value]
	if p == nil {
		p = &partTaking{usage: usage{group: g.group}}
		g.parts[value] = p
	}

	return p
}

// Take takes the node as well, or returns an error of KindRefused if the budget of its group
// does not allow that. A node that is unavailable already may be taken.
func (t *Taking) Take(n *Node) error {
	g := t.groups[n.Group]
	if g == nil || !n.member() || !n.Available() {
		return nil
	}
	part := g.part(n)
	if err := g.take(n, usage.checkMin); err != nil {
		return err
	}
	err := part.take(n, usage.checkLimit)
	if err != nil {
		g.leaving = g.leaving[:len(g.leaving)-1]
	}

	return err
}

// take adds the node, unless the check refuses that.
func (p *partTaking) take(n *Node, check func(usage) error) error {
	if p.refused != nil {
		return p.refused
	}

	with := p.usage
	with.leaving = append(with.leaving, n)

	if p.refused = check(with); p.refused == nil {
		p.usage = with
	}

	return p.refused
}
