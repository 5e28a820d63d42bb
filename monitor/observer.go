// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/contiv/cluster/inventory"
)

const (
	maxWindows   = 5                      // a change waits for at most this many windows, a loss for as many
	fullInterval = time.Minute            // between full reports
	retryMin     = 250 * time.Millisecond // backoff after the first error, doubled by each further one
	retryMax     = 20 * time.Second       // up to this; jitter changes both by up to a half
	callTimeout  = 30 * time.Second       // of one call of Sink or List
)

// Options configure an Observer.
type Options struct {
	Sink Sink // required

	// List fetches the source's complete member list, for reconciliation. It may
	// block, and is called by one goroutine at a time. Required.
	List func(ctx context.Context) ([]Member, error)

	Window time.Duration // changes closer together than this share a report; 0: 200 ms

	// Before names the nodes that were alive at the last acknowledged report of
	// an earlier run (see Observer.Alive). A node of it has not joined anew.
	Before []string

	// Stranger is called for a member that is not a node, once per member and
	// reason. Failed is called after an error of Sink or List, with the number of
	// consecutive errors, and Recovered after the first acknowledged report that
	// follows. All are optional, and may call no methods of the Observer but
	// Alive and Stats.
	Stranger  func(member string, reason error)
	Failed    func(err error, consecutive int)
	Recovered func(nodes, consecutive int)
}

// Observer keeps a view of a source's members and reports its changes.
//
// It starts paused: its first report is a full one, after Resume. Its methods
// may be called by any goroutine at any time and do not wait for the sink.
type Observer struct {
	o    Options
	wake chan struct{} // the time of the next report may have changed

	mu          sync.Mutex
	t           *tracker
	paused      bool
	epoch       uint64    // counts pauses
	fullAt      time.Time // when the next full report is due
	oldest      time.Time // the first change that is not in flight; zero: none
	lost        time.Time // the first of them that is a loss; zero: none
	newest      time.Time // the last one
	retry       *backoff.ExponentialBackOff
	retryAt     time.Time // no report before this
	consecutive int       // errors in a row
	changes     uint64
	reports     uint64
	errors      uint64
	last        time.Time
}

// NewObserver makes an observer that records changes; Run reports them.
func NewObserver(o Options) *Observer {
	if o.Window == 0 {
		o.Window = 200 * time.Millisecond
	}

	return &Observer{
		o: o, wake: make(chan struct{}, 1), t: newTracker(o.Before), paused: true,
		retry: &backoff.ExponentialBackOff{
			InitialInterval: retryMin, Multiplier: 2, MaxInterval: retryMax,
			RandomizationFactor: 0.5, // monitors must not retry in step
		},
	}
}

// Change records a member that is new or has changed. A source calls it in the
// order of its events.
func (o *Observer) Change(m Member) {
	o.mu.Lock()
	s := o.t.put(m)
	o.changes++
	o.touch()

	if !m.Alive && o.lost.IsZero() {
		o.lost = o.newest
	}

	o.mu.Unlock()

	if s != nil && o.o.Stranger != nil {
		o.o.Stranger(s.member, s.err)
	}
}

// Remove drops a member that the source no longer has.
func (o *Observer) Remove(member string) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.t.remove(member)
	o.touch()

	if o.lost.IsZero() {
		o.lost = o.newest
	}
}

// touch schedules a report of changes.
func (o *Observer) touch() {
	now := time.Now()
	if o.oldest.IsZero() {
		o.oldest = now
	}
	o.newest = now
	o.signal()
}

// signal makes Run look at the schedule again.
func (o *Observer) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Pause stops reporting until Resume. A source calls it when it loses its
// connection, since a missing event or member then means nothing.
func (o *Observer) Pause() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.paused = true
	o.epoch++
}

// Resume starts reporting, with a full report at once. It does nothing to an
// observer that is not paused.
func (o *Observer) Resume() {
	o.mu.Lock()
	defer o.mu.Unlock()

	if !o.paused {
		return
	}

	o.paused = false
	o.fullAt, o.retryAt = time.Now(), time.Time{}
	o.signal()
}

// Compare makes a full report due now.
func (o *Observer) Compare() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fullAt = time.Now()
	o.signal()
}

// Alive lists the nodes that are alive by the last acknowledged report, sorted.
// Pass them to Options.Before after a restart.
func (o *Observer) Alive() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.t.alive()
}

// Stats are numbers for metrics.
type Stats struct {
	Members    int       // members of the source, alive or not
	Nodes      int       // nodes that they claim to be
	Alive      int       // of them, alive
	Duplicates int       // of them, claimed more than once
	Strangers  int       // members that are not nodes
	Pending    int       // nodes with a change that is not yet acknowledged
	Changes    uint64    // events about members that are new or have changed
	Reports    uint64    // acknowledged reports
	Errors     uint64    // failed calls of Sink and List
	LastReport time.Time // when the last report was acknowledged
}

