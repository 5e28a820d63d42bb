// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// Notifications are the targets of notifications.
type Notifications struct {
	Items []Notification `json:"items"` // the targets
}

// Deliveries are the deliveries of a target.
type Deliveries struct {
	Items []Delivery `json:"items"` // the deliveries, the oldest first
}

// Notification is a target that is told what happens.
type Notification struct {
	Name      string   `json:"name"`      // the name in the configuration
	To        string   `json:"to"`        // where it sends to, without secrets
	Events    []string `json:"events"`    // the kinds of event that it gets
	Pending   int      `json:"pending"`   // the number of deliveries that the target has not accepted yet
	Delivered int      `json:"delivered"` // the number of deliveries that it accepted
	// The number of deliveries that it refused for good or did not accept within a day.
	Dead int       `json:"dead"`
	Last *Delivery `json:"last,omitempty"` // the delivery that was tried last
}

// Delivery is one event on its way to one target.
type Delivery struct {
	ID     string `json:"id"`     // the id of the delivery
	Target string `json:"target"` // the name of the target
	// `dead`: the target refused it, or did not accept it within a day. `bundled`: it is a part of another
	// delivery, whose event has a `count`.
	Status   string        `json:"status" enum:"pending,delivered,dead,bundled"`
	Created  time.Time     `json:"created"`         // when the event was found
	Attempts int           `json:"attempts"`        // the number of attempts
	Last     *time.Time    `json:"last,omitempty"`  // the time of the last attempt
	Error    string        `json:"error,omitempty"` // the error of the last attempt
	Event    NotifiedEvent `json:"event"`           // the event
}

// NotifiedEvent is something that happened. It is also the body of a webhook in the format `json`.
type NotifiedEvent struct {
	// The id of the event. It is the same in every attempt, and for every target unless it has a `count`.
	ID string `json:"id"`
	// `node.new`, `node.status`, `node.state`, `node.verification`, `node.drifted`, `node.forgotten`,
	// `job.ended`, `job.failed`, `rollout.ended`, `rollout.stopped`, `rollout.waiting`, `policy.stopped`,
	// `policy.resumed`, `health`, `gap` (events were missed) or `test`.
	Kind    string    `json:"kind"`
	Time    time.Time `json:"time"`    // when it happened
	Manager string    `json:"manager"` // the name of the manager's node
	Summary string    `json:"summary"` // one line for people
	// The principal that caused it: a person or program, `policy:NAME`, `monitor:OBSERVER`, or the manager
	// itself.
	Actor string `json:"actor,omitempty"`
	Node  string `json:"node,omitempty"`  // the name of the node
	Group string `json:"group,omitempty"` // the group of the node
	From  string `json:"from,omitempty"`  // the status, state or result before
	To    string `json:"to,omitempty"`    // the new status, state or result
	Job   string `json:"job,omitempty"`   // the id of the job that ended, or that changed the node
	// The id of the rollout that it is about, or to which the job belongs.
	Rollout string `json:"rollout,omitempty"`
	// The policy that stopped or goes on; `brake` or `all`: every policy.
	Policy string   `json:"policy,omitempty"`
	Verb   string   `json:"verb,omitempty"`   // the verb of the job or the rollout
	Nodes  []string `json:"nodes,omitempty"`  // the nodes of the job, or those that vanished, at most 50
	Detail string   `json:"detail,omitempty"` // why, without secrets
	// The number of events in this message; absent: it is one event. The other fields have what all of them
	// share, and `detail` is that of the first.
	Count int `json:"count,omitempty" minimum:"2"`
}
