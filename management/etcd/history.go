// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
)

// historyPrefix returns the prefix of all history entries of a node.
func (s *Store) historyPrefix(node string) string { return s.key("/x/history/%s/", node) }

// historyKey returns the key of a history entry. The keys of a node sort by age.
func (s *Store) historyKey(node string, seq uint64) string {
	return s.key("/x/history/%s/%016x", node, seq)
}

// historyOps returns the operations that append entries to a node's history. They
// delete one old entry for each new entry beyond inventory.HistoryLimit.
func (s *Store) historyOps(node string, entries []inventory.HistoryEntry) ([]clientv3.Op, error) {
	var ops []clientv3.Op
	for _, e := range entries {
		entry, err := put(s.historyKey(node, e.Seq), e)
		if err != nil {
			return nil, err
		}
		ops = append(ops, entry)
		if e.Seq > inventory.HistoryLimit {
			ops = append(ops, clientv3.OpDelete(s.historyKey(node, e.Seq-inventory.HistoryLimit)))
		}
	}

	return ops, nil
}

// History returns the newest entries of a node, at most limit, oldest first. It
// omits the entries of claims that were never committed.
func (s *Store) History(ctx context.Context, node string, limit int) ([]inventory.HistoryEntry, error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()

	newestFirst := clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend)

	resp, err := s.client.Get(bounded, s.historyPrefix(node), clientv3.WithPrefix(), newestFirst,
		clientv3.WithLimit(int64(limit)))
	if err != nil {
		return nil, s.failure(bounded, err)
	}
	entries := make([]inventory.HistoryEntry, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		e, err := decode[inventory.HistoryEntry](kv.Value)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}

	// The filter needs the release of a job before its claim, so it runs newest first.
	entries = dropUncommitted(s.View(), entries)
	slices.Reverse(entries)

	return entries, nil
}
