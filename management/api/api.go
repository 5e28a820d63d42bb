// SPDX-License-Identifier: Apache-2.0

// Package api is the contract between the daemon and its clients: paths, wire
// types and errors. It only parses.
//
// It has two API families: the versioned one under /v1 for clusterctl and new
// programs, and the contract of the first generation for existing clients
// (legacy.go).
package api

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
)

// DefaultSocket is the default Unix socket of daemon and clients. Only root can
// open it.
const DefaultSocket = "/run/clusterm/clusterm.sock"

// Connection is connection settings for ssh. An absent field falls back to the group's setting, then to the
// site's, then to the default of ssh and Ansible.
type Connection struct {
	User       string `json:"user,omitempty"`        // the user name
	KeyFile    string `json:"key_file,omitempty"`    // the private key, a path on the manager's host
	Port       int    `json:"port,omitempty"`        // the port
	Become     *bool  `json:"become,omitempty"`      // whether to become root, or become_user, by sudo
	BecomeUser string `json:"become_user,omitempty"` // the user to become
	Jump       string `json:"jump,omitempty"`        // a jump host, [USER@]HOST[:PORT]
	// The Python interpreter on the host: an absolute path, or auto.
	Python string `json:"python,omitempty"`
}

// NodePatch is a change to a node's connection settings and labels. Absent fields stay as they are.
type NodePatch struct {
	// Replaces all connection settings; `{}` removes them. Absent or null changes nothing.
	Connection *Connection `json:"connection,omitempty" type:"object,null"`
	// Drop the recorded ssh host key; the next contact records it anew.
	ForgetHostKey bool `json:"forget_host_key,omitempty"`
	// Labels to set; null removes a label.
	Labels map[string]*string `json:"labels,omitempty" type:"object,null"`
}

// List is a list, or a page of it.
type List[T any] struct {
	Items []T `json:"items"` // the items
	// The token of the next page; absent on the last page. Every item that does not change meanwhile appears on
	// exactly one page.
	Continue string `json:"continue,omitempty"`
	Total    int    `json:"total"`    // the number of items on all pages
	Revision int64  `json:"revision"` // the revision that the list shows
	// Whether the store has not responded for 3 seconds, so the list may be stale.
	Stale bool `json:"stale,omitempty"`
}

// Changed is the result of a change without a record of its own.
type Changed struct {
	Revision int64 `json:"revision"` // the revision of the store after the change
	// Warnings, e.g. about values with the syntax of templates.
	Warnings []string `json:"warnings,omitempty"`
}

// Forget is a request to forget nodes.
type Forget struct {
	Nodes  []string `json:"nodes"`            // the names of the nodes
	Force  bool     `json:"force,omitempty"`  // also forget nodes that the monitor still sees
	Reason string   `json:"reason,omitempty"` // the operator's reason, kept in the tombstone
}

// HostKey is an ssh host key.
type HostKey struct {
	// The key in the format of known_hosts without the host field: `ssh-ed25519 AAAA…`.
	Key         string `json:"key"`
	Fingerprint string `json:"fingerprint"` // its fingerprint, as `ssh-keygen -l` prints it: `SHA256:…`
}

// HostKeys are the ssh host keys of a node.
type HostKeys struct {
	Node     string    `json:"node"`     // the name of the node
	Addr     string    `json:"addr"`     // the address that was asked
	Recorded []HostKey `json:"recorded"` // the recorded keys
	Shown    []HostKey `json:"shown"`    // the keys that the host shows now, the preferred one first
}

// HostKeyTrust is the ssh host key to record, by `key` or by `fingerprint`.
//
// The host must show it.
type HostKeyTrust struct {
	// The key: `ssh-ed25519 AAAA…`. A comment is ignored.
	Key         string `json:"key,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"` // its fingerprint: `SHA256:…`
	Reason      string `json:"reason,omitempty"`      // the operator's reason, kept in the history
	// Also set aside the other addresses at which the node is claimed (`duplicates`), so that jobs take it;
	// needs a reason. A further claim is a new conflict.
	SetAside bool `json:"set_aside,omitempty"`
}

// MaxPing is the maximum number of nodes in one Ping.
const MaxPing = 64

// Ping is a request to try an ssh login on nodes.
type Ping struct {
	Nodes []string `json:"nodes" minItems:"1" maxItems:"64"` // the names of the nodes, each once
}

