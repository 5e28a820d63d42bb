// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/record"
)

// The times of deliveries.
const (
	giveUpAfter  = 24 * time.Hour     // a delivery is Dead that nobody accepted for so long
	keepFor      = 7 * 24 * time.Hour // ended deliveries
	minDelay     = 2 * time.Second    // after the first failure of a target
	maxDelay     = 10 * time.Minute   // between attempts
	leadInterval = 2 * time.Second    // between looks whether this instance leads
	healthEvery  = 15 * time.Second   // between looks at the health
	healthSteady = 2                  // looks with the same result before it is told
	sweepEvery   = time.Minute        // between removals of old deliveries
	writeTime    = 30 * time.Second   // of one write to the store
)

// lastWriteTime bounds the write of a result, which a stop of the manager waits for.
const lastWriteTime = 5 * time.Second

// The numbers of deliveries.
const (
	keepEnded  = 1000 // ended deliveries of a target
	maxPending = 1000 // pending deliveries of a target; the oldest beyond them are Dead
)

// Options are the dependencies of a Notifier.
type Options struct {
	Store Store
	// Targets returns the targets of the configuration, with the longest time of an
	// attempt. They may change at any time.
	Targets func() []Target
	Timeout time.Duration // of one attempt; 0: 10 s
	// Leads reports whether this instance leads; only the leader delivers.
	Leads func() bool
	// Health returns the problems of the manager by part; empty: none.
	Health  func(ctx context.Context) map[string]string
	Manager string // the name of the manager's node
	Audit   access.Auditor
	Logger  logrus.FieldLogger
}

// Notifier brings events to targets. All methods may be called at once.
type Notifier struct {
	Options

	mu      sync.Mutex
	queue   map[string]Delivery // by id; of the leader
	woken   chan struct{}       // closed when queue, fails or busy changes
	fails   map[string]failing  // by target
	busy    map[string]string   // the id of the delivery that is being sent, by target
	unsaved map[string]int      // ids of deliveries that the store does not have as the queue does, with their mark
	marks   int                 // marks so far

	saving chan struct{} // has a value during a write of a delivery of the queue, and a removal

	moving   sync.Mutex // held during a write of the position
	position Position   // as stored
	seen     int64      // the revision up to which all changes are in deliveries
	newest   time.Time  // the creation of the newest delivery
	storms   map[string]storm

	rested time.Time // when rest has last swept; of Run
}

// failing is a target that accepts nothing.
type failing struct {
	count int
	since time.Time
	next  time.Time
}

// New returns a Notifier that does nothing before Run.
func New(o Options) *Notifier {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)

	n := &Notifier{Options: o, woken: make(chan struct{}), saving: make(chan struct{}, 1)}
	n.reset(nil)
	return n
}

// reset replaces the queue. The caller holds the lock, or nothing else runs.
func (n *Notifier) reset(list []Delivery) {
	n.fails, n.busy, n.unsaved = map[string]failing{}, map[string]string{}, map[string]int{}
	n.queue = make(map[string]Delivery, len(list))

	for _, d := range list {
		d.Revision = 0 // only the leader changes what is pending
		n.queue[d.ID] = d
	}
}

