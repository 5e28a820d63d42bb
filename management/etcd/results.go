// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
)

func (s *Store) resultKey(id string) string { return s.key("/x/results/%s", id) }

// storeResult adds the result of a mutation to its transaction, guarded so that
// no other result is stored under the key.
func (s *Store) storeResult(ops *etcd.Ops, key *access.Key, job string) error {
	if key == nil {
		return nil
	}

	path := s.resultKey(key.ID)
	record, err := put(path, access.Result{Request: key.Request, Job: job, Time: time.Now()})
	ops.Add(etcd.Ops{If: []clientv3.Cmp{atRevision(path, 0)}, Then: []clientv3.Op{record}})

	return err
}

// Result returns, by quorum, the result stored under the key, or nil.
func (s *Store) Result(ctx context.Context, key string) (*access.Result, error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.resultKey(key))
	if err != nil || len(resp.Kvs) == 0 {
		return nil, etcd.Error(err)
	}

	var result access.Result
	if err := json.Unmarshal(resp.Kvs[0].Value, &result); err != nil {
		return nil, err
	}

	result.Revision = resp.Kvs[0].ModRevision

	return &result, nil
}

// DropResults removes the oldest results, a transaction at a time, until the
// rest is neither too old nor too many.
func (s *Store) DropResults(ctx context.Context, before time.Time, limit int) error {
	for {
		more, err := s.dropResults(ctx, before, limit)
		if err != nil || !more {
			return err
		}
	}
}

func (s *Store) dropResults(ctx context.Context, before time.Time, limit int) (more bool, err error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.resultKey(""), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(etcd.MaxOps))
	if err != nil {
		return false, etcd.Error(err)
	}

	var drop []clientv3.Op
	for i, kv := range resp.Kvs {
		var result access.Result

		// A result that cannot be decoded is dropped as well.
		decoded := json.Unmarshal(kv.Value, &result) == nil
		if decoded && !result.Time.Before(before) && resp.Count-int64(i) <= int64(limit) {
			break
		}

		drop = append(drop, clientv3.OpDelete(string(kv.Key)))
	}

	if len(drop) == 0 {
		return false, nil
	}

	// Results are not in the view, so there is nothing to wait for.
	if _, err := s.client.Txn(ctx).Then(drop...).Commit(); err != nil {
		return false, etcd.Error(err)
	}

	return len(drop) == len(resp.Kvs) && resp.Count > int64(len(drop)), nil
}
