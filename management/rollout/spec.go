// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// Spec describes what a rollout does, and within which limits.
type Spec struct {
	Action inventory.Verb `json:"action"` // one of Actions
	// Selector is the selector of the request, for display; empty: nodes were named.
	Selector string `json:"selector,omitempty"`
	Group    string `json:"group,omitempty"` // commission: the group to join; update: the group to move to, or empty

	// MaxUnavailable bounds the nodes out of service at any time: a number, or a share of all
	// nodes such as 10%, rounded down and at least 1. Empty: 1.
	MaxUnavailable string `json:"max_unavailable,omitempty"`
	// MaxFailures is the number of failed nodes that the rollout tolerates: one more stops it.
	MaxFailures int `json:"max_failures,omitempty"`
	// Canary is the number of nodes that go first. All of them must succeed. 0: none.
	Canary int `json:"canary,omitempty"`
	// Promote: after the canary, a person must promote the rollout.
	Promote bool `json:"promote,omitempty"`
	// Soak is how long a node must stay discovered after its gate before it is done.
	Soak  time.Duration `json:"soak,omitempty"`
	Order Order         `json:"order,omitzero"`
	// Strategies bound the nodes of single groups further, by the group's name.
	Strategies map[string]Strategy `json:"strategies,omitempty"`
	Gate       Gate                `json:"gate,omitzero"`

	RequireApproval bool `json:"require_approval,omitempty"` // another person must approve it first

	inventory.SharedOptions // handed on to the jobs

	Timeout time.Duration `json:"timeout,omitempty"` // of each job; 0: the configured default
}

// By is the property that the nodes of a rollout are ordered by.
type By string

// The orders.
const (
	ByName  By = "name"
	ByGroup By = "group" // one group after the other begins, each by name
	ByLabel By = "label" // by the value of a label; never two nodes of one value at once
)

// Order is the order in which nodes are begun.
type Order struct {
	By    By     `json:"by,omitempty"`    // empty: ByName
	Label string `json:"label,omitempty"` // ByLabel: its key, such as rack
}

// Strategy bounds the nodes of one group, besides the bounds of the rollout.
type Strategy struct {
	// MaxUnavailable bounds the group's nodes in the rollout; empty: no further bound.
	MaxUnavailable string `json:"max_unavailable,omitempty"`
	MaxFailures    *int   `json:"max_failures,omitempty"` // of the group's nodes; nil: no further bound
	// Soak is that of the group's nodes; nil: that of the rollout.
	Soak *time.Duration `json:"soak,omitempty"`
}

// Gate is the set of checks that a node must pass after its job.
type Gate struct {
	// SkipVerify skips the verification, which actions that configure a node otherwise have. A
	// verification passes if it finds no drift.
	SkipVerify bool       `json:"skip_verify,omitempty"`
	HTTP       *HTTPCheck `json:"http,omitempty"` // nil: none
	// Command is run once the HTTP check has succeeded, if there are both. nil: none.
	Command *CommandCheck `json:"command,omitempty"`
}

// HTTPCheck is a request of the manager to the address of the node. It is repeated until it
// succeeds or its time is over. Only the status of the answer counts. No redirect is followed.
type HTTPCheck struct {
	TLS bool `json:"tls,omitempty"` // https; the certificate is not verified, as no secret is sent
	// Port and Path are those of the URL. The host is always the node's address.
	Port    int           `json:"port"`
	Path    string        `json:"path,omitempty"`
	Status  int           `json:"status,omitempty"`  // of the answer; 0: any of 200 to 299
	Timeout time.Duration `json:"timeout,omitempty"` // 0: DefaultCheckTime
}

// CommandCheck is a command that the manager runs for the node. It is repeated until its exit
// status is 0 or its time is over. The configuration file has the command, and a request only
// its name.
type CommandCheck struct {
	Name    string        `json:"name"`
	Timeout time.Duration `json:"timeout,omitempty"` // 0: DefaultCheckTime
}

// DefaultCheckTime is the timeout of a check that sets none, from its first attempt.
const DefaultCheckTime = time.Minute

// Request asks for a rollout.
type Request struct {
	Spec

	Nodes []string // as selected or named
	Extra configuration.Vars
	// Playbooks is the digest that the playbooks must have at the start; empty: any.
	Playbooks string
}

// Act is what a person does to a rollout.
type Act string

// The acts.
const (
	ActApprove Act = "approve" // let it begin; another person must have started it
	ActPromote Act = "promote" // let it go on after its canary
	ActPause   Act = "pause"   // keep it from beginning nodes
	ActResume  Act = "resume"  // let it go on after a pause, or after failures
	ActAbort   Act = "abort"   // end it
	ActRetry   Act = "retry"   // let nodes be begun once more
)

// ActOptions are the options of acts.
type ActOptions struct {
	Nodes []string // of a retry: of the failed and skipped nodes; empty: all that failed
	// PlaybooksNow, of a resume or a retry, takes the configured playbooks as they are now for the nodes
	// still to be begun.
	PlaybooksNow bool
	Cancel       bool // of an abort: cancel the jobs of the rollout instead of letting them finish
	Reason       string
}
