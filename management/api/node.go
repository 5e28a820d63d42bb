// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"github.com/contiv/cluster/inventory"
)

// Node is one host. The server fills it from the domain's record field by
// field, so that a new field of the record reaches clients only by decision.
type Node struct {
	Name   string `json:"name"`   // LABEL-SERIAL
	Label  string `json:"label"`  // as its agent reports it
	Serial string `json:"serial"` // as its agent reports it
	Addr   string `json:"addr"`   // the address for Ansible: IPv4, IPv6 or host name

	Status     inventory.Status `json:"status"`
	PrevStatus inventory.Status `json:"prev_status,omitempty"`
	State      inventory.State  `json:"state"`
	PrevState  inventory.State  `json:"prev_state,omitempty"`

	// Group is the host group of a node that is commissioned, is being
	// commissioned, or (Quarantined) may still carry the group's configuration.
	Group string `json:"group,omitempty"`
	// Residue lists groups with configuration that no cleanup has removed yet.
	Residue []string `json:"residue,omitempty"`
	// Applied is the id of the job that configured the node; empty if it is
	// unknown or the node carries no configuration.
	Applied string `json:"applied,omitempty"`
	// Cleaned: a job has begun to remove its configuration, and none was applied whole
	// since. It has its group, and does not serve.
	Cleaned bool `json:"cleaned,omitempty"`
	// Configured is the configuration of that job; absent if it is unknown, or was not
	// recorded.
	Configured *Configured `json:"configured,omitempty"`
	// RequestVars are names of variables whose values only the request of that job had set: the
	// next job that configures the node takes them back.
	RequestVars []string `json:"request_vars,omitempty"`
	// Desired is the configuration that a verb would apply now; absent if it is the
	// applied one, or if the node is not in service.
	Desired *Configuration `json:"desired,omitempty"`
	// Outdated reports whether these differ; absent if that is not known, or if the node
	// is not in service.
	Outdated *bool `json:"outdated,omitempty"`
	// Differs are the parts that differ: playbooks, group, variables, image or tags.
	Differs []inventory.Part `json:"differs,omitempty"`
	// Playbooks are the digests of the playbooks that configured the node, by group.
	// They clean the node, too.
	Playbooks map[string]string `json:"playbooks,omitempty"`
	// LastError is the reason for the last failed verb; the next verb clears it.
	LastError string `json:"last_error,omitempty"`
	// Verification is the last verdict on a node in service; absent if there is none
	// since its last configuration.
	Verification *Verdict `json:"verification,omitempty"`

	Job    string         `json:"job,omitempty"`    // the job that holds the node
	Verb   inventory.Verb `json:"verb,omitempty"`   // the verb of that job
	Before *Before        `json:"before,omitempty"` // the node before that job reserved it

	Labels map[string]string `json:"labels,omitempty"` // set by operators; no verb changes them
	Seen   map[string]bool   `json:"seen,omitempty"`   // by observer: its latest report
	// Sightings are what the observers say that see the node alive, by observer.
	Sightings map[string]Sighting `json:"sightings,omitempty"`
	// Duplicates are the other addresses at which the node is claimed: of further live hosts
	// with its identity, or where another observer sees it. Every job refuses the node.
	Duplicates []string `json:"duplicates,omitempty"`
	// SetAside are claims that an operator has found not to be this node.
	SetAside []string `json:"set_aside,omitempty"`
	// AnnouncedFrom is the address of its member in the gossip, if that announces an
	// address other than its own.
	AnnouncedFrom string `json:"announced_from,omitempty"`
	// AddrRivals are the other nodes under the same address, port and jump host that
	// are Discovered or carry configuration. Ansible could not reach one of them for
	// sure. Only the answers about a single node have them.
	AddrRivals []string `json:"addr_rivals,omitempty"`
	// HostKeys are the ssh host keys recorded at the first contact, in the
	// format of known_hosts without the host field ("ssh-ed25519 AAAA…").
	HostKeys []string `json:"host_keys,omitempty"`

	Entries uint64    `json:"entries"` // history entries written so far
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`

	// Connection holds the node's own connection settings; nil if it has none.
	Connection *Connection `json:"connection,omitempty"`
	// Revision is the store's revision of the record.
	Revision int64 `json:"revision"`
}

// Configuration identifies the configuration of a node, applied or desired. An absent
// field is not known, or does not apply.
type Configuration struct {
	Playbooks string `json:"playbooks,omitempty"` // the digest of the playbooks
	Commit    string `json:"commit,omitempty"`    // of their git repository
	Group     string `json:"group,omitempty"`
	// Variables is a keyed hash of the merged variables, secrets included.
	Variables string `json:"variables,omitempty"`
	Image     string `json:"image,omitempty"` // of the operating system
	// Tags describe the choice of tasks of the group; absent: every task.
	Tags string `json:"tags,omitempty"`
	// Masters are keyed hashes of the nodes of groups that others require, and of their variables.
	Masters string `json:"masters,omitempty"`
}

// Configured is the configuration that a verb has applied to a node.
type Configured struct {
	Configuration

	Time time.Time `json:"time"`
	// ExtraVars are names of variables that the request of that verb had set, at most
	// 16. Nothing keeps them for the next verb.
	ExtraVars []string `json:"extra_vars,omitempty"`
}

// Verdict is the result of a verification of a node.
type Verdict struct {
	// Result is clean, drifted or unknown.
	Result inventory.VerdictResult `json:"result"`
	Time   time.Time               `json:"time"`
	Job    string                  `json:"job"` // the verification
	// Differences are the tasks that would change the node, Unjudged those that check
	// mode cannot judge, and Executed those that ran all the same and reported a change
	// or a failure.
	Differences int `json:"differences,omitempty"`
	Unjudged    int `json:"unjudged,omitempty"`
	Executed    int `json:"executed,omitempty"`
	// Outdated: the node was compared with a configuration that was not applied to it.
	Outdated bool `json:"outdated,omitempty"`
	// Failed: a check of verify.yml, or the gate of a rollout, failed. The node is not healthy for the rules of groups.
	Failed bool   `json:"failed,omitempty"`
	Reason string `json:"reason,omitempty"` // the check or the gate that failed, or why the result is unknown
}

// Describe returns the verdict in words, such as "drifted: 3 tasks would change".
func (v Verdict) Describe() string { return inventory.Verdict(v).Describe() }

// Difference is what the last verification of a node found, task by task.
type Difference struct {
	Node         string        `json:"node"`
	Verification Verdict       `json:"verification"`
	Tasks        []TaskFinding `json:"tasks"` // in the order of the runs
	// Truncated: the events of the job reached their limit, so findings are missing.
	Truncated bool `json:"truncated,omitempty"`
}

// The kinds of finding of a verification.
const (
	FindingDiffers  = "differs"  // the task would change the node
	FindingFailed   = "failed"   // a check of verify.yml failed, or a task failed in check mode
	FindingUnjudged = "unjudged" // check mode kept the task from being judged, at least in part
	FindingExecuted = "executed" // the task ran, and reported a change
)

// TaskFinding is the finding of a verification about one task on a node.
type TaskFinding struct {
	Kind     string `json:"kind"`
	Playbook string `json:"playbook"`
	Play     string `json:"play,omitempty"`
	Role     string `json:"role,omitempty"`
	Task     string `json:"task"`
	Action   string `json:"action,omitempty"`  // the module
	Path     string `json:"path,omitempty"`    // FILE:LINE, in the playbooks
	Message  string `json:"message,omitempty"` // of a failure
	Diff     string `json:"diff,omitempty"`    // in the format of diff -u; secrets are hidden
}

// Before is the part of a node that a reservation changes.
type Before struct {
	Status     inventory.Status `json:"status"`
	PrevStatus inventory.Status `json:"prev_status,omitempty"`
	Group      string           `json:"group,omitempty"`
	LastError  string           `json:"last_error,omitempty"`
	Applied    string           `json:"applied,omitempty"`
	Residue    []string         `json:"residue,omitempty"`
	Entries    uint64           `json:"entries"`
}

// Sighting is what one observer says about a node.
type Sighting struct {
	Addr   string    `json:"addr"`
	Others []string  `json:"others,omitempty"` // addresses of other live members with its identity
	Since  time.Time `json:"since,omitzero"`   // since when the observer says so
}

// HistoryEntry is one entry of a node's history.
type HistoryEntry struct {
	Seq    uint64           `json:"seq"` // counts upwards from 1; a withdrawn reservation leaves a gap
	Time   time.Time        `json:"time"`
	Verb   inventory.Verb   `json:"verb"`
	From   inventory.Status `json:"from,omitempty"`
	To     inventory.Status `json:"to"`
	State  inventory.State  `json:"state"` // the state at that time
	Group  string           `json:"group,omitempty"`
	Actor  string           `json:"actor,omitempty"`
	Job    string           `json:"job,omitempty"`
	Reason string           `json:"reason,omitempty"`
	// Read is the revision of the record that the transition was based on.
	Read int64 `json:"read_revision,omitempty"`
}

// Group is a host group and its rules.
type Group struct {
	Name string `json:"name"`
	// Requires are the groups that must have so many healthy (commissioned and
	// Discovered) nodes outside the request before a node joins this group, and as long
	// as a node of this group is in service. Empty: no rule.
	Requires map[string]int `json:"requires,omitempty"`
	// Budget limits how many of its nodes are out of service at a time; nil: no limit.
	Budget *Budget `json:"budget,omitempty"`
	// OnReturn is the reaction to the return of a node in service; empty: verify.
	OnReturn string `json:"on_return,omitempty"`
	// Strategy bounds its nodes in rollouts that do not say otherwise; nil: no bound.
	Strategy *GroupStrategy `json:"strategy,omitempty"`
	// Tags and SkipTags choose the tasks of the playbooks that configure and verify its
	// nodes; empty: all.
	Tags     []string `json:"tags,omitempty"`
	SkipTags []string `json:"skip_tags,omitempty"`
}

// GroupTags choose the tasks of the playbooks that configure and verify the nodes of a
// group.
type GroupTags struct {
	Tags     []string `json:"tags,omitempty"`
	SkipTags []string `json:"skip_tags,omitempty"`
}

// GroupStrategy bounds the nodes of a group in rollouts.
type GroupStrategy struct {
	MaxUnavailable string `json:"max_unavailable,omitempty"`
	MaxFailures    *int   `json:"max_failures,omitempty"`
	// Soak is a time such as 5m, as it is configured.
	Soak string `json:"soak,omitempty"`
}

// Budget limits how many nodes of a group are out of service at a time.
type Budget struct {
	// MinAvailable is the number of nodes that stay available; 0: no limit.
	MinAvailable int `json:"min_available,omitempty"`
	// MaxUnavailable is a number of nodes, such as "2", or a share, such as "25%".
	MaxUnavailable string `json:"max_unavailable,omitempty"`
	// Per is the key of a label: MaxUnavailable holds for each value of it.
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
