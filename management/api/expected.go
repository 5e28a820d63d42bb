// SPDX-License-Identifier: Apache-2.0

package api

import "time"

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
	Node    string      `json:"node,omitempty"`    // the name of its node; empty: it has none
	Addr    string      `json:"addr,omitempty"`    // the address of its host
	BMC     string      `json:"bmc,omitempty"`     // the address and port of its BMC
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

// Key identifies the row: its node, or else its BMC.
func (e ExpectedMachine) Key() string {
	if e.Node != "" {
		return e.Node
	}
	return e.BMC
}
