// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"strings"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

func instance(id string) state.Instance {
	return state.Instance{
		ID:      id,
		Node:    "host-" + id,
		Version: "v1",
		API:     []string{"unix:///s"},
		Started: time.Now().UTC().Round(0),
	}
}

// entered is a session and what it says of its loss.
type entered struct {
	*Session
	lost chan error
}

func enter(
	t *testing.T,
	s *Store,
	self state.Instance,
	ttl time.Duration,
	adjust ...func(*Entry),
) (*entered, error) {
	t.Helper()
	e := &entered{lost: make(chan error, 1)}

	entry := Entry{Self: self, TTL: ttl, Log: silent(), Lost: func(err error) { e.lost <- err }}
	for _, f := range adjust {
		f(&entry)
	}

	n, err := s.Enter(within(t, patience), entry)
	if err != nil {
		return nil, err
	}

	e.Session = n
	t.Cleanup(n.Close)

	return e, nil
}

// ticked has the lease renewed only when the channel says so.
func ticked(ticks <-chan time.Time) func(*Entry) { return func(e *Entry) { e.ticks = ticks } }

// killed ends a session as kill -9 would.
func (e *entered) killed() {
	e.stop()
	e.done.Wait()
}

func ids(v *state.View) string {
	var out []string
	for _, in := range v.Instances {
		out = append(out, in.ID)
	}

	return strings.Join(out, " ")
}

// await waits until it is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for ctx := within(t, patience); !so(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not so: %s", what)
		}
	}
}

// TestSession: an instance is listed with all that it says of itself, and gone
// from the list when it leaves; then another one may enter at once.
func TestSession(t *testing.T) {
	t.Parallel()
	s := store(t)
	self := instance("a")
	a, err := enter(t, s, self, SessionTTL)
	must(t, err)

	if v := s.View(); len(v.Instances) != 1 || !v.Instances[0].Started.Equal(self.Started) ||
		v.Instances[0].Node != "host-a" ||
		v.Instances[0].API[0] != "unix:///s" ||
		!a.Valid() {
		t.Errorf("%+v", v.Instances)
	}

	if other := open(t, s.client); ids(other.View()) != "a" {
		t.Errorf("a store that is opened later shows %q", ids(other.View()))
	}

	a.Close()

	if a.Valid() {
		t.Error("valid after its end")
	}

	b, err := enter(t, open(t, s.client), instance("b"), SessionTTL)
	must(t, err)
	await(t, "b alone", func() bool { return ids(s.View()) == "b" })

	if !b.Valid() {
		t.Error("the next one is not valid")
	}
}

// TestSessionIsRefused: an instance that is alive keeps its right, and is named.
func TestSessionIsRefused(t *testing.T) {
	t.Parallel()
	s := store(t)
	// The seconds that are left tell that a lease was renewed: one has to go by.
	tick := time.NewTicker(1400 * time.Millisecond)
	defer tick.Stop()
	a, err := enter(t, s, instance("a"), time.Hour, ticked(tick.C))
	must(t, err)
	other := open(t, s.client)
	copied := instance("a") // a data directory that was copied to another host
	copied.Node = "host-b"

	refused := make(chan error, 2) // they wait at the same time
	for _, self := range []state.Instance{instance("b"), copied} {
		go func() {
			_, err := enter(t, other, self, SessionTTL)
			refused <- err
		}()
	}

	for range cap(refused) {
		err := <-refused
		if inventory.KindOf(err) != inventory.KindRefused {
			t.Fatalf("%v", err)
		}

		for _, want := range []string{"host-a", "instance a", "systemctl stop clusterm", "etcd.prefix"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in: %v", want, err)
			}
		}
	}

	select {
	case err := <-a.lost:
		t.Errorf("the first one is disturbed: %v", err)
	default:
	}

	if !a.Valid() || ids(other.View()) != "a" {
		t.Errorf("the first one is disturbed: %v %s", a.Valid(), ids(other.View()))
	}
}

// TestSessionAfterAKill: a daemon that starts again after kill -9 goes on at
// once; another one, when the lease of the first is over.
func TestSessionAfterAKill(t *testing.T) {
	t.Parallel()
	s := store(t)
	a, err := enter(t, s, instance("a"), time.Hour)
	must(t, err)
	a.killed()
	again, err := enter(t, open(t, s.client), instance("a"), time.Hour)
	must(t, err)

	if _, err := s.client.KeepAliveOnce(t.Context(), a.lease); err == nil {
		t.Error("the lease of the earlier process goes on")
	}

	again.killed()
	b := open(t, s.client)
	log, warned := logtest.NewNullLogger()

	ended := make(chan error, 1)
	go func() {
		_, err := enter(t, b, instance("b"), 6*time.Second, func(e *Entry) { e.Log = log })
		ended <- err
	}()
	await(t, "b waits", func() bool { return len(warned.AllEntries()) > 0 })
	// All that a has ends with its lease, which is over an hour later, or now.
	lease, err := s.client.TimeToLive(t.Context(), again.lease, clientv3.WithAttachedKeys())
	must(t, err)

	if len(lease.Keys) != 2 || lease.GrantedTTL != 3600 || ids(b.View()) != "a" {
		t.Errorf("%q for %d s, and there is %q", lease.Keys, lease.GrantedTTL, ids(b.View()))
	}

	must(t, second(s.client.Revoke(t.Context(), again.lease)))
	must(t, <-ended)
	await(t, "b alone", func() bool { return ids(b.View()) == "b" })
}

