// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/selector"
)

// MaxRules is the number of rules of a site.
const MaxRules = 50

// Rule says what follows from the facts of a node.
type Rule struct {
	Name string `json:"name" yaml:"name"`
	// When is a selector of nodes with the facts of the inspection.
	When string `json:"when" yaml:"when"`
	// Labels are set on the node.
	Labels map[string]string `json:"labels,omitempty" yaml:"labels,omitempty"`
	// Fail fails the inspection with this reason.
	Fail string `json:"fail,omitempty" yaml:"fail,omitempty"`
}

var ruleName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// Check returns what is wrong with the rules, or nil. groups are those that selectors may name.
func Check(rules []Rule, groups inventory.Groups) error {
	if len(rules) > MaxRules {
		return fmt.Errorf("%d rules are more than %d", len(rules), MaxRules)
	}

	names := map[string]bool{}

	for i, r := range rules {
		if err := r.check(groups); err != nil {
			return fmt.Errorf("rule %d (%s): %w", i+1, inventory.Shorten(r.Name, maxShown), err)
		}

		if names[r.Name] {
			return fmt.Errorf("rule %d (%s): another rule has that name; choose another one", i+1, r.Name)
		}
		names[r.Name] = true
	}

	return nil
}

// maxShown bounds a name in an error, in bytes.
const maxShown = 60

func (r Rule) check(groups inventory.Groups) error {
	switch {
	case !ruleName.MatchString(r.Name):
		return errors.New("the name of a rule has lower-case letters, digits and dashes, and 40 characters at most")
	case r.When == "":
		return errors.New("when is empty; write a condition on facts, such as facts.memory_mb<64000")
	case len(r.Labels) == 0 && r.Fail == "":
		return errors.New("it does nothing; write labels that it sets, or fail with a reason")
	}

	s, err := parse(r.When, groups)
	if err != nil {
		return fmt.Errorf("when: %w", err)
	}
	if !s.OfHardware() {
		return errors.New("when compares no fact; write a condition such as facts.memory_mb<64000")
	}

	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		if err := inventory.CheckLabelKey(key); err != nil {
			return fmt.Errorf("labels: %w", err)
		}
		if err := inventory.CheckLabelValue(r.Labels[key]); err != nil {
			return fmt.Errorf("labels: %w", err)
		}
	}

	if r.Fail == "" {
		return nil
	}

	if _, err := r.alert(clock); err != nil {
		return fmt.Errorf("fail: %w", err)
	}

	return nil
}

// parse parses a selector that the record of a node decides.
func parse(text string, groups inventory.Groups) (selector.Selector, error) {
	s, err := selector.Parse(text, func(name string) error {
		_, err := groups.Get(name)
		return err
	})
	if err != nil {
		return s, err
	}

	if field := s.Judged(); field != "" {
		return s, fmt.Errorf("%s is not in the record of a node; leave it out", field)
	}

	return s, nil
}
