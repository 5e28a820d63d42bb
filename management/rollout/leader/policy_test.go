// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// TestPausedPolicyHolds: while a policy is off or paused, its rollout begins no node, unless a
// person has approved it.
func TestPausedPolicyHolds(t *testing.T) {
	t.Parallel()

	for _, approved := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 2)
			l := s.leader()

			r, err := l.Start(t.Context(), access.Caller{Principal: "policy:follow"}, s.apply(func(r *rollout.Spec) {
				r.RequireApproval = approved
			}))
			if err != nil {
				t.Fatal(err)
			}

			if approved {
				if r, err = l.Approve(t.Context(), ann, r.ID, "looks good"); err != nil {
					t.Fatal(err)
				}
			}

			r = s.run(l, r.ID, time.Hour, ended)
			if held := strings.Contains(r.Waits, "policy follow started it: it is off"); held == approved {
				t.Errorf("approved %t: %s, waits %q", approved, r.Status, r.Waits)
			}

			s.mu.Lock()
			s.publish(func(v *state.View) { v.Automation = v.Automation.Turn("follow", state.Switch{On: true}) })
			s.mu.Unlock()

			if r = s.run(l, r.ID, time.Hour, ended); r.Status != rollout.Done {
				t.Errorf("%s, waits %q", r.Status, r.Waits)
			}

			s.tasks.Wait()
		})
	}
}
