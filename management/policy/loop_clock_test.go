// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/state"
)

// TestClockJumps: a master that was lost a moment before the clock jumped by a day is replaced
// after its time only, and a record from the future holds nothing up.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := roleSite(t, 3, 1)
		if _, err := s.leader().Enable(t.Context(), ann, "site", false, ""); err != nil {
			t.Fatal(err)
		}

		var wrong atomic.Int64

		began := time.Now()
		l := s.leader()
		l.Clock = func() (time.Time, time.Duration) {
			return time.Now().Add(time.Duration(wrong.Load())), time.Since(began)
		}

		s.run(l, time.Minute)

		s.boots[name(0)] = ""
		s.see(false, 0)
		wrong.Store(int64(24 * time.Hour))
		s.run(l, 29*time.Minute)

		if m := s.inGroup(inventory.GroupMaster); m != "n-000 n-001 n-002" {
			t.Fatalf("masters %s; %s", m, s.jobs())
		}

		// The clock was ahead as it was lost.
		wrong.Store(0)
		s.publish(func(v *state.View) {
			n := v.Nodes()[0].Clone()
			n.Presence.Since, n.Presence.Lost = time.Now().AddDate(1, 0, 0), time.Now().AddDate(1, 0, 0)
			n.Revision = v.Revision
			v.PutNode(&n)
		})
		s.run(l, 29*time.Minute)

		if m := s.inGroup(inventory.GroupMaster); m != "n-000 n-001 n-002" {
			t.Fatalf("masters %s; %s", m, s.jobs())
		}

		s.run(l, time.Hour)

		if m := s.inGroup(inventory.GroupMaster); !strings.Contains(m, "n-003") {
			t.Errorf("masters %s; %s; %+v", m, s.jobs(), s.View().Nodes()[0].Presence)
		}
	})
}

// TestClockDecisions: a decision is given up after its true age, also if the clock jumps.
func TestClockDecisions(t *testing.T) {
	t.Parallel()

	const year = 365 * 24 * time.Hour

	for _, c := range []struct {
		before, after time.Duration // how wrong the clock is as the decision is taken, and then
		wait          time.Duration // until it can be carried out
		phase         state.Phase
	}{
		{0, 0, forget - time.Hour, state.PhaseDone},
		{0, 0, forget + time.Hour, state.PhaseWithdrawn},
		{-year, 0, time.Minute, state.PhaseDone},
		{-year, 0, forget + time.Hour, state.PhaseWithdrawn},
		{year, 0, time.Minute, state.PhaseDone},
		{year, 0, forget + time.Hour, state.PhaseWithdrawn},
		{0, year, time.Minute, state.PhaseDone},
		{0, -year, forget + time.Hour, state.PhaseWithdrawn},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 5)
			wrong, began := atomic.Int64{}, time.Now()
			l := s.leader()
			l.Clock = func() (time.Time, time.Duration) {
				return time.Now().Add(time.Duration(wrong.Load())), time.Since(began)
			}

			lead := func(leads bool) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.leads = leads
			}

			wrong.Store(int64(c.before))
			lead(false)
			s.run(l, time.Minute)
			s.publish(func(v *state.View) {
				setMemory(v, state.AutomationOf(v).With(state.Decision{
					ID: "1", Time: time.Now().Add(c.before), Policy: "returns", Node: name(3),
					Action: state.ActionRecord, Phase: state.PhaseDecided,
				}))
			})
			wrong.Store(int64(c.after))
			s.run(l, c.wait)
			lead(true)
			s.run(l, 2*time.Minute)

			if d := state.AutomationOf(s.View()).Decisions; len(d) != 1 || d[0].Phase != c.phase {
				t.Errorf("from %s to %s, after %s: %+v", c.before, c.after, c.wait, d)
			}
		})
	}
}
