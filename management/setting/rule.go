// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/selector"
	"github.com/contiv/cluster/management/state"
)

var ruleName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// checkRule refuses the name of a policy, or its choice of nodes.
func checkRule(name, match string, all bool, groups inventory.Groups) error {
	taken := []string{policy.Returns{}.Name(), policy.BrakeName, state.AllPolicies}

	switch {
	case !ruleName.MatchString(name):
		return errors.New("the name of a policy has lower-case letters, digits and dashes, and 40 characters at most")
	case slices.Contains(taken, name):
		return errors.New("the name belongs to the manager; choose another one")
	case match == "" && !all:
		return errors.New("match is empty; name the nodes by a selector, or write all: true for every node")
	case match != "" && all:
		return errors.New("match and all exclude each other")
	}

	if _, err := matcher(match, groups); err != nil {
		return fmt.Errorf("match: %w", err)
	}

	return nil
}

// matcher returns the condition of a selector on nodes.
func matcher(match string, groups inventory.Groups) (func(*inventory.Node) bool, error) {
	checkGroup := func(name string) error {
		_, err := groups.Get(name)
		return err
	}

	s, err := selector.Parse(match, checkGroup)
	if err != nil {
		return nil, err
	}
	if field := s.Judged(); field != "" {
		return nil, fmt.Errorf("%s is not in the record of a node; leave it out", field)
	}

	return s.Matches, nil
}

// checkNames refuses a name that several policies have.
func (c *Config) checkNames() error {
	section := map[string]string{}

	for _, rules := range []struct {
		key   string
		names []string
	}{
		{"policies.commission", sortedKeys(c.Policies.Commission)},
		{"policies.upgrade", sortedKeys(c.Policies.Upgrade)},
		{"policies.verify", sortedKeys(c.Policies.Verify)},
	} {
		if n := len(rules.names); n > maxRules {
			return invalid(rules.key, "%d rules are more than %d", n, maxRules)
		}

		for _, name := range rules.names {
			if other := section[name]; other != "" {
				return invalid(rules.key+"."+name, "%s has a policy of that name; choose another one", other)
			}

			section[name] = rules.key
		}
	}

	return nil
}

// or returns the value that is set, or else the default.
func or[V any](set *V, otherwise V) V {
	if set == nil {
		return otherwise
	}
	return *set
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
