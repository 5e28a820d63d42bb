// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// Rollouts returns the settings of the rollouts.
func (s *Settings) Rollouts() rollout.Settings {
	c, refused := s.inForce()
	return rollout.Settings{
		Groups: c.Groups, JobLimit: c.Jobs.Limit, Incomplete: refused, Commands: sortedKeys(c.GateCommands),
	}
}

// AllowsRollout reports whether the maintenance windows permit the job of a node now. A
// verification is always permitted.
func (s *Settings) AllowsRollout(
	v *state.View, r rollout.Record, n *inventory.Node, now time.Time,
) rollout.Permission {
	if r.Spec.Action.Verifies() {
		return rollout.Permission{OK: true}
	}

	verdict := s.Windows().Allowed(v, n, now, r.Spec.Group)
	return rollout.Permission{OK: verdict.OK, Until: verdict.Until, Reason: verdict.Reason}
}

// RolloutPermits returns whether the budgets of the groups permit nodes to be out of service
// together with those in progress. A verification needs none.
func (s *Settings) RolloutPermits(v *state.View, r rollout.Record, working []string) rollout.Permits {
	if r.Spec.Action.Verifies() {
		return func(*inventory.Node) (bool, string) { return true, "" }
	}

	taking := s.Groups().Taking(v.Nodes(), working)

	return func(n *inventory.Node) (bool, string) {
		if err := taking.Take(n); err != nil {
			return false, job.Message(err)
		}
		return true, ""
	}
}
