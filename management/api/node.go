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
	Group   string   `json:"group,omitempty"`
	Residue []string `json:"residue,omitempty"` // groups with configuration that no cleanup has removed yet
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
	Desired *Configuration `json:"desired,omitempty"`
	// Whether these differ; absent if that is not known, or if the node is not in service. An event of a watch
	// has the value of its time: a change of variables or playbooks alone is no event of a node.
	Outdated *bool            `json:"outdated,omitempty"`
	Differs  []inventory.Part `json:"differs,omitempty"` // the parts that differ
	// The digests of the playbooks that configured the node, by each group that it carries. They clean it, too.
	Playbooks map[string]string `json:"playbooks,omitempty"`
	// The reason for the last failure; the next verb clears it.
	LastError string `json:"last_error,omitempty"`
	// The last verdict on a node in service; absent if there is none since its last configuration.
	Verification *Verdict `json:"verification,omitempty"`

	Job    string         `json:"job,omitempty"`    // the job that holds the node
	Verb   inventory.Verb `json:"verb,omitempty"`   // the verb of that job
	Before *Before        `json:"before,omitempty"` // the node before that job reserved it

	Labels map[string]string `json:"labels,omitempty"` // labels set by operators; no verb changes them
	// The latest report by observer (`gossip`, `post`): whether it sees the node.
	Seen map[string]bool `json:"seen,omitempty"`
	// What the observers say that see the node alive, by observer. The address of `gossip` counts first, then
	// that of the monitor that has said the same for the longest time, then that of `post`.
	Sightings map[string]Sighting `json:"sightings,omitempty"`
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

	Entries uint64    `json:"entries"` // the number of history entries written so far
	Created time.Time `json:"created"` // when the monitor first saw the node
	Updated time.Time `json:"updated"` // when the record last changed

	Connection *Connection `json:"connection,omitempty"` // the node's own connection settings
	Revision   int64       `json:"revision"`             // the store's revision of this record
}

// Configuration is what a node would be configured with. An absent member is not known, or does not apply.
type Configuration struct {
	Playbooks string `json:"playbooks,omitempty"` // the digest of the playbooks
	Commit    string `json:"commit,omitempty"`    // the commit of their git repository
	Group     string `json:"group,omitempty"`     // the host group
	// A keyed hash of the merged variables, secrets included. Equal variables have equal hashes; no value can be
	// read from one.
	Variables string `json:"variables,omitempty"`
	Image     string `json:"image,omitempty"` // the image of the operating system
	// The choice of tasks of the group, as text, such as `tags web, db; skip_tags slow`; absent for all tasks.
	Tags string `json:"tags,omitempty"`
	// Keyed hashes of the nodes in service of groups that others require: of names, addresses and groups, and of
	// their variables.
	Masters string `json:"masters,omitempty"`
}

// Configured is a configuration that a verb has applied to a node. An absent member is not known, or does not
// apply.
type Configured struct {
	Configuration

	Time time.Time `json:"time"` // when the verb succeeded
	// Names of variables that the request of that verb had set, at most 16. Nothing keeps them for the next
	// verb.
	ExtraVars []string `json:"extra_vars,omitempty"`
}

// Verdict is the result of a verification of a node.
type Verdict struct {
	// `clean`: the node carries what its playbooks configure; `drifted`: it differs; `unknown`: the verification
	// could not tell.
	Result      inventory.VerdictResult `json:"result"`
	Time        time.Time               `json:"time"`                  // the end of the verification
	Job         string                  `json:"job"`                   // the verification
	Differences int                     `json:"differences,omitempty"` // tasks that would change the node
	Unjudged    int                     `json:"unjudged,omitempty"`    // tasks that check mode cannot judge
	// Tasks that ran in spite of check mode, with a change or a failure.
	Executed int `json:"executed,omitempty"`
	// Whether the node was compared with variables or playbooks that were not applied to it yet, which count as
	// differences.
	Outdated bool `json:"outdated,omitempty"`
	// Whether a check of verify.yml failed. The node is not healthy then: it does not count for the requirements
	// of groups, and uses up the budget of its own.
	Failed bool `json:"failed,omitempty"`
	// A check of verify.yml that failed, or why the result is unknown.
	Reason string `json:"reason,omitempty"`
}

// Describe returns the verdict in words, such as "drifted: 3 tasks would change".
func (v Verdict) Describe() string { return inventory.Verdict(v).Describe() }

