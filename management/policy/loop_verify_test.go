// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/window"
)

// nightWatch is a site of which all nodes are verified each day at three, two at a time. A
// bubble begins at midnight.
func nightWatch(t *testing.T, nodes int) *site {
	s := newSite(t, nodes)

	times, err := window.ParseTimes("0 3 * * *", "")
	errtest.None(t, err)

	s.settings.Verify = []VerifyRule{{
		Name: "nightly", Match: func(n *inventory.Node) bool { return n.Label == "n" }, Selector: "label=n",
		Times: times, Batch: 2, Jobs: 1,
	}}

	return s
}

// verifications counts the verifications of each node that were not cancelled.
func (s *site) verifications() map[string]int {
	count := map[string]int{}

	for _, j := range s.View().Jobs() {
		if j.Verb != inventory.VerbVerify || j.Cancel > 0 {
			continue
		}

		for _, t := range j.Targets {
			count[t.Name]++
		}
	}

	return count
}

func (s *site) wantVerified(when string, times int) {
	s.t.Helper()

	count := s.verifications()
	for _, n := range s.View().Nodes() {
		if count[n.Name] != times {
			s.t.Errorf("%s: %s was verified %d times, want %d", when, n.Name, count[n.Name], times)
		}
	}
}

// TestNightWatch: each node is verified once a day, few at a time. A manager that was down for
// days makes up for it once.
func TestNightWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := nightWatch(t, 7)
		l := s.leader()

		s.run(l, 4*time.Hour)
		s.wantVerified("off", 0)

		if _, err := l.Enable(t.Context(), ann, "nightly", false, ""); err != nil {
			t.Fatal(err)
		}

		s.run(l, 12*time.Hour)
		s.wantVerified("turned on after the time", 0)
		s.run(l, 24*time.Hour)
		s.wantVerified("a day", 1)

		// No manager leads for a week, less ten hours: it is six in the morning then.
		s.leads = false
		s.run(l, (7*24-10)*time.Hour)
		s.wantVerified("no manager leads", 1)

		s.leads = true

		s.run(s.leader(), 2*time.Hour)
		s.wantVerified("after a week", 2)
		s.run(s.leader(), 9*time.Hour)
		s.wantVerified("not many times", 2)
		s.run(s.leader(), 24*time.Hour)
		s.wantVerified("the next day", 3)

		if s.busiest != 1 {
			t.Errorf("%d jobs at a time", s.busiest)
		}

		for _, j := range s.View().Jobs() {
			if j.Actor != "policy:nightly" || len(j.Targets) > 2 ||
				!strings.Contains(j.Reason, "scheduled verification") {
				t.Errorf("%+v", j)
			}
		}
	})
}

// TestNightWatchKilled at each of its operations: no node is verified twice.
func TestNightWatchKilled(t *testing.T) {
	t.Parallel()

	killedAnywhere(t, 2, func(t *testing.T, crash int, late bool) bool {
		s := nightWatch(t, 3)
		if _, err := s.leader().Enable(t.Context(), ann, "nightly", false, ""); err != nil {
			t.Fatal(err)
		}
		s.crash, s.late = crash, late
		s.run(s.leader(), 5*time.Hour)

		reached := s.revive()
		s.run(s.leader(), 5*time.Hour)
		s.wantVerified("killed", 1)

		if !reached && crash < 5 {
			t.Errorf("only %d operations", crash)
		}

		return reached
	})
}

// TestNightWatchMoved: another schedule begins with its next time, also after a restart.
func TestNightWatchMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := nightWatch(t, 3)

		if _, err := s.leader().Enable(t.Context(), ann, "nightly", false, ""); err != nil {
			t.Fatal(err)
		}

		s.run(s.leader(), 18*time.Hour)
		s.wantVerified("the first night", 1)

		times, err := window.ParseTimes("0 16 * * *", "")
		errtest.None(t, err)

		s.mu.Lock()
		s.settings.Verify[0].Times = times
		s.mu.Unlock()

		// It is six in the afternoon.
		s.run(s.leader(), 12*time.Hour)
		s.run(s.leader(), 6*time.Hour)
		s.wantVerified("the time of today was before the change", 1)
		s.run(s.leader(), 6*time.Hour)
		s.wantVerified("the day after", 2)
	})
}
