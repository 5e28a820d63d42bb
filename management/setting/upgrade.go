// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/rollout"
)

// UpgradeRule says which nodes in service follow the repository, and how carefully. The names
// from Action on are those of a request for a rollout. See policy.UpgradeRule.
type UpgradeRule struct {
	// Match is a selector of nodes. All: every node instead.
	Match  string             `json:"match,omitempty" yaml:"match,omitempty"`
	All    bool               `json:"all,omitempty" yaml:"all,omitempty"`
	Mode   policy.UpgradeMode `json:"mode" yaml:"mode"`
	Settle *Duration          `json:"settle,omitempty" yaml:"settle,omitempty"` // nil: defaultSettle; 0: none

	Action         inventory.Verb             `json:"action,omitempty" yaml:"action,omitempty"` // empty: apply
	MaxUnavailable string                     `json:"max_unavailable,omitempty" yaml:"max_unavailable,omitempty"`
	MaxFailures    int                        `json:"max_failures,omitempty" yaml:"max_failures,omitempty"`
	Canary         int                        `json:"canary,omitempty" yaml:"canary,omitempty"`
	Promote        bool                       `json:"promote,omitempty" yaml:"promote,omitempty"`
	Soak           Duration                   `json:"soak,omitempty" yaml:"soak,omitempty"`
	Order          UpgradeOrder               `json:"order,omitzero" yaml:"order,omitempty"`
	Strategies     map[string]UpgradeStrategy `json:"strategies,omitempty" yaml:"strategies,omitempty"`
	Gate           UpgradeGate                `json:"gate,omitzero" yaml:"gate,omitempty"`
	Tags           []string                   `json:"tags,omitempty" yaml:"tags,omitempty"`
	SkipTags       []string                   `json:"skip_tags,omitempty" yaml:"skip_tags,omitempty"`
	Timeout        *Duration                  `json:"timeout,omitempty" yaml:"timeout,omitempty"` // nil: jobs.timeout
}

// UpgradeOrder is the order in which nodes are begun, see rollout.Order.
type UpgradeOrder struct {
	By    rollout.By `json:"by,omitempty" yaml:"by,omitempty"`
	Label string     `json:"label,omitempty" yaml:"label,omitempty"`
}

// UpgradeStrategy bounds the nodes of one group further, see rollout.Strategy.
type UpgradeStrategy struct {
	MaxUnavailable string    `json:"max_unavailable,omitempty" yaml:"max_unavailable,omitempty"`
	MaxFailures    *int      `json:"max_failures,omitempty" yaml:"max_failures,omitempty"`
	Soak           *Duration `json:"soak,omitempty" yaml:"soak,omitempty"`
}

// UpgradeGate has the checks of a node after its job, see rollout.Gate.
type UpgradeGate struct {
	SkipVerify bool          `json:"skip_verify,omitempty" yaml:"skip_verify,omitempty"`
	HTTP       *UpgradeCheck `json:"http,omitempty" yaml:"http,omitempty"`
	// Command is one of gate_commands.
	Command *UpgradeCommand `json:"command,omitempty" yaml:"command,omitempty"`
}

// UpgradeCommand is a configured command, see rollout.CommandCheck.
type UpgradeCommand struct {
	Name    string   `json:"name" yaml:"name"`
	Timeout Duration `json:"timeout,omitempty" yaml:"timeout,omitempty"`
}

// UpgradeCheck is a request to the address of the node, see rollout.HTTPCheck.
type UpgradeCheck struct {
	TLS     bool      `json:"tls,omitempty" yaml:"tls,omitempty"`
	Port    int       `json:"port" yaml:"port"`
	Path    string    `json:"path,omitempty" yaml:"path,omitempty"`
	Status  int       `json:"status,omitempty" yaml:"status,omitempty"`
	Timeout *Duration `json:"timeout,omitempty" yaml:"timeout,omitempty"` // nil: that of rollout.HTTPCheck
}

// The settle time of an UpgradeRule: its default, and its bound.
const (
	defaultSettle = time.Minute
	maxSettle     = 7 * 24 * time.Hour
)

