// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// owners returns the number of owners of a job in etcd.
func owners(t *testing.T, s *Store, id string) int {
	t.Helper()
	return len(must2(s.client.Get(t.Context(), s.ownerKey(id))).Kvs)
}

// awaitEnd waits until the context of an ownership ends, and returns the cause.
func awaitEnd(t *testing.T, owned context.Context) error {
	t.Helper()

	select {
	case <-owned.Done():
		return context.Cause(owned)
	case <-time.After(patience):
		t.Fatal("the context of the ownership does not end")
		return nil
	}
}

// rival enters a second instance beside the first, and takes the lead from that.
func rival(t *testing.T, s *Store) *testSession {
	t.Helper()
	must(t, second(s.client.Delete(t.Context(), s.holderKey())))

	b, err := enter(t, open(t, s.client), instance("b"), SessionTTL)
	must(t, err)
	return b
}

// TestOwn: two instances on one etcd cannot own the same job at a time.
func TestOwn(t *testing.T) {
	t.Parallel()
	s := store(t)
	a, err := enter(t, s, instance("a"), time.Hour, renewedBy(make(chan time.Time)))
	must(t, err)

	owned, release, err := a.Own(t.Context(), "7", 0)
	must(t, err)

	b := rival(t, s)

	_, _, err = b.Own(t.Context(), "7", 0)
	if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), "host-a") {
		t.Errorf("the second owner got: %v", err)
	}

	if owned.Err() != nil {
		t.Errorf("the first owner lost the job: %v", context.Cause(owned))
	}

	release()
	release() // repeating it is no error

	if cause := awaitEnd(t, owned); !errors.Is(cause, context.Canceled) || owners(t, s, "7") != 0 {
		t.Errorf("after the release: %v, %d owners", cause, owners(t, s, "7"))
	}

	_, release, err = b.Own(t.Context(), "7", 0)
	must(t, err)
	release()

	// What an instance owns does not depend on the lead, but on the record that assigns it.
	j := accepted(t, s, seen(t, s, 1))
	_, release, err = a.Own(t.Context(), j.ID, j.Revision)
	must(t, err)

	must(t, b.store.Sync(t.Context()))

	if o := record.Get(b.store.View(), &state.Owners, j.ID); o == nil || o.Node != "host-a" {
		t.Errorf("the second instance sees the owner %v", o)
	}
	release()

	taken := j
	taken.Instance = "host-b"
	taken, err = putJob(t.Context(), b.store, taken)
	must(t, err)

	_, _, err = a.Own(t.Context(), j.ID, j.Revision)
	conflict(t, err)

	_, release, err = b.Own(t.Context(), j.ID, taken.Revision)
	must(t, err)
	release()
}

// TestOwnAfterARestart: a process owns the jobs of an earlier process of the same
// instance at once. The leases of the earlier one end.
func TestOwnAfterARestart(t *testing.T) {
	t.Parallel()
	s := store(t)
	a, err := enter(t, s, instance("a"), time.Hour)
	must(t, err)
	before, release, err := a.Own(t.Context(), "7", 0)
	must(t, err)
	defer release()

	a.kill()
	again, err := enter(t, open(t, s.client), instance("a"), time.Hour)
	must(t, err)

	owned, releaseAgain, err := again.Own(t.Context(), "7", 0)
	must(t, err)
	defer releaseAgain()

	// The context of the earlier process still lives: only the fence stops it.
	j := accepted(t, s, seen(t, s, 1))
	_, err = putJob(before, s, j)
	conflict(t, err)
	must(t, again.store.Sync(t.Context()))
	_, err = putJob(owned, again.store, j)
	must(t, err)
}

// TestOwnershipIsLost: the context of a job ends with its lease. From then on the
// writes under it are refused, and the job can be regained.
func TestOwnershipIsLost(t *testing.T) {
	t.Parallel()
	s := store(t)
	j := accepted(t, s, seen(t, s, 1))
	a, err := enter(t, s, instance("a"), 3*time.Second)
	must(t, err)
	owned, release, err := a.Own(t.Context(), j.ID, j.Revision)
	must(t, err)
	defer release()

	j, err = putJob(owned, s, j)
	must(t, err)
	must(t, s.AppendLog(owned, j.ID, job.StreamText, 0, []byte("x")))

	key := must2(s.client.Get(t.Context(), s.ownerKey(j.ID))).Kvs[0]
	must(t, second(s.client.Revoke(t.Context(), clientv3.LeaseID(key.Lease))))

	// The fence acts before the instance has noticed.
	late := context.WithoutCancel(owned)
	_, err = putJob(late, s, j)
	conflict(t, err)
	conflict(t, s.AppendLog(late, j.ID, job.StreamText, 1, []byte("y")))

	if cause := awaitEnd(t, owned); !errors.Is(cause, cluster.ErrOwnershipLost) {
		t.Errorf("the context ended with: %v", cause)
	}

	regained, releaseAgain, err := a.Own(t.Context(), j.ID, j.Revision)
	must(t, err)
	defer releaseAgain()

	_, err = putJob(regained, s, j)
	must(t, err)
}

