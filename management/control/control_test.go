// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/control"
)

// site is what a loop of a test sees and leaves.
type site struct {
	mu      sync.Mutex // held by the loop and by the test in turns
	began   time.Time
	rounds  []time.Duration // the times of the rounds
	begins  int
	fail    error
	next    control.Next
	blocks  chan struct{} // a round waits for it, if it is set
	cut     int           // rounds whose context ended
	changed chan struct{}
	duty    atomic.Bool
	log     *test.Hook
}

// start runs a loop until the end of the test.
func start(t *testing.T, o control.Options, fail error) (*site, *control.Loop) {
	t.Helper()

	s := &site{began: time.Now(), changed: make(chan struct{}), fail: fail}
	s.duty.Store(true)

	var logger *logrus.Logger

	logger, s.log = test.NewNullLogger()

	o.Name, o.Trouble, o.Logger, o.Duty = "test", "the test fails; retrying", logger, s.duty.Load
	o.Changed = func() <-chan struct{} {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.changed
	}
	o.Begin = func(context.Context) error {
		s.do(func() { s.begins++ })
		return nil
	}
	o.Round = s.round

	l := control.New(o)
	l.Start(t.Context())
	t.Cleanup(l.Stop)

	return s, l
}

// do reads or writes the site.
func (s *site) do(act func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	act()
}

func (s *site) round(ctx context.Context) (control.Next, error) {
	var blocks chan struct{}

	s.do(func() { s.rounds, blocks = append(s.rounds, time.Since(s.began)), s.blocks })

	if blocks != nil {
		select {
		case <-blocks:
		case <-ctx.Done():
			s.do(func() { s.cut++ })
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	return s.next, cmp.Or(ctx.Err(), s.fail)
}

// change makes a newer view.
func (s *site) change() {
	s.mu.Lock()
	defer s.mu.Unlock()

	former := s.changed
	s.changed = make(chan struct{})
	close(former)
}

func (s *site) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rounds)
}

func (s *site) expect(t *testing.T, want ...time.Duration) {
	t.Helper()
	synctest.Wait()

	s.mu.Lock()
	defer s.mu.Unlock()

	if !slices.Equal(s.rounds, want) {
		t.Fatalf("rounds at %v, not at %v", s.rounds, want)
	}
}

const second = time.Second

// TestWaking: a newer view, a time, a kick and the longest pause wake a loop, and a burst of
// changes leads to one round after the pace.
func TestWaking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, l := start(t, control.Options{Pace: 5 * second, Every: 60 * second}, nil)
		s.expect(t, 0)

		s.do(func() { s.next.At = s.began.Add(20 * second) })

		for range 3 {
			time.Sleep(second)
			s.change()
			l.Kick()
		}

		s.expect(t, 0)
		time.Sleep(3 * second)
		s.expect(t, 0, 5*second)

		// What came during the pause is not due again.
		time.Sleep(13 * second)
		l.Kick()
		s.expect(t, 0, 5*second, 19*second)

		s.do(func() { s.next.At = time.Time{} })

		time.Sleep(6 * second)
		s.expect(t, 0, 5*second, 19*second, 24*second)
		time.Sleep(65 * second)
		s.expect(t, 0, 5*second, 19*second, 24*second, 84*second)
		time.Sleep(10 * second)
		l.Stop()
		s.expect(t, 0, 5*second, 19*second, 24*second, 84*second)
	})
}

// TestAwait: the wait ends with a round that began after the call.
func TestAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, l := start(t, control.Options{}, nil)
		s.expect(t, 0)

		blocks := make(chan struct{})
		s.do(func() { s.blocks = blocks })
		l.Kick()
		synctest.Wait()

		var ended atomic.Bool

		go func() { l.Await(t.Context()); ended.Store(true) }()

		synctest.Wait()
		blocks <- struct{}{}
		synctest.Wait()

		if ended.Load() {
			t.Error("a round that had begun before ended the wait")
		}

		blocks <- struct{}{}
		synctest.Wait()

		if !ended.Load() {
			t.Error("the wait did not end")
		}

		ctx, cancel := context.WithTimeout(t.Context(), second)
		defer cancel()

		l.Await(ctx) // gives up
		l.Stop()
		l.Await(t.Context()) // nothing to wait for
	})
}

// TestDuty: the context of a round ends when the duty is lost, nothing runs without it, and the
// memory is read anew when it is gained again.
func TestDuty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, l := start(t, control.Options{Every: 10 * second}, nil)
		s.expect(t, 0)

		s.do(func() { s.blocks = make(chan struct{}) })
		time.Sleep(15 * second)
		s.expect(t, 0, 10*second)

		s.duty.Store(false)
		time.Sleep(5 * second)
		s.change()
		l.Kick()
		s.expect(t, 0, 10*second)

		s.mu.Lock()

		if status := l.Status(); s.cut != 1 || s.begins != 1 || status.OnDuty || status.Failures > 0 {
			t.Errorf("%d rounds were cut, and the memory was read %d times: %+v", s.cut, s.begins, status)
		}

		s.blocks = nil
		s.mu.Unlock()
		s.duty.Store(true)
		time.Sleep(2 * second)
		synctest.Wait()

		s.do(func() {
			if len(s.rounds) != 3 || s.begins != 2 {
				t.Errorf("the memory was read %d times", s.begins)
			}
		})

		// Also between two rounds.
		s.duty.Store(false)
		time.Sleep(2 * second)
		s.duty.Store(true)
		time.Sleep(2 * second)
		synctest.Wait()

		s.do(func() {
			if s.begins != 3 {
				t.Errorf("the memory was read %d times", s.begins)
			}
		})

		l.Stop()
	})
}

// TestFailures: a failed round is repeated with growing delays, which a kick ends and a newer
// view does not. A failure is logged once, until it changes or ends.
func TestFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, l := start(t, control.Options{Backoff: 10 * second, Every: 80 * second}, errors.New("no store"))

		for range 200 {
			time.Sleep(second)
			s.change()
		}

		// After about 10, 20, 40 and 80 s.
		rounds := s.count()
		if rounds != 5 {
			t.Errorf("%d rounds in 200 s", rounds)
		}

		failures := l.Status().Failures

		s.do(func() { s.fail = inventory.Errorf(inventory.KindConflict, "overtaken") })
		l.Kick()
		synctest.Wait()

		if status := l.Status(); s.count() != rounds+1 || status.Failures != failures || status.Failure != "" {
			t.Errorf("a conflict counts as a failure: %+v", status)
		}

		s.do(func() { s.fail = errors.New("no store") })
		s.change()
		synctest.Wait()

		s.do(func() { s.fail = errors.New("no quorum") })
		l.Kick()
		synctest.Wait()

		var logged []string
		for _, e := range s.log.AllEntries() {
			logged = append(logged, e.Message+": "+e.Data[logrus.ErrorKey].(error).Error())
		}

		want := []string{
			"the test fails; retrying: no store",
			"the test fails; retrying: no store",
			"the test fails; retrying: no quorum",
		}
		if !slices.Equal(logged, want) {
			t.Errorf("logged %q", logged)
		}

		l.Stop()
	})
}
