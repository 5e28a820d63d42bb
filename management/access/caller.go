// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Caller is the origin of a mutation and the terms it sets.
type Caller struct {
	// Principal is the identity behind the request: an account, "http:ADDRESS", "monitor:OBSERVER",
	// or Manager for a decision of the manager itself.
	Principal string
	// Precondition must hold for the change to be made. nil: none.
	Precondition Precondition
	// Depends are the kinds of record that Precondition reads beyond what guards the change anyway: the change is
	// decided again if one of them was written meanwhile.
	Depends []record.Any
	// Key makes the change idempotent. nil: a retry repeats the change.
	Key *Key
	// Scope limits what the change may concern; nil: nothing does. Check and Decide enforce it.
	Scope *Filter
}

// authorize returns an error unless the caller may change the subject, as it is in the view.
func (c Caller) authorize(v func() *state.View, subject Subject) error {
	switch {
	case subject == nil && c.Scope.All():
		return nil
	case subject == nil:
		return state.ErrWhole("the request is about no nodes of a scope")
	}

	if err := subject(c.Scope.View(v())); err != nil {
		return state.Unknown{Err: err}
	}

	return nil
}

// meets returns an error unless the caller may change the subject, and its precondition holds.
func (c Caller) meets(v func() *state.View, subject Subject) error {
	if err := c.authorize(v, subject); err != nil || c.Precondition == nil {
		return err
	}
	return c.Precondition(v())
}

// Check returns the view that a change is decided on, or an error unless the caller may change the
// subject and its precondition holds. What fails on v is evaluated once more on the newest view: v may be
// older than an answer of another instance to the client. The write is guarded by the view that is
// returned.
func (c Caller) Check(ctx context.Context, r state.Reader, v *state.View, subject Subject) (*state.View, error) {
	err := c.meets(func() *state.View { return v }, subject)
	if inventory.KindOf(err) != inventory.KindPrecondition {
		return v, err
	}

	if err := r.Sync(ctx); err != nil {
		return v, err
	}

	v = r.View()

	return v, c.meets(func() *state.View { return v }, subject)
}

// Manager is the principal of decisions that the manager takes by itself.
const Manager = "clusterm"

// Precondition refuses a change with KindPrecondition unless the view meets
// it. It is evaluated on the view that the change is decided on. The guard of
// the write protects that view until the change is stored.
type Precondition func(*state.View) error