// TestOwnershipEndsWithTheSession: an instance that leaves owns no job.
func TestOwnershipEndsWithTheSession(t *testing.T) {
	t.Parallel()

	a, err := enter(t, store(t), instance("a"), time.Hour)
	must(t, err)
	owned, release, err := a.Own(t.Context(), "7", 0)
	must(t, err)
	a.Close()

	if cause := awaitEnd(t, owned); !errors.Is(cause, cluster.ErrOwnershipLost) {
		t.Errorf("the context ended with: %v", cause)
	}

	release()

	if n := owners(t, a.store, "7"); n != 0 {
		t.Errorf("%d owners after the release", n)
	}
}

// TestOwnershipOutlivesTheLead: an instance that another one has replaced as the leader writes and
// ends its job, and begins none.
func TestOwnershipOutlivesTheLead(t *testing.T) {
	t.Parallel()

	s := store(t)
	names := seen(t, s, 2)
	ticks := make(chan time.Time)
	a, err := enter(t, s, instance("a"), time.Hour, renewedBy(ticks))
	must(t, err)

	j, other := accepted(t, s, names[:1]), accepted(t, s, names[1:])
	running, writes := held(t, s.View(), j)
	running, err = s.Claim(t.Context(), state.Claim{Job: running, Writes: writes, Revision: s.View().Revision})
	must(t, err)

	owned, release, err := a.Own(t.Context(), j.ID, running.Revision)
	must(t, err)
	defer release()

	b := rival(t, s)
	ticks <- time.Now()

	await(t, "the first instance follows", func() bool { return !a.Leads() })

	if a.Leads() || !b.Leads() || !cluster.Owned(owned) {
		t.Errorf("leads: %t and %t; owned: %t", a.Leads(), b.Leads(), cluster.Owned(owned))
	}

	must(t, s.AppendLog(owned, j.ID, job.StreamText, 0, []byte("x")))
	running, err = putJob(owned, s, running)
	must(t, err)

	over, free := released(t, s.View(), running)
	_, err = s.Finish(owned, over, free)
	must(t, err)

	must(t, s.Sync(t.Context()))
	next, writes := held(t, s.View(), other)
	_, err = s.Claim(t.Context(), state.Claim{Job: next, Writes: writes, Revision: s.View().Revision})
	conflict(t, err)
}

// TestFinishEndsTheOwnership: the end of a job removes its ownership in the same
// transaction, so the release removes nothing and the next job takes the lease. Later
// writes of the job are refused, in a repeated end too.
func TestFinishEndsTheOwnership(t *testing.T) {
	t.Parallel()
	s := store(t)
	a, err := enter(t, s, instance("a"), time.Hour)
	must(t, err)

	j := accepted(t, s, seen(t, s, 1))
	owned, release, err := a.Own(t.Context(), j.ID, j.Revision)
	must(t, err)

	lease := must2(s.client.Get(t.Context(), s.ownerKey(j.ID))).Kvs[0].Lease
	j.Status = job.Running
	j, err = putJob(owned, s, j)
	must(t, err)

	over := j
	over.Status = job.Complete
	over, err = s.Finish(owned, over, nil)
	must(t, err)

	if n := owners(t, s, j.ID); n != 0 {
		t.Errorf("%d owners after the end of the job", n)
	}

	_, err = s.Finish(owned, over, nil)
	conflict(t, err)
	_, err = putJob(owned, s, over)
	conflict(t, err)
	conflict(t, s.AppendLog(owned, j.ID, job.StreamText, 0, []byte("late")))

	release()

	_, releaseNext, err := a.Own(t.Context(), "8", 0)
	must(t, err)
	defer releaseNext()

	if got := must2(s.client.Get(t.Context(), s.ownerKey("8"))).Kvs[0].Lease; got != lease {
		t.Errorf("the next job has the lease %x, want %x of the ended job", got, lease)
	}
}

