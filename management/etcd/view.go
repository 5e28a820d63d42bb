// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// StaleAfter is how long the store may say nothing before a view is stale.
const StaleAfter = 3 * time.Second

// view is what the watch has told so far, and the snapshot made of it on demand.
type view struct {
	client *etcd.Client
	log    logrus.FieldLogger

	staleAfter    time.Duration // without a word of the store
	progressEvery time.Duration // the store is asked how far it is

	mu        sync.Mutex
	nodes     map[string]*inventory.Node // as stored, reservations included; the records never change
	jobs      map[string]job.Job
	settings  lent[state.Scope, configuration.Vars]
	settled   lent[state.Scope, int64] // the revisions of the settings
	conns     lent[string, configuration.Connection]
	graves    lent[string, inventory.Tombstone]
	overlay   map[string]any // replaced as a whole, never changed
	files     map[string]string
	config    int64 // the revision of the newest of overlay and files
	instances map[string]state.Instance
	seq       uint64
	ground    int64
	revision  int64
	heard     time.Time                           // when the store last said anything
	asked     func(took time.Duration, err error) // may be nil

	reserved   map[string]map[string]bool // the nodes that a job has reserved, by the job's id
	snapshot   *state.View                // nil: to be made
	shownNodes []*inventory.Node          // of the newest snapshot
	shownJobs  []job.Job
	newNodes   map[string]bool // the names of those that may differ from it
	newJobs    map[string]bool
	changed    chan struct{} // closed when something is applied
	pending    pending
	feed       *state.Feed // made by the first load
}

// empty makes the view one of nothing.
func (v *view) empty(client *etcd.Client, log logrus.FieldLogger, staleAfter time.Duration) {
	v.client, v.log, v.changed = client, log, make(chan struct{})
	v.staleAfter, v.progressEvery = staleAfter, staleAfter/3
	v.reset()
}

func (v *view) reset() {
	v.nodes, v.jobs = map[string]*inventory.Node{}, map[string]job.Job{}
	v.settings, v.conns = lent[state.Scope, configuration.Vars]{}, lent[string, configuration.Connection]{}
	v.graves, v.overlay, v.instances = lent[string, inventory.Tombstone]{}, nil, map[string]state.Instance{}
	v.settled, v.files, v.config = lent[state.Scope, int64]{}, map[string]string{}, 0
	v.seq, v.ground = 0, 0
	v.reserved, v.newNodes, v.newJobs = map[string]map[string]bool{}, map[string]bool{}, map[string]bool{}
	v.shownNodes, v.shownJobs = []*inventory.Node{}, []job.Job{}
}

// lent is a map that snapshots share: it is copied before the first change that
// follows one.
type lent[K comparable, V any] struct {
	m     map[K]V
	given bool
}

// give is the map for a snapshot, which will not change.
func (l *lent[K, V]) give() map[K]V {
	l.given = true
	return l.m
}

// own is the map for a change.
func (l *lent[K, V]) own() map[K]V {
	if l.m == nil {
		l.m = map[K]V{}
	}

	if l.given {
		l.m, l.given = maps.Clone(l.m), false
	}

	return l.m
}

// load reads everything anew and returns the revision it was read at.
func (v *view) load(ctx context.Context) (int64, error) {
	ctx, cancel := etcd.Bounded(ctx)
	defer cancel()

	resp, err := v.client.Get(ctx, v.client.Prefix+"/v/", clientv3.WithPrefix())
	if err != nil {
		return 0, etcd.Error(err)
	}

	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.contents()
	v.reset()

	v.pending = pending{off: true}
	for _, kv := range resp.Kvs {
		v.apply(&clientv3.Event{Type: mvccpb.Event_PUT, Kv: kv})
	}

	v.compare(old, resp.Header.Revision)
	v.publish(resp.Header.Revision)

	return resp.Header.Revision, nil
}

// follow keeps the view up to date until ctx ends.
func (v *view) follow(ctx context.Context, revision int64) {
	for ctx.Err() == nil {
		err := v.watch(ctx, revision)
		if ctx.Err() != nil {
			return
		}

		v.log.WithError(err).Warn("the watch on the store has ended; reading everything again")

		for {
			if revision, err = v.load(ctx); err == nil {
				break
			}

			select {
			case <-ctx.Done():
				return
			case <-time.After(v.progressEvery):
			}
		}
	}
}

// watch applies what changes from the revision on, until the watch ends.
func (v *view) watch(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()

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

			if len(resp.Events) == 0 {
				continue
			}

			v.mu.Lock()
			for _, e := range resp.Events {
				v.apply(e)
			}

			// The header's revision may be ahead of events that are still to come.
			v.publish(resp.Events[len(resp.Events)-1].Kv.ModRevision)
			v.mu.Unlock()
		}
	}
}

