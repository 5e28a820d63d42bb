// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management"
)

func (s *Store) onceKey(key string) string { return s.key("/x/once/%s", key) }

// keep adds to a transaction the record of what it does, and that there is
// none yet.
func (s *Store) keep(ops *etcd.Ops, once *management.IdempotencyKey, job string) error {
	if once == nil {
		return nil
	}

	key := s.onceKey(once.Key)
	record, err := put(key, management.IdempotencyResult{Request: once.Request, Job: job, Time: time.Now()})
	ops.Add(etcd.Ops{If: []clientv3.Cmp{atRevision(key, 0)}, Then: []clientv3.Op{record}})

	return err
}

// Done returns, by quorum, what was kept under the key.
func (s *Store) Done(ctx context.Context, key string) (*management.IdempotencyResult, error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.onceKey(key))
	if err != nil || len(resp.Kvs) == 0 {
		return nil, etcd.Error(err)
	}

	var d management.IdempotencyResult
	if err := json.Unmarshal(resp.Kvs[0].Value, &d); err != nil {
		return nil, err
	}

	d.Revision = resp.Kvs[0].ModRevision

	return &d, nil
}

// DropDone forgets the oldest, a transaction's worth at a time, until what is
// left is neither too old nor too much.
func (s *Store) DropDone(ctx context.Context, before time.Time, limit int) error {
	for {
		more, err := s.dropDone(ctx, before, limit)
		if err != nil || !more {
			return err
		}
	}
}

func (s *Store) dropDone(ctx context.Context, before time.Time, limit int) (more bool, err error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.onceKey(""), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(etcd.MaxOps))
	if err != nil {
		return false, etcd.Error(err)
	}

	var drop []clientv3.Op
	for i, kv := range resp.Kvs {
		var d management.IdempotencyResult
		// What cannot be read is of no use to anybody.
		if json.Unmarshal(kv.Value, &d) == nil && !d.Time.Before(before) && resp.Count-int64(i) <= int64(limit) {
			break
		}

		drop = append(drop, clientv3.OpDelete(string(kv.Key)))
	}

	if len(drop) == 0 {
		return false, nil
	}

	// They are not in the view: nobody need look.
	if _, err := s.client.Txn(ctx).Then(drop...).Commit(); err != nil {
		return false, etcd.Error(err)
	}

	return len(drop) == len(resp.Kvs) && resp.Count > int64(len(drop)), nil
}
