// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

var _ notify.Store = (*Store)(nil)

// deliveryRecord is an event on its way to a target of notifications.
type deliveryRecord struct {
	ID       string        `json:"id"`
	Target   string        `json:"target"`
	Event    eventRecord   `json:"event"`
	Status   notify.Status `json:"status"`
	Created  time.Time     `json:"created"`
	Attempts int           `json:"attempts,omitempty"`
	Last     time.Time     `json:"last,omitzero"`
	Error    string        `json:"error,omitempty"`
	Retries  int           `json:"retries,omitempty"`
	Held     time.Time     `json:"held,omitzero"`
	Through  time.Time     `json:"through,omitzero"`
}

// eventRecord is an event of a notification.
type eventRecord struct {
	ID      string      `json:"id"`
	Kind    notify.Kind `json:"kind"`
	Time    time.Time   `json:"time"`
	Manager string      `json:"manager,omitempty"`
	Summary string      `json:"summary"`
	Actor   string      `json:"actor,omitempty"`
	Node    string      `json:"node,omitempty"`
	Group   string      `json:"group,omitempty"`
	From    string      `json:"from,omitempty"`
	To      string      `json:"to,omitempty"`
	Job     string      `json:"job,omitempty"`
	Rollout string      `json:"rollout,omitempty"`
	Policy  string      `json:"policy,omitempty"`
	Verb    string      `json:"verb,omitempty"`
	Nodes   []string    `json:"nodes,omitempty"`
	Count   int         `json:"count,omitempty"`
	Detail  string      `json:"detail,omitempty"`
}

func newDeliveryRecord(d notify.Delivery) deliveryRecord {
	e := d.Event

	return deliveryRecord{
		ID: d.ID, Target: d.Target, Status: d.Status, Created: d.Created, Attempts: d.Attempts, Last: d.Last,
		Error: d.Error, Retries: d.Retries, Held: d.Held, Through: d.Through,
		Event: eventRecord{
			ID: e.ID, Kind: e.Kind, Time: e.Time, Manager: e.Manager, Summary: e.Summary, Node: e.Node, Group: e.Group,
			From: e.From, To: e.To, Job: e.Job, Verb: e.Verb, Nodes: e.Nodes, Detail: e.Detail,
			Actor: e.Actor, Rollout: e.Rollout, Policy: e.Policy, Count: e.Count,
		},
	}
}

func (r deliveryRecord) delivery() notify.Delivery {
	e := r.Event

	return notify.Delivery{
		ID: r.ID, Target: r.Target, Status: r.Status, Created: r.Created, Attempts: r.Attempts, Last: r.Last,
		Error: r.Error, Retries: r.Retries, Held: r.Held, Through: r.Through,
		Event: notify.Event{
			ID: e.ID, Kind: e.Kind, Time: e.Time, Manager: e.Manager, Summary: e.Summary, Node: e.Node, Group: e.Group,
			From: e.From, To: e.To, Job: e.Job, Verb: e.Verb, Nodes: e.Nodes, Detail: e.Detail,
			Actor: e.Actor, Rollout: e.Rollout, Policy: e.Policy, Count: e.Count,
		},
	}
}

// positionRecord is how far the records were turned into events.
type positionRecord struct {
	Revision int64    `json:"revision"`
	Problems []string `json:"problems,omitempty"`
}

func newPositionRecord(p notify.Position) positionRecord { return positionRecord(p) }
func (r positionRecord) position() notify.Position       { return notify.Position(r) }

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

	record, err := decode[positionRecord](resp.Kvs[0].Value)

	return record.position(), err
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

	position, err := put(s.positionKey(), newPositionRecord(p))
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
		write, err := put(s.deliveryKey(d.ID), newDeliveryRecord(d))
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
		record, err := decode[deliveryRecord](kv.Value)
		if err != nil {
			s.view.log.WithError(err).WithField("key", string(kv.Key)).Error("cannot decode a record in etcd")
			continue
		}

		d := record.delivery()
		d.Revision = kv.ModRevision
		list = append(list, d)
	}

	return list, nil
}

// PutDelivery writes a delivery, at its revision if it has one. Else it is KindConflict.
func (s *Store) PutDelivery(ctx context.Context, d notify.Delivery) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	write, err := put(s.deliveryKey(d.ID), newDeliveryRecord(d))
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

