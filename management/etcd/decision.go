// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/record"
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

// Commit implements record.Store. A full store accepts a transaction that only removes.
func (s *Store) Commit(ctx context.Context, tx *record.Tx) (int64, error) {
	ops, err := s.txOps(tx)
	if err != nil {
		return 0, err
	}

	revision, err := s.commit(ctx, ops)
	if !etcd.IsFull(err) {
		return revision, err
	}

	if ops.Then = onlyDeletions(ops.Then); ops.Then == nil {
		return 0, err
	}

	return s.removeFromFull(ctx, ops)
}

// txOps returns the operations of a transaction.
func (s *Store) txOps(tx *record.Tx) (etcd.Ops, error) {
	var ops etcd.Ops

	writes, err := tx.Writes()
	if err != nil {
		return ops, err
	}

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

	return ops, nil
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