// PingResult is the answer of one node, or the reason why there is none.
type PingResult struct {
	Node     string `json:"node"`     // the name of the node
	Addr     string `json:"addr"`     // its address
	Answered bool   `json:"answered"` // whether the login succeeded
	// Whether the host has the recorded key, or a certificate of a CA in `ssh.host_ca`. An answer without it
	// comes from a host that has no key recorded.
	HostKeyVerified bool     `json:"host_key_verified,omitempty"`
	Took            Duration `json:"took,omitempty"`    // the time until the result, for example `37ms`
	Message         string   `json:"message,omitempty"` // why the node did not answer
	Remedy          string   `json:"remedy,omitempty"`  // the recommended action, in words
	Actions         []Action `json:"actions,omitempty"` // the actions that carry the remedy out
}

// GossipKeyNever is the phase before the first rotation of the gossip key.
const GossipKeyNever = "never"

// GossipKey is the newest rotation of the key that encrypts the gossip.
//
// Keys are shown as fingerprints.
type GossipKey struct {
	// `never` before the first rotation. `install`: all members learn the new key. `use`: it begins to encrypt.
	// `remove`: the old one is removed once every known node has confirmed. `done`.
	Phase   string     `json:"phase" enum:"never,install,use,remove,done"`
	Key     string     `json:"key,omitempty"`      // the fingerprint of the new key
	OldKeys []string   `json:"old_keys,omitempty"` // the fingerprints of the keys that it replaces
	Actor   string     `json:"actor,omitempty"`    // who began the rotation
	Started *time.Time `json:"started,omitempty"`  // when it began
	Ended   *time.Time `json:"ended,omitempty"`    // when it was done
	Round   *time.Time `json:"round,omitempty"`    // when the members were last asked

	Known     int       `json:"known"`                // the number of nodes that are, or were, members of the gossip
	Confirmed int       `json:"confirmed"`            // the number of nodes that accept the new key
	Removed   int       `json:"removed"`              // the number of nodes that no longer accept the old one
	Laggards  []Laggard `json:"laggards"`             // what the rotation waits for, as of the last round
	LockedOut []string  `json:"locked_out,omitempty"` // the members that an operator gave up
}

// Laggard is a node, or another member of the gossip, that a rotation waits for.
type Laggard struct {
	Name   string `json:"name"`   // the name of the node, or of the member
	Reason string `json:"reason"` // why it has not confirmed
}

// GossipKeyRotation is a request to rotate the gossip key.
type GossipKeyRotation struct {
	Force   bool     `json:"force,omitempty"`    // go on without the nodes in `lock_out`
	LockOut []string `json:"lock_out,omitempty"` // the laggards to lock out, all of them
}

// SSHKeyNever is the phase before the first rotation of the manager's ssh key.
const SSHKeyNever = "never"

// SSHKey is the newest rotation of the ssh key with which the manager logs in to nodes.
//
// It has no private key.
type SSHKey struct {
	// `never` before the first rotation. `install`: the nodes learn the new key. `use`: the manager begins to
	// use it. `remove`: the nodes that have confirmed forget the old one. `done`.
	Phase   string      `json:"phase" enum:"never,install,use,remove,done"`
	Key     *SSHKeyFile `json:"key,omitempty"`     // the new one, or the one in use
	Old     *SSHKeyFile `json:"old,omitempty"`     // the one that it replaces
	Reverts bool        `json:"reverts,omitempty"` // the rotation takes a cancelled one back
	Actor   string      `json:"actor,omitempty"`   // who began the rotation
	Started *time.Time  `json:"started,omitempty"` // when it began
	Ended   *time.Time  `json:"ended,omitempty"`   // when it was done
	Problem string      `json:"problem,omitempty"` // why the manager cannot go on

	Known     int       `json:"known"`                // the number of nodes that use the key
	Confirmed int       `json:"confirmed"`            // the number of nodes that accept the new key
	Removed   int       `json:"removed"`              // the number of nodes that no longer accept the old one
	Laggards  []Laggard `json:"laggards"`             // what the rotation waits for
	LockedOut []string  `json:"locked_out,omitempty"` // the nodes that an operator gave up
	// The nodes with a key of their own, or of their group, which stays.
	OwnKeys []string `json:"own_keys,omitempty"`
}

// SSHKeyFile is an ssh key of the manager.
type SSHKeyFile struct {
	Path        string `json:"path"`                // the file of the private half, on the manager's host
	PublicKey   string `json:"public_key"`          // the public half, as `ssh-ed25519 AAAA…`
	Fingerprint string `json:"fingerprint"`         // its fingerprint as ssh-keygen -l prints it
	Generated   bool   `json:"generated,omitempty"` // a rotation made the key, and a later one removes it
}

// SSHKeyRotation is a request to rotate the ssh key.
type SSHKeyRotation struct {
	// The file of the new key, a path on the manager's host; without it, the manager makes one.
	To      string   `json:"to,omitempty"`
	Force   bool     `json:"force,omitempty"`    // go on without the nodes in `lock_out`
	LockOut []string `json:"lock_out,omitempty"` // the laggards to lock out, all of them
}