// FollowChanges calls emit with the changes of nodes, jobs and rollouts after the revision, and with
// none for a write of something else below /v. It reads them from etcd and not from the
// view, so that none is missed by a restart.
func (s *Store) FollowChanges(
	ctx context.Context, after int64, emit func(revision int64, list []notify.Change) error,
) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()

	watched := s.client.Watch(
		ctx,
		s.key("/v/"),
		clientv3.WithPrefix(),
		clientv3.WithRev(after+1),
		clientv3.WithPrevKV(),
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
					inventory.KindExpired,
					"the changes after revision %d are no longer kept",
					after,
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
func (s *Store) emitChanges(all []*clientv3.Event, emit func(int64, []notify.Change) error) error {
	for len(all) > 0 {
		// A revision is told as a whole, or a restart would split it.
		revision := all[0].Kv.ModRevision
		end := slices.IndexFunc(all, func(e *clientv3.Event) bool { return e.Kv.ModRevision != revision })

		if end < 0 {
			end = len(all)
		}

		var list []notify.Change

		tombstones := s.tombstones(all[:end])

		for _, e := range all[:end] {
			c, known, err := s.changeOf(e)
			if err != nil {
				s.view.log.WithError(err).WithField("key", string(e.Kv.Key)).Error("cannot decode a record in etcd")
			}

			if c.Node == nil && c.WasNode != nil {
				c.Tombstone = tombstones[c.WasNode.Name]
			}

			if known && err == nil {
				list = append(list, c)
			}
		}

		if err := emit(revision, list); err != nil {
			return err
		}

		all = all[end:]
	}

	return nil
}

// changeOf returns the change of a record. It is unknown where the record before was
// compacted away.
func (s *Store) changeOf(e *clientv3.Event) (c notify.Change, known bool, err error) {
	if !e.IsCreate() && e.PrevKv == nil {
		return c, false, nil
	}

	kind, name, _ := strings.Cut(strings.TrimPrefix(string(e.Kv.Key), s.client.Prefix+"/v/"), "/")
	c.Revision = e.Kv.ModRevision

	// Etcd adds the record before; see FollowChanges.
	is, was := e.Kv, e.PrevKv
	if e.Type == mvccpb.Event_DELETE {
		is = nil
	}

	switch kind {
	case "nodes":
		c.Node, err = nodeOf(name, is)
		if err == nil {
			c.WasNode, err = nodeOf(name, was)
		}
	case "jobs":
		c.Job, err = jobOf(name, is)
		if err == nil {
			c.WasJob, err = jobOf(name, was)
		}
	case "rollouts":
		// The head has the status, and each write has the head.
		if strings.Contains(name, "/") {
			return c, false, nil
		}

		c.Rollout, err = rolloutOf(name, is)
		if err == nil {
			c.WasRollout, err = rolloutOf(name, was)
		}
	case "automation":
		c.Automation, err = automationOf(is)
		if err == nil {
			c.WasAutomation, err = automationOf(was)
		}
	default:
		return c, false, nil
	}

	return c, true, err
}

func automationOf(kv *mvccpb.KeyValue) (*state.Automation, error) {
	if kv == nil {
		return nil, nil //nolint:nilnil // the record does not exist
	}

	return state.Memory.Decode("", kv.Value, kv.ModRevision)
}

// tombstones returns the tombstones in the events by the names of their nodes.
func (s *Store) tombstones(events []*clientv3.Event) map[string]*inventory.Tombstone {
	byName := map[string]*inventory.Tombstone{}

	for _, e := range events {
		name, isTombstone := strings.CutPrefix(string(e.Kv.Key), s.tombstoneKey(""))
		if !isTombstone || e.Type == mvccpb.Event_DELETE {
			continue
		}

		// One that cannot be read costs the actor only.
		if t, err := state.Tombstones.Decode(name, e.Kv.Value, e.Kv.ModRevision); err == nil {
			byName[name] = t
		}
	}

	return byName
}

func nodeOf(name string, kv *mvccpb.KeyValue) (*inventory.Node, error) {
	if kv == nil {
		return nil, nil //nolint:nilnil // the record does not exist
	}

	return state.Nodes.Decode(name, kv.Value, kv.ModRevision)
}

func jobOf(id string, kv *mvccpb.KeyValue) (*job.Job, error) {
	if kv == nil {
		return nil, nil //nolint:nilnil // the record does not exist
	}

	return job.Kind.Decode(id, kv.Value, kv.ModRevision)
}

func rolloutOf(id string, kv *mvccpb.KeyValue) (*rollout.Record, error) {
	if kv == nil {
		return nil, nil //nolint:nilnil // the record does not exist
	}

	r, err := rollout.Kind.Decode(id, kv.Value, kv.ModRevision)
	if err == nil {
		r.Nodes = nil // they have keys of their own
	}

	return r, err
}
