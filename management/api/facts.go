// SPDX-License-Identifier: Apache-2.0

package api

import "github.com/contiv/cluster/inventory/facts"

// NodeFacts is what an inspection has found on a node.
type NodeFacts struct {
	Node       string           `json:"node"`       // the node
	Inspection facts.Inspection `json:"inspection"` // the inspection
	Facts      facts.Facts      `json:"facts"`      // what it has found
	// What differs from the inspection before, as sentences; absent if there is none before.
	Changes []string `json:"changes,omitempty"`
	// The inspections that are kept of the node, the oldest first.
	Inspections []facts.Inspection `json:"inspections"`
}

// FactsChanges is what differs between an inspection of a node and the one before.
type FactsChanges struct {
	Node       string           `json:"node"`       // the node
	Inspection facts.Inspection `json:"inspection"` // the later inspection
	Changes    []string         `json:"changes"`    // what differs, as sentences
}
