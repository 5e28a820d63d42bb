// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/state"
)

// SessionTTL is how long an instance counts as alive without renewing its lease.
const SessionTTL = 15 * time.Second

// Session is the presence of an instance: a record under a lease that the
// instance renews. One instance at a time leads, and has the right to begin jobs: it has
// the holder key, under the same lease. The revision of the write of that key is the fencing
// token, which only grows. It guards the writes of jobs that this instance does not own.
// The others follow: they run the jobs that are assigned to them, and gain the lead when
// nobody has it.
//
// The session renews its lease itself: each renewal also checks the holder key,
// and the lease expires here by a clock that starts before the request. So this
// instance never counts its lease as alive for longer than etcd does.
//
// The jobs that this instance owns depend on their own leases: they go on when it loses the
// lead, until Close.
type Session struct {
	store  *Store
	log    logrus.FieldLogger
	self   state.Instance
	ttl    time.Duration
	lost   func(error)
	beside func() error
	others func() []string

	upgraded bool // the stored data are known to have the version of this build; only used by one goroutine at a time

	mu      sync.Mutex
	lease   clientv3.LeaseID
	expires time.Time       // the lease is alive until then, even if etcd does not answer
	leads   bool            // it had the lead at the last look
	leases  []*jobLease     // of earlier jobs, each without a key
	jobs    map[string]bool // that this session has owned, and whose ends it has not written
	closed  bool            // no further lease is kept

	ended   chan struct{} // closed by end
	endOnce sync.Once
	stop    context.CancelFunc
	tasks   sync.WaitGroup
}

func (s *Store) instancesPrefix() string      { return s.key("/v/instances/") }
func (s *Store) instanceKey(id string) string { return s.instancesPrefix() + id }
func (s *Store) holderKey() string            { return s.key("/v/holder") }

// SessionOptions are the parameters of Enter.
type SessionOptions struct {
	Self state.Instance
	// TTL is SessionTTL except in tests; at least 2 s.
	TTL time.Duration
	// Beside returns why this instance must not work beside another one, or nil. nil: it may.
	Beside func() error
	// Members returns the ids of the instances that belong to the manager, alive or not. nil: only those that are
	// alive are known.
	Members func() []string
	// Lost is called once, if this instance can no longer work beside the others.
	Lost func(error)
	Log  logrus.FieldLogger

	ticks <-chan time.Time // when to renew the lease; nil: three times in TTL
}

// Enter registers the instance, and gains the lead unless another one has it. It replaces an
// earlier process of the same instance at once. If this one must not work beside another
// instance, Enter blocks until the lease of that one expires, and returns
// KindRefused if that one renews its lease.
func (s *Store) Enter(ctx context.Context, o SessionOptions) (*Session, error) {
	n := &Session{
		store: s,
		log:   o.Log,
		self:  o.Self,
		ttl:   o.TTL,
		lost:  o.Lost, beside: o.Beside, others: o.Members,
		ended: make(chan struct{}),
		jobs:  map[string]bool{},
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

// gain waits until no other instance is in the way, and enters.
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
		found, err := n.look(ctx)
		if err != nil {
			return err
		}
		other, refusal := n.mayEnter(ctx, found)
		if refusal == nil {
			err := n.enter(ctx, found)
			if inventory.KindOf(err) != inventory.KindConflict {
				return err
			}

			continue // another instance was faster
		}
		if other == nil {
			return refusal
		}

		remaining, err := n.remaining(ctx, other.lease)
		if err != nil {
			return err
		}

		switch {
		case other.lease != awaited:
			n.log.WithError(refusal).Warnf("the instance %s on %s is in the way; waiting up to %s for its end",
				other.ID, other.Node, n.ttl)
		case remaining > left: // it was renewed
			return refusal
		}

		awaited, left = other.lease, remaining

		select {
		case <-ctx.Done():
			return refusal
		case <-patience.C:
			return refusal
		case <-time.After(n.ttl / 15):
		}
	}
}

// presence is the record of an instance, or of the one that leads, as it was found.
type presence struct {
	state.Instance
	lease    clientv3.LeaseID
	revision int64
}

// at returns the revision, 0 for nil.
func (p *presence) at() int64 {
	if p == nil {
		return 0
	}
	return p.revision
}

// found is what etcd has of the instances.
type found struct {
	holder   *presence            // the instance that leads; nil: none
	self     *presence            // the record under the id of this instance
	rival    *presence            // an instance with the id or on the node of this one
	others   map[string]*presence // those with other ids, also unreadable ones; by the id
	revision int64                // at which they were read
}

