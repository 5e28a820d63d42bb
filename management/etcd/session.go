// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// SessionTTL is how long an instance counts as alive without renewing its lease.
const SessionTTL = 15 * time.Second

// Session is the presence of an instance: a record under a lease that the
// instance renews. With it goes the right to begin jobs, which one instance has at
// a time: the holder key, written once each time the right is gained. The
// revision of that write is the fencing token, which only grows. It guards the
// writes of jobs that this instance does not own.
//
// The session renews its lease itself: each renewal also checks the holder key,
// and the lease expires here by a clock that starts before the request. So this
// instance never counts its lease as alive for longer than etcd does.
//
// The jobs that this instance owns depend on their own leases: they go on when it loses the right
// to begin others, until Close. To run jobs on several instances, begin where Enter refuses.
type Session struct {
	store *Store
	log   logrus.FieldLogger
	self  state.Instance
	ttl   time.Duration
	lost  func(error)

	mu      sync.Mutex
	lease   clientv3.LeaseID
	expires time.Time   // the lease is alive until then, even if etcd does not answer
	leases  []*jobLease // of earlier jobs, each without a key
	closed  bool        // no further lease is kept

	ended   chan struct{} // closed by end
	endOnce sync.Once
	stop    context.CancelFunc
	tasks   sync.WaitGroup
}

func (s *Store) instanceKey(id string) string { return s.key("/v/instances/%s", id) }
func (s *Store) holderKey() string            { return s.key("/v/holder") }

// SessionOptions are the parameters of Enter.
type SessionOptions struct {
	Self state.Instance
	// TTL is SessionTTL except in tests; at least 2 s.
	TTL time.Duration
	// Lost is called once, if another instance gains the right to begin jobs.
	Lost func(error)
	Log  logrus.FieldLogger

	ticks <-chan time.Time // when to renew the lease; nil: three times in TTL
}

// Enter registers the instance and gains the right to run jobs. It replaces an
// earlier process of the same instance at once. If another instance has the
// right, Enter blocks until the lease of that one expires, and returns
// KindRefused if that one renews its lease.
func (s *Store) Enter(ctx context.Context, o SessionOptions) (*Session, error) {
	n := &Session{
		store: s,
		log:   o.Log,
		self:  o.Self,
		ttl:   o.TTL,
		lost:  o.Lost,
		ended: make(chan struct{}),
	}
	if err := n.gain(ctx); err != nil {
		return nil, err
	}
	ctx, n.stop = context.WithCancel(context.WithoutCancel(ctx))
	n.tasks.Go(func() {
		tick := time.NewTicker(n.ttl / 3)
		defer tick.Stop()

		if o.ticks == nil {
			o.ticks = tick.C
		}

		n.supervise(ctx, o.ticks)
	})

	return n, nil
}

// gain waits until no other instance has the right to run jobs, and enters.
func (n *Session) gain(ctx context.Context) error {
	// etcd takes its time to expire a lease. The waiting time is bounded as a
	// whole, because a slow request is no sign that the other instance is alive.
	patience := time.NewTimer(n.ttl + n.ttl/3 + 2*time.Second)
	defer patience.Stop()

	var (
		awaited clientv3.LeaseID // of the other instance
		left    int64            // seconds of it at the last look
	)

	for {
		holder, kv, err := n.store.holder(ctx)
		if err != nil {
			return err
		}

		if kv == nil || holder.Identity == n.self.Identity {
			err := n.enter(ctx, kv)
			if inventory.KindOf(err) != inventory.KindConflict {
				return err
			}

			continue // another instance was faster
		}

		lease := clientv3.LeaseID(kv.Lease)

		remaining, err := n.remaining(ctx, lease)
		if err != nil {
			return err
		}

		switch {
		case lease != awaited:
			n.log.Warnf("the instance %s on %s runs the jobs; waiting up to %s for its lease to expire",
				holder.ID, holder.Node, n.ttl)
		case remaining > left: // it was renewed
			return n.heldBy(holder)
		}

		awaited, left = lease, remaining

		select {
		case <-ctx.Done():
			return n.heldBy(holder)
		case <-patience.C:
			return n.heldBy(holder)
		case <-time.After(n.ttl / 15):
		}
	}
}

// remaining returns the seconds until the lease expires. An expired lease has
// none, or a negative number.
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
		"another clusterm uses this etcd prefix and is alive: %s, instance %s, version %s, since %s",
		holder.Node, holder.ID, holder.Version, holder.Started.Format(time.RFC3339)).
		Do("stop that one first (systemctl stop clusterm on its host), or configure another etcd.prefix for this one")
}

// holder returns the instance with the right to run jobs, and its key. The key
// is nil if there is none.
func (s *Store) holder(ctx context.Context) (state.Instance, *mvccpb.KeyValue, error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	var holder state.Instance

	resp, err := s.client.Get(ctx, s.holderKey())
	if err != nil || len(resp.Kvs) == 0 {
		return holder, nil, etcd.Error(err)
	}

	if holder, err = decode[state.Instance](resp.Kvs[0].Value); err != nil {
		return holder, nil, inventory.Errorf(inventory.KindInternal,
			"cannot read the record of the instance that runs the jobs: %w", err).
			Do("remove it: clusterm store remove %s", s.below(s.holderKey()))
	}

	return holder, resp.Kvs[0], nil
}

