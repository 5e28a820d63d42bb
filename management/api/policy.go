// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"github.com/contiv/cluster/inventory"
)

// AllPolicies stands for every policy in PathPausePolicy and PathResumePolicy.
const AllPolicies = "all"

// Policies is the state of automation.
type Policies struct {
	Brake    Brake        `json:"brake"`
	Paused   *PolicyPause `json:"paused,omitempty"` // the pause of all policies
	Policies []Policy     `json:"policies"`         // every policy
	// The newest decisions of all policies and of the brake, the newest first; 200 at most.
	Decisions []Decision `json:"decisions"`
}

// Brake is the brake: it stops automation while many nodes have vanished at once, which is a fault of the
// network.
type Brake struct {
	// Whether it holds automation now. States of nodes are recorded all the same.
	Engaged    bool      `json:"engaged"`
	Message    string    `json:"message,omitempty"`     // why it is on, and what releases it
	Since      time.Time `json:"since,omitzero"`        // when it was set off
	Until      time.Time `json:"until,omitzero"`        // when it releases itself; absent if only an operator does
	Lost       []string  `json:"lost,omitempty"`        // nodes that vanished, 50 at most
	Vanished   int       `json:"vanished,omitempty"`    // the number of nodes that vanished
	Visible    int       `json:"visible,omitempty"`     // the number of nodes that were visible before
	Released   time.Time `json:"released,omitzero"`     // the time of the newest release
	ReleasedBy string    `json:"released_by,omitempty"` // who released it
	Reason     string    `json:"reason,omitempty"`      // the reason of that release
}

// Policy is the state of a policy.
type Policy struct {
	// Its name: `returns`, or that of a rule in `policies.commission`.
	Name   string       `json:"name"`
	About  string       `json:"about"`            // what it does, as it is configured
	On     bool         `json:"on"`               // whether it is turned on
	Turned *PolicyTurn  `json:"turned,omitempty"` // the newest turn; absent if it is as it begins
	Paused *PolicyPause `json:"paused,omitempty"`
	// Why it does not act now: it is off, the brake, or a pause.
	Halted  string `json:"halted,omitempty"`
	Pending int    `json:"pending"` // the number of nodes on which it has not decided
	// The groups that it fills; absent for a policy without roles.
	Roles     []PolicyRole `json:"roles,omitempty"`
	Decisions []Decision   `json:"decisions"` // its newest decisions, the newest first
}

