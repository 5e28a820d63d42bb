// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// TestOwnWrite: a view shows a write of its process before the watch does, unless it lacks
// an earlier one of somebody else.
func TestOwnWrite(t *testing.T) {
	t.Parallel()

	other := open(t, dial(t, own(t), "/t"))
	seen(t, other, 1)

	// No watch runs yet.
	s := &Store{client: other.client, secrets: testSecrets()}
	s.view.secrets = s.secrets
	s.view.init(s.client, testKinds, silent(), StaleAfter)
	revision, err := s.view.load(t.Context())
	must(t, err)

	scope := state.ScopeGlobal
	write := func(ctx context.Context, s *Store, value int) error {
		vars := configuration.Vars{"a": fmt.Sprint(value)}
		_, err := putVars(ctx, s, s.View(), scope, vars, variable.Change{})
		return err
	}

	for i := range 3 {
		must(t, write(within(t, patience), s, i))

		if got := state.VarsOf(s.View(), state.ScopeGlobal)["a"]; got != fmt.Sprint(i) {
			t.Errorf("the view shows %v instead of %d", got, i)
		}
	}

	// A write of the same variables would conflict.
	scope = state.ScopeGroup("g")
	must(t, write(within(t, patience), other, 3))

	scope = state.ScopeGlobal

	if err := write(within(t, 200*time.Millisecond), s, 4); inventory.KindOf(err) != inventory.KindUnavailable {
		t.Fatalf("the view passes over a write of another process: %v", err)
	}

	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop

	s.done.Go(func() { s.view.watchLoop(ctx, revision) })
	defer s.Close()
	must(t, s.Sync(within(t, patience)))
	must(t, write(within(t, patience), s, 5))
	sameChanges(t, revision, s, other)
}