// enter writes both keys under a new lease, if the holder's key is still as found. With them
// it brings the stored data to this version: not before, because until then another instance
// may write in the former form.
func (n *Session) enter(ctx context.Context, found *mvccpb.KeyValue) error {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	upgrade, changes, err := n.store.upgradeOps(ctx)
	if err != nil {
		return err
	}

	begun := time.Now()

	lease, err := n.grant(ctx)
	if err != nil {
		return err
	}

	record, err := json.Marshal(n.self)
	if err != nil {
		return err
	}

	foundAt := int64(0)
	if found != nil {
		foundAt = found.ModRevision
	}

	ops := etcd.Ops{
		If: []clientv3.Cmp{atRevision(n.store.holderKey(), foundAt)},
		Then: []clientv3.Op{
			clientv3.OpPut(n.store.holderKey(), string(record), clientv3.WithLease(lease)),
			clientv3.OpPut(n.store.instanceKey(n.self.ID), string(record), clientv3.WithLease(lease)),
		},
	}
	ops.Add(upgrade)

	revision, err := n.store.commit(ctx, ops)
	if err != nil && revision == 0 {
		_ = n.revoke(lease, revokeTimeout) // if this fails, the lease expires by itself
		return err
	}

	n.mu.Lock()
	n.lease, n.expires = lease, begun.Add(n.ttl)
	n.mu.Unlock()
	n.store.token.Store(revision)

	for _, change := range changes {
		n.log.Info(change)
	}

	if err := n.store.moveDeliveries(ctx); err != nil {
		n.log.WithError(err).Warn("former notifications are not taken over; the next start tries it again")
	}

	if found != nil && found.Lease != 0 {
		_ = n.revoke(clientv3.LeaseID(found.Lease), revokeTimeout)
	}

	return nil
}

// Time limits of the revocation of a lease. It is an optimization, because every
// lease expires by itself.
const (
	revokeTimeout      = 2 * time.Second
	revokeTimeoutStale = 300 * time.Millisecond // when etcd is known not to answer
)

func (n *Session) revokeTimeout() time.Duration {
	if n.store.View().Stale {
		return revokeTimeoutStale
	}
	return revokeTimeout
}

// revoke is an optimization, so most callers ignore its error.
func (n *Session) revoke(lease clientv3.LeaseID, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()

	_, err := n.store.client.Revoke(ctx, lease)
	return err
}

// supervise renews the lease until ctx ends or another instance has the right
// to run jobs.
func (n *Session) supervise(ctx context.Context, ticks <-chan time.Time) {
	failing := false

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
			if failing {
				n.log.Info("the lease of this instance is renewed again")
			}

			failing = false
		case inventory.KindOf(err) == inventory.KindRefused:
			n.follow()
			n.lost(fmt.Errorf("another instance runs the jobs: %w", err))
			return
		case !failing:
			failing = true

			n.log.WithError(err).
				Warn("cannot renew the lease of this instance; retrying; no job starts once the lease has expired")
		}
	}
}

// renew extends the lease. If the lease has expired, it enters again, unless
// another instance has entered: KindRefused.
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

	expired := err != nil

	holder, kv, err := n.store.holder(ctx)
	if err != nil {
		return err
	}

	if kv == nil {
		n.log.Warn("the lease of this instance expired; entering again")
		return n.enter(ctx, nil)
	}

	if kv.ModRevision != n.store.token.Load() {
		// This process wrote the key if the answer to an earlier attempt was lost.
		if holder.Identity == n.self.Identity && holder.Started.Equal(n.self.Started) {
			return n.enter(ctx, kv)
		}

		e := n.heldBy(holder)
		e.Message = "the lease of this instance expired meanwhile: " + e.Message

		return e
	}

	if expired { // etcd is about to delete the key
		return inventory.Errorf(inventory.KindUnavailable, "the lease has expired")
	}

	n.mu.Lock()
	n.expires = begun.Add(n.ttl)
	n.mu.Unlock()

	return nil
}

// Leads reports whether no other instance can have the right to run jobs.
func (n *Session) Leads() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Before(n.expires)
}

// follow gives up the right to begin jobs.
func (n *Session) follow() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expires = time.Time{}
}

// end gives up the right to begin jobs, and ends the ownership of all jobs.
func (n *Session) end() {
	n.follow()
	n.endOnce.Do(func() { close(n.ended) })
}

// Close leaves: it removes the record, so another instance may enter at once.
func (n *Session) Close() {
	n.stop()
	n.tasks.Wait()
	n.end()

	n.mu.Lock()
	lease, idle := n.lease, n.leases
	n.leases, n.closed = nil, true
	n.mu.Unlock()

	for _, l := range idle {
		l.release()
	}

	// A lease without a key may expire by itself if etcd does not answer in time.
	_ = n.revoke(lease, n.revokeTimeout())

	for _, l := range idle {
		if n.revoke(l.id, n.revokeTimeout()) != nil {
			break
		}
	}
}