// listen asks the store again and again how far it is, until ctx ends, and wakes
// who waits for changes when the view becomes stale or is so no longer.
func (v *view) listen(ctx context.Context) {
	tick := time.NewTicker(v.progressEvery)
	defer tick.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		v.ask(ctx)
		v.mu.Lock()
		v.feed.SetStale(time.Since(v.heard) > v.staleAfter)

		if v.snapshot != nil && v.snapshot.Stale != (time.Since(v.heard) > v.staleAfter) {
			v.wake()
		}

		v.mu.Unlock()
	}
}

// ask learns, by quorum, whether the view is up to date.
func (v *view) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, v.progressEvery)
	defer cancel()
	begun := time.Now()
	head, err := v.head(ctx)
	v.mu.Lock()
	asked := v.asked
	v.mu.Unlock()

	if asked != nil {
		asked(time.Since(begun), err)
	}

	if err != nil {
		return
	}

	v.mu.Lock()
	if v.revision >= head {
		v.heard = time.Now()
	}

	v.mu.Unlock()
}

// headKey is written with every write to the view.
func headKey(prefix string) string { return prefix + "/v/head" }

// head is the revision of the last write to the view.
func (v *view) head(ctx context.Context) (int64, error) {
	resp, err := v.client.Get(ctx, headKey(v.client.Prefix), clientv3.WithKeysOnly())
	if err != nil || len(resp.Kvs) == 0 {
		return 0, etcd.Error(err)
	}

	return resp.Kvs[0].ModRevision, nil
}

// publish marks the view as being at the revision. The caller holds the lock.
func (v *view) publish(revision int64) {
	v.revision = max(v.revision, revision)
	v.heard = time.Now()
	v.tell()
	v.wake()
}

func (v *view) wake() {
	v.snapshot = nil
	close(v.changed)
	v.changed = make(chan struct{})
}

// apply takes one change in. What does not parse is logged and left out: one
// bad record must not take the others away.
func (v *view) apply(e *clientv3.Event) {
	key := strings.TrimPrefix(string(e.Kv.Key), v.client.Prefix+"/v/")
	kind, name, _ := strings.Cut(key, "/")
	deleted := e.Type == mvccpb.Event_DELETE
	v.begin(e.Kv.ModRevision)

	var err error
	switch kind {
	case "nodes":
		err = v.applyNode(name, deleted, e.Kv)
	case "jobs":
		err = v.applyJob(name, deleted, e.Kv)
	case "vars":
		v.note(state.ChangeVars, name, len(e.Kv.Value))

		if err = take(v.settings.own(), state.Scope(name), deleted, e.Kv); deleted {
			delete(v.settled.own(), state.Scope(name))
		} else if err == nil {
			v.settled.own()[state.Scope(name)] = e.Kv.ModRevision
		}
	case "connections":
		v.note(state.ChangeNodes, name, 0)
		err = take(v.conns.own(), name, deleted, e.Kv)
	case "graves":
		err = take(v.graves.own(), name, deleted, e.Kv)
	case "overlay":
		v.note(state.ChangeConfig, "", 0)

		v.overlay, v.config = nil, max(v.config, e.Kv.ModRevision)
		if !deleted {
			var keys configuration.Vars // its numbers keep every digit
			err = json.Unmarshal(e.Kv.Value, &keys)
			v.overlay = keys
		}
	case "files":
		v.note(state.ChangeConfig, "", 0)
		v.config = max(v.config, e.Kv.ModRevision)
		err = take(v.files, name, deleted, e.Kv)
	case "instances":
		err = take(v.instances, name, deleted, e.Kv)
	case "seq":
		v.seq, err = strconv.ParseUint(string(e.Kv.Value), 10, 64)
	case "ground":
		v.ground = e.Kv.ModRevision
	}

	if err != nil {
		v.log.WithError(err).WithField("key", key).Error("a stored record cannot be read")
	}
}

func take[K comparable, V any](m map[K]V, name K, deleted bool, kv *mvccpb.KeyValue) error {
	if deleted {
		delete(m, name)
		return nil
	}

	var value V
	if err := json.Unmarshal(kv.Value, &value); err != nil {
		return err
	}

	m[name] = value

	return nil
}

func (v *view) applyNode(name string, deleted bool, kv *mvccpb.KeyValue) error {
	var n *inventory.Node
	if !deleted {
		n = &inventory.Node{}
		if err := json.Unmarshal(kv.Value, n); err != nil {
			return err
		}

		if n.Name != name {
			return fmt.Errorf("the record is of node %q", n.Name)
		}

		n.Revision = kv.ModRevision
	}

	v.note(state.ChangeNodes, name, len(kv.Value))

	if old := v.nodes[name]; old != nil && old.Before != nil {
		delete(v.reserved[old.Job], name)

		if len(v.reserved[old.Job]) == 0 {
			delete(v.reserved, old.Job)
		}
	}

	v.newNodes[name] = true
	if deleted {
		delete(v.nodes, name)
		return nil
	}

	v.nodes[name] = n
	if n.Before != nil {
		if v.reserved[n.Job] == nil {
			v.reserved[n.Job] = map[string]bool{}
		}

		v.reserved[n.Job][name] = true
	}

	return nil
}

