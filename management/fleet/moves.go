// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/selector"
)

// rowOf returns the row of the job's verb in the lifecycle table.
func rowOf(j api.FleetJob) inventory.Transition {
	row, _ := inventory.TransitionOf(j.Verb)
	return row
}

// serves reports whether the nodes are in service before the job.
func serves(j api.FleetJob) bool { return slices.Contains(rowOf(j).From, inventory.Allocated) }

// selectMembers adds the nodes that the selectors of groups match, with the labels that
// they have after the plan. The group of a node by name overrides them.
func (c *comparison) selectMembers() {
	parsed := map[string]selector.Selector{}

	for _, group := range c.doc.sortedGroups() {
		s, err := selector.Parse(c.doc.Selectors[group].Selector, func(string) error { return nil })
		if err != nil {
			c.problem(c.doc.Selectors[group].At, "%s", err)
			return
		}

		parsed[group] = s
	}

	labels := c.labelsAfter()

	for _, n := range c.has.Nodes {
		if _, named := c.members[n.Name]; named {
			continue
		}

		node := *n
		node.Labels = labels(n)

		for _, group := range c.doc.sortedGroups() {
			if !parsed[group].Matches(&node) {
				continue
			}

			at := c.doc.Selectors[group].At

			if other, twice := c.members[n.Name]; twice {
				c.problem(at, "the selector matches %s, and so does that of the group %s (%s); "+
					"name its group in the section nodes", n.Name, other.Group, other.At)

				break
			}

			c.members[n.Name] = Member{group, at}
		}
	}
}

// labelsAfter returns a function that returns the labels of a node after the plan.
func (c *comparison) labelsAfter() func(*inventory.Node) map[string]string {
	wanted := map[string]map[string]any{}

	for _, w := range c.doc.Wants {
		if w.Level == api.LevelNode && w.Part == api.PartLabels {
			if wanted[w.Name] == nil {
				wanted[w.Name] = map[string]any{}
			}

			wanted[w.Name][w.Key] = w.Value
		}
	}

	_, whole := c.doc.Sections["nodes"]

	return func(n *inventory.Node) map[string]string {
		out := map[string]string{}

		for key, value := range n.Labels {
			if _, named := wanted[n.Name][key]; named || c.Prune && whole {
				continue
			}

			out[key] = value
		}

		for key, value := range wanted[n.Name] {
			if text, ok := value.(string); ok {
				out[key] = text
			}
		}

		return out
	}
}

// target returns the group that the node is to be in, or NoGroup. ok is false if
// the node stays where it is.
func (c *comparison) target(n *inventory.Node) (group string, ok bool) {
	if m, member := c.members[n.Name]; member {
		return m.Group, true
	}

	_, whole := c.doc.Sections["nodes"]
	return NoGroup, c.Prune && whole && !c.doc.names(n.Name) && serving(n).Status == inventory.Allocated
}

// serving returns the node as it is again after a job that leaves it in service.
func serving(n *inventory.Node) *inventory.Node {
	if row, held := inventory.TransitionOf(n.Verb); held && row.KeepsService && n.Status == row.Through {
		again := *n
		again.Status = inventory.Allocated
		return &again
	}

	return n
}

// verbFor returns the verb that brings the node into the group, or "" if none is needed.
func verbFor(n *inventory.Node, group string) inventory.Verb {
	switch n = serving(n); {
	case group == NoGroup && n.Status == inventory.Allocated:
		return inventory.VerbDecommission
	case group == NoGroup, n.Status == inventory.Allocated && n.Group == group:
		return ""
	case n.Status == inventory.Allocated:
		return inventory.VerbUpdate
	}

	return inventory.VerbCommission
}

// planMoves plans the jobs, in an order in which the rules of the groups allow each.
func (c *comparison) planMoves() {
	var moves []api.FleetJob

	add := func(verb inventory.Verb, group, node string) {
		i := slices.IndexFunc(moves, func(m api.FleetJob) bool { return m.Verb == verb && m.Group == group })
		if i < 0 {
			i = len(moves)
			moves = append(moves, api.FleetJob{Verb: verb, Group: group})
		}

		moves[i].Nodes = append(moves[i].Nodes, node)
	}

	for _, n := range c.has.Nodes {
		group, ok := c.target(n)
		if !ok || c.waits(n, group) {
			continue
		}
		verb := verbFor(n, group)
		if verb == "" {
			continue
		}

		if err := checkMove(n, verb); err != nil {
			c.plan.Obstacles = append(c.plan.Obstacles, inWords(err))
			continue
		}

		// Nodes that leave do so group by group: those that need others first.
		key := group
		if group == NoGroup {
			key = n.Group
		}
		add(verb, key, n.Name)
	}

	c.order(moves)
}

// checkMove returns the reason why the manager would refuse the verb for the node.
func checkMove(n *inventory.Node, verb inventory.Verb) error {
	row, _ := inventory.TransitionOf(verb)
	return row.Check(*n)
}

// inWords returns an error with its remedy.
func inWords(err error) string {
	e, ok := errors.AsType[*inventory.Error](err)
	if !ok || e.Remedy == "" {
		return err.Error()
	}
	return e.Message + "; " + e.Remedy
}

