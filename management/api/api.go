// SPDX-License-Identifier: Apache-2.0

// Package api is the contract between the daemon and its clients: paths, wire
// types and the form of errors. It holds no behaviour beyond parsing.
//
// There are two doors. The paths under /v1 are the versioned API that
// clusterctl and new scripts use. The others are the contract of the first
// generation, kept so that existing clients work unchanged (see legacy.go).
package api

import (
	"encoding/json"
	"time"

	"github.com/contiv/cluster/inventory"
)

// DefaultSocket is the Unix socket that only root can open, and that clusterctl
// uses when it is told nothing else.
const DefaultSocket = "/run/clusterm/clusterm.sock"

// Connection says how to reach a host over ssh. An empty field falls back to
// the group's, then to the site's.
type Connection struct {
	User       string `json:"user,omitempty"`
	KeyFile    string `json:"key_file,omitempty"` // on the manager's host
	Port       int    `json:"port,omitempty"`
	Become     *bool  `json:"become,omitempty"`
	BecomeUser string `json:"become_user,omitempty"`
	Jump       string `json:"jump,omitempty"` // USER@HOST:PORT
	Python     string `json:"python,omitempty"`
}

// NodePatch changes what operators say of a node. An absent field changes nothing.
type NodePatch struct {
	Connection *Connection `json:"connection,omitempty"` // replaces the whole
	// ForgetHostKey drops the recorded ssh host key: the next contact records it anew.
	ForgetHostKey bool `json:"forget_host_key,omitempty"`
	// Labels sets those that it names; null takes one away.
	Labels map[string]*string `json:"labels,omitempty"`
}

// List is any list, or a page of one: items and the revision of the view that they were read from.
type List[T any] struct {
	Items []T `json:"items"`
	// Continue, given back in the next query, which is otherwise the same, gets
	// the next page; empty: this was the last. Items that do not change in
	// between are on exactly one page.
	Continue string `json:"continue,omitempty"`
	// Total is how many items all pages have together, as of this revision.
	Total    int   `json:"total"`
	Revision int64 `json:"revision"`
	// Stale: the view has had no word from the store for 3 seconds; what it
	// shows may be old.
	Stale bool `json:"stale,omitempty"`
}

// Changed answers a change that has no record of its own to show.
type Changed struct {
	Revision int64    `json:"revision"`
	Warnings []string `json:"warnings,omitempty"` // e.g. variables that look like templates
}

// Forget removes records of nodes, leaving tombstones.
type Forget struct {
	Nodes  []string `json:"nodes"`
	Force  bool     `json:"force,omitempty"` // also nodes that are still seen
	Reason string   `json:"reason,omitempty"`
}

// JobStatus is where a job is in its life.
type JobStatus string

// The job statuses.
const (
	Queued    JobStatus = "Queued"
	Running   JobStatus = "Running"
	Complete  JobStatus = "Complete"
	Errored   JobStatus = "Errored"
	Cancelled JobStatus = "Cancelled"
)

// JobStatuses lists every status of a job, in the order of its life.
var JobStatuses = []JobStatus{Queued, Running, Complete, Errored, Cancelled}

// Ended tells whether the job's status can no longer change.
func (s JobStatus) Ended() bool { return s == Complete || s == Errored || s == Cancelled }

// What a failure of a commission cleans.
const (
	OnFailureBatch  = "batch"  // all nodes of the batch (the default)
	OnFailureFailed = "failed" // only the nodes that failed
)

// JobRequest asks for a job.
type JobRequest struct {
	Verb  inventory.Verb `json:"verb"`            // commission, decommission, update, maintenance, clear, discover; forget also removes the agent
	Nodes []string       `json:"nodes,omitempty"` // every verb but discover
	Addrs []string       `json:"addrs,omitempty"` // discover
	Group string         `json:"group,omitempty"` // commission, update
	// ExtraVars is an object, or a string that holds one as JSON or YAML.
	ExtraVars json.RawMessage `json:"extra_vars,omitempty"`
	OnFailure string          `json:"on_failure,omitempty"` // commission: batch or failed
	Timeout   Duration        `json:"timeout,omitempty"`    // deadline from the start; 0: the configured one
	Force     bool            `json:"force,omitempty"`      // clear: skip the cleanup; needs a reason
	Reason    string          `json:"reason,omitempty"`
}

