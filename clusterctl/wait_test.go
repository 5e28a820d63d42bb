// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

var errAway = inventory.Errorf(inventory.KindUnavailable, "there is no socket").Do("is clusterm running?")

// flakyManager is a manager whose job ends at a time, that is away between two
// others, and whose stream of events breaks after each event.
type flakyManager struct {
	begin          time.Time
	away, back     time.Duration
	end            time.Duration
	final          api.Job
	endlessStream  bool
	breakAfter     int // events of one stream; 0: it does not break
	attempts       int
	streamAttempts int
}

func (m *flakyManager) here() error {
	if since := time.Since(m.begin); since >= m.away && since < m.back {
		return errAway
	}

	return nil
}

func (m *flakyManager) WaitJob(ctx context.Context, id string, each ...func(api.Job)) (api.Job, error) {
	m.attempts++
	if err := m.here(); err != nil {
		return api.Job{}, err
	}

	j := api.Job{ID: id, Status: api.Running}
	for _, f := range each {
		f(j)
	}

	until := m.end - time.Since(m.begin)

	gone := m.away < m.end && time.Since(m.begin) < m.away
	if gone {
		until = m.away - time.Since(m.begin)
	}

	if err := sleep(ctx, until); err != nil {
		return api.Job{}, err
	}

	if gone {
		return api.Job{}, errAway
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
	if err := m.here(); err != nil {
		return err
	}

	for i, task := range []string{"one", "two", "three"} {
		if m.breakAfter > 0 && i >= m.breakAfter*m.streamAttempts {
			return errAway
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

// recorder is a screen that remembers.
type recorder struct {
	mu    sync.Mutex
	tasks []string
	notes []string
	last  api.Job
}

func (r *recorder) job(j api.Job)     { r.mu.Lock(); r.last = j; r.mu.Unlock() }
func (r *recorder) event(e api.Event) { r.mu.Lock(); r.tasks = append(r.tasks, e.Task); r.mu.Unlock() }
func (r *recorder) note(s string)     { r.mu.Lock(); r.notes = append(r.notes, s); r.mu.Unlock() }
func (r *recorder) close()            {}

func TestFollow(t *testing.T) {
	done := api.Job{ID: "7", Status: api.Complete}

	three := []string{"one", "two", "three"}
	for _, test := range []struct {
		name  string
		m     flakyManager
		notes int
		took  time.Duration // at most
		kind  inventory.Kind
	}{
		{name: "plain", m: flakyManager{end: time.Minute, away: time.Hour}, took: time.Minute},
		{name: "an outage is told of and put up with", m: flakyManager{end: time.Minute, away: 10 * time.Second, back: 50 * time.Second}, notes: 2, took: time.Minute + maxPause},
		{name: "an outage has a limit", m: flakyManager{end: time.Hour, away: 10 * time.Second, back: time.Hour}, notes: 1, took: 10*time.Second + patience + maxPause, kind: inventory.KindUnavailable},
		{name: "events that break come once each", m: flakyManager{end: time.Minute, away: time.Hour, breakAfter: 1}, took: time.Minute},
		{name: "events that do not end with the job are left", m: flakyManager{end: time.Minute, away: time.Hour, endlessStream: true}, took: time.Minute + drainTime},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := test.m
				m.begin, m.final = time.Now(), done
				r := &recorder{}

				end, err := follow(t.Context(), &m, api.Job{ID: "7", Status: api.Queued}, r)
				if inventory.KindOf(err) != test.kind {
					t.Fatalf("err = %v", err)
				}

				if err == nil && (end.Status != api.Complete || r.last.Status != api.Complete) {
					t.Errorf("the job is %s, shown as %s", end.Status, r.last.Status)
				}

				if !slices.Equal(r.tasks, three) {
					t.Errorf("events: %q", r.tasks)
				}

				if len(r.notes) != test.notes {
					t.Errorf("notes: %q", r.notes)
				}

				if took := time.Since(m.begin); took > test.took {
					t.Errorf("it took %s", took)
				}

				if m.attempts > 200 {
					t.Errorf("%d attempts", m.attempts)
				}
			})
		})
	}
}

func TestFollowDetaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		m := &flakyManager{begin: time.Now(), end: time.Hour, away: 2 * time.Hour, endlessStream: true}
		time.AfterFunc(time.Minute, func() { cancel(ErrInterrupted) })

		_, err := follow(ctx, m, api.Job{ID: "7", Status: api.Running}, &recorder{})
		if !errors.Is(err, ErrInterrupted) || time.Since(m.begin) != time.Minute {
			t.Fatalf("after %s: %v", time.Since(m.begin), err)
		}
	})
}
