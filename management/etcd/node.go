// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/state"
)

func (s *Store) nodeKey(name string) string { return s.key("/v/nodes/%s", name) }

// putNodeOps returns the operations that write a node and append to its history, on
// condition that the record is still at n.Revision (0: it must not exist).
func (s *Store) putNodeOps(n inventory.Node, entries []inventory.HistoryEntry) (etcd.Ops, error) {
	key := s.nodeKey(n.Name)

	node, err := put(key, n)
	if err != nil {
		return etcd.Ops{}, err
	}

	history, err := s.historyOps(n.Name, entries)
	if err != nil {
		return etcd.Ops{}, err
	}

	return etcd.Ops{
		If:   []clientv3.Cmp{atRevision(key, n.Revision)},
		Then: append([]clientv3.Op{node}, history...),
	}, nil
}

// nodeOps returns the operations of each write: those of a node, or of its removal
// if the write has a tombstone.
func (s *Store) nodeOps(writes []state.NodeWrite) ([]etcd.Ops, error) {
	parts := make([]etcd.Ops, len(writes))

	var err error
	for i, w := range writes {
		if w.Tombstone != nil {
			parts[i], err = s.forgetOps(w.Node, *w.Tombstone)
		} else {
			parts[i], err = s.putNodeOps(w.Node, w.Entries)
		}

		if err != nil {
			return nil, err
		}
	}

	return parts, nil
}

// parallelChunks is the number of chunks in flight to etcd at a time. Chunks do not
// depend on each other, and etcd syncs those that arrive together to disk at once.
const parallelChunks = 4

// PutNodes writes nodes in chunks and returns the names of the nodes that changed
// since they were read. It writes a conflicting chunk again node by node, so that
// one conflict does not hold the others back.
func (s *Store) PutNodes(ctx context.Context, writes []state.NodeWrite) (conflicts []string, err error) {
	appear := func(w state.NodeWrite) bool { return w.Agent != nil }

	if slices.ContainsFunc(writes, appear) {
		if conflicts, err = s.putAppeared(ctx, writes); err != nil {
			return conflicts, err
		}

		if writes = slices.DeleteFunc(slices.Clone(writes), appear); len(writes) == 0 {
			return conflicts, nil
		}

		others, err := s.PutNodes(ctx, writes)

		return append(conflicts, others...), err
	}

	parts := make([]etcd.Ops, len(writes))
	for i, w := range writes {
		if parts[i], err = s.putNodeOps(s.keepReservation(w.Node), w.Entries); err != nil {
			return nil, err
		}

		if err := s.addConnection(&parts[i], w.Node.Name, w.Connection); err != nil {
			return nil, err
		}
	}

	// A slot is free as soon as a chunk is written, so a slow one holds up no other.
	chunks := pack(parts, 0)
	if len(chunks) == 1 {
		return s.putChunk(ctx, writes, chunks[0])
	}
	conflicting, errs := make([][]string, len(chunks)), make([]error, len(chunks))
	slots := make(chan struct{}, parallelChunks)

	var writers sync.WaitGroup

	var failed atomic.Bool
	for i, ops := range chunks {
		// Each write has exactly one condition, so they count the writes of a chunk.
		chunk := writes[:len(ops.If)]
		writes = writes[len(ops.If):]
		slots <- struct{}{}

		if failed.Load() {
			break
		}

		writers.Go(func() {
			conflicting[i], errs[i] = s.putChunk(ctx, chunk, ops)
			failed.CompareAndSwap(false, errs[i] != nil)
			<-slots
		})
	}

	writers.Wait()

	for _, err := range errs {
		if err != nil {
			return slices.Concat(conflicting...), err
		}
	}

	return slices.Concat(conflicting...), nil
}

// putAppeared writes the new nodes whose agents speak, unless machines were registered since that was decided: a new
// node may be one of these.
func (s *Store) putAppeared(ctx context.Context, writes []state.NodeWrite) (conflicts []string, err error) {
	const operations = 3 // of a node: the node, its history and its agent

	for at := 0; at < len(writes); {
		var (
			ops   etcd.Ops
			names []string
		)

		for ; at < len(writes) && len(ops.Then) < etcd.MaxOps-2*operations; at++ {
			w := writes[at]
			if w.Agent == nil {
				continue
			}

			part, err := s.putNodeOps(w.Node, w.Entries)
			if err != nil {
				return conflicts, err
			}

			agent, err := put(s.key("/v/%s", state.Agents.PathOf(w.Agent)), w.Agent)
			if err != nil {
				return conflicts, err
			}

			ops.Add(part)
			ops.Then = append(ops.Then, agent)

			if names = append(names, w.Node.Name); len(names) == 1 {
				machines := unchanged(s.key("/v/%s", state.Machines.Path("")), w.Decided)
				ops.If = append(ops.If, machines.WithPrefix())
			}
		}

		if len(names) == 0 {
			break
		}

		switch _, err := s.commit(ctx, ops); {
		case inventory.KindOf(err) == inventory.KindConflict:
			conflicts = append(conflicts, names...)
		case err != nil:
			return conflicts, err
		}
	}

	return conflicts, nil
}

func (s *Store) putChunk(ctx context.Context, chunk []state.NodeWrite, ops etcd.Ops) (conflicts []string, err error) {
	if len(chunk) == 1 {
		_, err = s.commitRecorded(ctx, ops)
	} else {
		_, err = s.commit(ctx, ops)
	}

	switch {
	case inventory.KindOf(err) != inventory.KindConflict:
		return nil, err
	case len(chunk) == 1:
		return []string{chunk[0].Node.Name}, nil
	}

	// Node by node, the nodes without a conflict are written.
	for _, w := range chunk {
		more, err := s.PutNodes(ctx, []state.NodeWrite{w})
		if err != nil {
			return conflicts, err
		}
		conflicts = append(conflicts, more...)
	}

	return conflicts, nil
}
