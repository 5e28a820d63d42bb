// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// Notifications are the targets of the configuration, in its order.
type Notifications struct {
	Items []Notification `json:"items"`
}

// Deliveries are the deliveries of a target, the oldest first.
type Deliveries struct {
	Items []Delivery `json:"items"`
}

// Notification is a receiver of events.
type Notification struct {
	Name   string   `json:"name"`
	To     string   `json:"to"`     // where it sends to, without secrets
	Events []string `json:"events"` // the kinds that it gets
	// Pending, Delivered and Dead count its deliveries, ended ones as long as they are
	// kept: 7 days, and the newest 1000.
	Pending   int       `json:"pending"`
	Delivered int       `json:"delivered"`
	Dead      int       `json:"dead"`
	Last      *Delivery `json:"last,omitempty"` // the one that was tried last
}

// Delivery is one event on its way to one target.
type Delivery struct {
	ID       string        `json:"id"`
	Target   string        `json:"target"`
	Status   string        `json:"status"` // pending, delivered, dead, or bundled: a part of another one
	Created  time.Time     `json:"created"`
	Attempts int           `json:"attempts"`
	Last     *time.Time    `json:"last,omitempty"`  // of the last attempt
	Error    string        `json:"error,omitempty"` // of the last attempt
	Event    NotifiedEvent `json:"event"`
}

// NotifiedEvent is something that happened. It is also the body of a webhook in the format json.
type NotifiedEvent struct {
	ID      string    `json:"id"` // the same in every attempt
	Kind    string    `json:"kind"`
	Time    time.Time `json:"time"`
	Manager string    `json:"manager"`
	Summary string    `json:"summary"`         // one line for people
	Actor   string    `json:"actor,omitempty"` // the principal that caused it
	Node    string    `json:"node,omitempty"`
	Group   string    `json:"group,omitempty"` // of the node
	From    string    `json:"from,omitempty"`  // the status, state or result before
	To      string    `json:"to,omitempty"`    // the new one
	Job     string    `json:"job,omitempty"`
	Rollout string    `json:"rollout,omitempty"` // that it is about, or to which the job belongs
	Policy  string    `json:"policy,omitempty"`  // that stopped or goes on; brake or all: every policy
	Verb    string    `json:"verb,omitempty"`    // of the job or the rollout
	Nodes   []string  `json:"nodes,omitempty"`   // of the job, at most 50
	Detail  string    `json:"detail,omitempty"`  // why, without secrets
	Count   int       `json:"count,omitempty"`   // the number of events in this message; absent: it is one event
}