// PolicyRole is a group that a policy fills with new nodes, and its nodes.
type PolicyRole struct {
	Group string `json:"group"` // the group
	// The number of nodes that are wanted; absent for as many as there are.
	Count int `json:"count,omitempty" minimum:"1"`
	// How long a node has to be lost before a new one takes its place; absent for never.
	ReplaceAfter string `json:"replace_after,omitempty"`
	// What a lost node needs before that. power: its BMC has turned it off; absent for nothing.
	Fence  string `json:"fence,omitempty" enum:"power"`
	Spread string `json:"spread,omitempty"` // the label over whose values the nodes are spread
	// The number of nodes by the value of that label. Lost nodes do not count.
	Places    map[string]int `json:"places,omitempty"`
	InService int            `json:"in_service"` // the nodes in service, silent ones included
	// Those that are seen, and on which no job works but a verification.
	Healthy int `json:"healthy"`
	Coming  int `json:"coming"` // the nodes on their way into the group
	// The nodes beyond the count. None is removed automatically.
	Surplus int `json:"surplus"`
	// The nodes in service that the observers do not see.
	Silent   []string `json:"silent,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // what needs an operator
	// On nodes that are out of service, whether they are replaced and when.
	Notes []string `json:"notes,omitempty"`
}

// PolicyPause is a pause of a policy.
type PolicyPause struct {
	Since  time.Time `json:"since"`            // when it began
	Actor  string    `json:"actor"`            // who paused the policy
	Reason string    `json:"reason,omitempty"` // why
}

// PolicyTurn is turns a policy on or off.
type PolicyTurn struct {
	On     bool      `json:"on"`               // whether it is turned on
	Since  time.Time `json:"since"`            // when
	Actor  string    `json:"actor"`            // the principal, or the policy that stopped itself
	Reason string    `json:"reason,omitempty"` // the operator's reason, or the failures
}

// PolicyEnable is a request to turn a policy on.
type PolicyEnable struct {
	All    bool   `json:"all,omitempty"`    // required, and allowed, for a policy that is for every node
	Reason string `json:"reason,omitempty"` // the operator's reason
}

// PolicyTest is a request for what a policy would do.
type PolicyTest struct {
	// The inventory to test with; absent for that of today.
	Nodes *[]PolicyTestNode `json:"nodes,omitempty" maxItems:"10000"`
}

// PolicyTestNode is a node of a given inventory, with the fields of a node of the same name.
type PolicyTestNode struct {
	Name       string           `json:"name"`           // its name: `LABEL-SERIAL`
	Addr       string           `json:"addr,omitempty"` // its address
	Status     inventory.Status `json:"status"`
	PrevStatus inventory.Status `json:"prev_status,omitempty"`
	State      inventory.State  `json:"state"`
	Group      string           `json:"group,omitempty"` // its host group
	// Groups with configuration that no cleanup has removed.
	Residue   []string          `json:"residue,omitempty"`
	LastError string            `json:"last_error,omitempty"` // the reason for its last failed verb
	Labels    map[string]string `json:"labels,omitempty"`     // its labels
	// Addresses of further live hosts with its identity.
	Duplicates []string   `json:"duplicates,omitempty"`
	Created    *time.Time `json:"created,omitempty"` // since when it is seen; absent for long ago
	// Since when it is Disappeared or Quarantined; absent for long ago.
	Updated *time.Time `json:"updated,omitempty"`
}

// PolicyTested is what a policy would do if it were on and nothing held it.
type PolicyTested struct {
	Policy   string          `json:"policy"`           // the policy
	About    string          `json:"about"`            // what it does, as it is configured
	On       bool            `json:"on"`               // whether it is turned on
	Halted   string          `json:"halted,omitempty"` // why it does not act now
	Nodes    int             `json:"nodes"`            // the number of nodes of the inventory
	Outlooks []PolicyOutlook `json:"outlooks"`         // the nodes that concern it
	// The groups that it fills; absent for a policy without roles.
	Roles []PolicyRole `json:"roles,omitempty"`
}

// PolicyOutlook is what a policy would do with a node.
type PolicyOutlook struct {
	Node string `json:"node"` // the node
	// What it would do; absent for nothing.
	Action string `json:"action,omitempty" enum:"verify,repair,quarantine,record,poweroff,commission,upgrade,supersede"`

	Group   string    `json:"group,omitempty"` // the group that the node would join
	Now     bool      `json:"now"`             // whether it would act at once
	Message string    `json:"message"`         // what it would do, or what it waits for
	Until   time.Time `json:"until,omitzero"`  // the end of the wait, if it is a time
}

// Decision is one decision of the manager itself. It is recorded before it is carried out.
type Decision struct {
	ID     string    `json:"id"`              // unique; the idempotency key of its job
	Time   time.Time `json:"time"`            // when it was decided
	Policy string    `json:"policy"`          // the policy, or `brake`
	Node   string    `json:"node,omitempty"`  // the node concerned
	Nodes  []string  `json:"nodes,omitempty"` // the nodes of one scheduled verification
	// What is done. `poweroff` turns a lost node off by its BMC. `upgrade` starts a rollout of the commit in use, and
	// `supersede` ends one of another commit. `stop` turns the policy off. `record` leaves the node as it is. `yield`
	// cancels an automatic verification, e.g. for a job of a person.
	Action   string   `json:"action"`
	Group    string   `json:"group,omitempty"`    // the group that the node joins
	Replaces string   `json:"replaces,omitempty"` // the lost node whose place in the group it takes
	Case     string   `json:"case"`               // what happened, as far as the evidence tells
	Evidence []string `json:"evidence"`           // the observations on which it was decided
	Prevent  []string `json:"prevent,omitempty"`  // what would have prevented it
	// `upgrade`: the commit that most of the nodes have. `supersede`: the commit of the rollout.
	From    string `json:"from,omitempty"`
	Commit  string `json:"commit,omitempty"`  // `upgrade`, `supersede`: the commit in use
	Rollout string `json:"rollout,omitempty"` // the rollout that carries it out, or that is superseded
	// `decided`: recorded, and not carried out yet. `done`: its job is accepted, or it needs none. `withdrawn`:
	// judged again before it was carried out, it no longer held; the situation is judged anew.
	Phase  string `json:"phase" enum:"decided,done,refused,withdrawn"`
	Job    string `json:"job,omitempty"`    // the job that carries it out
	Result string `json:"result,omitempty"` // why it was refused or withdrawn
}

// PolicyControl is a request to pause or resume a policy, or to release the brake.
type PolicyControl struct {
	Reason string `json:"reason,omitempty"` // the operator's reason
}
