// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"sync"

	"github.com/contiv/cluster/management/restore"
	"github.com/contiv/cluster/management/state"
)

// runAutomation runs the policies and the rollouts. After a restore it pauses them first: the records may be of another
// time than the hosts.
func (d *Daemon) runAutomation(ctx context.Context) {
	warn := func(err error) { d.opts.Logger.WithError(err).Warn("automation does not begin yet") }
	automation := restore.Automation{
		DataDir: d.file.DataDir, State: d.store, Records: d.store,
		PausePolicies: d.policies.Pause, PauseRollouts: d.rollouts.PauseAll,
	}

	err := state.RetryUnavailable(ctx, retryEvery, warn, func() error { return automation.Pause(ctx) })
	if err != nil && ctx.Err() == nil {
		d.opts.Logger.WithError(err).Error("it is not known whether the data directory was restored from a backup")
	}

	var all sync.WaitGroup

	all.Go(func() { d.policies.Run(ctx) })
	all.Go(func() { d.rollouts.Run(ctx) })
	all.Wait()
}
