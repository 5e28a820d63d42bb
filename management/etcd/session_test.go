// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

func instance(id string) state.Instance {
	return state.Instance{
		Identity: cluster.Identity{ID: id, Node: "host-" + id},
		Version:  "v1",
		Schema:   etcd.Schema,
		API:      []string{"unix:///s"},
		Started:  time.Now().UTC().Round(0),
	}
}

// testSession is a session that reports its loss on a channel.
type testSession struct {
	*Session
	lost chan error
}

func enter(
	t *testing.T, s *Store, self state.Instance, ttl time.Duration, adjust ...func(*SessionOptions),
) (*testSession, error) {
	t.Helper()

	lost := make(chan error, 1)

	options := SessionOptions{Self: self, TTL: ttl, Log: silent(), Lost: func(err error) { lost <- err }}
	for _, f := range adjust {
		f(&options)
	}

	n, err := s.Enter(within(t, patience), options)
	if err != nil {
		return nil, err
	}
	t.Cleanup(n.Close)

	return &testSession{n, lost}, nil
}

// renewedBy makes a session renew its lease at each tick of the channel only.
func renewedBy(ticks <-chan time.Time) func(*SessionOptions) {
	return func(o *SessionOptions) { o.ticks = ticks }
}

// kill stops the renewals, as kill -9 would.
func (n *testSession) kill() {
	n.stop()
	n.tasks.Wait()
}

func ids(v *state.View) string {
	var out []string
	for _, in := range record.All(v, &state.Instances) {
		out = append(out, in.ID)
	}

	return strings.Join(out, " ")
}

// await waits until the condition holds.
func await(t *testing.T, condition string, holds func() bool) {
	t.Helper()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for ctx := within(t, patience); !holds(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("timed out waiting for: %s", condition)
		}
	}
}

// TestSession: an instance is in the list with its whole record until it
// leaves. Then another one may enter at once.
func TestSession(t *testing.T) {
	t.Parallel()
	s := store(t)
	self := instance("a")
	a, err := enter(t, s, self, SessionTTL)
	must(t, err)

	instances := record.List(s.View(), &state.Instances)
	if len(instances) != 1 || !instances[0].Started.Equal(self.Started) || instances[0].Node != "host-a" ||
		instances[0].API[0] != "unix:///s" {
		t.Errorf("the list of instances: %+v", instances)
	}

	if !a.Leads() {
		t.Error("the only instance does not lead")
	}

	if other := open(t, s.client); ids(other.View()) != "a" {
		t.Errorf("a store opened later shows the instances %q", ids(other.View()))
	}

	a.Close()

	if a.Leads() {
		t.Error("the instance leads after it has left")
	}

	b, err := enter(t, open(t, s.client), instance("b"), SessionTTL)
	must(t, err)
	await(t, "b alone", func() bool { return ids(s.View()) == "b" })

	if !b.Leads() {
		t.Error("the next instance does not lead")
	}
}

// TestSessionIsRefused: a live instance refuses another one with its identity on another host, or with another identity
// on its host, and one that must not work beside it. The refusal says why.
func TestSessionIsRefused(t *testing.T) {
	t.Parallel()
	s := store(t)
	// A renewal shows in the remaining whole seconds of the lease, so at least one
	// second must pass between renewals.
	tick := time.NewTicker(1400 * time.Millisecond)
	defer tick.Stop()
	a, err := enter(t, s, instance("a"), time.Hour, renewedBy(tick.C))
	must(t, err)
	other := open(t, s.client)

	copied := instance("a") // its data directory was copied to another host
	copied.Node = "host-b"
	second := instance("b") // a second daemon on the host
	second.Node = "host-a"

	const remedy = "host-a, instance a"

	refused := make(chan error, 3) // all wait at the same time

	for _, self := range []state.Instance{copied, second, instance("c")} {
		go func() {
			_, err := enter(t, other, self, SessionTTL, func(o *SessionOptions) {
				if self.ID == "c" {
					o.Beside = func() error {
						return inventory.Errorf(inventory.KindRefused, "no key here, unlike "+remedy).
							Do("systemctl stop clusterm; etcd.prefix")
					}
				}
			})
			refused <- err
		}()
	}

	for range cap(refused) {
		err := <-refused
		if inventory.KindOf(err) != inventory.KindRefused {
			t.Fatalf("%v", err)
		}

		for _, want := range []string{remedy, "systemctl stop clusterm", "etcd.prefix"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in: %v", want, err)
			}
		}
	}

	select {
	case err := <-a.lost:
		t.Errorf("the first instance lost its right: %v", err)
	default:
	}

	if !a.Leads() || ids(other.View()) != "a" {
		t.Errorf("the first instance leads: %t; instances: %s", a.Leads(), ids(other.View()))
	}
}

