// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// TestNoNodeCanBegin: a rollout is refused while jobs hold all of its nodes, and says so in a way
// that a caller can tell from a refusal for good.
func TestNoNodeCanBegin(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2)
		l := s.leader()

		hold := func(from, to int) {
			s.mu.Lock()
			defer s.mu.Unlock()

			s.publish(func(v *state.View) {
				for i := from; i < to; i++ {
					m := v.Nodes()[i].Clone()
					m.Status, m.Job = inventory.Maintenance, "9"
					v.PutNode(&m)
				}
			})
		}

		hold(0, 1)

		p, err := l.Preview(t.Context(), ann, s.apply(nil))
		if err != nil || !strings.Contains(p.Nodes[0].Reason, "job 9") || p.Nodes[1].Reason != "" {
			t.Errorf("one of two nodes is held: %v, %+v", err, p.Nodes)
		}

		hold(1, 2)

		_, err = l.Start(t.Context(), ann, s.apply(nil))

		_, notNow := errors.AsType[*rollout.NotNowError](err)
		if !notNow || inventory.KindOf(err) != inventory.KindRefused {
			t.Errorf("all nodes are held: %v", err)
		}

		s.tasks.Wait()
	})
}

// TestOtherPlaybooks: a rollout that was decided for certain playbooks does not start with others.
func TestOtherPlaybooks(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2)
		l := s.leader()

		first, err := l.Start(t.Context(), ann, s.apply(nil))
		if err != nil || first.Playbooks == "" {
			t.Fatalf("%+v: %v", first, err)
		}
		if _, err = l.Control(t.Context(), ann, first.ID, rollout.ActAbort, rollout.ActOptions{}); err != nil {
			t.Fatal(err)
		}

		s.run(l, first.ID, time.Hour, ended)

		req := s.apply(nil)
		req.Playbooks = "another digest"

		if _, err = l.Start(t.Context(), ann, req); inventory.KindOf(err) != inventory.KindPrecondition {
			t.Errorf("other playbooks: %v", err)
		}

		if n := len(s.rollouts()); n != 1 {
			t.Errorf("%d rollouts", n)
		}

		req.Playbooks = first.Playbooks
		if _, err = l.Start(t.Context(), ann, req); err != nil {
			t.Errorf("the playbooks in use: %v", err)
		}

		s.tasks.Wait()
	})
}
