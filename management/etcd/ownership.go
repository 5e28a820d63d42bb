// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/state"
)

var _ cluster.Membership = (*Session)(nil)

func (s *Store) ownerKey(job string) string { return s.key("/v/%s", state.Owners.Path(job)) }

// ownAttempts bounds how often Own reads the owner again after a conflict.
const ownAttempts = 5

// errNotEntered reports that the session was closed.
func errNotEntered() error {
	return inventory.Errorf(inventory.KindRefused, "this instance may no longer run jobs: its session has ended").
		Do("restart clusterm")
}

// Own makes this instance the owner of the job, if the record that assigns it is still at the
// revision. The ownership is a key under a lease of its own. It replaces the ownership of an
// earlier process of the same instance.
func (n *Session) Own(ctx context.Context, job string, assigned int64) (context.Context, func(), error) {
	// A job rarely has an owner already, so only a conflict is a reason to read it.
	owned, release, err := n.own(ctx, job, assigned, nil)

	for range ownAttempts {
		if inventory.KindOf(err) != inventory.KindConflict {
			break
		}

		found, unowned := n.ownable(ctx, job)

		switch {
		case unowned != nil:
			return nil, nil, unowned
		case found == nil: // the assignment has changed
			return nil, nil, err
		}

		owned, release, err = n.own(ctx, job, assigned, found)
	}

	return owned, release, err
}

// ownable returns the key of the job's present owner, or nil if there is none.
// Another owner is a refusal.
func (n *Session) ownable(ctx context.Context, job string) (*mvccpb.KeyValue, error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	resp, err := n.store.client.Get(ctx, n.store.ownerKey(job))
	if err != nil || len(resp.Kvs) == 0 {
		return nil, etcd.Error(err)
	}
	owner, err := state.Owners.Decode(job, resp.Kvs[0].Value, 0)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInternal, "cannot read the owner of job %s: %w", job, err).
			Do("remove the record: clusterm store remove %s", n.store.below(n.store.ownerKey(job)))
	}

	if *owner != n.self.Identity {
		return nil, inventory.Errorf(inventory.KindRefused,
			"job %s belongs to the instance %s on %s until its lease expires", job, owner.ID, owner.Node)
	}

	return resp.Kvs[0], nil
}

// own writes the ownership under a lease that no other job uses, if the key is still
// as found.
func (n *Session) own(
	ctx context.Context, job string, assigned int64, found *mvccpb.KeyValue,
) (context.Context, func(), error) {
	lease, err := n.lend(ctx)
	if err != nil {
		return nil, nil, err
	}

	key, foundAt := n.store.ownerKey(job), int64(0)
	if found != nil {
		foundAt = found.ModRevision
	}

	record, err := state.Owners.Encode(&n.self.Identity)
	if err != nil {
		n.reuse(lease)
		return nil, nil, err
	}

	revision, err := n.store.commit(ctx, etcd.Ops{
		If:   []clientv3.Cmp{atRevision(n.store.jobKey(job), assigned), atRevision(key, foundAt)},
		Then: []clientv3.Op{clientv3.OpPut(key, string(record), clientv3.WithLease(lease.id))},
	})

	switch {
	case inventory.KindOf(err) == inventory.KindConflict:
		n.reuse(lease)
		return nil, nil, err
	case err != nil: // the key may exist nevertheless
		n.discard(lease)
		return nil, nil, err
	}

	if found != nil && found.Lease != 0 {
		_ = n.revoke(clientv3.LeaseID(found.Lease), revokeTimeout)
	}

	n.mu.Lock()
	n.jobs[job] = true
	n.mu.Unlock()

	return n.hold(ctx, lease, &fencingToken{job: job, key: key, revision: revision})
}

// hold returns the context of the ownership, and its release.
func (n *Session) hold(
	ctx context.Context, lease *jobLease, token *fencingToken,
) (context.Context, func(), error) {
	order := cluster.Token{Epoch: state.EpochOf(n.store.View()), Revision: token.revision}
	ctx = cluster.WithLease(context.WithValue(ctx, fencingKey{}, token), order, lease.until)
	owned, end := context.WithCancelCause(ctx)

	// The job goes with its lease, and when the instance leaves.
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-owned.Done():
		case <-lease.done:
			end(cluster.ErrOwnershipLost)
		case <-n.ended:
			end(cluster.ErrOwnershipLost)
		}
	})

	release := sync.OnceFunc(func() {
		end(nil)
		watching.Wait()
		n.disown(lease, token)
	})

	select {
	case <-n.ended:
		release()
		return nil, nil, errNotEntered()
	default:
		return owned, release, nil
	}
}

