// SPDX-License-Identifier: Apache-2.0

package playbook

import (
	"context"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// TestRenewOnlyWhileOwned: an instance that has lost a job, or that may have lost
// it because the store does not answer, must let the lease of the runner expire:
// the next owner waits for that.
func TestRenewOnlyWhileOwned(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name                 string
		lost, expired, stale bool
		wantRenewals         bool
	}{
		{name: "owned", wantRenewals: true},
		{name: "ownership lost", lost: true},
		{name: "store does not answer", stale: true},
		{name: "the lease of the job is over, which its context does not show yet", expired: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			ctx := cluster.WithLease(t.Context(), cluster.Token{}, func() time.Time { return expiry(c.expired) })

			owned, end := context.WithCancelCause(ctx)
			if c.lost {
				end(cluster.ErrOwnershipLost)
			}
			run := &renewed{done: func() { end(nil) }}
			endSoon := func() { time.AfterFunc(10*time.Millisecond, func() { end(nil) }) }
			e := New(Options{
				State:    idleState{stale: c.stale, read: endSoon},
				Logger:   logrus.New(),
				Settings: func() step.Settings { return step.Settings{Lease: time.Hour} },
			})
			e.renew(owned, "1", job.Run{}, run)

			if run.times > 0 != c.wantRenewals {
				t.Errorf("renewed %d times", run.times)
			}
		})
	}
}

// idleState is a state without changes.
type idleState struct {
	state.Reader

	stale bool
	read  func() // called by View
}

func (s idleState) View() *state.View {
	s.read()
	return &state.View{Stale: s.stale}
}

func (idleState) Changed() <-chan struct{} { return nil }

// renewed is a run that counts the renewals of its lease.
type renewed struct {
	Run

	times int
	done  func()
}

func (r *renewed) Renew(time.Time) error {
	r.times++
	r.done()
	return nil
}

// expiry is that of a lease that is over, or not.
func expiry(over bool) time.Time {
	if over {
		return time.Now().Add(-time.Second)
	}
	return time.Now().Add(time.Minute)
}

// TestBoundLease: a run beside other instances is over when another one can have its job, however long
// jobs.runner_lease is. Another run has that.
func TestBoundLease(t *testing.T) {
	t.Parallel()

	owned := time.Now().Add(15 * time.Second)
	ctx := cluster.WithLease(t.Context(), cluster.Token{}, func() time.Time { return owned })
	e := New(Options{
		State: idleState{read: func() {}}, Logger: logrus.New(),
		Settings: func() step.Settings { return step.Settings{Lease: time.Hour} },
	})

	if got := e.lease(ctx, job.Run{Bound: true}); !got.Before(owned.Add(-time.Second)) {
		t.Errorf("a bound run ends %s before the ownership", owned.Sub(got))
	}

	if got := e.lease(ctx, job.Run{}); time.Until(got) < time.Minute {
		t.Errorf("another run ends after %s", time.Until(got))
	}
}
