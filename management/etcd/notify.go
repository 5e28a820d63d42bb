// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/record"
)

// ReadChanges calls emit with all writes of one revision below /v, from the one after the given one to
// those of now; after 0 there are none. It reads them from etcd and not from the view, so that none is
// missed by a restart. A record whose former value was compacted away is left out.
func (s *Store) ReadChanges(
	ctx context.Context, after int64, emit func(revision int64, list []record.RawChange) error,
) (newest int64, err error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(bounded, headKey(s.client.Prefix), clientv3.WithKeysOnly())
	if err != nil {
		return 0, s.failure(bounded, err)
	}
	newest = resp.Header.Revision
	forgotten := inventory.Errorf(
		inventory.KindExpired, "the changes after revision %d are not those of this store, or no longer kept", after,
	)

	// A store that was restored from a backup begins its revisions anew.
	if after > newest {
		return newest, forgotten
	}
	if after == 0 || len(resp.Kvs) == 0 || resp.Kvs[0].ModRevision <= after {
		return newest, nil
	}

	head := resp.Kvs[0].ModRevision

	ctx, end := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer end()

	for resp := range s.client.Watch(
		ctx, s.key("/v/"), clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithPrevKV(),
	) {
		switch err := resp.Err(); {
		case errors.Is(err, rpctypes.ErrCompacted):
			return newest, forgotten
		case err != nil:
			return newest, etcd.Error(err)
		}

		last, err := s.emitChanges(resp.Events, emit)
		if err != nil || last >= head {
			return newest, err
		}
	}

	return newest, cmp.Or(ctx.Err(), errors.New("the watch was closed")) // the end of ctx closes it as well
}

// emitChanges calls emit once for each revision of the events, and returns the last one.
func (s *Store) emitChanges(all []*clientv3.Event, emit func(int64, []record.RawChange) error) (
	last int64, err error,
) {
	var list []record.RawChange

	for i, e := range all {
		if e.IsCreate() || e.PrevKv != nil {
			c := record.RawChange{Path: strings.TrimPrefix(string(e.Kv.Key), s.key("/v/")), Revision: e.Kv.ModRevision}
			if e.Type != mvccpb.Event_DELETE {
				c.Is = e.Kv.Value
			}
			if e.PrevKv != nil {
				c.Was = e.PrevKv.Value
			}

			list = append(list, c)
		}

		// A revision is told as a whole, or a restart would split it.
		if last = e.Kv.ModRevision; i == len(all)-1 || all[i+1].Kv.ModRevision != last {
			if err := emit(last, list); err != nil {
				return last, err
			}

			list = nil
		}
	}

	return last, nil
}
