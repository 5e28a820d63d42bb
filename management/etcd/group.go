// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/contiv/cluster/inventory/etcd"
)

const (
	// groupFlights is the number of transactions of the group commit in flight at a time. With
	// one, the writes that arrive meanwhile make the largest groups, and a group costs etcd and
	// the watches little more than a single write. A large write does not count.
	groupFlights = 1
	// maxFlights bounds them together with those that last longer than groupPatience, which
	// do not count: one write without an answer must not hold up the others.
	maxFlights    = 8
	groupPatience = 200 * time.Millisecond
	// groupOps bounds a write that shares a transaction. A larger one goes by itself.
	groupOps = etcd.MaxOps / 4
	// groupBytes bounds the bytes of a write that shares a transaction.
	groupBytes = 64 << 10
)

// group combines small writes that arrive while others are in flight into one
// transaction. A write shares a transaction only with writes that it is independent of:
// none of them writes what another one tests or writes. So a transaction with several
// writes has the effect of the writes one after the other. If a condition fails, each half
// of the writes is repeated by itself, so that a conflict costs the others little.
type group struct {
	mu      sync.Mutex
	flights int
	slow    int // those of them that last longer than groupPatience
	closed  bool
	queue   []*groupWrite
	tasks   sync.WaitGroup
}

// groupWrite is a write in the queue of the group commit.
type groupWrite struct {
	ctx    context.Context
	ops    etcd.Ops
	taken  bool          // it is in a flight, or was dropped; under the lock of the group
	done   chan struct{} // closed after the result is set
	result writeResult
}

// writeResult is the result of a write.
type writeResult struct {
	revision  int64
	succeeded bool // all conditions held
	err       error
}

// write writes the operations if all conditions hold. It returns the revision, and whether
// they held. ctx is one of bounded.
func (s *Store) write(ctx context.Context, ops etcd.Ops) writeResult {
	ops = s.view.keepUnknown(ops)

	result := s.writeShared(ctx, ops)
	if result.err == nil && !result.succeeded {
		s.countConflict(ctx, ops.If)
	}

	return result
}

// writeShared writes the operations with those of others, where that is possible.
func (s *Store) writeShared(ctx context.Context, ops etcd.Ops) writeResult {
	// Every other write changes the head, so one that tests it must not wait for others.
	keys := keysOf(ops)
	if ops.Size() > groupOps || ops.Bytes() > groupBytes || !keys.exact || keys.tested[headKey(s.client.Prefix)] {
		return s.writeAlone(ctx, ops)
	}

	// Without others in flight there is nothing to wait for.
	if f := s.group.enter(s); f != nil {
		defer f.land()
		return s.writeAlone(ctx, ops)
	}

	w := &groupWrite{ctx: ctx, ops: ops, done: make(chan struct{})}
	if !s.group.add(s, w) {
		return s.writeAlone(ctx, ops)
	}

	select {
	case <-w.done:
		return w.result
	case <-ctx.Done():
	}

	if s.group.giveUp(w) {
		return writeResult{err: s.failure(ctx, ctx.Err())}
	}

	// The caller may hold a lock for as long as its write can take effect. The flight is
	// bounded.
	<-w.done

	return w.result
}

// writeAlone writes the operations as a transaction of their own.
func (s *Store) writeAlone(ctx context.Context, ops etcd.Ops) writeResult {
	resp, err := s.client.Txn(ctx).If(ops.If...).Then(ops.Then...).Commit()
	if err != nil {
		return writeResult{err: s.failure(ctx, err)}
	}
	if resp.Succeeded {
		s.view.applyOwn(resp.Header.Revision, ops.Then)
	}
	return writeResult{revision: resp.Header.Revision, succeeded: resp.Succeeded}
}

// flight is a transaction of the group commit.
type flight struct {
	store  *Store
	timer  *time.Timer
	slow   bool // it lasts longer than groupPatience
	landed bool
}

// enter begins a flight, or returns nil if there is none, or other writes wait for it.
func (g *group) enter(s *Store) *flight {
	g.mu.Lock()
	defer g.mu.Unlock()

	if !g.isFree() || len(g.queue) > 0 {
		return nil
	}
	return g.begin(s)
}

// isFree reports whether a flight can begin. The caller holds the lock.
func (g *group) isFree() bool { return g.flights-g.slow < groupFlights && g.flights < maxFlights }

// begin begins a flight. The caller holds the lock.
func (g *group) begin(s *Store) *flight {
	g.flights++
	f := &flight{store: s}
	f.timer = time.AfterFunc(groupPatience, f.makeWay)
	return f
}

// makeWay lets other flights begin beside a slow one.
func (f *flight) makeWay() {
	g := &f.store.group

	g.mu.Lock()
	defer g.mu.Unlock()

	if f.landed {
		return
	}

	f.slow = true
	g.slow++
	g.fly(f.store)
}

// land ends the flight, and begins one with the writes that wait.
func (f *flight) land() {
	g := &f.store.group

	g.mu.Lock()
	defer g.mu.Unlock()

	f.timer.Stop()

	f.landed = true
	g.flights--

	if f.slow {
		g.slow--
	}

	g.fly(f.store)
}

// add queues a write, unless the group commit is closed.
func (g *group) add(s *Store, w *groupWrite) bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.closed {
		return false
	}

	g.queue = append(g.queue, w)
	g.fly(s)

	return true
}

