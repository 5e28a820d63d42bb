// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"

	"github.com/contiv/cluster/inventory"
)

// Sighting is the state of one node as an observer sees it at one moment.
type Sighting struct {
	Label  string
	Serial string
	Addr   string // the management address of the node; see inventory.CheckAddr

	// From is the IP address of its member in the gossip, if that is not Addr: the
	// member announces an address that is not its own, or a host name.
	From string

	// Alive is true if at least one live member claims this identity. A sink
	// creates no node for a sighting that is not alive.
	Alive bool

	// Joined is true if the node is alive and was not at the last acknowledged
	// report, or went away and came back since. It is false after a restart of
	// the observer for a node that was alive before (see Options.Before).
	Joined bool

	// Duplicate is true if live members at more than one place claim this
	// identity. Addr is then the address of the first claimant.
	Duplicate bool

	// Others lists the addresses of all claimants of a duplicate, sorted: their
	// management addresses or, where those are equal, the ip:port of their gossip.
	Others []string

	// Hardware is what the member says of its machine. A change of it alone is not reported.
	Hardware Hardware
}

// Name is the name of the node: its label, a hyphen, its serial.
func (s Sighting) Name() string { return inventory.NodeName(s.Label, s.Serial) }

// OtherClaimants returns the addresses of a duplicate without its own, the first
// inventory.MaxOthers of them; nil if the sighting is no duplicate. The conflict
// matters, not the number of hosts in it.
func (s Sighting) OtherClaimants() []string {
	if !s.Duplicate {
		return nil
	}

	isOwn := func(addr string) bool { return addr == s.Addr }
	others := slices.DeleteFunc(slices.Clone(s.Others), isOwn)

	return others[:min(len(others), inventory.MaxOthers)]
}

// same compares everything but Joined.
func (s Sighting) same(o Sighting) bool {
	return s.Label == o.Label && s.Serial == o.Serial && s.Addr == o.Addr &&
		s.From == o.From && s.Alive == o.Alive && s.Duplicate == o.Duplicate && slices.Equal(s.Others, o.Others)
}

// Report is a set of sightings, sorted by name, at most one per node.
type Report struct {
	// Full marks the observer's complete list: it does not see a node that is
	// missing from it.
	Full      bool
	Sightings []Sighting
}

// Sink records reports.
//
// Observe may block, and is called by one goroutine at a time. Its context ends
// when the observer stops or after 30 s. The report belongs to the Sink from
// then on. An error means that the report is not acknowledged: the observer
// retries with a full one.
type Sink interface {
	Observe(ctx context.Context, r Report) error
}
