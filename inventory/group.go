// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
	"strings"
)

// The built-in groups.
const (
	GroupMaster  = "service-master"
	GroupWorker  = "service-worker"
	GroupPrepare = "cluster-node" // hosts that a discover job prepares; never the group of a commission
)

// reservedGroups are names with a meaning of their own in the Ansible inventory.
var reservedGroups = []string{GroupPrepare, "all", "ungrouped", "job_targets", "job_helpers"}

// Group is a host group with its rule.
type Group struct {
	Name string `json:"name" yaml:"name"`
	// Needs names another group. While a node of this group is in service, and
	// before one is commissioned, that group must have a commissioned, Discovered
	// node outside the request. Empty means no rule.
	Needs string `json:"needs,omitempty" yaml:"needs,omitempty"`
	// Budget limits how many of its nodes are out of service at a time.
	Budget Budget `json:"budget,omitzero" yaml:"budget,omitempty"`
}

// Groups lists the host groups available to commission, in configured order.
type Groups []Group

// DefaultGroups returns the groups of a manager without configured groups.
func DefaultGroups() Groups {
	return Groups{{Name: GroupMaster}, {Name: GroupWorker, Needs: GroupMaster}}
}

// Check validates names and rules. It returns an error of KindInvalid.
func (gs Groups) Check() error {
	if len(gs) == 0 {
		return Errorf(KindInvalid, "no group is configured").
			Do("leave the key out to get %s and %s", GroupMaster, GroupWorker)
	}

	seen := map[string]bool{}
	for _, g := range gs {
		if err := CheckGroup(g.Name); err != nil {
			return err
		}

		switch {
		case seen[g.Name]:
			return Errorf(KindInvalid, "group %s is configured twice", g.Name)
		case slices.Contains(reservedGroups, g.Name):
			return Errorf(KindInvalid, "the group name %q is reserved", g.Name)
		case g.Needs == g.Name:
			return Errorf(KindInvalid, "group %s needs itself", g.Name)
		}

		if err := g.Budget.Check(); err != nil {
			return Errorf(KindInvalid, "the budget of group %s: %w", g.Name, err)
		}

		seen[g.Name] = true
	}

	// A rule may name a group that follows, so check the rules in a second pass.
	for _, g := range gs {
		if g.Needs != "" && !seen[g.Needs] {
			return Errorf(KindInvalid, "group %s needs group %s, which is not configured", g.Name, g.Needs)
		}
	}

	return nil
}

// Get returns the named group, or an error of KindNotFound that lists the
// configured groups.
func (gs Groups) Get(name string) (Group, error) {
	for _, g := range gs {
		if g.Name == name {
			return g, nil
		}
	}

	return Group{}, Errorf(KindNotFound, "there is no group %q", name).
		Do("the groups are %s", strings.Join(gs.Names(), ", "))
}

// Names returns the names of the groups, in order.
func (gs Groups) Names() []string {
	names := make([]string, len(gs))
	for i, g := range gs {
		names[i] = g.Name
	}

	return names
}

// Needed reports whether any group needs the named one.
func (gs Groups) Needed(name string) bool {
	return name != "" && slices.ContainsFunc(gs, func(g Group) bool { return g.Needs == name })
}

// Related returns the groups whose nodes decide whether nodes of the named groups may
// leave or enter them: by a budget, as providers, or as dependents.
func (gs Groups) Related(names []string) []string {
	var related []string
	for _, g := range gs {
		member := slices.Contains(names, g.Name)
		ruled := member && (g.Budget != Budget{} || gs.Needed(g.Name))

		provides := slices.ContainsFunc(gs, func(d Group) bool {
			return d.Needs == g.Name && slices.Contains(names, d.Name)
		})
		depends := g.Needs != "" && slices.Contains(names, g.Needs)

		if ruled || provides || depends {
			related = append(related, g.Name)
		}
	}

	return related
}

// Default returns the group for a commission that names none: the first needed
// group until it has a commissioned node, from then on the first group that
// needs it. Without rules it is the first group, without groups "".
func (gs Groups) Default(nodes []*Node) string {
	for _, g := range gs {
		if !gs.Needed(g.Name) {
			continue
		}

		// The state does not count here: a master that has disappeared is still the master.
		provides := func(n *Node) bool { return n.Group == g.Name && n.Commissioned() }
		if !slices.ContainsFunc(nodes, provides) {
			return g.Name
		}

		for _, dependent := range gs {
			if dependent.Needs == g.Name {
				return dependent.Name
			}
		}
	}

	if len(gs) == 0 {
		return ""
	}

	return gs[0].Name
}

// CheckJoin returns an error of KindRefused if the group needs another one that
// has no commissioned, Discovered node outside the batch.
func (gs Groups) CheckJoin(nodes []*Node, batch []string, group string) error {
	g, err := gs.Get(group)
	if err != nil {
		return err
	}

	if g.Needs == "" || len(providers(nodes, g.Needs, batch)) > 0 {
		return nil
	}

	return Errorf(KindRefused, "%s cannot join %s: no commissioned, Discovered %s exists outside this request",
		strings.Join(batch, ", "), g.Name, g.Needs).
		Do("commission a %s first", g.Needs).
		With(Submit(VerbCommission).Joining(g.Needs)).
		About(batch...)
}

// CheckLeave returns an error of KindRefused if nodes that stay in service need a
// group, the batch takes a node of that group out of service, and no provider
// remains. That includes a group without any provider already: its dependents
// have to leave first.
func (gs Groups) CheckLeave(nodes []*Node, batch []string) error {
	inBatch := set(batch)
	for _, g := range gs {
		if g.Needs == "" {
			continue
		}

		var leaving, dependents []string
		for _, n := range nodes {
			serves := n.Status == Allocated || n.Status == Maintenance

			switch {
			case inBatch[n.Name] && n.Group == g.Needs && serves:
				leaving = append(leaving, n.Name)
			case !inBatch[n.Name] && n.Group == g.Name && n.InService():
				dependents = append(dependents, n.Name)
			}
		}

		// The rule holds if nothing is lost, nothing depends on it, or a provider remains.
		if len(leaving) == 0 || len(dependents) == 0 || len(providers(nodes, g.Needs, batch)) > 0 {
			continue
		}

		return Errorf(KindRefused, "without %s no commissioned, Discovered %s is left for %s of group %s",
			strings.Join(leaving, ", "), g.Needs, shorten(dependents), g.Name).
			Do("commission another %s first, or decommission %s with it", g.Needs, shorten(dependents)).
			About(append(leaving, dependents...)...)
	}

	return nil
}

// providers returns the names of the commissioned, Discovered nodes of the group
// outside the batch.
func providers(nodes []*Node, group string, batch []string) []string {
	inBatch := set(batch)

	var names []string
	for _, n := range nodes {
		if n.Group == group && n.Commissioned() && n.State == Discovered && !inBatch[n.Name] {
			names = append(names, n.Name)
		}
	}

	return names
}

func set(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}

	return m
}

// shorten joins the names, at most five of them.
func shorten(names []string) string {
	if len(names) <= 5 {
		return strings.Join(names, ", ")
	}

	return strings.Join(names[:5], ", ") + fmt.Sprintf(" and %d more", len(names)-5)
}
