// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/cluster"
)

var _ cluster.Membership = (*Session)(nil)

func (s *Store) ownerKey(job string) string { return s.key("/v/owners/%s", job) }

// ownerRecord is the owner of a job.
type ownerRecord struct {
	ID   string `json:"id"`
	Node string `json:"node"`
}

func newOwnerRecord(i cluster.Identity) ownerRecord { return ownerRecord(i) }
func (r ownerRecord) owner() cluster.Identity       { return cluster.Identity(r) }

// ownAttempts bounds how often Own reads the owner again after a conflict.
const ownAttempts = 5

// errNotEntered reports that the session was lost or closed.
func errNotEntered() error {
	return inventory.Errorf(inventory.KindRefused, "this instance may no longer run jobs: its session has ended").
		Do("restart clusterm")
}

// Own makes this instance the owner of the job. The ownership is a key under a
// lease of its own. It replaces the ownership of an earlier process of the same
// instance.
func (n *Session) Own(ctx context.Context, job string) (context.Context, func(), error) {
	var err error
	for range ownAttempts {
		var found *mvccpb.KeyValue
		if found, err = n.ownable(ctx, job); err != nil {
			return nil, nil, err
		}

		var owned context.Context
		var release func()

		owned, release, err = n.own(ctx, job, found)
		if inventory.KindOf(err) != inventory.KindConflict {
			return owned, release, err
		}
	}

	return nil, nil, err
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

	record, err := decode[ownerRecord](resp.Kvs[0].Value)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInternal, "cannot read the owner of job %s: %w", job, err).
			Do("remove the record: etcdctl del %s", n.store.ownerKey(job))
	}

	if owner := record.owner(); owner != n.self.Identity {
		return nil, inventory.Errorf(inventory.KindRefused,
			"job %s belongs to the instance %s on %s until its lease expires", job, owner.ID, owner.Node)
	}

	return resp.Kvs[0], nil
}

// own writes the ownership under a new lease, if the key is still as found and
// this instance still has the right to run jobs.
func (n *Session) own(ctx context.Context, job string, found *mvccpb.KeyValue) (context.Context, func(), error) {
	lease, err := n.grant(ctx)
	if err != nil {
		return nil, nil, err
	}

	key, foundAt := n.store.ownerKey(job), int64(0)
	if found != nil {
		foundAt = found.ModRevision
	}

	record, err := json.Marshal(newOwnerRecord(n.self.Identity))
	if err != nil {
		return nil, nil, err
	}

	revision, err := n.store.commit(ctx, etcd.Ops{
		If:   append(n.store.holderFence(), atRevision(key, foundAt)),
		Then: []clientv3.Op{clientv3.OpPut(key, string(record), clientv3.WithLease(lease))},
	})
	if err != nil {
		n.revoke(lease, n.revokeTimeout())
		return nil, nil, err
	}

	if found != nil && found.Lease != 0 {
		n.revoke(clientv3.LeaseID(found.Lease), revokeTimeout)
	}

	return n.hold(ctx, lease, fencingToken{key, revision})
}

// hold keeps the lease alive and returns the context of the ownership.
func (n *Session) hold(
	ctx context.Context, lease clientv3.LeaseID, token fencingToken,
) (context.Context, func(), error) {
	// The lease outlives ctx until release revokes it.
	alive, err := concurrency.NewSession(n.store.client.Client,
		concurrency.WithLease(lease), concurrency.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		n.revoke(lease, n.revokeTimeout())
		return nil, nil, etcd.Error(err)
	}

	owned, end := context.WithCancelCause(context.WithValue(ctx, fencingKey{}, token))

	// The job goes with its lease, and with the session of the instance.
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-owned.Done():
		case <-alive.Done():
			end(cluster.ErrOwnershipLost)
		case <-n.ended:
			end(cluster.ErrOwnershipLost)
		}
	})

	release := sync.OnceFunc(func() {
		end(nil)
		watching.Wait()
		alive.Orphan()
		n.revoke(lease, n.revokeTimeout())
	})

	select {
	case <-n.ended:
		release()
		return nil, nil, errNotEntered()
	default:
		return owned, release, nil
	}
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
	key      string
	revision int64
}

// fencingKey is the key of a fencingToken in the context of an owned job.
type fencingKey struct{}

// fence guards the writes of jobs: by the right to run jobs and, under the
// context of an owned job, by the ownership. This instance may have lost either
// without having noticed.
func (s *Store) fence(ctx context.Context) []clientv3.Cmp {
	guards := s.holderFence()
	if token, ok := ctx.Value(fencingKey{}).(fencingToken); ok {
		guards = append(guards, atRevision(token.key, token.revision))
	}

	return guards
}

// holderFence guards a write by the right to run jobs.
func (s *Store) holderFence() []clientv3.Cmp {
	if token := s.token.Load(); token != 0 {
		return []clientv3.Cmp{atRevision(s.holderKey(), token)}
	}

	return nil
}