// JobStatus is the status of a job.
type JobStatus string

// The job statuses.
const (
	Queued    JobStatus = "Queued"
	Running   JobStatus = "Running"
	Complete  JobStatus = "Complete"
	Errored   JobStatus = "Errored"
	Cancelled JobStatus = "Cancelled"
)

// JobStatuses lists every status of a job in lifecycle order.
var JobStatuses = []JobStatus{Queued, Running, Complete, Errored, Cancelled}

// Ended reports whether the status is final.
func (s JobStatus) Ended() bool { return s == Complete || s == Errored || s == Cancelled }

// CauseDrifted is the Cause of a verification that found a node that differs from its
// configuration.
const CauseDrifted = "drifted"

// JobRequest is a request for a job.
type JobRequest struct {
	// manage, inspect, install, provide, commission, update, apply, reapply, maintenance, verify, decommission, clear,
	// power, forget or discover.
	Verb inventory.Verb `json:"verb"`
	// The nodes, in order; for every verb except discover.
	Nodes []string `json:"nodes,omitempty" type:"array,null"`
	// discover: addresses or host names. One that does not answer over ssh fails the job; the others go on.
	Addrs []string `json:"addrs,omitempty" type:"array,null"`
	// discover: further addresses, as `FIRST-LAST` or `NETWORK/BITS`, at most 1024. Those that do not answer,
	// and nodes that are Discovered, are skipped.
	Ranges []string `json:"ranges,omitempty" type:"array,null"`
	// commission: the group, instead of the manager's choice; update: the new group.
	Group string `json:"group,omitempty"`
	// Variables that override all others: an object, or a string with one as JSON or YAML. A string that begins
	// with `{` or `[` is JSON or refused. Names of the form `ansible_…` are refused.
	ExtraVars json.RawMessage `json:"extra_vars,omitempty" type:"object,string,null"`

	inventory.JobOptions

	// The time limit, e.g. 90s or 1h30m; 0s or absent for the configured limit (jobs.timeout).
	Timeout Duration `json:"timeout,omitempty"`
	// discover: ssh public keys by address, each as `ssh-ed25519 AAAA…`. The host at the address must show one
	// of them. The key of an address without any is recorded at the first contact, or certified by a CA in
	// `ssh.host_ca`.
	HostKeys map[string][]string `json:"host_keys,omitempty"`
	// Verbs that take nodes: a condition, by node of the request: if one is not as expected, or will not be
	// after the jobs ahead, the request fails with `precondition`.
	Expect map[string]Expected `json:"expect,omitempty"`
}

// Expected is what a request for a job expects of a node.
type Expected struct {
	Status inventory.Status `json:"status"`
	Group  string           `json:"group,omitempty"` // the group; absent for none
}

