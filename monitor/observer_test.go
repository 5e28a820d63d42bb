// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// memorySink records reports, and fails while err is set.
type memorySink struct {
	mu       sync.Mutex
	err      error
	delay    time.Duration
	got      []Report
	at       []time.Time
	attempts int
	tried    []time.Time // when each attempt ended
}

func (m *memorySink) Observe(ctx context.Context, r Report) error {
	select {
	case <-time.After(m.wait()):
	case <-ctx.Done():
		return ctx.Err()
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	m.attempts++
	m.tried = append(m.tried, time.Now())

	if m.err != nil {
		return m.err
	}

	m.got = append(m.got, r)
	m.at = append(m.at, time.Now())

	return nil
}

// sinkFunc adapts a function to Sink.
type sinkFunc func(ctx context.Context, r Report) error

func (f sinkFunc) Observe(ctx context.Context, r Report) error { return f(ctx, r) }

func (m *memorySink) wait() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.delay
}

func (m *memorySink) set(err error, delay time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err, m.delay = err, delay
}

// take returns the reports since the last take, as text.
func (m *memorySink) take() string {
	m.mu.Lock()
	defer m.mu.Unlock()

	out := ""
	for _, r := range m.got {
		if r.Full {
			out += "full"
		} else {
			out += "some"
		}

		for _, s := range r.Sightings {
			switch {
			case s.Joined:
				out += " " + s.Serial + " joined"
			case s.Alive:
				out += " " + s.Serial + " alive"
			default:
				out += " " + s.Serial + " gone"
			}
		}

		out += "; "
	}

	m.got = nil

	return out
}

// memorySource is a source whose list is in memory.
type memorySource struct {
	mu  sync.Mutex
	m   map[string]Member
	err error
}

func (s *memorySource) List(context.Context) ([]Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	var all []Member
	for _, m := range s.m {
		all = append(all, m)
	}

	return all, s.err
}

func (s *memorySource) put(m Member) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.m == nil {
		s.m = map[string]Member{}
	}

	s.m[m.Name] = m
}

func up(serial string) Member   { return member(serial, serial, serial+":1", true) }
func down(serial string) Member { return member(serial, serial, serial+":1", false) }

// inBubble runs an observer with fake time.
func inBubble(t *testing.T, o Options, f func(t *testing.T, ob *Observer, src *memorySource, sink *memorySink)) {
	synctest.Test(t, func(t *testing.T) {
		src, sink := &memorySource{}, &memorySink{}

		o.List = src.List
		if o.Sink == nil {
			o.Sink = sink
		}

		ob := NewObserver(o)
		ctx, cancel := context.WithCancel(t.Context())

		done := make(chan struct{})
		go func() { defer close(done); ob.Run(ctx) }()
		defer func() { cancel(); <-done }()
		synctest.Wait()
		f(t, ob, src, sink)
	})
}

func expect(t *testing.T, sink *memorySink, after time.Duration, want string) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()

	if got := sink.take(); got != want {
		t.Fatalf("%q, want %q", got, want)
	}
}

func TestObserverCoalesces(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, ob *Observer, src *memorySource, sink *memorySink) {
		src.put(up("1"))
		ob.Change(up("1"))
		expect(t, sink, time.Hour, "") // paused
		ob.Resume()
		expect(t, sink, 0, "full 1 joined; ")
		ob.Resume()
		expect(t, sink, time.Second, "")

		ob.Change(up("2"))
		expect(t, sink, 150*time.Millisecond, "")
		ob.Change(up("3"))
		expect(t, sink, 150*time.Millisecond, "") // still not quiet
		ob.Change(down("2"))
		ob.Change(down("1"))
		ob.Change(up("1"))
		expect(t, sink, 999*time.Millisecond, "") // a loss may be refuted
		expect(t, sink, time.Millisecond, "some 1 joined 2 gone 3 joined; ")

		// A member that returns is held for gone once more, and refutes that.
		ob.Change(down("1"))
		expect(t, sink, 900*time.Millisecond, "")
		ob.Change(up("1"))
		expect(t, sink, time.Second, "some 1 joined; ")

		// Constant changes do not delay a report for ever.
		for i := range 15 {
			ob.Change(up(fmt.Sprint("1", i)))
			time.Sleep(110 * time.Millisecond)
		}

		synctest.Wait()
		expect(t, sink, 0, "some 10 joined 11 joined 12 joined 13 joined 14 joined "+
			"15 joined 16 joined 17 joined 18 joined 19 joined; ")
		expect(t, sink, time.Second, "some 110 joined 111 joined 112 joined 113 joined 114 joined; ")
		// Members that the source does not list are gone a minute later.
		time.Sleep(time.Minute)
		synctest.Wait()

		r := sink.got[len(sink.got)-1]
		if !r.Full || len(r.Sightings) != 17 {
			t.Fatalf("%+v", r)
		}

		for _, s := range r.Sightings {
			if s.Alive != (s.Serial == "1") {
				t.Fatalf("%+v", s)
			}
		}
	})
}

