// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"time"

	"github.com/contiv/cluster/inventory"
)

// RolloutSpec is what a rollout does, and how carefully.
type RolloutSpec struct {
	// The verb for each node.
	Action inventory.Verb `json:"action" enum:"apply,update,maintenance,verify,reapply,commission,decommission"`
	// Chooses the nodes if none are named; with names, it records how they were chosen.
	Selector string `json:"selector,omitempty"`
	// commission, update: the group to join.
	Group string `json:"group,omitempty"`

	// The number of nodes out of service at a time, or their share, rounded down and at least 1. Default: 1.
	MaxUnavailable string `json:"max_unavailable,omitempty" example:"10%"`
	// The number of failed nodes with which further nodes are begun.
	MaxFailures int `json:"max_failures,omitempty"`
	// The number of nodes that go first, all of which must succeed.
	Canary int `json:"canary,omitempty"`
	// After the canary, wait until a person promotes the rollout.
	Promote bool `json:"promote,omitempty"`

	// How long a node is watched before it is done, e.g. 5m0s.
	Soak  Duration      `json:"soak,omitempty"`
	Order *RolloutOrder `json:"order,omitempty"`
	// Further bounds, by group. In a rollout, they are completed by the strategies that its groups are
	// configured with.
	Strategies map[string]RolloutStrategy `json:"strategies,omitempty"`
	Gate       *RolloutGate               `json:"gate,omitempty"`

	RequireApproval bool `json:"require_approval,omitempty"` // another person has to approve it first

	inventory.SharedOptions

	// The time limit of each job, e.g. 1h0m0s; 0s or absent for the configured limit.
	Timeout Duration `json:"timeout,omitempty"`
}

// RolloutOrder is what the nodes are ordered by.
type RolloutOrder struct {
	// `label`: by the value of the label, and never two nodes of one value at once.
	By    string `json:"by" enum:"name,group,label"`
	Label string `json:"label,omitempty"` // the key of the label, such as rack
}

// RolloutStrategy is further bounds for the nodes of one group.
type RolloutStrategy struct {
	// As in RolloutSpec, of the nodes of the group.
	MaxUnavailable string `json:"max_unavailable,omitempty"`
	// As in RolloutSpec, of the nodes of the group.
	MaxFailures *int `json:"max_failures,omitempty" type:"integer,null"`
	// The soak time of the nodes of the group.
	Soak *Duration `json:"soak,omitempty" type:"string,null"`
}

// RolloutGate is what a node passes after its job.
type RolloutGate struct {
	SkipVerify bool              `json:"skip_verify,omitempty"` // leave out the verification
	HTTP       *RolloutHTTPCheck `json:"http,omitempty"`
	Command    *RolloutCommand   `json:"command,omitempty"`
}

// RolloutCommand is a command of the manager for the node, repeated until its exit status is 0. It runs after
// the HTTP check, if there are both.
type RolloutCommand struct {
	Name string `json:"name"` // its name in `gate_commands` of the configuration file
	// How long it is repeated, e.g. 1m0s.
	Timeout Duration `json:"timeout,omitempty"`
}

// RolloutHTTPCheck is a request of the manager to the address of the node, repeated until it succeeds. No
// redirect is followed.
type RolloutHTTPCheck struct {
	// https; the certificate is not verified.
	TLS    bool   `json:"tls,omitempty"`
	Port   int    `json:"port" minimum:"1" maximum:"65535"` // the port
	Path   string `json:"path,omitempty"`                   // the path with its query, such as /health
	Status int    `json:"status,omitempty"`                 // the status of the answer; absent: any of 200 to 299
	// How long it is repeated, e.g. 1m0s.
	Timeout Duration `json:"timeout,omitempty"`
}

// RolloutRequest is a request for a rollout, or for its preview.
type RolloutRequest struct {
	Spec RolloutSpec `json:"spec"`
	// The nodes; absent: those of the selector.
	Nodes []string `json:"nodes,omitempty" type:"array,null"`
	// Variables for its jobs that override all others, as in JobRequest.
	ExtraVars json.RawMessage `json:"extra_vars,omitempty" type:"object,string,null"`
}

// RolloutStatus is the status of a rollout.
type RolloutStatus string

// Ended reports whether the rollout begins no further node, and none of its jobs goes on.
func (s RolloutStatus) Ended() bool { return s == "Aborted" || s == "Done" || s == "Failed" }

