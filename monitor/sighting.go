// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"

	"github.com/contiv/cluster/inventory"
)

// Sighting is what an observer says about one node at one moment.
type Sighting struct {
	Label  string
	Serial string
	Addr   string // the address the node is managed under; see inventory.CheckAddr

	// Alive tells whether at least one live member claims this identity. A
	// sighting that is not alive says nothing about a node nobody knows: it
	// is no reason to record one.
	Alive bool

	// Joined is true when the node is alive and was not at the observer's
	// last recorded word, or went away and came back since. An observer that
	// restarts and finds a node as it left it does not report it as joined.
	Joined bool

	// Duplicate is true when live members at more than one place claim this
	// identity. Addr is then the address of the one that was there first.
	Duplicate bool

	// Others lists the addresses of all claimants of a duplicate, sorted: the
	// address each is managed under or, where those are equal, the ip:port
	// each gossips from.
	Others []string
}

// Name is the name of the node: its label, a hyphen, its serial.
func (s Sighting) Name() string { return inventory.NodeName(s.Label, s.Serial) }

// same reports whether both say the same, Joined aside.
func (s Sighting) same(o Sighting) bool {
	return s.Label == o.Label && s.Serial == o.Serial && s.Addr == o.Addr &&
		s.Alive == o.Alive && s.Duplicate == o.Duplicate && slices.Equal(s.Others, o.Others)
}

// Report is a set of sightings, sorted by name, one for each node.
type Report struct {
	// Full says that this is the observer's complete list: it does not see
	// any node that is missing from it.
	Full      bool
	Sightings []Sighting
}

// Sink records reports.
//
// Observe may block, and is called by one goroutine at a time. Its context ends
// when the observer stops or the call has taken too long. The report belongs to
// the Sink from then on. An error means that nothing of the report counts as
// recorded; the observer says it again, merged with what happened since.
type Sink interface {
	Observe(ctx context.Context, r Report) error
}
