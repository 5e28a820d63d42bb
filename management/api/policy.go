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
	Paused  *PolicyPause `json:"paused,omitempty"`
	Halted  string       `json:"halted,omitempty"` // why it does not act now
	Pending int          `json:"pending"`          // nodes that it has not decided on
	// Decisions are its newest decisions, the newest first.
	Decisions []Decision `json:"decisions"`
}

// PolicyPause is a pause of a policy.
type PolicyPause struct {
	Since  time.Time `json:"since"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason,omitempty"`
}

// Decision is one decision of a policy.
type Decision struct {
	ID       string    `json:"id"`
	Time     time.Time `json:"time"`
	Policy   string    `json:"policy"`
	Node     string    `json:"node,omitempty"`
	Action   string    `json:"action"`
	Case     string    `json:"case"`              // the event
	Evidence []string  `json:"evidence"`          // on which it was decided
	Prevent  []string  `json:"prevent,omitempty"` // conditions that would have prevented it
	Phase    string    `json:"phase"`             // decided, done, refused or withdrawn
	Job      string    `json:"job,omitempty"`
	Result   string    `json:"result,omitempty"` // why it was refused or withdrawn
}

// PolicyControl pauses or resumes a policy, or releases the brake.
type PolicyControl struct {
	Reason string `json:"reason,omitempty"` // the operator's
}
