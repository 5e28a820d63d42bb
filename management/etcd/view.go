// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// StaleAfter is the time without a confirmation by etcd after which a view is stale.
const StaleAfter = 3 * time.Second

// view holds the decoded records below /v and the snapshots made of them on demand.
type view struct {
	client *etcd.Client
	log    logrus.FieldLogger

	secrets *Secrets

	staleAfter time.Duration

	// A write that etcd does not answer fails after these three together, at the latest.
	probeEvery   time.Duration
	probeTimeout time.Duration
	probeGrace   time.Duration // for an etcd that is just back, or slow for a moment

	mu        sync.Mutex
	tables    *record.Tables // the records of the kinds; of nodes, the form that counts
	revision  int64
	whole     int64          // the view has all that was written up to this revision
	own       map[int64]bool // revisions that the view has before the watch, see applyOwn
	loading   bool           // all records are being read again
	confirmed time.Time      // when the view was last proven current
	onProbe   func(took time.Duration, err error)
	outage    outage

	unreadable copyOnWrite[string, string] // reasons by key below the prefix

	unknown  map[string]*record.Unknown // fields of a newer version, by key below that of the view
	reserved map[string]*inventory.Node // the nodes with reservations, as stored
	snapshot *state.View                // nil: a record changed since the last one
	changed  chan struct{}              // closed at the next change
	pending  pending
	feed     *state.Feed // nil until the first load
}

func (v *view) init(client *etcd.Client, kinds []record.Any, log logrus.FieldLogger, staleAfter time.Duration) {
	v.tables = record.NewTables(kinds)
	v.client, v.log, v.changed = client, log, make(chan struct{})
	v.staleAfter, v.outage = staleAfter, newOutage()
	v.probeEvery, v.probeTimeout, v.probeGrace = staleAfter/6, staleAfter/3, staleAfter/8
	v.reset()
}

// reset forgets all records.
func (v *view) reset() {
	v.tables = record.NewTables(v.tables.Kinds())
	v.tables.Open, v.tables.Written = v.secrets.openPlace, v.markRecord
	v.own = map[int64]bool{}
	v.unreadable = copyOnWrite[string, string]{}
	v.reserved = map[string]*inventory.Node{}
	v.unknown = map[string]*record.Unknown{}
}

// copyOnWrite is a map that snapshots share. The first change after a snapshot copies
// it.
type copyOnWrite[K comparable, V any] struct {
	m      map[K]V
	shared bool
}

// share returns the map for a snapshot. It never changes again.
func (c *copyOnWrite[K, V]) share() map[K]V {
	c.shared = true
	return c.m
}

// writable returns the map for a change.
func (c *copyOnWrite[K, V]) writable() map[K]V {
	if c.m == nil {
		c.m = map[K]V{}
	}

	if c.shared {
		c.m, c.shared = maps.Clone(c.m), false
	}
	return c.m
}

// load reads all records and returns their revision.
func (v *view) load(ctx context.Context) (int64, error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	v.setLoading(true)
	defer v.setLoading(false)

	resp, err := v.client.Get(ctx, v.client.Prefix+"/v/", clientv3.WithPrefix())
	if err != nil {
		return 0, etcd.Error(err)
	}

	v.mu.Lock()
	defer v.mu.Unlock()

	old := v.tables.View()
	v.reset()

	// Keys arrive in alphabetical order, so a node may appear before the job that
	// commits its reservation. Changes are marked once everything is applied.
	v.pending = pending{disabled: true}
	for _, kv := range resp.Kvs {
		v.apply(&clientv3.Event{Type: mvccpb.Event_PUT, Kv: kv})
	}

	v.markDifferences(old, resp.Header.Revision)
	v.publish(resp.Header.Revision)

	return resp.Header.Revision, nil
}

// watchLoop keeps the view current until ctx ends. It reads all records again when
// the watch breaks, because the missed events may be compacted.
func (v *view) watchLoop(ctx context.Context, revision int64) {
	for ctx.Err() == nil {
		err := v.watch(ctx, revision)
		if ctx.Err() != nil {
			return
		}

		v.log.WithError(err).Warn("the watch on etcd has ended; reading all records again")

		// The old view remains readable meanwhile, and becomes stale.
		for {
			if revision, err = v.load(ctx); err == nil {
				break
			}

			select {
			case <-ctx.Done():
				return
			case <-time.After(v.probeEvery):
			}
		}
	}
}

// watch applies all changes after the revision until the watch or ctx ends.
func (v *view) watch(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()

	// Without a leader the watch ends, so that a partitioned member is left for another.
	events := v.client.Watch(ctx, v.client.Prefix+"/v/", clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case resp, ok := <-events:
			if !ok {
				return errors.New("the watch was closed")
			}

			if err := resp.Err(); err != nil {
				return err
			}

			if len(resp.Events) > 0 {
				v.applyAll(resp.Events)
			}
		}
	}
}

// applyAll applies the events of one watch response.
func (v *view) applyAll(events []*clientv3.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()

	foreign := false

	for _, e := range events {
		if !v.own[e.Kv.ModRevision] {
			v.apply(e)
			foreign = true
		}
	}

	// The revision in the response's header may be ahead of events still to come.
	last := events[len(events)-1].Kv.ModRevision
	maps.DeleteFunc(v.own, func(revision int64, _ bool) bool { return revision < last })

	// Own writes have woken the waiters already; the end of staleness has not.
	if !foreign && !v.isStale() {
		v.confirmed = time.Now()
		return
	}

	v.publish(last)
}

