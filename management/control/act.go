// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// The time between two attempts at an act; it doubles after each failure.
const (
	firstDelay = 5 * time.Second
	lastDelay  = 5 * time.Minute
)

// Act is something that a round decided to do. It is carried out apart from the rounds: a slow one
// delays no decision.
type Act struct {
	// Key identifies the act. It is never carried out twice at a time.
	Key string
	// Lane names the acts that wait for each other: Width of them (0: one) are carried out at a
	// time, in the order in which the newest round returned them.
	Lane  string
	Width int
	// Longest is the longest time between two attempts; 0: lastDelay.
	Longest time.Duration
	// Do carries the act out. It must be idempotent: it is repeated, after a delay, if it
	// returns an error, and after a crash. Its context ends with the duty.
	Do func(ctx context.Context) error
}

// attempt is the newest attempt at an act that failed.
type attempt struct {
	again time.Time // the next one is due
	delay time.Duration
}

// carryOut begins the acts of a round that are due, in the place of those of the rounds before that
// have not begun. It returns when the next attempt at another one is due; zero: none.
func (l *Loop) carryOut(ctx context.Context, acts []Act) (next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.queue = nil
	failed := map[string]attempt{}

	for _, a := range acts {
		last, repeated := l.failed[a.Key]
		if repeated {
			failed[a.Key] = last
		}

		// One that is being carried out is for the round after its end to decide on.
		switch {
		case l.running[a.Key]:
		case repeated && time.Now().Before(last.again):
			next = Earliest(next, last.again)
		default:
			l.queue = append(l.queue, a)
		}
	}

	l.failed = failed

	for _, a := range l.queue {
		if l.workers[a.Lane] < max(1, a.Width) {
			l.workers[a.Lane]++
			l.acting.Go(func() { l.work(ctx, a.Lane) })
		}
	}

	return next
}

// work carries out the acts of a lane until none is left.
func (l *Loop) work(ctx context.Context, lane string) {
	for {
		a, ok := l.take(ctx, lane)
		if !ok {
			return
		}
		err := a.Do(ctx)
		l.acted(ctx, a, err)
		l.Kick()
	}
}

// take removes and returns the next act of a lane. If there is none, the worker ends.
func (l *Loop) take(ctx context.Context, lane string) (a Act, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	i := slices.IndexFunc(l.queue, func(a Act) bool { return a.Lane == lane && !l.running[a.Key] })
	if i < 0 || ctx.Err() != nil {
		if l.workers[lane]--; l.workers[lane] == 0 {
			delete(l.workers, lane)
		}
		return a, false
	}

	a = l.queue[i]
	l.queue = slices.Delete(l.queue, i, i+1)
	l.running[a.Key] = true

	return a, true
}

// acted notes the end of an attempt. The end of the duty is no failure of the act.
func (l *Loop) acted(ctx context.Context, a Act, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.running, a.Key)

	if err == nil || ctx.Err() != nil {
		delete(l.failed, a.Key)
		return
	}

	delay := min(max(2*l.failed[a.Key].delay, firstDelay), cmp.Or(a.Longest, lastDelay))
	l.failed[a.Key] = attempt{again: time.Now().Add(delay), delay: delay}
	l.status.Failures++

	l.Logger.WithError(err).WithField("act", a.Key).Warnf("%s: an act failed; retrying in %s", l.Name, delay)
}
