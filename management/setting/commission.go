// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/selector"
	"github.com/contiv/cluster/management/state"
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
	Maximum  int      `json:"maximum,omitempty" yaml:"maximum,omitempty"`
	Rate     int      `json:"rate,omitempty" yaml:"rate,omitempty"`         // 0: defaultCommissions
	Quiet    Duration `json:"quiet,omitempty" yaml:"quiet,omitempty"`       // 0: defaultQuiet
	Failures int      `json:"failures,omitempty" yaml:"failures,omitempty"` // 0: defaultFailures
}

// The defaults of a CommissionRule.
const (
	defaultCommissions = 5
	defaultQuiet       = 5 * time.Minute
	defaultFailures    = 3
)

// MaxCommission is the number of rules.
const maxCommission = 50

var ruleName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

func (c *Config) checkCommission() error {
	if n := len(c.Policies.Commission); n > maxCommission {
		return invalid("policies.commission", "%d rules are more than %d", n, maxCommission)
	}

	for _, name := range slices.Sorted(maps.Keys(c.Policies.Commission)) {
		if err := c.Policies.Commission[name].check(name, c.Groups); err != nil {
			return invalid("policies.commission."+name, "%w", err)
		}
	}

	return nil
}

func (r CommissionRule) check(name string, groups inventory.Groups) error {
	taken := []string{policy.Returns{}.Name(), policy.BrakeName, state.AllPolicies}

	switch {
	case !ruleName.MatchString(name):
		return errors.New("the name of a policy has lower-case letters, digits and dashes, and 40 characters at most")
	case slices.Contains(taken, name):
		return errors.New("the name belongs to the manager; choose another one")
	case r.Match == "" && !r.All:
		return errors.New("match is empty; name the nodes by a selector, or write all: true for every node")
	case r.Match != "" && r.All:
		return errors.New("match and all exclude each other")
	}

	if _, err := r.matcher(groups); err != nil {
		return fmt.Errorf("match: %w", err)
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
		{"rate", r.Rate, 0, 100},
		{"failures", r.Failures, 0, 100},
		{"priority", r.Priority, -1000, 1000},
	} {
		if n.value < n.low || n.value > n.high {
			return fmt.Errorf("%s: %d is not within %d and %d", n.key, n.value, n.low, n.high)
		}
	}

	if r.Quiet < 0 || r.Quiet > Duration(7*24*time.Hour) {
		return fmt.Errorf("quiet: %s is not within 0s and 168h", time.Duration(r.Quiet))
	}

	return nil
}

// matcher returns the condition on nodes.
func (r CommissionRule) matcher(groups inventory.Groups) (func(*inventory.Node) bool, error) {
	checkGroup := func(name string) error {
		_, err := groups.Get(name)
		return err
	}

	s, err := selector.Parse(r.Match, checkGroup)
	if err != nil {
		return nil, err
	}

	if s.Judges() {
		return nil, errors.New("outdated is not in the record of a node; leave it out")
	}

	return s.Matches, nil
}

// commissionRules returns the rules by name, without any that is wrong: a check has refused
// those.
func (c *Config) commissionRules() []policy.Rule {
	var rules []policy.Rule

	for _, name := range slices.Sorted(maps.Keys(c.Policies.Commission)) {
		r := c.Policies.Commission[name]

		match, err := r.matcher(c.Groups)
		if err != nil {
			continue
		}

		rules = append(rules, policy.Rule{
			Name: name, Match: match, Selector: r.Match, All: r.All, Group: r.Group, Roles: r.policyRoles(),
			Priority: r.Priority, Maximum: r.Maximum, Rate: cmp.Or(r.Rate, defaultCommissions),
			Quiet:    time.Duration(cmp.Or(r.Quiet, Duration(defaultQuiet))),
			Failures: cmp.Or(r.Failures, defaultFailures),
		})
	}

	return rules
}
