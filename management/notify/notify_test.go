// SPDX-License-Identifier: Apache-2.0

package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// change is the change of a record, as the store has its values; a side that does not exist is nil.
type change struct {
	Revision                  int64
	Node, WasNode             *inventory.Node
	Tombstone                 *inventory.Tombstone
	Job, WasJob               *job.Job
	Rollout, WasRollout       *rollout.Record
	Automation, WasAutomation *state.Automation
}

func (c change) stored() []record.RawChange {
	return slices.Concat(
		stored(&job.Nodes, c.Revision, c.Node, c.WasNode), stored(&state.Tombstones, c.Revision, c.Tombstone, nil),
		stored(&job.Kind, c.Revision, c.Job, c.WasJob), stored(&rollout.Kind, c.Revision, c.Rollout, c.WasRollout),
		stored(&state.Memory, c.Revision, c.Automation, c.WasAutomation),
	)
}

func stored[T any](k *record.Kind[T], revision int64, is, was *T) (list []record.RawChange) {
	c := record.RawChange{Revision: revision}

	for value, r := range map[*[]byte]*T{&c.Is: is, &c.Was: was} {
		if r == nil {
			continue
		}

		var err error
		if *value, err = k.Encode(r); err != nil {
			panic(err)
		}

		c.Path = k.PathOf(r)
		list = []record.RawChange{c}
	}

	return list
}

// memory is a store in memory with a feed of changes, whose revisions are the test's.
type memory struct {
	*recordtest.Store

	mu      sync.Mutex
	changes []change // one without a record is another write
	other   int64    // the newest write that the feed does not have
	news    chan struct{}
	floor   int64 // changes up to it are gone
	counted bool  // a commit has a revision of its own
}

func newMemory() *memory {
	return &memory{
		Store: recordtest.NewStore(&notify.DeliveryKind, &notify.PositionKind), news: make(chan struct{}),
	}
}

func (m *memory) add(changes ...change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes = append(m.changes, changes...)
	m.wake()
}

func (m *memory) wake() {
	close(m.news)
	m.news = make(chan struct{})
}

func (m *memory) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.news
}

func (m *memory) Commit(ctx context.Context, tx *record.Tx) (int64, error) {
	if _, err := m.Store.Commit(ctx, tx); err != nil {
		return 0, err
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	if m.counted {
		m.other = m.head() + 1
	}

	m.changes = append(m.changes, change{Revision: m.head()})
	m.wake()

	return m.head(), nil
}

func (m *memory) ReadChanges(
	_ context.Context, after int64, emit func(int64, []record.RawChange) error,
) (int64, error) {
	m.mu.Lock()
	head, floor, changes := m.head(), m.floor, slices.Clone(m.changes)
	m.mu.Unlock()

	if after == 0 {
		return head, nil
	}
	if after < floor {
		return head, inventory.Errorf(inventory.KindExpired, "revision %d is gone", after)
	}

	for _, c := range changes {
		if c.Revision > after {
			if err := emit(c.Revision, c.stored()); err != nil {
				return head, err
			}
		}
	}

	return head, nil
}

// head returns the newest revision. The caller holds the lock.
func (m *memory) head() int64 {
	head := max(1, m.other)
	if n := len(m.changes); n > 0 {
		head = max(head, m.changes[n-1].Revision)
	}
	return head
}

func (m *memory) position() notify.Position {
	r, _ := m.Latest()
	return record.One(r, &notify.PositionKind)
}

// get returns the delivery with the id; a zero one if there is none.
func (m *memory) get(id string) notify.Delivery {
	r, _ := m.Latest()
	if d := record.Get(r, &notify.DeliveryKind, id); d != nil {
		return *d
	}
	return notify.Delivery{}
}

// put stores a delivery.
func (m *memory) put(d notify.Delivery) {
	if _, _, err := record.Decide(context.Background(), m.Store, func(tx *record.Tx) (any, error) {
		record.Put(tx, &notify.DeliveryKind, &d)
		return nil, nil
	}); err != nil {
		panic(err)
	}
}

// age makes a delivery older.
func (m *memory) age(id string, by time.Duration) {
	d := m.get(id)
	d.Created = d.Created.Add(-by)
	m.put(d)
}

// written returns the deliveries that a transaction writes.
func written(tx *record.Tx) (list []notify.Delivery) {
	writes, err := tx.Writes(nil)
	if err != nil {
		panic(err)
	}

	for _, w := range writes {
		c := record.RawChange{Path: w.Path, Is: w.Value}
		if d, _, _, _ := notify.DeliveryKind.Sides(c); d != nil {
			list = append(list, *d)
		}
	}

	return list
}

// receiver is a sender that keeps what it accepts.
type receiver struct {
	mu   sync.Mutex
	got  []string // ids
	fail func(attempt int) error
	n    int
}

func (*receiver) Describe() string { return "test" }

func (r *receiver) Send(_ context.Context, e notify.Event, _ time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.n++
	if r.fail != nil {
		if err := r.fail(r.n); err != nil {
			return err
		}
	}

	r.got = append(r.got, e.ID)

	return nil
}

func (r *receiver) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

type noAudit struct{}

func (noAudit) Record(context.Context, access.Record) {}

// bench is a notifier with one target on a store.
type bench struct {
	*notify.Notifier

	store    *memory
	target   notify.Target
	problems atomic.Pointer[map[string]string]
	follows  bool // another instance leads
}

func newBench(store *memory, target notify.Target) *bench {
	b := &bench{store: store, target: target}
	log, _ := test.NewNullLogger()
	b.Notifier = notify.New(notify.Options{
		Store: store,
		Leads: func() bool { return !b.follows }, Health: func(context.Context) map[string]string {
			if p := b.problems.Load(); p != nil {
				return *p
			}
			return nil
		},
		Manager: "m-1", Audit: noAudit{}, Logger: log,
	})

	b.SetTargets([]notify.Target{target})

	return b
}

// run runs the notifier until the returned function is called.
func (b *bench) run(t *testing.T) (stop func()) {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())

	var running sync.WaitGroup
	for _, l := range b.Loops() {
		running.Go(func() { l.Run(ctx) })
	}

	return func() { cancel(); running.Wait() }
}

