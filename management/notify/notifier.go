// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/record"
)

const (
	maxDelay  = 10 * time.Minute       // between attempts at a target
	pace      = 200 * time.Millisecond // between rounds: a burst of changes is read at once
	saveEvery = time.Minute            // between writes of the position alone, and looks at old deliveries
	batch     = 50                     // deliveries in one transaction
)

// lastWriteTime bounds the write of a result, which a stop of the manager waits for.
const lastWriteTime = 5 * time.Second

// Options are the dependencies of a Notifier.
type Options struct {
	Store   Store
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
	*control.Loop // turns changes into deliveries, and sends them

	health *control.Loop
	looks  map[string]int // see lasting; of the rounds of health

	// Of the rounds.
	read    int64 // changes up to this revision are in deliveries, or nobody wants them
	saved   int64 // the revision of the newest write of the position
	savedAt time.Time

	targets   atomic.Pointer[[]Target]
	corrected atomic.Int64 // counts the occasions to try every target at once

	mu   sync.Mutex
	late map[string]Delivery // results that the store does not have yet, by target
}

// New returns a Notifier that does nothing before its Loops are started.
func New(o Options) *Notifier {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	n := &Notifier{Options: o}
	n.targets.Store(new([]Target))

	n.Loop = control.New(control.Options{
		Name: "notifications", Duty: o.Leads, Begin: n.begin, Round: n.round, Changed: o.Store.Changed, Pace: pace,
		Every: saveEvery, Backoff: 2 * time.Second, Trouble: "notifications wait for the store", Logger: o.Logger,
	})
	n.health = control.New(control.Options{
		Name: "health events", Duty: o.Leads, Begin: n.beginHealth, Round: n.lookAtHealth, Every: healthEvery,
		Trouble: "a change of the health is not notified yet; retrying", Logger: o.Logger,
	})

	return n
}

// Loops returns the loops to run.
func (n *Notifier) Loops() []*control.Loop { return []*control.Loop{n.Loop, n.health} }

// begin forgets what another leader may have done since.
func (n *Notifier) begin(context.Context) error {
	n.read, n.saved, n.savedAt = 0, 0, time.Time{}

	n.mu.Lock()
	defer n.mu.Unlock()

	n.late = map[string]Delivery{}

	return nil
}

// round turns the changes since the last round into deliveries, and decides on all of them.
func (n *Notifier) round(ctx context.Context) (control.Next, error) {
	if err := n.follow(ctx); err != nil {
		return control.Next{}, err
	}

	p := decide(n.deliveries(), n.Targets(), time.Now())
	if err := n.write(ctx, p.writes); err != nil {
		return control.Next{}, err
	}
	next := control.Next{At: p.next}

	for _, t := range n.Targets() {
		if _, due := p.due[t.Name]; !due && !n.isLate(t.Name) {
			continue
		}

		// One that failed waits, with all that follows, until the key is another one.
		key := fmt.Sprintf("%s, corrected %d, retried %d", t.Name, n.corrected.Load(), p.retried[t.Name])
		next.Acts = append(next.Acts, control.Act{
			Key: key, Lane: t.Name, Longest: maxDelay,
			Do: func(ctx context.Context) error { return n.send(ctx, t.Name) },
		})
	}

	return next, nil
}

// deliveries returns all deliveries, in the order in which they are sent.
func (n *Notifier) deliveries() []Delivery {
	r, _ := n.Store.Latest()
	shared := record.List(r, &DeliveryKind)

	list := make([]Delivery, len(shared))
	for i, d := range shared {
		list[i] = *d
	}

	markBundled(list)

	return list
}

// follow stores deliveries of the events since the last round. Without targets it forgets the position:
// the first target begins with the next event.
func (n *Notifier) follow(ctx context.Context) error {
	r, _ := n.Store.Latest()
	position := record.One(r, &PositionKind)

	if len(n.Targets()) == 0 {
		if n.read = 0; position.Revision == 0 {
			return nil
		}

		_, err := n.enqueue(ctx, nil, func(p *Position) { *p = Position{} })
		return err
	}

	if position.Revision != 0 {
		n.read = max(n.read, position.Revision)
	}

	var happened []happening

	flush := func() error {
		revision, err := n.enqueue(ctx, happened, func(p *Position) { p.Revision = n.read })
		if err == nil {
			happened, n.saved, n.savedAt = nil, revision, time.Now()
		}
		return err
	}

	newest, err := n.Store.ReadChanges(ctx, n.read, func(revision int64, list []record.RawChange) error {
		found, unreadable := events(list)
		if unreadable != nil {
			n.Logger.WithError(unreadable).Error("a record cannot be read, so that its events are missed")
		}

		n.read = revision

		for _, e := range found {
			if slices.ContainsFunc(n.Targets(), func(t Target) bool { return t.wants(e) }) {
				happened = append(happened, e)
			}
		}

		if len(happened) < batch {
			return nil
		}

		return flush()
	})

	switch {
	case inventory.KindOf(err) == inventory.KindExpired:
		n.read, happened, err = newest, append(happened, gap(newest)), nil
	case n.read == 0: // the first target begins with the next event
		n.read = newest
	}

	// The position follows the store without an event as well. Otherwise a restart would miss changes that
	// the store no longer keeps.
	if err == nil && (len(happened) > 0 || newest > n.saved && time.Since(n.savedAt) >= saveEvery) {
		err = flush()
	}

	if err != nil {
		n.read = position.Revision // the same events come again, and find their deliveries
	}

	return err
}

// gap is the event that events are missing.
func gap(revision int64) happening {
	return happening{Event: Event{
		ID: fmt.Sprintf("%d-%s", revision, KindGap), Kind: KindGap, Time: time.Now(),
		Summary: "events were missed, because the manager was away for too long; look at nodes and jobs",
	}}
}

