// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func same(a, b Node) bool { return reflect.DeepEqual(a, b) }

func word1(observer string, alive bool) Observation {
	return Observation{Observer: observer, Label: "node", Serial: "1", Addr: "10.0.0.1", Alive: alive}
}

func TestNewNode(t *testing.T) {
	t.Parallel()

	n, e := NewNode(word1("gossip", true), nil, noon)
	if n.Name != "node-1" || n.Status != Unallocated || n.State != Discovered || n.PrevState != Unknown || n.Addr != "10.0.0.1" ||
		n.LastError != "" || n.Revision != 0 ||
		n.Entries != 1 ||
		!n.Created.Equal(noon) ||
		!n.Updated.Equal(noon) {
		t.Errorf("%+v", n)
	}

	if e.Seq != 1 || e.Verb != VerbDiscovered || e.From != "" || e.To != Unallocated || e.State != Discovered ||
		e.Actor != "monitor:gossip" {
		t.Errorf("%+v", e)
	}

	if m, _ := NewNode(word1("gossip", false), nil, noon); m.State != Disappeared {
		t.Errorf("a first word that it is gone makes it %s", m.State)
	}
}

func TestNewNodeWithTombstone(t *testing.T) {
	t.Parallel()
	grave := &Tombstone{
		Name:     "node-1",
		Label:    "node",
		Serial:   "1",
		HostKeys: []string{"ssh-ed25519 AAAA"},
		Time:     noon.Add(-time.Hour),
	}

	n, e := NewNode(word1("gossip", true), grave, noon)
	if n.Status != Quarantined || n.State != Discovered || !slices.Equal(n.HostKeys, grave.HostKeys) ||
		!strings.Contains(n.LastError, "forgotten on 2026-01-02T11:00:00Z") {
		t.Errorf("%+v", n)
	}

	if e.To != Quarantined || e.Reason != n.LastError {
		t.Errorf("%+v", e)
	}

	n.HostKeys[0] = "changed"
	if grave.HostKeys[0] == "changed" {
		t.Error("the node shares its keys with the tombstone")
	}
}

// TestObserve applies words in order and looks at the state after each.
func TestObserve(t *testing.T) {
	t.Parallel()
	gossip, post, agent := word1("gossip", true), word1(ObserverPost, true), word1("agent-b", true)
	lost := func(w Observation) Observation { w.Alive = false; return w }
	joined := func(w Observation) Observation { w.Joined = true; return w }
	at := func(w Observation, addr string) Observation { w.Addr = addr; return w }
	twins := func(w Observation, others ...string) Observation { w.Others = others; return w }

	type step struct {
		word    Observation
		state   State
		entry   Verb // "": none
		changed bool
		also    func(Node) bool
	}
	for name, steps := range map[string][]step{
		"one observer loses it and sees it again": {
			{gossip, Discovered, VerbDiscovered, true, nil},
			{gossip, Discovered, "", false, nil},
			{lost(gossip), Disappeared, VerbDisappeared, true, func(n Node) bool { return n.PrevState == Discovered }},
			{lost(gossip), Disappeared, "", false, nil},
			{gossip, Discovered, VerbDiscovered, true, func(n Node) bool { return n.PrevState == Disappeared }},
		},
		"it is seen while any observer sees it": {
			{gossip, Discovered, VerbDiscovered, true, nil},
			{agent, Discovered, "", true, nil},
			{lost(gossip), Discovered, "", true, nil},
			{lost(agent), Disappeared, VerbDisappeared, true, nil},
		},
		"the word of a post holds until it says otherwise": {
			{post, Discovered, VerbDiscovered, true, nil},
			{gossip, Discovered, "", true, nil},
			{lost(gossip), Discovered, "", true, nil},
			{lost(post), Disappeared, VerbDisappeared, true, nil},
		},
		"the word of a post holds until gossip sees the node join anew": {
			{post, Discovered, VerbDiscovered, true, nil},
			{joined(gossip), Discovered, "", true, func(n Node) bool { _, ok := n.Seen[ObserverPost]; return !ok }},
			{lost(gossip), Disappeared, VerbDisappeared, true, nil},
		},
		"a post says it is gone, then it joins": {
			{gossip, Discovered, VerbDiscovered, true, nil},
			{lost(gossip), Disappeared, VerbDisappeared, true, nil},
			{lost(post), Disappeared, "", true, nil},
			{joined(gossip), Discovered, VerbDiscovered, true, func(n Node) bool { return len(n.Seen) == 1 }},
		},
		"a post that says joined does not take itself back": {
			{joined(post), Discovered, VerbDiscovered, true, func(n Node) bool { return n.Seen[ObserverPost] }},
		},
		"it comes at another address": {
			{gossip, Discovered, VerbDiscovered, true, nil},
			{at(gossip, "10.0.0.9"), Discovered, "", true, func(n Node) bool { return n.Addr == "10.0.0.9" }},
			{at(lost(gossip), "10.0.0.7"), Disappeared, VerbDisappeared, true, func(n Node) bool { return n.Addr == "10.0.0.9" }},
		},
		"two hosts claim to be it": {
			{twins(gossip, "10.0.0.3", "10.0.0.2"), Discovered, VerbDiscovered, true, func(n Node) bool {
				return slices.Equal(n.Duplicates, []string{"10.0.0.2", "10.0.0.3"})
			}},
			{twins(gossip, "10.0.0.2", "10.0.0.3"), Discovered, "", false, nil},
			{post, Discovered, "", true, func(n Node) bool { return len(n.Duplicates) == 2 }}, // a post cannot tell
			{lost(post), Discovered, "", true, func(n Node) bool { return len(n.Duplicates) == 2 }},
			{gossip, Discovered, "", true, func(n Node) bool { return n.Duplicates == nil }},
			{twins(gossip, "10.0.0.2"), Discovered, "", true, nil},
			{lost(gossip), Disappeared, VerbDisappeared, true, func(n Node) bool { return n.Duplicates == nil }},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := Node{
				Name:       "node-1",
				Label:      "node",
				Serial:     "1",
				Addr:       "10.0.0.1",
				Status:     Allocated,
				PrevStatus: Provisioning,
				State:      Unknown,
				PrevState:  Unknown,
				Group:      GroupMaster,
				Applied:    "4",
				Revision:   5,
			}
			for i, s := range steps {
				before := n.Clone()
				at := noon.Add(time.Duration(i) * time.Minute)

				m, entry, changed := n.Observe(s.word, at)
				if !same(n, before) {
					t.Fatalf("step %d changed the node it was given", i)
				}

				if m.State != s.state || changed != s.changed || (entry != nil) != (s.entry != "") ||
					s.also != nil && !s.also(m) {
					t.Fatalf("step %d: changed %v, entry %+v, node %+v", i, changed, entry, m)
				}

				if entry != nil &&
					(entry.Verb != s.entry || entry.Seq != n.Entries+1 || entry.From != Allocated || entry.To != Allocated ||
						entry.State != s.state || entry.Actor != "monitor:"+s.word.Observer || !entry.Time.Equal(at)) {
					t.Fatalf("step %d: entry %+v", i, entry)
				}

				if changed && !m.Updated.Equal(at) {
					t.Fatalf("step %d: updated at %s", i, m.Updated)
				}

				// Observed is not desired.
				if m.Status != Allocated || m.PrevStatus != Provisioning || m.Group != GroupMaster || m.Applied != "4" {
					t.Fatalf("step %d touched what operators set: %+v", i, m)
				}

				n = m
			}
		})
	}
}