func nodeChange(revision int64, from, to inventory.Status) change {
	was := &inventory.Node{
		Name:   "n-1",
		Status: from,
		State:  inventory.Discovered,
		Labels: map[string]string{"rack": "a"},
	}
	is := was.Clone()
	is.Status = to

	return change{Revision: revision, WasNode: was, Node: &is}
}

var everything = notify.Kinds

// settle waits until nothing but time remains to be waited for, over the pace of the rounds as well.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// TestDelivered: each event reaches the target once and in order, over a restart as well.
func TestDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := newMemory(), &receiver{}
		store.add(nodeChange(2, inventory.Unallocated, inventory.Allocated)) // before the first start

		b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: r})
		stop := b.run(t)

		settle()
		store.add(nodeChange(3, inventory.Allocated, inventory.Quarantined))
		store.add(nodeChange(4, inventory.Quarantined, inventory.Unallocated))
		settle()
		stop()

		// While nobody runs.
		store.add(nodeChange(5, inventory.Unallocated, inventory.Decommissioned))

		stop = newBench(store, b.target).run(t)
		settle()
		stop()

		want := []string{"3-node.status-n-1", "4-node.status-n-1", "5-node.status-n-1"}
		if got := r.ids(); !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
	})
}

// TestReceiverThatIsDown: a target that fails is tried again, ever more slowly, and gets
// everything in order. One that fails for a day loses the delivery, which a retry brings
// back.
func TestReceiverThatIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		r := &receiver{fail: func(attempt int) error {
			if attempt <= 5 {
				return errors.New("answered 500")
			}
			return nil
		}}
		b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: r})

		stop := b.run(t)
		defer func() { stop() }()

		settle()
		store.add(nodeChange(2, inventory.Unallocated, inventory.Allocated))
		store.add(nodeChange(3, inventory.Allocated, inventory.Quarantined))
		settle()

		if got := r.ids(); got != nil {
			t.Fatalf("delivered %v at once", got)
		}

		time.Sleep(3 * time.Minute)
		settle()

		if got := r.ids(); !slices.Equal(got, []string{"2-node.status-n-1", "3-node.status-n-1"}) {
			t.Fatalf("delivered %v after the target came back", got)
		}

		// Now it fails until the delivery is a day old.
		r.mu.Lock()
		r.fail = func(int) error { return errors.New("answered 500") }
		r.mu.Unlock()

		store.add(nodeChange(4, inventory.Quarantined, inventory.Unallocated))
		settle()
		store.age("a/4-node.status-n-1", 24*time.Hour)

		stop() // the next leader reads the age
		stop = b.run(t)

		time.Sleep(time.Minute)
		settle()

		list, _ := b.List("a")
		if !slices.ContainsFunc(list, func(d api.Delivery) bool {
			return d.Status == notify.Dead && d.Error == "answered 500" && d.Attempts > 1
		}) {
			t.Fatalf("after a day: %+v", list)
		}

		r.mu.Lock()
		r.fail = nil
		r.mu.Unlock()

		if n, err := b.Retry(t.Context(), access.Caller{}, "a"); n != 1 || err != nil {
			t.Fatalf("retry: %d, %v", n, err)
		}

		time.Sleep(10 * time.Minute)
		settle()

		if got := r.ids(); len(got) != 3 {
			t.Errorf("delivered %v after the retry", got)
		}
	})
}