func TestObserverRetries(t *testing.T) {
	var failures []int
	var recovered [][2]int
	o := Options{
		Failed:    func(_ error, n int) { failures = append(failures, n) },
		Recovered: func(nodes, n int) { recovered = append(recovered, [2]int{nodes, n}) },
	}
	inBubble(t, o, func(t *testing.T, ob *Observer, src *memorySource, sink *memorySink) {
		src.put(up("1"))
		ob.Resume()
		expect(t, sink, 0, "full 1 joined; ")

		sink.set(errors.New("no quorum"), 0)
		src.put(down("1"))
		ob.Change(down("1"))
		time.Sleep(2 * time.Second)
		src.put(up("1"))
		ob.Change(up("1"))
		src.put(up("2"))
		ob.Change(up("2"))
		time.Sleep(time.Hour)
		synctest.Wait()
		// Every 20 s on average, once the delay has reached its maximum.
		if sink.attempts < 150 || sink.attempts > 220 {
			t.Fatalf("%d attempts in an hour", sink.attempts)
		}

		checkRetryDelays(t, sink.tried[1:])

		if st := ob.Stats(); st.Pending != 2 || st.Errors != uint64(sink.attempts-1) ||
			failures[len(failures)-1] != sink.attempts-1 {
			t.Fatalf("%+v", st)
		}

		if len(recovered) != 0 {
			t.Fatalf("recovered while the sink fails: %v", recovered)
		}

		sink.set(nil, 0)
		expect(t, sink, 30*time.Second, "full 1 joined 2 joined; ")
		expect(t, sink, time.Minute, "full 1 alive 2 alive; ")

		if want := [][2]int{{2, failures[len(failures)-1]}}; !slices.Equal(recovered, want) {
			t.Fatalf("recovered: %v, want %v", recovered, want)
		}

		// A failed list is retried as well.
		src.mu.Lock()
		src.err = errors.New("connection lost")
		src.mu.Unlock()
		ob.Compare()
		expect(t, sink, 30*time.Second, "")
		src.mu.Lock()
		src.err = nil
		src.mu.Unlock()
		expect(t, sink, 30*time.Second, "full 1 alive 2 alive; ")
	})
}

// checkRetryDelays expects delays that double from retryMin up to retryMax, each with
// a jitter of up to a half.
func checkRetryDelays(t *testing.T, tried []time.Time) {
	t.Helper()

	differ := false
	for i, want := 1, retryMin; i < len(tried); i, want = i+1, min(2*want, retryMax) {
		got := tried[i].Sub(tried[i-1])
		if got < want/2 || got > want*3/2+time.Millisecond {
			t.Fatalf("the delay before retry %d is %s, want %s with a jitter of a half", i, got, want)
		}
		differ = differ || got != want
	}

	if !differ {
		t.Error("the delays have no jitter")
	}
}

