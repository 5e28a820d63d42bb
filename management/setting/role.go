// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"errors"
	"fmt"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
)

// RoleRule is a group that a CommissionRule fills. See policy.Role.
type RoleRule struct {
	Group string `json:"group" yaml:"group"`
	// Count is the number of nodes; only the last role may leave it out, and then takes
	// all that are left.
	Count        *int      `json:"count,omitempty" yaml:"count,omitempty"`
	Spread       string    `json:"spread,omitempty" yaml:"spread,omitempty"`               // the key of a label
	ReplaceAfter *Duration `json:"replace_after,omitempty" yaml:"replace_after,omitempty"` // nil: never
	// Fence is empty, or how a lost node is kept from acting before it is replaced.
	Fence policy.Fence `json:"fence,omitempty" yaml:"fence,omitempty"`
}

const (
	maxRoles = 20
	maxCount = 10_000
	// A shorter time would replace nodes that only reboot.
	minReplace = time.Minute
	maxReplace = 30 * 24 * time.Hour
)

// checkRoles validates the groups that the rule fills.
func (r CommissionRule) checkRoles(groups inventory.Groups) error {
	switch {
	case r.Group != "" && len(r.Roles) > 0:
		return errors.New("group and roles exclude each other: write the group as one of the roles")
	case r.Group == "" && len(r.Roles) == 0:
		return errors.New("group is empty; name the group that the nodes join, or several in roles")
	case len(r.Roles) > maxRoles:
		return fmt.Errorf("roles: %d roles are more than %d", len(r.Roles), maxRoles)
	}

	if r.Group != "" {
		if _, err := groups.Get(r.Group); err != nil {
			return fmt.Errorf("group: %w", err)
		}
		return nil
	}

	// Two roles of one group would count the same nodes.
	seen := map[string]bool{}

	for i, role := range r.Roles {
		if err := role.check(groups, i == len(r.Roles)-1); err != nil {
			return fmt.Errorf("roles[%d].%w", i, err)
		}

		if seen[role.Group] {
			return fmt.Errorf("roles[%d].group: %s is there twice; give it one role with the sum of the counts",
				i, role.Group)
		}

		seen[role.Group] = true
	}

	return r.checkOrder(groups)
}

func (r RoleRule) check(groups inventory.Groups, last bool) error {
	if _, err := groups.Get(r.Group); err != nil {
		return fmt.Errorf("group: %w", err)
	}

	switch {
	case r.Count == nil && !last:
		return errors.New("count is missing: only the last role may leave it out, and takes all nodes that are left")
	case r.Count != nil && (*r.Count < 1 || *r.Count > maxCount):
		return fmt.Errorf("count: %d is not within 1 and %d", *r.Count, maxCount)
	case r.Count == nil && r.ReplaceAfter != nil:
		return errors.New("replace_after needs a count: without one, every new node joins anyway")
	case r.Fence != "" && r.Fence != policy.FencePower:
		return fmt.Errorf("fence: %q is not %s; leave it out to replace lost nodes without turning them off",
			r.Fence, policy.FencePower)
	case r.Fence != "" && r.ReplaceAfter == nil:
		return errors.New("fence needs replace_after: without that, no lost node is replaced")
	}

	if after := time.Duration(or(r.ReplaceAfter, Duration(minReplace))); after < minReplace || after > maxReplace {
		return fmt.Errorf("replace_after: %s is not within %s and %s; leave it out to replace none",
			Duration(after), Duration(minReplace), Duration(maxReplace))
	}

	if r.Spread == "" {
		return nil
	}

	if err := inventory.CheckLabelKey(r.Spread); err != nil {
		return fmt.Errorf("spread: %w", err)
	}

	return nil
}

// checkOrder refuses a role before the one whose group it requires: it would take all nodes
// and wait for ever.
func (r CommissionRule) checkOrder(groups inventory.Groups) error {
	// A group outside of the roles is the business of the operator.
	all := r.providers(len(r.Roles))

	for i, role := range r.Roles {
		joiner := []string{"a new node"}
		if groups.CheckJoin(r.providers(i), joiner, role.Group) != nil &&
			groups.CheckJoin(all, joiner, role.Group) == nil {
			return fmt.Errorf("roles[%d].group: %s requires a group that comes after it; write that role first",
				i, role.Group)
		}
	}

	return nil
}

// providers returns nodes in service as the first roles would have them.
func (r CommissionRule) providers(roles int) []*inventory.Node {
	var nodes []*inventory.Node

	for _, role := range r.Roles[:roles] {
		count := maxProviders
		if role.Count != nil {
			count = min(*role.Count, maxProviders)
		}

		for i := range count {
			nodes = append(nodes, &inventory.Node{
				Name: fmt.Sprintf("%s-%d", role.Group, i), Group: role.Group, Status: inventory.Allocated,
				State: inventory.Discovered,
			})
		}
	}

	return nodes
}

// maxProviders is more than any group requires in practice.
const maxProviders = 100

// policyRoles returns the roles of the rule for the policy.
func (r CommissionRule) policyRoles() []policy.Role {
	var roles []policy.Role

	for _, role := range r.Roles {
		p := policy.Role{
			Group: role.Group, Spread: role.Spread, ReplaceAfter: time.Duration(or(role.ReplaceAfter, 0)),
			Fence: role.Fence,
			Rest:  role.Count == nil,
		}
		if role.Count != nil {
			p.Count = *role.Count
		}
		roles = append(roles, p)
	}

	return roles
}