// TestRetryPending: a retry does not wait for the next attempt at pending deliveries, and a
// target that accepts nothing is named after a while.
func TestRetryPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		r := &receiver{fail: func(int) error { return errors.New("answered 500") }}
		b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: r})
		defer b.run(t)()

		settle()

		begun := time.Now()

		store.add(nodeChange(2, inventory.Unallocated, inventory.Allocated))
		time.Sleep(4 * time.Hour)
		settle()

		if name, since := b.Failing(time.Hour); name != "a" || since.Sub(begun) > time.Second {
			t.Errorf("failing: %q since %s", name, since)
		}

		if name, _ := b.Failing(5 * time.Hour); name != "" {
			t.Errorf("failing for 5 hours: %q", name)
		}

		r.mu.Lock()
		r.fail = nil
		r.mu.Unlock()

		if n, err := b.Retry(t.Context(), access.Caller{}, "a"); n != 0 || err != nil {
			t.Fatalf("retry: %d, %v", n, err)
		}

		settle()

		if name, _ := b.Failing(0); len(r.ids()) != 1 || name != "" {
			t.Errorf("delivered %v after the retry, failing: %q", r.ids(), name)
		}
	})
}

// TestRefusedForGood: a delivery that the target refuses for good does not delay the
// next one.
func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		r := &receiver{fail: func(attempt int) error {
			if attempt == 1 {
				return notify.Permanent(errors.New("answered 410"))
			}
			return nil
		}}
		b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: r})
		defer b.run(t)()

		settle()
		store.add(nodeChange(2, inventory.Unallocated, inventory.Allocated))
		store.add(nodeChange(3, inventory.Allocated, inventory.Quarantined))
		settle()

		if got := r.ids(); !slices.Equal(got, []string{"3-node.status-n-1"}) {
			t.Errorf("delivered %v", got)
		}

		if s := b.Status(); s[0].Dead != 1 || s[0].Delivered != 1 || s[0].Pending != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

// TestTriedAtOnce: after many failures, a target that somebody corrected is tried at once
// and not at its next turn.
func TestTriedAtOnce(t *testing.T) {
	t.Parallel()

	for name, correct := range map[string]func(t *testing.T, b *bench){
		"a reload": func(_ *testing.T, b *bench) { b.SetTargets([]notify.Target{b.target}) },
		"a test": func(t *testing.T, b *bench) {
			if err := b.Test(t.Context(), access.Caller{}, "a"); err != nil {
				t.Error(err)
			}
		},
		"a retry": func(t *testing.T, b *bench) {
			if n, err := b.Retry(t.Context(), access.Caller{}, "a"); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		},
		"a retry by another instance": func(t *testing.T, b *bench) {
			other := newBench(b.store, b.target)
			other.follows = true

			if n, err := other.Retry(t.Context(), access.Caller{}, "a"); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}

			time.Sleep(time.Minute)
			settle()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, r := newMemory(), &receiver{fail: func(int) error { return errors.New("down") }}
				store.put(notify.Delivery{Delivery: api.Delivery{
					ID: "a/dead", Target: "a", Status: notify.Dead, Created: time.Now(),
					Event: notify.Event{ID: "dead"},
				}})

				b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: r})
				defer b.run(t)()

				settle()
				store.add(nodeChange(2, inventory.Unallocated, inventory.Allocated))

				// Its next turn is minutes away.
				time.Sleep(3 * time.Hour)
				r.mu.Lock()
				r.fail = nil
				r.mu.Unlock()
				correct(t, b)
				settle()

				if got := r.ids(); !slices.Contains(got, "2-node.status-n-1") {
					t.Errorf("delivered %v", got)
				}
			})
		})
	}
}

// TestLateEvent: an event whose delivery the store did not take is not lost, and an event that nobody wants
// writes nothing.
func TestLateEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := newMemory(), &receiver{}
		b := newBench(store, notify.Target{Name: "a", Events: []notify.Kind{notify.KindNodeStatus}, Sender: r})

		var full atomic.Bool

		store.Before = func(*record.Tx) error {
			if full.Load() {
				return errors.New("full")
			}
			return nil
		}

		stop := b.run(t)

		settle()

		full.Store(true)
		store.add(nodeChange(2, inventory.Unallocated, inventory.Allocated))
		time.Sleep(5 * time.Second)

		full.Store(false)
		time.Sleep(30 * time.Second) // within the minute in which the position alone is not written
		settle()

		if got := r.ids(); !slices.Equal(got, []string{"2-node.status-n-1"}) {
			t.Errorf("delivered %v", got)
		}

		commits := store.Commits()
		gone := nodeChange(3, inventory.Allocated, inventory.Allocated)
		gone.Node.State = inventory.Disappeared
		store.add(gone)
		settle()
		stop()

		if n := store.Commits() - commits; n > 0 {
			t.Errorf("%d writes for an event that nobody wants", n)
		}
	})
}

