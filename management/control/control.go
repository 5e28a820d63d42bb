// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
)

// dutyEvery is how often a loop asks whether it has its duty.
const dutyEvery = time.Second

// Options describe a loop.
type Options struct {
	// Name names the loop in the log and in its metrics.
	Name string
	// Duty reports whether the loop is this instance's to run now: the leader's loops ask for
	// the lead. nil: every instance runs it. It must not block.
	Duty func() bool
	// Begin reads anew what the loop remembers. It precedes the first round after each gain of
	// the duty, and is repeated like a round that failed. nil: the loop remembers nothing.
	Begin func(ctx context.Context) error
	// Round decides on the newest view, and acts. It ends soon after its context, which ends
	// with the duty. Rounds of a loop never overlap.
	Round func(ctx context.Context) (Next, error)

	// Changed returns a channel that is closed when there is a newer view. nil: a newer view
	// does not wake the loop.
	Changed func() <-chan struct{}
	// Pace is the shortest pause between two rounds. A burst of changes leads to one round.
	Pace time.Duration
	// Every is the longest time between two rounds; 0: there is no limit.
	Every time.Duration
	// Backoff is the time after which a failed round is repeated; it doubles up to Every. Until
	// then only a kick wakes the loop. 0: a failure delays nothing.
	Backoff time.Duration

	// Trouble says what a failed round means, for the log.
	Trouble string
	Logger  logrus.FieldLogger
}

// Next is what follows a round.
type Next struct {
	Acts  []Act         // to carry out
	At    time.Time     // the latest time; zero: no time is known
	Pause time.Duration // the least time, if it is more than the Pace of the loop
}

// Status describes a loop at a time.
type Status struct {
	Name             string
	OnDuty           bool
	Rounds, Failures uint64    // since the start of the process; the failures of acts are among them
	Failure          string    // of the last round; empty: it succeeded
	Next             time.Time // the latest time of the next round; zero: none is known
}

// Loop is a task of the manager that never ends by itself. All methods may be called at once,
// except Start and Stop.
type Loop struct {
	Options

	kick  chan struct{} // full while a round is due before its time
	stop  context.CancelFunc
	ended chan struct{} // closed at the end of the loop that Start began

	mu      sync.Mutex
	status  Status
	waiting []chan struct{} // closed after the next round that begins
	over    bool            // Run has ended
	begun   bool            // the memory was read since the duty was gained

	queue   []Act              // of the newest round, which no worker has taken
	running map[string]bool    // acts, by key
	workers map[string]int     // by lane
	failed  map[string]attempt // of acts of the newest round, by key
	acting  sync.WaitGroup
}

// New returns a loop that does nothing before Start or Run.
func New(o Options) *Loop {
	return &Loop{
		Options: o, kick: make(chan struct{}, 1), status: Status{Name: o.Name},
		running: map[string]bool{}, workers: map[string]int{}, failed: map[string]attempt{},
	}
}

// Start begins the loop, until Stop. It goes on after the end of ctx.
func (l *Loop) Start(ctx context.Context) {
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.ended = make(chan struct{})

	go func() {
		defer close(l.ended)
		l.Run(ctx)
	}()
}

// Stop ends the loop, and waits for the end of its round.
func (l *Loop) Stop() {
	if l.stop == nil {
		return
	}

	l.stop()
	<-l.ended
}

// Kick makes a round due at once. It does not block.
func (l *Loop) Kick() {
	select {
	case l.kick <- struct{}{}:
	default: // one is due already
	}
}

// Await waits for a round that begins after the call, or for the end of ctx or of the loop.
func (l *Loop) Await(ctx context.Context) {
	done := make(chan struct{})

	l.mu.Lock()

	over := l.over
	if !over {
		l.waiting = append(l.waiting, done)
	}

	l.mu.Unlock()

	if over {
		return
	}

	l.Kick()

	select {
	case <-done:
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waiting = slices.DeleteFunc(l.waiting, func(c chan struct{}) bool { return c == done })
	}
}

