// SPDX-License-Identifier: Apache-2.0

package window

import (
	"context"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Options are the dependencies of a Keeper.
type Options struct {
	Store    record.Store
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
	Freeze  Freeze
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
	s := Status{Now: time.Now(), Freeze: FreezeOf(v)}

	for _, w := range k.Calendar().Windows() {
		one := WindowStatus{Window: w, Closes: w.Open(s.Now), Opens: w.Next(s.Now)}

		for _, n := range v.Nodes() {
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
func (k *Keeper) Freeze(ctx context.Context, c access.Caller, until time.Time, reason string) (Freeze, error) {
	now := time.Now()

	switch {
	case reason == "":
		return Freeze{}, inventory.Errorf(inventory.KindInvalid, "a freeze needs a reason").Do("give a reason")
	case !until.IsZero() && !until.After(now):
		return Freeze{}, inventory.Errorf(inventory.KindInvalid, "the freeze would end at %s, which is over",
			until.UTC().Format(time.RFC3339)).Do("give a time to come")
	}

	return k.change(ctx, c, "freeze.on", reason, func(f *Freeze) error {
		// A freeze in the place of another one goes on with it, so the time of its beginning stays.
		if !f.Active(now) {
			f.Since = now
		}

		f.On, f.Until, f.Actor, f.Reason = true, until, c.Principal, reason
		return nil
	})
}

// Lift ends the freeze. It is KindRefused if there is none.
func (k *Keeper) Lift(ctx context.Context, c access.Caller, reason string) (Freeze, error) {
	return k.change(ctx, c, "freeze.off", reason, func(f *Freeze) error {
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
	ctx context.Context, c access.Caller, action, reason string, change func(*Freeze) error,
) (Freeze, error) {
	if err := inventory.CheckReason(reason); err != nil {
		return Freeze{}, err
	}

	var out Freeze

	err := access.Audited(
		ctx,
		k.Audit,
		c,
		access.Record{Action: action, Reason: reason},
		func(ctx context.Context, _ *access.Record) (err error) {
			out, _, err = access.Decide(ctx, k.Store, c, nil, func(tx *record.Tx) (Freeze, error) {
				f := FreezeOf(tx)
				if err := change(&f); err != nil {
					return f, err
				}
				record.Put(tx, &FreezeKind, &f)
				return f, nil
			})

			return err
		},
	)

	return out, err
}
