// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/rollout/gate"
	"github.com/contiv/cluster/management/state"
)

// newRollouts makes the part that drives rollout.
func (d *Daemon) newRollouts() *rollout.Loop {
	return rollout.New(rollout.Options{
		State: d.store, Records: d.store, Store: d.store, Jobs: d.engine, Leads: d.member.Leads, Audit: d.audit,
		Settings: func() rollout.Settings {
			s := d.settings.Engine()

			return rollout.Settings{
				Groups: s.Groups, JobLimit: s.JobLimit, Incomplete: s.Incomplete, Commands: d.settings.GateCommands(),
			}
		},
		Ask: func(ctx context.Context, url string) (int, error) { return gate.Ask(ctx, d.store.View(), url) },
		Command: func(ctx context.Context, name string, n rollout.CommandNode, within time.Duration) error {
			command, err := d.settings.GateCommand(name)
			if err != nil {
				return err
			}
			return gate.Run(ctx, command, n, within)
		},
		Allowed: d.rolloutAllowed,
		Permits: d.rolloutPermits,
		Halted: func(a state.Automation, r rollout.Record) string {
			return policy.HaltedRollout(d.settings.Policies(), a, r)
		},
		Logger: d.opts.Logger.WithField("part", "rollouts"),
	})
}

// rolloutAllowed reports whether the maintenance windows permit the job of a node now. A
// verification is always permitted.
func (d *Daemon) rolloutAllowed(
	v *state.View, r rollout.Record, n *inventory.Node, now time.Time,
) rollout.Permission {
	if r.Spec.Action.Verifies() {
		return rollout.Permission{OK: true}
	}

	verdict := d.settings.Windows().Allowed(v, n, now, r.Spec.Group)
	return rollout.Permission{OK: verdict.OK, Until: verdict.Until, Reason: verdict.Reason}
}

// rolloutPermits returns whether the budgets of the groups permit nodes to be out of service
// together with those in progress. A verification needs none.
func (d *Daemon) rolloutPermits(v *state.View, r rollout.Record, working []string) rollout.Permits {
	if r.Spec.Action.Verifies() {
		return func(*inventory.Node) (bool, string) { return true, "" }
	}

	taking := d.settings.Groups().Taking(v.Nodes(), working)

	return func(n *inventory.Node) (bool, string) {
		if err := taking.Take(n); err != nil {
			return false, job.Message(err)
		}
		return true, ""
	}
}
