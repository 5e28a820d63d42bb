// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/state"
)

// newPolicies makes the automation of the manager.
func (d *Daemon) newPolicies() *policy.Loop {
	return policy.New(policy.Options{
		State: d.store, Store: d.store, Jobs: d.engine, Rollouts: d.rollouts, Prober: d.programs.Pinger,
		Settings: d.policySettings,
		Leads:    d.member.Leads, Observed: d.nodes.Observed, Audit: d.audit,
		Logger: d.opts.Logger.WithField("part", "policies"),
		Count: func(name string, action state.Action) {
			d.decisions.WithLabelValues(name, string(action)).Inc()
		},
		Halted: d.noteBrake,
	})
}

// policySettings returns the settings of the policies, with the outdated parts of nodes.
func (d *Daemon) policySettings() policy.Settings {
	s := d.settings.Policies()
	s.Outdated = func(v *state.View, n *inventory.Node) []inventory.Part { return d.desired.Of(v).Judge(n).Differs }
	s.TakenBack = func(v *state.View, n *inventory.Node) string { return d.desired.Of(v).TakenBack(n, nil) }
	s.Playbooks = func(v *state.View) state.Playbooks { return d.desired.Of(v).Playbooks() }
	return s
}

// noteBrake shows the state of the brake to the supervisor and in the log.
func (d *Daemon) noteBrake(text string) {
	if text == "" {
		d.opts.Logger.Info("automation goes on")
		d.status(serving)
		return
	}

	d.opts.Logger.Warn(text)
	d.status(serving + "; " + text)
}
