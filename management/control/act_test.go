// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
)

// worker counts what acts do.
type worker struct {
	mu         sync.Mutex
	busy, most map[string]int
	done       []string
}

func (w *worker) act(key, lane string, width int, takes time.Duration, err error) control.Act {
	return control.Act{Key: key, Lane: lane, Width: width, Do: func(ctx context.Context) error {
		w.mu.Lock()

		if err == nil && slices.Contains(w.done, key) {
			w.mu.Unlock()
			return nil
		}

		w.busy[lane]++
		w.busy[key]++
		w.most[lane], w.most[key] = max(w.most[lane], w.busy[lane]), max(w.most[key], w.busy[key])
		w.mu.Unlock()

		select {
		case <-ctx.Done():
		case <-time.After(takes):
		}

		w.mu.Lock()
		defer w.mu.Unlock()

		w.busy[lane]--
		w.busy[key]--
		w.done = append(w.done, key)

		return err
	}}
}

// TestActs: acts delay neither a round nor the acts of another lane. A lane has its width, no act is
// carried out twice at a time, and one that failed is repeated less and less often.
func TestActs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := start(t, control.Options{Pace: time.Second, Every: time.Minute}, nil)
		w := &worker{busy: map[string]int{}, most: map[string]int{}}

		acts := []control.Act{
			w.act("slow", "one", 0, time.Hour, nil), w.act("behind it", "one", 0, time.Second, nil),
			w.act("fails", "other", 0, time.Second, errors.New("it is full")),
			w.act("is urgent", "urgent", 0, time.Second, errors.New("it is full")),
		}
		acts[3].Longest = 20 * time.Second

		for i := range 5 {
			acts = append(acts, w.act("wide "+strconv.Itoa(i), "wide", 3, 20*time.Minute, nil))
		}

		s.do(func() { s.next.Acts = acts })
		l.Kick()
		time.Sleep(10 * time.Minute)

		if n := s.count(); n < 10 {
			t.Errorf("%d rounds in ten minutes, while an act is slow", n)
		}

		w.mu.Lock()

		for key, most := range map[string]int{"fails": 8, "is urgent": 32} {
			failed := len(slices.DeleteFunc(slices.Clone(w.done), func(done string) bool { return done != key }))
			if failed > most || failed < most-5 {
				t.Errorf("%d attempts in ten minutes at the act that %s", failed, key)
			}
		}

		w.mu.Unlock()

		time.Sleep(40 * time.Minute)
		w.mu.Lock()

		if w.most["one"] != 1 || w.most["wide"] != 3 || w.most["slow"] != 1 || w.most["wide 0"] != 1 {
			t.Errorf("at a time: %v", w.most)
		}

		if slices.Contains(w.done, "behind it") || !slices.Contains(w.done, "wide 4") {
			t.Errorf("done in 50 minutes: %q", w.done)
		}

		w.mu.Unlock()

		// The loop waits for the ends of acts, and begins no others.
		l.Stop()

		if w.busy["slow"] != 0 || slices.Contains(w.done, "behind it") {
			t.Errorf("after the end: %v of %q", w.busy, w.done)
		}
	})
}

// note is the memory of a loop.
type note struct {
	Count int `json:"count"`
}

// TestRemember: the acts wait until the memory is in the store, and a memory that was changed
// meanwhile is decided on anew.
func TestRemember(t *testing.T) {
	kind := &record.Kind[note]{Name: "note", Single: true}
	s := recordtest.NewStore(kind)

	write := func(n int) error {
		_, _, err := record.Decide(t.Context(), s, func(tx *record.Tx) (any, error) {
			record.Put(tx, kind, &note{n})
			return nil, nil
		})

		return err
	}

	var (
		decided  int
		recorded []int
	)

	stored := func() int {
		r, _ := s.Latest()
		return record.One(r, kind).Count
	}

	round := control.Remember(s, kind, func(_ record.Reader, m note) control.Decision[note] {
		decided++

		if decided == 1 {
			if err := write(10); err != nil {
				t.Error(err)
			}
		}

		m.Count++
		d := control.Decision[note]{Recorded: func() { recorded = append(recorded, stored()) }}

		if m.Count < 12 {
			d.Memory, d.Acts = &m, []control.Act{{Key: "act"}}
		}

		return d
	})

	next, err := round(t.Context())
	if err != nil || decided != 2 || stored() != 11 || !slices.Equal(recorded, []int{11}) || len(next.Acts) != 1 {
		t.Fatalf("decided %d times, stored %d, recorded at %d, %d acts: %v",
			decided, stored(), recorded, len(next.Acts), err)
	}

	// A decision that changes nothing writes nothing.
	if next, err = round(t.Context()); err != nil || len(recorded) != 1 || len(next.Acts) != 0 || s.Commits() != 2 {
		t.Errorf("recorded at %d, %d acts, %d commits: %v", recorded, len(next.Acts), s.Commits(), err)
	}

	round = control.Remember(full{s}, kind, func(_ record.Reader, m note) control.Decision[note] {
		return control.Decision[note]{Memory: &m, Next: control.Next{Acts: []control.Act{{Key: "act"}}}}
	})

	// What is not in the store is not carried out.
	if next, err = round(t.Context()); !errors.Is(err, errFull) || len(next.Acts) != 0 {
		t.Errorf("%d acts with a full store: %v", len(next.Acts), err)
	}
}

var errFull = errors.New("the store is full")

// full is a store that takes nothing.
type full struct{ *recordtest.Store }

func (full) Commit(context.Context, *record.Tx) (int64, error) { return 0, errFull }
