// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/rollout"
)

// TestSoakOverJumps: a node soaks for its true time, wherever the clock jumps to meanwhile.
func TestSoakOverJumps(t *testing.T) {
	for name, jumps := range map[string][]time.Duration{
		"even":         {0},
		"forward":      {24 * time.Hour},
		"a bit":        {7 * time.Minute},
		"back":         {-24 * time.Hour},
		"back a bit":   {-7 * time.Minute},
		"to and fro":   {24 * time.Hour, 0},
		"fro and to":   {-24 * time.Hour, 0, 9 * time.Minute},
		"with a pause": {time.Hour, time.Hour, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const soak = 10 * time.Minute

				var wrong atomic.Int64

				began := time.Now()
				s := newSite(t, 1)
				l := s.leader()
				l.Clock = func() (time.Time, time.Duration) {
					return time.Now().Add(time.Duration(wrong.Load())), time.Since(began)
				}

				r, err := l.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) {
					o.Gate.SkipVerify, o.Soak = true, soak
				}))
				errtest.None(t, err)
				soaks := func(r rollout.Record) bool { return r.Nodes[0].State == rollout.Soaking }
				s.run(l, r.ID, time.Hour, soaks)

				start := time.Now()

				for _, by := range jumps {
					wrong.Store(int64(by))
					s.run(l, r.ID, time.Minute, func(r rollout.Record) bool { return !soaks(r) })
				}

				r = s.run(l, r.ID, time.Hour, ended)
				if took := time.Since(start); r.Status != rollout.Done || took < soak || took > soak+time.Minute {
					t.Errorf("%s after a soak of %s", r.Status, took)
				}

				s.tasks.Wait()
			})
		})
	}
}

// TestSoakAfterTakeOver: a leader that takes over goes on with the soak by its own clock, and begins
// it anew if the former clock was ahead.
func TestSoakAfterTakeOver(t *testing.T) {
	t.Parallel()

	for ahead, want := range map[time.Duration]time.Duration{
		0:         10 * time.Minute,
		time.Hour: 14 * time.Minute, // four minutes are over at the takeover
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			s := newSite(t, 1)
			former := s.leader()
			former.Clock = func() (time.Time, time.Duration) { return time.Now().Add(ahead), time.Since(began) }

			r, err := former.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) {
				o.Gate.SkipVerify, o.Soak = true, 10*time.Minute
			}))
			errtest.None(t, err)
			s.run(former, r.ID, time.Hour, func(r rollout.Record) bool { return r.Nodes[0].State == rollout.Soaking })

			start := time.Now()
			s.run(former, r.ID, 4*time.Minute, ended)

			r = s.run(s.leader(), r.ID, time.Hour, ended)
			if took := time.Since(start); r.Status != rollout.Done || (took-want).Abs() > time.Minute {
				t.Errorf("%s ahead: %s after %s, want %s", ahead, r.Status, took, want)
			}

			s.tasks.Wait()
		})
	}
}
