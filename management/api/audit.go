// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// AuditEntry is one entry of the audit trail: a change, a refusal, or a decision of
// the manager itself. An export has one per line.
type AuditEntry struct {
	Hash     string    `json:"hash"` // SHA-256 of the rest of its line in an export
	Seq      uint64    `json:"seq"`  // from 1, without gaps, for each instance
	Time     time.Time `json:"time"`
	Instance string    `json:"instance"`
	// Who is the principal; "anonymous" for a caller without a valid credential.
	Who        string   `json:"who"`
	Credential string   `json:"credential,omitempty"` // its proof, e.g. "token:ID"
	From       string   `json:"from,omitempty"`       // the other end of the connection
	Via        string   `json:"via,omitempty"`        // the listener: socket, https or plain_http
	Request    string   `json:"request,omitempty"`    // the id of the request
	Verb       string   `json:"verb"`                 // e.g. jobs.submit.commission
	Targets    []string `json:"targets,omitempty"`
	Job        string   `json:"job,omitempty"`
	Reason     string   `json:"reason,omitempty"`
	Replayed   bool     `json:"replayed,omitempty"` // a stored result was returned; nothing changed
	Result     string   `json:"result"`             // AuditDone, or the kind of the error
	Error      string   `json:"error,omitempty"`
	// Count is the number of similar refusals that the entry stands for, of which it
	// shows the last; 0: it stands for itself.
	Count uint64 `json:"count,omitempty"`
	Prev  string `json:"prev"` // the hash of the entry before
}

// The results of AuditEntry.Result and of the filter by it.
const (
	AuditDone   = "done"
	AuditFailed = "failed" // as a filter: every other result
)

// MaxAuditPage is the largest number of entries in one AuditList.
const MaxAuditPage = 1000

// AuditList is a page of the audit trail, the oldest entry first.
type AuditList struct {
	Items []AuditEntry `json:"items"`
	// Continue is the token for the next page; empty on the last page.
	Continue string `json:"continue,omitempty"`
}

// AuditEvent is one event of a followed audit trail: a new entry, or without one a
// sign of life.
type AuditEvent struct {
	Entry *AuditEntry `json:"entry,omitempty"`
}

// AuditReport is the result of a check of the audit trail.
type AuditReport struct {
	Entries  uint64   `json:"entries"`
	First    uint64   `json:"first"` // the number of the first entry; 0: there is none
	Last     uint64   `json:"last"`
	LastHash string   `json:"last_hash"`
	Lost     uint64   `json:"lost,omitempty"`     // entries that say that others could not be written
	Dropped  []string `json:"dropped,omitempty"`  // what the retention removed, in words
	Problems []string `json:"problems,omitempty"` // empty: the chain is whole
}
