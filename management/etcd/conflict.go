// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"maps"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/record"
)

// unknownKind stands for the kind of a conflict that etcd did not tell in time.
const unknownKind = "unknown"

// conflicts counts the transactions that were refused because somebody had changed a key of a kind meanwhile.
type conflicts struct {
	mu    sync.Mutex
	kinds map[string]int
}

// begin counts from zero for kinds of record.
func (c *conflicts) begin(kinds []record.Any) {
	c.kinds = make(map[string]int, len(kinds))
	for _, k := range kinds {
		c.kinds[k.KindName()] = 0
	}
}

// Conflicts returns the number of transactions that were refused because of a change by somebody else, by the kind of
// the key that had changed. One that was refused because of several kinds counts for each.
func (s *Store) Conflicts() map[string]int {
	s.conflicts.mu.Lock()
	defer s.conflicts.mu.Unlock()

	return maps.Clone(s.conflicts.kinds)
}

// countConflict counts a refused transaction. It asks etcd which of the conditions do not hold, so the one that writes
// pays nothing where nobody is in its way. A later change may make more of them false, or one of them true again.
func (s *Store) countConflict(ctx context.Context, conditions []clientv3.Cmp) {
	// The request may have used most of its time up.
	ctx, cancel := etcd.Bounded(context.WithoutCancel(ctx))
	defer cancel()

	kinds := map[string]bool{}

	for rest := conditions; len(rest) > 0; {
		some := rest[:min(len(rest), etcd.MaxOps)]
		rest = rest[len(some):]

		ask := make([]clientv3.Op, len(some))
		for i, c := range some {
			ask[i] = clientv3.OpTxn([]clientv3.Cmp{c}, nil, nil)
		}

		resp, err := s.client.Txn(ctx).Then(ask...).Commit()
		if err != nil {
			kinds[unknownKind] = true
			break
		}

		for i, r := range resp.Responses {
			if !r.GetResponseTxn().Succeeded {
				kinds[kindOf(s.client.Prefix, string(some[i].KeyBytes()))] = true
			}
		}
	}

	s.conflicts.mu.Lock()
	defer s.conflicts.mu.Unlock()

	if s.conflicts.kinds == nil { // a store without a view
		s.conflicts.kinds = map[string]int{}
	}

	for kind := range kinds {
		s.conflicts.kinds[kind]++
	}
}

// kindOf returns the kind of a key: that of its record, or else the first word below the prefix.
func kindOf(prefix, key string) string {
	below := strings.TrimPrefix(strings.TrimPrefix(key, prefix+"/"), "v/")
	kind, _, _ := strings.Cut(below, "/")

	return kind
}
