// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

var follow = []policy.UpgradeRule{{Name: "follow", All: true}}

// TestPausedPolicyHolds: while a policy is off or paused, its rollout begins no node, unless a
// person has approved it.
func TestPausedPolicyHolds(t *testing.T) {
	t.Parallel()

	for _, approved := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 2)
			s.policies.Upgrade = follow
			l := s.leader()

			r, err := l.Start(t.Context(), access.Caller{Principal: "policy:follow"}, s.apply(func(r *rollout.Spec) {
				r.RequireApproval = approved
			}))
			errtest.None(t, err)

			if approved {
				why := rollout.ActOptions{Reason: "looks good"}
				if r, err = l.Control(t.Context(), ann, r.ID, rollout.ActApprove, why); err != nil {
					t.Fatal(err)
				}
			}

			r = s.run(l, r.ID, time.Hour, ended)
			if held := strings.Contains(r.Waits, "policy follow started it: it is off"); held == approved {
				t.Errorf("approved %t: %s, waits %q", approved, r.Status, r.Waits)
			}

			s.mu.Lock()
			s.publish(func(v *state.View) {
				v.View = record.WithOne(
					v.View,
					&state.Memory,
					state.AutomationOf(v).Turn("follow", state.Switch{On: true}),
				)
			})
			s.mu.Unlock()

			if r = s.run(l, r.ID, time.Hour, ended); r.Status != rollout.Done {
				t.Errorf("%s, waits %q", r.Status, r.Waits)
			}

			s.tasks.Wait()
		})
	}
}

// TestRemovedPolicyHolds: the rollout of a policy that is no longer among the settings begins no
// node, and so does that of one that is another policy by now.
func TestRemovedPolicyHolds(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name  string
		rules policy.Settings
		want  string
	}{
		{"removed", policy.Settings{}, "policy follow started it: it is no longer among the settings"},
		{"for other nodes", policy.Settings{
			Upgrade: []policy.UpgradeRule{{Name: "follow", Selector: "label=n"}},
		}, "as policies.upgrade for all, and it is policies.upgrade for label=n now"},
		{"of another kind", policy.Settings{
			Verify: []policy.VerifyRule{{Name: "follow", All: true}},
		}, "as policies.upgrade for all, and it is policies.verify for all now"},
		{"as it was turned on", policy.Settings{Upgrade: follow}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 2)
			s.policies = c.rules

			s.mu.Lock()
			s.publish(func(v *state.View) {
				v.View = record.WithOne(v.View, &state.Memory, state.AutomationOf(v).Turn("follow",
					policy.Scoped(state.Switch{On: true, Actor: "ann"}, policy.Upgrade{Rule: follow[0]})))
			})
			s.mu.Unlock()

			l := s.leader()

			r, err := l.Start(t.Context(), access.Caller{Principal: "policy:follow"}, s.apply(nil))
			errtest.None(t, err)
			r = s.run(l, r.ID, time.Hour, ended)
			if !strings.Contains(r.Waits, c.want) || r.Status.Ended() != (c.want == "") {
				t.Errorf("%s: %s, waits %q", c.name, r.Status, r.Waits)
			}

			s.tasks.Wait()
		})
	}
}
