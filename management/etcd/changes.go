// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// The limits of the changes kept for watches. At 100 transitions per second they cover
// a good minute, which is longer than a client takes to reconnect.
const (
	feedCount = 16 << 10
	feedBytes = 16 << 20
)

// subject identifies a changed record.
type subject struct {
	kind state.ChangeKind
	name string
}

// pending collects the changes of the revision that is being applied. The effective
// node is certain only after the whole revision, because a job in the same revision
// may commit its reservation.
type pending struct {
	revision int64
	order    []subject
	before   map[subject]any // the records before the revision
	size     map[subject]int // the size of the records, in bytes
	complete []state.Change  // the changes of earlier revisions, not published yet
	disabled bool            // all records are being read again, in any order
}

// markRecord notes that a record of a kind is written.
func (v *view) markRecord(ref record.Ref, before any, size int) {
	if v.pending.disabled {
		return
	}

	s := subject{state.ChangeKind(ref.Kind), ref.Key}

	switch ref.Kind {
	case state.Connections.Name: // shown with the node
		s.kind, before = state.ChangeNodes, v.node(ref.Key)
	case state.Overlays.Name, state.ConfigFiles.Name: // there is one configuration
		s = subject{state.ChangeConfig, ""}
	}

	if v.pending.size == nil {
		v.pending.before, v.pending.size = map[subject]any{}, map[subject]int{}
	}

	if _, marked := v.pending.size[s]; !marked {
		v.pending.order = append(v.pending.order, s)
		v.pending.before[s] = before
	}

	v.pending.size[s] += size
}

// connection returns the connection settings of a node, or nil.
func (v *view) connection(node string) *configuration.Connection {
	c, _ := v.tables.Get(record.Ref{Kind: state.Connections.Name, Key: node}).(*configuration.Connection)
	return c
}

// beginRevision ends the previous revision if the event belongs to a new one.
func (v *view) beginRevision(revision int64) {
	if revision != v.pending.revision {
		v.endRevision()
		v.pending.revision = revision
	}
}

// endRevision makes a change of each marked subject.
func (v *view) endRevision() {
	p := &v.pending

	// A change takes about this many bytes beside the record.
	const overhead = 512

	for _, s := range p.order {
		c := state.Change{Revision: p.revision, Kind: s.kind, Name: s.name, Size: overhead + p.size[s]}

		switch s.kind {
		case state.ChangeNodes:
			c.Was, _ = p.before[s].(*inventory.Node)
			if c.Node = v.node(s.name); c.Node == nil && c.Was == nil {
				continue // the connection of a node that does not exist
			}

			if conn := v.connection(s.name); c.Node != nil {
				c.Connection = conn
			}
		case state.ChangeVars:
			if vars, ok := v.tables.Get(record.Ref{Kind: state.Variables.Name, Key: s.name}).(*state.ScopeVars); ok {
				c.Vars = vars.Vars
			}
		case state.ChangeConfig:
		default:
			ref := record.Ref{Kind: string(s.kind), Key: s.name}

			now, former, size, changed := v.tables.Change(ref, p.before[s])
			if !changed {
				continue
			}

			c.Record, c.Former, c.Size = now, former, c.Size+size
		}

		p.complete = append(p.complete, c)
	}

	// Cleared and kept, because the next revision needs them again.
	p.order = p.order[:0]
	clear(p.before)
	clear(p.size)
}

// publishChanges ends the revision and publishes all changes so far.
func (v *view) publishChanges() {
	v.endRevision()

	if v.feed != nil {
		v.feed.Publish(v.revision, v.pending.complete)
	}

	v.pending.complete = nil
}

// markDifferences marks all differences to the old contents as changes of one
// revision, after all records were read again. The first load starts the feed.
func (v *view) markDifferences(old record.View, revision int64) {
	v.pending = pending{revision: revision}
	if v.feed == nil {
		v.feed = state.NewFeed(revision, feedCount, feedBytes)
		return
	}

	record.Differences(old, v.tables.View(), func(ref record.Ref, before any) {
		if v.markRecord(ref, before, 0); ref.Kind == state.Connections.Name {
			v.pending.before[subject{state.ChangeNodes, ref.Key}] = record.Get(old, &state.Nodes, ref.Key)
		}
	})

	// A job commits its reservations without a write of the nodes.
	for name := range v.reserved {
		if before := record.Get(old, &state.Nodes, name); before != nil && before.Job != v.node(name).Job {
			v.markRecord(record.Ref{Kind: state.Nodes.Name, Key: name}, before, 0)
		}
	}
}
