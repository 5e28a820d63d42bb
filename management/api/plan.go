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

// Plan is the effect of a request for a job, as a preview. Nothing is done before it is applied.
type Plan struct {
	ID      string     `json:"id"`
	Manager string     `json:"manager"` // the identity of the manager that made it
	Status  PlanStatus `json:"status"`
	Actor   string     `json:"actor,omitempty"` // the maker
	Created time.Time  `json:"created"`
	Expires time.Time  `json:"expires"`

	// Job is the job that carries it out.
	Job       string     `json:"job,omitempty"`
	AppliedBy string     `json:"applied_by,omitempty"`
	Applied   *time.Time `json:"applied,omitempty"`

	// Request is the request for that job, with the choices of the manager, and without
	// the variables.
	Request JobRequest `json:"request"`
	// PlaybookDigest is that of the configured folder. A cleanup has the playbooks that
	// configured each node, see PlanTarget.
	PlaybookDigest string `json:"playbook_digest,omitempty"`
	Note           string `json:"note,omitempty"` // a decision of the manager, e.g. the chosen group

	Targets  []PlanTarget  `json:"targets,omitempty"` // in the order of the job; lists omit them
	Helpers  []string      `json:"helpers,omitempty"`
	Ahead    []string      `json:"ahead,omitempty"` // the jobs before it on some of its nodes
	Waits    string        `json:"waits,omitempty"` // why the job would not begin at once
	Rules    []PlanRule    `json:"rules,omitempty"`
	Service  []PlanService `json:"service,omitempty"`
	Expected *PlanTime     `json:"expected,omitempty"` // absent: no earlier job is known
	Warnings []string      `json:"warnings,omitempty"`

	// Lists omit the following fields.

	Vars  map[string]MergedVars `json:"vars,omitempty"` // with their origin, by host; secrets are hidden
	Check *PlanCheck            `json:"check,omitempty"`

	Revision int64 `json:"revision"`
}

// PlanTarget is a node, or an address, of a plan as it would be found and left.
type PlanTarget struct {
	Name        string           `json:"name"`
	Addr        string           `json:"addr"`
	Node        string           `json:"node,omitempty"`  // discover: the node at the address
	State       inventory.State  `json:"state,omitempty"` // when the plan was made
	Batch       int              `json:"batch"`           // from 1
	Status      inventory.Status `json:"status,omitempty"`
	StatusAfter inventory.Status `json:"status_after,omitempty"` // empty: the record is removed
	Group       string           `json:"group,omitempty"`
	GroupAfter  string           `json:"group_after,omitempty"`
	Residue     []string         `json:"residue,omitempty"`
	Applied     string           `json:"applied,omitempty"` // the job that has configured it
	// Playbooks are the digests of the playbooks that configured it, by group.
	Playbooks map[string]string `json:"playbooks,omitempty"`
}

// PlanRule is a rule of the groups that the plan was judged by, and meets.
type PlanRule struct {
	Group string `json:"group"`
	// Group requires at least Minimum healthy nodes of the group Requires.
	Requires string `json:"requires"`
	Minimum  int    `json:"minimum"`
	Joins    bool   `json:"joins,omitempty"` // targets enter Group; otherwise they leave Requires
	// Left is the number of healthy nodes of Requires, and Dependents that of the nodes of
	// Group in service, both without the first batch.
	Left       int `json:"left"`
	Dependents int `json:"dependents"`
}

// PlanService lists the nodes that a plan takes out of service in one group.
type PlanService struct {
	Group      string   `json:"group"`
	Nodes      []string `json:"nodes"`
	AtOnce     int      `json:"at_once"` // the largest number of them at a time
	Before     int      `json:"before"`  // nodes of the group in service
	RequiredBy []string `json:"required_by,omitempty"`
}

// PlanTime is how long the job of a plan may take, as earlier jobs of the same kind did.
type PlanTime struct {
	Jobs     int      `json:"jobs"`     // that were measured
	Median   Duration `json:"median"`   // for one node
	Shortest Duration `json:"shortest"` // for one node
	Longest  Duration `json:"longest"`  // for one node
	Total    Duration `json:"total"`    // the median for all nodes
}

// PlanCheck has the changes that Ansible foresees, found by a job that only checks.
type PlanCheck struct {
	Job     string    `json:"job"`
	Status  JobStatus `json:"status,omitempty"` // empty: the job is no longer kept
	Message string    `json:"message,omitempty"`
	// Nodes are those with findings.
	Nodes     []PlanFindings `json:"nodes,omitempty"`
	Truncated bool           `json:"truncated,omitempty"` // findings are missing
}

// PlanFindings are the findings of the check about one node.
type PlanFindings struct {
	Node  string        `json:"node"`
	Tasks []TaskFinding `json:"tasks"`
}
