// SPDX-License-Identifier: Apache-2.0

// Package restore lets a manager whose store is of an earlier time wait for an operator: the records may differ from
// the hosts. Run restores a backup without a daemon, and Pause stops automation at the first start after it.
package restore

import (
	"context"

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
	DataDir string
	State   interface{ View() *state.View }
	Records record.Store

	PausePolicies func(ctx context.Context, c access.Caller, name, reason string) (api.Policies, error)
	PauseRollouts func(ctx context.Context, c access.Caller, reason string) error
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
	if _, err := a.PausePolicies(ctx, caller, state.AllPolicies, reason); err != nil {
		return err
	}

	return a.PauseRollouts(ctx, caller, reason)
}