// TestLateResult: a result that the store did not take is stored later. Until then, the
// older record in the store is no reason to send the event again.
func TestLateResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		r := &receiver{fail: func(int) error { return notify.Permanent(errors.New("gone")) }}
		b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: r})

		var full atomic.Bool

		full.Store(true)

		store.Before = func(tx *record.Tx) error {
			if full.Load() && len(written(tx)) > 0 && written(tx)[0].Attempts > 0 {
				return errors.New("full")
			}
			return nil
		}

		defer b.run(t)()

		settle()
		store.add(nodeChange(2, inventory.Unallocated, inventory.Allocated))
		time.Sleep(3 * time.Minute)
		full.Store(false)
		time.Sleep(4 * time.Minute)
		settle()

		if d := store.get("a/2-node.status-n-1"); d.Status != notify.Dead || d.Attempts != 1 || r.n != 1 {
			t.Errorf("the delivery is %+v after %d requests", d, r.n)
		}
	})
}

// TestLimitWhileSending: a delivery that is accepted while the limit is applied counts as
// accepted.
func TestLimitWhileSending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		r := &receiver{fail: func(attempt int) error {
			if attempt > 1 {
				return errors.New("down")
			}

			time.Sleep(61 * time.Second)
			return nil
		}}

		for i := range 1000 {
			id := fmt.Sprintf("a/%d", i)
			store.put(notify.Delivery{Delivery: api.Delivery{
				ID: id, Target: "a", Status: notify.Pending, Event: notify.Event{ID: id},
				Created: time.Now().Add(time.Duration(i-2000) * time.Second),
			}})
		}

		// The write of the end takes longer than the attempt.
		store.Before = func(tx *record.Tx) error {
			if slices.ContainsFunc(written(tx), func(d notify.Delivery) bool { return d.Status == notify.Dead }) {
				time.Sleep(3 * time.Second)
			}
			return nil
		}

		defer newBench(store, notify.Target{Name: "a", Events: everything, Sender: r}).run(t)()

		// The sweep of the first minute finds one too many, and the oldest is being sent.
		time.Sleep(30 * time.Second)
		store.add(nodeChange(2, inventory.Unallocated, inventory.Allocated))
		time.Sleep(time.Minute)
		settle()

		if d := store.get("a/0"); d.Status != notify.Delivered {
			t.Errorf("the delivery that was accepted is %+v", d)
		}
	})
}

// TestGap: a target learns that events are missing.
func TestGap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := newMemory(), &receiver{}
		store.floor = 5

		before := &notify.Position{Revision: 2}
		if _, err := record.Replace(t.Context(), store, &notify.PositionKind, "", 0, before); err != nil {
			t.Fatal(err)
		}

		store.changes = []change{nodeChange(9, inventory.Unallocated, inventory.Allocated)}
		defer newBench(store, notify.Target{Name: "a", Events: everything, Sender: r}).run(t)()

		time.Sleep(time.Minute)
		settle()
		store.add(nodeChange(10, inventory.Allocated, inventory.Quarantined))
		settle()

		if got := r.ids(); !slices.Equal(got, []string{"9-gap", "10-node.status-n-1"}) {
			t.Errorf("delivered %v", got)
		}
	})
}

// TestNoGapWithoutEvents: a target does not hear of missed events only because there
// were none for longer than the store keeps its changes.
func TestNoGapWithoutEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := newMemory(), &receiver{}
		b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: r})
		stop := b.run(t)

		settle()

		// An hour of other writes, such as the output of a job.
		for range 60 {
			store.mu.Lock()
			store.other = store.head() + 10
			store.mu.Unlock()
			time.Sleep(time.Minute)
		}

		// Everything but the last five minutes is compacted away, then the manager starts.
		stop()
		store.mu.Lock()
		store.floor = store.head() - 50
		store.mu.Unlock()
		defer newBench(store, b.target).run(t)()

		time.Sleep(time.Minute)
		settle()

		if got := r.ids(); got != nil {
			t.Errorf("delivered %v", got)
		}
	})
}

// TestQuiet: the position alone causes no writes.
func TestQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		store.counted = true
		defer newBench(store, notify.Target{Name: "a", Events: everything, Sender: &receiver{}}).run(t)()

		time.Sleep(time.Hour)
		settle()

		if n := store.Commits(); n > 3 {
			t.Errorf("%d writes without an event", n)
		}
	})
}

