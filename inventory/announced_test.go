// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAnnouncedFrom: a member of the gossip that announces another host's address does
// not get that host configured, until an ssh host key shows who is there.
func TestAnnouncedFrom(t *testing.T) {
	seen := Observation{
		Observer: ObserverGossip, Label: "a", Serial: "1", Addr: "10.0.0.9", From: "10.0.0.66", Alive: true,
	}
	n, _ := NewNode(seen, nil, time.Now())

	commission, _ := TransitionOf(VerbCommission)

	err := commission.Check(n)
	if e, ok := errors.AsType[*Error](err); !ok || e.Kind != KindRefused || !strings.Contains(e.Message, "10.0.0.66") ||
		!slices.ContainsFunc(e.Actions, TrustHostKey("a-1").Equal) {
		t.Fatalf("it is believed: %v", err)
	}

	// Observers outside the gossip, and a loss, do not clear the suspicion.
	for _, o := range []Observation{
		{Observer: ObserverPost, Label: "a", Serial: "1", Addr: "10.0.0.9", Alive: true},
		{Observer: "rack1", Label: "a", Serial: "1", Addr: "10.0.0.9", Alive: true},
		{Observer: ObserverGossip, Label: "a", Serial: "1", Addr: "10.0.0.9"},
	} {
		if m, _, _ := n.Observe(o, time.Now()); m.AnnouncedFrom != "10.0.0.66" {
			t.Errorf("%s clears it", o.Observer)
		}
	}

	trusted := n.Clone()
	trusted.HostKeys = []string{"ssh-ed25519 AAAA"}

	if err := commission.Check(trusted); err != nil {
		t.Errorf("with a host key: %v", err)
	}

	seen.From = ""

	own, _, changed := n.Observe(seen, time.Now())
	if err := commission.Check(own); err != nil || !changed {
		t.Errorf("from its own address: %v, changed %t", err, changed)
	}

	// A node without a word from the gossip can be cleaned up all the same.
	decommission, _ := TransitionOf(VerbDecommission)
	n.Status = Allocated

	if err := decommission.Check(n); err != nil {
		t.Errorf("decommission: %v", err)
	}
}
