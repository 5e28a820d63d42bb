// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// AuditEntry is a change, a refusal, or a decision of the manager itself.
//
// An export has one per line.
type AuditEntry struct {
	Hash     string    `json:"hash"`     // the SHA-256 of the stored entry
	Seq      uint64    `json:"seq"`      // its number: from 1, without gaps
	Time     time.Time `json:"time"`     // the time of the decision
	Instance string    `json:"instance"` // the manager that wrote the entry
	// The principal: an account, `token:NAME`, `certificate:NAME`, `http:ADDRESS`, `monitor:OBSERVER`,
	// `clusterm` for the manager itself, or `anonymous`.
	Who string `json:"who"`
	// The proof: `socket`, `plain_http`, or the id of a token or certificate. Absent for the manager itself.
	Credential string `json:"credential,omitempty"`
	// The other end of the connection: `ADDRESS:PORT`, or `uid NUMBER` on the Unix socket.
	From    string `json:"from,omitempty"`
	Via     string `json:"via,omitempty" enum:"socket,https,plain_http"` // the listener
	Request string `json:"request,omitempty"`                            // the id of the request, as in `X-Request-Id`
	// What was asked for, e.g. `jobs.submit.commission`; `requests.refuse` for a request that was refused before
	// that was decided on.
	Verb string `json:"verb"`
	// Nodes, addresses, jobs, keys or levels of variables, or the method and the path of a refused request. At
	// most 100.
	Targets  []string `json:"targets,omitempty"`
	Job      string   `json:"job,omitempty"`      // the job that was made or changed
	Reason   string   `json:"reason,omitempty"`   // the operator's reason
	Replayed bool     `json:"replayed,omitempty"` // the stored result of an earlier request was returned
	Result   string   `json:"result"`             // `done`, or the kind of the error
	Error    string   `json:"error,omitempty"`    // the error
	// The number of similar refusals that the entry stands for, of which it shows the last.
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

// AuditList is a page of the audit trail.
type AuditList struct {
	Items    []AuditEntry `json:"items"`              // the entries, the oldest first
	Continue string       `json:"continue,omitempty"` // the token for the next page; absent on the last page
}

// AuditEvent is an event of a followed audit trail.
type AuditEvent struct {
	Entry *AuditEntry `json:"entry,omitempty"` // the entry; absent in a sign of life
}

// AuditReport is the result of a check of the audit trail.
type AuditReport struct {
	Entries  uint64 `json:"entries"`   // the number of entries
	First    uint64 `json:"first"`     // the number of the first entry; 0 without entries
	Last     uint64 `json:"last"`      // the number of the last entry
	LastHash string `json:"last_hash"` // the hash of the last entry
	// The number of entries that name others which could not be written.
	Lost    uint64   `json:"lost,omitempty"`
	Dropped []string `json:"dropped,omitempty"` // what the retention removed, 20 entries at most
	// Missing and changed entries; absent if the chain is whole.
	Problems []string `json:"problems,omitempty"`
}
