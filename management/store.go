// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// View is everything that is read often, as of one revision of the store. It is
// immutable: nobody may change what it points to.
type View struct {
	Revision int64
	// Stale: the store has said nothing for 3 seconds; this may be old.
	Stale bool
	// Nodes are sorted by name; never nil. A reservation that its job has not
	// committed to counts as absent. As long as a node has not changed, the next
	// view points to the same record.
	Nodes []*inventory.Node
	// Jobs are sorted by number.
	Jobs []Job
	// Variables are the variables of each scope that has any.
	Variables map[Scope]configuration.Vars
	// VariablesAt are the revisions at which they were set.
	VariablesAt map[Scope]int64
	// Connections are what was set on how to reach single nodes.
	Connections map[string]configuration.Connection
	// Tombstones are the tombstones by node name.
	Tombstones map[string]inventory.Tombstone
	// Overlay are the keys of the configuration that were set at run time.
	Overlay map[string]any
	// Instances are the daemons that are alive, the oldest first.
	Instances []Instance
	// ConfigAt is the revision of the last change of the configuration: of the
	// overlay, or of what an instance reads from its file; 0: there was none.
	ConfigAt int64
	// Seq is the number of the newest job ever accepted.
	Seq uint64
	// Generation is a mark that every claim, end of a job and forget changes: a
	// claim that was decided on an older mark is refused.
	Generation int64
}

// Node returns the node of that name.
func (v *View) Node(name string) (inventory.Node, error) {
	if n, ok := v.node(name); ok {
		return n, nil
	}

	return inventory.Node{}, inventory.Errorf(inventory.KindNotFound, "there is no node %q", name).
		Do("see clusterctl nodes get").About(name)
}

func (v *View) node(name string) (inventory.Node, bool) {
	if n := find(v.Nodes, name); n != nil {
		return *n, true
	}

	return inventory.Node{}, false
}

// find returns the node of that name among nodes sorted by name; nil where there is none.
func find(nodes []*inventory.Node, name string) *inventory.Node {
	i, ok := slices.BinarySearchFunc(
		nodes,
		name,
		func(n *inventory.Node, name string) int { return strings.Compare(n.Name, name) },
	)
	if !ok {
		return nil
	}

	return nodes[i]
}

// Job returns the job of that id; "active" is the Running job started most
// recently, "last" the one that ended most recently.
func (v *View) Job(ref string) (Job, error) {
	var found *Job
	switch ref {
	case "active":
		for i := range v.Jobs {
			j := &v.Jobs[i]
			if j.Status == Running && (found == nil || !j.Started.Before(found.Started)) {
				found = j
			}
		}

		if found == nil {
			return Job{}, inventory.Errorf(inventory.KindNotFound, "no job is running").
				Do("see clusterctl job list, or ask for the job %q", "last")
		}
	case "last":
		for i := range v.Jobs {
			j := &v.Jobs[i]
			if j.Status.Ended() && (found == nil || !j.Ended.Before(found.Ended)) {
				found = j
			}
		}

		if found == nil {
			return Job{}, inventory.Errorf(inventory.KindNotFound, "no job has ended yet").Do("see clusterctl job list")
		}
	default:
		for i := range v.Jobs {
			if v.Jobs[i].ID == ref {
				found = &v.Jobs[i]
			}
		}

		if found == nil {
			if n := (Job{ID: ref}).Seq(); n > 0 && n <= v.Seq {
				return Job{}, inventory.Errorf(inventory.KindNotFound, "job %s is no longer kept, nor are its inputs and its output", ref).
					Do("how much is kept: clusterctl config get jobs")
			}

			return Job{}, inventory.Errorf(inventory.KindNotFound, "there is no job %q", ref).
				Do("see clusterctl job list")
		}
	}

	return *found, nil
}

// Vars are the variables of the scope; nil where none are set.
func (v *View) Vars(s Scope) configuration.Vars { return v.Variables[s] }

// Connection is what was set on how to reach the node; nil where nothing is.
func (v *View) Connection(node string) *configuration.Connection {
	c, ok := v.Connections[node]
	if !ok {
		return nil
	}

	return &c
}

// missing returns those of the names that no node has.
func (v *View) missing(names []string) []string {
	var out []string
	for _, name := range names {
		if _, ok := v.node(name); !ok {
			out = append(out, name)
		}
	}

	return out
}

