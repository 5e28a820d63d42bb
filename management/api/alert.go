// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"github.com/contiv/cluster/inventory"
)

// AlertRequest asks for an alert on nodes.
type AlertRequest struct {
	Nodes  []string `json:"nodes"`  // the nodes
	Reason string   `json:"reason"` // the reason, on one line of at most 300 bytes
	// Who or what found it, such as smartd, in at most 64 bytes; by default the caller.
	Source  string             `json:"source,omitempty"`
	Effects []inventory.Effect `json:"effects,omitempty"` // what it prevents; absent: it only informs
	Until   *time.Time         `json:"until,omitempty"`   // when it ends by itself; absent: somebody ends it
}

// AlertEnd asks for the end of an alert.
type AlertEnd struct {
	ID     string   `json:"id"`               // the id
	Nodes  []string `json:"nodes,omitempty"`  // only on these nodes; absent: on all that have it
	Reason string   `json:"reason,omitempty"` // the reason, for the history and the audit trail
}

// NodeAlert is an alert on a node.
type NodeAlert struct {
	Node string `json:"node"` // the name of the node

	inventory.Alert
}
