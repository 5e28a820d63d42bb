// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/state"
)

// SessionTTL is how long an instance that says nothing counts as alive.
const SessionTTL = 15 * time.Second

// Session is an instance's presence: a record under a lease that the instance
// renews. With it goes the right to run jobs, which one instance has at a time:
// the key of the holder, written once for each time that the right is gained.
// The revision of that write is the fencing token, which only grows; all
// writes of jobs are guarded by it.
//
// Taking the jobs of others over would begin where Enter refuses.
type Session struct {
	store *Store
	log   logrus.FieldLogger
	self  state.Instance
	ttl   time.Duration
	lost  func(error)

	mu    sync.Mutex
	lease clientv3.LeaseID
	until time.Time // the lease is alive until then, whatever becomes of the store

	stop context.CancelFunc
	done sync.WaitGroup
}

func (s *Store) instanceKey(id string) string { return s.key("/v/instances/%s", id) }
func (s *Store) holderKey() string            { return s.key("/v/holder") }

// Entry says who enters.
type Entry struct {
	Self state.Instance
	// TTL is SessionTTL, but in tests; at least 2 s.
	TTL time.Duration
	// Lost is called, once, when another instance has the right to run jobs.
	Lost func(error)
	Log  logrus.FieldLogger

	ticks <-chan time.Time // when the lease is renewed; nil: three times in TTL
}

// Enter registers the instance and gains the right to run jobs. An earlier
// process of the same instance is replaced at once. Another instance is waited
// for as long as it may be gone; one that is alive is a refusal.
func (s *Store) Enter(ctx context.Context, e Entry) (*Session, error) {
	n := &Session{store: s, log: e.Log, self: e.Self, ttl: e.TTL, lost: e.Lost}
	if err := n.gain(ctx); err != nil {
		return nil, err
	}

	var within context.Context
	within, n.stop = context.WithCancel(context.WithoutCancel(ctx))
	n.done.Go(func() {
		tick := time.NewTicker(n.ttl / 3)
		defer tick.Stop()

		if e.ticks == nil {
			e.ticks = tick.C
		}

		n.keep(within, e.ticks)
	})

	return n, nil
}

// gain waits until nobody else is there, and enters.
func (n *Session) gain(ctx context.Context) error {
	// The store takes its time to notice that a lease is over. Each request has
	// a bound of its own: one that is slow is no sign that somebody else is alive.
	patience := time.NewTimer(n.ttl + n.ttl/3 + 2*time.Second)
	defer patience.Stop()
	var seen clientv3.LeaseID // of the instance that is waited for

	var left int64 // seconds that it had when it was last looked at
	for {
		holder, kv, err := n.store.holder(ctx)
		if err != nil {
			return err
		}

		// The name as well: a data directory may have been copied to another host.
		if kv == nil || holder.ID == n.self.ID && holder.Node == n.self.Node {
			err := n.enter(ctx, kv)
			if inventory.KindOf(err) != inventory.KindConflict {
				return err
			}

			continue // somebody was faster
		}

		lease := clientv3.LeaseID(kv.Lease)

		remaining, err := n.remaining(ctx, lease)
		if err != nil {
			return err
		}

		switch {
		case lease != seen:
			n.log.Warnf(
				"the instance %s on %s runs the jobs here; waiting for up to %s in case it is gone",
				holder.ID,
				holder.Node,
				n.ttl,
			)
		case remaining > left:
			return n.heldBy(holder)
		}

		seen, left = lease, remaining

		select {
		case <-ctx.Done():
			return n.heldBy(holder)
		case <-patience.C:
			return n.heldBy(holder)
		case <-time.After(n.ttl / 15):
		}
	}
}

// remaining is how many seconds the lease has left; not above 0: it is over.
func (n *Session) remaining(ctx context.Context, lease clientv3.LeaseID) (int64, error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	resp, err := n.store.client.TimeToLive(ctx, lease)
	if err != nil {
		return 0, etcd.Error(err)
	}

	return resp.TTL, nil
}

func (n *Session) heldBy(holder state.Instance) *inventory.Error {
	return inventory.Errorf(inventory.KindRefused,
		"another clusterm keeps its data here and is alive: %s, instance %s, version %s, since %s",
		holder.Node, holder.ID, holder.Version, holder.Started.Format(time.RFC3339)).
		Do("stop that one first (systemctl stop clusterm on its host), or configure another etcd.prefix for this one")
}