// applyJob takes a change of a job in. When the job comes to hold its nodes, or
// does no longer, what these count as changes with it.
func (v *view) applyJob(id string, deleted bool, kv *mvccpb.KeyValue) error {
	var j job.Job
	if !deleted {
		var err error
		if j, err = readJob(kv.Value); err != nil {
			return err
		}

		if j.ID != id {
			return fmt.Errorf("the record is of job %q", j.ID)
		}

		j.Revision = kv.ModRevision
	}

	if (v.jobs[id].Status == job.Running) != (j.Status == job.Running) {
		for name := range v.reserved[id] {
			v.note(state.ChangeNodes, name, 0)
			v.newNodes[name] = true
		}
	}

	v.note(state.ChangeJobs, id, len(kv.Value))

	v.newJobs[id] = true
	if deleted {
		delete(v.jobs, id)
		return nil
	}

	v.jobs[id] = j

	return nil
}

// current returns the newest snapshot.
func (v *view) current() *state.View {
	v.mu.Lock()
	defer v.mu.Unlock()

	stale := time.Since(v.heard) > v.staleAfter
	if v.snapshot != nil && v.snapshot.Stale == stale {
		return v.snapshot
	}

	if v.snapshot != nil {
		s := *v.snapshot
		s.Stale = stale
		v.snapshot = &s

		return v.snapshot
	}

	v.shownNodes = merged(
		v.shownNodes,
		v.newNodes,
		strings.Compare,
		func(n *inventory.Node) string { return n.Name },
		v.shown,
	)
	v.shownJobs = merged(
		v.shownJobs,
		v.newJobs,
		compareIDs,
		func(j job.Job) string { return j.ID },
		func(id string) (job.Job, bool) {
			j, ok := v.jobs[id]
			return j, ok
		},
	)
	v.snapshot = &state.View{
		Snapshot:    job.Snapshot{Nodes: v.shownNodes, Jobs: v.shownJobs, Seq: v.seq},
		Revision:    v.revision,
		Stale:       stale,
		Generation:  v.ground,
		Variables:   v.settings.give(),
		VariablesAt: v.settled.give(),
		ConfigAt:    v.config,
		Connections: v.conns.give(),
		Tombstones:  v.graves.give(),
		Overlay:     v.overlay,
		Instances: slices.SortedFunc(maps.Values(v.instances), func(a, b state.Instance) int {
			return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
		}),
	}

	return v.snapshot
}

// merged returns the sorted list with what has changed in it, in one pass that
// looks at nothing else, and empties the set of changes. The old list stays as it is.
func merged[E any](
	old []E,
	changed map[string]bool,
	compare func(a, b string) int,
	name func(E) string,
	now func(string) (E, bool),
) []E {
	if len(changed) == 0 {
		return old
	}

	out := make([]E, 0, len(old)+len(changed))

	rest := old
	for _, key := range slices.SortedFunc(maps.Keys(changed), compare) {
		i, found := slices.BinarySearchFunc(rest, key, func(e E, key string) int { return compare(name(e), key) })

		out = append(out, rest[:i]...)
		if e, ok := now(key); ok {
			out = append(out, e)
		}

		if found {
			i++
		}

		rest = rest[i:]
	}

	clear(changed)

	return append(out, rest...)
}

// compareIDs orders jobs by their numbers.
func compareIDs(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// shown is the node as it counts.
func (v *view) shown(name string) (*inventory.Node, bool) {
	n, ok := v.nodes[name]
	if ok && v.uncommitted(n) {
		free := n.Unreserved()
		return &free, true
	}

	return n, ok
}

// uncommitted tells whether the node was reserved by a job that never came to
// hold it: that counts as absent.
func (v *view) uncommitted(n *inventory.Node) bool {
	return n.Before != nil && v.jobs[n.Job].Status != job.Running
}

// wait returns when the view has reached the revision.
func (v *view) wait(ctx context.Context, revision int64) error {
	for {
		v.mu.Lock()
		reached, changed := v.revision >= revision, v.changed
		v.mu.Unlock()

		if reached {
			return nil
		}

		select {
		case <-ctx.Done():
			return inventory.Errorf(inventory.KindUnavailable, "revision %d was not reached: %w", revision, ctx.Err()).
				Do("try again")
		case <-changed:
		}
	}
}
