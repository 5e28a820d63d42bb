// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"time"

	"github.com/contiv/cluster/configuration/repository"
	outside "github.com/contiv/cluster/configuration/source"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/rollout"
	rollouts "github.com/contiv/cluster/management/rollout/leader"
	"github.com/contiv/cluster/management/state"
)

// newRollouts makes the part that drives rollouts.
func (d *Daemon) newRollouts() *rollouts.Leader {
	return rollouts.New(rollouts.Options{
		State: d.store, Records: d.store, Store: d.store, Jobs: d.engine, Leads: d.member.Leads, Audit: d.audit,
		Settings: func() rollouts.Settings {
			s := d.settings.Engine()

			return rollouts.Settings{
				Groups: s.Groups, JobLimit: s.JobLimit, Incomplete: s.Incomplete, Commands: d.settings.GateCommands(),
			}
		},
		Command: d.runGate,
		Allowed: d.rolloutAllowed,
		Permits: d.rolloutPermits,
		Halted: func(a state.Automation, name string) string {
			return policy.Halted(a, policy.Named(d.settings.Policies(), name))
		},
		Logger: d.opts.Logger.WithField("part", "rollouts"),
	})
}

// runGate runs a command of a gate for a node.
func (d *Daemon) runGate(ctx context.Context, name string, n rollouts.CommandNode, within time.Duration) error {
	command, err := d.settings.GateCommand(name)
	if err != nil {
		return err
	}

	// An account that can change the program has the rights of the manager.
	path, err := repository.CheckOwnedFile(command[0])
	if err != nil {
		return err
	}

	return outside.Check(ctx, within, []string{
		"CLUSTERM_NODE=" + n.Name, "CLUSTERM_ADDR=" + n.Addr, "CLUSTERM_GROUP=" + n.Group,
		"CLUSTERM_ROLLOUT=" + n.Rollout,
	}, path, command[1:]...)
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

	taking := d.settings.Groups().Taking(v.Nodes, working)

	return func(n *inventory.Node) (bool, string) {
		if err := taking.Take(n); err != nil {
			return false, job.Message(err)
		}

		return true, ""
	}
}