// Job is one job. Lists omit `runs`, `hosts` and `vars`.
type Job struct {
	ID     string         `json:"id"` // the job's number; numbers rise in the order of acceptance
	Verb   inventory.Verb `json:"verb"`
	Status JobStatus      `json:"status"`
	// The result, or the problems so far; absent after a plain success.
	Message string `json:"message,omitempty"`
	// The kind of failure. `drifted`: a verification found a node that differs from its configuration.
	// `precondition`: the job, or its next batch, was no longer allowed when its turn came; `absent`: a host
	// never appeared; `interrupted`: the runner crashed or was stopped, but not by a cancel.
	Cause string `json:"cause,omitempty"`

	Nodes []string `json:"nodes,omitempty"` // the nodes, in order
	// discover: the addresses, in order.
	Addrs []string `json:"addrs,omitempty"`
	// Further nodes that the job holds because its playbooks use them.
	Helpers []string `json:"helpers,omitempty"`
	Group   string   `json:"group,omitempty"` // the group for the nodes

	// JobOptions are those of the request. After a check, the counts of changes are those
	// of the changes that a run would make.
	inventory.JobOptions

	// The tags that groups of its nodes had at its acceptance, by group. They choose the tasks of its runs,
	// besides its own tags; groups with all tasks are absent.
	GroupTags map[string]inventory.Selection `json:"group_tags,omitempty"`

	Actor     string `json:"actor,omitempty"`      // the user who submitted the job
	RetryOf   string `json:"retry_of,omitempty"`   // the job that this job retries
	Plan      string `json:"plan,omitempty"`       // the plan that this job carries out
	PlannedBy string `json:"planned_by,omitempty"` // the user who made that plan
	Rollout   string `json:"rollout,omitempty"`    // the rollout that the job is a part of
	// How a retry differs from the job that it retries: playbooks, names of variables, groups, and nodes left
	// out.
	Differences []string `json:"differences,omitempty"`
	Instance    string   `json:"instance,omitempty"` // the instance of the manager that runs the job
	// A decision of the manager, e.g. the chosen group.
	Note string `json:"note,omitempty"`
	// Warnings, e.g. about values with the syntax of templates.
	Warnings []string `json:"warnings,omitempty"`

	Position   int      `json:"position,omitempty" minimum:"1"` // queued: the position in the queue, from 1
	WaitsFor   []string `json:"waits_for,omitempty"`            // queued: the jobs ahead of this job
	WaitReason string   `json:"wait_reason,omitempty"`          // queued: the reason for the wait
	// Queued: when the maintenance window opens, or the freeze ends, for which the job waits; absent if it waits
	// for something else, or if that is not known.
	WaitUntil *time.Time `json:"wait_until,omitempty"`

	Accepted time.Time  `json:"accepted"`          // when the manager accepted the job
	Started  *time.Time `json:"started,omitempty"` // when the job started
	Ended    *time.Time `json:"ended,omitempty"`   // the end; absent before
	// The deadline. A cleanup after a failure gets the same time again; while it runs, this is its own deadline.
	Deadline *time.Time `json:"deadline,omitempty"`

	// Running: the current phase. `verify`: verify.yml; `drift`: site.yml in check mode, with differences;
	// `residue`: cleanup that an earlier decommission left undone; `erase`: erase.yml; `clean`: clean.yml;
	// `probe`: a try of an ssh login at each address; `undo`: cleanup after a failure; `appear`: wait for the hosts
	// to appear.
	Phase string `json:"phase,omitempty" enum:"residue,probe,erase,clean,configure,cleanup,apply,upgrade,verify,drift,undo,appear,power,credentials,inspect,install"` //nolint:lll // a tag is one line
	// The number of cancel requests; the second skips the cleanup.
	Cancel   int    `json:"cancel,omitempty" minimum:"1"`
	CancelBy string `json:"cancel_by,omitempty"` // the user of the first cancel request
	// The reader is that user. Lists and watches omit it.
	CancelledByYou bool   `json:"cancelled_by_you,omitempty"`
	PlaybookDigest string `json:"playbook_digest,omitempty"` // the digest of the pinned playbooks
	// The commit of the git repository that the pinned playbooks come from. Absent: a folder, or clusterm
	// itself.
	Commit   string `json:"commit,omitempty"`
	LogBytes int64  `json:"log_bytes,omitempty"` // the size of the output so far, in bytes

	// Lists omit the following fields.

	Runs  []Run                 `json:"runs,omitempty"`  // the runs of ansible-playbook, in order
	Hosts []HostSummary         `json:"hosts,omitempty"` // the result for each node or address, in order
	Vars  map[string]MergedVars `json:"vars,omitempty"`  // the pinned variables and their origin, by host

	Revision int64 `json:"revision"` // the store's revision of this record
}

// Run is one run of ansible-playbook for a job, or the wait for hosts to appear.
type Run struct {
	// The kind of step: a run of ansible-playbook, a try of an ssh login at each address, or a wait until the
	// hosts are observed; for the verbs of the same names, power, credentials and inspect.
	Kind string `json:"kind" enum:"playbook,probe,appear,power,credentials,inspect,install"`
	// The phase of the job, as in Job.
	Phase string `json:"phase" enum:"residue,probe,erase,clean,configure,cleanup,apply,upgrade,verify,drift,undo,appear,power,credentials,inspect,install"` //nolint:lll // a tag is one line
	// The playbook; empty for the other kinds than `playbook`.
	Playbook string `json:"playbook"`
	// The digest of the playbooks of this run; a cleanup has those that configured its nodes. `bundled`: those
	// of the program, which undo a discover, erase disks, and clean if the folder has no clean.yml.
	PlaybookDigest string   `json:"playbook_digest,omitempty"`
	Hosts          []string `json:"hosts" type:"array,null"` // the hosts
	// Parallel to hosts: the group of each host in this run.
	Groups  []string   `json:"groups,omitempty"`
	Started time.Time  `json:"started"`         // the start
	Ended   *time.Time `json:"ended,omitempty"` // the end; absent before
	// The result; absent before the end.
	Exit    string       `json:"exit,omitempty"`
	Code    int          `json:"code,omitempty" minimum:"-1"` // the exit code of ansible-playbook
	Message string       `json:"message,omitempty"`           // the reason for a failure
	Results []HostResult `json:"results,omitempty"`           // the result for each host that the run reached
	// What troubled the manager itself during a run that failed, such as a slow store, or no processor time.
	Troubles []string `json:"troubles,omitempty"`
}

