// SPDX-License-Identifier: Apache-2.0

package api

// PathObservations takes the reports of monitors.
const PathObservations = "/v1/observations" // POST Report: Reported

// MaxObservations bounds the observations in one report.
const MaxObservations = 5000

// Report is the view of one observer: of all nodes (Full), or of those that have
// changed.
type Report struct {
	// Observer is the name of the observer. The manager keeps the view of each
	// observer, and a node is Discovered while any of them sees it alive.
	Observer string `json:"observer"`

	// Full marks a complete view: each node that the observer saw before and that
	// is missing counts as lost.
	Full bool `json:"full,omitempty"`

	// After and Until limit a full report to the nodes with names after After, up to
	// and including Until, in the order of the bytes; empty: no limit. A view of more
	// than MaxObservations nodes consists of several such reports.
	After string `json:"after,omitempty"`
	Until string `json:"until,omitempty"`

	Observations []Observation `json:"observations"`
}

// Observation is the state of one node as an observer sees it.
type Observation struct {
	Label  string `json:"label"`
	Serial string `json:"serial"`
	Addr   string `json:"addr"` // IPv4, IPv6 or host name
	Alive  bool   `json:"alive"`

	// Joined means that the node was not alive at the observer's last report.
	Joined bool `json:"joined,omitempty"`

	// Others are the addresses of other live hosts with the same identity.
	Others []string `json:"others,omitempty"`
}

// Reported is the result of a report.
type Reported struct {
	Revision int64     `json:"revision"`
	Refused  []Refusal `json:"refused,omitempty"` // not recorded; all others are
}

// Refusal is the reason against one observation of a report.
type Refusal struct {
	Index   int    `json:"index"` // of the observation, from 0
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}
