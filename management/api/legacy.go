// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"time"
)

// Paths of the first generation's contract. A success is 200, with an empty
// body to a POST; a failure is 500 with the reason as text.
const (
	LegacyNodes        = "/info/nodes"             // GET, POST LegacyRequest (empty: all)
	LegacyNode         = "/info/node/{name}"       // GET
	LegacyGlobals      = "/info/globals"           // GET
	LegacyJob          = "/info/job/{job}"         // GET active, last or id
	LegacyLogs         = "/info/logs/{job}"        // GET, streams until the job ends
	LegacyCommission   = "/commission/nodes"       // POST LegacyRequest
	LegacyDecommission = "/decommission/nodes"     // POST LegacyRequest
	LegacyUpdate       = "/update/nodes"           // POST LegacyRequest
	LegacyMaintenance  = "/maintenance/nodes"      // POST LegacyRequest
	LegacyDiscover     = "/discover/nodes"         // POST LegacyRequest
	LegacySetGlobals   = "/globals"                // POST LegacyRequest
	LegacyMonitorEvent = "/monitor/event"          // POST {"monitor_event":…}
	LegacyMonitorNamed = "/monitor/event/{event}"  // POST [LegacyMember…]
	LegacyMonitorNode  = "/monitor/{event}/{node}" // POST LegacyMember
	LegacyConfig       = "/config"                 // GET, POST {"config":…}

	// Early clients name the one node in the path.
	LegacyCommissionOne   = "/commission/node/{name}"
	LegacyDecommissionOne = "/decommission/node/{name}"
	LegacyMaintenanceOne  = "/maintenance/node/{name}"
)

// LegacyRequest is the body of a POST of the first generation's contract.
type LegacyRequest struct {
	Nodes      []string        `json:"nodes,omitempty"`
	Addrs      []string        `json:"addrs,omitempty"`
	Addresses  []string        `json:"addresses,omitempty"`
	Addressess []string        `json:"addressess,omitempty"` // as the first generation's documents spell it
	HostGroup  string          `json:"host_group,omitempty"`
	ExtraVars  json.RawMessage `json:"extra_vars,omitempty"` // an object, or a string that holds one
	Event      *LegacyEvent    `json:"monitor_event,omitempty"`
	Config     json.RawMessage `json:"config,omitempty"`
}

// LegacyEvent is the body of POST /monitor/event.
type LegacyEvent struct {
	Name  string            `json:"name"` // discovered or disappeared, in any case
	Nodes []LegacyEventNode `json:"nodes"`
}

// LegacyEventNode is one node of a LegacyEvent.
type LegacyEventNode struct {
	Label  string `json:"label"`
	Serial string `json:"serial"`
	Addr   string `json:"addr"`
}

// LegacyMember is one node as a serf event handler reports it.
type LegacyMember struct {
	Label  string `json:"Node-Label"`
	Serial string `json:"Node-Serial"`
	Addr   string `json:"Node-Mgmt-Address"`
}

// LegacyNodeInfo is one node as GET /info/node answers it.
type LegacyNodeInfo struct {
	Monitoring struct {
		Label  string `json:"label"`
		Serial string `json:"serial_number"`
		Addr   string `json:"management_address"`
	} `json:"monitoring_state"`
	Inventory struct {
		Name       string `json:"name"`
		Status     string `json:"status"`
		PrevStatus string `json:"prev_status"`
		State      string `json:"state"`
		PrevState  string `json:"prev_state"`
	} `json:"inventory_state"`
	Configuration struct {
		Name  string         `json:"inventory_name"`
		Group string         `json:"host_group"`
		Addr  string         `json:"ssh_address"`
		Vars  map[string]any `json:"inventory_vars"`
	} `json:"configuration_state"`
}

// LegacyJobInfo is a job as GET /info/job answers it.
type LegacyJobInfo struct {
	ID      string    `json:"id"`
	Task    string    `json:"task"`
	Desc    string    `json:"desc"`
	Status  string    `json:"status"` // Queued, Running, Complete or Errored; a cancelled job is Errored
	Error   string    `json:"error"`
	Nodes   []string  `json:"nodes,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
}
