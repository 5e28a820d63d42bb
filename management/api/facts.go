// SPDX-License-Identifier: Apache-2.0

package api

import "github.com/contiv/cluster/inventory/facts"

// NodeFacts is what an inspection has found on a node.
type NodeFacts struct {
	Node       string           `json:"node"`       // the node
	Inspection facts.Inspection `json:"inspection"` // the inspection
	Facts      facts.Facts      `json:"facts"`      // what it has found
	// The disk that an installation would take and the reason, or why there is none, as a sentence; absent without a
	// disk and without hints for one.
	RootDevice string `json:"root_device,omitempty"`
	// What differs from the inspection before, as sentences; absent if there is none before.
	Changes []string `json:"changes,omitempty"`
	// What the node has otherwise than its classes of hardware, by class.
	Classes []facts.Comparison `json:"classes,omitempty"`
	// What the node has otherwise than most nodes of its vendor and product, as sentences; of the newest inspection
	// only, and if it has no class.
	Peers []string `json:"peers,omitempty"`
	// The inspections that are kept of the node, the oldest first.
	Inspections []facts.Inspection `json:"inspections"`
}

// FactsChanges is what differs between an inspection of a node and the one before.
type FactsChanges struct {
	Node       string           `json:"node"`       // the node
	Inspection facts.Inspection `json:"inspection"` // the later inspection
	Changes    []string         `json:"changes"`    // what differs, as sentences
}

// Class is a class of hardware.
type Class = facts.Class

// ClassComparison compares nodes with a class of hardware.
type ClassComparison struct {
	Class string         `json:"class"` // the class
	Same  int            `json:"same"`  // how many nodes have what the class has
	Nodes []ComparedNode `json:"nodes"` // those that differ, and those that were not compared, by name
}

// ComparedNode is a node that differs from a class of hardware, or that was not compared with it.
type ComparedNode struct {
	Node string `json:"node"` // the node
	// The inspection that found it, the newest one; absent: there was none, or it could not be read.
	Inspection  *facts.Inspection  `json:"inspection,omitempty"`
	Differences []facts.Difference `json:"differences,omitempty"` // all of them; absent: it was not compared
	Error       string             `json:"error,omitempty"`       // why its facts could not be read
}

// ClassRequest asks for a class of hardware.
type ClassRequest struct {
	Name string `json:"name"` // lower-case letters, digits and dashes
	From string `json:"from"` // an inspected node; the class has its shape
	// A selector of the nodes of the class; by default those of the same vendor and product.
	Nodes string `json:"nodes,omitempty"`
}
