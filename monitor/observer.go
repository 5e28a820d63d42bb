// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
)

const (
	maxWait  = 5                      // windows: no change waits longer for quiet
	every    = time.Minute            // a full report
	retryMin = 250 * time.Millisecond // wait after the first error, doubled by each further one
	retryMax = 30 * time.Second       // up to this
	timeout  = 30 * time.Second       // for one call of Sink or List
)

// Options say where an Observer's reports go.
type Options struct {
	Sink Sink // required

	// List fetches the source's complete member list, for comparison. It may
	// block, and is called by one goroutine at a time. Required.
	List func(ctx context.Context) ([]Member, error)

	Window time.Duration // changes closer together than this are one report; 0: 200 ms

	// Before names the nodes that were alive by the last recorded word of an
	// earlier run (see Observer.Alive). Finding them alive is no joining.
	Before []string

	// Stranger is told of a member that is not a node, and why: once per
	// member and reason. Failed is told of an error of Sink or List, with the
	// number of errors in a row, and Again of the report that was taken after
	// them. All are optional and must not call the Observer's methods but Alive
	// and Stats.
	Stranger func(member string, why error)
	Failed   func(err error, inRow int)
	Again    func(nodes, inRow int)
}

// Observer keeps a view of a source's members and reports what changes.
//
// Its first report is a full one, made when Resume is called; until then it only
// listens. Its methods may be called by any goroutine at any time and do not
// wait for the sink.
type Observer struct {
	o    Options
	poke chan struct{} // something changed: look at the clock again

	mu      sync.Mutex
	t       *tracker
	paused  bool
	epoch   uint64    // counts pauses
	fullAt  time.Time // when the next full report is due
	oldest  time.Time // the first change that is not yet under way; zero: none
	newest  time.Time // the last one
	retryAt time.Time // nothing before this
	inRow   int       // errors in a row
	changes uint64
	reports uint64
	errors  uint64
	last    time.Time
}

// NewObserver makes an observer; Run makes it work.
func NewObserver(o Options) *Observer {
	if o.Window == 0 {
		o.Window = 200 * time.Millisecond
	}

	return &Observer{o: o, poke: make(chan struct{}, 1), t: newTracker(o.Before), paused: true}
}

// Change notes that a member is new, or not as it was. A source calls it in the
// order in which things happened.
func (o *Observer) Change(m Member) {
	o.mu.Lock()
	s := o.t.put(m)
	o.changes++
	o.touched()
	o.mu.Unlock()

	if s != nil && o.o.Stranger != nil {
		o.o.Stranger(s.member, s.why)
	}
}

// Remove notes that the source has forgotten a member.
func (o *Observer) Remove(member string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.t.remove(member)
	o.touched()
}

func (o *Observer) touched() {
	now := time.Now()
	if o.oldest.IsZero() {
		o.oldest = now
	}

	o.newest = now
	o.wake()
}

func (o *Observer) wake() {
	select {
	case o.poke <- struct{}{}:
	default:
	}
}

// Pause stops reporting until Resume: the source has lost its connection, so
// what it does not say means nothing.
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
	o.wake()
}

// Compare makes a full report due now.
func (o *Observer) Compare() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fullAt = time.Now()
	o.wake()
}

// Alive names the nodes that are alive by the last recorded word, sorted: what
// Options.Before wants after a restart.
func (o *Observer) Alive() []string {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.t.alive()
}

// Stats are numbers for metrics.
type Stats struct {
	Members    int       // members of the source, alive or not
	Nodes      int       // nodes they claim to be
	Alive      int       // of them, alive
	Duplicates int       // of them, claimed more than once
	Strangers  int       // members that are not nodes
	Pending    int       // nodes with news that is not yet recorded
	Changes    uint64    // members that the source said were new, or not as they were
	Reports    uint64    // recorded reports
	Errors     uint64    // reports that were not recorded, lists that did not come
	LastReport time.Time // when the last report was recorded
}

// Stats counts.
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

// Run reports until ctx is done. It is called once.
func (o *Observer) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		timer.Stop()

		if due, ok := o.due(); ok {
			timer.Reset(time.Until(due))
		}

		select {
		case <-ctx.Done():
			return
		case <-o.poke:
		case <-timer.C:
			o.report(ctx)
		}
	}
}

// due tells when there is something to do, if ever.
func (o *Observer) due() (time.Time, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if o.paused {
		return time.Time{}, false
	}

	at := o.fullAt
	if !o.oldest.IsZero() {
		at = earlier(at, earlier(o.newest.Add(o.o.Window), o.oldest.Add(maxWait*o.o.Window)))
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

	if full && !o.compare(ctx, epoch) {
		return
	}

	o.mu.Lock()
	if o.epoch != epoch {
		o.mu.Unlock()
		return
	}

	fullAt := o.fullAt
	what := o.t.tell(full)
	o.oldest, o.newest = time.Time{}, time.Time{}
	o.mu.Unlock()

	if !full && len(what.said) == 0 {
		return
	}

	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := o.o.Sink.Observe(call, what.report)

	o.mu.Lock()

	inRow := o.inRow
	if err == nil {
		o.t.heard(what)
		o.inRow, o.retryAt = 0, time.Time{}
		o.reports++

		o.last = time.Now()
		if full && o.fullAt.Equal(fullAt) {
			o.fullAt = time.Now().Add(every)
		}
	} else {
		o.t.unheard(what)
		// What it said is news again. Whoever did not take it may have started
		// anew and know nothing: it gets everything.
		o.oldest, o.newest, o.fullAt = time.Now(), time.Now(), time.Now()
	}

	o.mu.Unlock()

	if err != nil {
		o.failed(
			ctx,
			fmt.Errorf("a report about %s was not recorded: %w", inventory.Count(len(what.said), "node", "nodes"), err),
		)
	} else if inRow > 0 && o.o.Again != nil {
		o.o.Again(len(what.said), inRow)
	}
}

// compare makes the view equal to the source's complete list. It reports false
// when the report has to wait.
func (o *Observer) compare(ctx context.Context, epoch uint64) bool {
	o.mu.Lock()
	began := o.t.beginList()
	o.mu.Unlock()

	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	list, err := o.o.List(call)

	o.mu.Lock()
	var news []stranger

	ok := err == nil && o.epoch == epoch
	if ok {
		news = o.t.endList(began, list)
	} else {
		o.t.cancelList()
	}

	o.mu.Unlock()

	if err != nil {
		o.failed(ctx, fmt.Errorf("the member list could not be fetched: %w", err))
	}

	if o.o.Stranger != nil {
		for _, s := range news {
			o.o.Stranger(s.member, s.why)
		}
	}

	return ok
}

// failed puts everything off after an error.
func (o *Observer) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the observer stops, and that is why
	}

	o.mu.Lock()

	wait := retryMin
	for range o.inRow {
		if wait = min(2*wait, retryMax); wait == retryMax {
			break
		}
	}

	o.inRow++
	o.errors++
	o.retryAt = time.Now().Add(wait)
	inRow := o.inRow
	o.mu.Unlock()

	if o.o.Failed != nil {
		o.o.Failed(err, inRow)
	}
}
