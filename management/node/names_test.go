// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// register adds a registered machine whose agent has not spoken.
func register(v *state.View, name, addr, uuid string, macs ...string) {
	m := machine.Machine{Node: name, UUID: uuid}
	for _, mac := range macs {
		m.Ports = append(m.Ports, machine.Port{MAC: mac})
	}

	v.PutNode(&inventory.Node{Name: name, Addr: addr, Status: inventory.Enrolled})
	v.View = record.Set(v.View, &state.Machines, name, &state.Machine{Machine: m})
}

// TestNames: the evidence of an agent says which registered machine it is.
func TestNames(t *testing.T) {
	t.Parallel()

	const (
		uuid1  = "4c4c4544-0042-3510-8054-000000000001"
		uuid2  = "4c4c4544-0042-3510-8054-000000000002"
		madeUp = "03000200-0400-0500-0006-000700080009"
		mac1   = "52:54:00:aa:00:01"
		mac2   = "52:54:00:aa:00:02"
		mac3   = "52:54:00:aa:00:03"
		mac9   = "52:54:00:aa:00:09"
	)

	v := &state.View{}
	register(v, "r1", "", uuid1, mac1)
	register(v, "r2", "10.0.0.2", uuid2, mac2)
	register(v, "r3", "10.0.0.3", madeUp, mac3)
	register(v, "r4", "10.0.0.4", madeUp)
	register(v, "r5", "10.0.0.5", "")
	register(v, "r6", "10.0.0.5", "")

	register(v, "x-1", "", "4c4c4544-0042-3510-8054-00000000000a", "52:54:00:aa:00:0a")

	spoken := inventory.Node{Name: "web", Label: "web", Serial: "1", Addr: "10.0.0.7", Status: inventory.Allocated}
	v.PutNode(&spoken)

	ns := &Nodes{}

	for _, c := range []struct {
		name string
		says inventory.Observation
		want string
	}{
		{
			"registered by its MAC",
			inventory.Observation{Addr: "10.0.0.99", MACs: []string{mac9, "52:54:00:AA:00:01"}}, "r1",
		},
		{"registered by its UUID", inventory.Observation{Addr: "10.0.0.99", UUID: uuid1}, "r1"},
		{"a new network card", inventory.Observation{Addr: "10.0.0.2", UUID: uuid2, MACs: []string{mac9}}, "r2"},
		{"another address", inventory.Observation{Addr: "10.0.0.99", UUID: uuid2, MACs: []string{mac2}}, "r2"},
		{"only the address, as stock agents say", inventory.Observation{Addr: "10.0.0.2"}, "r2"},
		{
			"another machine at a former address",
			inventory.Observation{Addr: "10.0.0.2", UUID: "4c4c4544-0042-3510-8054-000000000009", MACs: []string{mac9}},
			"n-1",
		},
		{
			"the machine of the MAC at the address of another one",
			inventory.Observation{Addr: "10.0.0.2", UUID: uuid1, MACs: []string{mac1}}, "r1",
		},
		{
			"a card that was moved, or a port with the MAC of all of its kind",
			inventory.Observation{
				Addr: "10.0.0.99", UUID: "4c4c4544-0042-3510-8054-000000000009", MACs: []string{mac1},
			}, "n-1",
		},
		{
			"a new mainboard, with the card and the address of before",
			inventory.Observation{Addr: "10.0.0.2", UUID: "4c4c4544-0042-3510-8054-000000000009", MACs: []string{mac2}},
			"r2",
		},
		{
			"the name of a machine that the rest speaks against",
			inventory.Observation{
				Label: "x", Serial: "1", Addr: "10.0.0.99", UUID: "4c4c4544-0042-3510-8054-000000000009",
			}, "x-1 refused",
		},
		{"the name alone", inventory.Observation{Label: "x", Serial: "1", Addr: "10.0.0.99"}, "x-1"},
		{"a UUID that vendors make up", inventory.Observation{Addr: "10.0.0.99", UUID: madeUp}, "n-1"},
		{
			"a made-up UUID, and a MAC",
			inventory.Observation{Addr: "10.0.0.99", UUID: madeUp, MACs: []string{mac3}}, "r3",
		},
		{"two machines at an address", inventory.Observation{Addr: "10.0.0.5"}, "r5 r6"},
		{"nothing in common", inventory.Observation{Addr: "10.0.0.99", MACs: []string{mac9, "evil", ""}}, "n-1"},
		{
			"an agent that has spoken, on a new mainboard",
			inventory.Observation{Label: "web", Serial: "1", Addr: "10.0.0.7", UUID: uuid1, MACs: []string{mac1}},
			"web",
		},
	} {
		if c.says.Label == "" {
			c.says.Label, c.says.Serial = "n", "1"
		}

		got, err := ns.namesIn(v).of(v, c.says)
		if e, ok := errors.AsType[*inventory.Error](err); ok {
			got = strings.Join(e.Nodes, " ")
			if len(e.Nodes) == 1 {
				got += " refused"
			}
		}

		if got != c.want {
			t.Errorf("%s: %q, want %q (%v)", c.name, got, c.want, err)
		}
	}

	// Who has spoken is no registered machine that waits any more, and an import is seen at once.
	n, _ := v.Lookup("r1")
	n.Label, n.Serial = "n", "1"
	next := &state.View{Snapshot: v.Snapshot}
	next.PutNode(&n)
	register(next, "r7", "", "", mac9)

	for _, c := range []struct {
		says inventory.Observation
		want string
	}{
		{inventory.Observation{Label: "n", Serial: "1", Addr: "10.0.0.99"}, "r1"},
		{inventory.Observation{Label: "n", Serial: "2", Addr: "10.0.0.98", MACs: []string{mac1}}, "n-2"},
		{inventory.Observation{Label: "n", Serial: "2", Addr: "10.0.0.98", MACs: []string{mac9}}, "r7"},
	} {
		if got, err := ns.namesIn(next).of(next, c.says); got != c.want || err != nil {
			t.Errorf("%+v is %q, want %q (%v)", c.says, got, c.want, err)
		}
	}
}

// TestNamesAreKept: a view in which no node and no registration has changed is not searched again.
func TestNamesAreKept(t *testing.T) {
	t.Parallel()

	v := &state.View{}
	for i := range 100 {
		register(v, fmt.Sprintf("r%d", i), "", "", fmt.Sprintf("52:54:00:aa:00:%02x", i))
	}

	ns := &Nodes{}
	first := ns.namesIn(v).waiting

	later := &state.View{Snapshot: v.Snapshot, Revision: 7}
	later.View = record.Set(later.View, &state.Tombstones, "gone", &inventory.Tombstone{Name: "gone"})

	ns.namesIn(later).waiting["probe"] = []string{"x"}
	if len(first["probe"]) != 1 || len(first) != 101 {
		t.Errorf("%d marks were found anew", len(first))
	}
}
