// SPDX-License-Identifier: Apache-2.0

package power_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step/power"
)

// bmcs are the BMCs of some machines, and outlive a manager.
type bmcs struct {
	mu    sync.Mutex
	power map[string]string // by node; no entry: there is no BMC
	boots map[string]bmc.Boot
	seen  map[string]string // the power that was recorded
	dead  []string          // do not answer
	slow  map[string]bool   // answer when their caller gives up, or to the next call after reached
	calls map[string]int

	reached chan string // receives the names of slow ones that are called
}

// newBMCs returns one BMC for each node. Their machines are on.
func newBMCs(nodes ...string) *bmcs {
	b := &bmcs{
		power:   map[string]string{},
		boots:   map[string]bmc.Boot{},
		seen:    map[string]string{},
		slow:    map[string]bool{},
		calls:   map[string]int{},
		reached: make(chan string, len(nodes)),
	}
	for _, name := range nodes {
		b.power[name] = "on"
	}

	return b
}

// Of returns the BMC of a node. Its address is the name of the node.
func (b *bmcs) Of(_ *state.View, node string) (machine.BMC, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if _, known := b.power[node]; !known {
		return machine.BMC{}, power.ErrNone
	}

	return machine.BMC{Address: node}, nil
}

// Boot sets what a machine boots from.
func (b *bmcs) Boot(_ context.Context, of machine.BMC, boot bmc.Boot) error {
	b.change(func() { b.boots[of.Address] = boot })
	return nil
}

// SetPassword changes no password: that is tested with the records of machines.
func (*bmcs) SetPassword(context.Context, machine.BMC) error { return errors.ErrUnsupported }

// Act switches a machine.
func (b *bmcs) Act(ctx context.Context, of machine.BMC, a bmc.Action) error {
	node := of.Address

	b.mu.Lock()
	b.calls[node]++
	slow := b.slow[node]
	b.mu.Unlock()

	if slow {
		b.reached <- node
		<-ctx.Done()
		return ctx.Err()
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	if slices.Contains(b.dead, node) {
		return errors.New("the BMC does not answer")
	}

	b.power[node] = string(a)

	return nil
}

// record keeps what a job has seen of the power.
func (b *bmcs) record(_ context.Context, seen ...power.Seen) error {
	b.change(func() {
		for _, one := range seen {
			b.seen[one.Node] = string(one.Power)
		}
	})

	return nil
}

// is returns the machines with their power.
func (b *bmcs) is() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.power)
}

// change changes the BMCs.
func (b *bmcs) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}
