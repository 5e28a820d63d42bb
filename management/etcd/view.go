// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/contiv/cluster/management"
)

const (
	staleAfter    = 3 * time.Second
	progressEvery = time.Second
)

// view is what the watch has told so far, and the snapshot made of it on demand.
type view struct {
	client *etcd.Client
	log    logrus.FieldLogger

	mu       sync.Mutex
	nodes    map[string]inventory.Node // as stored, reservations included
	jobs     map[string]management.Job
	settings map[management.Scope]configuration.Vars
	conns    map[string]configuration.Connection
	graves   map[string]inventory.Tombstone
	overlay  map[string]any
	seq      uint64
	ground   int64
	revision int64
	heard    time.Time // when the store last said anything

	snapshot *management.View // nil: to be made
	changed  chan struct{}    // closed when something is applied
}

func (v *view) reset() {
	v.nodes, v.jobs = map[string]inventory.Node{}, map[string]management.Job{}
	v.settings, v.conns = map[management.Scope]configuration.Vars{}, map[string]configuration.Connection{}
	v.graves, v.overlay = map[string]inventory.Tombstone{}, nil
	v.seq, v.ground = 0, 0
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
	v.reset()
	for _, kv := range resp.Kvs {
		v.apply(&clientv3.Event{Type: mvccpb.Event_PUT, Kv: kv})
	}
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
			case <-time.After(progressEvery):
			}
		}
	}
}

// watch applies what changes from the revision on, until the watch ends.
func (v *view) watch(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	// The revision itself is told once more, which changes nothing: a watcher
	// that begins in the future gets no progress reports until then.
	events := v.client.Watch(ctx, v.client.Prefix+"/v/", clientv3.WithPrefix(), clientv3.WithRev(revision))
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
			v.mu.Lock()
			for _, e := range resp.Events {
				v.apply(e)
			}
			v.publish(resp.Header.Revision)
			v.mu.Unlock()
		}
	}
}

// listen asks the store every second how far it is, until ctx ends, and wakes
// who waits for changes when the view becomes stale or is so no longer.
func (v *view) listen(ctx context.Context) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		v.ask(ctx)
		v.mu.Lock()
		if v.snapshot != nil && v.snapshot.Stale != (time.Since(v.heard) > staleAfter) {
			v.wake()
		}
		v.mu.Unlock()
	}
}

// ask learns whether the view is up to date. Where it is behind, a report on
// the watch's progress is asked for, which arrives as an event: what is new may
// be outside the view. The report alone would not do, since there is none
// before anything was written after the watch began.
func (v *view) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, progressEvery)
	defer cancel()
	resp, err := v.client.Get(ctx, v.client.Prefix+"/schema", clientv3.WithKeysOnly())
	if err != nil {
		return
	}
	v.mu.Lock()
	reached := v.revision >= resp.Header.Revision
	if reached {
		v.heard = time.Now()
	}
	v.mu.Unlock()
	if !reached {
		_ = v.client.RequestProgress(clientv3.WithRequireLeader(ctx)) // asked again in a second
	}
}

// publish marks the view as being at the revision. The caller holds the lock.
func (v *view) publish(revision int64) {
	v.revision = max(v.revision, revision)
	v.heard = time.Now()
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
	var err error
	switch kind {
	case "nodes":
		err = take(v.nodes, name, deleted, e.Kv, func(n *inventory.Node, rev int64) { n.Revision = rev })
	case "jobs":
		err = take(v.jobs, name, deleted, e.Kv, func(j *management.Job, rev int64) { j.Revision = rev })
	case "vars":
		err = take(v.settings, management.Scope(name), deleted, e.Kv, nil)
	case "connections":
		err = take(v.conns, name, deleted, e.Kv, nil)
	case "graves":
		err = take(v.graves, name, deleted, e.Kv, nil)
	case "overlay":
		v.overlay = nil
		if !deleted {
			err = json.Unmarshal(e.Kv.Value, &v.overlay)
		}
	case "seq":
		v.seq, err = strconv.ParseUint(string(e.Kv.Value), 10, 64)
	case "ground":
		v.ground = e.Kv.ModRevision
	}
	if err != nil {
		v.log.WithError(err).WithField("key", key).Error("a stored record cannot be read")
	}
}

func take[K comparable, V any](m map[K]V, name K, deleted bool, kv *mvccpb.KeyValue, stamp func(*V, int64)) error {
	if deleted {
		delete(m, name)
		return nil
	}
	var value V
	if err := json.Unmarshal(kv.Value, &value); err != nil {
		return err
	}
	if stamp != nil {
		stamp(&value, kv.ModRevision)
	}
	m[name] = value
	return nil
}

// current returns the newest snapshot.
func (v *view) current() *management.View {
	v.mu.Lock()
	defer v.mu.Unlock()
	stale := time.Since(v.heard) > staleAfter
	if v.snapshot != nil && v.snapshot.Stale == stale {
		return v.snapshot
	}
	if v.snapshot != nil {
		s := *v.snapshot
		s.Stale = stale
		v.snapshot = &s
		return v.snapshot
	}
	s := &management.View{
		Revision: v.revision, Stale: stale, Seq: v.seq, Ground: v.ground, Settings: maps.Clone(v.settings),
		Connections: maps.Clone(v.conns), Graves: maps.Clone(v.graves), Overlay: maps.Clone(v.overlay),
		Nodes: make([]inventory.Node, 0, len(v.nodes)), Jobs: make([]management.Job, 0, len(v.jobs)),
	}
	for _, n := range v.nodes {
		if v.uncommitted(n) {
			n = n.Unreserved()
		}
		s.Nodes = append(s.Nodes, n)
	}
	slices.SortFunc(s.Nodes, func(a, b inventory.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, j := range v.jobs {
		s.Jobs = append(s.Jobs, j)
	}
	slices.SortFunc(s.Jobs, func(a, b management.Job) int { return int(int64(a.Seq()) - int64(b.Seq())) })
	v.snapshot = s
	return s
}

// uncommitted tells whether the node was reserved by a job that never came to
// hold it: that counts as absent.
func (v *view) uncommitted(n inventory.Node) bool {
	return n.Before != nil && v.jobs[n.Job].Status != management.Running
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
			return inventory.Errorf(inventory.KindUnavailable, "revision %d was not reached: %w", revision, ctx.Err()).Do("try again")
		case <-changed:
		}
	}
}
