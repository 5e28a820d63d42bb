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

// Connection holds ssh settings of a host. An empty field falls back to the
// group's setting, then to the site's.
type Connection struct {
	User       string `json:"user,omitempty"`
	KeyFile    string `json:"key_file,omitempty"` // on the manager's host
	Port       int    `json:"port,omitempty"`
	Become     *bool  `json:"become,omitempty"`
	BecomeUser string `json:"become_user,omitempty"`
	Jump       string `json:"jump,omitempty"` // USER@HOST:PORT
	Python     string `json:"python,omitempty"`
}

// NodePatch changes a node's connection settings and labels. An absent field
// changes nothing.
type NodePatch struct {
	Connection *Connection `json:"connection,omitempty"` // replaces all settings
	// ForgetHostKey drops the recorded ssh host key: the next contact records it anew.
	ForgetHostKey bool `json:"forget_host_key,omitempty"`
	// Labels sets the given labels; null removes a label.
	Labels map[string]*string `json:"labels,omitempty"`
}

// List is a list, or a page of it, as of Revision.
type List[T any] struct {
	Items []T `json:"items"`
	// Continue is the token for the next page; empty on the last page. Every item
	// that does not change meanwhile appears on exactly one page.
	Continue string `json:"continue,omitempty"`
	// Total is the number of items on all pages, as of Revision.
	Total    int   `json:"total"`
	Revision int64 `json:"revision"`
	// Stale is set if the store has not responded for 3 seconds, so the list may
	// be out of date.
	Stale bool `json:"stale,omitempty"`
}

// Changed is the result of a change without a record of its own.
type Changed struct {
	Revision int64    `json:"revision"`
	Warnings []string `json:"warnings,omitempty"` // e.g. about values with the syntax of templates
}

// Forget removes records of nodes, leaving tombstones.
type Forget struct {
	Nodes  []string `json:"nodes"`
	Force  bool     `json:"force,omitempty"` // also nodes that the monitor still sees
	Reason string   `json:"reason,omitempty"`
}

// HostKey is one ssh host key.
type HostKey struct {
	Key         string `json:"key"`         // in the format of known_hosts without the host field
	Fingerprint string `json:"fingerprint"` // "SHA256:…"
}

// HostKeys are the ssh host keys of a node.
type HostKeys struct {
	Node     string    `json:"node"`
	Addr     string    `json:"addr"`
	Recorded []HostKey `json:"recorded"`
	Shown    []HostKey `json:"shown"` // by the host now, the preferred one first
}

