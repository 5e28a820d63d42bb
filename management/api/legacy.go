// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"time"
)

// The paths of the first generation. A success is 200, with an empty body for a
// POST; a failure is 500 with the reason as text.
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

	// Early clients put a single node into the path.
	LegacyCommissionOne   = "/commission/node/{name}"
	LegacyDecommissionOne = "/decommission/node/{name}"
	LegacyMaintenanceOne  = "/maintenance/node/{name}"
)

// LegacyRequest is the body of a POST of the first generation.
type LegacyRequest struct {
	Nodes      []string        `json:"nodes,omitempty"`
	Addrs      []string        `json:"addrs,omitempty"`
	Addresses  []string        `json:"addresses,omitempty"`
	Addressess []string        `json:"addressess,omitempty"` // the spelling in the first generation's documents
	HostGroup  string          `json:"host_group,omitempty"`
	ExtraVars  json.RawMessage `json:"extra_vars,omitempty"` // an object, or a string with one
	Event      *LegacyEvent    `json:"monitor_event,omitempty"`
	Config     json.RawMessage `json:"config,omitempty"`
}

// LegacyEvent is the body of POST /monitor/event.
type LegacyEvent struct {
	Name  string            `json:"name"` // discovered or disappeared; case does not matter
	Nodes []LegacyEventNode `json:"nodes"`
}

// LegacyEventNode is one node of a LegacyEvent.
type LegacyEventNode struct {
	Label  string `json:"label"`
	Serial string `json:"serial"`
	Addr   string `json:"addr"`
}

// LegacyMember is one node in the report of a serf event handler.
type LegacyMember struct {
	Label  string `json:"Node-Label"`
	Serial string `json:"Node-Serial"`
	Addr   string `json:"Node-Mgmt-Address"`
}

// LegacyNodeInfo is one node in the answer of GET /info/node.
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

// LegacyJobInfo is a job in the answer of GET /info/job.
type LegacyJobInfo struct {
	ID      string    `json:"id"`
	Task    string    `json:"task"`
	Desc    string    `json:"desc"`
	Status  string    `json:"status"` // Queued, Running, Complete or Errored; a cancelled job is Errored
	Error   string    `json:"error"`  // of a job that failed
	Logs    []string  `json:"logs"`   // the lines of its output so far; of a long output the last ones
	Nodes   []string  `json:"nodes,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
}