// TestLeaseOfAnEarlierJob: a job takes the lease of an earlier one, two jobs at a time
// have two, a revoked one is not used again, and the end of the session revokes all.
func TestLeaseOfAnEarlierJob(t *testing.T) {
	t.Parallel()
	s := store(t)
	a, err := enter(t, s, instance("a"), time.Hour)
	must(t, err)

	leaseOf := func(job string) clientv3.LeaseID {
		return clientv3.LeaseID(must2(s.client.Get(t.Context(), s.ownerKey(job))).Kvs[0].Lease)
	}

	_, release7, err := a.Own(t.Context(), "7", 0)
	must(t, err)
	_, release8, err := a.Own(t.Context(), "8", 0)
	must(t, err)

	first, second := leaseOf("7"), leaseOf("8")
	if first == second {
		t.Errorf("two running jobs share the lease %x", first)
	}

	release7()

	_, release9, err := a.Own(t.Context(), "9", 0)
	must(t, err)

	if got := leaseOf("9"); got != first {
		t.Errorf("job 9 has the lease %x, want %x of the earlier job", got, first)
	}

	must(t, a.revoke(first, time.Minute))
	release9()

	_, release10, err := a.Own(t.Context(), "10", 0)
	must(t, err)

	last := leaseOf("10")
	if last == first {
		t.Error("job 10 has a revoked lease")
	}

	release8()
	release10()
	a.Close()

	for _, lease := range []clientv3.LeaseID{first, second, last} {
		ttl, err := s.client.TimeToLive(t.Context(), lease)
		must(t, err)

		if ttl.TTL > 0 {
			t.Errorf("the lease %x is left", lease)
		}
	}
}

// TestUnreadableOwners damages the record of the instance that runs the jobs, and the
// owner of a job. The remedy of each error removes the record, and leads on.
func TestUnreadableOwners(t *testing.T) {
	t.Parallel()
	s := store(t)

	// remedied carries out the remedy of the error that the call returns, and calls
	// again.
	remedied := func(call func() error) {
		t.Helper()

		err := call()
		if inventory.KindOf(err) != inventory.KindInternal {
			t.Fatalf("%v", err)
		}

		_, key, found := strings.Cut(err.Error(), "clusterm store remove ")
		if !found {
			t.Fatalf("no remedy: %v", err)
		}
		removeUnreadable(t, s, key)
		must(t, call())
	}

	var a *testSession

	damage(t, s, "v/holder")
	remedied(func() (err error) {
		a, err = enter(t, s, instance("a"), SessionTTL)
		return err
	})

	damage(t, s, "v/owners/7")
	remedied(func() error {
		_, release, err := a.Own(t.Context(), "7", 0)
		if err == nil {
			release()
		}
		return err
	})
}

// TestTokenGrows: each owner of a job has a higher token than the one before, and so has the owner of a later job. A
// token stays what it was while a later owner goes on with a run that still has it.
func TestTokenGrows(t *testing.T) {
	t.Parallel()
	s := store(t)
	a, err := enter(t, s, instance("a"), time.Hour)
	must(t, err)

	var tokens []cluster.Token

	own := func(n *testSession, id string, before func()) {
		owned, release, err := n.Own(t.Context(), id, 0)
		must(t, err)

		token := cluster.TokenOf(owned)
		tokens = append(tokens, token)
		before()
		release()

		if cluster.TokenOf(owned) != token {
			t.Errorf("the token %v became %v", token, cluster.TokenOf(owned))
		}
	}

	own(a, "7", func() {})
	own(a, "8", func() {}) // on the same node, after the first
	own(a, "9", a.kill)

	again, err := enter(t, open(t, s.client), instance("a"), time.Hour)
	must(t, err)
	own(again, "9", func() {}) // the run that the former process has begun may go on

	b := rival(t, s)
	own(b, "9", func() {})
	own(again, "9", func() {})

	for i, token := range tokens {
		if token.Epoch != state.EpochOf(s.View()) || token.Revision <= 0 {
			t.Errorf("token %v", token)
		}

		if i > 0 && token.Revision <= tokens[i-1].Revision {
			t.Errorf("%d: the token %v after %v", i, token, tokens[i-1])
		}
	}
}