// enqueue stores the deliveries of events, in chunks, and moves the position with the last of them. After
// a failure in between the same events come again, and find the deliveries.
func (n *Notifier) enqueue(ctx context.Context, happened []happening, move func(*Position)) (
	revision int64, err error,
) {
	chunks := slices.Collect(slices.Chunk(n.wanted(happened), batch))

	for i := range max(1, len(chunks)) {
		if _, revision, err = record.Decide(ctx, n.Store, func(tx *record.Tx) (any, error) {
			for _, d := range slices.Concat(chunks[i:min(i+1, len(chunks))]...) {
				if record.Get(tx, &DeliveryKind, d.ID) == nil {
					record.Put(tx, &DeliveryKind, &d)
				}
			}

			if i >= len(chunks)-1 {
				p := record.One(tx, &PositionKind)
				move(&p)
				record.Put(tx, &PositionKind, &p)
			}

			return nil, nil
		}); err != nil {
			return 0, err
		}
	}

	return revision, nil
}

// wanted returns the deliveries of events to the targets that want them.
func (n *Notifier) wanted(happened []happening) (list []Delivery) {
	all := n.deliveries()
	created := time.Now()

	for _, e := range happened {
		e.Manager = n.Manager

		for _, t := range n.Targets() {
			if !t.wants(e) {
				continue
			}

			// The creation orders the deliveries, also if the clock was put back.
			if last := len(all) - 1; last >= 0 && !created.After(all[last].Created) {
				created = all[last].Created.Add(time.Nanosecond)
			}

			d := pending(t.Name, e.Event, created)
			if !t.Single && bundles(e.Kind) {
				d.hold(all)
			}
			all, list = append(all, d), append(list, d)
		}
	}

	return list
}

// write carries out decisions on deliveries. One on a delivery that was changed meanwhile is left to the
// next round.
func (n *Notifier) write(ctx context.Context, writes []write) error {
	for chunk := range slices.Chunk(writes, batch) {
		if _, _, err := record.Decide(ctx, n.Store, func(tx *record.Tx) (any, error) {
			for _, w := range chunk {
				switch {
				case record.Revision(tx, &DeliveryKind, w.ID) != w.Revision:
				case w.remove:
					record.Remove(tx, &DeliveryKind, w.ID)
				default:
					record.Put(tx, &DeliveryKind, &w.Delivery)
				}
			}

			return nil, nil
		}); err != nil {
			return err
		}
	}

	return nil
}

// send sends what is due to a target, in order, until that accepts one no more.
func (n *Notifier) send(ctx context.Context, target string) error {
	for {
		// A result that is not stored would be sent again.
		if err := n.storeResult(ctx, target); err != nil {
			return err
		}

		t, err := n.target(target)
		d, due := decide(n.deliveries(), n.Targets(), time.Now()).due[target]

		if err != nil || !due || ctx.Err() != nil {
			return nil //nolint:nilerr // it is no longer configured
		}

		if err := n.attempt(ctx, t, d); err != nil {
			return err
		}
	}
}

// attempt tries a delivery once, and stores the result.
func (n *Notifier) attempt(ctx context.Context, t Target, d Delivery) error {
	// A receiver that does not answer must not hold its queue for ever.
	bounded, cancel := context.WithTimeout(ctx, n.Timeout)
	defer cancel()

	now := time.Now()

	failed := t.Sender.Send(bounded, d.Event, now)
	if failed != nil && ctx.Err() != nil {
		return failed // the next leader repeats it
	}
	d = d.after(failed, now)
	if d.Status == Dead {
		n.Logger.WithError(failed).WithFields(logrus.Fields{"target": d.Target, "event": d.Event.ID}).
			Error("a notification is given up")
	}

	n.mu.Lock()
	n.late[t.Name] = d
	n.mu.Unlock()

	// A result is stored, even if the manager stops now.
	last, done := context.WithTimeout(context.WithoutCancel(ctx), lastWriteTime)
	defer done()

	if err := n.storeResult(last, t.Name); err != nil {
		return fmt.Errorf("the result of %s is not stored; a restart would send it again: %w", d.Event.ID, err)
	}

	if IsPermanent(failed) {
		return nil
	}
	return failed
}

// storeResult stores the result of the newest attempt at a target, unless the store has it.
func (n *Notifier) storeResult(ctx context.Context, target string) error {
	n.mu.Lock()
	d, late := n.late[target]
	n.mu.Unlock()

	if !late {
		return nil
	}

	if _, _, err := record.Decide(ctx, n.Store, func(tx *record.Tx) (any, error) {
		// It may have been given up, removed or retried during the attempt.
		now := record.Get(tx, &DeliveryKind, d.ID)
		if now == nil || now.Attempts != d.Attempts-1 || now.Retries != d.Retries ||
			now.Status != Pending && d.Status != Delivered {
			return nil, nil
		}

		record.Put(tx, &DeliveryKind, &d)

		return nil, nil
	}); err != nil {
		return err
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	delete(n.late, target)

	return nil
}

func (n *Notifier) isLate(target string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, late := n.late[target]
	return late
}

// SetTargets replaces the targets, and lets each be tried at once: its configuration may have been
// corrected.
func (n *Notifier) SetTargets(list []Target) {
	n.targets.Store(&list)
	n.retryNow()
}

// Targets returns the targets of the configuration, in its order.
func (n *Notifier) Targets() []Target { return *n.targets.Load() }

// retryNow lets every target be tried at once.
func (n *Notifier) retryNow() {
	n.corrected.Add(1)
	n.Kick()
}
