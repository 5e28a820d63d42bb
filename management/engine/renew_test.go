// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// TestRenewOnlyWithAuthority: an instance that may have lost the right to run
// jobs must let the leases of its runners end, because the instance that has the
// right waits for that.
func TestRenewOnlyWithAuthority(t *testing.T) {
	t.Parallel()

	for _, authorized := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		run := &renewed{done: cancel}
		e := New(Options{
			State:    still{},
			Logger:   logrus.New(),
			Settings: func() Settings { return Settings{Lease: time.Hour} },
			Authority: func() bool {
				if !authorized {
					cancel()
				}

				return authorized
			},
		})
		e.renew(ctx, "1", job.Run{}, run)

		if run.times > 0 != authorized {
			t.Errorf("authorized %t: renewed %d times", authorized, run.times)
		}
	}
}

// still is a state in which nothing happens.
type still struct{ state.Reader }

func (still) View() *state.View        { return &state.View{} }
func (still) Changed() <-chan struct{} { return nil }

// renewed is a run of which only the lease matters.
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