func (c *Config) checkUpgrade() error {
	for _, name := range sortedKeys(c.Policies.Upgrade) {
		rule := c.Policies.Upgrade[name]
		if err := rule.check(name, c.Groups); err != nil {
			return invalid("policies.upgrade."+name, "%w", err)
		}

		if g := rule.Gate.Command; g != nil && c.GateCommands[g.Name] == nil {
			return invalid("policies.upgrade."+name, "gate: %w",
				rollout.UnknownCommand(g.Name, sortedKeys(c.GateCommands)))
		}
	}

	return c.checkOverlap()
}

// checkOverlap refuses two rules for the same nodes: the second one would never decide on any.
func (c *Config) checkOverlap() error {
	owner := map[string]string{}

	for _, name := range sortedKeys(c.Policies.Upgrade) {
		match := strings.Join(strings.Fields(c.Policies.Upgrade[name].Match), " ")
		if other := owner[match]; other != "" {
			return invalid(
				"policies.upgrade."+name,
				"policies.upgrade.%s is for the same nodes, and comes first by name; "+
					"choose other nodes, or leave one of the two out",
				other,
			)
		}

		owner[match] = name
	}

	return nil
}

func (r UpgradeRule) check(name string, groups inventory.Groups) error {
	if err := checkRule(name, r.Match, r.All, groups); err != nil {
		return err
	}

	spec := r.spec()

	switch {
	case or(r.Timeout, 1) == 0:
		return errors.New("timeout: 0s is no time for a job; leave it out for that of jobs.timeout")
	case r.Gate.HTTP != nil && or(r.Gate.HTTP.Timeout, 1) == 0:
		return errors.New("gate.http.timeout: 0s is no time for an answer; leave it out for the default")
	case r.Mode == "":
		return fmt.Errorf("mode is missing; write %s", inventory.Choices(policy.UpgradeModes))
	case !slices.Contains(policy.UpgradeModes, r.Mode):
		return fmt.Errorf("mode is %q; write %s", r.Mode, inventory.Choices(policy.UpgradeModes))
	case !slices.Contains(policy.UpgradeActions, spec.Action):
		return fmt.Errorf("action is %q; write %s", spec.Action, inventory.Choices(policy.UpgradeActions))
	case or(r.Settle, 0) > Duration(maxSettle):
		return fmt.Errorf("settle: %s is not within 0s and %s", *r.Settle, Duration(maxSettle))
	}

	return spec.Check(groups)
}

// spec returns the specification of the rollouts.
func (r UpgradeRule) spec() rollout.Spec {
	s := rollout.Spec{
		Action: cmp.Or(r.Action, inventory.VerbApply), MaxUnavailable: r.MaxUnavailable, MaxFailures: r.MaxFailures,
		Canary: r.Canary, Promote: r.Promote, Soak: time.Duration(r.Soak), Order: rollout.Order(r.Order),
		Gate:          rollout.Gate{SkipVerify: r.Gate.SkipVerify},
		SharedOptions: inventory.SharedOptions{Tags: r.Tags, SkipTags: r.SkipTags},
		Timeout:       time.Duration(or(r.Timeout, 0)),
	}

	if h := r.Gate.HTTP; h != nil {
		s.Gate.HTTP = &rollout.HTTPCheck{
			TLS: h.TLS, Port: h.Port, Path: h.Path, Status: h.Status, Timeout: time.Duration(or(h.Timeout, 0)),
		}
	}

	if g := r.Gate.Command; g != nil {
		s.Gate.Command = &rollout.CommandCheck{Name: g.Name, Timeout: time.Duration(g.Timeout)}
	}

	for group, one := range r.Strategies {
		if s.Strategies == nil {
			s.Strategies = map[string]rollout.Strategy{}
		}

		s.Strategies[group] = rollout.Strategy{
			MaxUnavailable: one.MaxUnavailable, MaxFailures: one.MaxFailures, Soak: (*time.Duration)(one.Soak),
		}
	}

	return s
}

// upgradeRules returns the rules by name, without any that is wrong: a check has refused those.
func (c *Config) upgradeRules() []policy.UpgradeRule {
	var rules []policy.UpgradeRule

	for _, name := range sortedKeys(c.Policies.Upgrade) {
		r := c.Policies.Upgrade[name]

		match, err := matcher(r.Match, c.Groups)
		if err != nil {
			continue
		}

		rules = append(rules, policy.UpgradeRule{
			Name: name, Match: match, Selector: r.Match, All: r.All, Mode: r.Mode,
			Settle: time.Duration(or(r.Settle, Duration(defaultSettle))), Spec: r.spec(),
		})
	}

	return rules
}