// TestSessionIsLost: an instance whose lease is over, while another one has
// entered, learns that, and from the moment of the other's entry on writes no
// job any more, and no node for one.
func TestSessionIsLost(t *testing.T) {
	t.Parallel()
	s := store(t)
	names := seen(t, s, 100) // more than one transaction takes
	ticks := make(chan time.Time)
	a, err := enter(t, s, instance("a"), time.Hour, ticked(ticks))
	must(t, err)
	j := accepted(t, s, names)
	_, err = s.client.Revoke(t.Context(), a.lease)
	must(t, err)
	other := open(t, s.client)
	b, err := enter(t, other, instance("b"), SessionTTL)
	must(t, err)
	must(t, s.Sync(t.Context()))
	running, writes := held(t, s.View(), j)
	_, err = s.Claim(t.Context(), s.View().Generation, running, writes)
	conflict(t, err)
	_, err = s.PutJob(t.Context(), j)
	conflict(t, err)
	_, err = s.Finish(t.Context(), j, nil)
	conflict(t, err)
	conflict(t, s.AppendLog(t.Context(), j.ID, job.StreamText, 0, []byte("x")))
	ticks <- time.Now()

	select {
	case err := <-a.lost:
		if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), "taken for dead") ||
			!strings.Contains(err.Error(), "host-b") {
			t.Errorf("%v", err)
		}
	case <-time.After(patience):
		t.Fatal("it does not notice")
	}

	if a.Valid() {
		t.Error("it still counts as valid")
	}

	// Whoever has the right may, and what is no job is written by all.
	must(t, other.Sync(t.Context()))
	running, err = other.Claim(t.Context(), other.View().Generation, running, writes)
	must(t, err)
	must(t, s.Sync(t.Context()))
	must(t, other.AppendLog(t.Context(), j.ID, job.StreamText, 0, []byte("x")))
	over, release := released(t, s.View(), running)
	_, err = s.Finish(t.Context(), over, release)
	conflict(t, err)
	must(t, other.Sync(t.Context()))

	if got := statuses(other.View()); got[inventory.Provisioning] != len(names) {
		t.Errorf("the job that runs elsewhere has lost nodes: %v", got)
	}

	_, err = s.PutVars(t.Context(), 0, state.ScopeGlobal, configuration.Vars{"a": "b"})
	must(t, err)

	if !b.Valid() {
		t.Error("the other one is not valid")
	}
}

// TestSessionEntersAgain: where nobody else has entered, an instance that was
// taken for dead, or whose record was removed, is back by itself.
func TestSessionEntersAgain(t *testing.T) {
	t.Parallel()
	s := store(t)
	names := seen(t, s, 1)
	ticks := make(chan time.Time)
	a, err := enter(t, s, instance("a"), time.Hour, ticked(ticks))
	must(t, err)

	for name, harm := range map[string]func() error{
		"a lease that is over": func() error {
			a.mu.Lock()
			defer a.mu.Unlock()

			return second(s.client.Revoke(t.Context(), a.lease))
		},
		"a record that was removed": func() error { return second(s.client.Delete(t.Context(), s.holderKey())) },
		"an entry whose answer was lost": func() error {
			return second(s.client.Put(t.Context(), s.holderKey(),
				string(must2(s.client.Get(t.Context(), s.holderKey())).Kvs[0].Value)))
		},
	} {
		before := s.token.Load()
		must(t, harm())
		ticks <- time.Now()
		await(t, name, func() bool { return s.token.Load() > before && ids(s.View()) == "a" })

		if !a.Valid() {
			t.Errorf("%s: not valid", name)
		}
	}

	j := accepted(t, s, names)
	running, writes := held(t, s.View(), j)
	_, err = s.Claim(t.Context(), s.View().Generation, running, writes)
	must(t, err)

	select {
	case err := <-a.lost:
		t.Errorf("%v", err)
	default:
	}
}

// TestSessionWithoutAStore: the right to run jobs ends by the instance's own
// clock when the store does not answer, and is back when it does.
func TestSessionWithoutAStore(t *testing.T) {
	t.Parallel()
	server, signal := child(t)
	s := open(t, dial(t, server, "/t"))
	a, err := enter(t, s, instance("a"), time.Second)
	must(t, err)
	await(t, "valid", a.Valid)
	signal("STOP")
	await(t, "no longer valid", func() bool { return !a.Valid() })
	signal("CONT")
	await(t, "valid again", a.Valid)
}

func second[T any](_ T, err error) error { return err }

func must2(resp *clientv3.GetResponse, err error) *clientv3.GetResponse {
	if err != nil {
		panic(err)
	}

	return resp
}