// giveUp removes a write from the queue, and reports whether it was there still.
func (g *group) giveUp(w *groupWrite) bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	if w.taken {
		return false
	}

	g.queue = slices.DeleteFunc(g.queue, func(q *groupWrite) bool { return q == w })

	return true
}

// close waits for the flights of queued writes. Later writes go by themselves.
func (g *group) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.tasks.Wait()
}

// fly begins a flight if there is one and a write waits for it. The caller holds the lock.
func (g *group) fly(s *Store) {
	if !g.isFree() || len(g.queue) == 0 {
		return
	}

	writes := g.take(s)
	if len(writes) == 0 {
		return
	}

	f := g.begin(s)
	fly := func() {
		defer f.land()
		s.writeGroup(writes)
	}

	// Once close waits, the callers of the last writes own their flights.
	if g.closed {
		go fly()
		return
	}

	g.tasks.Go(fly)
}

// take removes writes from the queue that can share a transaction. The first one in the
// queue is always among them. The caller holds the lock.
func (g *group) take(s *Store) []*groupWrite {
	var (
		taken []*groupWrite
		keys  groupKeys
		size  etcd.Ops
		rest  []*groupWrite
	)

	for _, w := range g.queue {
		// Its caller has given up, and expects no effect any more.
		if w.ctx.Err() != nil {
			w.taken = true
			w.end(writeResult{err: s.failure(w.ctx, w.ctx.Err())})
			continue
		}

		more := etcd.Ops{If: append(size.If, w.ops.If...), Then: append(size.Then, w.ops.Then...)}
		if more.Size() > etcd.MaxOps || more.Bytes() > etcd.MaxBytes || !keys.add(keysOf(w.ops)) {
			rest = append(rest, w)
			continue
		}

		size, w.taken = more, true
		taken = append(taken, w)
	}

	g.queue = rest

	return taken
}

// writeGroup writes independent writes in one transaction, and each half of them by itself if
// one of their conditions fails.
func (s *Store) writeGroup(writes []*groupWrite) {
	if len(writes) == 1 {
		writes[0].end(s.writeAlone(writes[0].ctx, writes[0].ops))
		return
	}

	result := s.writeTogether(writes)

	failed := result.err != nil && !isRefused(result.err)
	if failed || result.succeeded {
		for _, w := range writes {
			w.end(result)
		}

		return
	}

	half := len(writes) / 2

	var all sync.WaitGroup
	all.Go(func() { s.writeGroup(writes[:half]) })
	all.Go(func() { s.writeGroup(writes[half:]) })
	all.Wait()
}

// isRefused reports whether the store has refused a transaction as a whole that it may accept
// in parts: the lease of one of the writes has expired, or the limits of an etcd outside are
// lower than those of the group commit.
func isRefused(err error) bool {
	return errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrTooManyOps) ||
		errors.Is(err, rpctypes.ErrRequestTooLarge)
}

// writeTogether writes independent writes in one transaction.
func (s *Store) writeTogether(writes []*groupWrite) writeResult {
	// A caller that gives up must not end the write of the others.
	ctx, cancel := s.bounded(context.WithoutCancel(writes[0].ctx))
	defer cancel()

	var ops etcd.Ops

	written := map[string]bool{}
	for _, w := range writes {
		ops.If = append(ops.If, w.ops.If...)

		for _, op := range w.ops.Then {
			// What several of them write is the same, see groupKeys.
			if key := string(op.KeyBytes()); !written[key] {
				written[key] = true
				ops.Then = append(ops.Then, op)
			}
		}
	}

	ops.Then = s.joinEntries(ops.Then)

	return s.writeAlone(ctx, ops)
}

func (w *groupWrite) end(result writeResult) {
	w.result = result
	close(w.done)
}

// groupKeys are the keys of the writes of a transaction.
type groupKeys struct {
	exact   bool // no operation is on a range of keys
	tested  map[string]bool
	written map[string]string // values of puts by key; deleted: a deletion
}

// deletion is no value of a key.
const deletion = "\x00deleted"

// keysOf returns the keys of operations.
func keysOf(ops etcd.Ops) groupKeys {
	k := groupKeys{exact: true, tested: map[string]bool{}, written: map[string]string{}}

	for _, c := range ops.If {
		k.exact = k.exact && len(c.GetCompare().GetRangeEnd()) == 0
		k.tested[string(c.KeyBytes())] = true
	}

	for _, op := range ops.Then {
		k.exact = k.exact && len(op.RangeBytes()) == 0

		value := string(op.ValueBytes())
		if op.IsDelete() {
			value = deletion
		}
		k.written[string(op.KeyBytes())] = value
	}

	return k
}

// add adds the keys of a write, unless it depends on the others or they on it. Several
// writes may put the same value under a key, such as the one that marks a change.
func (k *groupKeys) add(w groupKeys) bool {
	for key := range w.tested {
		if _, written := k.written[key]; written {
			return false
		}
	}

	for key, value := range w.written {
		before, written := k.written[key]
		if k.tested[key] || written && before != value {
			return false
		}
	}

	if k.tested == nil {
		*k = groupKeys{exact: true, tested: map[string]bool{}, written: map[string]string{}}
	}

	for key := range w.tested {
		k.tested[key] = true
	}

	for key, value := range w.written {
		k.written[key] = value
	}

	return true
}
