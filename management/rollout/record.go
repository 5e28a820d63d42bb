// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// The bounds of rollouts.
const (
	MaxNodes  = job.MaxNames // of one rollout
	MaxOpen   = 20           // rollouts that have not ended
	MaxKept   = 200          // stored rollouts; the oldest ended ones are dropped
	MaxEvents = 200          // events of one rollout; the oldest are dropped

	maxText = 300 // bytes of a reason in a record
)

// Status is the state of a rollout as a whole.
type Status string

// The statuses of rollouts.
const (
	Planned           Status = "Planned"           // a preview, which is not stored
	AwaitingApproval  Status = "AwaitingApproval"  // begins once another person approves it
	Running           Status = "Running"           // begins nodes as the window allows
	Paused            Status = "Paused"            // begins no node until it is resumed
	AwaitingPromotion Status = "AwaitingPromotion" // the canary is done; goes on once it is promoted
	Stopped           Status = "Stopped"           // too many nodes failed; goes on once it is resumed
	Aborting          Status = "Aborting"          // begins no node; some of its jobs have not ended
	Aborted           Status = "Aborted"
	Done              Status = "Done"   // every node is done, failed within the limit, or skipped
	Fruitless         Status = "Failed" // every node had its turn; more failed than permitted, or none is done
)

// Statuses lists the statuses of stored rollouts.
var Statuses = []Status{
	AwaitingApproval, Running, Paused, AwaitingPromotion, Stopped, Aborting, Aborted, Done, Fruitless,
}

// Ended reports whether the rollout is over: no node begins, and no job of it is active.
func (s Status) Ended() bool { return s == Aborted || s == Done || s == Fruitless }

// moves reports whether the rollout proceeds without an operator.
func (s Status) moves() bool { return s == Planned || s == Running || s == Aborting }

// State is the progress of one node of a rollout.
type State string

// The states of nodes.
const (
	Waiting   State = "waiting"
	Working   State = "running"   // the job of the action is queued or runs
	Verifying State = "verifying" // the gate: its verification is queued or runs
	Checking  State = "checking"  // the gate: its HTTP check or its command has not succeeded yet
	Soaking   State = "soaking"   // it passed the gate, and is watched for the soak time
	Succeeded State = "done"
	Failed    State = "failed"
	Skipped   State = "skipped" // it was not begun, or is gone
)

// InProgress reports whether a node in this state occupies a slot of the window.
func (s State) InProgress() bool {
	return s == Working || s == Verifying || s == Checking || s == Soaking
}

// Record is the durable record of one rollout. Extra variables are stored beside it.
type Record struct {
	ID     string `json:"id"`
	Status Status `json:"status"`
	// Reason is the cause of the status in words, such as the failures that stopped it.
	Reason string `json:"reason,omitempty"`
	// Waits is the reason why no node begins now; empty: nodes begin, or the status is the reason.
	Waits string `json:"waits,omitempty"`
	// WaitsUntil is when Waits ends by itself; zero: unknown.
	WaitsUntil time.Time `json:"waits_until,omitzero"`

	Spec       Spec     `json:"spec"`
	ExtraNames []string `json:"extra_names,omitempty"` // the names of the extra variables
	// Nodes are fixed at the start, in the order in which they are begun.
	Nodes []Node `json:"nodes"`

	// Playbooks is the digest of the playbooks of all its jobs, and Commit their commit in
	// git, if any.
	Playbooks string `json:"playbooks,omitempty"`
	Commit    string `json:"commit,omitempty"`

	Actor   string    `json:"actor,omitempty"` // the principal that started it
	Created time.Time `json:"created"`
	Started time.Time `json:"started,omitzero"` // when it could first begin a node
	Ended   time.Time `json:"ended,omitzero"`

	Approved *Mark `json:"approved,omitempty"` // nil: not approved
	Promoted *Mark `json:"promoted,omitempty"` // nil: not promoted
	// CanaryDone is when the canary ended; zero: it has not, or there is none.
	CanaryDone time.Time `json:"canary_done,omitzero"`
	// Cancel: an abort cancels the jobs instead of letting them finish.
	Cancel bool `json:"cancel,omitempty"`
	// UndoOf is the id of the rollout that this one reverts.
	UndoOf string `json:"undo_of,omitempty"`

	Events []Event `json:"events,omitempty"` // the oldest first
	// Estimate is the expected duration of each node, as known at the start.
	Estimate Pace `json:"estimate,omitzero"`

	// Revision is the store's revision of this record; it is not stored.
	Revision int64 `json:"-"`
}

