// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"fmt"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
)

// CommissionRule says which newly discovered nodes are commissioned without a person. See
// policy.Rule.
type CommissionRule struct {
	// Match is a selector of nodes. All: every node instead.
	Match string `json:"match,omitempty" yaml:"match,omitempty"`
	All   bool   `json:"all,omitempty" yaml:"all,omitempty"`
	// Group is the group that the nodes join, or Roles are several.
	Group    string     `json:"group,omitempty" yaml:"group,omitempty"`
	Roles    []RoleRule `json:"roles,omitempty" yaml:"roles,omitempty"`
	Priority int        `json:"priority,omitempty" yaml:"priority,omitempty"`
	// Maximum is the number of nodes of the group; with roles, of all of them, and 0 is no limit.
	Maximum  int       `json:"maximum,omitempty" yaml:"maximum,omitempty"`
	Rate     *int      `json:"rate,omitempty" yaml:"rate,omitempty"`         // nil: defaultCommissions
	Quiet    *Duration `json:"quiet,omitempty" yaml:"quiet,omitempty"`       // nil: defaultQuiet; 0: none
	Failures *int      `json:"failures,omitempty" yaml:"failures,omitempty"` // nil: defaultFailures
}

// The defaults of a CommissionRule.
const (
	defaultCommissions = 5
	defaultQuiet       = 5 * time.Minute
	defaultFailures    = 3

	maxQuiet = 7 * 24 * time.Hour
)

// maxRules is the number of policies of one kind.
const maxRules = 50

func (c *Config) checkCommission() error {
	for _, name := range sortedKeys(c.Policies.Commission) {
		if err := c.Policies.Commission[name].check(name, c.Groups); err != nil {
			return invalid("policies.commission."+name, "%w", err)
		}
	}

	return nil
}

func (r CommissionRule) check(name string, groups inventory.Groups) error {
	if err := checkRule(name, r.Match, r.All, groups); err != nil {
		return err
	}

	if err := r.checkRoles(groups); err != nil {
		return err
	}

	least := 1
	if len(r.Roles) > 0 {
		least = 0
	}

	for _, n := range []struct {
		key              string
		value, low, high int
	}{
		{"maximum", r.Maximum, least, maxCount},
		{"rate", or(r.Rate, 1), 1, 100},
		{"failures", or(r.Failures, 1), 1, 100},
		{"priority", r.Priority, -1000, 1000},
	} {
		if n.value < n.low || n.value > n.high {
			return fmt.Errorf("%s: %d is not within %d and %d", n.key, n.value, n.low, n.high)
		}
	}

	if quiet := time.Duration(or(r.Quiet, 0)); quiet < 0 || quiet > maxQuiet {
		return fmt.Errorf("quiet: %s is not within 0s and %s", quiet, maxQuiet)
	}

	return nil
}

// commissionRules returns the rules by name, without any that is wrong: a check has refused
// those.
func (c *Config) commissionRules() []policy.Rule {
	var rules []policy.Rule

	for _, name := range sortedKeys(c.Policies.Commission) {
		r := c.Policies.Commission[name]

		match, err := matcher(r.Match, c.Groups)
		if err != nil {
			continue
		}

		rules = append(rules, policy.Rule{
			Name: name, Match: match, Selector: r.Match, All: r.All, Group: r.Group, Roles: r.policyRoles(),
			Priority: r.Priority, Maximum: r.Maximum, Rate: or(r.Rate, defaultCommissions),
			Quiet:    time.Duration(or(r.Quiet, Duration(defaultQuiet))),
			Failures: or(r.Failures, defaultFailures),
		})
	}

	return rules
}