// look reads the instances.
func (n *Session) look(ctx context.Context) (f found, err error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	resp, err := n.store.client.Txn(ctx).Then(
		clientv3.OpGet(n.store.holderKey()), clientv3.OpGet(n.store.instancesPrefix(), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return f, etcd.Error(err)
	}

	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		if f.holder, err = presenceOf(kv); err != nil {
			return f, inventory.Errorf(inventory.KindInternal,
				"cannot read the record of the instance that runs the jobs: %w", err).
				Do("remove it: clusterm store remove %s", n.store.below(n.store.holderKey()))
		}
	}

	f.others, f.revision = map[string]*presence{}, resp.Header.Revision

	for _, kv := range resp.Responses[1].GetResponseRange().Kvs {
		own := string(kv.Key) == n.store.instanceKey(n.self.ID)

		p, err := presenceOf(kv)
		if !own {
			f.others[strings.TrimPrefix(string(kv.Key), n.store.instancesPrefix())] = p
		}

		switch {
		case err != nil && !own: // the health names it
			continue
		case err != nil:
			p.Identity = n.self.Identity
		}

		if own {
			f.self = p
		}
		if (p.ID == n.self.ID || p.Node == n.self.Node) && p.Identity != n.self.Identity {
			f.rival = p
		}
	}

	// The record of an instance may have been removed.
	if f.holder != nil && f.rival == nil && !f.leads(n.self.Identity) &&
		(f.holder.ID == n.self.ID || f.holder.Node == n.self.Node) {
		f.rival = f.holder
	}

	return f, nil
}

func presenceOf(kv *mvccpb.KeyValue) (*presence, error) {
	instance, err := decode[state.Instance](kv.Value)
	return &presence{instance, clientv3.LeaseID(kv.Lease), kv.ModRevision}, err
}

// leads reports whether the instance leads.
func (f found) leads(i cluster.Identity) bool { return f.holder != nil && f.holder.Identity == i }

