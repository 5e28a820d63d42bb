// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"time"

	"github.com/contiv/cluster/inventory"
)

// RolloutSpec describes the action of a rollout, and the care that it takes.
type RolloutSpec struct {
	Action inventory.Verb `json:"action"`
	// Selector chooses the nodes if none are named. With names it only records how they
	// were chosen.
	Selector string `json:"selector,omitempty"`
	Group    string `json:"group,omitempty"` // commission, update: the group to join

	// MaxUnavailable is the number of nodes out of service at a time, or their share.
	MaxUnavailable string `json:"max_unavailable,omitempty"`
	MaxFailures    int    `json:"max_failures,omitempty"` // with which further nodes are begun
	Canary         int    `json:"canary,omitempty"`       // nodes that go first
	Promote        bool   `json:"promote,omitempty"`      // a person promotes it after the canary

	Soak       Duration                   `json:"soak,omitempty"`
	Order      *RolloutOrder              `json:"order,omitempty"`
	Strategies map[string]RolloutStrategy `json:"strategies,omitempty"` // by group
	Gate       *RolloutGate               `json:"gate,omitempty"`

	RequireApproval bool `json:"require_approval,omitempty"`

	inventory.SharedOptions

	Timeout Duration `json:"timeout,omitempty"` // of each job
}

// RolloutOrder is the key by which the nodes are ordered.
type RolloutOrder struct {
	By    string `json:"by"` // name, group or label
	Label string `json:"label,omitempty"`
}

// RolloutStrategy bounds the nodes of one group further.
type RolloutStrategy struct {
	MaxUnavailable string    `json:"max_unavailable,omitempty"`
	MaxFailures    *int      `json:"max_failures,omitempty"`
	Soak           *Duration `json:"soak,omitempty"`
}

// RolloutGate has the checks that a node passes after its job.
type RolloutGate struct {
	SkipVerify bool              `json:"skip_verify,omitempty"`
	HTTP       *RolloutHTTPCheck `json:"http,omitempty"`
	Command    *RolloutCommand   `json:"command,omitempty"`
}

// RolloutCommand is a configured command that the manager runs for the node.
type RolloutCommand struct {
	Name    string   `json:"name"`
	Timeout Duration `json:"timeout,omitempty"`
}

// RolloutHTTPCheck is a request to the address of the node.
type RolloutHTTPCheck struct {
	TLS     bool     `json:"tls,omitempty"`
	Port    int      `json:"port"`
	Path    string   `json:"path,omitempty"`
	Status  int      `json:"status,omitempty"` // 0: any of 200 to 299
	Timeout Duration `json:"timeout,omitempty"`
}

// RolloutRequest asks for a rollout, or for its preview.
type RolloutRequest struct {
	Spec      RolloutSpec     `json:"spec"`
	Nodes     []string        `json:"nodes,omitempty"`
	ExtraVars json.RawMessage `json:"extra_vars,omitempty"`
}

// RolloutStatus is the status of a rollout.
type RolloutStatus string

// Ended reports whether the rollout begins no further node, and none of its jobs goes on.
func (s RolloutStatus) Ended() bool { return s == "Aborted" || s == "Done" || s == "Failed" }

// Rollout is an operation over many nodes, with a job for each.
type Rollout struct {
	ID         string        `json:"id,omitempty"` // a preview has none
	Status     RolloutStatus `json:"status"`
	Reason     string        `json:"reason,omitempty"` // the cause of the status
	Waits      string        `json:"waits,omitempty"`  // why no node is begun now
	WaitsUntil *time.Time    `json:"waits_until,omitempty"`

	Spec       RolloutSpec  `json:"spec"`
	ExtraNames []string     `json:"extra_names,omitempty"` // of its extra variables
	Count      RolloutCount `json:"count"`

	PlaybookDigest string `json:"playbook_digest,omitempty"`
	Commit         string `json:"commit,omitempty"`

	Actor   string     `json:"actor,omitempty"`
	Created time.Time  `json:"created"`
	Started *time.Time `json:"started,omitempty"`
	Ended   *time.Time `json:"ended,omitempty"`
	// Remaining is the time that it is expected to take from now on; absent: unknown.
	Remaining *Duration `json:"remaining,omitempty"`

	Approved   *RolloutMark `json:"approved,omitempty"`
	Promoted   *RolloutMark `json:"promoted,omitempty"`
	CanaryDone *time.Time   `json:"canary_done,omitempty"`
	UndoOf     string       `json:"undo_of,omitempty"`

	// Lists omit the following fields.

	Nodes  []RolloutNode  `json:"nodes,omitempty"` // in the order in which they are begun
	Events []RolloutEvent `json:"events,omitempty"`
	// Remedy says how it goes on after failures stopped it, and Actions are the ways, the likely one first.
	Remedy  string   `json:"remedy,omitempty"`
	Actions []Action `json:"actions,omitempty"`

	Revision int64 `json:"revision"`
}

// RolloutCount counts the nodes of a rollout by state.
type RolloutCount struct {
	Total      int `json:"total"`
	Waiting    int `json:"waiting"`
	InProgress int `json:"in_progress"`
	Done       int `json:"done"`
	Failed     int `json:"failed"`
	Skipped    int `json:"skipped"`
}

// RolloutMark is an act of a person.
type RolloutMark struct {
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// RolloutNode is the progress of one node.
type RolloutNode struct {
	Name    string     `json:"name"`
	Group   string     `json:"group,omitempty"`
	Label   string     `json:"label,omitempty"` // the value of the label of the order
	State   string     `json:"state"`
	Attempt int        `json:"attempt,omitempty"`
	Job     string     `json:"job,omitempty"`
	Gate    string     `json:"gate,omitempty"` // the job of its verification
	Since   *time.Time `json:"since,omitempty"`
	Begun   *time.Time `json:"begun,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Window  string     `json:"window,omitempty"` // why its maintenance window holds it now
}

// RolloutEvent is a step in the life of a rollout.
type RolloutEvent struct {
	Time  time.Time `json:"time"`
	Kind  string    `json:"kind"`
	Node  string    `json:"node,omitempty"`
	Actor string    `json:"actor,omitempty"`
	Text  string    `json:"text,omitempty"`
}

// RolloutControl pauses, approves, promotes or takes back a rollout.
type RolloutControl struct {
	Reason string `json:"reason,omitempty"`
}

// RolloutResume resumes a rollout.
type RolloutResume struct {
	PlaybooksNow bool   `json:"playbooks_now,omitempty"` // for the nodes still to be begun
	Reason       string `json:"reason,omitempty"`
}

// RolloutAbort aborts a rollout.
type RolloutAbort struct {
	Cancel bool   `json:"cancel,omitempty"` // its jobs, too
	Reason string `json:"reason,omitempty"`
}

// RolloutRetry begins nodes of a rollout once more.
type RolloutRetry struct {
	Nodes        []string `json:"nodes,omitempty"` // empty: all that failed
	PlaybooksNow bool     `json:"playbooks_now,omitempty"`
	Reason       string   `json:"reason,omitempty"`
}