// Run delivers while this instance leads, until ctx ends.
func (n *Notifier) Run(ctx context.Context) {
	tick := time.NewTicker(leadInterval)
	defer tick.Stop()

	for {
		switch {
		case !n.Leads():
		case len(n.Targets()) > 0:
			n.serve(ctx)
		default:
			n.rest(ctx)
		}

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// rest ends the pending deliveries and forgets the position, because there is no target: the
// first one begins with the next event.
func (n *Notifier) rest(ctx context.Context) {
	if time.Since(n.rested) < sweepEvery {
		return
	}

	if err := n.restOnce(ctx); err != nil {
		if ctx.Err() == nil {
			n.Logger.WithError(err).Warn("old notifications cannot be removed; retrying")
		}
		return
	}

	n.rested = time.Now()
}

func (n *Notifier) restOnce(ctx context.Context) error {
	if err := n.load(ctx); err != nil {
		return err
	}

	n.moving.Lock()
	defer n.moving.Unlock()

	if n.position.Revision != 0 {
		if err := n.store(ctx, Position{}, nil); err != nil {
			return err
		}
	}

	return n.sweepOnce(ctx, time.Now())
}

// serve delivers until this instance no longer leads, there is no target any more, or the
// store fails. Run begins again then.
func (n *Notifier) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	n.rested = time.Time{}

	if err := n.begin(ctx); err != nil {
		if ctx.Err() == nil {
			n.Logger.WithError(err).Warn("notifications wait for the store")
		}
		return
	}

	var parts sync.WaitGroup
	defer parts.Wait()
	// Deferred calls run in reverse, and Wait would never end without this cancel before it.
	defer cancel()

	parts.Go(func() {
		defer cancel()
		n.follow(ctx)
	})
	parts.Go(func() { n.watchHealth(ctx) })
	parts.Go(func() { n.deliver(ctx) })
	parts.Go(func() { n.sweep(ctx) })

	tick := time.NewTicker(leadInterval)
	defer tick.Stop()

	for n.Leads() && len(n.Targets()) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// begin reads the queue and the position. The first start begins with the next event.
func (n *Notifier) begin(ctx context.Context) error {
	if err := n.load(ctx); err != nil {
		return err
	}

	n.moving.Lock()
	defer n.moving.Unlock()

	if n.position.Revision != 0 {
		return nil
	}

	head, err := n.Store.Head(ctx)
	if err != nil {
		return err
	}
	return n.store(ctx, Position{Revision: head}, nil)
}

// load reads the queue and the position. Nothing else may run.
func (n *Notifier) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()

	list, err := n.Store.Deliveries(ctx)
	if err != nil {
		return err
	}

	// The position is stored with deliveries, so it is never ahead of them.
	position, err := n.Store.Position(ctx)
	if err != nil {
		return err
	}

	slices.SortFunc(list, byAge)
	markBundled(list)

	n.moving.Lock()
	n.position, n.seen = position, position.Revision
	n.recallStorms(list)
	n.moving.Unlock()

	n.mu.Lock()
	defer n.mu.Unlock()

	n.reset(list)

	return nil
}

// follow turns changes into deliveries until ctx ends or the store fails.
func (n *Notifier) follow(ctx context.Context) {
	for {
		err := n.followOnce(ctx)
		if inventory.KindOf(err) == inventory.KindExpired {
			err = n.reportGap(ctx)
		}

		if err != nil {
			if ctx.Err() == nil {
				n.Logger.WithError(err).Warn("notifications wait for the store")
			}
			return
		}
	}
}

// followOnce turns the changes after the position into deliveries until ctx ends or the
// store fails.
func (n *Notifier) followOnce(ctx context.Context) error {
	n.moving.Lock()
	after := n.position.Revision
	n.moving.Unlock()

	return n.Store.FollowChanges(ctx, after, func(revision int64, list []record.RawChange) error {
		happened, unreadable := events(list)
		if unreadable != nil {
			n.Logger.WithError(unreadable).Error("a record cannot be read, so that its events are missed")
		}
		return n.enqueue(ctx, happened, func(p *Position) { p.Revision = revision })
	})
}

// reportGap tells every target that events are missing, and goes on from now.
func (n *Notifier) reportGap(ctx context.Context) error {
	head, err := n.Store.Head(ctx)
	if err != nil {
		return err
	}

	e := Event{
		ID: fmt.Sprintf("%d-%s", head, KindGap), Kind: KindGap, Time: time.Now(),
		Summary: "events were missed, because the manager was away for too long; look at nodes and jobs",
	}

	return n.enqueue(ctx, []happening{{Event: e}}, func(p *Position) { p.Revision = head })
}

// watchHealth tells that a part of the manager failed, or is well again, once that lasts.
func (n *Notifier) watchHealth(ctx context.Context) {
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()

	for looks := map[string]int{}; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		n.moving.Lock()
		told := n.position.Problems
		n.moving.Unlock()

		problems := n.Health(ctx)

		now := lasting(told, problems, looks)
		if slices.Equal(now, told) {
			continue
		}
		e := happening{Event: healthEvent(told, now, problems)}
		if err := n.enqueue(ctx, []happening{e}, func(p *Position) { p.Problems = now }); err == nil {
			// The looks stay if the write failed, so that the next tick tries it again.
			clear(looks)
		}
	}
}

// lasting returns the parts with a lasting problem, sorted. A change counts once it was
// seen in healthSteady looks in a row; looks counts those of each part.
func lasting(told []string, problems map[string]string, looks map[string]int) []string {
	parts := map[string]bool{}
	for _, part := range told {
		parts[part] = true
	}

	changed := map[string]bool{}

	for part := range problems {
		changed[part] = !parts[part]
	}

	for _, part := range told {
		_, still := problems[part]
		changed[part] = !still
	}

	// A part that is as it was begins anew.
	for part := range looks {
		if !changed[part] {
			delete(looks, part)
		}
	}

	for part, is := range changed {
		if !is {
			continue
		}

		if looks[part]++; looks[part] >= healthSteady {
			_, failed := problems[part]
			parts[part] = failed
		}
	}

	maps.DeleteFunc(parts, func(_ string, failed bool) bool { return !failed })

	return slices.Sorted(maps.Keys(parts))
}