// TestNoTargets: an event from a time without a target is not told to a new one, and a
// pending delivery ends.
func TestNoTargets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := newMemory(), &receiver{fail: func(int) error { return errors.New("down") }}
		b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: r})
		defer b.run(t)()

		settle()
		store.add(nodeChange(2, inventory.Unallocated, inventory.Allocated))
		time.Sleep(time.Minute)

		// The target is removed, and comes back an hour later.
		b.SetTargets(nil)
		time.Sleep(2 * time.Minute)
		store.add(nodeChange(30, inventory.Allocated, inventory.Quarantined))

		r.mu.Lock()
		r.fail = nil
		r.mu.Unlock()

		time.Sleep(time.Hour)

		if d := store.get("a/2-node.status-n-1"); d.Status != notify.Dead || store.position().Revision != 0 {
			t.Errorf("without targets: %+v at %+v", d, store.position())
		}

		b.SetTargets([]notify.Target{b.target})
		settle()
		store.add(nodeChange(60, inventory.Quarantined, inventory.Unallocated))
		settle()

		if got := r.ids(); !slices.Equal(got, []string{"60-node.status-n-1"}) {
			t.Errorf("delivered %v", got)
		}
	})
}

// TestHealthIsTold: a lasting change of the health is told once each way, and a short one
// is not.
func TestHealthIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := newMemory(), &receiver{}
		b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: r})
		full := map[string]string{"disk": "full"}
		defer b.run(t)()

		settle()

		b.problems.Store(&full)
		time.Sleep(16 * time.Second)
		b.problems.Store(nil)
		time.Sleep(5 * time.Minute)

		if got := r.ids(); got != nil {
			t.Fatalf("a short problem gave %v", got)
		}

		b.problems.Store(&full)
		time.Sleep(5 * time.Minute)
		b.problems.Store(nil)
		time.Sleep(5 * time.Minute)
		settle()

		list, _ := b.List("a")
		if len(list) != 2 || list[0].Event.Detail != "disk: full" || list[1].Event.To != "ok" {
			t.Errorf("the deliveries are %+v", list)
		}
	})
}

// TestLimits: too many pending deliveries end, the oldest first. Ended ones go after a
// week, and beyond a number.
func TestLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		down := &receiver{fail: func(int) error { return errors.New("down") }}
		b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: down})

		put := func(id string, status string, age time.Duration) {
			store.put(notify.Delivery{Delivery: api.Delivery{
				ID: id, Target: "a", Status: status, Created: time.Now().Add(-age),
			}})
		}
		for i := range 1100 {
			put(fmt.Sprintf("pending-%d", i), notify.Pending, time.Hour+time.Duration(i)*time.Second)
			put(fmt.Sprintf("delivered-%d", i), notify.Delivered, 2*time.Hour+time.Duration(i)*time.Second)
		}

		put("old", notify.Dead, 8*24*time.Hour)
		put("of-another", notify.Pending, time.Hour)

		other := store.get("of-another")
		other.Target = "b"
		store.put(other)
		defer b.run(t)()

		time.Sleep(10 * time.Minute)
		settle()

		s := b.Status()
		if s[0].Pending != 1000 || s[0].Delivered+s[0].Dead != 1000 {
			t.Errorf("%d pending, %d delivered, %d dead", s[0].Pending, s[0].Delivered, s[0].Dead)
		}

		if store.get("old").ID != "" || store.get("pending-1099").Status != notify.Dead {
			t.Errorf("the oldest are %+v and %+v", store.get("old"), store.get("pending-1099"))
		}

		if d := store.get("of-another"); d.Status != notify.Dead {
			t.Errorf("the delivery to a target that is gone is %+v", d)
		}
	})
}

// TestSecondProblem: each lasting change of the parts that failed is told, also while
// another part fails, and one that comes and goes does not hold up the others.
func TestSecondProblem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := newMemory(), &receiver{}
		b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: r})
		defer b.run(t)()

		lasts := func(problems map[string]string) {
			b.problems.Store(&problems)
			time.Sleep(time.Minute)
			settle()
		}

		time.Sleep(time.Second) // between two looks
		lasts(map[string]string{"disk": "full"})

		// The same problem in other words is no news, and ansible flaps.
		for i := range 20 {
			problems := map[string]string{"disk": fmt.Sprintf("full for %d minutes", i), "store": "no quorum"}
			if i%2 == 0 {
				problems["ansible"] = "too old"
			}
			b.problems.Store(&problems)
			time.Sleep(15 * time.Second)
		}

		lasts(map[string]string{"store": "no quorum"})
		lasts(nil)

		var got []string

		list, _ := b.List("a")
		for _, d := range list {
			got = append(got, d.Event.From+" "+d.Event.To+" "+d.Event.Summary)
		}

		want := []string{
			"ok degraded the manager is degraded: disk",
			"degraded degraded the manager has another problem: store",
			"degraded degraded disk is well again; the manager is still degraded: store",
			"degraded ok the manager is well again",
		}
		if !slices.Equal(got, want) {
			t.Errorf("told %q", got)
		}
	})
}

