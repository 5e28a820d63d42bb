// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

const (
	// watchEvery is how often the BMCs are asked.
	watchEvery = 5 * time.Minute
	// watchAtOnce is how many BMCs are asked at a time.
	watchAtOnce = 100
	// watchBatch is how many records are written in one transaction.
	watchBatch = 50
	// problemLimit bounds the problem in a record, in bytes.
	problemLimit = 300
)

// Asker is asked for the power of a machine: a bmc.Pool.
type Asker interface {
	Power(ctx context.Context, b machine.BMC) (bmc.Power, error)
}

// Record has what a BMC said.
type Record func(ctx context.Context, seen ...Seen) error

// Seen is what the BMC of a node said.
type Seen struct {
	Node  string
	Power bmc.Power
	Err   error // it did not
}

// RecordIn returns a Record that keeps the power in a store. Only changes are written.
func RecordIn(s record.Store) Record {
	return func(ctx context.Context, seen ...Seen) error {
		for part := range slices.Chunk(seen, watchBatch) {
			if _, _, err := record.Decide(ctx, s, func(tx *record.Tx) (any, error) {
				for _, one := range part {
					keep(tx, one, time.Now())
				}
				return nil, nil
			}); err != nil {
				return err
			}
		}

		return nil
	}
}

// keep writes the power of a node if it has changed, and removes it without a BMC. It returns what is recorded then.
func keep(tx *record.Tx, seen Seen, now time.Time) (is inventory.Power) {
	if !record.Get(tx, &state.Machines, seen.Node).HasBMC() {
		record.Remove(tx, &state.Powers, seen.Node)
		return is
	}

	was := record.Get(tx, &state.Powers, seen.Node)
	if was == nil {
		was = &inventory.Power{Node: seen.Node}
	}

	problem := ""
	if seen.Err != nil {
		problem = inventory.Shorten(inventory.Printable(seen.Err.Error()), problemLimit)
	}

	is = was.Observed(string(seen.Power), problem, now)
	is.LoginRefused = errors.Is(seen.Err, bmc.ErrLogin)

	if is != *was {
		record.Put(tx, &state.Powers, &is)
	}

	return is
}

// WatchOptions are the dependencies of Watch.
type WatchOptions struct {
	State  state.Reader
	Leads  func() bool
	Asker  Asker
	Record Record
	Every  time.Duration // how often the BMCs are asked; 0: every 5 minutes
	Logger logrus.FieldLogger
}

// watchPace is the shortest time between two looks at the machines that were registered meanwhile.
const watchPace = time.Second

// Watch returns the loop of the leader that keeps the power of all registered machines: one that is registered, or
// reached in another way, is asked at once, and all of them are in turn.
func Watch(o WatchOptions) *control.Loop {
	if o.Every == 0 {
		o.Every = watchEvery
	}

	var (
		asked map[string]machine.BMC // in this term
		again time.Time              // when all are asked
	)

	return control.New(control.Options{
		Name: "power of the machines", Duty: o.Leads, Logger: o.Logger,
		Begin: func(context.Context) error {
			asked, again = nil, time.Time{}
			return nil
		},
		Round: func(ctx context.Context) (control.Next, error) {
			all := machines(o.State.View())
			due := maps.Clone(all)

			if now := time.Now(); now.Before(again) {
				maps.DeleteFunc(due, func(name string, b machine.BMC) bool { return asked[name] == b })
			} else {
				again = now.Add(o.Every)
			}
			asked = all

			return control.Next{At: again}, o.look(ctx, due)
		},
		Changed: o.State.Changed,
		Pace:    watchPace,
		Every:   o.Every,
		Backoff: time.Second,
		Trouble: "the power of machines could not be recorded; retrying",
	})
}

// machines returns the BMCs of all registered machines.
func machines(v *state.View) map[string]machine.BMC {
	all := map[string]machine.BMC{}

	for name := range record.All(v, &state.Machines) {
		// One without a password is asked once that can be read.
		if b, err := (Registered{}).Of(v, name); err == nil {
			all[name] = b
		}
	}

	return all
}

// look asks the BMCs that are due, and records what they say.
func (o WatchOptions) look(ctx context.Context, due map[string]machine.BMC) error {
	seen := Ask(ctx, o.Asker, due)
	if ctx.Err() != nil {
		return ctx.Err()
	}

	return o.Record(ctx, append(seen, o.gone()...)...)
}

// Ask asks BMCs, given by node, for the power of their machines, many at a time.
func Ask(ctx context.Context, a Asker, of map[string]machine.BMC) []Seen {
	names := slices.Sorted(maps.Keys(of))
	seen := make([]Seen, len(names))
	slots := make(chan struct{}, watchAtOnce)

	var tasks sync.WaitGroup

	for i, name := range names {
		slots <- struct{}{}

		tasks.Go(func() {
			defer func() { <-slots }()
			power, err := a.Power(ctx, of[name])
			seen[i] = Seen{Node: name, Power: power, Err: err}
		})
	}

	tasks.Wait()

	return seen
}

// gone returns the nodes with a record of their power, but without a BMC.
func (o WatchOptions) gone() []Seen {
	var gone []Seen

	v := o.State.View()
	for name := range record.All(v, &state.Powers) {
		if !record.Get(v, &state.Machines, name).HasBMC() {
			gone = append(gone, Seen{Node: name})
		}
	}

	return gone
}