// disown removes the ownership, unless the end of the job did. It keeps the lease for
// another job only if the ownership lasted until then.
func (n *Session) disown(lease *jobLease, token *fencingToken) {
	if token.ended.Load() {
		n.mu.Lock()
		delete(n.jobs, token.job)
		n.mu.Unlock()

		n.reuse(lease)
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), n.revokeTimeout())
	defer cancel()

	resp, err := n.store.client.Txn(ctx).
		If(atRevision(token.key, token.revision)).
		Then(clientv3.OpDelete(token.key)).Commit()
	if err != nil || !resp.Succeeded {
		n.discard(lease)
		return
	}

	n.reuse(lease)
}

// idleLeases bounds the leases that are kept for later jobs.
const idleLeases = 64

// lend returns a lease that nothing else uses. A lease of an earlier job saves the
// two writes that grant and revoke one.
func (n *Session) lend(ctx context.Context) (*jobLease, error) {
	for {
		lease := n.idle()
		if lease == nil {
			break
		}

		select {
		case <-lease.done: // it expired meanwhile
		default:
			return lease, nil
		}
	}

	begun := time.Now()

	id, err := n.grant(ctx)
	if err != nil {
		return nil, err
	}
	return keepLease(ctx, n.store.client, id, n.ttl, begun), nil
}

// idle removes and returns a lease of an earlier job, or nil if there is none.
func (n *Session) idle() *jobLease {
	n.mu.Lock()
	defer n.mu.Unlock()

	last := len(n.leases) - 1
	if last < 0 {
		return nil
	}
	lease := n.leases[last]
	n.leases = n.leases[:last]

	return lease
}

// reuse keeps a lease without keys for a later job.
func (n *Session) reuse(lease *jobLease) {
	n.mu.Lock()

	keep := !n.closed && len(n.leases) < idleLeases
	if keep {
		n.leases = append(n.leases, lease)
	}

	n.mu.Unlock()

	if !keep {
		n.discard(lease)
	}
}

// discard revokes a lease and with it the key under it, if there is one.
func (n *Session) discard(lease *jobLease) {
	lease.release()
	_ = n.revoke(lease.id, n.revokeTimeout())
}

// grant returns a new lease with the TTL of the session.
func (n *Session) grant(ctx context.Context) (clientv3.LeaseID, error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	resp, err := n.store.client.Grant(ctx, int64(n.ttl/time.Second))
	if err != nil {
		return 0, etcd.Error(err)
	}
	return resp.ID, nil
}

// fencingToken is the revision at which the ownership of a job was written.
type fencingToken struct {
	job      string
	key      string
	revision int64
	ended    atomic.Bool // the end of the job removed the key
}

// tokenOf returns the token of the owned job of the context, or nil.
func tokenOf(ctx context.Context) *fencingToken {
	token, _ := ctx.Value(fencingKey{}).(*fencingToken)
	return token
}

// fencingKey is the key of a *fencingToken in the context of an owned job.
type fencingKey struct{}

// fence guards the writes of jobs: under the context of an owned job by the ownership alone, and
// else by the right to begin jobs. This instance may have lost either without having noticed.
func (s *Store) fence(ctx context.Context) []clientv3.Cmp {
	if fence := ownerFence(ctx); fence != nil {
		return fence
	}
	return s.holderFence()
}

// ownerFence guards a write under the context of an owned job by the ownership.
func ownerFence(ctx context.Context) []clientv3.Cmp {
	if token := tokenOf(ctx); token != nil {
		return []clientv3.Cmp{atRevision(token.key, token.revision)}
	}
	return nil
}

// holderFence guards a write by the right to begin jobs.
func (s *Store) holderFence() []clientv3.Cmp {
	if token := s.token.Load(); token != 0 {
		return []clientv3.Cmp{atRevision(s.holderKey(), token)}
	}
	return nil
}
