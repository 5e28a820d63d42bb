// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"maps"

	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/appear"
	"github.com/contiv/cluster/management/step/playbook"
	"github.com/contiv/cluster/management/step/probe"
)

// newExecutors returns the executors of all kinds of step, and the playbooks among them.
func (d *Daemon) newExecutors() (step.Executors, *playbook.Executor) {
	settings := func() step.Settings { return d.settings.Engine().Settings }
	playbooks := playbook.New(playbook.Options{
		State:     d.store,
		Inputs:    d.store,
		Runner:    d.programs,
		Playbooks: d.programs,
		Content:   d.programs,
		Sources:   d.secrets,
		Settings:  settings,
		Logger:    d.opts.Logger,
	})
	all := step.Executors{
		job.StepPlaybook: playbooks,
		job.StepProbe:    probe.New(probe.Options{State: d.store, Prober: d.programs.Prober, Settings: settings}),
		job.StepAppear: appear.New(appear.Options{
			State: d.store, Store: d.store, Settings: settings, Keys: playbooks.HostKeys,
		}),
	}
	maps.Copy(all, d.opts.Executors)

	return all, playbooks
}
