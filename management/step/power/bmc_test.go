// SPDX-License-Identifier: Apache-2.0

package power_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// bmcs are the BMCs of some machines, and outlive a manager.
type bmcs struct {
	kind string

	mu    sync.Mutex
	power map[string]string // by node; no entry: there is no BMC
	dead  []string          // do not answer
	slow  map[string]bool   // answer when their caller gives up, or to the next call after reached
	calls map[string]int

	reached chan string // receives the names of slow ones that are called
}

// newBMCs returns one BMC for each node. Their machines are on.
func newBMCs(nodes ...string) *bmcs {
	b := &bmcs{
		kind: "Redfish", power: map[string]string{}, slow: map[string]bool{}, calls: map[string]int{},
		reached: make(chan string, len(nodes)),
	}
	for _, name := range nodes {
		b.power[name] = "on"
	}

	return b
}

func (b *bmcs) has(node string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	_, ok := b.power[node]
	return ok
}

// set switches a machine.
func (b *bmcs) set(ctx context.Context, node, to string) error {
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

	b.power[node] = to

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
