// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	rollouts "github.com/contiv/cluster/management/rollout/leader"
)

// newRollouts makes the part that drives rollouts.
func (d *Daemon) newRollouts() *rollouts.Leader {
	return rollouts.New(rollouts.Options{
		State: d.store, Store: d.store, Jobs: d.engine, Leads: d.member.Leads, Audit: d.audit,
		Settings: func() rollouts.Settings {
			s := d.settings.Engine()
			return rollouts.Settings{Groups: s.Groups, JobLimit: s.JobLimit, Incomplete: s.Incomplete}
		},
		Logger: d.opts.Logger.WithField("part", "rollouts"),
	})
}