// mayEnter returns why this instance may not enter now, and the instance whose end would change that.
func (n *Session) mayEnter(ctx context.Context, f found) (*presence, error) {
	switch {
	case f.rival != nil:
		return f.rival, heldBy(f.rival.Instance)
	case f.holder == nil || f.leads(n.self.Identity):
		return nil, nil
	}

	// Until the stored data have the version of this build, it reads what the others write.
	switch step, err := n.store.schemaStep(ctx); {
	case err != nil:
		return nil, err
	case len(step.removed) > 0:
		return f.holder, inventory.Errorf(inventory.KindRefused,
			"the instance on %s has version %s, to which 0 means the default in these settings, and to this version "+
				"not: %s", f.holder.Node, f.holder.Version, strings.Join(step.removed, ", ")).
			Do("leave them out there, or stop clusterm on the other hosts first")
	}

	if n.beside != nil {
		if err := n.beside(); err != nil {
			return f.holder, err
		}
	}

	return nil, nil
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

func heldBy(holder state.Instance) *inventory.Error {
	return inventory.Errorf(inventory.KindRefused,
		"another clusterm uses this etcd prefix and is alive: %s, instance %s, version %s, since %s",
		holder.Node, holder.ID, holder.Version, holder.Started.Format(time.RFC3339)).
		Do("stop that one first (systemctl stop clusterm on its host), or configure another etcd.prefix for this one")
}

// notLeading is the fencing token of an instance that follows: no key is ever at it.
const notLeading = -1

// enter writes the record of this instance under a new lease, and takes the lead unless another
// instance has it. It is KindConflict if the instances are not as found any more. With the lead it
// brings the stored data to this version, unless an instance of the former one belongs to the manager: that may write
// in the former form.
func (n *Session) enter(ctx context.Context, f found) error {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	leads := f.holder == nil || f.leads(n.self.Identity)

	step, err := n.store.schemaStep(ctx)
	if err != nil {
		return err
	}
	if leads {
		step = step.waitFor(n.former(f))
	} else {
		step = step.waitFor(f.holder.ID)
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

	put := func(key string) clientv3.Op { return clientv3.OpPut(key, string(record), clientv3.WithLease(lease)) }

	ops := etcd.Ops{
		If: []clientv3.Cmp{
			atRevision(n.store.holderKey(), f.holder.at()), atRevision(n.store.instanceKey(n.self.ID), f.self.at()),
		},
		Then: []clientv3.Op{put(n.store.instanceKey(n.self.ID))},
	}
	if leads {
		ops.Then = append(ops.Then, put(n.store.holderKey()))
	}
	n.addStep(&ops, step, f)

	revision, err := n.store.commit(ctx, ops)
	if err != nil && revision == 0 {
		_ = n.revoke(lease, revokeTimeout) // if this fails, the lease expires by itself
		return err
	}

	n.mu.Lock()
	n.lease, n.expires = lease, begun.Add(n.ttl)
	n.mu.Unlock()

	if leads {
		n.lead(f, revision)
		n.noteStep(step)

		if err := n.store.moveDeliveries(ctx); err != nil {
			n.log.WithError(err).Warn("former notifications are not taken over; the next start tries it again")
		}
	} else {
		n.lead(f, notLeading)
	}

	for _, p := range []*presence{f.self, f.holder} {
		if p != nil && p.Identity == n.self.Identity && p.lease != 0 {
			_ = n.revoke(p.lease, revokeTimeout)
		}
	}

	return nil
}

// lead notes whether this instance leads, by the token of the lead.
func (n *Session) lead(f found, token int64) {
	n.mu.Lock()
	was := n.leads
	n.leads = token != notLeading
	now := n.leads
	n.mu.Unlock()

	before := n.store.token.Swap(token)

	switch {
	case now && !was:
		n.log.Info("this instance leads: it begins the jobs of the cluster")
	case !now && before != notLeading:
		n.log.Warnf("the instance %s on %s leads; this one runs the jobs that it is given", f.holder.ID, f.holder.Node)
	}
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

// supervise renews the lease until ctx ends or this instance cannot work beside the others.
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
		case inventory.KindOf(err) == inventory.KindConflict: // another instance was faster
		case err == nil:
			if failing {
				n.log.Info("the lease of this instance is renewed again")
			}

			failing = false
		case inventory.KindOf(err) == inventory.KindRefused:
			n.follow()
			n.lost(fmt.Errorf("this instance cannot go on beside the others: %w", err))
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

	f, err := n.look(ctx)
	if err != nil {
		return err
	}

	token := n.store.token.Load()
	leads := f.leads(n.self.Identity)

	switch {
	case f.self != nil && f.rival == nil && !f.self.Started.Equal(n.self.Started):
		f.rival = f.self // a later process of this instance
		fallthrough
	case f.rival != nil:
		e := heldBy(f.rival.Instance)
		e.Message = "the lease of this instance expired meanwhile: " + e.Message
		return e
	case expired, f.self == nil, f.self.lease != lease, f.holder == nil, leads && f.holder.revision != token:
		if expired {
			n.log.Warn("the lease of this instance expired; entering again")
		}

		if _, err := n.mayEnter(ctx, f); err != nil {
			return err
		}
		return n.enter(ctx, f)
	}

	if !leads {
		token = notLeading
	}

	n.lead(f, token)

	n.mu.Lock()
	n.expires = begun.Add(n.ttl)
	n.mu.Unlock()

	if leads && !n.upgraded && n.former(f) == "" {
		return n.upgrade(ctx, f)
	}

	return nil
}

// Leads reports whether no other instance can have the right to begin jobs.
func (n *Session) Leads() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leads && time.Now().Before(n.expires)
}

// Alive reports whether the lease of this instance is certain to last still.
func (n *Session) Alive() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Before(n.expires)
}

// follow gives up the right to begin jobs.
func (n *Session) follow() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expires, n.leads = time.Time{}, false
}

// end gives up the right to begin jobs, and ends the ownership of all jobs.
func (n *Session) end() {
	n.follow()
	n.endOnce.Do(func() { close(n.ended) })
}

// Close leaves, so another instance may lead at once. If jobs of this instance go on, its record stays until its lease
// expires: until then they wait for its next process.
func (n *Session) Close() {
	n.stop()
	n.tasks.Wait()
	n.end()

	n.mu.Lock()
	lease, idle, waited := n.lease, n.leases, len(n.jobs) > 0
	n.leases, n.closed = nil, true
	n.mu.Unlock()

	for _, l := range idle {
		l.release()
	}

	// A lease without a key may expire by itself if etcd does not answer in time.
	if waited {
		n.leave(lease)
	} else {
		_ = n.revoke(lease, n.revokeTimeout())
	}

	for _, l := range idle {
		if n.revoke(l.id, n.revokeTimeout()) != nil {
			break
		}
	}
}

// leave gives up the lead only. If it fails, the lead ends with the lease.
func (n *Session) leave(lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), n.revokeTimeout())
	defer cancel()

	if _, err := n.store.client.KeepAliveOnce(ctx, lease); err != nil {
		return
	}

	_, _ = n.store.client.Txn(ctx).
		If(atRevision(n.store.holderKey(), n.store.token.Load())).
		Then(clientv3.OpDelete(n.store.holderKey())).Commit()
}
