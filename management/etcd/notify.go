// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/record"
)

func (s *Store) deliveryKey(id string) string { return s.key("/x/deliveries/%s", id) }
func (s *Store) positionKey() string          { return s.key("/x/notified/position") }

// Head returns the newest revision of the store, by quorum.
func (s *Store) Head(ctx context.Context) (int64, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.positionKey(), clientv3.WithCountOnly())
	if err != nil {
		return 0, s.failure(ctx, err)
	}
	return resp.Header.Revision, nil
}

// Position returns how far the records were turned into events.
func (s *Store) Position(ctx context.Context) (notify.Position, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.positionKey())
	if err != nil || len(resp.Kvs) == 0 {
		return notify.Position{}, s.failure(ctx, err)
	}
	return decode[notify.Position](resp.Kvs[0].Value)
}

// Enqueue adds the deliveries, in chunks, and sets the position with the last of them.
// After a failure in between the same events come again, and find the deliveries.
func (s *Store) Enqueue(ctx context.Context, p notify.Position, list []notify.Delivery) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	// A delivery and its condition are two operations.
	for chunk := range slices.Chunk(list, etcd.MaxOps/2) {
		if err := s.addDeliveries(ctx, chunk); err != nil {
			return err
		}
	}

	position, err := put(s.positionKey(), p)
	if err != nil {
		return err
	}

	// FollowChanges reports the write of the head key, and so that it has reached it.
	_, err = s.client.Txn(ctx).Then(position, clientv3.OpPut(headKey(s.client.Prefix), "")).Commit()

	return s.failure(ctx, err)
}

// addDeliveries adds deliveries that do not exist yet, and leaves the others.
func (s *Store) addDeliveries(ctx context.Context, list []notify.Delivery) error {
	// Each delivery has its own condition, so a repetition finds its first part.
	var ops etcd.Ops

	for _, d := range list {
		write, err := put(s.deliveryKey(d.ID), d)
		if err != nil {
			return err
		}
		ops.Add(etcd.Ops{If: []clientv3.Cmp{atRevision(s.deliveryKey(d.ID), 0)}, Then: []clientv3.Op{write}})
	}

	resp, err := s.client.Txn(ctx).If(ops.If...).Then(ops.Then...).Commit()
	if err != nil {
		return s.failure(ctx, err)
	}
	if resp.Succeeded || len(list) == 1 {
		return nil // a single one that exists stays as it is
	}

	for _, d := range list {
		if err := s.addDeliveries(ctx, []notify.Delivery{d}); err != nil {
			return err
		}
	}

	return nil
}

// Deliveries returns all deliveries, the oldest first. It leaves out what it cannot
// decode.
func (s *Store) Deliveries(ctx context.Context) ([]notify.Delivery, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	// In the order of their creation, which an attempt does not change.
	oldestFirst := clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)

	resp, err := s.client.Get(ctx, s.deliveryKey(""), clientv3.WithPrefix(), oldestFirst)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	list := make([]notify.Delivery, 0, len(resp.Kvs))

	for _, kv := range resp.Kvs {
		d, err := decode[notify.Delivery](kv.Value)
		if err != nil {
			s.view.log.WithError(err).WithField("key", string(kv.Key)).Error("cannot decode a record in etcd")
			continue
		}

		d.Revision = kv.ModRevision
		list = append(list, d)
	}

	return list, nil
}

// PutDelivery writes a delivery, at its revision if it has one. Else it is KindConflict.
func (s *Store) PutDelivery(ctx context.Context, d notify.Delivery) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	write, err := put(s.deliveryKey(d.ID), d)
	if err != nil {
		return err
	}

	var unchanged []clientv3.Cmp
	if d.Revision != 0 {
		unchanged = append(unchanged, atRevision(s.deliveryKey(d.ID), d.Revision))
	}

	resp, err := s.client.Txn(ctx).If(unchanged...).Then(write).Commit()
	if err != nil {
		return s.failure(ctx, err)
	}
	if !resp.Succeeded {
		return inventory.Errorf(inventory.KindConflict, "the delivery was changed meanwhile")
	}

	return nil
}

// DeleteDeliveries removes deliveries.
func (s *Store) DeleteDeliveries(ctx context.Context, ids []string) error {
	for chunk := range slices.Chunk(ids, etcd.MaxOps) {
		// A delivery that is gone already is no error.
		var drop []clientv3.Op
		for _, id := range chunk {
			drop = append(drop, clientv3.OpDelete(s.deliveryKey(id)))
		}

		bounded, cancel := s.bounded(ctx)
		_, err := s.client.Txn(bounded).Then(drop...).Commit()
		err = s.failure(bounded, err)

		cancel()

		if err != nil {
			return err
		}
	}

	return nil
}

// FollowChanges calls emit with all writes of one revision below /v, after the given one. It reads
// them from etcd and not from the view, so that none is missed by a restart. A record whose former
// value was compacted away is left out.
func (s *Store) FollowChanges(
	ctx context.Context, after int64, emit func(revision int64, list []record.RawChange) error,
) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()

	watched := s.client.Watch(
		ctx, s.key("/v/"), clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithPrevKV(),
	)

	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case resp, open := <-watched:
			if !open { // the end of ctx closes it as well
				return cmp.Or(ctx.Err(), errors.New("the watch was closed"))
			}

			switch err := resp.Err(); {
			case errors.Is(err, rpctypes.ErrCompacted):
				return inventory.Errorf(
					inventory.KindExpired, "the changes after revision %d are no longer kept", after,
				)
			case err != nil:
				return etcd.Error(err)
			}

			if err := s.emitChanges(resp.Events, emit); err != nil {
				return err
			}
		}
	}
}

// emitChanges calls emit once for each revision of the events.
func (s *Store) emitChanges(all []*clientv3.Event, emit func(int64, []record.RawChange) error) error {
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
		if revision := e.Kv.ModRevision; i == len(all)-1 || all[i+1].Kv.ModRevision != revision {
			if err := emit(revision, list); err != nil {
				return err
			}

			list = nil
		}
	}

	return nil
}