// HostResult is the result of one run on one host, in numbers of tasks.
type HostResult struct {
	Host string `json:"host"` // the host
	// Whether the host is a helper: a node that the request does not name, and on which a play with
	// `job_helpers` in its `hosts` has acted.
	Helper      bool   `json:"helper,omitempty"`
	OK          int    `json:"ok"`                    // successful tasks
	Changed     int    `json:"changed"`               // tasks with changes
	Failed      int    `json:"failed,omitempty"`      // failed tasks
	Unreachable bool   `json:"unreachable,omitempty"` // whether the host was unreachable
	Task        string `json:"task,omitempty"`        // the failed task
	Message     string `json:"message,omitempty"`     // the reason for the change
	Foreseen    int    `json:"foreseen,omitempty"`    // of a check: tasks that would change the host
	Unjudged    int    `json:"unjudged,omitempty"`    // of a check: tasks that it cannot judge
	// Of a check: tasks that it executed all the same, with a change or a failure.
	Executed int `json:"executed,omitempty"`
	Judged   int `json:"judged,omitempty"` // tasks that compared the host with their aim
	// Why the host may differ although nothing failed on it, such as a failure that the playbook ignores.
	Doubt string `json:"doubt,omitempty"`
}

// HostSummary is the result of a job for one host.
type HostSummary struct {
	Host string `json:"host"` // the node's name; its address if it has no name yet
	// The node's status after the job; absent if the job never touched the node.
	Status inventory.Status `json:"status,omitempty"`
	OK     bool             `json:"ok"` // whether the verb succeeded for the host
	// Tasks with changes, in all runs; after a check or a verification, those that would change the host.
	Changed int    `json:"changed"`
	Error   string `json:"error,omitempty"` // the reason for the failure
}

// Retry is the options of a retry.
//
// Verb, extra variables and options are those of the job.
type Retry struct {
	Failed bool `json:"failed,omitempty"` // retry only the nodes that did not succeed
	// Retry all nodes, also those of an update that succeeded. Excludes `failed` and `nodes`.
	All   bool     `json:"all,omitempty"`
	Nodes []string `json:"nodes,omitempty"` // retry only these nodes or addresses of the job
	// Retry with the playbooks, the merged variables and the tags of groups of the old job, not those of today.
	Pinned bool `json:"pinned,omitempty"`
	// Verbs that clean nodes: `current` cleans with the configured folder. Without it, nodes are cleaned as in
	// the old job.
	Playbooks string `json:"playbooks,omitempty" enum:"current"`
	// The time limit, e.g. 90s or 1h30m; 0s or absent for that of the old job.
	Timeout Duration `json:"timeout,omitempty"`
	// The size of a batch, as in JobRequest; without it, that of the old job.
	Serial string `json:"serial,omitempty" pattern:"^([1-9][0-9]*|[1-9][0-9]?%|100%)$"`
	// Variables, as in JobRequest, that override single ones of the old request. Excludes `pinned`.
	ExtraVars json.RawMessage `json:"extra_vars,omitempty" type:"object,string,null"`
}

// Finding is one answer to the question why.
type Finding struct {
	// The subject: job, queue, manager, quarantine, tombstone, state, observers, duplicates, address, host-key, access,
	// failure, refusal, residue, rule, applied, drift, ssh-key, idle, return.
	About   string     `json:"about"`
	Job     string     `json:"job,omitempty"`     // the id of the job concerned
	Nodes   []string   `json:"nodes,omitempty"`   // the nodes and addresses concerned
	Group   string     `json:"group,omitempty"`   // the group that is missing a node
	Since   *time.Time `json:"since,omitempty"`   // the start of the situation
	Message string     `json:"message"`           // the explanation in words
	Remedy  string     `json:"remedy,omitempty"`  // the recommended action, in words
	Actions []Action   `json:"actions,omitempty"` // the actions that carry the remedy out
}

// Failure is the failure of one run of a job on one host.
type Failure struct {
	Job         string `json:"job"`                   // the job
	Phase       string `json:"phase"`                 // the phase of the run, as in Run
	Playbook    string `json:"playbook,omitempty"`    // the playbook
	Host        string `json:"host"`                  // the host
	Task        string `json:"task,omitempty"`        // the task
	Message     string `json:"message,omitempty"`     // the reason, with the end of the task's output
	Unreachable bool   `json:"unreachable,omitempty"` // whether the host was unreachable
}

