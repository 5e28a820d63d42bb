// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/state"
)

// freezeRecord is the freeze of all changes.
type freezeRecord struct {
	On     bool      `json:"on,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	Actor  string    `json:"actor,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

func newFreezeRecord(f state.Freeze) freezeRecord {
	return freezeRecord{On: f.On, Since: f.Since, Until: f.Until, Actor: f.Actor, Reason: f.Reason}
}

func (r freezeRecord) freeze(revision int64) state.Freeze {
	return state.Freeze{
		On: r.On, Since: r.Since, Until: r.Until, Actor: r.Actor, Reason: r.Reason, Revision: revision,
	}
}

func (s *Store) freezeKey() string { return s.key("/v/freeze") }

// PutFreeze stores the freeze, if it is still at f.Revision. Else it is KindConflict and
// changes nothing.
func (s *Store) PutFreeze(ctx context.Context, f state.Freeze) error {
	op, err := put(s.freezeKey(), newFreezeRecord(f))
	if err != nil {
		return err
	}

	_, err = s.commit(ctx, etcd.Ops{
		If:   []clientv3.Cmp{atRevision(s.freezeKey(), f.Revision)},
		Then: []clientv3.Op{op},
	})

	return err
}

// applyFreeze keeps the last readable record. Package window holds jobs back while the
// record cannot be read.
func (v *view) applyFreeze(deleted bool, kv *mvccpb.KeyValue) error {
	if deleted {
		v.freeze = state.Freeze{}
		return nil
	}

	record, err := decode[freezeRecord](kv.Value)
	if err == nil {
		v.freeze = record.freeze(kv.ModRevision)
	}

	return err
}
