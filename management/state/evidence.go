// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/evidence"
	"github.com/contiv/cluster/management/record"
)

// EvidenceOf returns what is known of the identity of a node: what was registered, what an inspection found, and what
// was observed. What was found is newer than what was registered.
func EvidenceOf(r record.Reader, n *inventory.Node) evidence.Set {
	var e evidence.Set

	if m := record.Get(r, &Machines, n.Name); m != nil {
		e = EvidenceOfMachine(m)
	}

	if a := record.Get(r, &Agents, n.Name); a != nil {
		e.UUID, e.MACs = cmp.Or(e.UUID, a.UUID), join(e.MACs, a.MACs)
	}

	e.HostKeys, e.Addr = n.HostKeys, n.Addr
	if h := n.Hardware; h != nil {
		e.UUID, e.Serial, e.TPM = cmp.Or(strings.ToLower(h.UUID), e.UUID), h.Serial, h.TPM
		e.MACs = join(e.MACs, h.MACs)

		// A BMC that nobody has set up has no address, or one that many have.
		ip, err := netip.ParseAddr(h.BMC)
		if e.BMC == "" && err == nil && !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			e.BMC = ip.String()
		}
	}

	if n.Label != "" {
		e.Agent = n.Announced()
	}

	return e
}

// join returns all values, each once.
func join(a, b []string) []string {
	for _, value := range b {
		if !slices.Contains(a, value) {
			a = append(a, value)
		}
	}

	return a
}

// EvidenceOfMachine returns what a registration says of the identity of its machine.
func EvidenceOfMachine(m *Machine) evidence.Set {
	e := evidence.Set{Name: m.Node, UUID: m.UUID}

	if b := m.BMC; b != nil && b.Address != "" {
		port := b.Port
		if port == 0 {
			port = b.DefaultPort()
		}

		place := net.JoinHostPort(strings.ToLower(b.Address), strconv.Itoa(port))
		e.BMC = strings.TrimSpace(place + " " + b.System)
	}

	for _, p := range m.Ports {
		e.MACs = append(e.MACs, p.MAC)
	}

	return e
}
