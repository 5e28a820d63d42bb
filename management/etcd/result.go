// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
)

func (s *Store) resultKey(id string) string { return s.key("/x/results/%s", id) }

// addResult adds the result of a mutation to its transaction, on condition that no
// result is stored under the key yet.
func (s *Store) addResult(ops *etcd.Ops, key *access.Key, result access.Result) error {
	if key == nil {
		return nil
	}

	path := s.resultKey(key.ID)
	result.Request, result.Time = key.Request, time.Now()
	record, err := put(path, result)
	ops.Add(etcd.Ops{If: []clientv3.Cmp{atRevision(path, 0)}, Then: []clientv3.Op{record}})

	return err
}

// Result returns, by quorum, the result stored under the key, or nil.
func (s *Store) Result(ctx context.Context, key string) (*access.Result, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.resultKey(key))
	if err != nil || len(resp.Kvs) == 0 {
		return nil, s.failure(ctx, err)
	}
	result, err := decode[access.Result](resp.Kvs[0].Value)
	// Callers wait for this revision, so that a retry sees the effect of the mutation.
	result.Revision = resp.Kvs[0].ModRevision

	return &result, err
}

// DropResults removes results, the oldest first, until none is older than before
// and no more than limit are left. Each transaction removes a bounded number.
func (s *Store) DropResults(ctx context.Context, before time.Time, limit int) error {
	for {
		more, err := s.dropResults(ctx, before, limit)
		if err != nil || !more {
			return err
		}
	}
}

func (s *Store) dropResults(ctx context.Context, before time.Time, limit int) (more bool, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	oldestFirst := clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)

	resp, err := s.client.Get(ctx, s.resultKey(""), clientv3.WithPrefix(), oldestFirst, clientv3.WithLimit(etcd.MaxOps))
	if err != nil {
		return false, s.failure(ctx, err)
	}

	var drop []clientv3.Op
	for i, kv := range resp.Kvs {
		// A result that cannot be decoded is dropped as well.
		record, err := decode[access.Result](kv.Value)
		withinLimit := resp.Count-int64(i) <= int64(limit)

		if err == nil && !record.Time.Before(before) && withinLimit {
			break
		}

		drop = append(drop, clientv3.OpDelete(string(kv.Key)))
	}

	if len(drop) == 0 {
		return false, nil
	}

	// Results are not in the view, so there is no revision to wait for.
	if _, err := s.client.Txn(ctx).Then(drop...).Commit(); err != nil {
		return false, s.failure(ctx, err)
	}

	return len(drop) == len(resp.Kvs) && resp.Count > int64(len(drop)), nil
}
