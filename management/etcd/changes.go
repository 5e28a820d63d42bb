// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// The limits of the changes kept for watches. At 100 transitions per second they cover
// a good minute, which is longer than a client takes to reconnect.
const (
	feedCount = 16 << 10
	feedBytes = 16 << 20
)

// pending collects the changes of the revision that is being applied. The effective
// node is certain only after the whole revision, because a job in the same revision
// may commit its reservation.
type pending struct {
	revision int64
	order    []record.Ref
	before   map[record.Ref]any // the records before the revision
	size     map[record.Ref]int // the size of the records, in bytes
	complete []state.Change     // the changes of earlier revisions, not published yet
	disabled bool               // all records are being read again, in any order
}

// markRecord notes that a record of a kind is written.
func (v *view) markRecord(ref record.Ref, before any, size int) {
	if v.pending.disabled {
		return
	}

	switch ref.Kind {
	case state.Connections.Name: // shown with the node
		ref.Kind = job.Nodes.Name
		before = v.tables.Get(ref)
	case state.Overlays.Name, state.ConfigFiles.Name: // there is one configuration
		ref = state.Config
	}

	if v.pending.size == nil {
		v.pending.before, v.pending.size = map[record.Ref]any{}, map[record.Ref]int{}
	}

	if _, marked := v.pending.size[ref]; !marked {
		v.pending.order = append(v.pending.order, ref)
		v.pending.before[ref] = before
	}

	v.pending.size[ref] += size
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

	for _, ref := range p.order {
		c := state.Change{Ref: ref, Revision: p.revision, Size: overhead + p.size[ref]}

		if ref != state.Config {
			now, former, size, changed := v.tables.Change(ref, p.before[ref])

			// The connection of a node may have changed alone, or is left of one that is gone.
			if !changed && (now == nil || ref.Kind != job.Nodes.Name) {
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

	mark := func(ref record.Ref, before any) { v.markRecord(ref, before, 0) }
	now := v.tables.View()

	// A change of a connection marks the node as it is now, so those that differ come first.
	record.Differences(record.Only(old, &job.Nodes), record.Only(now, &job.Nodes), mark)

	// A job commits its reservations without a write of the nodes.
	for name := range v.reserved {
		if before := record.Get(old, &job.Nodes, name); before != nil && before.Job != v.node(name).Job {
			mark(record.Ref{Kind: job.Nodes.Name, Key: name}, before)
		}
	}

	record.Differences(old, now, mark)
}
