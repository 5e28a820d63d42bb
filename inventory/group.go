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

// Group is a host group with its rules.
type Group struct {
	Name string `json:"name" yaml:"name"` // the name
	// The groups that must have so many healthy (commissioned and `Discovered`) nodes outside the request before
	// a node joins this group, and as long as a node of this group is in service.
	Requires Requirements `json:"requires,omitempty" yaml:"requires,omitempty"`
	// How many of its nodes may be out of service at a time; absent: no limit.
	Budget Budget `json:"budget,omitzero" yaml:"budget,omitempty"`
	// What happens to a node in service that disappeared and appears again; absent: `verify`.
	OnReturn Reaction `json:"on_return,omitempty" yaml:"on_return,omitempty"`
	// Bounds for its nodes in rollouts that do not say otherwise; absent: none.
	Strategy Strategy `json:"strategy,omitzero" yaml:"strategy,omitempty"`
	// Run only the tasks with one of these tags when its nodes are configured or verified; absent: all tasks.
	// They do not limit a cleanup.
	Tags []string `json:"tags,omitempty" yaml:"tags,omitempty"`
	// Leave out the tasks with one of these tags when its nodes are configured or verified.
	SkipTags []string `json:"skip_tags,omitempty" yaml:"skip_tags,omitempty"`
}

// Groups lists the host groups available to commission, in configured order.
type Groups []Group

// DefaultGroups returns the groups of a manager without configured groups.
func DefaultGroups() Groups {
	return Groups{{Name: GroupMaster}, {Name: GroupWorker, Requires: Requirements{GroupMaster: 1}}}
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
		}

		if err := g.Budget.Check(); err != nil {
			return Errorf(KindInvalid, "the budget of group %s: %w", g.Name, err)
		}

		if err := g.OnReturn.Check(); err != nil {
			return Errorf(KindInvalid, "on_return of group %s: %w", g.Name, err)
		}

		if err := g.Strategy.Check(); err != nil {
			return Errorf(KindInvalid, "the strategy of group %s: %w", g.Name, err)
		}

		if err := g.checkTags(); err != nil {
			return Errorf(KindInvalid, "group %s: %w", g.Name, err)
		}

		seen[g.Name] = true
	}

	// A rule may name a group that follows, so check the rules in a second pass.
	return gs.checkRequirements()
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