// healthEvent returns the event that the parts with problems changed.
func healthEvent(was, is []string, problems map[string]string) Event {
	at := time.Now()
	e := Event{
		ID: string(KindHealth) + "-" + strconv.FormatInt(at.UnixNano(), 10), Kind: KindHealth, Time: at,
		Actor: access.Manager, From: healthOf(was), To: healthOf(is),
	}

	more := without(is, was)

	switch {
	case len(is) == 0:
		e.Summary = "the manager is well again"
	case len(was) == 0:
		e.Summary = "the manager is degraded: " + strings.Join(is, ", ")
	case len(more) > 0:
		e.Summary = "the manager has another problem: " + strings.Join(more, ", ")
	default:
		e.Summary = strings.Join(without(was, is), ", ") + " is well again; the manager is still degraded: " +
			strings.Join(is, ", ")
	}

	var details []string
	for _, part := range is {
		details = append(details, part+": "+cmp.Or(problems[part], "well again for a moment"))
	}

	e.Detail = oneLine(strings.Join(details, "; "))

	return e
}

func healthOf(problems []string) string {
	if len(problems) == 0 {
		return "ok"
	}
	return "degraded"
}

// without returns the names that are not among others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// enqueue stores the deliveries of the events together with the new position. Where
// nobody wants the events, a revision is stored later; see savePosition.
func (n *Notifier) enqueue(ctx context.Context, happened []happening, move func(*Position)) error {
	n.moving.Lock()
	defer n.moving.Unlock()

	// Events without a taker may have moved the position meanwhile.
	next := n.position
	next.Revision = n.seen
	move(&next)

	var list []Delivery

	for _, e := range happened {
		e.Manager = n.Manager

		for _, t := range n.Targets() {
			if !t.wants(e) {
				continue
			}

			d := Delivery{
				ID: t.Name + "/" + e.ID, Target: t.Name, Event: e.Event, Status: Pending, Created: n.created(),
			}
			if !t.Single && e.Kind.bundles() {
				n.hold(&d)
			}
			list = append(list, d)
		}
	}

	if len(list) == 0 && slices.Equal(next.Problems, n.position.Problems) {
		n.seen = next.Revision
		return nil
	}

	return n.store(ctx, next, list)
}

// created returns the time of a new delivery, which is after that of the one before: it
// orders them. The caller holds the lock moving.
func (n *Notifier) created() time.Time {
	now := time.Now()
	if !now.After(n.newest) {
		now = n.newest.Add(time.Nanosecond)
	}
	n.newest = now

	return now
}

// store stores a position with deliveries. The caller holds the lock moving.
func (n *Notifier) store(ctx context.Context, next Position, list []Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()

	if err := n.Store.Enqueue(ctx, next, list); err != nil {
		return err
	}

	n.position, n.seen = next, next.Revision
	n.add(list)

	return nil
}

// savePosition stores how far the changes were read, although nobody wanted an event, so
// that a restart need not read changes that the store has forgotten by then.
func (n *Notifier) savePosition(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()

	head, err := n.Store.Head(bounded)
	if err != nil {
		return err
	}

	n.moving.Lock()
	defer n.moving.Unlock()

	// The newest revision may be the write of the position itself.
	if head <= n.position.Revision+1 {
		return nil
	}

	// The write is a change as well: where it is read, all earlier ones are.
	next := n.position
	next.Revision = n.seen

	return n.store(ctx, next, nil)
}

// add puts deliveries into the queue that are not in it, and wakes the delivery.
func (n *Notifier) add(list []Delivery) {
	n.mu.Lock()
	defer n.mu.Unlock()

	for _, d := range list {
		if _, known := n.queue[d.ID]; !known {
			n.queue[d.ID] = d
		}
	}

	n.wake()
}

// wake wakes the delivery. The caller holds the lock.
func (n *Notifier) wake() {
	close(n.woken)
	n.woken = make(chan struct{})
}

// deliver sends the pending events, each target in order and beside the others, until ctx
// ends.
func (n *Notifier) deliver(ctx context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()

	for {
		now := time.Now()
		n.bundleRipe(ctx, now)

		due, woken, next := n.due(now)

		for _, attempt := range due {
			sending.Go(func() { n.attempt(ctx, attempt) })
		}

		wait := time.NewTimer(time.Until(next))

		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-woken:
		case <-wait.C:
		}

		wait.Stop()
	}
}

