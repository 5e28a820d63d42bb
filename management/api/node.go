// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"github.com/contiv/cluster/inventory"
)

// Node is one host.
//
// The server fills it from the domain's record field by field, so that a new field of the record reaches
// clients only by decision.
type Node struct {
	Name   string `json:"name"`   // the name, LABEL-SERIAL
	Label  string `json:"label"`  // the label reported by the node's agent
	Serial string `json:"serial"` // the serial number reported by the node's agent
	Addr   string `json:"addr"`   // the address for Ansible: IPv4, IPv6 or a host name

	Status     inventory.Status `json:"status"`
	PrevStatus inventory.Status `json:"prev_status,omitempty"` // the previous status
	State      inventory.State  `json:"state"`
	PrevState  inventory.State  `json:"prev_state,omitempty"` // the previous state

	// The group of a node that is commissioned, is being commissioned, or (Quarantined) may still carry the
	// group's configuration.
	Group string `json:"group,omitempty"`
	// A cleaning broke off on the host, and none succeeded since; the node is offered only after one did.
	Uncleaned bool     `json:"uncleaned,omitempty"`
	Residue   []string `json:"residue,omitempty"` // groups with configuration that no cleanup has removed yet
	// The number of the job that configured the node; absent if it is unknown or the node carries no
	// configuration.
	Applied string `json:"applied,omitempty"`
	// A job has begun to remove its configuration, and none was applied whole since: it has its group, and does
	// not serve. `apply` or `reapply` configures it again.
	Cleaned bool `json:"cleaned,omitempty"`
	// What that job applied; absent if that is unknown, or was not recorded.
	Configured *Configured `json:"configured,omitempty"`
	// Names of variables whose values only the request of that job had set: the next job that configures the
	// node takes them back, unless its request sets them. To keep one, set it for the node.
	RequestVars []string `json:"request_vars,omitempty"`
	// What a node in service would be configured with now; absent if that is what was applied.
	Desired *inventory.Configuration `json:"desired,omitempty"`
	// Whether these differ; absent if that is not known, or if the node is not in service. An event of a watch
	// has the value of its time: a change of variables or playbooks alone is no event of a node.
	Outdated *bool            `json:"outdated,omitempty"`
	Differs  []inventory.Part `json:"differs,omitempty"` // the parts that differ
	// The power as its BMC last said it; absent: no BMC ever did. `GET /v1/power` has more, and a watch of the kind
	// `power` its changes: they are no events of a node.
	Power string `json:"power,omitempty" enum:"on,off,changing"`
	// Why its BMC did not say the power when it was asked last, such as a refused login; absent: it did.
	BMCProblem string `json:"bmc_problem,omitempty"`
	// The digests of the playbooks that configured the node, by each group that it carries. They clean it, too.
	Playbooks map[string]string `json:"playbooks,omitempty"`
	// The reason for the last failure; the next verb clears it.
	LastError string `json:"last_error,omitempty"`
	// The last verdict on a node in service; absent if there is none since its last configuration.
	Verification *inventory.Verdict `json:"verification,omitempty"`

	Job    string            `json:"job,omitempty"`    // the job that holds the node
	Verb   inventory.Verb    `json:"verb,omitempty"`   // the verb of that job
	Before *inventory.Before `json:"before,omitempty"` // the node before that job reserved it

	Labels map[string]string `json:"labels,omitempty"` // labels set by operators; no verb changes them
	Alerts []inventory.Alert `json:"alerts,omitempty"` // what somebody found about it, the oldest first
	// The latest report by observer (`gossip`, `post`): whether it sees the node.
	Seen map[string]bool `json:"seen,omitempty"`
	// What the observers say that see the node alive, by observer. The address of `gossip` counts first, then
	// that of the monitor that has said the same for the longest time, then that of `post`.
	Sightings map[string]inventory.Sighting `json:"sightings,omitempty"`
	// The other addresses at which the node is claimed: by further live hosts with its identity, or since
	// another observer sees it there. Every job refuses the node meanwhile.
	Duplicates []string `json:"duplicates,omitempty"`
	// Claimed addresses that an operator has found not to be this node's.
	SetAside []string `json:"set_aside,omitempty"`
	// The address of its member in the gossip, if that announces an address other than its own. Without a
	// recorded ssh host key, such a node is refused for jobs that configure it.
	AnnouncedFrom string `json:"announced_from,omitempty"`
	// The other nodes under the same address, port and jump host that are `Discovered` or carry configuration:
	// Ansible may reach the wrong host. Only in answers about a single node.
	AddrRivals []string `json:"addr_rivals,omitempty"`
	// The ssh host keys recorded at the first contact, in the format of known_hosts without the host.
	HostKeys []string `json:"host_keys,omitempty"`

	// What the newest inspection found, in short; absent if there was none.
	Hardware *inventory.Hardware `json:"hardware,omitempty"`
	// What the manager installed last; absent: nothing.
	Installed *inventory.Installed `json:"installed,omitempty"`

	Entries uint64    `json:"entries"` // the number of history entries written so far
	Created time.Time `json:"created"` // when the monitor first saw the node
	Updated time.Time `json:"updated"` // when the record last changed

	Connection *Connection `json:"connection,omitempty"` // the node's own connection settings
	Revision   int64       `json:"revision"`             // the store's revision of this record
}

