// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"time"
)

// Scan is the newest scan for BMCs in the ranges of the site.
type Scan struct {
	Requested time.Time `json:"requested,omitzero"` // zero: there was none
	Actor     string    `json:"actor,omitempty"`    // who asked for it; empty: the manager, in turn
	Addresses int       `json:"addresses"`          // in the ranges
	Ended     time.Time `json:"ended,omitzero"`     // of the newest one that has ended
	Found     int       `json:"found"`              // the answers, one for each protocol
}

// Running reports whether a scan was requested, and has not ended.
func (s Scan) Running() bool { return s.Requested.After(s.Ended) }

// SeenBy says how something is seen.
type SeenBy string

// How something is seen.
const (
	SeenByGossip SeenBy = "gossip" // its agent speaks
	SeenByBMC    SeenBy = "bmc"    // its BMC said whether it is on
	SeenByScan   SeenBy = "scan"   // its BMC answered the newest scan
	// Its BMC is there, and refused the login.
	SeenByRefusal SeenBy = "login-refused"
	// Its hardware was inspected, or its credentials were checked with success, within a day.
	SeenByInspection  SeenBy = "inspection"
	SeenByCredentials SeenBy = "credentials"
	// Another node that was inspected within a day has it as a neighbour.
	SeenByLLDP SeenBy = "lldp"
)

// Expectation compares what is registered with what is seen.
type Expectation string

// The results of the comparison.
const (
	ExpectedSeen    Expectation = "seen"
	ExpectedMissing Expectation = "missing"  // registered, and not seen
	ExpectedUnknown Expectation = "unlisted" // seen, and not registered
)

// ExpectedMachine is a machine that is registered, or seen.
type ExpectedMachine struct {
	Node string `json:"node,omitempty"` // the name of its node; empty: it has none
	Addr string `json:"addr,omitempty"` // the address of its host
	BMC  string `json:"bmc,omitempty"`  // the address and port of its BMC
	// The name and the chassis id that a neighbour without a node says by LLDP.
	LLDP string `json:"lldp,omitempty"`
	// What that looks like: a switch forwards.
	Kind string `json:"kind,omitempty" enum:"host,switch"`
	// The nodes and their network ports at which LLDP sees it, 8 at most.
	Ports   []string    `json:"ports,omitempty"`
	Product string      `json:"product,omitempty"` // vendor and product, as a BMC without a node says
	Listed  bool        `json:"listed"`            // it was registered from a list
	Seen    []SeenBy    `json:"seen"`              // how it is seen; empty: it is not
	Result  Expectation `json:"result"`            // the comparison of both
}

// Judged returns the row with its result.
func (e ExpectedMachine) Judged() ExpectedMachine {
	switch {
	case !e.Listed:
		e.Result = ExpectedUnknown
	case len(e.Seen) == 0:
		e.Result = ExpectedMissing
	default:
		e.Result = ExpectedSeen
	}

	if e.Seen == nil {
		e.Seen = []SeenBy{}
	}

	return e
}

// Key identifies the row: its node, or else its BMC, or what LLDP says.
func (e ExpectedMachine) Key() string { return cmp.Or(e.Node, e.BMC, e.LLDP) }
