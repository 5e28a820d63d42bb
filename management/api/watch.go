// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"

	"github.com/contiv/cluster/inventory"
)

// Change is one event of PathWatch: the data of a server-sent event
// (https://html.spec.whatwg.org/multipage/server-sent-events.html), whose
// event is Type. The event's id is the revision that a watch can be resumed
// after; only the last event of a revision has one.
type Change struct {
	// Type is what happened; a reader passes over what it does not know.
	Type ChangeType `json:"type"`
	Kind WatchKind  `json:"kind,omitempty"` // put and delete
	Name string     `json:"name,omitempty"` // put and delete: of the node, id of the job, scope of the variables
	// Revision is that of the store since when it is so. Before ChangeSync, in
	// the present state that a watch begins with, it is that of the whole.
	Revision int64 `json:"revision"`
	// Object of a put is the thing as it is now: a Node, a Job as in lists, but
	// without what it waits for, Vars or Config.
	Object json.RawMessage `json:"object,omitempty"`
	// Stale: the store has said nothing to the manager for 3 seconds.
	Stale  bool   `json:"stale,omitempty"`  // sync and progress
	Reason string `json:"reason,omitempty"` // dropped
}

// ChangeType is what an event of a watch says.
type ChangeType string

// The types of event.
const (
	ChangePut      ChangeType = "put"      // it is new, is different, or has come into the selection
	ChangeDelete   ChangeType = "delete"   // it is gone, or has left the selection
	ChangeSync     ChangeType = "sync"     // all that there is as of Revision was told
	ChangeProgress ChangeType = "progress" // nothing else was there to tell up to Revision; comes every 10 s
	ChangeDropped  ChangeType = "dropped"  // the reader was too slow, and the connection ends; resume after the last id
)

// WatchKind is what a change is about.
type WatchKind string

// The kinds of change.
const (
	WatchNodes  WatchKind = "nodes"
	WatchJobs   WatchKind = "jobs"
	WatchVars   WatchKind = "vars" // the scopes are global, group/NAME and node/NAME
	WatchConfig WatchKind = "config"
)

// WatchKinds lists every kind.
var WatchKinds = []WatchKind{WatchNodes, WatchJobs, WatchVars, WatchConfig}

// TypeEventStream is the content type of a watch.
const TypeEventStream = "text/event-stream"

// HeaderLastEventID of a request resumes a watch after that id; it counts more
// than the query, so that a browser's EventSource resumes by itself.
const HeaderLastEventID = "Last-Event-ID"

// Node is the object of a put of WatchNodes.
func (c Change) Node() (Node, error) { return object[Node](c, WatchNodes) }

// Job is the object of a put of WatchJobs.
func (c Change) Job() (Job, error) { return object[Job](c, WatchJobs) }

// Vars is the object of a put of WatchVars. Numbers are as encoding/json reads them.
func (c Change) Vars() (Vars, error) { return object[Vars](c, WatchVars) }

// Config is the object of a put of WatchConfig.
func (c Change) Config() (Config, error) { return object[Config](c, WatchConfig) }

func object[T any](c Change, kind WatchKind) (out T, err error) {
	if c.Type != ChangePut || c.Kind != kind {
		return out, inventory.Errorf(inventory.KindInvalid, "a %s of %q has no object of %s", c.Type, c.Kind, kind)
	}

	return out, json.Unmarshal(c.Object, &out)
}