// NodeExplanation is the reasons that a node is, or is not, in service.
type NodeExplanation struct {
	Node Node `json:"node"` // the node
	// Whether the node is commissioned, Discovered and not held by a job.
	Ready   bool   `json:"ready"`
	Summary string `json:"summary"` // the answer in one sentence
	// When the node got its status; absent if the entry is no longer in the history.
	StatusSince *time.Time `json:"status_since,omitempty"`
	// The user or the part of the manager that set the status.
	StatusBy string `json:"status_by,omitempty"`
	// When the node got its state; absent if the entry is no longer in the history.
	StateSince *time.Time `json:"state_since,omitempty"`
	Rule       string     `json:"rule,omitempty"` // the rule of the node's group, in words
	// Jobs that hold the node or wait for it, in queue order; as in lists.
	Jobs []Job `json:"jobs,omitempty"`
	// The failures of the job that holds the node or set its last error, oldest first.
	Failures []Failure `json:"failures,omitempty"`
	// The findings, those that keep the node from service first.
	Findings []Finding `json:"findings,omitempty"`
	// What the job waits for that holds the node, or is the next to; absent without such a job.
	Wait *Wait  `json:"wait,omitempty"`
	Next string `json:"next"` // the next step of the manager by itself
}

// JobExplanation is the reasons that a job is queued, still running, or failed.
type JobExplanation struct {
	Job      Job       `json:"job"`                // the job, as in lists
	Summary  string    `json:"summary"`            // the answer in one sentence
	Failures []Failure `json:"failures,omitempty"` // the failures, oldest first
	Steps    []string  `json:"steps,omitempty"`    // the steps of the manager and their results, in order
	Findings []Finding `json:"findings,omitempty"` // further findings
	Wait     *Wait     `json:"wait,omitempty"`     // absent if the job waits for nothing
	Next     string    `json:"next"`               // the next step of the manager by itself
}

// Wait is what a job waits for. What happens then by itself is `next`, beside it.
type Wait struct {
	For   string    `json:"for"`   // a phase of a running job, or what keeps a queued one from its turn
	Since time.Time `json:"since"` // the start of the phase, or the acceptance
	// The deadline, without outages of the store. Absent if nothing but its cause ends the wait.
	Until *time.Time `json:"until,omitempty"`
	// Where the deadline comes from, and how long such jobs took, e.g. `1h after its start, from jobs.timeout;
	// p99 of 212 runs: 4m10s`.
	Origin string `json:"origin,omitempty"`
}

// Vars is an object of variables.
type Vars = map[string]any

// VarsChange is one change of the variables of a scope.
//
// Secrets are hidden.
type VarsChange struct {
	Seq      uint64    `json:"seq" minimum:"1"` // counts the changes of the scope from 1
	Revision int64     `json:"revision"`        // the revision of the store after the change
	Time     time.Time `json:"time"`            // the time of the change
	Actor    string    `json:"actor,omitempty"` // the principal of the change
	Action   string    `json:"action"`          // `set` (all variables were replaced), `patch` or `undo`
	// The changed and the removed variables, with their former values.
	Before Vars `json:"before,omitempty"`
	After  Vars `json:"after,omitempty"` // the changed and the added variables, with their new values
}

// VarsUndo is the revision to return to.
type VarsUndo struct {
	// The revision of the store. The variables get the values after the last change up to it.
	To int64 `json:"to" minimum:"0"`
}

// MergedVar is one merged variable of a host.
type MergedVar struct {
	Value  any    `json:"value"`                                          // the value
	Origin string `json:"origin" enum:"config,global,group,node,request"` // the scope that set the value
}

// MergedVars are all variables of a host after the merge of all scopes.
type MergedVars = map[string]MergedVar

// Setting is one key of the configuration.
type Setting struct {
	Value any `json:"value"` // the effective value
	// The source of the value; `found`: detected on the host.
	Origin string `json:"origin" enum:"default,file,overlay,found"`
	// Whether the key can be changed at run time; only the file sets the others.
	Settable bool `json:"settable"`
	// After a change of `playbooks`, and only for that key: the nodes that other playbooks than the new ones
	// configured. Those still clean them.
	Former []string `json:"former,omitempty"`
}

// Config is the effective configuration by dotted key, without secrets.
type Config map[string]Setting

// Token is a bearer token without its secret.
type Token struct {
	ID string `json:"id"` // the id; it is a part of the token
	// The name; the audit log shows `token:NAME`.
	Name      string    `json:"name"`
	Role      string    `json:"role" enum:"viewer,monitor,instance,operator,admin"` // the role
	Scope     *Scope    `json:"scope,omitempty"`                                    // absent: every node
	Created   time.Time `json:"created"`                                            // when it was created
	CreatedBy string    `json:"created_by"`                                         // who created it
	Expires   time.Time `json:"expires"`                                            // when it expires
	// The last use, to the minute; absent: never.
	Used *time.Time `json:"used,omitempty"`
}