// TestOwnWritesAmongOthers: views of processes that write at once have the same changes as
// one that only watches, even if they read all records again meanwhile.
func TestOwnWritesAmongOthers(t *testing.T) {
	t.Parallel()

	watcher := open(t, dial(t, own(t), "/t"))
	stores := []*Store{open(t, watcher.client), open(t, watcher.client), open(t, watcher.client)}
	ctx := within(t, patience)
	begin := watcher.View().Revision
	names := seen(t, watcher, 12)

	for _, s := range stores {
		must(t, s.Sync(ctx))
	}

	var writers sync.WaitGroup
	for k, s := range stores {
		for _, name := range names[4*k : 4*k+4] {
			writers.Go(func() {
				for i := range 25 {
					if err := rewrite(ctx, s, name, i); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}

	writers.Wait()

	for _, s := range stores {
		sameChanges(t, begin, s, watcher)
	}

	for _, name := range names {
		if n, err := watcher.View().Node(name); err != nil || n.Addr != "10.0.0.25" {
			t.Errorf("%s: %v, %v", name, n.Addr, err)
		}
	}
}

// rewrite gives a node another address, and checks that the view has it.
func rewrite(ctx context.Context, s *Store, name string, round int) error {
	n, err := s.View().Node(name)
	if err != nil {
		return err
	}
	n = n.Clone()
	n.Addr = fmt.Sprintf("10.0.0.%d", round+1)

	conflicts, err := s.PutNodes(ctx, []state.NodeWrite{{Node: n}})
	if err != nil || len(conflicts) > 0 {
		return fmt.Errorf("%s in round %d: %v, %w", name, round, conflicts, err)
	}

	if got, err := s.View().Node(name); err != nil || got.Addr != n.Addr {
		return fmt.Errorf("%s in round %d: the view has %v, %w", name, round, got, err)
	}

	return nil
}

// slowKV calls a function before the answer to each read of a range.
type slowKV struct {
	clientv3.KV
	read func()
}

func (k slowKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := k.KV.Get(ctx, key, opts...)
	k.read()
	return resp, err
}

// TestOwnWriteDuringLoad: a view that is read again never claims a revision whose writes it
// lacks.
func TestOwnWriteDuringLoad(t *testing.T) {
	t.Parallel()

	s := open(t, dial(t, own(t), "/t"))
	names := seen(t, s, 1)
	s.Close()

	kv := s.client.KV
	s.client.KV = slowKV{kv, func() {
		// Without a watch, a write that is left to it is not seen in time.
		err := rewrite(within(t, 200*time.Millisecond), s, names[0], 1)
		if inventory.KindOf(err) != inventory.KindUnavailable {
			t.Errorf("the view took a write while it was read: %v", err)
		}
	}}

	revision, err := s.view.load(t.Context())
	must(t, err)

	s.client.KV = kv

	n, err := s.View().Node(names[0])
	must(t, err)

	if v := s.View(); v.Revision != revision || n.Revision > revision {
		t.Errorf("the view is at revision %d, its node at %d; it was read at %d", v.Revision, n.Revision, revision)
	}

	// The next write is the view's again, once it has the former one.
	resp, err := kv.Get(t.Context(), s.nodeKey(names[0]))
	must(t, err)
	s.view.applyAll([]*clientv3.Event{{Type: mvccpb.Event_PUT, Kv: resp.Kvs[0]}})
	must(t, rewrite(within(t, patience), s, names[0], 2))
}

// TestOwnWriteOnce: the watch, which is later, applies nothing again.
func TestOwnWriteOnce(t *testing.T) {
	t.Parallel()

	v, _ := applier(t)

	put := func(round int) clientv3.Op {
		op, err := put("/p/v/nodes/n-1", inventory.Node{Name: "n-1", Addr: fmt.Sprint(round)})
		must(t, err)
		return op
	}
	event := func(revision int64) *clientv3.Event {
		kv := &mvccpb.KeyValue{
			Key: []byte("/p/v/nodes/n-1"), Value: put(int(revision)).ValueBytes(), ModRevision: revision,
		}

		return &clientv3.Event{Type: mvccpb.Event_PUT, Kv: kv}
	}
	shows := func(round int) {
		t.Helper()

		if n, err := v.current().Node("n-1"); err != nil || n.Addr != fmt.Sprint(round) {
			t.Errorf("the view shows %+v instead of %d: %v", n, round, err)
		}
	}

	for round := 1; round <= 3; round++ {
		v.applyOwn(int64(round), []clientv3.Op{put(round)})
		shows(round)
	}

	v.applyAll([]*clientv3.Event{event(1), event(2)})
	shows(3)

	// A write of somebody else is in between, so this one is the watch's.
	v.applyOwn(5, []clientv3.Op{put(5)})
	shows(3)
	v.applyAll([]*clientv3.Event{event(3), event(4)})
	shows(4)
	v.applyAll([]*clientv3.Event{event(5)})
	shows(5)

	// A deletion may remove nothing, which only the watch knows.
	v.applyOwn(6, []clientv3.Op{clientv3.OpDelete("/p/v/nodes/n-1")})

	if got := v.current().Revision; got != 5 {
		t.Errorf("the view took a deletion: revision %d", got)
	}
}

// TestOwnWriteElsewhere: a write outside of the view wakes nobody, and the next write needs no
// watch all the same.
func TestOwnWriteElsewhere(t *testing.T) {
	t.Parallel()

	v, _ := applier(t)

	node, err := put("/p/v/nodes/n-1", inventory.Node{Name: "n-1"})
	must(t, err)

	before, changed := v.current(), v.changed

	v.applyOwn(1, []clientv3.Op{clientv3.OpPut("/p/x/log/1", "text")})

	select {
	case <-changed:
		t.Error("a log is no change of the view")
	default:
	}

	if v.current() != before {
		t.Error("a log made another view")
	}

	v.applyOwn(2, []clientv3.Op{node})

	if n, err := v.current().Node("n-1"); err != nil || n.Revision != 2 || v.current().Revision != 2 {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestOwnWriteWakesOnce: the watch wakes nobody for a write that the view has, but confirms
// the view, and wakes the waiters for the write of another process and for the end of staleness.
func TestOwnWriteWakesOnce(t *testing.T) {
	t.Parallel()

	other := open(t, dial(t, own(t), "/t"))

	// No watch runs, so the test passes the events on.
	s := &Store{client: other.client, secrets: testSecrets()}
	s.view.secrets = s.secrets
	s.view.init(s.client, testKinds, silent(), time.Hour)
	revision, err := s.view.load(t.Context())
	must(t, err)

	// next returns the events of the write after the revision.
	next := func() []*clientv3.Event {
		resp := <-other.client.Watch(within(t, patience), "/t/v/", clientv3.WithPrefix(), clientv3.WithRev(revision+1))
		must(t, resp.Err())

		revision = resp.Events[len(resp.Events)-1].Kv.ModRevision
		return resp.Events
	}

	write := func(s *Store, value string) {
		vars := configuration.Vars{"a": value}
		_, err := putVars(within(t, patience), s, s.View(), state.ScopeGlobal, vars, variable.Change{})
		must(t, err)
	}

	// pass passes the events of the write on, and reports whether that woke the waiters.
	pass := func() bool {
		changed := s.Changed()
		s.view.applyAll(next())

		select {
		case <-changed:
			return true
		default:
			return false
		}
	}

	// age makes the last confirmation so old.
	age := func(by time.Duration) {
		s.view.mu.Lock()
		defer s.view.mu.Unlock()
		s.view.confirmed = time.Now().Add(-by)
	}

	woken := s.Changed()

	write(s, "own")

	select {
	case <-woken:
	default:
		t.Error("an own write woke nobody")
	}

	age(30 * time.Minute)

	if pass() {
		t.Error("the watch woke the waiters for an own write once more")
	}

	if old := s.Staleness(); old > 20*time.Minute {
		t.Errorf("the watch did not confirm the view: %s", old)
	}

	write(s, "own, while the view is stale")
	age(2 * time.Hour)

	if !pass() || s.View().Stale {
		t.Error("the end of staleness woke nobody")
	}

	write(other, "of another process")

	if !pass() || state.VarsOf(s.View(), state.ScopeGlobal)["a"] != "of another process" {
		t.Error("the write of another process woke nobody, or is not shown")
	}
}

// sameChanges checks that two views have published the same changes after the revision.
func sameChanges(t *testing.T, revision int64, a, b *Store) {
	t.Helper()

	ctx := within(t, patience)
	must(t, a.Sync(ctx))
	must(t, b.Sync(ctx))

	text := func(s *Store) (out []string) {
		changes, err := s.Changes(revision, 1<<20)
		must(t, err)

		for _, c := range changes.List {
			out = append(out, fmt.Sprintf("%d %s %s %+v", c.Revision, c.Kind, c.Key, c.Record))
		}

		return out
	}
	if got, want := text(a), text(b); !reflect.DeepEqual(got, want) {
		t.Errorf("the changes differ: %d and %d:\n%s\n%s", len(got), len(want), got, want)
	}
}