// TestSessionFollows: a second instance follows, and may claim nothing. It gains the lead when the lease of the first
// has expired, which an instance regains at once that restarts after kill -9.
func TestSessionFollows(t *testing.T) {
	t.Parallel()
	s := store(t)
	a, err := enter(t, s, instance("a"), time.Hour)
	must(t, err)
	a.kill()
	again, err := enter(t, open(t, s.client), instance("a"), time.Hour)
	must(t, err)

	if _, err := s.client.KeepAliveOnce(t.Context(), a.lease); err == nil {
		t.Error("the lease of the earlier process is still alive")
	}

	again.kill()

	ticks := make(chan time.Time)
	b, err := enter(t, open(t, s.client), instance("b"), time.Hour, renewedBy(ticks))
	must(t, err)
	await(t, "both are alive", func() bool { return ids(b.store.View()) == "a b" })

	ticks <- time.Now()

	if b.Leads() || !b.Alive() || !again.Leads() {
		t.Errorf("the second instance leads: %t, alive %t; the first one leads: %t",
			b.Leads(), b.Alive(), again.Leads())
	}

	j := accepted(t, b.store, seen(t, b.store, 1))
	running, writes := held(t, b.store.View(), j)
	claim := state.Claim{Job: running, Writes: writes, Revision: b.store.View().Revision}
	_, err = b.store.Claim(t.Context(), claim)
	conflict(t, err)

	// Both keys of a expire with its lease: in an hour, or by the revocation below.
	lease, err := s.client.TimeToLive(t.Context(), again.lease, clientv3.WithAttachedKeys())
	must(t, err)

	if len(lease.Keys) != 2 || lease.GrantedTTL != 3600 {
		t.Errorf("the lease holds the keys %q for %d s", lease.Keys, lease.GrantedTTL)
	}

	must(t, second(s.client.Revoke(t.Context(), again.lease)))

	ticks <- time.Now()

	await(t, "b leads alone", func() bool { return b.Leads() && ids(b.store.View()) == "b" })
	must(t, b.store.Sync(t.Context()))

	_, err = b.store.Claim(t.Context(), claim)
	must(t, err)
}

// TestSessionLeavesTheLead: an instance that stops while a job of it goes on leaves the lead at once, and is
// alive until its lease expires. Without a job it is gone.
func TestSessionLeavesTheLead(t *testing.T) {
	t.Parallel()
	s := store(t)
	a, err := enter(t, s, instance("a"), time.Hour)
	must(t, err)

	_, release, err := a.Own(t.Context(), "7", 0)
	must(t, err)
	release()
	a.Close()

	b, err := enter(t, open(t, s.client), instance("b"), time.Hour)
	must(t, err)

	if !b.Leads() || ids(b.store.View()) != "a b" {
		t.Errorf("the second instance leads: %t; alive: %s", b.Leads(), ids(b.store.View()))
	}

	again, err := enter(t, open(t, s.client), instance("a"), time.Hour)
	must(t, err)
	again.Close()
	await(t, "a is gone", func() bool { return ids(b.store.View()) == "b" })
}