// HostKeyTrust names the ssh host key of a node to record: by the key or by its
// fingerprint. The host must show it.
type HostKeyTrust struct {
	Key         string `json:"key,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Reason      string `json:"reason,omitempty"`
	// SetAside makes the node's duplicates not count; it needs a reason.
	SetAside bool `json:"set_aside,omitempty"`
}

// MaxPing is the maximum number of nodes in one Ping.
const MaxPing = 64

// Ping tries an ssh login on nodes.
type Ping struct {
	Nodes []string `json:"nodes"`
}

// PingResult is the answer of one node, or the reason why there is none.
type PingResult struct {
	Node     string `json:"node"`
	Addr     string `json:"addr"`
	Answered bool   `json:"answered"`
	// HostKeyVerified is set if the host has the recorded key, or a certificate of a CA in
	// ssh.host_ca. An answer without it comes from a host that has no key recorded.
	HostKeyVerified bool     `json:"host_key_verified,omitempty"`
	Took            Duration `json:"took,omitempty"`
	Message         string   `json:"message,omitempty"` // why the node did not answer
	Remedy          string   `json:"remedy,omitempty"`
	Actions         []Action `json:"actions,omitempty"`
}

// GossipKeyNever is the phase before the first rotation of the gossip key.
const GossipKeyNever = "never"

// GossipKey is the state of the newest rotation of the gossip key. Keys are shown as
// fingerprints.
type GossipKey struct {
	// Phase is never, install, use, remove or done.
	Phase   string     `json:"phase"`
	Key     string     `json:"key,omitempty"`      // the new one
	OldKeys []string   `json:"old_keys,omitempty"` // removed when the phase is done
	Actor   string     `json:"actor,omitempty"`
	Started *time.Time `json:"started,omitempty"`
	Ended   *time.Time `json:"ended,omitempty"`
	Round   *time.Time `json:"round,omitempty"` // when the members were last asked

	Known     int `json:"known"`     // nodes that are, or were, members of the gossip
	Confirmed int `json:"confirmed"` // nodes that accept the new key
	Removed   int `json:"removed"`   // nodes that no longer accept the old one
	// Laggards are the nodes and other members that the rotation waits for.
	Laggards  []Laggard `json:"laggards"`
	LockedOut []string  `json:"locked_out,omitempty"` // given up by an operator
}

// Laggard is a node, or another member of the gossip, that a rotation waits for.
type Laggard struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// GossipKeyRotation begins a rotation of the gossip key, or lets the running one go on.
type GossipKeyRotation struct {
	// Force goes on without the nodes in LockOut, which must be all the laggards.
	Force   bool     `json:"force,omitempty"`
	LockOut []string `json:"lock_out,omitempty"`
}

// SSHKeyNever is the phase before the first rotation of the manager's ssh key.
const SSHKeyNever = "never"

// SSHKey is the state of the newest rotation of the manager's ssh key, or the key in use
// if there was none. It has no private key.
type SSHKey struct {
	// Phase is never, install, use, remove or done.
	Phase string      `json:"phase"`
	Key   *SSHKeyFile `json:"key,omitempty"` // the new one, or the one in use
	Old   *SSHKeyFile `json:"old,omitempty"` // the one that it replaces
	// Reverts marks a rotation that takes a cancelled one back.
	Reverts bool       `json:"reverts,omitempty"`
	Actor   string     `json:"actor,omitempty"`
	Started *time.Time `json:"started,omitempty"`
	Ended   *time.Time `json:"ended,omitempty"`
	Problem string     `json:"problem,omitempty"` // why the manager cannot go on

	Known     int `json:"known"`     // nodes that use the key
	Confirmed int `json:"confirmed"` // nodes that accept the new key
	Removed   int `json:"removed"`   // nodes that no longer accept the old one
	// Laggards are the nodes that the rotation waits for.
	Laggards  []Laggard `json:"laggards"`
	LockedOut []string  `json:"locked_out,omitempty"` // given up by an operator
	OwnKeys   []string  `json:"own_keys,omitempty"`   // nodes with another key, which stays
}

// SSHKeyFile is an ssh key of the manager.
type SSHKeyFile struct {
	Path        string `json:"path"`       // of the private half, on the host of the manager
	PublicKey   string `json:"public_key"` // as "ssh-ed25519 AAAA…"
	Fingerprint string `json:"fingerprint"`
	// Generated keys were made by a rotation, which also removes them.
	Generated bool `json:"generated,omitempty"`
}

// SSHKeyRotation begins a rotation of the manager's ssh key, or gives nodes up.
type SSHKeyRotation struct {
	To string `json:"to,omitempty"` // the file of the new key, on the host of the manager; "": it is generated
	// Force goes on without the nodes in LockOut, which must be all the laggards.
	Force   bool     `json:"force,omitempty"`
	LockOut []string `json:"lock_out,omitempty"`
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
	// Verb is commission, decommission, update, apply, maintenance, verify, clear, discover, or
	// forget, which also removes the agent.
	Verb  inventory.Verb `json:"verb"`
	Nodes []string       `json:"nodes,omitempty"` // every verb except discover
	Addrs []string       `json:"addrs,omitempty"` // discover
	// Ranges are further addresses for discover, as FIRST-LAST or NETWORK/BITS. Those
	// that do not answer are skipped.
	Ranges []string `json:"ranges,omitempty"`
	Group  string   `json:"group,omitempty"` // commission, update
	// ExtraVars is an object, or a string with one as JSON or YAML.
	ExtraVars json.RawMessage `json:"extra_vars,omitempty"`

	inventory.JobOptions

	Timeout Duration `json:"timeout,omitempty"` // from the start of the job; 0: the configured limit
	// HostKeys are ssh public keys by address, for discover. The host at the address
	// must show one of them.
	HostKeys map[string][]string `json:"host_keys,omitempty"`
	// Expect makes the request conditional: if a node is not as expected, or will not be
	// after the jobs ahead, the request fails with KindPrecondition.
	Expect map[string]Expected `json:"expect,omitempty"`
}

// Expected is the condition of a request for a job on a node.
type Expected struct {
	Status inventory.Status `json:"status"`
	Group  string           `json:"group,omitempty"` // empty: no group
}

// Job is one job on the wire.
type Job struct {
	ID     string         `json:"id"` // counts upwards in the order of acceptance
	Verb   inventory.Verb `json:"verb"`
	Status JobStatus      `json:"status"`
	// Message is the result, or the problems so far; empty after a plain success.
	Message string `json:"message,omitempty"`
	// Cause is the kind of failure: failed, cancelled, deadline, interrupted,
	// precondition, absent, drifted, internal.
	Cause string `json:"cause,omitempty"`

	Nodes   []string `json:"nodes,omitempty"`
	Addrs   []string `json:"addrs,omitempty"`
	Helpers []string `json:"helpers,omitempty"` // further nodes that the job holds because its playbooks use them
	Group   string   `json:"group,omitempty"`

	// JobOptions are those of the request. After a check, the counts of changes are those
	// of the changes that a run would make.
	inventory.JobOptions

	// GroupTags are the tags of the groups that chose the tasks of its runs, by group.
	GroupTags map[string]GroupTags `json:"group_tags,omitempty"`

	Actor   string `json:"actor,omitempty"`
	RetryOf string `json:"retry_of,omitempty"` // the job that this one retries
	// Plan is the plan that it carries out, and PlannedBy the maker of that plan.
	Plan      string `json:"plan,omitempty"`
	PlannedBy string `json:"planned_by,omitempty"`
	Rollout   string `json:"rollout,omitempty"` // the rollout that it is a part of
	// Differences describe how it differs from that job: playbooks, names of
	// variables, groups, and nodes left out.
	Differences []string `json:"differences,omitempty"`
	Instance    string   `json:"instance,omitempty"` // the instance that runs the job
	Note        string   `json:"note,omitempty"`     // a decision of the manager, e.g. the chosen group
	Warnings    []string `json:"warnings,omitempty"` // e.g. about values with the syntax of templates

	Position   int      `json:"position,omitempty"`    // Queued: position in the queue, from 1
	WaitsFor   []string `json:"waits_for,omitempty"`   // Queued: the jobs ahead of it
	WaitReason string   `json:"wait_reason,omitempty"` // Queued: the reason for the wait
	// WaitUntil is when the maintenance window opens, or the freeze ends, that a Queued job waits
	// for; nil: it waits for something else, or the time is not known.
	WaitUntil *time.Time `json:"wait_until,omitempty"`

	Accepted time.Time  `json:"accepted"`
	Started  *time.Time `json:"started,omitempty"`
	Ended    *time.Time `json:"ended,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"`

	Phase          string `json:"phase,omitempty"`            // of a Running job, e.g. configure, cleanup
	Cancel         int    `json:"cancel,omitempty"`           // number of cancel requests; the second skips the cleanup
	CancelBy       string `json:"cancel_by,omitempty"`        // the user of the first cancel request
	CancelledByYou bool   `json:"cancelled_by_you,omitempty"` // the reader was that user; lists omit it
	PlaybookDigest string `json:"playbook_digest,omitempty"`  // digest of the pinned playbooks
	Commit         string `json:"commit,omitempty"`           // of the git repository that the playbooks come from
	LogBytes       int64  `json:"log_bytes,omitempty"`        // bytes of output so far

	// Lists omit the following fields.

	Runs  []Run                 `json:"runs,omitempty"`
	Hosts []HostSummary         `json:"hosts,omitempty"` // per node or address, in order, once the job has ended
	Vars  map[string]MergedVars `json:"vars,omitempty"`  // the pinned variables and their origin, by host

	Revision int64 `json:"revision"`
}

// Run is one run of ansible-playbook for a job.
type Run struct {
	Kind     string `json:"kind"` // playbook; probe: a try of ssh logins; appear: the wait for hosts to be observed
	Phase    string `json:"phase"`
	Playbook string `json:"playbook"`
	// PlaybookDigest is the digest of the playbooks of this run.
	PlaybookDigest string     `json:"playbook_digest,omitempty"`
	Hosts          []string   `json:"hosts"`
	Groups         []string   `json:"groups,omitempty"` // parallel to Hosts: the group of each host in this run
	Started        time.Time  `json:"started"`
	Ended          *time.Time `json:"ended,omitempty"`
	// Exit is done, failed, cancelled, deadline, interrupted, absent or internal;
	// empty before the end.
	Exit    string       `json:"exit,omitempty"`
	Code    int          `json:"code,omitempty"` // of ansible-playbook
	Message string       `json:"message,omitempty"`
	Results []HostResult `json:"results,omitempty"`
}

// HostResult is the result of one run on one host, in numbers of tasks.
type HostResult struct {
	Host        string `json:"host"`
	Helper      bool   `json:"helper,omitempty"` // a helper of the job: its playbooks name job_helpers
	OK          int    `json:"ok"`
	Changed     int    `json:"changed"`
	Failed      int    `json:"failed,omitempty"`
	Unreachable bool   `json:"unreachable,omitempty"`
	Task        string `json:"task,omitempty"`    // the failed task
	Message     string `json:"message,omitempty"` // the reason
	// Of a check: tasks that would change the host, that it cannot judge, and that it
	// executed all the same, with a change or a failure.
	Foreseen int `json:"foreseen,omitempty"`
	Unjudged int `json:"unjudged,omitempty"`
	Executed int `json:"executed,omitempty"`
	// Judged counts the tasks that compared the host with their aim. Doubt is why the
	// host may differ although nothing failed on it, such as a failure that the playbook
	// ignores.
	Judged int    `json:"judged,omitempty"`
	Doubt  string `json:"doubt,omitempty"`
}

// HostSummary is the result of a job for one host.
type HostSummary struct {
	Host    string           `json:"host"`             // node name; address of a host without one
	Status  inventory.Status `json:"status,omitempty"` // empty if the job never touched the node
	OK      bool             `json:"ok"`               // the verb succeeded
	Changed int              `json:"changed"`          // tasks with changes, in all runs; of a verification: foreseen
	Error   string           `json:"error,omitempty"`
}

// Retry is a request to repeat an ended job, with the playbooks and variables of
// today. Verb, extra variables and options are those of the job.
type Retry struct {
	// Failed selects only the nodes that did not succeed.
	Failed bool `json:"failed,omitempty"`
	// All selects also the nodes of an update that succeeded: without it, a retry
	// does not take them out of service again.
	All bool `json:"all,omitempty"`
	// Nodes selects only these nodes or addresses of the job.
	Nodes []string `json:"nodes,omitempty"`
	// Pinned takes the playbooks and the merged variables of the old job.
	Pinned bool `json:"pinned,omitempty"`
	// Playbooks is "current" to clean with the configured folder; empty: as the old
	// job did.
	Playbooks string `json:"playbooks,omitempty"`
	// Timeout is the time limit; 0: that of the old job.
	Timeout Duration `json:"timeout,omitempty"`
	// Serial is the size of a batch; empty: that of the old job.
	Serial string `json:"serial,omitempty"`
	// ExtraVars override single variables of the old request.
	ExtraVars json.RawMessage `json:"extra_vars,omitempty"`
}

// Finding is one reason for the current situation.
type Finding struct {
	// About is the subject: job, queue, quarantine, tombstone, state, duplicates, address,
	// host-key, observers, access, failure, refusal, residue, rule, applied, drift, ssh-key, idle.
	About   string     `json:"about"`
	Job     string     `json:"job,omitempty"`   // the id of the job concerned
	Nodes   []string   `json:"nodes,omitempty"` // the nodes and addresses concerned
	Group   string     `json:"group,omitempty"` // the group that is missing a node
	Since   *time.Time `json:"since,omitempty"` // the start of the situation
	Message string     `json:"message"`         // all of this in words
	Remedy  string     `json:"remedy,omitempty"`
	Actions []Action   `json:"actions,omitempty"` // carry the remedy out
}

// Failure is the failure of one run of a job on one host.
type Failure struct {
	Job         string `json:"job"`
	Phase       string `json:"phase"`
	Playbook    string `json:"playbook,omitempty"`
	Host        string `json:"host"`
	Task        string `json:"task,omitempty"`
	Message     string `json:"message,omitempty"` // with the end of the task's output
	Unreachable bool   `json:"unreachable,omitempty"`
}

// NodeExplanation lists the reasons that a node is, or is not, in service.
type NodeExplanation struct {
	Node    Node   `json:"node"`
	Ready   bool   `json:"ready"`   // commissioned, Discovered and not held by a job
	Summary string `json:"summary"` // the answer in one sentence
	// The times and the actor of the last changes of status and state; absent if
	// the entries are no longer in the history.
	StatusSince *time.Time `json:"status_since,omitempty"`
	StatusBy    string     `json:"status_by,omitempty"`
	StateSince  *time.Time `json:"state_since,omitempty"`
	Rule        string     `json:"rule,omitempty"`     // the rule of its group, in words
	Jobs        []Job      `json:"jobs,omitempty"`     // that hold the node or wait for it, in queue order
	Failures    []Failure  `json:"failures,omitempty"` // of the holding or last failed job, oldest first
	Findings    []Finding  `json:"findings,omitempty"` // the obstacles to service first
	Next        string     `json:"next"`               // the next step of the manager by itself
}

// JobExplanation lists the reasons that a job is queued, still running, or failed.
type JobExplanation struct {
	Job      Job       `json:"job"` // as in a list
	Summary  string    `json:"summary"`
	Failures []Failure `json:"failures,omitempty"` // oldest first
	Steps    []string  `json:"steps,omitempty"`    // of the manager with their results, in order
	Findings []Finding `json:"findings,omitempty"`
	Next     string    `json:"next"` // the next step of the manager by itself
}

// Vars is an object of variables.
type Vars = map[string]any

// VarsChange is one change of the variables of a scope. Secrets are hidden.
type VarsChange struct {
	Seq      uint64    `json:"seq"`      // counts the changes of the scope from 1
	Revision int64     `json:"revision"` // of the store after the change; for VarsUndo
	Time     time.Time `json:"time"`
	Actor    string    `json:"actor,omitempty"`
	Action   string    `json:"action"`           // set, patch or undo
	Before   Vars      `json:"before,omitempty"` // changed and removed variables, with their former values
	After    Vars      `json:"after,omitempty"`  // changed and added variables, with their new values
}

// VarsUndo sets the variables of a scope to their values as of a revision.
type VarsUndo struct {
	To int64 `json:"to"`
}

// MergedVar is one variable of a host after the merge of all scopes.
type MergedVar struct {
	Value  any    `json:"value"`
	Origin string `json:"origin"` // config, global, group, node, request
}

// MergedVars are all variables of a host after the merge of all scopes.
type MergedVars = map[string]MergedVar

// Setting is one key of the configuration.
type Setting struct {
	Value  any    `json:"value"`
	Origin string `json:"origin"` // default, file, overlay; found: detected on the host
	// Settable is set if the overlay may contain the key; only the file sets others.
	Settable bool `json:"settable"`
	// Former names the nodes that are still cleaned with other playbooks, sorted. Only
	// the answer to a change of playbooks has it, and only for that key.
	Former []string `json:"former,omitempty"`
}

// Config is the effective configuration by dotted key, without secrets.
type Config map[string]Setting

// Token is a bearer token without its secret.
type Token struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Role      string     `json:"role"`
	Scope     *Scope     `json:"scope,omitempty"` // nil: every node
	Created   time.Time  `json:"created"`
	CreatedBy string     `json:"created_by"`
	Expires   time.Time  `json:"expires"`
	Used      *time.Time `json:"used,omitempty"` // to the minute; nil: never
}

// Certificate is a client certificate that the CA of the manager has issued, or one that is
// revoked.
type Certificate struct {
	Serial    string     `json:"serial"`         // in hexadecimal digits
	Name      string     `json:"name,omitempty"` // empty: unknown
	Role      string     `json:"role,omitempty"`
	Scope     *Scope     `json:"scope,omitempty"` // nil: every node
	Issued    *time.Time `json:"issued,omitempty"`
	Expires   *time.Time `json:"expires,omitempty"`
	Revoked   *time.Time `json:"revoked,omitempty"` // nil: it is not
	RevokedBy string     `json:"revoked_by,omitempty"`
}

// Scope limits a credential to the nodes of the groups, to those that match the
// selector, or to those that meet both.
type Scope struct {
	Groups   []string `json:"groups,omitempty"`
	Selector string   `json:"selector,omitempty"`
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

// TokenRequest describes a new token.
type TokenRequest struct {
	Role    string `json:"role"`
	Scope   *Scope `json:"scope,omitempty"`   // nil: every node
	Name    string `json:"name,omitempty"`    // empty: the id
	Expires string `json:"expires,omitempty"` // a duration; empty: 720h
}

// Identity is the caller of a request, as the manager knows it.
type Identity struct {
	Principal  string     `json:"principal"`
	Role       string     `json:"role"`
	Scope      *Scope     `json:"scope,omitempty"` // nil: every node
	Credential string     `json:"credential"`      // socket, plain_http, token, certificate or oidc
	Issuer     string     `json:"issuer,omitempty"`
	Expires    *time.Time `json:"expires,omitempty"` // nil: with the connection
}

// Permission answers whether the caller may apply a verb to a node. It is about the
// permission only: the status of the node may still forbid the verb.
type Permission struct {
	Allowed   bool   `json:"allowed"`
	Verb      string `json:"verb"`
	Node      string `json:"node"`
	Principal string `json:"principal"`
	Role      string `json:"role"`
	Reason    string `json:"reason"`
}

// NewToken is a new token with its secret, which no other answer has.
type NewToken struct {
	Token  string `json:"token"`
	Record Token  `json:"record"`
}

// Instance is one live clusterm. A crashed instance stays in the list for 15
// seconds.
type Instance struct {
	ID      string    `json:"id"`             // survives restarts
	Node    string    `json:"node"`           // the name of its own node
	Addr    string    `json:"addr,omitempty"` // of its host, if known
	API     []string  `json:"api"`            // URLs of its API
	Version string    `json:"version"`
	Started time.Time `json:"started"`
}

// The values of Health.Status.
const (
	HealthOK       = "ok"
	HealthDegraded = "degraded"
)

// Health is the result of the daemon's health checks.
type Health struct {
	Status string            `json:"status"`           // HealthOK or HealthDegraded
	Checks map[string]string `json:"checks,omitempty"` // by part: "ok" or the problem
	// Warnings are problems that do not degrade the daemon yet.
	Warnings []string          `json:"warnings,omitempty"`
	Instance string            `json:"instance"`
	Revision int64             `json:"revision"`
	Stale    bool              `json:"stale,omitempty"`
	Nodes    int               `json:"nodes"`
	Jobs     map[JobStatus]int `json:"jobs,omitempty"` // Queued and Running only
	// Outdated are the nodes with another desired configuration than the applied one, and
	// Unknown the Allocated ones of which that is not known.
	Outdated int `json:"outdated,omitempty"`
	Unknown  int `json:"unknown,omitempty"`
}

// Version lists the versions of the daemon and its dependencies.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	Ansible string `json:"ansible,omitempty"`
	Etcd    string `json:"etcd,omitempty"` // the servers; the lowest of all members
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