// Difference is what the last verification of a node found, task by task.
type Difference struct {
	Node         string        `json:"node"`         // the node
	Verification Verdict       `json:"verification"` // the verdict
	Tasks        []TaskFinding `json:"tasks"`        // the findings, in the order of the runs
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

// Before is the part of a node that a reservation changes.
type Before struct {
	Status     inventory.Status `json:"status"`
	PrevStatus inventory.Status `json:"prev_status,omitempty"`
	Group      string           `json:"group,omitempty"`      // the group
	LastError  string           `json:"last_error,omitempty"` // the reason for the previous failure
	Applied    string           `json:"applied,omitempty"`    // the job that had configured the node
	// Groups with configuration that no cleanup has removed yet.
	Residue []string `json:"residue,omitempty"`
	Entries uint64   `json:"entries"` // the number of history entries written by then
}

// Sighting is what one observer says about a node that it sees alive.
type Sighting struct {
	Addr   string    `json:"addr"`             // the address of the node
	Others []string  `json:"others,omitempty"` // addresses of other live members with its identity
	Since  time.Time `json:"since,omitzero"`   // since when the observer says so; absent if it is not known
}

// HistoryEntry is one entry of a node's history.
type HistoryEntry struct {
	Seq  uint64         `json:"seq" minimum:"1"` // counts upwards from 1; there may be gaps
	Time time.Time      `json:"time"`            // the time of the change
	Verb inventory.Verb `json:"verb"`
	// The status before the change; absent in the first entry of a node.
	From  inventory.Status `json:"from,omitempty"`
	To    inventory.Status `json:"to"`              // the status after the change
	State inventory.State  `json:"state"`           // the state at that time
	Group string           `json:"group,omitempty"` // the group at that time
	// The user or the part of the manager that made the change.
	Actor  string `json:"actor,omitempty"`
	Job    string `json:"job,omitempty"`           // the job that made the change
	Reason string `json:"reason,omitempty"`        // the reason for the change
	Read   int64  `json:"read_revision,omitempty"` // the revision of the record that the change was based on
}

// Group is a host group and its rules.
type Group struct {
	Name string `json:"name"` // the name
	// The groups that must have so many healthy (commissioned and `Discovered`) nodes outside the request before
	// a node joins this group, and as long as a node of this group is in service.
	Requires map[string]int `json:"requires,omitempty"`
	// How many of its nodes may be out of service at a time; absent: no limit.
	Budget *Budget `json:"budget,omitempty"`
	// What happens to a node in service that disappeared and appears again; absent: `verify`.
	OnReturn string `json:"on_return,omitempty" enum:"record,verify,verify-and-repair,repair"`
	// Bounds for its nodes in rollouts that do not say otherwise; absent: none.
	Strategy *GroupStrategy `json:"strategy,omitempty"`
	// Run only the tasks with one of these tags when its nodes are configured or verified; absent: all tasks.
	// They do not limit a cleanup.
	Tags []string `json:"tags,omitempty"`
	// Leave out the tasks with one of these tags when its nodes are configured or verified.
	SkipTags []string `json:"skip_tags,omitempty"`
}

// GroupTags is the tags of a group, which choose the tasks of the playbooks that configure and verify its
// nodes.
type GroupTags struct {
	Tags     []string `json:"tags,omitempty"`      // only the tasks with one of these tags run; absent: all tasks
	SkipTags []string `json:"skip_tags,omitempty"` // the tasks with one of these tags are left out
}

// GroupStrategy is bounds for the nodes of a group in every rollout that does not say otherwise.
type GroupStrategy struct {
	MaxUnavailable string `json:"max_unavailable,omitempty"` // as in RolloutSpec, of the nodes of the group
	// As in RolloutSpec, of the nodes of the group.
	MaxFailures *int `json:"max_failures,omitempty" type:"integer,null"`
	// The soak time of the nodes of the group, as it is configured: 5m.
	Soak string `json:"soak,omitempty"`
}

// Budget is how many nodes of a group may be out of service at a time. It holds for every verb but verify.
type Budget struct {
	MinAvailable int `json:"min_available,omitempty" minimum:"1"` // the number of nodes that stay available
	// The number of nodes that may be unavailable at a time, such as 2, or their share, such as 25%.
	MaxUnavailable string `json:"max_unavailable,omitempty"`
	// The key of a label, such as rack: max_unavailable then holds among the nodes with the same value of it.
	Per string `json:"per,omitempty"`
}

// Check returns the reason that the transition is refused for the node, or nil
// if the lifecycle allows it. The manager checks again when it accepts a job.
func (n Node) Check(t inventory.Transition) error {
	return t.Check(inventory.Node{
		Name: n.Name, Addr: n.Addr, Status: n.Status, State: n.State, Job: n.Job, Duplicates: n.Duplicates,
		AnnouncedFrom: n.AnnouncedFrom, HostKeys: n.HostKeys,
	})
}
