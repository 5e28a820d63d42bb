// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/audit"
)

// The audit trail is outside of the view: a change writes its entry, and a loop takes it into the chain; no watch sees
// either.
func (s *Store) auditKey(name string) string { return s.key("/x/audit/%s", name) }

// NewAuditReader returns a store of the trail to read from.
func NewAuditReader(client *etcd.Client) audit.Store {
	s := &Store{client: client}
	s.view.outage = newOutage()
	return s
}

// AuditRecords implements audit.Store.
func (s *Store) AuditRecords(ctx context.Context, q audit.Query) ([]audit.Stored, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(int64(q.Limit))}
	if q.Oldest {
		options = append(options, clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	}
	if q.Keys {
		options = append(options, clientv3.WithKeysOnly())
	}

	resp, err := s.client.Get(ctx, s.auditKey(q.Prefix), options...)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	records := make([]audit.Stored, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		records[i] = audit.Stored{
			Key: strings.TrimPrefix(string(kv.Key), s.auditKey("")), Value: kv.Value, Revision: kv.ModRevision,
		}
	}

	return records, nil
}

// WriteAudit implements audit.Store.
func (s *Store) WriteAudit(ctx context.Context, w audit.Write) (int64, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	var ops etcd.Ops
	if w.Guarded {
		ops.If = append(ops.If, atRevision(s.auditKey(audit.HeadKey), w.Head))
	}

	for name, value := range w.Put {
		ops.Then = append(ops.Then, clientv3.OpPut(s.auditKey(name), string(value)))
	}

	for _, name := range w.Drop {
		ops.Then = append(ops.Then, clientv3.OpDelete(s.auditKey(name)))
	}

	result := s.write(ctx, ops)
	if result.err == nil && !result.succeeded {
		return 0, errConflict()
	}
	return result.revision, result.err
}

// commitRecorded is commit for the last write of a mutation: the transaction has its audit entry, too, and the result
// of its key.
func (s *Store) commitRecorded(ctx context.Context, ops etcd.Ops) (int64, error) {
	change := access.ChangeOf(ctx)

	entry, err := change.Take(ctx, s.writtenJob(ops))
	if err != nil {
		return 0, err
	}
	if entry == nil {
		return s.commit(ctx, ops)
	}

	ops = etcd.Ops{If: slices.Clip(ops.If), Then: append(slices.Clip(ops.Then), s.entryOps(entry)...)}

	key := change.Key()
	if err := s.addResult(&ops, key, access.Result{}); err != nil {
		change.Stored(false)
		return 0, err
	}

	revision, err := s.commit(ctx, ops)
	change.Stored(revision != 0)

	// Another decision would meet the same result again.
	if key != nil && inventory.KindOf(err) == inventory.KindConflict {
		switch result, unread := s.Result(ctx, key.ID); {
		case unread != nil:
			return 0, unread
		case result != nil:
			return 0, access.ErrCarriedOut
		}
	}

	return revision, err
}

// entryOps returns the operation that adds an entry to the audit trail, or none for an empty one.
func (s *Store) entryOps(entry []byte) []clientv3.Op {
	if len(entry) == 0 {
		return nil
	}
	return []clientv3.Op{clientv3.OpPut(s.auditKey(audit.NewPrefix+rand.Text()), string(entry))}
}

// writtenJob returns the only job that is written, or "".
func (s *Store) writtenJob(ops etcd.Ops) (id string) {
	for _, op := range ops.Then {
		name, isJob := strings.CutPrefix(string(op.KeyBytes()), s.jobKey(""))

		switch {
		case isJob && id != "":
			return ""
		case isJob && op.IsPut():
			id = name
		}
	}

	return id
}

// joinEntries makes one write of those of audit entries, which have keys of their own: etcd does less for it.
func (s *Store) joinEntries(ops []clientv3.Op) []clientv3.Op {
	var (
		joined []clientv3.Op
		lines  []string
		key    string
	)

	for _, op := range ops {
		if op.IsPut() && strings.HasPrefix(string(op.KeyBytes()), s.auditKey(audit.NewPrefix)) {
			key, lines = string(op.KeyBytes()), append(lines, string(op.ValueBytes()))
		} else {
			joined = append(joined, op)
		}
	}

	if len(lines) == 0 {
		return ops
	}

	return append(joined, clientv3.OpPut(key, strings.Join(lines, "\n")))
}
