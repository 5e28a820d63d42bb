// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

var _ record.Store = (*Store)(nil)

// Latest implements record.Store. The records are those of View.
func (s *Store) Latest() (record.Reader, int64) {
	v := s.View()
	return v, v.Revision
}

// removedKey is written with each removal of a record of the kind. The keys that are left do not
// show it.
func (s *Store) removedKey(kind string) string { return s.key("/x/removed/%s", kind) }

// Commit implements record.Store. Under the context of an owned job, the ownership is a guard. A full
// store accepts a transaction that only removes.
func (s *Store) Commit(ctx context.Context, tx *record.Tx) (int64, error) {
	defer s.secrets.hold()()

	ops, err := s.txOps(ctx, tx)
	if err != nil {
		return 0, err
	}
	revision, err := s.commitRecorded(ctx, ops)
	if !etcd.IsFull(err) {
		return revision, err
	}

	if ops.Then = onlyDeletions(ops.Then); ops.Then == nil {
		return 0, err
	}

	return s.removeFromFull(ctx, ops)
}

// txOps returns the operations of a transaction.
func (s *Store) txOps(ctx context.Context, tx *record.Tx) (etcd.Ops, error) {
	marks := markWriter{view: s.View()}

	writes, err := tx.Writes(func(at []string, values map[string]any) (map[string]any, error) {
		return s.secrets.sealVars(at, marks.written(at, values), false)
	})
	if err != nil {
		return etcd.Ops{}, err
	}
	ops := marks.ops(s, tx.Revision(), writes)
	ops.If = append(ops.If, ownerFence(ctx)...)

	for _, part := range tx.Parts() {
		more, err := s.partOps(ctx, part)
		if err != nil {
			return ops, err
		}
		ops.Add(more)
	}

	ops.Then = s.joinEntries(ops.Then)

	records, kinds := tx.Guards()
	for path, revision := range records {
		ops.If = append(ops.If, atRevision(s.key("/v/%s", path), revision))
	}

	for kind := range kinds {
		// With the slash no other kind is in the range; the key of a single record is no list.
		prefix := s.key("/v/%s/", kind)
		ops.If = append(ops.If, unchanged(prefix, tx.Revision()).WithPrefix(),
			unchanged(s.removedKey(kind), tx.Revision()))
	}

	removed := map[string]bool{}

	for _, w := range writes {
		path := s.key("/v/%s", w.Path)
		if w.Value != nil {
			ops.Then = append(ops.Then, clientv3.OpPut(path, string(w.Value)))
			continue
		}

		ops.Then = append(ops.Then, clientv3.OpDelete(path))

		if kind := record.KindOf(w.Path); !removed[kind] {
			removed[kind] = true
			ops.Then = append(ops.Then, clientv3.OpPut(s.removedKey(kind), ""))
		}
	}

	ops.Then = withoutRepeats(ops.Then)

	return ops, nil
}

// withoutRepeats returns operations without repeated puts of the same mark, of which a transaction takes one. Parts
// of a transaction put marks without knowledge of each other.
func withoutRepeats(ops []clientv3.Op) []clientv3.Op {
	put := map[string]bool{}

	return slices.DeleteFunc(ops, func(op clientv3.Op) bool {
		if !op.IsPut() || len(op.ValueBytes()) > 0 {
			return false
		}

		key := string(op.KeyBytes())
		repeated := put[key]
		put[key] = true

		return repeated
	})
}

// partOps returns the operations of a part of a transaction that is no record of a kind. The caller
// holds the secrets until it has committed.
func (s *Store) partOps(ctx context.Context, part any) (etcd.Ops, error) {
	switch part := part.(type) {
	case variable.Recorded:
		return s.recordOps(ctx, part.Scope, part.Change)
	case state.NodeWrite:
		if part.Tombstone == nil {
			return s.putNodeOps(s.keepReservation(part.Node), part.Entries)
		}

		ops, err := s.forgetOps(part.Node, *part.Tombstone)
		ops.Then = append(ops.Then, s.unmarkOps([]state.NodeWrite{part})...)

		return ops, err
	case state.PutInputs:
		in, marks := s.markInputs(part.Inputs)
		write, err := s.putInputs(part.Name, in)
		return etcd.Ops{If: []clientv3.Cmp{marks}, Then: []clientv3.Op{write}}, err
	case state.DropInputs:
		return etcd.Ops{Then: []clientv3.Op{clientv3.OpDelete(s.inputsKey(part.Name))}}, nil
	case state.DropLogs:
		return etcd.Ops{Then: s.dropLogOps(part.Job)}, nil
	case access.Entry:
		return etcd.Ops{Then: s.entryOps(part)}, nil
	case access.StoreResult:
		var ops etcd.Ops
		err := s.addResult(&ops, &part.Key, part.Result)
		return ops, err
	}

	return etcd.Ops{}, fmt.Errorf("the store knows no part of a transaction of type %T", part)
}

// onlyDeletions returns the deletions among operations, or nil if a put is of more than a mark.
func onlyDeletions(ops []clientv3.Op) (deletions []clientv3.Op) {
	for _, op := range ops {
		switch {
		case op.IsDelete():
			deletions = append(deletions, op)
		case len(op.ValueBytes()) > 0:
			return nil
		}
	}

	return deletions
}
