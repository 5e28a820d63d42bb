// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"fmt"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/window"
)

// VerifyRule says which nodes in service are verified at which times. See policy.VerifyRule.
type VerifyRule struct {
	// Match is a selector of nodes. All: every node instead.
	Match    string    `json:"match,omitempty" yaml:"match,omitempty"`
	All      bool      `json:"all,omitempty" yaml:"all,omitempty"`
	Cron     string    `json:"cron" yaml:"cron"`
	TimeZone string    `json:"time_zone,omitempty" yaml:"time_zone,omitempty"` // empty: UTC
	Spread   *Duration `json:"spread,omitempty" yaml:"spread,omitempty"`       // nil: see policy.VerifyRule
	Batch    *int      `json:"batch,omitempty" yaml:"batch,omitempty"`         // nil: defaultBatch
	Jobs     *int      `json:"jobs,omitempty" yaml:"jobs,omitempty"`           // nil: 1
}

// The bounds of a VerifyRule.
const (
	defaultBatch = 10
	maxBatch     = 100
)

func (c *Config) checkVerify() error {
	for _, name := range sortedKeys(c.Policies.Verify) {
		if err := c.Policies.Verify[name].check(name, c.Groups); err != nil {
			return invalid("policies.verify."+name, "%w", err)
		}
	}

	return nil
}

func (r VerifyRule) check(name string, groups inventory.Groups) error {
	if err := checkRule(name, r.Match, r.All, groups); err != nil {
		return err
	}

	times, err := window.ParseTimes(r.Cron, r.TimeZone)
	if err == nil {
		err = times.Check()
	}

	if err != nil {
		return err
	}

	// A longer spread would run into the next run.
	switch batch, jobs, shortest := or(r.Batch, 1), or(r.Jobs, 1), times.Shortest(); {
	case batch < 1 || batch > maxBatch:
		return fmt.Errorf("batch: %d is not within 1 and %d", batch, maxBatch)
	case jobs < 1 || jobs > maxBatch:
		return fmt.Errorf("jobs: %d is not within 1 and %d", jobs, maxBatch)
	case shortest > 0 && time.Duration(or(r.Spread, 0)) > shortest/2:
		return fmt.Errorf("spread: %s is longer than half of %s, the shortest time between two runs",
			*r.Spread, window.Short(shortest))
	}

	return nil
}

// verifyRules returns the rules by name, without any that is wrong: a check has refused those.
func (c *Config) verifyRules() []policy.VerifyRule {
	var rules []policy.VerifyRule

	for _, name := range sortedKeys(c.Policies.Verify) {
		r := c.Policies.Verify[name]

		match, err := matcher(r.Match, c.Groups)
		if err != nil {
			continue
		}

		times, err := window.ParseTimes(r.Cron, r.TimeZone)
		if err != nil {
			continue
		}

		rules = append(rules, policy.VerifyRule{
			Name: name, Match: match, Selector: r.Match, All: r.All, Times: times, Spread: (*time.Duration)(r.Spread),
			Batch: or(r.Batch, defaultBatch), Jobs: or(r.Jobs, 1),
		})
	}

	return rules
}
