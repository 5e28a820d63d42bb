// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

var errUnreachable = inventory.Errorf(inventory.KindUnavailable, "there is no socket").Do("is clusterm running?")

// flakyManager is a manager with one job. It is unreachable between two moments,
// and can break the stream of events. Moments are relative to begin.
type flakyManager struct {
	begin          time.Time
	down, up       time.Duration // the outage
	end            time.Duration // of the job
	final          api.Job
	endlessStream  bool
	breakAfter     int // events of one stream; 0: never
	attempts       int
	streamAttempts int
}

func (m *flakyManager) reachable() error {
	if since := time.Since(m.begin); since >= m.down && since < m.up {
		return errUnreachable
	}
	return nil
}

func (m *flakyManager) WaitJob(ctx context.Context, id string, each ...func(api.Job)) (api.Job, error) {
	m.attempts++
	if err := m.reachable(); err != nil {
		return api.Job{}, err
	}

	j := api.Job{ID: id, Status: api.Running}
	for _, f := range each {
		f(j)
	}

	until := m.end - time.Since(m.begin)

	breaks := m.down < m.end && time.Since(m.begin) < m.down
	if breaks {
		until = m.down - time.Since(m.begin)
	}

	if err := sleep(ctx, until); err != nil {
		return api.Job{}, err
	}

	if breaks {
		return api.Job{}, errUnreachable
	}

	for _, f := range each {
		f(m.final)
	}

	return m.final, nil
}

func (m *flakyManager) Events(
	ctx context.Context,
	id string,
	offset int64,
	follow bool,
	each func(api.Event) error,
) error {
	m.streamAttempts++
	if err := m.reachable(); err != nil {
		return err
	}

	for i, task := range []string{"one", "two", "three"} {
		if m.breakAfter > 0 && i >= m.breakAfter*m.streamAttempts {
			return errUnreachable
		}

		if err := each(api.Event{Event: "ok", Host: "a", Task: task}); err != nil {
			return err
		}
	}

	if m.endlessStream {
		<-ctx.Done()
		return ctx.Err()
	}

	return nil
}

// recorder is a screen that records the calls.
type recorder struct {
	mu    sync.Mutex
	tasks []string
	notes []string
	last  api.Job
}

func (r *recorder) Job(j api.Job)     { r.mu.Lock(); r.last = j; r.mu.Unlock() }
func (r *recorder) Event(e api.Event) { r.mu.Lock(); r.tasks = append(r.tasks, e.Task); r.mu.Unlock() }
func (r *recorder) Note(s string)     { r.mu.Lock(); r.notes = append(r.notes, s); r.mu.Unlock() }
func (r *recorder) Close()            {}

// TestJob follows a job across outages and broken streams.
func TestJob(t *testing.T) {
	done := api.Job{ID: "7", Status: api.Complete}

	three := []string{"one", "two", "three"}
	for _, test := range []struct {
		name  string
		m     flakyManager
		notes int
		took  time.Duration // at most
		kind  inventory.Kind
	}{
		{name: "no outage", m: flakyManager{end: time.Minute, down: time.Hour}, took: time.Minute},
		{
			name:  "an outage is reported and survived",
			m:     flakyManager{end: time.Minute, down: 10 * time.Second, up: 50 * time.Second},
			notes: 2,
			took:  time.Minute + maxBackoff,
		},
		{
			name:  "a long outage is an error",
			m:     flakyManager{end: time.Hour, down: 10 * time.Second, up: time.Hour},
			notes: 1,
			took:  10*time.Second + Patience + maxBackoff,
			kind:  inventory.KindUnavailable,
		},
		{
			name: "a broken stream shows each event once",
			m:    flakyManager{end: time.Minute, down: time.Hour, breakAfter: 1},
			took: time.Minute,
		},
		{
			name: "a stream that outlives the job is abandoned",
			m:    flakyManager{end: time.Minute, down: time.Hour, endlessStream: true},
			took: time.Minute + drainTime,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := test.m
				m.begin, m.final = time.Now(), done
				r := &recorder{}

				end, err := Job(t.Context(), Clients{&m, &m}, api.Job{ID: "7", Status: api.Queued}, r)
				if inventory.KindOf(err) != test.kind {
					t.Fatalf("error %v, want the kind %v", err, test.kind)
				}
				if err == nil && (end.Status != api.Complete || r.last.Status != api.Complete) {
					t.Errorf("the job is %s, and the screen shows %s", end.Status, r.last.Status)
				}

				if !slices.Equal(r.tasks, three) {
					t.Errorf("the screen shows the tasks %q, want %q", r.tasks, three)
				}

				if len(r.notes) != test.notes {
					t.Errorf("the screen shows the notes %q, want %d", r.notes, test.notes)
				}

				if took := time.Since(m.begin); took > test.took {
					t.Errorf("following took %s, want at most %s", took, test.took)
				}

				if m.attempts > 200 {
					t.Errorf("%d attempts: the backoff does not grow", m.attempts)
				}
			})
		})
	}
}

// TestJobDetaches returns as soon as the context is cancelled.
func TestJobDetaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		m := &flakyManager{begin: time.Now(), end: time.Hour, down: 2 * time.Hour, endlessStream: true}
		time.AfterFunc(time.Minute, func() { cancel(exit.ErrInterrupted) })

		_, err := Job(ctx, Clients{m, m}, api.Job{ID: "7", Status: api.Running}, &recorder{})
		if !errors.Is(err, exit.ErrInterrupted) || time.Since(m.begin) != time.Minute {
			t.Fatalf("returned after %s with %v", time.Since(m.begin), err)
		}
	})
}