func TestObserverSlowSink(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, ob *Observer, src *memorySource, sink *memorySink) {
		ob.Resume()
		expect(t, sink, 0, "full; ")
		sink.set(nil, 5*time.Second)
		ob.Change(up("1"))
		time.Sleep(time.Second) // the report is in flight
		ob.Change(down("1"))
		ob.Remove("1")
		ob.Change(up("2"))
		sink.set(nil, 0)
		expect(t, sink, 10*time.Second, "some 1 joined; some 1 gone 2 joined; ")

		// A sink that does not answer runs into the timeout, and then gets a full report.
		sink.set(nil, 24*time.Hour)
		ob.Change(down("2"))
		time.Sleep(20 * time.Second)
		sink.set(nil, 0)
		expect(t, sink, 20*time.Second, "full 2 gone; ")
	})
}

func TestObserverPause(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, ob *Observer, src *memorySource, sink *memorySink) {
		src.put(up("1"))
		src.put(up("2"))
		ob.Resume()
		expect(t, sink, 0, "full 1 joined 2 joined; ")
		ob.Pause()
		ob.Change(down("1"))
		ob.Remove("2")
		expect(t, sink, time.Hour, "")
		ob.Resume()
		expect(t, sink, 0, "full 1 joined 2 joined; ")
		ob.Pause()
		src.mu.Lock()
		delete(src.m, "2")
		src.mu.Unlock()
		ob.Resume()
		expect(t, sink, 0, "full 1 alive 2 gone; ")
		expect(t, sink, time.Minute, "full 1 alive; ")
	})
}

// TestObserverConverges runs random members with a sink that fails and a source
// that loses events, and compares the state of the sink with that of the source.
func TestObserverConverges(t *testing.T) {
	for seed := range uint64(20) {
		recorded := map[string]Sighting{}
		var mu sync.Mutex
		r := rand.New(rand.NewPCG(seed, 1))
		coin := rand.New(rand.NewPCG(seed, 2))
		sink := sinkFunc(func(ctx context.Context, rep Report) error {
			select {
			case <-time.After(time.Duration(coin.IntN(800)) * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}

			if coin.IntN(3) == 0 {
				return errors.New("the sink fails")
			}

			// Not before: the clock of the bubble stands still while somebody waits for the lock.
			mu.Lock()
			defer mu.Unlock()

			if rep.Full {
				for n, s := range recorded {
					s.Alive = false
					recorded[n] = s
				}
			}

			for _, s := range rep.Sightings {
				if s.Joined && !s.Alive {
					t.Errorf("seed %d: joined, but not alive: %+v", seed, s)
				}

				recorded[s.Name()] = s
			}

			return nil
		})
		inBubble(t, Options{Sink: sink}, func(t *testing.T, ob *Observer, src *memorySource, _ *memorySink) {
			ob.Resume()

			for range 2000 {
				name := fmt.Sprint(r.IntN(8))

				m := member(name, fmt.Sprint(r.IntN(4)), name+":1", r.IntN(2) == 0)
				if r.IntN(10) == 0 {
					m.Tags = nil
				}

				if r.IntN(8) == 0 {
					src.mu.Lock()
					delete(src.m, name)
					src.mu.Unlock()
					ob.Remove(name)
				} else {
					src.put(m)

					if r.IntN(20) > 0 { // otherwise the event is lost
						ob.Change(m)
					}
				}

				time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
			}

			time.Sleep(10 * time.Minute)
			synctest.Wait()

			truth := map[string]bool{}
			for _, m := range src.m {
				if id, err := IdentityOf(m.Tags); err == nil && m.Alive {
					truth[id.Name()] = true
				}
			}

			mu.Lock()
			defer mu.Unlock()

			for n, s := range recorded {
				if s.Alive != truth[n] {
					t.Errorf("seed %d: %s: recorded as alive %v, want %v", seed, n, s.Alive, truth[n])
				}

				delete(truth, n)
			}

			if len(truth) > 0 {
				t.Errorf("seed %d: never reported: %v", seed, truth)
			}
		})
	}
}

func TestObserverIsQuickWithManyNodes(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, ob *Observer, src *memorySource, sink *memorySink) {
		const n = 2000
		for i := range n {
			m := up(fmt.Sprint(i))
			src.put(m)
			ob.Change(m)
		}

		ob.Resume()
		synctest.Wait()

		if len(sink.got) != 1 || len(sink.got[0].Sightings) != n {
			t.Fatalf("%d reports", len(sink.got))
		}
	})
}
