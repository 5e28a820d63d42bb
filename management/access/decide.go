// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Decide is record.Decide for a caller: it decides on records that meet the precondition of the
// caller. The precondition is evaluated once more if it fails, on the records as they are then:
// the view may be older than an answer of another instance to the client.
func Decide[R any](
	ctx context.Context, s record.Store, c Caller, decide func(*record.Tx) (R, error),
) (result R, revision int64, err error) {
	behind := true

	return record.Decide(ctx, s, func(tx *record.Tx) (R, error) {
		var none R

		if c.Precondition == nil {
			return decide(tx)
		}

		v, ok := tx.Base().(*state.View)
		if !ok {
			return none, inventory.Errorf(inventory.KindInternal, "the store returns no view for a precondition")
		}

		err := c.Precondition(v)
		if behind && inventory.KindOf(err) == inventory.KindPrecondition {
			behind = false
			err = inventory.Errorf(inventory.KindConflict, "the view may be behind: %w", err)
		}

		if err != nil {
			return none, err
		}

		return decide(tx)
	})
}