// holder is who has the right to run jobs, and its key; nil where nobody has.
func (s *Store) holder(ctx context.Context) (state.Instance, *mvccpb.KeyValue, error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()
	var in state.Instance

	resp, err := s.client.Get(ctx, s.holderKey())
	if err != nil || len(resp.Kvs) == 0 {
		return in, nil, etcd.Error(err)
	}

	if in, err = decodeInstance(resp.Kvs[0].Value); err != nil {
		return in, nil, inventory.Errorf(inventory.KindInternal, "the record of who runs the jobs cannot be read: %w",
			err).
			Do("remove it: etcdctl del %s", s.holderKey())
	}

	return in, resp.Kvs[0], nil
}

// enter writes both keys under a new lease, if the holder's is still as found.
func (n *Session) enter(ctx context.Context, found *mvccpb.KeyValue) error {
	bounded, cancel := etcd.Bounded(ctx)
	defer cancel()
	begun := time.Now()

	lease, err := n.store.client.Grant(bounded, int64(n.ttl/time.Second))
	if err != nil {
		return etcd.Error(err)
	}

	record, err := encodeInstance(n.self)
	if err != nil {
		return err
	}

	guard := atRevision(n.store.holderKey(), 0)
	if found != nil {
		guard = atRevision(n.store.holderKey(), found.ModRevision)
	}

	revision, err := n.store.commit(bounded, etcd.Ops{If: []clientv3.Cmp{guard}, Then: []clientv3.Op{
		clientv3.OpPut(n.store.holderKey(), string(record), clientv3.WithLease(lease.ID)),
		clientv3.OpPut(n.store.instanceKey(n.self.ID), string(record), clientv3.WithLease(lease.ID)),
	}})
	if err != nil && revision == 0 {
		n.revoke(lease.ID, revokeWithin) // in vain where the store does not answer: it ends by itself
		return err
	}

	n.mu.Lock()
	n.lease, n.until = lease.ID, begun.Add(n.ttl)
	n.mu.Unlock()
	n.store.token.Store(revision)

	if found != nil && found.Lease != 0 {
		n.revoke(clientv3.LeaseID(found.Lease), revokeWithin)
	}

	return nil
}

// revokeWithin bounds the end of a lease that would end by itself, and
// revokeSilent where the store is known to be silent.
const (
	revokeWithin = 2 * time.Second
	revokeSilent = 300 * time.Millisecond
)

func (n *Session) revoke(lease clientv3.LeaseID, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_, _ = n.store.client.Revoke(ctx, lease)
}

// keep renews the lease until ctx ends or another instance has the right.
func (n *Session) keep(ctx context.Context, ticks <-chan time.Time) {
	silent := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}

		err := n.renew(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if silent {
				n.log.Info("the store knows again that this instance is alive")
			}

			silent = false
		case inventory.KindOf(err) == inventory.KindRefused:
			n.mu.Lock()
			n.until = time.Time{}
			n.mu.Unlock()
			n.lost(err)

			return
		case !silent:
			silent = true
			n.log.WithError(err).
				Warn("the store cannot be told that this instance is alive; no job is begun if that takes longer")
		}
	}
}

// renew tells the store that this instance is alive. Where it was taken for
// dead meanwhile it enters again, unless somebody else has: KindRefused.
func (n *Session) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(n.ttl/3, 2*time.Second))
	defer cancel()
	n.mu.Lock()
	lease := n.lease
	n.mu.Unlock()
	begun := time.Now()

	_, err := n.store.client.KeepAliveOnce(ctx, lease)
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return etcd.Error(err)
	}

	gone := err != nil

	holder, kv, err := n.store.holder(ctx)
	switch {
	case err != nil:
		return err
	case kv == nil:
		n.log.Warn("this instance was taken for dead; entering again")
		return n.enter(ctx, nil)
	case kv.ModRevision != n.store.token.Load() && holder.ID == n.self.ID && holder.Started.Equal(n.self.Started):
		return n.enter(ctx, kv) // the answer to an earlier attempt was lost
	case kv.ModRevision != n.store.token.Load():
		e := n.heldBy(holder)
		e.Message = "this instance was taken for dead: " + e.Message

		return e
	case gone: // the key is about to go with it
		return inventory.Errorf(inventory.KindUnavailable, "the lease is over")
	}

	n.mu.Lock()
	n.until = begun.Add(n.ttl)
	n.mu.Unlock()

	return nil
}

// Valid tells whether nobody else can have the right to run jobs.
func (n *Session) Valid() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return time.Now().Before(n.until)
}

// Close leaves: the record goes, and another instance may enter at once.
func (n *Session) Close() {
	n.stop()
	n.done.Wait()
	n.mu.Lock()
	lease := n.lease
	n.until = time.Time{}
	n.mu.Unlock()

	within := revokeWithin
	if n.store.View().Stale {
		within = revokeSilent
	}

	n.revoke(lease, within)
}
