// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"sync"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/cluster/datadir"
	"github.com/contiv/cluster/management/state"
)

// restoredReason is why automation is paused after a restore.
const restoredReason = "the data directory was restored from a backup, or copied: what happened since then is not in it"

// runAutomation runs the policies and the rollouts. After a restore of the data directory it pauses
// them first: the records may be of another time than the hosts.
func (d *Daemon) runAutomation(ctx context.Context) {
	warn := func(err error) { d.opts.Logger.WithError(err).Warn("automation does not begin yet") }

	err := state.RetryUnavailable(ctx, retryEvery, warn, func() error { return d.pauseRestored(ctx) })
	if err != nil && ctx.Err() == nil {
		d.opts.Logger.WithError(err).Error("it is not known whether the data directory was restored from a backup")
	}

	var all sync.WaitGroup

	all.Go(func() { d.policies.Run(ctx) })
	all.Go(func() { d.rollouts.Run(ctx) })
	all.Wait()
}

func (d *Daemon) pauseRestored(ctx context.Context) error {
	moved, settle, err := datadir.Moved(d.file.DataDir)
	if err != nil {
		return err
	}

	if moved {
		caller := access.Caller{Principal: access.Manager}
		if _, err := d.policies.Pause(ctx, caller, state.AllPolicies, restoredReason); err != nil {
			return err
		}

		if err := d.rollouts.PauseAll(ctx, caller, restoredReason); err != nil {
			return err
		}
	}

	return settle()
}
