// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"github.com/contiv/cluster/inventory"
)

// PlanStatus is the status of a plan.
type PlanStatus string

// The statuses of a plan.
const (
	PlanOpen    PlanStatus = "Open"    // it can be applied
	PlanApplied PlanStatus = "Applied" // a job carries it out, or has
	PlanExpired PlanStatus = "Expired" // its time is over
)

// Plan is what a request for a job would do. Lists omit `targets`, `vars` and `check`.
//
// Nothing is done before it is applied.
type Plan struct {
	// The id. It begins with the identity of the manager that made the plan.
	ID      string `json:"id"`
	Manager string `json:"manager"` // the identity of that manager
	// `Open`: it can be applied; `Applied`: a job carries it out, or has; `Expired`: its time is over.
	Status  PlanStatus `json:"status"`
	Actor   string     `json:"actor,omitempty"` // the user who made it
	Created time.Time  `json:"created"`         // when it was made
	Expires time.Time  `json:"expires"`         // until when it can be applied

	Job       string     `json:"job,omitempty"`        // the job that carries it out
	AppliedBy string     `json:"applied_by,omitempty"` // the user who applied it
	Applied   *time.Time `json:"applied,omitempty"`    // when it was applied

	// The request for its job, with what the manager has chosen and without the variables.
	Request JobRequest `json:"request"`
	// The digest of the configured playbooks. A cleanup has those that configured each node.
	PlaybookDigest string `json:"playbook_digest,omitempty"`
	// A decision of the manager, e.g. the chosen group.
	Note string `json:"note,omitempty"`

	Targets []PlanTarget `json:"targets,omitempty"` // the nodes or addresses, in the order of the job
	// Further nodes that the job would hold, as far as it could begin at once.
	Helpers []string `json:"helpers,omitempty"`
	Ahead   []string `json:"ahead,omitempty"` // the jobs before it on some of its nodes
	Waits   string   `json:"waits,omitempty"` // why the job would not begin at once
	// The rules of the groups that it was judged by and meets.
	Rules   []PlanRule    `json:"rules,omitempty"`
	Service []PlanService `json:"service,omitempty"` // what it takes out of service, by group
	// How long it may take; absent if no earlier job of the kind is kept.
	Expected *PlanTime `json:"expected,omitempty"`
	Warnings []string  `json:"warnings,omitempty"` // warnings, as those of a job

	// Lists omit the following fields.

	// The variables with their origin, by host. Secrets are hidden.
	Vars map[string]MergedVars `json:"vars,omitempty"`
	// What Ansible foresees; absent for a plan without a check.
	Check *PlanCheck `json:"check,omitempty"`

	Revision int64 `json:"revision"` // the store's revision of this record
}

// PlanTarget is a node, or an address, of a plan: as the job would find it, and leave it after success.
type PlanTarget struct {
	Name string `json:"name"` // the node, or the address of a discover
	Addr string `json:"addr"` // the address
	// discover: the node at the address.
	Node   string           `json:"node,omitempty"`
	State  inventory.State  `json:"state,omitempty"`   // the state when the plan was made
	Batch  int              `json:"batch" minimum:"1"` // the number of its batch, from 1
	Status inventory.Status `json:"status,omitempty"`  // the status before
	// The status after; absent if the job removes the record.
	StatusAfter inventory.Status `json:"status_after,omitempty"`
	Group       string           `json:"group,omitempty"`       // the group before
	GroupAfter  string           `json:"group_after,omitempty"` // the group after
	// Groups with configuration that no cleanup has removed yet.
	Residue []string `json:"residue,omitempty"`
	Applied string   `json:"applied,omitempty"` // the job that has configured it
	// The digests of the playbooks that configured it, by group.
	Playbooks map[string]string `json:"playbooks,omitempty"`
}

// PlanRule is a rule of the groups that a plan was judged by and meets.
type PlanRule struct {
	Group    string `json:"group"`               // the group with the need
	Requires string `json:"requires"`            // the group that it requires
	Minimum  int    `json:"minimum" minimum:"1"` // the number of healthy nodes that `requires` must have
	// Nodes of the plan enter `group`; otherwise they leave `requires`.
	Joins bool `json:"joins,omitempty"`
	// The healthy nodes of `requires`, without those of the first batch. 0 for a caller who may not see them
	// all.
	Left int `json:"left"`
	// The nodes of `group` that stay in service. 0 for a caller who may not see them all.
	Dependents int `json:"dependents"`
}

// PlanService is what a plan takes out of service in one group.
type PlanService struct {
	Group  string   `json:"group"`               // the group
	Nodes  []string `json:"nodes"`               // the nodes, in the order of the job
	AtOnce int      `json:"at_once" minimum:"1"` // the largest number of them at a time
	// The nodes of the group in service when the plan was made. 0 for a caller who may not see them all.
	Before     int      `json:"before"`
	RequiredBy []string `json:"required_by,omitempty"` // the groups that require it
}

// PlanTime is how long the job of a plan may take, as earlier jobs of the kind did: the time from their start
// to their end, divided by the number of their nodes.
type PlanTime struct {
	Jobs     int      `json:"jobs" minimum:"1"` // the number of earlier jobs, the newest ones
	Median   Duration `json:"median"`           // the median for one node
	Shortest Duration `json:"shortest"`         // the shortest time for one node
	Longest  Duration `json:"longest"`          // the longest time for one node
	Total    Duration `json:"total"`            // the median for all nodes
}

// PlanCheck is what Ansible foresees, found by a job that only checks.
type PlanCheck struct {
	Job     string         `json:"job"`               // the job
	Status  JobStatus      `json:"status,omitempty"`  // its status; absent if it is no longer kept
	Message string         `json:"message,omitempty"` // its message
	Nodes   []PlanFindings `json:"nodes,omitempty"`   // the nodes with findings
	// Whether findings are missing: there are more than 500, or the events of the job reached their limit.
	Truncated bool `json:"truncated,omitempty"`
}

// PlanFindings are what the check of a plan found about one node.
type PlanFindings struct {
	Node  string        `json:"node"`  // the node
	Tasks []TaskFinding `json:"tasks"` // the findings, in the order of the runs
}