// Certificate is a client certificate that the CA of the manager has issued, or one that is revoked.
type Certificate struct {
	Serial string `json:"serial"` // the serial number in hexadecimal digits
	// The name; the audit log shows `certificate:NAME`. Absent: unknown.
	Name string `json:"name,omitempty"`
	// The role. Absent: unknown.
	Role  string `json:"role,omitempty"`
	Scope *Scope `json:"scope,omitempty"` // absent: every node
	// When it was issued. Absent: unknown.
	Issued *time.Time `json:"issued,omitempty"`
	// When it expires. Absent: unknown.
	Expires *time.Time `json:"expires,omitempty"`
	// When it was revoked. Absent: it is valid.
	Revoked   *time.Time `json:"revoked,omitempty"`
	RevokedBy string     `json:"revoked_by,omitempty"` // who revoked it
}

// Scope is the nodes of a credential: those of the groups, those that match the selector, or those that meet
// both. Absent: every node. A node outside does not exist for the caller. Only the roles viewer and operator
// have a scope.
type Scope struct {
	Groups []string `json:"groups,omitempty"` // names of groups
	// A selector, like that of the list of nodes: `rack in (r1,r2)`.
	Selector string `json:"selector,omitempty"`
}

// String returns the scope in words; empty for nil.
func (s *Scope) String() string {
	if s == nil {
		return ""
	}

	var parts []string
	if len(s.Groups) > 0 {
		parts = append(parts, "group "+strings.Join(s.Groups, ","))
	}

	if s.Selector != "" {
		parts = append(parts, "selector "+s.Selector)
	}

	return strings.Join(parts, ", ")
}

// TokenRequest is a new token.
type TokenRequest struct {
	Role  string `json:"role"`            // the role: viewer, monitor, operator or admin
	Scope *Scope `json:"scope,omitempty"` // absent: every node
	// The name, unique: letters, digits, `.`, `_` and `-`, at most 63. Default: the id.
	Name string `json:"name,omitempty"`
	// The time to its end, a duration of a minute to ten years. Default `720h`.
	Expires string `json:"expires,omitempty"`
}

// Identity is the caller of a request.
type Identity struct {
	// The name in the audit trail: an account, `token:NAME`, `certificate:NAME`, `oidc:NAME` or `http:ADDRESS`.
	Principal string `json:"principal"`
	Role      string `json:"role"`            // the role
	Scope     *Scope `json:"scope,omitempty"` // absent: every node
	// The kind of the proof.
	Credential string `json:"credential" enum:"socket,plain_http,token,certificate,oidc"`
	// The authority that vouches for the caller; absent: the manager itself.
	Issuer  string     `json:"issuer,omitempty"`
	Expires *time.Time `json:"expires,omitempty"` // the end of the credential; absent: none
}

// Permission is whether the caller may apply a verb to a node.
//
// It is about the permission only: the status of the node may still forbid the verb.
type Permission struct {
	Allowed   bool   `json:"allowed"`   // the answer
	Verb      string `json:"verb"`      // the verb
	Node      string `json:"node"`      // the name of the node
	Principal string `json:"principal"` // the caller
	Role      string `json:"role"`      // the role of the caller
	Reason    string `json:"reason"`    // the reason of the answer
}

// NewToken is a new token with its secret.
type NewToken struct {
	Token  string `json:"token"`  // the token, `clusterm-ID-SECRET`
	Record Token  `json:"record"` // the token without its secret
}

// BMCLogin is the login with which the manager reaches the BMC of a node.
//
// With neither user nor password, the recorded login is tried once more.
type BMCLogin struct {
	User string `json:"user,omitempty"` // the user, in at most 128 bytes; absent: as recorded
	// The password, in at most 256 bytes, which is stored encrypted and never shown; absent: as recorded.
	Password string `json:"password,omitempty"`
	Reason   string `json:"reason,omitempty"` // the operator's reason, for the audit trail
}

// Power is what the BMC of a node said about its power when the manager last asked.
type Power = inventory.Power

// Instance is one live clusterm.
//
// A crashed instance stays in the list for 15 seconds.
type Instance struct {
	ID   string   `json:"id"`             // the id of the instance; it survives restarts
	Node string   `json:"node"`           // the name of the instance's own node
	Addr string   `json:"addr,omitempty"` // the address of the host, if known
	API  []string `json:"api"`            // the URLs of the API; https:// is for clients on other hosts
	// The fingerprint of the CA that its https:// URL presents; absent without one.
	CA      string    `json:"ca_fingerprint,omitempty"`
	Version string    `json:"version"` // the version of clusterm
	Started time.Time `json:"started"` // when the instance started
	// Whether it leads: it begins the jobs, and carries out policies, rollouts and retention. One instance does; for
	// some seconds after its loss none.
	Leads bool `json:"leads"`
}

