// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"

	"github.com/contiv/cluster/inventory"
)

// Change is one event of a watch. Clients should ignore unknown types.
//
// The id of the event is the revision for a resumed watch; only the last event of a revision has one.
type Change struct {
	// `put`: the object is new, has changed, or now matches the selection; `delete`: it is gone or no longer
	// matches; `sync`: the initial state is complete; `progress`: an idle watch is up to date; `dropped`: the
	// client was too slow.
	Type ChangeType `json:"type"`
	// put, delete: the kind of object. Clients should ignore unknown kinds: `all` may have more in a later version.
	Kind WatchKind `json:"kind,omitempty"`
	// put, delete: the name of the node, the number of the job, the scope of the variables (`global`,
	// `group/NAME`, `node/NAME`), or the id of the object; absent where there is only one.
	Name string `json:"name,omitempty"`
	// The revision of the change; before `sync`, the revision of the initial state.
	Revision int64 `json:"revision"`
	// put: the current object: a Node, a Job as in lists but without position and wait, Vars, Config, a Freeze, an
	// Instance, a Token, or a Plan or Rollout as in lists but without the time that is left. The object of
	// notifications is a Delivery, which stays `pending` there when it is bundled. The object of policies
	// has the brake, the pauses and the newest decisions, that of ssh-key the newest rotation: what GET shows beyond
	// them is judged at its time. Likewise, `active` of a freeze and `used` of a token are those of the time of the
	// event.
	Object json.RawMessage `json:"object,omitempty"`
	// sync, progress: whether the store has not responded for 3 seconds.
	Stale bool `json:"stale,omitempty"`
	// dropped: the reason.
	Reason string `json:"reason,omitempty"`
}

// ChangeType is the kind of an event of a watch.
type ChangeType string

// The types of event.
const (
	ChangePut      ChangeType = "put"      // the object is new, has changed, or now matches the selection
	ChangeDelete   ChangeType = "delete"   // the object is gone or no longer matches
	ChangeSync     ChangeType = "sync"     // the initial state as of Revision is complete
	ChangeProgress ChangeType = "progress" // an idle watch is up to date with Revision; every 10 s
	ChangeDropped  ChangeType = "dropped"  // the client was too slow; resume after the last id
)

// WatchKind is the kind of a changed object.
type WatchKind string

// The kinds of objects.
const (
	WatchNodes  WatchKind = "nodes"
	WatchJobs   WatchKind = "jobs"
	WatchVars   WatchKind = "vars" // the scopes are global, group/NAME and node/NAME
	WatchConfig WatchKind = "config"
)

// WatchAll stands for all kinds that the caller may read, in the query of a watch. Without the
// parameter, a watch has the four above.
const WatchAll WatchKind = "all"

// WatchKinds lists every kind. The further kinds have the name of the path below /v1 where
// their objects are read. A later manager may have more.
var WatchKinds = []WatchKind{
	WatchNodes, WatchJobs, WatchVars, WatchConfig, "freeze", "gossip-key", "instances", "machines", "classes",
	"images", "addresses", "plans",
	"notifications", "policies", "power", "rollouts", "scan", "ssh-key", "tokens",
}

// TypeEventStream is the content type of a watch.
const TypeEventStream = "text/event-stream"

// HeaderLastEventID of a request resumes a watch after that id. It overrides the
// query, because an EventSource in a browser repeats the query unchanged.
const HeaderLastEventID = "Last-Event-ID"

// Node returns the object of a put of WatchNodes.
func (c Change) Node() (Node, error) { return object[Node](c, WatchNodes) }

// Job returns the object of a put of WatchJobs.
func (c Change) Job() (Job, error) { return object[Job](c, WatchJobs) }

// Vars returns the object of a put of WatchVars. Numbers are float64.
func (c Change) Vars() (Vars, error) { return object[Vars](c, WatchVars) }

// Config returns the object of a put of WatchConfig.
func (c Change) Config() (Config, error) { return object[Config](c, WatchConfig) }

func object[T any](c Change, kind WatchKind) (out T, err error) {
	if c.Type != ChangePut || c.Kind != kind {
		return out, inventory.Errorf(inventory.KindInvalid, "a %s of %q has no object of %s", c.Type, c.Kind, kind)
	}
	return out, json.Unmarshal(c.Object, &out)
}
