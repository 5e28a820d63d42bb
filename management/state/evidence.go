// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/evidence"
	"github.com/contiv/cluster/management/record"
)

// EvidenceOf returns what is known of the identity of a node: what was registered, and what was observed.
func EvidenceOf(r record.Reader, n *inventory.Node) evidence.Set {
	var e evidence.Set

	if m := record.Get(r, &Machines, n.Name); m != nil {
		e = EvidenceOfMachine(m)
	}

	e.HostKeys, e.Addr = n.HostKeys, n.Addr

	if n.Label != "" {
		e.Agent = n.Announced()
	}

	return e
}

// EvidenceOfMachine returns what a registration says of the identity of its machine.
func EvidenceOfMachine(m *Machine) evidence.Set {
	e := evidence.Set{Name: m.Node, UUID: m.UUID}

	if b := m.BMC; b != nil && b.Address != "" {
		port := b.Port
		if port == 0 {
			port = b.DefaultPort()
		}

		e.BMC = strings.TrimSpace(fmt.Sprintf("%s:%d %s", strings.ToLower(b.Address), port, b.System))
	}

	for _, p := range m.Ports {
		e.MACs = append(e.MACs, p.MAC)
	}

	return e
}