// TestKinds: which changes are which events, and their actors.
func TestKinds(t *testing.T) {
	t.Parallel()

	node := func(change func(n *inventory.Node)) *inventory.Node {
		n := &inventory.Node{Name: "n-1", Status: inventory.Allocated, State: inventory.Discovered, Actor: "ann"}
		change(n)
		return n
	}
	same := func(*inventory.Node) {}
	verdict := func(r inventory.VerdictResult) *inventory.Node {
		return node(func(n *inventory.Node) { n.Verification = &inventory.Verdict{Result: r} })
	}
	ended := func(s job.Status) *job.Job {
		return &job.Job{
			ID: "7", Verb: inventory.VerbVerify, Status: s, Actor: "policy:returns", CancelBy: "bob",
			Targets: []job.Target{{Name: "n-1"}},
		}
	}
	paused := state.Automation{Paused: map[string]state.Pause{"returns": {Actor: "ann", Reason: "rack move"}}}
	resumed := state.Automation{Resumed: state.Pause{Actor: "bob"}}
	braked := state.Automation{Brake: state.Brake{On: true, Vanish: 12, Visible: 20, Lost: []string{"n-1", "n-2"}}}
	released := state.Automation{Brake: state.Brake{ReleasedBy: "bob", Reason: "switch is back"}}

	roll := func(s rollout.Status, kind rollout.EventKind, actor string) *rollout.Record {
		return &rollout.Record{
			ID: "r1", Status: s, Actor: "ann", Spec: rollout.Spec{Action: inventory.VerbApply},
			Events: []rollout.Event{{Kind: kind, Actor: actor}},
		}
	}
	running := roll(rollout.Running, rollout.EventStarted, "ann")
	aborted := roll(rollout.Aborted, rollout.EventAbort, "bob")
	aborted.Events = append(aborted.Events, rollout.Event{Kind: rollout.EventEnded})
	stopped := roll(rollout.Stopped, rollout.EventStopped, "")
	failed := roll(rollout.Fruitless, rollout.EventStopped, "")
	failed.Events = append(failed.Events, rollout.Event{Kind: rollout.EventEnded})

	turned := func(on bool, at int64, actor string) *state.Automation {
		return &state.Automation{Switches: map[string]state.Switch{
			"workers": {On: on, Since: time.Unix(at, 0), Actor: actor, Reason: "3 failures in a row"},
		}}
	}

	for name, c := range map[string]struct {
		change change
		want   []string
	}{
		"policy turned on": {
			change{WasAutomation: &state.Automation{}, Automation: turned(true, 1, "ann")},
			[]string{"policy.resumed the policy workers is turned on (ann)"},
		},
		"policy still on": {
			change{WasAutomation: turned(true, 1, "ann"), Automation: turned(true, 1, "ann")}, nil,
		},
		"policy turned itself off": {
			change{WasAutomation: turned(true, 1, "ann"), Automation: turned(false, 2, "policy:workers")},
			[]string{"policy.stopped the policy workers is turned off (policy:workers)"},
		},
		"rollout started": {change{Rollout: running}, nil},
		"rollout goes on": {change{WasRollout: running, Rollout: running}, nil},
		"rollout needs approval": {
			change{Rollout: roll(rollout.AwaitingApproval, rollout.EventStarted, "ann")},
			[]string{"rollout.waiting rollout r1 (apply) is AwaitingApproval (ann)"},
		},
		"rollout needs promotion": {
			change{WasRollout: running, Rollout: roll(rollout.AwaitingPromotion, rollout.EventCanary, "")},
			[]string{"rollout.waiting rollout r1 (apply) is AwaitingPromotion (ann)"},
		},
		"rollout stopped": {
			change{WasRollout: running, Rollout: stopped},
			[]string{"rollout.stopped rollout r1 (apply) is Stopped (ann)"},
		},
		"rollout stopped by its last node": {
			change{WasRollout: running, Rollout: failed},
			[]string{
				"rollout.stopped rollout r1 (apply) is Failed (ann)",
				"rollout.ended rollout r1 (apply) is Failed (ann)",
			},
		},
		"rollout ends after it stopped": {
			change{WasRollout: stopped, Rollout: failed},
			[]string{"rollout.ended rollout r1 (apply) is Failed (ann)"},
		},
		"rollout paused": {
			change{WasRollout: running, Rollout: roll(rollout.Paused, rollout.EventPaused, "bob")},
			[]string{"rollout.stopped rollout r1 (apply) is Paused (bob)"},
		},
		"rollout done": {
			change{WasRollout: running, Rollout: roll(rollout.Done, rollout.EventEnded, "")},
			[]string{"rollout.ended rollout r1 (apply) is Done (ann)"},
		},
		"rollout being aborted": {
			change{WasRollout: running, Rollout: roll(rollout.Aborting, rollout.EventAbort, "bob")}, nil,
		},
		"rollout aborted": {
			change{WasRollout: running, Rollout: aborted},
			[]string{"rollout.ended rollout r1 (apply) is Aborted (bob)"},
		},
		"rollout still aborted": {change{WasRollout: aborted, Rollout: aborted}, nil},
		"rollout removed":       {change{WasRollout: aborted}, nil},
		"drift": {
			change{WasNode: node(same), Node: verdict(inventory.Drifted)},
			[]string{"node.drifted n-1 is drifted (ann)"},
		},
		"no drift": {
			change{WasNode: verdict(inventory.Drifted), Node: verdict(inventory.Clean)},
			[]string{"node.verification n-1 is clean (ann)"},
		},
		"forgotten": {
			change{WasNode: node(same), Tombstone: &inventory.Tombstone{Name: "n-1", Actor: "bob"}},
			[]string{"node.forgotten n-1 was forgotten (bob)"},
		},
		"complete": {
			change{Job: ended(job.Complete)},
			[]string{"job.ended job 7 (verify of n-1) is Complete (policy:returns)"},
		},
		"failed": {
			change{Job: ended(job.Errored)},
			[]string{"job.failed job 7 (verify of n-1) is Errored (policy:returns)"},
		},
		"cancelled": {
			change{Job: ended(job.Cancelled)}, []string{"job.ended job 7 (verify of n-1) is Cancelled (bob)"},
		},
		"paused": {
			change{WasAutomation: &state.Automation{}, Automation: &paused},
			[]string{"policy.stopped the policy returns is paused (ann)"},
		},
		"still paused": {change{WasAutomation: &paused, Automation: &paused}, nil},
		"resumed": {
			change{WasAutomation: &paused, Automation: &resumed},
			[]string{"policy.resumed the policy returns is resumed (bob)"},
		},
		"braked": {
			change{Automation: &braked},
			[]string{"policy.stopped the brake stopped automation: 12 of 20 nodes vanished at once (policy:brake)"},
		},
		"still braked": {change{WasAutomation: &braked, Automation: &braked}, nil},
		"released": {
			change{WasAutomation: &braked, Automation: &released},
			[]string{"policy.resumed the brake is released: automation goes on (bob)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newMemory()
				b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: &receiver{}})
				defer b.run(t)()

				settle()

				c.change.Revision = 2
				store.add(c.change)
				settle()

				var got []string

				list, _ := b.List("a")
				for _, d := range list {
					got = append(got, fmt.Sprintf("%s %s (%s)", d.Event.Kind, d.Event.Summary, d.Event.Actor))
				}

				if !slices.Equal(got, c.want) {
					t.Errorf("told %q", got)
				}
			})
		})
	}
}

