// SPDX-License-Identifier: Apache-2.0

package api

// Merge asks for two nodes of one machine to become one.
type Merge struct {
	Machine string `json:"machine"` // the node that was registered, whose agent never spoke; it goes
	Node    string `json:"node"`    // the node of the agent, which gets the registration
	// Also if the evidence says that they are two machines.
	Force  bool   `json:"force,omitempty"`
	Reason string `json:"reason,omitempty"` // the reason, for the history and the audit trail
}

// Split asks for the registration of a machine to be taken from a node.
type Split struct {
	Node   string `json:"node"`             // the node, whose agent speaks
	As     string `json:"as"`               // the name of the node that the registration becomes
	Reason string `json:"reason,omitempty"` // the reason, for the history and the audit trail
}
