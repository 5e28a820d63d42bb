// SPDX-License-Identifier: Apache-2.0

package step_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// still is a view that never changes.
type still struct{ state.Reader }

func (still) View() *state.View        { return &state.View{} }
func (still) Changed() <-chan struct{} { return nil }

// recorded keeps the results that a step has recorded.
type recorded struct {
	step.Events

	mu      sync.Mutex
	results map[string]job.HostResult
	writes  int
	fails   error
}

func (r *recorded) Line(context.Context, string) error      { return nil }
func (r *recorded) Event(context.Context, step.Event) error { return nil }

func (r *recorded) Results(_ context.Context, hosts map[string]job.HostResult) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes++
	maps.Copy(r.results, hosts)

	return r.fails
}

// of returns the recorded result of a host.
func (r *recorded) of(host string) job.HostResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results[host]
}

// stepOn returns a step on hosts 1 to n, some of which have a result, and where it records the others.
func stepOn(n int, before map[string]job.HostResult) (step.Step, *recorded) {
	run := job.Run{Results: before}
	for i := range n {
		run.Hosts = append(run.Hosts, fmt.Sprint(i+1))
	}

	j := job.Job{ID: "1", Status: job.Running, Deadline: time.Now().Add(time.Hour), Runs: []job.Run{run}}

	return step.New(still{}, nil, j, 0), &recorded{results: map[string]job.HostResult{}}
}

// TestEachPauses: hosts are begun evenly, and a step that goes on does not begin with a burst.
func TestEachPauses(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		before map[string]job.HostResult
		want   time.Duration // of the last one
	}{
		{nil, 12 * time.Second},
		{map[string]job.HostResult{"2": {Begun: true, Done: true}}, 12 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var (
				mu     sync.Mutex
				begins []time.Duration
			)

			s, out := stepOn(5, test.before)
			begun := time.Now()

			_, err := step.Task{Name: "x", Limit: 50, Pause: 3 * time.Second, Do: func(context.Context, string) error {
				mu.Lock()
				defer mu.Unlock()
				begins = append(begins, time.Since(begun))

				return nil
			}}.Each(t.Context(), s, out)
			errtest.None(t, err)

			for i := range begins {
				if i > 0 && begins[i]-begins[i-1] != 3*time.Second {
					t.Errorf("the hosts were begun at %v", begins)
				}
			}

			if len(begins) != 5-len(test.before) || begins[len(begins)-1] != test.want {
				t.Errorf("the hosts were begun at %v, want the last one at %v", begins, test.want)
			}
		})
	}
}

// TestEachPart: no part has more hosts at a time than it may, and a full one keeps no other waiting.
func TestEachPart(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex

		now, most := map[string]int{}, map[string]int{}
		part := func(host string) string { return map[bool]string{true: "big", false: "small"}[host < "8"] }
		s, out := stepOn(9, nil)
		begun := time.Now()

		_, err := step.Task{
			Name:    "x",
			Limit:   4,
			PerPart: 2,
			Part:    part,
			Do: func(_ context.Context, host string) error {
				p := part(host)

				mu.Lock()
				now[p]++
				most[p] = max(most[p], now[p])
				mu.Unlock()

				time.Sleep(time.Second)

				mu.Lock()
				now[p]--
				mu.Unlock()

				return nil
			},
		}.Each(
			t.Context(),
			s,
			out,
		)
		errtest.None(t, err)

		if most["big"] != 2 || most["small"] != 2 {
			t.Errorf("at a time: %v, want 2 of each", most)
		}
		if took := time.Since(begun); took != 4*time.Second {
			t.Errorf("seven hosts, two at a time, took %v", took)
		}
	})
}

// TestEachRecords: results are recorded while other hosts go on; a task for once is recorded before it begins.
func TestEachRecords(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		before := map[string]job.HostResult{
			"1": {Begun: true, Done: true, OK: 1}, "2": {Begun: true, Failed: 1, Message: "broken"}, "3": {Begun: true},
		}

		for _, once := range []bool{false, true} {
			s, out := stepOn(5, before)
			counts := map[string]int{}

			var mu sync.Mutex

			r, err := step.Task{Name: "x", Limit: 50, Once: once, Do: func(_ context.Context, host string) error {
				if was := out.of(host); was.Begun != once || was.Done {
					t.Errorf("once: %t: when %s was begun, its record was %+v", once, host, was)
				}

				mu.Lock()
				counts[host]++
				mu.Unlock()

				if host == "5" {
					time.Sleep(time.Minute)

					if !out.of("4").Done {
						t.Errorf("once: %t: a minute after its end, the result of 4 is not recorded", once)
					}
				}

				return nil
			}}.Each(t.Context(), s, out)
			errtest.None(t, err)

			want := map[string]int{"3": 1, "4": 1, "5": 1}
			if once {
				delete(want, "3")
			}

			if !maps.Equal(counts, want) {
				t.Errorf("once: %t: the hosts were begun %v, want %v", once, counts, want)
			}

			if r.Hosts["1"] != before["1"] || r.Hosts["2"] != before["2"] || r.Hosts["3"].Done == once {
				t.Errorf("once: %t: the results are %+v", once, r.Hosts)
			}
		}
	})
}

// TestEachNeedsTheRecord: what must not be done twice is not done if its begin cannot be recorded.
func TestEachNeedsTheRecord(t *testing.T) {
	t.Parallel()

	s, out := stepOn(3, nil)
	out.fails = errors.New("no store")

	_, err := step.Task{Name: "x", Limit: 1, Once: true, Do: func(context.Context, string) error {
		t.Error("it was done")
		return nil
	}}.Each(t.Context(), s, out)
	if !errors.Is(err, out.fails) {
		t.Errorf("%v, want %v", err, out.fails)
	}
}

// wavering is a view that tells when the store is away.
type wavering struct {
	state.Reader

	mu      sync.Mutex
	stale   bool
	changed chan struct{}
}

func (w *wavering) View() *state.View {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &state.View{Stale: w.stale}
}

func (w *wavering) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

func (w *wavering) set(stale bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.stale = stale
	close(w.changed)
	w.changed = make(chan struct{})
}

// TestUntil: the deadline of a step is put off by every outage of the store, also by one that begins before it and ends
// after it.
func TestUntil(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		outages [][2]time.Duration // since the start
		want    time.Duration
	}{
		{nil, time.Hour},
		{[][2]time.Duration{{10 * time.Minute, 12 * time.Minute}}, time.Hour + 2*time.Minute},
		{[][2]time.Duration{{59 * time.Minute, 3 * time.Hour}}, 3*time.Hour + time.Minute},
		{[][2]time.Duration{{time.Minute, 2 * time.Minute}, {time.Hour, 2 * time.Hour}}, 2*time.Hour + time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			view := &wavering{changed: make(chan struct{})}
			j := job.Job{
				ID: "1", Status: job.Running, Started: begun, Deadline: begun.Add(time.Hour), Runs: []job.Run{{}},
			}

			ctx, cancel := step.New(view, nil, j, 0).Counting(&state.Outages{}).Until(t.Context())
			defer cancel()

			for _, o := range c.outages {
				time.Sleep(o[0] - time.Since(begun))
				view.set(true)
				time.Sleep(o[1] - time.Since(begun))
				view.set(false)
			}

			<-ctx.Done()

			if got := time.Since(begun); got != c.want || step.Stopped(ctx) != job.CauseDeadline {
				t.Errorf("%v: ended after %s by %q, want %s", c.outages, got, step.Stopped(ctx), c.want)
			}
		})
	}
}