// Stats returns the current numbers.
func (o *Observer) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()

	s := Stats{
		Members: len(o.t.members), Pending: o.t.pending(),
		Changes: o.changes, Reports: o.reports, Errors: o.errors, LastReport: o.last,
	}
	for _, r := range o.t.members {
		if r.node == "" {
			s.Strangers++
		}
	}

	for _, n := range o.t.nodes {
		if len(n.members) > 0 {
			s.Nodes++
		}

		if n.view.Alive {
			s.Alive++
		}

		if n.view.Duplicate {
			s.Duplicates++
		}
	}

	return s
}

// Run reports until ctx is done. Call it once.
func (o *Observer) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		timer.Stop() // without a next report only a wake-up matters

		if at, ok := o.next(); ok {
			timer.Reset(time.Until(at))
		}

		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		case <-timer.C:
			o.report(ctx)
		}
	}
}

// next is the time of the next report; false while paused.
func (o *Observer) next() (at time.Time, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if o.paused {
		return time.Time{}, false
	}

	// A full report includes all changes, so the earlier of the two is next.
	at = o.fullAt
	if !o.oldest.IsZero() {
		quiet := o.newest.Add(o.o.Window)
		limit := o.oldest.Add(maxWindows * o.o.Window)

		due := earlier(quiet, limit)
		// A member that others still hold for gone refutes that within moments.
		if !o.lost.IsZero() {
			due = o.lost.Add(maxWindows * o.o.Window)
		}

		at = earlier(at, due)
	}

	if at.Before(o.retryAt) {
		at = o.retryAt
	}

	return at, true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// report makes the report that is due and offers it to the sink.
func (o *Observer) report(ctx context.Context) {
	o.mu.Lock()
	if o.paused {
		o.mu.Unlock()
		return
	}

	epoch := o.epoch
	full := o.t.overflow || !time.Now().Before(o.fullAt)
	o.mu.Unlock()

	if full && !o.reconcile(ctx, epoch) {
		return
	}

	o.mu.Lock()
	// A pause since then makes the view worthless, even if it is over.
	if o.epoch != epoch {
		o.mu.Unlock()
		return
	}

	fullAt := o.fullAt
	d := o.t.report(full)
	o.oldest, o.newest, o.lost = time.Time{}, time.Time{}, time.Time{}
	o.mu.Unlock()

	// A change that was undone within the window needs no report. An empty full
	// report, in contrast, removes every node.
	if !full && len(d.entries) == 0 {
		return
	}

	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	if err := o.o.Sink.Observe(call, d.report); err != nil {
		o.abandon(ctx, d, err)
		return
	}

	o.acknowledge(d, fullAt)
}

// acknowledge ends a delivery that the sink has recorded. fullAt is the time at
// which it was due, if it is a full one.
func (o *Observer) acknowledge(d delivery, fullAt time.Time) {
	o.mu.Lock()
	failures := o.consecutive
	o.t.acknowledged(d)
	o.consecutive, o.retryAt = 0, time.Time{}
	o.retry.Reset()
	o.reports++
	o.last = time.Now()

	// Compare may have asked for another full report meanwhile.
	if d.report.Full && o.fullAt.Equal(fullAt) {
		o.fullAt = time.Now().Add(fullInterval)
	}

	o.mu.Unlock()

	if failures > 0 && o.o.Recovered != nil {
		o.o.Recovered(len(d.entries), failures)
	}
}

// abandon ends a delivery that the sink has not recorded.
func (o *Observer) abandon(ctx context.Context, d delivery, err error) {
	o.mu.Lock()
	o.t.abandoned(d)

	// The sink may have lost its state with the report: send all of it.
	o.oldest, o.newest, o.fullAt = time.Now(), time.Now(), time.Now()
	o.mu.Unlock()

	nodes := inventory.Count(len(d.entries), "node", "nodes")
	o.backOff(ctx, fmt.Errorf("a report about %s was not recorded: %w", nodes, err))
}

// reconcile makes the view equal to the source's complete list. It returns false
// if the report has to wait for another attempt.
func (o *Observer) reconcile(ctx context.Context, epoch uint64) bool {
	o.mu.Lock()
	began := o.t.beginList()
	o.mu.Unlock()

	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	list, err := o.o.List(call) // without the lock: events arrive meanwhile

	var found []stranger

	o.mu.Lock()

	// After a pause meanwhile the list is as worthless as the view.
	ok := err == nil && o.epoch == epoch
	if ok {
		found = o.t.endList(began, list)
	} else {
		o.t.cancelList()
	}

	o.mu.Unlock()

	if err != nil {
		o.backOff(ctx, fmt.Errorf("cannot fetch the member list: %w", err))
	}

	if o.o.Stranger != nil {
		for _, s := range found {
			o.o.Stranger(s.member, s.err)
		}
	}

	return ok
}

// backOff delays the next report after an error.
func (o *Observer) backOff(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the observer is stopping, which is the cause of the error
	}

	o.mu.Lock()

	o.consecutive++
	o.errors++
	o.retryAt = time.Now().Add(o.retry.NextBackOff())
	consecutive := o.consecutive
	o.mu.Unlock()

	if o.o.Failed != nil {
		o.o.Failed(err, consecutive)
	}
}