// Rollout is a rollout. Lists omit `nodes`, `events`, `remedy` and `actions`.
type Rollout struct {
	ID string `json:"id,omitempty"` // its id; a preview has none
	// `Stopped`: by failures; it goes on once it is resumed. `Failed`: it ended, and more nodes failed than it
	// permits, or none is done.
	Status     RolloutStatus `json:"status"`
	Reason     string        `json:"reason,omitempty"`      // the cause of the status
	Waits      string        `json:"waits,omitempty"`       // why no node is begun now
	WaitsUntil *time.Time    `json:"waits_until,omitempty"` // when that is over by itself

	Spec       RolloutSpec  `json:"spec"`
	ExtraNames []string     `json:"extra_names,omitempty"` // the names of its extra variables
	Count      RolloutCount `json:"count"`

	PlaybookDigest string `json:"playbook_digest,omitempty"` // the digest of the playbooks of its jobs
	Commit         string `json:"commit,omitempty"`          // their commit in git

	Actor   string     `json:"actor,omitempty"`   // who started it
	Created time.Time  `json:"created"`           // when it was made
	Started *time.Time `json:"started,omitempty"` // when it could first begin a node
	Ended   *time.Time `json:"ended,omitempty"`   // when it ended
	// How long it is expected to take from now on, by earlier jobs; absent: unknown, also while something else
	// than its own nodes holds it back.
	Remaining *Duration `json:"remaining,omitempty"`

	Approved   *RolloutMark `json:"approved,omitempty"`
	Promoted   *RolloutMark `json:"promoted,omitempty"`
	CanaryDone *time.Time   `json:"canary_done,omitempty"` // when its canary was done
	UndoOf     string       `json:"undo_of,omitempty"`     // the rollout that it takes back

	// Warnings of a preview, as those of its jobs: what only a former request had set is taken back.
	Warnings []string `json:"warnings,omitempty"`

	// Lists omit the following fields.

	Nodes  []RolloutNode  `json:"nodes,omitempty"`  // the nodes, in the order in which they are begun
	Events []RolloutEvent `json:"events,omitempty"` // its events, the newest first; 200 at most
	Remedy string         `json:"remedy,omitempty"` // how it goes on after failures stopped it, in words
	// The actions that carry the remedy out: one of them, the likely one first.
	Actions []Action `json:"actions,omitempty"`

	Revision int64 `json:"revision"` // the revision of the record
}

// RolloutCount is the nodes of a rollout, counted by state.
type RolloutCount struct {
	Total      int `json:"total"`       // all nodes
	Waiting    int `json:"waiting"`     // not begun
	InProgress int `json:"in_progress"` // their job runs, or their gate
	Done       int `json:"done"`        // done
	Failed     int `json:"failed"`      // failed
	Skipped    int `json:"skipped"`     // skipped
}

// RolloutMark is an act of a person.
type RolloutMark struct {
	By     string    `json:"by"`               // who
	At     time.Time `json:"at"`               // when
	Reason string    `json:"reason,omitempty"` // why
}

// RolloutNode is the progress of one node.
type RolloutNode struct {
	Name  string `json:"name"`            // the node
	Group string `json:"group,omitempty"` // its group, or the group that it joins
	Label string `json:"label,omitempty"` // the value of the label of the order
	// Its state.
	State   string     `json:"state" enum:"waiting,running,verifying,checking,soaking,done,failed,skipped"`
	Attempt int        `json:"attempt,omitempty"` // the attempt, from 1
	Job     string     `json:"job,omitempty"`     // the job of the attempt
	Gate    string     `json:"gate,omitempty"`    // the job of its verification
	Since   *time.Time `json:"since,omitempty"`   // the start of the state
	Begun   *time.Time `json:"begun,omitempty"`   // the start of the attempt
	Reason  string     `json:"reason,omitempty"`  // why it failed or was skipped
	Window  string     `json:"window,omitempty"`  // why its maintenance windows hold it now
}

// RolloutEvent is a step in the life of a rollout.
type RolloutEvent struct {
	Time time.Time `json:"time"` // when
	// What. `playbooks`: it was bound to other playbooks.
	Kind  string `json:"kind"`
	Node  string `json:"node,omitempty"`  // the node concerned
	Actor string `json:"actor,omitempty"` // who; absent: the manager itself
	Text  string `json:"text,omitempty"`  // the details
}

// RolloutControl is a request to pause, promote, approve or take back a rollout.
type RolloutControl struct {
	Reason string `json:"reason,omitempty"` // the operator's reason
}

// RolloutResume is a request to resume a rollout.
type RolloutResume struct {
	// Take the playbooks of now for the nodes still to be begun.
	PlaybooksNow bool   `json:"playbooks_now,omitempty"`
	Reason       string `json:"reason,omitempty"` // the operator's reason
}

// RolloutAbort is a request to abort a rollout.
type RolloutAbort struct {
	Cancel bool   `json:"cancel,omitempty"` // cancel its running jobs, too
	Reason string `json:"reason,omitempty"` // the operator's reason
}

// RolloutRetry is a request to begin nodes of a rollout once more.
type RolloutRetry struct {
	// Failed or skipped nodes; absent: all that failed.
	Nodes        []string `json:"nodes,omitempty" type:"array,null"`
	PlaybooksNow bool     `json:"playbooks_now,omitempty"` // take the playbooks of now
	Reason       string   `json:"reason,omitempty"`        // the operator's reason
}
