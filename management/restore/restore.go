// SPDX-License-Identifier: Apache-2.0

// Package restore lets a manager whose store is of an earlier time wait for an operator: the records may differ from
// the hosts. Run restores a backup without a daemon, and Pause stops automation at the first start after it.
package restore

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/cluster/datadir"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// The reasons why automation is paused.
const (
	movedReason    = "the data directory was restored from a backup, or copied: what happened since then is not in it"
	restoredReason = "the store was restored from a backup: what happened since then is not in it"
)

// Automation is what decides by itself.
type Automation struct {
	DataDir    string
	State      interface{ View() *state.View }
	Records    record.Store
	Logger     logrus.FieldLogger
	RetryEvery time.Duration // between two attempts to reach the store
	Policies   Policies
	Rollouts   Rollouts
}

// Policies decide by themselves until the context of Run ends.
type Policies interface {
	Pause(ctx context.Context, c access.Caller, name, reason string) (api.Policies, error)
	Run(ctx context.Context)
}

// Rollouts go on by themselves until the context of Run ends.
type Rollouts interface {
	PauseAll(ctx context.Context, c access.Caller, reason string) error
	Run(ctx context.Context)
}

// Run runs the policies and the rollouts until ctx ends. After a restore it pauses them first.
func (a Automation) Run(ctx context.Context) {
	warn := func(err error) { a.Logger.WithError(err).Warn("automation does not begin yet") }

	err := state.RetryUnavailable(ctx, a.RetryEvery, warn, func() error { return a.Pause(ctx) })
	if err != nil && ctx.Err() == nil {
		a.Logger.WithError(err).Error("it is not known whether the data directory was restored from a backup")
	}

	var all sync.WaitGroup

	all.Go(func() { a.Policies.Run(ctx) })
	all.Go(func() { a.Rollouts.Run(ctx) })
	all.Wait()
}

// Pause pauses automation once after a restore of the data directory or of the store.
func (a Automation) Pause(ctx context.Context) error {
	moved, settle, err := datadir.Moved(a.DataDir)
	if err != nil {
		return err
	}

	v := a.State.View()
	epoch := record.One(v, &state.Epochs)
	restored := epoch.Restored != nil && !epoch.Restored.Paused

	if moved {
		err = a.pause(ctx, movedReason)
	} else if restored {
		err = a.pause(ctx, restoredReason)
	}
	if err != nil {
		return err
	}

	if restored {
		noted := *epoch.Restored
		noted.Paused, epoch.Restored = true, &noted

		// Another instance may have been faster.
		before := record.Revision(v, &state.Epochs, "")
		_, err := record.Replace(ctx, a.Records, &state.Epochs, "", before, &epoch)
		if err != nil && inventory.KindOf(err) != inventory.KindConflict {
			return err
		}
	}

	return settle()
}

func (a Automation) pause(ctx context.Context, reason string) error {
	caller := access.Caller{Principal: access.Manager}
	if _, err := a.Policies.Pause(ctx, caller, state.AllPolicies, reason); err != nil {
		return err
	}

	return a.Rollouts.PauseAll(ctx, caller, reason)
}