// waits reports whether a job that has not ended decides about the node, and adds it to
// the plan. A job that leaves the node in service, and where it is to be, does not.
func (c *comparison) waits(n *inventory.Node, group string) bool {
	found := false

	for _, j := range c.has.Jobs {
		row, _ := inventory.TransitionOf(j.Verb)
		if !slices.Contains(j.Names(), n.Name) || row.KeepsService && verbFor(n, group) == "" {
			continue
		}

		found = true

		i := slices.IndexFunc(c.plan.Waits, func(w api.FleetWait) bool { return w.Job == j.ID })
		if i < 0 {
			i = len(c.plan.Waits)
			c.plan.Waits = append(c.plan.Waits, api.FleetWait{Job: j.ID, Verb: j.Verb})
		}

		c.plan.Waits[i].Nodes = append(c.plan.Waits[i].Nodes, n.Name)
	}

	return found
}

// rulesDuring returns the groups with the rules that hold while the jobs run: those of
// groups that the plan removes still do.
func (c *comparison) rulesDuring() inventory.Groups {
	groups := c.has.Config.rules()

	for _, name := range c.groups {
		if !slices.Contains(c.has.Config.names(), name) {
			groups = append(groups, inventory.Group{Name: name})
		}
	}

	for _, change := range c.plan.changes {
		i := slices.IndexFunc(groups, func(g inventory.Group) bool { return g.Name == change.Name })
		if i >= 0 && change.Part == api.PartRules && change.Key == ruleRequires && !change.Late {
			groups[i].Requires = requirementsOf(change.After)
		}
	}

	return groups
}

// depthsOf returns for each group how many groups it requires, one after the other.
func depthsOf(groups inventory.Groups) map[string]int {
	depths := map[string]int{}

	// The manager refuses groups that require each other, so this many rounds are enough.
	for range groups {
		for _, g := range groups {
			for required := range g.Requires {
				depths[g.Name] = min(max(depths[g.Name], depths[required]+1), len(groups))
			}
		}
	}

	return depths
}

// order adds the jobs to the plan: first those that enter, the needed groups first, then
// those that leave, the needed groups last; where the rules allow another order only,
// that one.
func (c *comparison) order(moves []api.FleetJob) {
	groups := c.rulesDuring()
	depths := depthsOf(groups)
	rank := []inventory.Verb{inventory.VerbCommission, inventory.VerbUpdate, inventory.VerbDecommission}

	slices.SortStableFunc(moves, func(a, b api.FleetJob) int {
		deeper := depths[a.Group] - depths[b.Group]
		if a.Leaves() {
			deeper = -deeper
		}
		return cmp.Or(slices.Index(rank, a.Verb)-slices.Index(rank, b.Verb), deeper, strings.Compare(a.Group, b.Group))
	})

	nodes := c.simulated()

	for len(moves) > 0 {
		next := slices.IndexFunc(moves, func(m api.FleetJob) bool { return allowed(groups, nodes, m) == nil })

		// The rules depend on the jobs that are to end first, and on nodes outside the scope
		// of the caller. The manager knows both.
		if next < 0 && (len(c.plan.Waits) > 0 || c.has.Partial) {
			next = 0
		}

		if next < 0 {
			for _, m := range moves {
				err := allowed(groups, nodes, m)
				c.plan.Obstacles = append(c.plan.Obstacles, fmt.Sprintf("%s: %s", m.Verb, inWords(err)))
			}

			return
		}

		m := moves[next]
		moves = slices.Delete(moves, next, next+1)
		settle(nodes, m)

		if m.Leaves() {
			m.Group = ""
		}

		c.plan.Jobs = append(c.plan.Jobs, m)
	}
}

// simulated returns the nodes for the rules of the groups.
func (c *comparison) simulated() []*inventory.Node {
	nodes := make([]*inventory.Node, len(c.has.Nodes))
	for i, n := range c.has.Nodes {
		nodes[i] = &inventory.Node{Name: n.Name, Group: n.Group, Status: n.Status, State: n.State, Verb: n.Verb}
	}

	return nodes
}

// allowed returns the rule that forbids the job on the nodes, as the manager checks it.
func allowed(groups inventory.Groups, nodes []*inventory.Node, m api.FleetJob) error {
	if serves(m) {
		if err := groups.CheckLeave(nodes, m.Nodes); err != nil {
			return err
		}
	}

	if m.Leaves() {
		return nil
	}

	return groups.CheckJoin(nodes, m.Nodes, m.Group)
}

// settle applies the success of a job to the nodes.
func settle(nodes []*inventory.Node, m api.FleetJob) {
	moved := map[string]bool{}
	for _, name := range m.Nodes {
		moved[name] = true
	}

	for _, n := range nodes {
		if !moved[n.Name] {
			continue
		}

		n.Status, n.Group = rowOf(m).Success, m.Group
		if m.Leaves() {
			n.Group = ""
		}
	}
}

// groupsAfter returns the group of each node after the plan.
func (c *comparison) groupsAfter() map[string]string {
	after := map[string]string{}
	for _, n := range c.has.Nodes {
		after[n.Name] = n.Group
	}

	for _, m := range c.plan.Jobs {
		for _, name := range m.Nodes {
			after[name] = m.Group
		}
	}

	return after
}