// attempt is a delivery to try now.
type attempt struct {
	target   Target
	delivery Delivery
}

// due returns the oldest pending delivery of each target that is neither busy nor
// waiting after a failure, and marks those targets as busy. woken is closed when there
// may be others, and next is the time of the next look.
func (n *Notifier) due(now time.Time) (list []attempt, woken <-chan struct{}, next time.Time) {
	targets := n.Targets()

	n.mu.Lock()
	defer n.mu.Unlock()

	next = now.Add(maxDelay)

	for _, t := range targets {
		pending, held := n.pending(t.Name, now)
		if !held.IsZero() && held.Before(next) {
			next = held
		}
		if len(pending) == 0 || n.busy[t.Name] != "" {
			continue
		}

		if f, failed := n.fails[t.Name]; failed && f.next.After(now) {
			if f.next.Before(next) {
				next = f.next
			}

			continue
		}

		n.busy[t.Name] = pending[0].ID
		list = append(list, attempt{t, pending[0]})
	}

	return list, n.woken, next
}

// pending returns the pending deliveries of a target that are not held, the oldest first,
// and the end of the next window; zero: none is held. The caller holds the lock.
func (n *Notifier) pending(target string, now time.Time) (list []Delivery, held time.Time) {
	for _, d := range n.queue {
		switch {
		case d.Target != target || d.Status != Pending:
		case !d.Held.After(now):
			list = append(list, d)
		case held.IsZero() || d.Held.Before(held):
			held = d.Held
		}
	}

	slices.SortFunc(list, byAge)

	return list, held
}

// byAge orders deliveries by their creation.
func byAge(a, b Delivery) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
}

// attempt tries a delivery once, and stores the result.
func (n *Notifier) attempt(ctx context.Context, a attempt) {
	// A receiver that does not answer must not hold its queue for ever.
	bounded, cancel := context.WithTimeout(ctx, n.Timeout)
	defer cancel()

	now := time.Now()
	err := a.target.Sender.Send(bounded, a.delivery.Event, now)

	if err != nil && ctx.Err() != nil {
		return // the next leader repeats it
	}

	// A success of an earlier attempt without an answer cannot be known.
	d := a.delivery
	d.Attempts, d.Last, d.Status, d.Error = d.Attempts+1, now, Delivered, ""

	log := n.Logger.WithFields(logrus.Fields{"target": d.Target, "event": d.Event.ID})

	if err != nil {
		d.Status, d.Error = Pending, oneLine(err.Error())

		if IsPermanent(err) || now.Sub(d.Created) > giveUpAfter {
			d.Status = Dead
			log.WithError(err).Error("a notification is given up")
		} else {
			log.WithError(err).Warn("a notification was not accepted; it is tried again")
		}
	}

	n.note(d, err, now)

	// A result is stored, even if the manager stops now.
	write, done := context.WithTimeout(context.WithoutCancel(ctx), lastWriteTime)
	defer done()

	if err := n.save(write, d.ID); err != nil {
		log.WithError(err).Warn("the result of a notification is not stored yet; a restart would send it again")
	}
}

