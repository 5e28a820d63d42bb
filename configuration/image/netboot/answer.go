// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Type is the type of a DHCP message.
type Type string

// The types that matter here. A query of another type gets no answer.
const (
	Discover Type = "discover"
	Request  Type = "request"
	Decline  Type = "decline"
	Offer    Type = "offer"
	Ack      Type = "ack"
	Nak      Type = "nak"
)

// Query is what a machine asks.
type Query struct {
	Type    Type
	MAC     string     // lower case, with colons
	Server  netip.Addr // the server that the machine has chosen; zero: none
	Addr    netip.Addr // the address that the machine asks for, or has; zero: none
	Relayed bool       // a router has forwarded it from another network
	Loader  Loader     // what asks for a program to boot; empty: it is none, such as an operating system
}

// Site is what all machines of an interface get.
type Site struct {
	Server  netip.Prefix // the address of the manager on the interface, with its network
	Gateway netip.Addr   // zero: none
	DNS     []netip.Addr
	Lease   time.Duration
	Web     uint16 // the port of the HTTP service
}

// Machine is what the manager knows of a MAC.
type Machine struct {
	Node string
	Twin string     // another node with the same MAC; empty: there is none
	Addr netip.Addr // zero: none yet

	// Problem says why the machine cannot have its address; empty: it can.
	Problem string
	// Boots: it is to boot from the network now.
	Boots bool
}

// Reply is an answer. The zero Reply is none.
type Reply struct {
	Type Type
	Addr netip.Addr // of the machine; zero for Nak
	// File is what the machine boots: a name for TFTP, or a URL. Empty: it goes on as its firmware says.
	File string
}

// Answer returns the answer to a query on an interface, and why it is that one. m is nil for a MAC that is of no
// registered machine: such a machine never gets an answer.
func Answer(q Query, s Site, m *Machine) (Reply, string) {
	switch {
	case m == nil:
		return Reply{}, "no registered machine has this MAC"
	case m.Twin != "":
		return Reply{}, fmt.Sprintf("both %s and %s have this MAC", m.Node, m.Twin)
	case q.Relayed:
		return Reply{}, "the query came through a relay"
	case m.Problem != "":
		return Reply{}, m.Problem
	case !m.Addr.IsValid():
		return Reply{}, m.Node + " has no address yet"
	case !s.Server.Masked().Contains(m.Addr):
		return Reply{}, fmt.Sprintf("%s is not in the network of this interface, %s", m.Addr, s.Server.Masked())
	case !IsHost(s.Server, m.Addr):
		return Reply{}, fmt.Sprintf("%s is the network itself or its broadcast address", m.Addr)
	case m.Addr == s.Server.Addr():
		return Reply{}, fmt.Sprintf("%s is the address of the manager itself", m.Addr)
	}

	file, why := bootFile(q, s, m)

	switch q.Type {
	case Discover:
		return Reply{Type: Offer, Addr: m.Addr, File: file}, "it is the address of " + m.Node + why
	case Request:
		reply, reason := confirm(q, s, m)
		if reply.Type == Ack {
			reply.File, reason = file, reason+why
		}

		return reply, reason
	case Decline:
		return Reply{}, fmt.Sprintf("the machine says that another host has %s", q.Addr)
	default:
		return Reply{}, "a message of this type needs no answer"
	}
}

// IsHost reports whether an address is that of a host in an IPv4 network: neither the network itself nor its broadcast
// address, which networks of 31 bits and more do not have (RFC 3021).
func IsHost(network netip.Prefix, addr netip.Addr) bool {
	if !network.Contains(addr) || !addr.Is4() {
		return false
	}

	last := addr.As4()
	for i, bits := range net.CIDRMask(network.Bits(), 32) {
		last[i] |= ^bits
	}

	return network.Bits() >= 31 || addr != network.Masked().Addr() && addr != netip.AddrFrom4(last)
}

// confirm answers a machine that has chosen an offer, has started again, or wants to keep its address.
func confirm(q Query, s Site, m *Machine) (Reply, string) {
	switch {
	case q.Server.IsValid() && q.Server != s.Server.Addr():
		return Reply{}, fmt.Sprintf("the machine has chosen the server %s", q.Server)
	case q.Addr != m.Addr:
		return Reply{Type: Nak}, fmt.Sprintf("the address of %s is %s", m.Node, m.Addr)
	default:
		return Reply{Type: Ack, Addr: m.Addr}, "it is the address of " + m.Node
	}
}
