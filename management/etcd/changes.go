// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"reflect"

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
	before   map[subject]*inventory.Node // the effective node before the revision; nil: none
	records  map[subject]any             // the records of kinds before the revision
	size     map[subject]int             // the size of the records, in bytes
	complete []state.Change              // the changes of earlier revisions, not published yet
	disabled bool                        // all records are being read again, in any order
}

// markChanged notes that a subject is about to change with a record of that size.
func (v *view) markChanged(kind state.ChangeKind, name string, size int) {
	s := subject{kind, name}
	if v.mark(s, size) && kind == state.ChangeNodes {
		v.pending.before[s], _ = v.effective(name)
	}
}

// markRecord notes that a record of a kind is written.
func (v *view) markRecord(ref record.Ref, before any, size int) {
	switch ref.Kind {
	case state.Connections.Name: // shown with the node
		v.markChanged(state.ChangeNodes, ref.Key, size)
		return
	case state.Overlays.Name, state.ConfigFiles.Name: // there is one configuration
		v.markChanged(state.ChangeConfig, "", size)
		return
	}

	if s := (subject{state.ChangeKind(ref.Kind), ref.Key}); v.mark(s, size) {
		v.pending.records[s] = before
	}
}

// mark notes the change of a subject. It reports whether that is the first one of the revision.
func (v *view) mark(s subject, size int) (first bool) {
	if v.pending.disabled {
		return false
	}

	if v.pending.size == nil {
		v.pending.before, v.pending.size = map[subject]*inventory.Node{}, map[subject]int{}
		v.pending.records = map[subject]any{}
	}

	_, marked := v.pending.size[s]
	if v.pending.size[s] += size; !marked {
		v.pending.order = append(v.pending.order, s)
	}

	return !marked
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
			c.Was = p.before[s]
			if c.Node, _ = v.effective(s.name); c.Node == nil && c.Was == nil {
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

			now, former, size, changed := v.tables.Change(ref, p.records[s])
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
	clear(p.records)
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

// contents is the part of a view that watches can follow.
type contents struct {
	nodes   map[string]*inventory.Node
	records record.View
}

func (v *view) contents() contents {
	c := contents{
		nodes:   make(map[string]*inventory.Node, len(v.nodes)),
		records: v.tables.View(),
	}
	for name := range v.nodes {
		c.nodes[name], _ = v.effective(name)
	}

	return c
}

// markDifferences marks all differences to the old contents as changes of one
// revision, after all records were read again. The first load starts the feed.
func (v *view) markDifferences(old contents, revision int64) {
	v.pending = pending{revision: revision}
	if v.feed == nil {
		v.feed = state.NewFeed(revision, feedCount, feedBytes)
		return
	}

	mark := func(kind state.ChangeKind, name string) { v.markChanged(kind, name, 0) }
	now := v.contents()

	eachKey(old.nodes, now.nodes, func(name string) {
		sameNode := reflect.DeepEqual(old.nodes[name], now.nodes[name])
		sameConnection := reflect.DeepEqual(
			record.Get(old.records, &state.Connections, name), record.Get(now.records, &state.Connections, name))

		if !sameNode || !sameConnection {
			mark(state.ChangeNodes, name)
			// The maps hold the new records already, so markChanged saw the new node.
			v.pending.before[subject{state.ChangeNodes, name}] = old.nodes[name]
		}
	})

	record.Differences(old.records, now.records, func(ref record.Ref, before any) {
		if ref.Kind != state.Connections.Name {
			v.markRecord(ref, before, 0)
		}
	})
}

// eachKey calls f once for every key of the two maps.
func eachKey[K comparable, V any](a, b map[K]V, f func(K)) {
	for k := range a {
		f(k)
	}

	for k := range b {
		if _, visited := a[k]; !visited {
			f(k)
		}
	}
}
