// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/rollout"
)

// TestLastingError: a node whose job meets an internal error again and again does not hold up the
// others, and the record has the reason, without its text.
func TestLastingError(t *testing.T) {
	t.Parallel()

	for _, gate := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 4)
			s.refuses = func(node string) error {
				if node == "w-0001" && (!gate || s.tries[node] > 0) {
					return errors.New("open /var/lib/secret: input/output error")
				}
				return nil
			}
			l := s.leader()

			r, err := l.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) {
				o.Gate.SkipVerify, o.MaxFailures, o.MaxUnavailable = !gate, 1, "1"
			}))
			errtest.None(t, err)
			r = s.run(l, r.ID, 3*time.Hour, func(r rollout.Record) bool { return r.Count().Succeeded == 3 })
			n := r.Nodes[1]

			want := map[bool]rollout.State{false: rollout.Waiting, true: rollout.Failed}[gate]
			if r.Count().Succeeded != 3 || n.State != want || !strings.Contains(n.Reason, "internal error") ||
				strings.Contains(n.Reason, "secret") {
				t.Errorf("gate %t: %s, %+v", gate, r.Status, r.Nodes)
			}

			s.tasks.Wait()

			if gate {
				return
			}

			// It is over with the error.
			r = s.run(l, r.ID, time.Hour, func(r rollout.Record) bool { return r.Waits != "" })
			if !strings.Contains(r.Waits, "w-0001") || r.WaitsUntil.IsZero() || s.ops > 300 {
				t.Errorf("waits %q until %s, %d writes", r.Waits, r.WaitsUntil, s.ops)
			}

			s.refuses = nil
			if r = s.run(l, r.ID, time.Hour, ended); r.Status != rollout.Done || r.Count().Succeeded != 4 {
				t.Errorf("%s, %+v", r.Status, r.Nodes)
			}

			s.tasks.Wait()
		})
	}
}

// TestRefusedMeanwhile: a window that closes between the decision and the acceptance of a job
// leaves its node waiting.
func TestRefusedMeanwhile(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2)
		open, opens := true, time.Now().Add(time.Hour)
		s.allow = func(*inventory.Node, time.Time) rollout.Permission {
			return rollout.Permission{OK: open || !time.Now().Before(opens), Until: opens, Reason: "outside of nightly"}
		}
		s.refuses = func(string) error {
			if time.Now().Before(opens) {
				open = false
				return inventory.Errorf(inventory.KindRefused, "outside of nightly")
			}

			return nil
		}
		l := s.leader()

		r, err := l.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) { o.Gate.SkipVerify = true }))
		errtest.None(t, err)
		r = s.run(l, r.ID, 30*time.Minute, func(r rollout.Record) bool { return r.Waits != "" })
		if c := r.Count(); r.Status != rollout.Running || c.Waiting != 2 || !strings.Contains(r.Waits, "nightly") {
			t.Errorf("%s, %+v, %q", r.Status, c, r.Waits)
		}
		if r = s.run(l, r.ID, 2*time.Hour, ended); r.Status != rollout.Done || r.Count().Succeeded != 2 {
			t.Errorf("%s, %+v", r.Status, r.Nodes)
		}

		s.tasks.Wait()
	})
}