// Status returns the present state of the loop.
func (l *Loop) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Run runs the loop until ctx ends.
func (l *Loop) Run(ctx context.Context) {
	l.setOver(false)
	defer l.setOver(true)

	for ctx.Err() == nil {
		if l.onDuty() {
			l.term(ctx)
		} else {
			sleep(ctx, dutyEvery)
		}
	}
}

// setOver notes the begin or the end of the loop. Nobody waits for a round after the end.
func (l *Loop) setOver(over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.over = over; over {
		for _, done := range l.waiting {
			close(done)
		}

		l.waiting = nil
	}
}

func (l *Loop) onDuty() bool {
	on := l.Duty == nil || l.Duty()

	l.mu.Lock()
	defer l.mu.Unlock()

	l.status.OnDuty = on
	l.begun = l.begun && on

	return on
}

// term does rounds until ctx ends or the duty is lost.
func (l *Loop) term(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	defer l.acting.Wait()

	var watch sync.WaitGroup
	defer watch.Wait()
	defer end()

	if l.Duty != nil {
		watch.Go(func() {
			for sleep(ctx, dutyEvery) && l.onDuty() {
			}

			end()
		})
	}

	delays := &backoff.ExponentialBackOff{
		InitialInterval: l.Backoff, Multiplier: 2, MaxInterval: max(l.Backoff, l.Every), RandomizationFactor: 0.1,
	}

	for ctx.Err() == nil && l.onDuty() {
		// Take the channel first: a change during the round must wake the wait.
		var changed <-chan struct{}
		if l.Changed != nil {
			changed = l.Changed()
		}

		next, err := l.once(ctx)
		if wait := l.wait(next); err == nil || l.Backoff == 0 {
			delays.Reset()
			l.rest(ctx, next.Pause, wait, changed)
		} else {
			l.rest(ctx, next.Pause, delays.NextBackOff(), nil)
		}
	}
}

// once does a round, and reports a failure, the same one once.
func (l *Loop) once(ctx context.Context) (next Next, err error) {
	select {
	case <-l.kick: // this round serves it
	default:
	}

	l.mu.Lock()
	waiting, begun := l.waiting, l.begun
	l.waiting = nil
	l.mu.Unlock()

	if !begun && l.Begin != nil {
		err = l.Begin(ctx)
	}

	if err == nil {
		l.setBegun(ctx)
		next, err = l.Round(ctx)
	}

	if err == nil || next.Acts != nil {
		next.At = Earliest(next.At, l.carryOut(ctx, next.Acts))
	}

	// Something else came first: what was decided is decided anew, on a newer view.
	if inventory.KindOf(err) == inventory.KindConflict {
		err = nil
	}

	for _, done := range waiting {
		close(done)
	}

	if ctx.Err() == nil {
		l.note(next, err)
	}

	return next, err
}

// Earliest returns the earlier one of two times; zero is none.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// setBegun notes that the loop has its memory, unless the duty was lost meanwhile.
func (l *Loop) setBegun(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = ctx.Err() == nil
}

// note keeps the result of a round.
func (l *Loop) note(next Next, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	former := l.status.Failure
	l.status.Rounds++
	l.status.Failure, l.status.Next = "", next.At

	if err == nil {
		return
	}

	l.status.Failures++
	l.status.Failure = err.Error()

	if l.status.Failure != former {
		l.Logger.WithError(err).Warn(l.Trouble)
	}
}

// wait returns the longest time until the round after this one.
func (l *Loop) wait(next Next) time.Duration {
	wait := time.Duration(math.MaxInt64)
	if l.Every > 0 {
		wait = l.Every
	}
	if !next.At.IsZero() {
		wait = min(wait, max(0, time.Until(next.At)))
	}

	return wait
}

// rest waits for the pace, and then until the next round is due.
func (l *Loop) rest(ctx context.Context, pause, wait time.Duration, changed <-chan struct{}) {
	if pause = max(pause, l.Pace); pause > 0 {
		sleep(ctx, pause)
	}

	due := time.NewTimer(wait - pause)
	defer due.Stop()

	select {
	case <-ctx.Done():
	case <-changed:
	case <-l.kick:
	case <-due.C:
	}
}

// sleep waits, and reports false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
