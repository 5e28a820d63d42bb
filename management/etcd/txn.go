// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
)

// headKey is the key that every write to the view writes as well, so one small read
// shows whether the view is current.
func headKey(prefix string) string { return prefix + "/v/head" }

// commit writes the operations if all conditions hold, and returns the revision once
// the view has reached it. It is KindConflict if a condition failed.
func (s *Store) commit(ctx context.Context, ops etcd.Ops) (int64, error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()

	then := append(slices.Clip(ops.Then), clientv3.OpPut(headKey(s.client.Prefix), ""))

	result := s.write(bounded, etcd.Ops{If: ops.If, Then: then})
	if result.err != nil {
		return 0, result.err
	}
	if !result.succeeded {
		return 0, errConflict()
	}

	return result.revision, s.explained(bounded, s.view.wait(bounded, result.revision))
}

// removeFromFull carries out the deletions of ops, which end with one, in a store that accepts no
// transaction with a write. It leaves out the head key: until the next write, a view that missed the
// deletions passes for current.
func (s *Store) removeFromFull(ctx context.Context, ops etcd.Ops) (int64, error) {
	ops.Then = slices.DeleteFunc(slices.Clone(ops.Then), clientv3.Op.IsPut)

	bounded, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Txn(bounded).If(ops.If...).Then(ops.Then...).Commit()
	if err != nil {
		return 0, s.failure(bounded, err)
	}
	if !resp.Succeeded {
		return 0, errConflict()
	}

	// Without a deletion there is no new revision, and nothing to wait for.
	if resp.Responses[len(ops.Then)-1].GetResponseDeleteRange().Deleted == 0 {
		return 0, nil
	}

	revision := resp.Header.Revision

	return revision, s.explained(bounded, s.view.wait(bounded, revision))
}

func errConflict() error {
	return inventory.Errorf(inventory.KindConflict, "it was changed by somebody else meanwhile").
		Do("read it again and repeat")
}

// unchanged is the condition that a key did not change after the revision.
func unchanged(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "<", revision+1)
}

// atRevision is the condition that a key last changed at the revision; 0: that it
// does not exist.
func atRevision(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

// headOps is the number of operations that commit adds, with the audit entry of commitRecorded and the result of a key.
const headOps = 3

// pack distributes parts over as few transactions as etcd's limits allow. It never
// splits a part, and leaves room for spare operations in each transaction. It
// returns at least one transaction.
func pack(parts []etcd.Ops, spare int) []etcd.Ops {
	var chunks []etcd.Ops
	var chunk etcd.Ops

	limit := etcd.MaxOps - spare - headOps

	bytes := 0
	for _, p := range parts {
		size := p.Bytes()
		bytes += size

		full := chunk.Size()+p.Size() > limit || bytes > etcd.MaxBytes
		if len(chunk.Then) > 0 && full {
			chunks = append(chunks, chunk)
			chunk, bytes = etcd.Ops{}, size
		}

		chunk.Add(p)
	}

	return append(chunks, chunk)
}