func TestHistoryCounts(t *testing.T) {
	t.Parallel()
	n, e := NewNode(word1("gossip", true), nil, noon)

	seqs := []uint64{e.Seq}
	for _, alive := range []bool{false, true, true, false} {
		var entry *HistoryEntry
		if n, entry, _ = n.Observe(word1("gossip", alive), noon); entry != nil {
			seqs = append(seqs, entry.Seq)
		}
	}

	n.State = Discovered
	tr, _ := TransitionOf(VerbCommission)

	held, e, err := n.Hold(tr, GroupMaster, Trigger{Job: "1", Time: noon})
	if err != nil {
		t.Fatal(err)
	}

	seqs = append(seqs, e.Seq)
	// The reservation is withdrawn: its number is not used again.
	again, e, err := held.Unreserved().Hold(tr, GroupMaster, Trigger{Job: "2", Time: noon})
	if err != nil {
		t.Fatal(err)
	}

	seqs = append(seqs, e.Seq)

	_, e = again.Release(Outcome{Status: Allocated}, Trigger{Job: "2", Time: noon})
	if seqs = append(seqs, e.Seq); !slices.Equal(seqs, []uint64{1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("%v", seqs)
	}
}

func TestServing(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		status                  Status
		verb                    Verb
		commissioned, inService bool
	}{
		{Unallocated, "", false, false},
		{Provisioning, VerbCommission, false, true},
		{Allocated, "", true, true},
		{Maintenance, VerbMaintenance, true, true},
		{Maintenance, VerbUpdate, false, true},
		{Decommissioning, VerbDecommission, false, false},
		{Decommissioned, "", false, false},
		{Quarantined, "", false, false},
	} {
		n := Node{Status: tt.status, Verb: tt.verb}
		if n.Commissioned() != tt.commissioned || n.InService() != tt.inService {
			t.Errorf("%s %s: %v, %v", tt.status, tt.verb, n.Commissioned(), n.InService())
		}
	}
}

// TestClone changes everything that a copy could share.
func TestClone(t *testing.T) {
	t.Parallel()
	n := nodeIn(Provisioning, Discovered)
	n.Duplicates, n.HostKeys, n.Before.Residue, n.Labels = []string{
		"a",
	}, []string{
		"k",
	}, []string{
		"r",
	}, map[string]string{
		"l": "v",
	}

	want, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}

	m := n.Clone()
	m.Labels["l"] = "x"
	m.Residue[0], m.Duplicates[0], m.HostKeys[0], m.Before.Residue[0], m.Before.Status, m.Seen["gossip"] = "x", "x", "x", "x", "x", false

	if got, _ := json.Marshal(n); string(got) != string(want) {
		t.Errorf("%s", got)
	}

	shared := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Node]()) {
		switch f.Type.Kind() {
		case reflect.Slice, reflect.Map, reflect.Pointer:
			shared++
		}
	}

	if shared != 6 {
		t.Errorf("Node has %d fields that a copy shares: does Clone copy the new one?", shared)
	}
}

// TestFirstGenerationAddressChange: the monitor knew the new address, Ansible
// was given the old one. There is one address now.
func TestFirstGenerationAddressChange(t *testing.T) {
	t.Parallel()
	n, _ := NewNode(word1("gossip", true), nil, noon)
	w := word1("gossip", true)

	w.Addr = "fd00::9"
	if m, _, changed := n.Observe(w, noon); !changed || m.Addr != "fd00::9" || m.Name != n.Name {
		t.Errorf("%+v", m)
	}
}
