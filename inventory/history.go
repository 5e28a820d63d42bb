// SPDX-License-Identifier: Apache-2.0

package inventory

import "time"

// Before is the part of a node that a reservation changes.
type Before struct {
	Status     Status `json:"status"`
	PrevStatus Status `json:"prev_status,omitempty"`
	Group      string `json:"group,omitempty"`      // the group
	LastError  string `json:"last_error,omitempty"` // the reason for the previous failure
	Applied    string `json:"applied,omitempty"`    // the job that had configured the node
	// Groups with configuration that no cleanup has removed yet.
	Residue []string `json:"residue,omitempty"`
	Entries uint64   `json:"entries"` // the number of history entries written by then
}

// HistoryEntry is one transition, or one change of state, in a node's history.
type HistoryEntry struct {
	Seq  uint64    `json:"seq" minimum:"1"` // counts upwards from 1; there may be gaps
	Time time.Time `json:"time"`            // the time of the change
	Verb Verb      `json:"verb"`
	// The status before the change; absent in the first entry of a node.
	From  Status `json:"from,omitempty"`
	To    Status `json:"to"`              // the status after the change
	State State  `json:"state"`           // the state at that time
	Group string `json:"group,omitempty"` // the group at that time
	// The user or the part of the manager that made the change.
	Actor  string `json:"actor,omitempty"`
	Job    string `json:"job,omitempty"`           // the job that made the change
	Reason string `json:"reason,omitempty"`        // the reason for the change
	Read   int64  `json:"read_revision,omitempty"` // the revision of the record that the change was based on
}