// Configured is a configuration that a verb has applied to a node. An absent member is not known, or does not
// apply.
type Configured struct {
	inventory.Configuration

	Time time.Time `json:"time"` // when the verb succeeded
	// Names of variables that the request of that verb had set, at most 16. Nothing keeps them for the next
	// verb.
	ExtraVars []string `json:"extra_vars,omitempty"`
}

// Difference is what the last verification of a node found, task by task.
type Difference struct {
	Node         string            `json:"node"`         // the node
	Verification inventory.Verdict `json:"verification"` // the verdict
	Tasks        []TaskFinding     `json:"tasks"`        // the findings, in the order of the runs
	// Whether findings are missing, because the events of the job reached their limit.
	Truncated bool `json:"truncated,omitempty"`
}

// The kinds of finding of a verification.
const (
	FindingDiffers  = "differs"  // the task would change the node
	FindingFailed   = "failed"   // a check of verify.yml failed, or a task failed in check mode
	FindingUnjudged = "unjudged" // check mode kept the task from being judged, at least in part
	FindingExecuted = "executed" // the task ran, and reported a change
)

// TaskFinding is what a verification found about one task on a node.
type TaskFinding struct {
	// `differs`: the task would change the node; `failed`: a check of verify.yml failed, or a task failed in
	// check mode, even if the playbook ignores or rescues that; `unjudged`: check mode kept the task from being
	// judged, at least in part; `executed`: the task ran, and reported a change.
	Kind     string `json:"kind" enum:"differs,failed,unjudged,executed"`
	Playbook string `json:"playbook"`          // the playbook
	Play     string `json:"play,omitempty"`    // the play
	Role     string `json:"role,omitempty"`    // the role
	Task     string `json:"task"`              // the task
	Action   string `json:"action,omitempty"`  // the module
	Path     string `json:"path,omitempty"`    // the file and the line of the task, in the playbooks
	Message  string `json:"message,omitempty"` // the message of a failure
	// The difference, in the format of `diff -u`, if the module reports one. Secrets are hidden.
	Diff string `json:"diff,omitempty"`
}

// Check returns the reason that the transition is refused for the node, or nil
// if the lifecycle allows it. The manager checks again when it accepts a job.
func (n Node) Check(t inventory.Transition) error {
	return t.Check(inventory.Node{
		Name: n.Name, Addr: n.Addr, Status: n.Status, State: n.State, Job: n.Job, Duplicates: n.Duplicates,
		AnnouncedFrom: n.AnnouncedFrom, HostKeys: n.HostKeys, Alerts: n.Alerts,
	})
}

// Group is a host group with the numbers of its nodes.
type Group struct {
	inventory.Group

	Nodes   int `json:"nodes"`   // the nodes in the group that the caller sees, in whatever status
	Healthy int `json:"healthy"` // those of them that are in service and `Discovered`
}
