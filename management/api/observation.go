// SPDX-License-Identifier: Apache-2.0

package api

// PathObservations takes the reports of monitors.
const PathObservations = "/v1/observations" // POST Report: Reported

// MaxObservations bounds the observations in one report.
const MaxObservations = 5000

// Report is the view of one observer, complete or of some nodes.
type Report struct {
	// Its name: letters, digits, '.', '_' and '-'. `post` and `gossip` are reserved.
	Observer string `json:"observer" maxLength:"63"`

	// It is the complete view; a node that it omits is not seen any more.
	Full bool `json:"full,omitempty"`

	// Limits a full report to nodes with names after this one, in the order of the bytes.
	After string `json:"after,omitempty"`
	// Limits a full report to nodes with names up to and including this one.
	Until string `json:"until,omitempty"`

	// The nodes, each once; may be empty if full.
	Observations []Observation `json:"observations" maxItems:"5000"`
}

// Observation is one node as the observer sees it.
type Observation struct {
	Label  string `json:"label"`  // the label of the host
	Serial string `json:"serial"` // its serial number
	Addr   string `json:"addr"`   // its management address: IPv4, IPv6 or host name
	// The host is alive. An unknown node that is not alive is not recorded.
	Alive bool `json:"alive"`

	// It was not alive at the observer's last report. This ends a report by `POST /monitor/event`.
	Joined bool `json:"joined,omitempty"`

	// Addresses of other live hosts with the same identity.
	Others []string `json:"others,omitempty" maxItems:"16"`

	// The UUID of the system. With the MACs it tells which registered machine a new host is.
	UUID string `json:"uuid,omitempty"`
	// The MACs of its network ports.
	MACs []string `json:"macs,omitempty" maxItems:"16"`
}

// Reported is the result of a report.
type Reported struct {
	Revision int64     `json:"revision"`          // the revision that shows the report
	Refused  []Refusal `json:"refused,omitempty"` // the observations that were not recorded
}

// Refusal is the reason against one observation.
type Refusal struct {
	Index   int    `json:"index"`            // the position of the observation in the report, from 0
	Message string `json:"message"`          // the reason
	Remedy  string `json:"remedy,omitempty"` // an action that helps
}