// TestChosen: a target gets the kinds and the nodes that it asks for.
func TestChosen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := newMemory(), &receiver{}
		target := notify.Target{
			Name:    "a",
			Events:  []notify.Kind{notify.KindNodeStatus, notify.KindJobFailed, notify.KindJobEnded},
			Sender:  r,
			Matches: func(n *inventory.Node) bool { return n.Labels["rack"] == "a" },
		}

		defer newBench(store, target).run(t)()

		settle()

		other := nodeChange(2, inventory.Unallocated, inventory.Allocated)
		other.Node.Labels = map[string]string{"rack": "b"}
		gone := nodeChange(3, inventory.Allocated, inventory.Allocated)
		gone.Node.State = inventory.Disappeared

		// A reservation that is withdrawn is no event, nor is one that is committed.
		held := nodeChange(5, inventory.Unallocated, inventory.Provisioning)
		held.Node.Before = &inventory.Before{Status: inventory.Unallocated}
		done := change{Revision: 6, WasNode: held.Node, Node: nodeChange(6, "", inventory.Allocated).Node}

		running := &job.Job{ID: "7", Verb: inventory.VerbCommission, Status: job.Running}
		failed := &job.Job{
			ID: "7", Verb: inventory.VerbCommission, Status: job.Errored, Message: "a\nb\x1b[31m\u202e",
			Targets: []job.Target{{Name: "n-1"}},
		}

		// The alert may come with the change.
		silenced := nodeChange(4, inventory.Unallocated, inventory.Allocated)
		silenced.Node.Labels = map[string]string{"rack": "a"}
		silenced.Node.Alerts = []inventory.Alert{{ID: "1", Effects: []inventory.Effect{inventory.Silenced}}}

		store.add(other, gone, silenced, held, done,
			change{Revision: 7, Job: running}, change{Revision: 8, WasJob: running, Job: failed},
			change{Revision: 9, WasJob: failed, Job: failed})
		settle()

		if got := r.ids(); !slices.Equal(got, []string{"6-node.status-n-1", "8-job.failed-7"}) {
			t.Errorf("delivered %v", got)
		}

		if detail := store.get("a/8-job.failed-7").Event.Detail; detail != "a b[31m" {
			t.Errorf("the detail is %q", detail)
		}
	})
}

