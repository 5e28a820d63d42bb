// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// AllPolicies stands for every policy in PathPausePolicy and PathResumePolicy.
const AllPolicies = "all"

// Policies is the state of automation.
type Policies struct {
	Brake    Brake        `json:"brake"`
	Paused   *PolicyPause `json:"paused,omitempty"` // of all policies
	Policies []Policy     `json:"policies"`
	// Decisions are the newest decisions of all policies and of the brake, the newest
	// first.
	Decisions []Decision `json:"decisions"`
}

// Brake stops automation while many nodes have vanished at once.
type Brake struct {
	Engaged bool       `json:"engaged"`
	Message string     `json:"message,omitempty"` // the reason, and the ways of a release
	Since   *time.Time `json:"since,omitempty"`
	Until   *time.Time `json:"until,omitempty"` // when it releases itself
	// Lost are nodes that vanished, 50 at most; Vanished is their number, out of Visible.
	Lost       []string   `json:"lost,omitempty"`
	Vanished   int        `json:"vanished,omitempty"`
	Visible    int        `json:"visible,omitempty"`
	Released   *time.Time `json:"released,omitempty"` // the newest release
	ReleasedBy string     `json:"released_by,omitempty"`
	Reason     string     `json:"reason,omitempty"` // of that release
}

// Policy is the state of one policy.
type Policy struct {
	Name    string       `json:"name"`
	About   string       `json:"about"`
	On      bool         `json:"on"`
	Turned  *PolicyTurn  `json:"turned,omitempty"` // the newest turn; absent: it is as it begins
	Paused  *PolicyPause `json:"paused,omitempty"`
	Halted  string       `json:"halted,omitempty"` // why it does not act now
	Pending int          `json:"pending"`          // nodes that it has not decided on
	// Roles are the groups that it fills; absent for a policy without roles.
	Roles []PolicyRole `json:"roles,omitempty"`
	// Decisions are its newest decisions, the newest first.
	Decisions []Decision `json:"decisions"`
}

// PolicyRole is a group that a policy fills with new nodes, and its nodes.
type PolicyRole struct {
	Group string `json:"group"`
	Count int    `json:"count,omitempty"` // nodes that are wanted; absent: as many as there are
	// ReplaceAfter is how long a node has to be lost before it is replaced; absent: it is not.
	ReplaceAfter string         `json:"replace_after,omitempty"`
	Spread       string         `json:"spread,omitempty"` // the label over whose values nodes are spread
	Places       map[string]int `json:"places,omitempty"` // the number of nodes by that value
	InService    int            `json:"in_service"`       // silent nodes included
	Healthy      int            `json:"healthy"`          // those that are available
	Coming       int            `json:"coming"`           // nodes on their way
	Surplus      int            `json:"surplus"`          // nodes beyond the count
	Silent       []string       `json:"silent,omitempty"` // nodes in service that are Disappeared
	Warnings     []string       `json:"warnings,omitempty"`
	Notes        []string       `json:"notes,omitempty"` // on nodes that are out of service
}

// PolicyPause is a pause of a policy.
type PolicyPause struct {
	Since  time.Time `json:"since"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason,omitempty"`
}

// PolicyTurn turns a policy on or off.
type PolicyTurn struct {
	On     bool      `json:"on"`
	Since  time.Time `json:"since"`
	Actor  string    `json:"actor"` // a person, or the policy that stopped itself
	Reason string    `json:"reason,omitempty"`
}

// PolicyEnable turns a policy on.
type PolicyEnable struct {
	// All is required, and allowed, for a policy that is for every node.
	All    bool   `json:"all,omitempty"`
	Reason string `json:"reason,omitempty"` // the operator's
}

// PolicyTest asks for the effects that a policy would have.
type PolicyTest struct {
	// Nodes are the inventory to test with, 10 000 nodes at most; absent: that of today.
	Nodes *[]PolicyTestNode `json:"nodes,omitempty"`
}

// PolicyTestNode is a node of a given inventory, with the fields of Node of the same name.
type PolicyTestNode struct {
	Name       string            `json:"name"` // LABEL-SERIAL
	Addr       string            `json:"addr,omitempty"`
	Status     string            `json:"status"`
	PrevStatus string            `json:"prev_status,omitempty"`
	State      string            `json:"state"`
	Group      string            `json:"group,omitempty"`
	Residue    []string          `json:"residue,omitempty"`
	LastError  string            `json:"last_error,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Duplicates []string          `json:"duplicates,omitempty"`
	// Created counts as the time since when it is seen, and Updated as that since when a node is
	// Disappeared or Quarantined; absent: long ago.
	Created *time.Time `json:"created,omitempty"`
	Updated *time.Time `json:"updated,omitempty"`
}

// PolicyTested has the effects of a policy if it were on and nothing held it.
type PolicyTested struct {
	Policy string `json:"policy"`
	About  string `json:"about"`
	On     bool   `json:"on"`
	Halted string `json:"halted,omitempty"` // why it does not act now
	Nodes  int    `json:"nodes"`            // of the inventory
	// Outlooks are those of the nodes that concern it.
	Outlooks []PolicyOutlook `json:"outlooks"`
	Roles    []PolicyRole    `json:"roles,omitempty"` // as in Policy
}

// PolicyOutlook is the effect that a policy would have on a node.
type PolicyOutlook struct {
	Node    string     `json:"node"`
	Action  string     `json:"action,omitempty"`
	Group   string     `json:"group,omitempty"` // that the node would join
	Now     bool       `json:"now"`             // it would act at once
	Message string     `json:"message"`
	Until   *time.Time `json:"until,omitempty"` // the end of a wait, if it is a time
}

// Decision is one decision of a policy.
type Decision struct {
	ID       string    `json:"id"`
	Time     time.Time `json:"time"`
	Policy   string    `json:"policy"`
	Node     string    `json:"node,omitempty"`
	Nodes    []string  `json:"nodes,omitempty"` // of one scheduled verification
	Action   string    `json:"action"`
	Group    string    `json:"group,omitempty"`    // that the node joins
	Replaces string    `json:"replaces,omitempty"` // the lost node whose place it takes
	Case     string    `json:"case"`               // the event
	Evidence []string  `json:"evidence"`           // on which it was decided
	Prevent  []string  `json:"prevent,omitempty"`  // conditions that would have prevented it
	From     string    `json:"from,omitempty"`     // upgrade: the commit of most nodes
	Commit   string    `json:"commit,omitempty"`   // upgrade, supersede: the commit in use
	Rollout  string    `json:"rollout,omitempty"`  // that carries it out, or is superseded
	Phase    string    `json:"phase"`              // decided, done, refused or withdrawn
	Job      string    `json:"job,omitempty"`
	Result   string    `json:"result,omitempty"` // why it was refused or withdrawn
}

// PolicyControl pauses or resumes a policy, or releases the brake.
type PolicyControl struct {
	Reason string `json:"reason,omitempty"` // the operator's
}