// Job is one job on the wire.
type Job struct {
	ID     string         `json:"id"` // counts upwards in the order of acceptance
	Verb   inventory.Verb `json:"verb"`
	Status JobStatus      `json:"status"`
	// Message says how it ended, or what went wrong so far; empty for a plain success.
	Message string `json:"message,omitempty"`
	// Cause is one word for Reason: failed, cancelled, deadline, interrupted,
	// precondition, absent, internal.
	Cause string `json:"cause,omitempty"`

	Nodes     []string `json:"nodes,omitempty"`
	Addrs     []string `json:"addrs,omitempty"`
	Helpers   []string `json:"helpers,omitempty"` // nodes it holds because it needs their help
	Group     string   `json:"group,omitempty"`
	OnFailure string   `json:"on_failure,omitempty"`
	Force     bool     `json:"force,omitempty"`  // clear: the cleanup is skipped
	Reason    string   `json:"reason,omitempty"` // the operator's reason
	Actor     string   `json:"actor,omitempty"`
	RetryOf   string   `json:"retry_of,omitempty"` // the job whose inputs it was accepted with
	Instance  string   `json:"instance,omitempty"` // who runs it
	Note      string   `json:"note,omitempty"`     // what the manager chose, e.g. the group
	Warnings  []string `json:"warnings,omitempty"` // e.g. variables that look like templates

	Position   int      `json:"position,omitempty"`    // Queued: its place in the queue, from 1
	WaitsFor   []string `json:"waits_for,omitempty"`   // Queued: the jobs it waits for
	WaitReason string   `json:"wait_reason,omitempty"` // Queued: why, in words

	Accepted time.Time  `json:"accepted"`
	Started  *time.Time `json:"started,omitempty"`
	Ended    *time.Time `json:"ended,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"`

	Phase          string `json:"phase,omitempty"`           // of a Running job, e.g. configure, cleanup
	Cancel         int    `json:"cancel,omitempty"`          // how often a cancel was asked for; the second skips the cleanup
	CancelBy       string `json:"cancel_by,omitempty"`       // who asked first
	PlaybookDigest string `json:"playbook_digest,omitempty"` // digest of the pinned playbook folder
	LogBytes       int64  `json:"log_bytes,omitempty"`       // bytes of output so far

	// What follows is left out of lists.

	Runs  []Run                 `json:"runs,omitempty"`
	Hosts []HostSummary         `json:"hosts,omitempty"` // one a node or address, in order, when it has ended
	Vars  map[string]MergedVars `json:"vars,omitempty"`  // the pinned variables with their origin, by host

	Revision int64 `json:"revision"`
}

// Run is one run of ansible-playbook for a job.
type Run struct {
	Phase    string       `json:"phase"`
	Playbook string       `json:"playbook"`
	Hosts    []string     `json:"hosts"`
	Groups   []string     `json:"groups,omitempty"` // parallel to Hosts: the group each is in for this run
	Started  time.Time    `json:"started"`
	Ended    *time.Time   `json:"ended,omitempty"`
	Exit     string       `json:"exit,omitempty"` // done, failed, cancelled, deadline, interrupted, absent, internal; empty: not ended
	Code     int          `json:"code,omitempty"` // of ansible-playbook
	Message  string       `json:"message,omitempty"`
	Results  []HostResult `json:"results,omitempty"`
}

// HostResult is how one run ended for one host.
type HostResult struct {
	Host        string `json:"host"`
	OK          int    `json:"ok"`
	Changed     int    `json:"changed"`
	Failed      int    `json:"failed,omitempty"`
	Unreachable bool   `json:"unreachable,omitempty"`
	Task        string `json:"task,omitempty"`    // the task that failed
	Message     string `json:"message,omitempty"` // why
}

// HostSummary is how a job ended for one host.
type HostSummary struct {
	Host    string           `json:"host"`             // node name, or address where it has none yet
	Status  inventory.Status `json:"status,omitempty"` // empty where the job never touched it
	OK      bool             `json:"ok"`               // it is as the verb wants it
	Changed int              `json:"changed"`          // tasks that changed something, over all runs
	Error   string           `json:"error,omitempty"`
}

// Retry asks for an ended job once more, with the inputs it was accepted with:
// playbooks, merged and extra variables, group, options. How hosts are reached is
// taken as it is now.
type Retry struct {
	// Failed leaves out the nodes that the job brought where its verb wants them.
	Failed bool `json:"failed,omitempty"`
}

