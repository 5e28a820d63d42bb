// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
)

// TestKeepRight: an instance that may have lost the right to run jobs does not
// prolong what it runs: who has the right waits for its end.
func TestKeepRight(t *testing.T) {
	t.Parallel()

	for _, right := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		run := &renewed{done: cancel}
		s := New(
			Options{
				Store:    still{},
				Logger:   logrus.New(),
				Settings: func() Settings { return Settings{Lease: time.Hour} },
				Authority: func() bool {
					if !right {
						cancel()
					}

					return right
				},
			},
		)
		s.keep(ctx, "1", Run{}, run)

		if run.times > 0 != right {
			t.Errorf("with the right: %t; renewed: %d times", right, run.times)
		}
	}
}

// still is a store in which nothing happens.
type still struct{ Store }

func (still) View() *View              { return &View{} }
func (still) Changed() <-chan struct{} { return nil }

// renewed is a run of which only the lease matters.
type renewed struct {
	ActiveRun
	times int
	done  func()
}

func (r *renewed) Renew(time.Time) error {
	r.times++
	r.done()

	return nil
}