// Instance is a daemon that is alive: its record goes soon after it does.
type Instance struct {
	ID      string    `json:"id"`      // stays the same over restarts
	Node    string    `json:"node"`    // the name of its own node
	Addr    string    `json:"addr"`    // of its host; empty: not known
	API     []string  `json:"api"`     // URLs that its API is served at
	Version string    `json:"version"` // of clusterm
	Started time.Time `json:"started"`
}

// NodeWrite is a node to be written, with what it adds to the node's history.
// It is written only if the record is still at Node.Revision (0: must not exist).
type NodeWrite struct {
	Node    inventory.Node
	Entries []inventory.HistoryEntry
	// Connection, unless nil, becomes what is set on how to reach the node; the
	// zero value takes that away. Only PutNodes writes it.
	Connection *configuration.Connection
	// Tombstone: the node is removed, with its history and what was set for it, and
	// leaves this tombstone.
	Tombstone *inventory.Tombstone
}

// Store keeps everything durable. Every method may block until its context
// ends; all may be called at once. A write whose guard no longer holds returns
// KindConflict and changes nothing, unless said otherwise. A write returns after
// the view shows it.
type Store interface {
	// View is the newest view, never nil.
	View() *View
	// Changed is closed when a view newer than the current one exists.
	Changed() <-chan struct{}
	// Changes are what the views after that revision show differently: whole
	// revisions, about limit changes at most. KindExpired where it is no longer
	// kept. It does not block.
	Changes(revision int64, limit int) (Changes, error)
	// Wait returns when the view has reached the revision.
	Wait(ctx context.Context, revision int64) error
	// Sync asks the store for its revision and waits until the view has reached it.
	Sync(ctx context.Context) error

	// PutNodes writes nodes in chunks; each chunk is written whole or not at
	// all. The nodes of chunks that conflicted are returned.
	PutNodes(ctx context.Context, writes []NodeWrite) (conflicts []string, err error)
	// Accept stores a Queued job and its inputs under the number seq+1, if seq
	// is still the newest, and returns it with its id.
	Accept(ctx context.Context, seq uint64, j Job, in Inputs, once *IdempotencyKey) (Job, error)
	// Claim makes a Queued job Running together with its nodes, or does neither.
	Claim(ctx context.Context, ground int64, j Job, writes []NodeWrite) (Job, error)
	// Cancel stores a job that is to be cancelled, or, where nothing ran yet,
	// was, if it is still at j.Revision.
	Cancel(ctx context.Context, j Job, once *IdempotencyKey) (Job, error)
	// PutJob stores the job if it is still at j.Revision.
	PutJob(ctx context.Context, j Job) (Job, error)
	// Finish writes the nodes that a job releases, and then that it has ended.
	// It may be repeated after a failure half-way.
	Finish(ctx context.Context, j Job, writes []NodeWrite) (Job, error)
	// Inputs returns what a job was accepted with.
	Inputs(ctx context.Context, id string) (Inputs, error)
	// DropJobs removes ended jobs with their inputs and logs.
	DropJobs(ctx context.Context, ids []string) error

	// PutVars replaces the variables of a scope, if the scope is still as in
	// the view of that revision; nil removes them.
	PutVars(ctx context.Context, revision int64, s Scope, v configuration.Vars) (int64, error)
	// PutOverlay replaces the configuration's overlay, guarded like PutVars.
	PutOverlay(ctx context.Context, revision int64, overlay map[string]any) (int64, error)

	// Forget removes nodes: writes that have a Grave.
	Forget(ctx context.Context, ground int64, writes []NodeWrite, once *IdempotencyKey) (int64, error)

	// Done returns what a write kept under the key of its Once; nil: nothing.
	// It is the newest answer there is. A write whose key is taken is a conflict.
	Done(ctx context.Context, key string) (*IdempotencyResult, error)
	// DropDone forgets what was kept before that time, and the oldest of what
	// is over the limit.
	DropDone(ctx context.Context, before time.Time, limit int) error
	// History returns the newest entries of a node, oldest first.
	History(ctx context.Context, node string, limit int) ([]inventory.HistoryEntry, error)

	// AppendLog stores bytes of a job's log. offset must be the log's size.
	AppendLog(ctx context.Context, job string, s Stream, offset int64, data []byte) error
	// ReadLog returns bytes from the offset on: one stored chunk or the rest of
	// one. Empty: there are none yet.
	ReadLog(ctx context.Context, job string, s Stream, offset int64) ([]byte, error)
	// LogSize is the number of bytes that a log has.
	LogSize(ctx context.Context, job string, s Stream) (int64, error)
}

func join(names []string) string { return strings.Join(names, ", ") }
