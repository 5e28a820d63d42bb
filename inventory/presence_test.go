// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"
	"time"
)

// TestPresence follows the evidence of a node through two absences.
func TestPresence(t *testing.T) {
	t.Parallel()

	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	see := func(n Node, alive bool, at time.Time) Node {
		m, _, _ := n.Observe(observation(ObserverGossip, alive), at)
		return m
	}

	n, _ := NewNode(observation(ObserverGossip, true), nil, noon)
	if n.Presence.Pending() || !n.Presence.Since.Equal(noon) {
		t.Errorf("a new node: %+v", n.Presence)
	}
	n = n.Contacted(Contact{Time: at(1), Reached: true, Boot: "a"})
	n = see(n, false, at(2))
	n = n.Contacted(Contact{Time: at(3), Reason: "no route"})

	if p := n.Presence; p.Boot != "a" || !p.Lost.Equal(at(2)) || p.Away.Reason != "no route" || p.Pending() {
		t.Errorf("while it is away: %+v", p)
	}

	n = see(n, true, at(4))
	n = n.Contacted(Contact{Time: at(5), Reason: "not yet"})

	if p := n.Presence; !p.Pending() || p.Boot != "a" || p.Back.Boot != "" || !p.Returned().Equal(at(4)) {
		t.Errorf("after its return: %+v", p)
	}

	n = n.Contacted(Contact{Time: at(6), Reached: true, Boot: "b"})
	n = n.Contacted(Contact{Time: at(7), Reason: "a moment of silence"})

	if p := n.Presence; p.Boot != "a" || p.Back.Boot != "b" {
		t.Errorf("after its answer: %+v", p)
	}

	n, entry := n.Decided(Trigger{Actor: "policy:returns", Reason: "verify", Time: at(8)})
	if n.Presence.Pending() || entry.Verb != VerbReturned || entry.From != entry.To {
		t.Errorf("after the decision: %+v, %+v", n.Presence, entry)
	}

	// The boot id that was read last is the one to compare with.
	n = see(see(n, false, at(9)), true, at(10))
	if p := n.Presence; !p.Pending() || p.Boot != "b" || !p.Away.Time.IsZero() || p.ReturnsSince(at(4)) != 2 {
		t.Errorf("after the second return: %+v", p)
	}
	for i := range 20 {
		n = see(see(n, false, at(20+2*i)), true, at(21+2*i))
	}

	if p := n.Presence; len(p.Returns) != MaxReturns || !p.Returned().Equal(at(59)) {
		t.Errorf("after many returns: %v", p.Returns)
	}
}

// TestWithdrawnPresence: a node whose last observer fell silent is away.
func TestWithdrawnPresence(t *testing.T) {
	t.Parallel()

	n, _ := NewNode(observation("m", true), nil, noon)

	n, _ = n.Withdraw("m", "silent", noon.Add(time.Minute))
	if !n.Presence.Lost.Equal(noon.Add(time.Minute)) {
		t.Errorf("%+v", n.Presence)
	}
}

func TestQuarantine(t *testing.T) {
	t.Parallel()

	for _, s := range Statuses {
		n, _ := NewNode(observation(ObserverGossip, true), nil, noon)

		n.Status, n.Group = s.Status, "service-worker"
		if s.InProgress {
			n.Job = "7"
		}

		err := n.CheckQuarantine()
		if legal := s.Status == Allocated || s.Status == Unallocated; (err == nil) != legal {
			t.Errorf("%s: %v", s.Status, err)
		}

		m, entry := n.Quarantine(Trigger{Actor: "policy:returns", Reason: "another host", Time: noon})
		if m.Status != Quarantined || m.LastError != "another host" || m.Group != n.Group || entry.From != s.Status {
			t.Errorf("%s: %+v, %+v", s.Status, m, entry)
		}
	}
}

// TestPresenceAhead: a return is pending although a clock that was ahead has recorded the
// decision on an earlier one, and the times of that clock are not known any more.
func TestPresenceAhead(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	later := now.Add(400 * 24 * time.Hour)

	n := Node{Name: "n-1", Label: "n", Serial: "1", State: Disappeared, Status: Allocated, Presence: Presence{
		Since: later, Lost: later, Handled: later.Add(-time.Hour), Returns: []time.Time{now.Add(-time.Hour), later},
		Away: Contact{Time: later, Silent: true}, Boot: "b",
	}}

	alive := Observation{Observer: ObserverGossip, Label: "n", Serial: "1", Addr: "192.0.2.1", Alive: true}
	m, _, _ := n.Observe(alive, now)

	p := m.Presence
	if !p.Pending() || !p.Since.Equal(now) || p.Newest().After(now) || !p.Lost.IsZero() ||
		p.Boot != "b" || !p.Away.Time.IsZero() {
		t.Errorf("%+v", p)
	}

	for _, pending := range []bool{true, false} {
		p := Presence{Since: later, Returns: []time.Time{later}, Handled: later}
		if pending {
			p.Handled = later.Add(-time.Second)
		}
		if q := p.Until(now); q.Pending() != pending || q.Newest().After(now) || !q.Returned().Equal(now) {
			t.Errorf("pending %t: %+v", pending, q)
		}
	}
}
