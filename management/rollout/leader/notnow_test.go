// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"errors"
	"testing"
	"testing/synctest"

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
					m := v.Nodes[i].Clone()
					m.Status, m.Job = inventory.Maintenance, "9"
					v.Nodes[i] = &m
				}
			})
		}

		hold(0, 1)

		if _, err := l.Preview(t.Context(), ann, s.apply(nil)); err != nil {
			t.Error("one of two nodes is held:", err)
		}

		hold(1, 2)

		_, err := l.Start(t.Context(), ann, s.apply(nil))
		if _, notNow := errors.AsType[*rollout.NotNowError](err); !notNow || inventory.KindOf(err) != inventory.KindRefused {
			t.Errorf("all nodes are held: %v", err)
		}

		s.tasks.Wait()
	})
}
