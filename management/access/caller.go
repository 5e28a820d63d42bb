// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/state"
)

// Caller is the origin of a mutation and the terms it sets.
type Caller struct {
	// Principal is the identity behind the request: an account, "http:ADDRESS", "monitor:OBSERVER",
	// or Manager for a decision of the manager itself.
	Principal string
	// Precondition must hold for the change to be made. nil: none.
	Precondition Precondition
	// Key makes the change idempotent. nil: a retry repeats the change.
	Key *Key
}

// Manager is the principal of decisions that the manager takes by itself.
const Manager = "clusterm"

// Precondition refuses a change with KindPrecondition unless the view meets
// it. It is evaluated on the view that the change is decided on. The guard of
// the write protects that view until the change is stored.
type Precondition func(*state.View) error

// Check evaluates the precondition on v, and once more on the newest view if it
// fails: v may be older than an answer of another instance to the client. It
// returns the view that meets the precondition.
func (p Precondition) Check(ctx context.Context, r state.Reader, v *state.View) (*state.View, error) {
	if p == nil {
		return v, nil
	}

	err := p(v)
	if inventory.KindOf(err) != inventory.KindPrecondition {
		return v, err
	}

	if err := r.Sync(ctx); err != nil {
		return v, err
	}

	// The write is guarded by this view, so the decision must use it too.
	v = r.View()

	return v, p(v)
}