// probeLoop probes etcd until ctx ends. It wakes the waiters when the view becomes
// stale or current again.
func (v *view) probeLoop(ctx context.Context) {
	tick := time.NewTicker(v.probeEvery)
	defer tick.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		v.probe(ctx)
		v.updateStale()
	}
}

func (v *view) updateStale() {
	v.mu.Lock()
	defer v.mu.Unlock()

	stale := v.isStale()
	v.feed.SetStale(stale)

	if v.snapshot != nil && v.snapshot.Stale != stale {
		v.notify()
	}
}

// isStale reports whether the last confirmation is too old. The caller holds the lock.
func (v *view) isStale() bool { return time.Since(v.confirmed) > v.staleAfter }

// probe confirms the view if it has reached the newest revision, read by quorum.
func (v *view) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, v.probeTimeout)
	defer cancel()

	begun := time.Now()
	head, err := v.head(ctx)
	took := time.Since(begun)

	v.mu.Lock()
	onProbe := v.onProbe
	v.outage.note(begun, err == nil)

	if err == nil && v.revision >= head {
		v.confirmed = time.Now()
	}

	v.mu.Unlock()

	// Without the lock, because the function may read the store.
	if onProbe != nil {
		onProbe(took, err)
	}
}

// head returns the revision of the last write to the view, by quorum.
func (v *view) head(ctx context.Context) (int64, error) {
	resp, err := v.client.Get(ctx, headKey(v.client.Prefix), clientv3.WithKeysOnly())
	if err != nil || len(resp.Kvs) == 0 {
		return 0, etcd.Error(err)
	}
	return resp.Kvs[0].ModRevision, nil
}

// publish ends the application of all events up to the revision. The caller holds the
// lock.
func (v *view) publish(revision int64) {
	v.revision, v.whole = max(v.revision, revision), max(v.whole, revision)
	v.confirmed = time.Now()
	v.publishChanges()
	v.notify()
}

// notify drops the snapshot and wakes the waiters.
func (v *view) notify() {
	v.snapshot = nil
	close(v.changed)
	v.changed = make(chan struct{})
}

// apply applies one event. A record that cannot be decoded is logged and left out, so
// that it does not take the others away.
func (v *view) apply(e *clientv3.Event) {
	key := strings.TrimPrefix(string(e.Kv.Key), v.client.Prefix+"/v/")
	kind, name, _ := strings.Cut(key, "/")
	deleted := e.Type == mvccpb.Event_DELETE

	v.beginRevision(e.Kv.ModRevision)

	held := kind == job.Kind.Name && v.holds(name)

	err := v.applyRecord(key, deleted, e.Kv)
	v.noteUnreadable("v/"+key, err)
	v.noteUnknown(key, e)

	switch {
	case kind == job.Nodes.Name && err == nil:
		v.reserve(name)
	case kind == job.Kind.Name && v.holds(name) != held:
		v.decide(name)
	}
}

// applyRecord applies the write of a record of a kind. The key is below that of the view.
func (v *view) applyRecord(key string, deleted bool, kv *mvccpb.KeyValue) error {
	if _, known := v.tables.Subject(key); !known {
		return nil
	}

	value := kv.Value
	if deleted {
		value = nil
	}
	return v.tables.Apply(key, value, kv.ModRevision)
}

// noteUnreadable remembers why a record cannot be decoded, until it is replaced.
func (v *view) noteUnreadable(key string, err error) {
	_, was := v.unreadable.m[key]

	switch {
	case err != nil:
		v.log.WithError(err).WithField("key", key).Error("cannot decode a record in etcd; continuing without it")
		v.unreadable.writable()[key] = err.Error()
	case was:
		delete(v.unreadable.writable(), key)
	}
}

// current returns the newest snapshot.
func (v *view) current() *state.View {
	v.mu.Lock()
	defer v.mu.Unlock()

	stale := v.isStale()
	if v.snapshot != nil && v.snapshot.Stale == stale {
		return v.snapshot
	}

	// Only the flag changed. Callers may hold the old snapshot, so it is copied.
	if v.snapshot != nil {
		s := *v.snapshot
		s.Stale = stale
		v.snapshot = &s
		return v.snapshot
	}

	records := v.tables.View()
	for path, err := range v.tables.Joined() { // before what is unreadable is shared
		v.noteUnreadable("v/"+path, err)
	}

	v.snapshot = &state.View{
		Snapshot: job.Snapshot{View: records, Unreadable: v.unreadable.share()},
		Revision: v.revision,
		Stale:    stale,
	}

	return v.snapshot
}

// wait blocks until the view has reached the revision.
func (v *view) wait(ctx context.Context, revision int64) error {
	for {
		// Taken under one lock: a change in between would be missed otherwise.
		v.mu.Lock()
		current, changed := v.revision, v.changed
		v.mu.Unlock()

		if current >= revision {
			return nil
		}

		select {
		case <-ctx.Done():
			return inventory.Errorf(inventory.KindUnavailable,
				"the view is at revision %d and did not reach %d in time: %w", current, revision, ctx.Err()).
				Do("try again")
		case <-changed:
		}
	}
}