// TestSessionIsLost: once another instance has entered after the lease of the first expired, the first can
// write neither jobs nor their nodes, and follows from its next renewal on. A later process of the same
// instance ends it.
func TestSessionIsLost(t *testing.T) {
	t.Parallel()
	s := store(t)
	names := seen(t, s, 100) // more than one transaction takes
	ticks := make(chan time.Time)
	a, err := enter(t, s, instance("a"), time.Hour, renewedBy(ticks))
	must(t, err)
	j := accepted(t, s, names)
	_, err = s.client.Revoke(t.Context(), a.lease)
	must(t, err)
	other := open(t, s.client)
	b, err := enter(t, other, instance("b"), SessionTTL)
	must(t, err)
	must(t, s.Sync(t.Context()))
	running, writes := held(t, s.View(), j)
	_, err = s.Claim(t.Context(), state.Claim{Job: running, Writes: writes, Revision: s.View().Revision})
	conflict(t, err)
	_, err = s.Finish(t.Context(), j, nil)
	conflict(t, err)
	conflict(t, s.AppendLog(t.Context(), j.ID, job.StreamText, 0, []byte("x")))

	ticks <- time.Now()

	await(t, "the first instance follows", func() bool { return a.Alive() && !a.Leads() && ids(s.View()) == "a b" })

	// The new holder can write jobs, and both can write everything else.
	must(t, other.Sync(t.Context()))
	running, err = other.Claim(t.Context(), state.Claim{Job: running, Writes: writes, Revision: other.View().Revision})
	must(t, err)
	must(t, s.Sync(t.Context()))
	must(t, other.AppendLog(t.Context(), j.ID, job.StreamText, 0, []byte("x")))
	over, release := released(t, s.View(), running)
	_, err = s.Finish(t.Context(), over, release)
	conflict(t, err)
	must(t, other.Sync(t.Context()))

	if got := statuses(other.View()); got[inventory.Provisioning] != len(names) {
		t.Errorf("the job of the other instance lost nodes: %v", got)
	}

	_, err = putVars(t.Context(), s, s.View(), state.ScopeGlobal, configuration.Vars{"a": "b"}, variable.Change{})
	must(t, err)

	if !b.Leads() {
		t.Error("the other instance does not lead")
	}

	_, err = enter(t, open(t, s.client), instance("a"), time.Hour)
	must(t, err)

	ticks <- time.Now()

	select {
	case err := <-a.lost:
		if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), "expired") ||
			!strings.Contains(err.Error(), "host-a") {
			t.Errorf("the loss is reported as: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the loss is not reported")
	}

	if a.Leads() || a.Alive() {
		t.Error("the first instance still leads, or lives")
	}
}

// TestSessionEntersAgain: an instance enters again by itself after its lease
// expired or its record was removed, unless another one has entered.
func TestSessionEntersAgain(t *testing.T) {
	t.Parallel()
	s := store(t)
	names := seen(t, s, 1)
	ticks := make(chan time.Time)
	a, err := enter(t, s, instance("a"), time.Hour, renewedBy(ticks))
	must(t, err)

	for name, harm := range map[string]func() error{
		"an expired lease": func() error {
			a.mu.Lock()
			defer a.mu.Unlock()
			return second(s.client.Revoke(t.Context(), a.lease))
		},
		"a removed record": func() error { return second(s.client.Delete(t.Context(), s.holderKey())) },
		"an entry with a lost answer": func() error {
			return second(s.client.Put(t.Context(), s.holderKey(),
				string(must2(s.client.Get(t.Context(), s.holderKey())).Kvs[0].Value)))
		},
	} {
		before := s.token.Load()
		must(t, harm())
		ticks <- time.Now()
		await(t, name, func() bool { return s.token.Load() > before && ids(s.View()) == "a" })

		if !a.Leads() {
			t.Errorf("%s: the instance does not lead", name)
		}
	}

	j := accepted(t, s, names)
	running, writes := held(t, s.View(), j)
	_, err = s.Claim(t.Context(), state.Claim{Job: running, Writes: writes, Revision: s.View().Revision})
	must(t, err)

	select {
	case err := <-a.lost:
		t.Errorf("the instance lost its right: %v", err)
	default:
	}
}

// TestSessionWithoutAStore: while etcd does not answer, the right to run jobs
// expires by the instance's own clock. It returns with etcd.
func TestSessionWithoutAStore(t *testing.T) {
	t.Parallel()
	server, signal := child(t)
	s := open(t, dial(t, server, "/t"))
	a, err := enter(t, s, instance("a"), time.Second)
	must(t, err)
	await(t, "the instance leads", a.Leads)
	signal("STOP")
	await(t, "the instance no longer leads", func() bool { return !a.Leads() })
	signal("CONT")
	await(t, "the instance leads again", a.Leads)
}

func second[T any](_ T, err error) error { return err }

func must2(resp *clientv3.GetResponse, err error) *clientv3.GetResponse {
	if err != nil {
		panic(err)
	}
	return resp
}