// lockWrites waits until no other write of a delivery goes on.
func (n *Notifier) lockWrites(ctx context.Context) error {
	select {
	case n.saving <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Notifier) unlockWrites() { <-n.saving }

// save stores a delivery as the queue has it. The sweep repeats a failed write.
func (n *Notifier) save(ctx context.Context, id string) error {
	// One write at a time, so that an older one does not replace a newer one.
	if err := n.lockWrites(ctx); err != nil {
		n.mu.Lock()
		defer n.mu.Unlock()

		n.mark(id)
		return err
	}

	defer n.unlockWrites()

	n.mu.Lock()
	d, known := n.queue[id]
	mark := 0

	if known {
		mark = n.mark(id)
	}

	n.mu.Unlock()

	if !known {
		return nil // it was removed
	}

	if err := n.Store.PutDelivery(ctx, d); err != nil {
		return err
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	// It may have changed since.
	if n.unsaved[id] == mark {
		delete(n.unsaved, id)
	}

	return nil
}

// mark notes that the store does not have a delivery as the queue does. The caller holds
// the lock.
func (n *Notifier) mark(id string) int {
	n.marks++
	n.unsaved[id] = n.marks
	return n.marks
}

// note keeps the result of an attempt in the queue, and when the target is tried again.
func (n *Notifier) note(d Delivery, err error, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.wake()

	n.queue[d.ID] = d
	delete(n.busy, d.Target)

	if err == nil || d.Status == Dead && IsPermanent(err) {
		delete(n.fails, d.Target)
		return
	}

	// Its other deliveries wait as well: they would fail in the same way.
	f := n.fails[d.Target]
	if f.count == 0 {
		f.since = now
	}
	f.count++
	f.next = now.Add(delay(f.count))
	n.fails[d.Target] = f
}

// delay returns the time before the next attempt after so many failures.
func delay(failures int) time.Duration {
	b := &backoff.ExponentialBackOff{
		InitialInterval: minDelay, Multiplier: 2, MaxInterval: maxDelay, RandomizationFactor: 0.2,
	}
	b.Reset()

	// The library has no state to resume from, so the delays are counted again.
	var d time.Duration
	for range min(failures, 16) {
		d = b.NextBackOff()
	}

	return d
}

// sweep removes old deliveries, ends those beyond the limits, and stores the position,
// until ctx ends.
func (n *Notifier) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()

	for {
		if err := errors.Join(n.savePosition(ctx), n.sweepOnce(ctx, time.Now())); err != nil && ctx.Err() == nil {
			n.Logger.WithError(err).Warn("old notifications cannot be removed; retrying")
		}

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (n *Notifier) sweepOnce(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()

	stored, err := n.Store.Deliveries(ctx)
	if err != nil {
		return err
	}
	n.takeRetries(stored)

	remove := n.old(now)
	for _, id := range n.notSaved() {
		if err := n.save(ctx, id); err != nil {
			return err
		}
	}

	return n.remove(ctx, remove)
}

// takeRetries takes over deliveries that another instance made pending again.
func (n *Notifier) takeRetries(stored []Delivery) {
	n.mu.Lock()
	defer n.mu.Unlock()

	// A result that is not stored yet has as many retries as the record.
	for _, d := range stored {
		if q, known := n.queue[d.ID]; known && d.Retries > q.Retries {
			n.again(d)
		}
	}
}

// again puts a delivery that is pending again into the queue, and lets its target be
// tried at once. The caller holds the lock.
func (n *Notifier) again(d Delivery) {
	d.Revision = 0
	n.queue[d.ID] = d
	delete(n.fails, d.Target)
	n.wake()
}

// notSaved returns the ids of the deliveries to store.
func (n *Notifier) notSaved() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.unsaved))
}

// remove removes ended deliveries, from the store first: a failure leaves both as they
// are.
func (n *Notifier) remove(ctx context.Context, ids []string) error {
	if err := n.lockWrites(ctx); err != nil {
		return err
	}

	defer n.unlockWrites()

	// Somebody may have made one pending again.
	n.mu.Lock()
	ids = slices.DeleteFunc(ids, func(id string) bool { return n.queue[id].Status == Pending })
	n.mu.Unlock()

	if err := n.Store.DeleteDeliveries(ctx, ids); err != nil {
		return err
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	for _, id := range ids {
		delete(n.queue, id)
		delete(n.unsaved, id)
	}

	return nil
}

// old returns the deliveries to remove. It ends those that are too many, or of a target
// that is no longer configured, except one that is being sent.
func (n *Notifier) old(now time.Time) (remove []string) {
	// A target without an entry gets nothing any more.
	configured := map[string]bool{}
	for _, t := range n.Targets() {
		configured[t.Name] = true
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	all := map[string][]Delivery{}
	for _, d := range n.queue {
		all[d.Target] = append(all[d.Target], d)
	}

	for target, list := range all {
		// The newest first.
		slices.SortFunc(list, func(a, b Delivery) int { return byAge(b, a) })

		pending, ended := 0, 0

		for _, d := range list {
			if d.Status != Pending {
				if ended++; ended > keepEnded || now.Sub(d.Created) > keepFor {
					remove = append(remove, d.ID)
				}

				continue
			}

			// The held ones become one delivery.
			if !d.Held.After(now) {
				pending++
			}

			switch {
			case n.busy[target] == d.ID:
			case !configured[target]:
				n.end(d, "the target is no longer configured")
			case pending > maxPending && !d.Held.After(now):
				n.end(d, fmt.Sprintf("more than %d newer ones were pending", maxPending))
			}
		}
	}

	return remove
}

// end gives a delivery up; the sweep stores that. The caller holds the lock.
func (n *Notifier) end(d Delivery, reason string) {
	d.Status, d.Error = Dead, reason
	n.queue[d.ID] = d
	n.mark(d.ID)
}

// Reloaded lets every target be tried at once, because its configuration may have been
// corrected.
func (n *Notifier) Reloaded() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.fails)
	n.wake()
}