// Member is an instance that belongs to the manager, alive or not.
type Member struct {
	ID      string     `json:"id"`                // the id of the instance
	Node    string     `json:"node"`              // the name of the instance's own node
	Addr    string     `json:"addr,omitempty"`    // the address at which the others reach it
	Alive   bool       `json:"alive"`             // whether it runs; a crash shows after 15 seconds
	Leads   bool       `json:"leads"`             // whether it leads
	Version string     `json:"version,omitempty"` // the version of clusterm; absent unless it is alive
	Joined  *time.Time `json:"joined,omitempty"`  // when it joined; absent while there was no other one
	// What its etcd is: `voter`, or `learner` until it votes; `down` if it does not answer; `missing` if it is no
	// member any more; `alone` before another instance joined; `existing` with an etcd that is not inside.
	Etcd string `json:"etcd" enum:"voter,learner,down,missing,alone,existing"`
}

// The values of Member.Etcd.
const (
	EtcdVoter    = "voter"
	EtcdLearner  = "learner"
	EtcdDown     = "down"
	EtcdMissing  = "missing"
	EtcdAlone    = "alone"
	EtcdExisting = "existing"
)

// InviteRequest asks for an invitation of an instance.
type InviteRequest struct {
	Expires string `json:"expires,omitempty"` // the time to its end, from 1m to 24h; default 1h
}

// Invite is an invitation of one instance. Only this answer has its token.
type Invite struct {
	Token   string    `json:"token"`   // for one use
	Expires time.Time `json:"expires"` // when it expires
	// The fingerprint of the manager's CA, which the other host compares.
	Fingerprint string `json:"fingerprint"`
	// The URLs of the API over HTTPS, of all live instances.
	URLs []string `json:"urls"`
}

// JoinRequest asks for the admission of an instance. `clusterm join` sends it.
type JoinRequest struct {
	ID       string `json:"id"`        // the id of the instance, of 16 hexadecimal digits
	Node     string `json:"node"`      // the name of its own node
	Addr     string `json:"addr"`      // the IP address at which the others reach it
	PeerPort int    `json:"peer_port"` // the port of its etcd for the others
	// The request for its certificate (PKCS #10, DER) in base64. Only the public key of it is used.
	CertificateRequest string `json:"certificate_request"`
	// The public key (X25519), in base64, for which the keys of the manager are sealed.
	Key string `json:"key"`
}

// JoinAnswer is what an instance starts with.
type JoinAnswer struct {
	Certificate string `json:"certificate"` // its certificate in PEM
	// The keys that all instances have in common, in base64, sealed for the key of the request (HPKE: X25519,
	// HKDF-SHA256, AES-256-GCM).
	Sealed string `json:"sealed"`
	// The URLs of all members of etcd for each other, by their names.
	Members map[string]string `json:"members"`
	// The URLs for clients of those that vote.
	Endpoints []string `json:"endpoints"`
}

// The values of Health.Status.
const (
	HealthOK       = "ok"
	HealthDegraded = "degraded"
)

// Health is the health of the daemon.
type Health struct {
	Status string `json:"status" enum:"ok,degraded"` // `ok` if all checks pass
	// The result of each check: `ok`, `off`, or the problem.
	Checks   map[string]string `json:"checks,omitempty"`
	Warnings []string          `json:"warnings,omitempty"` // problems that do not degrade the daemon yet
	Instance string            `json:"instance"`           // the id of the answering instance
	Revision int64             `json:"revision"`           // the revision that reads show
	Stale    bool              `json:"stale,omitempty"`    // whether the store has not responded for 3 seconds
	Nodes    int               `json:"nodes"`              // the number of nodes
	Jobs     map[JobStatus]int `json:"jobs,omitempty"`     // the number of jobs in `Queued` and in `Running`
	// The number of nodes that would be configured with something else now than what was applied to them; absent
	// for none.
	Outdated int `json:"outdated,omitempty"`
	// The number of nodes in `Allocated` of which it is not known whether they are outdated; absent for none.
	Unknown int `json:"unknown,omitempty"`
}

// Version is the versions of the daemon and its dependencies.
type Version struct {
	Version string `json:"version"`           // the version of clusterm
	Commit  string `json:"commit,omitempty"`  // the commit of the build
	Go      string `json:"go"`                // the version of Go
	Ansible string `json:"ansible,omitempty"` // the version of ansible-core
	Etcd    string `json:"etcd,omitempty"`    // the version of the etcd servers; the lowest of all members
}

// Duration is a time.Duration in the form "1h30m" in JSON and YAML.
type Duration time.Duration

// MarshalText returns the form of time.Duration.String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText accepts the forms of time.ParseDuration, without negative values.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil || v < 0 {
		return inventory.Errorf(inventory.KindInvalid, "%q is not a duration", b).Do("write it like 90s, 15m or 1h30m")
	}
	*d = Duration(v)
	return nil
}
