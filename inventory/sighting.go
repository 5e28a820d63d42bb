// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxConflict bounds the text about a conflict, in bytes.
const maxConflict = 400

// Sighting is what one observer says about a node that it sees alive.
type Sighting struct {
	Addr   string    `json:"addr"`             // the address of the node
	Others []string  `json:"others,omitempty"` // addresses of other live members with its identity
	Since  time.Time `json:"since,omitzero"`   // since when the observer says so; absent if it is not known
}

func (s Sighting) equal(t Sighting) bool {
	return s.Addr == t.Addr && slices.Equal(s.Others, t.Others) && s.Since.Equal(t.Since)
}

// fillSightings completes a record of a former version, which had no sightings: what it
// holds is what its observers said.
func (n *Node) fillSightings() {
	if n.Sightings == nil {
		n.Sightings = map[string]Sighting{}
	}

	for observer, alive := range n.Seen {
		if _, known := n.Sightings[observer]; alive && !known {
			n.Sightings[observer] = Sighting{Addr: n.Addr, Others: n.Duplicates}
		}
	}
}

// sight records the observation of a live node.
func (n *Node) sight(o Observation, at time.Time) {
	s := Sighting{Addr: o.Addr, Since: at}

	// A POST covers a single host, so it is no evidence on others.
	if o.Observer != ObserverPost {
		s.Others = slices.Sorted(slices.Values(o.Others))
	}

	former := n.Sightings[o.Observer]
	if s.Since = former.Since; !s.equal(former) {
		s.Since = at
	}

	n.Sightings[o.Observer] = s
}

// observers lists the observers that see the node alive in the order in which their
// address counts: the manager's own gossip, then monitors from the one that has said
// the same for the longest time, reports by POST last. So a later report redirects nothing.
func (n *Node) observers() []string {
	rank := map[string]int{ObserverGossip: -1, ObserverPost: 1}

	return slices.SortedFunc(maps.Keys(n.Sightings), func(a, b string) int {
		return cmp.Or(
			cmp.Compare(rank[a], rank[b]), n.Sightings[a].Since.Compare(n.Sightings[b].Since), cmp.Compare(a, b))
	})
}

// settle derives state, address and duplicates from what all observers say.
func (n *Node) settle() {
	n.State = Disappeared

	claimed := map[string]bool{}
	for i, observer := range n.observers() {
		s := n.Sightings[observer]
		if i == 0 {
			n.State = Discovered
			if n.Addr != s.Addr {
				n.Addr, n.SetAside = s.Addr, nil
			}
		}

		for _, addr := range append([]string{s.Addr}, s.Others...) {
			claimed[addr] = true
		}
	}

	delete(claimed, n.Addr)
	n.SetAside = slices.DeleteFunc(n.SetAside, func(addr string) bool { return !claimed[addr] })

	for _, addr := range n.SetAside {
		delete(claimed, addr)
	}

	n.Duplicates = slices.Sorted(maps.Keys(claimed))
	n.Duplicates = n.Duplicates[:min(len(n.Duplicates), MaxOthers)] // a conflict matters, not the number of hosts
}

// Conflict says in brackets who claims the node at which addresses; "" if there is no
// conflict, or nothing is known of it.
func (n Node) Conflict() string {
	if len(n.Duplicates) == 0 || len(n.Sightings) == 0 {
		return ""
	}

	var claims []string
	for _, observer := range n.observers() {
		s := n.Sightings[observer]
		claims = append(claims, observer+" sees it at "+strings.Join(append([]string{s.Addr}, s.Others...), " and "))
	}

	return " (" + Shorten(strings.Join(claims, ", "), maxConflict) + ")"
}

// SetAsideOthers returns a copy for which the present claims at other addresses do not
// count, since an operator knows the host at its address.
func (n Node) SetAsideOthers() Node {
	m := n.Clone()
	m.fillSightings()
	m.SetAside = append(m.SetAside, m.Duplicates...)
	m.Duplicates = nil
	return m
}
