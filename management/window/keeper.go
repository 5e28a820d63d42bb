// SPDX-License-Identifier: Apache-2.0

package window

import (
	"context"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// Store keeps the freeze.
type Store interface {
	// PutFreeze stores the freeze, if it is still at f.Revision. Else it is KindConflict
	// and changes nothing. It returns once the view shows the write.
	PutFreeze(ctx context.Context, f state.Freeze) error
}

// Options are the dependencies of a Keeper.
type Options struct {
	State    state.Reader
	Store    Store
	Calendar func() Calendar // in force; it must not block
	Audit    access.Auditor
}

// Keeper freezes changes, and shows the windows. All methods may be called at once.
type Keeper struct{ Options }

// NewKeeper returns a keeper.
func NewKeeper(o Options) *Keeper { return &Keeper{o} }

// Status is the windows and the freeze at one time.
type Status struct {
	Now     time.Time
	Freeze  state.Freeze
	Windows []WindowStatus
}

// WindowStatus is one window at one time.
type WindowStatus struct {
	*Window

	Closes time.Time // zero: it is closed
	Opens  time.Time // the next opening; zero: none
	Nodes  int       // that the window is for
}

// Status returns the windows, the freeze and the time of both.
func (k *Keeper) Status(v *state.View) Status {
	s := Status{Now: time.Now(), Freeze: v.Freeze}

	for _, w := range k.Calendar().Windows() {
		one := WindowStatus{Window: w, Closes: w.Open(s.Now), Opens: w.Next(s.Now)}

		for _, n := range v.Nodes {
			if w.Concerns(n) {
				one.Nodes++
			}
		}

		s.Windows = append(s.Windows, one)
	}

	return s
}

// Freeze holds back every job that would change a host: until the time, or until Lift if
// that is zero. It takes the place of an earlier freeze. Jobs that run go on.
func (k *Keeper) Freeze(ctx context.Context, c access.Caller, until time.Time, reason string) (state.Freeze, error) {
	now := time.Now()

	switch {
	case reason == "":
		return state.Freeze{}, inventory.Errorf(inventory.KindInvalid, "a freeze needs a reason").Do("give a reason")
	case !until.IsZero() && !until.After(now):
		return state.Freeze{}, inventory.Errorf(inventory.KindInvalid, "the freeze would end at %s, which is over",
			until.UTC().Format(time.RFC3339)).Do("give a time to come")
	}

	return k.change(ctx, c, "freeze.on", reason, func(f *state.Freeze) error {
		// A freeze in the place of another one goes on with it, so the time of its beginning stays.
		if !f.Active(now) {
			f.Since = now
		}

		f.On, f.Until, f.Actor, f.Reason = true, until, c.Principal, reason

		return nil
	})
}

// Lift ends the freeze. It is KindRefused if there is none.
func (k *Keeper) Lift(ctx context.Context, c access.Caller, reason string) (state.Freeze, error) {
	return k.change(ctx, c, "freeze.off", reason, func(f *state.Freeze) error {
		if !f.Active(time.Now()) {
			return inventory.Errorf(inventory.KindRefused, "nothing is frozen").
				Do("list the windows").With(inventory.ListWindows())
		}

		f.On, f.Since, f.Until, f.Actor, f.Reason = false, time.Now(), time.Time{}, c.Principal, reason

		return nil
	})
}

// change changes the freeze, and leaves the audit record.
func (k *Keeper) change(
	ctx context.Context, c access.Caller, action, reason string, change func(*state.Freeze) error,
) (state.Freeze, error) {
	var out state.Freeze

	if err := job.CheckReason(reason); err != nil {
		return out, err
	}

	record := access.Record{Action: action, Reason: reason}

	err := access.Audited(ctx, k.Audit, c, record, func(*access.Record) error {
		return state.RetryConflict(ctx, k.State, func(v *state.View) error {
			v, err := c.Precondition.Check(ctx, k.State, v)
			if err != nil {
				return err
			}

			// A conflict runs this again, so each try begins with the freeze as it is stored then.
			out = v.Freeze
			if err := change(&out); err != nil {
				return err
			}

			return k.Store.PutFreeze(ctx, out)
		})
	})

	return out, err
}