// TestWebhook: a request is signed, in the format of the target, and a redirect is not
// followed.
func TestWebhook(t *testing.T) {
	t.Parallel()

	secret := []byte(strings.Repeat("s", notify.MinSecret))

	verifier, err := webhooks.NewWebhookRaw(secret)
	if err != nil {
		t.Fatal(err)
	}

	var bodies []string

	status := http.StatusOK

	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := verifier.Verify(body, r.Header); err != nil {
			t.Errorf("the signature of %s: %v", body, err)
		}
		bodies = append(bodies, string(body))

		if status >= 300 && status < 400 {
			w.Header().Set("Location", "/elsewhere")
		}

		w.WriteHeader(status)
	}))
	defer receiver.Close()

	e := notify.Event{
		ID: "1-test", Kind: notify.KindTest, Time: time.Unix(1, 0), Manager: "m-1",
		Summary: `<!channel> "n-1" & {job}`, Job: "7",
	}

	for _, format := range notify.Formats() {
		w, err := notify.NewWebhook(notify.WebhookOptions{
			URL: receiver.URL + "/hook", Format: format, Secret: secret, AllowLocal: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Send(t.Context(), e, time.Now()); err != nil {
			t.Errorf("%s: %v", format, err)
		}

		if last := bodies[len(bodies)-1]; !json.Valid([]byte(last)) {
			t.Errorf("%s: the body is no JSON: %s", format, last)
		}

		if strings.Contains(w.Describe(), "hook") {
			t.Errorf("%s shows the path of the URL", w.Describe())
		}
	}

	slack := bodies[slices.Index(notify.Formats(), "slack")]

	var said struct{ Text string }
	if err := json.Unmarshal(
		[]byte(slack),
		&said,
	); err != nil ||
		said.Text != `*m-1* &lt;!channel&gt; "n-1" &amp; {job}` {
		t.Errorf("slack gets %q, %v", said.Text, err)
	}

	w, err := notify.NewWebhook(notify.WebhookOptions{
		URL: receiver.URL, Format: notify.FormatJSON, Secret: secret, AllowLocal: true,
	})
	if err != nil {
		t.Fatal(err)
	}

	for code, permanent := range map[int]bool{
		302: false, 308: false, 400: true, 401: false, 403: false, 404: false, 405: false, 408: false, 410: true,
		413: true, 422: true, 429: false, 500: false, 503: false,
	} {
		status, bodies = code, nil

		err := w.Send(t.Context(), e, time.Now())
		if err == nil || notify.IsPermanent(err) != permanent || !strings.Contains(err.Error(), fmt.Sprint(code)) {
			t.Errorf("%d: %v, permanent %t", code, err, notify.IsPermanent(err))
		}

		if len(bodies) != 1 {
			t.Errorf("%d: %d requests", code, len(bodies))
		}
	}
}

// TestSlowReceiver: an attempt ends at its deadline, and without the URL in the error.
func TestSlowReceiver(t *testing.T) {
	t.Parallel()

	release := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer receiver.Close()
	defer close(release)

	w, err := notify.NewWebhook(notify.WebhookOptions{
		URL: receiver.URL + "/secret-path", Format: notify.FormatJSON, AllowLocal: true,
	})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	err = w.Send(ctx, notify.Event{ID: "1"}, time.Now())
	if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "secret-path") ||
		notify.IsPermanent(err) || !strings.HasSuffix(err.Error(), " did not answer in time") {
		t.Errorf("the error is %v", err)
	}
}

// TestRefusedParameters: what cannot work is refused before it is used, and no secret is
// in the error.
func TestRefusedParameters(t *testing.T) {
	t.Parallel()

	for _, url := range []string{
		"", "chat", "ftp://chat", "https://", "https://a:b@chat", "file:///etc/passwd", "http://[::1",
	} {
		if _, err := notify.NewWebhook(notify.WebhookOptions{URL: url, Format: "json"}); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}

	_, err := notify.NewWebhook(notify.WebhookOptions{URL: "http://chat", Format: "json", Secret: []byte("hunter2")})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a short secret gave %v", err)
	}

	for _, o := range []notify.MailOptions{
		{},
		{Relay: "mail", From: "a@b.c", To: []string{"a@b.c"}},
		{Relay: "mail:99999", From: "a@b.c", To: []string{"a@b.c"}},
		{Relay: "mail:25", From: "a", To: []string{"a@b.c"}},
		{Relay: "mail:25", From: "a@b.c"},
		{Relay: "mail:25", From: "a@b.c", To: []string{"a@b.c\r\nBcc: x@y.z"}},
		{Relay: "mail:25", From: "a@b.c", To: []string{"a@b.c"}, PlainText: true, User: "u"},
	} {
		if _, err := notify.NewMail(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}
