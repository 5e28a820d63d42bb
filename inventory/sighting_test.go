// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// seenBy is a node to which observations are applied one after the other.
type seenBy struct {
	Node
	entries []HistoryEntry
}

// sees applies an observation of a live node at an address.
func (n *seenBy) sees(observer, addr string, others ...string) {
	o := observation(observer, true)
	o.Addr, o.Others = addr, others
	n.observe(o)
}

func (n *seenBy) loses(observer string) { n.observe(observation(observer, false)) }

func (n *seenBy) observe(o Observation) {
	m, entry, _ := n.Observe(o, noon.Add(time.Duration(n.Entries)*time.Second))
	if entry != nil {
		n.entries = append(n.entries, *entry)
	}
	n.Node = m
}

// refused counts the verbs that the node refuses of those that are legal for its status.
func (n *seenBy) refused() (count int) {
	for _, row := range Lifecycle {
		if slices.Contains(row.From, n.Status) && row.Check(n.Node) != nil {
			count++
		}
	}

	return count
}

// TestObserversDisagree: no report of another observer redirects a node or lifts a fence,
// and a conflict is one entry in the history, whatever the number of reports.
func TestObserversDisagree(t *testing.T) {
	t.Parallel()

	const here, there = "10.0.0.1", "10.0.0.2"

	allocated := 0
	for _, row := range Lifecycle {
		if slices.Contains(row.From, Allocated) {
			allocated++
		}
	}

	for name, c := range map[string]struct {
		reports    func(n *seenBy)
		addr       string
		duplicates []string
		entries    int // beyond the first sighting
	}{
		"a monitor at another address": {
			func(n *seenBy) { n.sees("gossip", here); n.sees("m2", there) }, here, []string{there}, 1,
		},
		"a monitor that was first": {
			func(n *seenBy) { n.sees("m2", there); n.sees("gossip", here) }, here, []string{there}, 1,
		},
		"one event over plain HTTP": {
			func(n *seenBy) { n.sees("gossip", here); n.sees(ObserverPost, there) }, here, []string{there}, 1,
		},
		"many reports of two": {
			func(n *seenBy) {
				for range 20 {
					n.sees("m1", here)
					n.sees("m2", there)
				}
			}, here, []string{there}, 1,
		},
		"a monitor that knows of no duplicate": {
			func(n *seenBy) { n.sees("gossip", here, there); n.sees("m2", here) }, here, []string{there}, 0,
		},
		"a monitor that sees the other host only": {
			func(n *seenBy) { n.sees("gossip", here, there); n.sees("m2", there, here) }, here, []string{there}, 0,
		},
		"the other observer comes to agree": {
			func(n *seenBy) { n.sees("gossip", here); n.sees("m2", there); n.sees("m2", here) }, here, nil, 2,
		},
		"the gossip moves to the address of the other": {
			func(n *seenBy) { n.sees("gossip", here); n.sees("m2", there); n.sees("gossip", there) }, there, nil, 2,
		},
		"the other observer loses it": {
			func(n *seenBy) { n.sees("gossip", here); n.sees("m2", there); n.loses("m2") }, here, nil, 2,
		},
		"the other monitor is silent": {
			func(n *seenBy) {
				n.sees("gossip", here)
				n.sees("m2", there)

				m, entry := n.Withdraw("m2", "silence", noon)
				if n.Node = m; entry != nil {
					n.entries = append(n.entries, *entry)
				}
			}, here, nil, 2,
		},
		"the gossip loses it": {
			func(n *seenBy) { n.sees("gossip", here); n.sees("m2", there); n.loses("gossip") }, there, nil, 2,
		},
		"all agree": {
			func(n *seenBy) { n.sees("gossip", here); n.sees("m2", here); n.sees(ObserverPost, here) }, here, nil, 0,
		},
		"nobody sees it": {
			func(n *seenBy) { n.sees("gossip", here); n.sees("m2", there); n.loses("m2"); n.loses("gossip") },
			here, nil, 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			n := seenBy{Node: Node{
				Name: "node-1", Label: "node", Serial: "1", Addr: "10.9.9.9", Status: Allocated, Group: GroupMaster,
				State: Unknown, HostKeys: []string{"ssh-ed25519 AAAA"},
			}}
			c.reports(&n)

			if n.Addr != c.addr || !slices.Equal(n.Duplicates, c.duplicates) {
				t.Errorf("it is at %s, also claimed at %v; want %s, %v", n.Addr, n.Duplicates, c.addr, c.duplicates)
			}

			if got := len(n.entries) - 1; got != c.entries {
				t.Errorf("the history has %d further entries, want %d:\n%s", got, c.entries, texts(n.entries))
			}

			want := 0
			if c.duplicates != nil {
				want = allocated
			}
			if n.State == Discovered && n.refused() != want {
				t.Errorf("%d of %d verbs are refused, want %d", n.refused(), allocated, want)
			}
		})
	}
}

func texts(entries []HistoryEntry) (all string) {
	for _, e := range entries {
		all += fmt.Sprintf("%s %s: %s\n", e.Verb, e.State, e.Reason)
	}

	return all
}

// TestSetAside: an operator who knows the host sets claims aside, until they change.
func TestSetAside(t *testing.T) {
	t.Parallel()

	n := seenBy{Node: Node{Name: "node-1", Label: "node", Serial: "1", Status: Allocated, State: Unknown}}
	n.sees("gossip", "10.0.0.1")
	n.sees("m2", "10.0.0.2")
	n.Node = n.SetAsideOthers()

	want := func(what string, duplicates ...string) {
		t.Helper()

		if !slices.Equal(n.Duplicates, duplicates) || (n.refused() > 0) != (duplicates != nil) {
			t.Errorf("%s: it is also claimed at %v, and %d verbs are refused; want %v",
				what, n.Duplicates, n.refused(), duplicates)
		}
	}
	want("set aside")

	n.sees("m2", "10.0.0.2")
	n.sees("gossip", "10.0.0.1")
	want("the same reports again")

	n.sees("m3", "10.0.0.3")
	want("a further claim", "10.0.0.3")

	n.loses("m3")
	n.loses("m2")
	n.sees("m2", "10.0.0.2")
	want("the claim ended and came back", "10.0.0.2")

	n.Node = n.SetAsideOthers()
	n.sees("gossip", "10.0.0.4")
	want("the node moved", "10.0.0.2")
}

// TestFormerRecord: a node of a version without sightings keeps its fence and its address
// until the observers that made them report again.
func TestFormerRecord(t *testing.T) {
	t.Parallel()

	n := seenBy{Node: Node{
		Name: "node-1", Label: "node", Serial: "1", Addr: "10.0.0.1", Status: Allocated, State: Discovered,
		Seen: map[string]bool{"gossip": true, "m3": false}, Duplicates: []string{"10.0.0.2"},
	}}
	n.sees("m2", "10.0.0.1")

	if n.Addr != "10.0.0.1" || !slices.Equal(n.Duplicates, []string{"10.0.0.2"}) {
		t.Errorf("another monitor changed it to %s, %v", n.Addr, n.Duplicates)
	}

	n.sees("gossip", "10.0.0.1")

	if len(n.Duplicates) > 0 || len(n.Sightings) != 2 {
		t.Errorf("the gossip sees no duplicate any more: %v, %v", n.Duplicates, n.Sightings)
	}
}