// Finding is one thing that answers "why".
type Finding struct {
	// About is one word: job, queue, quarantine, tombstone, state, duplicates,
	// host-key, failure, refusal, residue, rule, applied, idle.
	About   string `json:"about"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"` // what to do about it, with the command that helps
}

// Failure is how one run of a job failed on one host.
type Failure struct {
	Job         string `json:"job"`
	Phase       string `json:"phase"`
	Playbook    string `json:"playbook,omitempty"`
	Host        string `json:"host"`
	Task        string `json:"task,omitempty"`
	Message     string `json:"message,omitempty"` // with the end of what the task printed
	Unreachable bool   `json:"unreachable,omitempty"`
}

// NodeExplanation answers why a node is, or is not, in service.
type NodeExplanation struct {
	Node    Node   `json:"node"`
	Ready   bool   `json:"ready"`   // it is commissioned, seen, and nothing is done to it
	Summary string `json:"summary"` // the answer in one sentence
	// When the node came into its status and its state, and who brought it into
	// its status; absent where its history does not reach back so far.
	StatusSince *time.Time `json:"status_since,omitempty"`
	StatusBy    string     `json:"status_by,omitempty"`
	StateSince  *time.Time `json:"state_since,omitempty"`
	Rule        string     `json:"rule,omitempty"`     // what its group needs, in words
	Jobs        []Job      `json:"jobs,omitempty"`     // that hold it or wait for it, in the order of the queue
	Failures    []Failure  `json:"failures,omitempty"` // of the job that holds it, or that set its last error, oldest first
	Findings    []Finding  `json:"findings,omitempty"` // what keeps it from service first
	Next        string     `json:"next"`               // what happens without anybody's doing
}

// JobExplanation answers why a job is queued, is still running, or has failed.
type JobExplanation struct {
	Job      Job       `json:"job"` // as in a list
	Summary  string    `json:"summary"`
	Failures []Failure `json:"failures,omitempty"` // oldest first
	Steps    []string  `json:"steps,omitempty"`    // what the manager did, and how that ended, in order
	Findings []Finding `json:"findings,omitempty"`
	Next     string    `json:"next"` // what happens without anybody's doing
}

// Vars is an object of variables.
type Vars = map[string]any

// MergedVar is one variable as a host gets it.
type MergedVar struct {
	Value  any    `json:"value"`
	Origin string `json:"origin"` // config, global, group, node, request
}

// MergedVars are all variables as a host gets them.
type MergedVars = map[string]MergedVar

// Setting is one key of the configuration.
type Setting struct {
	Value  any    `json:"value"`
	Origin string `json:"origin"` // default, file, overlay; found: by looking at the host
	// Settable tells whether the overlay may hold it; the others belong to the file.
	Settable bool `json:"settable"`
}

// Config is the configuration in force, by dotted key. Secrets are left out.
type Config map[string]Setting

// Instance is one clusterm that is alive. One that ends without a word stays in
// the list for 15 seconds.
type Instance struct {
	ID      string    `json:"id"`             // stays the same over restarts
	Node    string    `json:"node"`           // the name of its own node
	Addr    string    `json:"addr,omitempty"` // of its host, where it is known
	API     []string  `json:"api"`            // URLs that its API is served at
	Version string    `json:"version"`
	Started time.Time `json:"started"`
}

// The values of Health.Status.
const (
	HealthOK       = "ok"
	HealthDegraded = "degraded"
)

// Health says whether the daemon can do its work.
type Health struct {
	Status string            `json:"status"`           // HealthOK or HealthDegraded
	Checks map[string]string `json:"checks,omitempty"` // by part: "ok" or what is wrong
	// Warnings are what does not keep it from its work, and should be seen to.
	Warnings []string          `json:"warnings,omitempty"`
	Instance string            `json:"instance"`
	Revision int64             `json:"revision"`
	Stale    bool              `json:"stale,omitempty"`
	Nodes    int               `json:"nodes"`
	Jobs     map[JobStatus]int `json:"jobs,omitempty"` // Queued and Running only
}

// Version says what runs.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	Ansible string `json:"ansible,omitempty"`
	Etcd    string `json:"etcd,omitempty"` // the server; of several members the lowest
}

// Duration is a time.Duration that JSON and YAML write as "1h30m".
type Duration time.Duration

// MarshalText writes the duration as time.Duration prints it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil || v < 0 {
		return inventory.Errorf(inventory.KindInvalid, "%q is not a duration", b).Do("write it like 90s, 15m or 1h30m")
	}

	*d = Duration(v)

	return nil
}
