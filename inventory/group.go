// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
	"strings"
)

// The groups that exist without configuration.
const (
	GroupMaster  = "service-master"
	GroupWorker  = "service-worker"
	GroupPrepare = "cluster-node" // hosts being prepared for discovery; no node is commissioned into it
)

// Group is a host group and its rule, as data.
type Group struct {
	Name string `json:"name" yaml:"name"`
	// Needs names the group of which a commissioned, Discovered node must exist
	// outside the request before a node is commissioned into this one, and as
	// long as a node of this one is in service. Empty: no such rule.
	Needs string `json:"needs,omitempty" yaml:"needs,omitempty"`
}

// Groups are all host groups that a node can be commissioned into, in the order
// of their configuration.
type Groups []Group

// DefaultGroups are the groups of a manager whose configuration names none.
func DefaultGroups() Groups {
	return Groups{{Name: GroupMaster}, {Name: GroupWorker, Needs: GroupMaster}}
}

// Check refuses groups whose names or rules make no sense.
func (gs Groups) Check() error {
	seen := map[string]bool{}
	for _, g := range gs {
		if err := CheckGroup(g.Name); err != nil {
			return err
		}

		switch {
		case seen[g.Name]:
			return Errorf(KindInvalid, "group %s is configured twice", g.Name)
		case g.Name == GroupPrepare,
			g.Name == "all",
			g.Name == "ungrouped",
			g.Name == "job_targets",
			g.Name == "job_helpers":
			return Errorf(KindInvalid, "the group name %q is reserved", g.Name)
		case g.Needs == g.Name:
			return Errorf(KindInvalid, "group %s needs itself", g.Name)
		}

		seen[g.Name] = true
	}

	for _, g := range gs {
		if g.Needs != "" && !seen[g.Needs] {
			return Errorf(KindInvalid, "group %s needs group %s, which is not configured", g.Name, g.Needs)
		}
	}

	if len(gs) == 0 {
		return Errorf(
			KindInvalid,
			"no group is configured",
		).Do("leave the key out to get %s and %s", GroupMaster, GroupWorker)
	}

	return nil
}

// Get returns the group of that name, or KindNotFound naming those that exist.
func (gs Groups) Get(name string) (Group, error) {
	for _, g := range gs {
		if g.Name == name {
			return g, nil
		}
	}

	return Group{}, Errorf(
		KindNotFound,
		"there is no group %q",
		name,
	).Do("the groups are %s", strings.Join(gs.Names(), ", "))
}

// Names lists the groups' names in order.
func (gs Groups) Names() []string {
	names := make([]string, len(gs))
	for i, g := range gs {
		names[i] = g.Name
	}

	return names
}

// Needed tells whether any group needs this one.
func (gs Groups) Needed(name string) bool {
	return name != "" && slices.ContainsFunc(gs, func(g Group) bool { return g.Needs == name })
}

// Default is the group of a commission that names none: the first group that
// others need as long as nobody is commissioned in it, else the first group
// that needs it; with no rules at all the first group.
func (gs Groups) Default(nodes []*Node) string {
	for _, g := range gs {
		if !gs.Needed(g.Name) {
			continue
		}

		if !slices.ContainsFunc(nodes, func(n *Node) bool { return n.Group == g.Name && n.Commissioned() }) {
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

// CheckJoin refuses to bring the batch into the group while the group it needs
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
		Do("commission a %s first: clusterctl nodes commission NAME -g %s", g.Needs, g.Needs).About(batch...)
}

// CheckLeave refuses to take the batch out of service when that leaves nodes of
// another group without what they need. Where it already lacks it, and the
// batch would change nothing about that, it is refused as well: the dependents
// go first.
func (gs Groups) CheckLeave(nodes []*Node, batch []string) error {
	leavers := set(batch)
	for _, g := range gs {
		if g.Needs == "" {
			continue
		}

		var leaving, dependents []string
		for _, n := range nodes {
			in := leavers[n.Name]
			switch {
			case in && n.Group == g.Needs && (n.Status == Allocated || n.Status == Maintenance):
				leaving = append(leaving, n.Name)
			case !in && n.Group == g.Name && n.InService():
				dependents = append(dependents, n.Name)
			}
		}

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

// providers are the commissioned, Discovered nodes of the group outside the batch.
func providers(nodes []*Node, group string, batch []string) []string {
	out := set(batch)

	var names []string
	for _, n := range nodes {
		if n.Group == group && n.Commissioned() && n.State == Discovered && !out[n.Name] {
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

func shorten(names []string) string {
	if len(names) <= 5 {
		return strings.Join(names, ", ")
	}

	return strings.Join(names[:5], ", ") + fmt.Sprintf(" and %d more", len(names)-5)
}
