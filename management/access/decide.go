// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Decide is record.Decide for a caller: it decides on records on which the caller may change the subject,
// and that meet its precondition. That is evaluated once more if it fails, on the records as they are
// then: the view may be older than an answer of another instance to the client.
func Decide[R any](
	ctx context.Context, s record.Store, c Caller, subject Subject, decide func(*record.Tx) (R, error),
) (result R, revision int64, err error) {
	return decideAs(ctx, s, c, subject, func() (none R, found bool, err error) { return none, false, nil }, decide)
}

// decideAs decides only if replay finds nothing.
func decideAs[R any](
	ctx context.Context, s record.Store, c Caller, subject Subject,
	replay func() (r R, found bool, err error), decide func(*record.Tx) (R, error),
) (result R, revision int64, err error) {
	behind := true

	// The records are read before replay, so that a result which that misses is a conflict.
	return record.Decide(ctx, s, func(tx *record.Tx) (R, error) {
		result, found, err := replay()
		if found || err != nil {
			return result, err
		}

		tx.DependOn(c.Depends...)

		err = c.meets(func() *state.View { return state.ViewOf(tx) }, subject)
		if behind && inventory.KindOf(err) == inventory.KindPrecondition {
			behind = false
			err = inventory.Errorf(inventory.KindConflict, "the view may be behind: %w", err)
		}

		if err != nil {
			return result, err
		}

		return decide(tx)
	})
}
