// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// variablesChangeRecord is one change of the variables of a scope.
type variablesChangeRecord struct {
	Seq    uint64             `json:"seq"`
	Time   time.Time          `json:"time"`
	Actor  string             `json:"actor,omitempty"`
	Action string             `json:"action"`
	Before configuration.Vars `json:"before,omitempty"`
	After  configuration.Vars `json:"after,omitempty"`
}

func newVariablesChangeRecord(c variable.Change) variablesChangeRecord {
	return variablesChangeRecord{
		Seq: c.Seq, Time: c.Time, Actor: c.Actor, Action: c.Action, Before: c.Before, After: c.After,
	}
}

func (r variablesChangeRecord) change(revision int64) variable.Change {
	return variable.Change{
		Seq:      r.Seq,
		Revision: revision,
		Time:     r.Time,
		Actor:    r.Actor,
		Action:   r.Action,
		Before:   r.Before,
		After:    r.After,
	}
}

// variablesHistoryPrefix returns the prefix of all recorded changes of a scope.
func (s *Store) variablesHistoryPrefix(scope state.Scope) string { return s.key("/x/vars/%s/", scope) }

// variablesHistoryKey returns the key of a recorded change. The keys of a scope sort
// by age.
func (s *Store) variablesHistoryKey(scope state.Scope, seq uint64) string {
	return s.key("/x/vars/%s/%016x", scope, seq)
}

// recordOps returns the operations that append a change to the history of a scope, and
// drop the oldest changes beyond its limits.
func (s *Store) recordOps(ctx context.Context, scope state.Scope, c variable.Change) (etcd.Ops, error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()

	prefix := s.variablesHistoryPrefix(scope)

	resp, err := s.client.Get(bounded, prefix, clientv3.WithPrefix())
	if err != nil {
		return etcd.Ops{}, s.failure(bounded, err)
	}

	c.Seq = 1

	if n := len(resp.Kvs); n > 0 {
		newest, err := decode[variablesChangeRecord](resp.Kvs[n-1].Value)
		if err != nil {
			return etcd.Ops{}, err
		}
		c.Seq = newest.Seq + 1
	}

	key := s.variablesHistoryKey(scope, c.Seq)

	stored, err := s.secrets.sealChange(scope, c)
	if err != nil {
		return etcd.Ops{}, err
	}
	entry, err := put(key, newVariablesChangeRecord(stored))
	if err != nil {
		return etcd.Ops{}, err
	}

	// Two changes at a time would get the same number.
	ops := etcd.Ops{If: []clientv3.Cmp{atRevision(key, 0)}, Then: []clientv3.Op{entry}}

	bytes, kept := len(entry.ValueBytes()), 1
	for _, kv := range slices.Backward(resp.Kvs) {
		bytes += len(kv.Value)
		kept++

		if kept > variable.HistoryLimit || bytes > variable.HistoryBytes {
			// The end of a range is exclusive.
			past := clientv3.WithRange(string(kv.Key) + "\x00")
			ops.Then = append(ops.Then, clientv3.OpDelete(prefix, past))
			break
		}

		marked, err := s.hideOps(scope, kv, c)
		if err != nil {
			return etcd.Ops{}, err
		}
		ops.Add(marked)
	}

	return ops, nil
}

// hideOps returns the operations that encrypt in an older change the values that are secret
// in c; none if nothing there is in the clear.
func (s *Store) hideOps(scope state.Scope, older *mvccpb.KeyValue, c variable.Change) (etcd.Ops, error) {
	record, err := decode[variablesChangeRecord](older.Value)
	if err != nil {
		return etcd.Ops{}, err
	}
	change, wasClear := s.secrets.openChange(scope, record.change(0)).Mark(c.Secrets())
	if !wasClear {
		return etcd.Ops{}, nil
	}
	if change, err = s.secrets.sealChange(scope, change); err != nil {
		return etcd.Ops{}, err
	}

	key := string(older.Key)
	write, err := put(key, newVariablesChangeRecord(change))

	return etcd.Ops{If: []clientv3.Cmp{atRevision(key, older.ModRevision)}, Then: []clientv3.Op{write}}, err
}

// VarsHistory returns the recorded changes of a scope, oldest first.
func (s *Store) VarsHistory(ctx context.Context, scope state.Scope) ([]variable.Change, error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(bounded, s.variablesHistoryPrefix(scope), clientv3.WithPrefix())
	if err != nil {
		return nil, s.failure(bounded, err)
	}
	history := make([]variable.Change, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		record, err := decode[variablesChangeRecord](kv.Value)
		if err != nil {
			return nil, err
		}

		// A new key of the secrets writes the record again.
		history[i] = s.secrets.openChange(scope, record.change(kv.CreateRevision))
	}

	return history, nil
}
