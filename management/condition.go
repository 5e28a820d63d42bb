// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"

	"github.com/contiv/cluster/inventory"
)

// Condition is what a change depends on beside the rules. It is judged on the
// very view that the change is decided on, and the store refuses the write
// where what the view shows of it is no longer so. It returns
// KindPrecondition where it does not hold. nil: none.
type Condition func(*View) error

// Holds returns the view on which the condition holds: v, or a newer one, since
// a view may be behind what a client has read elsewhere.
func (c Condition) Holds(ctx context.Context, store interface {
	View() *View
	Sync(ctx context.Context) error
}, v *View) (*View, error) {
	if c == nil {
		return v, nil
	}

	err := c(v)
	if inventory.KindOf(err) != inventory.KindPrecondition {
		return v, err
	}

	if err := store.Sync(ctx); err != nil {
		return v, err
	}

	v = store.View()

	return v, c(v)
}