// Mark records who approved or promoted a rollout, and when.
type Mark struct {
	By     string    `json:"by,omitempty"` // the principal
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// Node is the progress of one node.
type Node struct {
	Name  string `json:"name"`
	Group string `json:"group,omitempty"` // at the start; for a commission: the group that it joins
	Rack  string `json:"rack,omitempty"`  // the value of the label of Order, at the start
	State State  `json:"state"`
	// Attempt counts from 1, and is 0 for a node that was never begun.
	Attempt int       `json:"attempt,omitempty"`
	Job     string    `json:"job,omitempty"`  // the id of the job of the attempt
	Gate    string    `json:"gate,omitempty"` // the id of the verification of the attempt
	Since   time.Time `json:"since,omitzero"`
	Begun   time.Time `json:"begun,omitzero"` // of the attempt
	// Reason is why it failed, was skipped or could not begin, or a remark on its success.
	Reason string `json:"reason,omitempty"`
	// Excused: a resume excused its failure, which no longer counts towards limits.
	Excused bool `json:"excused,omitempty"`
	// Playbooks is the digest of its own playbooks, if they differ from those of the rollout.
	Playbooks string `json:"playbooks,omitempty"`
	// Former is the digest of the playbooks that configured the node before the rollout, and
	// Applied the id of that job; empty: unknown.
	Former  string `json:"former,omitempty"`
	Applied string `json:"applied,omitempty"`
	// Changed is the id of the newest job, of any attempt, that may have changed the node; empty: none.
	Changed string `json:"changed,omitempty"`
}

// hadJob reports whether any job of the rollout was accepted for the node. A retry forgets Job.
func (n *Node) hadJob() bool {
	// Records of former versions have no Changed.
	return n.Job != "" || n.Changed != "" || n.Former != "" || n.Applied != ""
}

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	EventStarted  EventKind = "started"
	EventApproved EventKind = "approved"
	EventPromoted EventKind = "promoted"
	EventPaused   EventKind = "paused"
	EventResumed  EventKind = "resumed"
	EventRetried  EventKind = "retried"
	EventRepinned EventKind = "playbooks" // it was bound to other playbooks
	EventStopped  EventKind = "stopped"   // by failures
	EventAbort    EventKind = "abort"
	EventCanary   EventKind = "canary" // the canary is done
	EventFailed   EventKind = "failed" // a node failed
	EventSkipped  EventKind = "skipped"
	EventEnded    EventKind = "ended"
)

// Event is a step in the life of a rollout.
type Event struct {
	Time  time.Time `json:"time"`
	Kind  EventKind `json:"kind"`
	Node  string    `json:"node,omitempty"`  // empty: it concerns all
	Actor string    `json:"actor,omitempty"` // empty: the manager itself
	Text  string    `json:"text,omitempty"`
}

// Pace is the expected duration of a node, from earlier jobs.
type Pace struct {
	Jobs int           `json:"jobs,omitempty"` // earlier jobs; 0: nothing is known
	Node time.Duration `json:"node,omitempty"` // of the job and the gate of one node, the median; without the soak
}

// Count counts the nodes of a rollout by state.
type Count struct {
	Total, Waiting, InProgress, Succeeded, Failed, Skipped int
}

// Count counts the nodes by state.
func (r Record) Count() Count {
	c := Count{Total: len(r.Nodes)}

	for i := range r.Nodes {
		switch s := r.Nodes[i].State; {
		case s == Waiting:
			c.Waiting++
		case s.InProgress():
			c.InProgress++
		case s == Succeeded:
			c.Succeeded++
		case s == Failed:
			c.Failed++
		case s == Skipped:
			c.Skipped++
		}
	}

	return c
}

// Principal returns the principal of the jobs of a rollout.
func Principal(id string) string { return "rollout:" + id }

// Actions are the verbs that a rollout carries out.
var Actions = []inventory.Verb{
	inventory.VerbApply, inventory.VerbUpdate, inventory.VerbMaintenance, inventory.VerbVerify,
	inventory.VerbReapply, inventory.VerbCommission, inventory.VerbDecommission,
}
