// SPDX-License-Identifier: Apache-2.0

package management

import (
	"slices"
	"strconv"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

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

// Ended tells whether the status can no longer change.
func (s JobStatus) Ended() bool { return s == Complete || s == Errored || s == Cancelled }

// Cause is one word for why a job did not simply succeed.
type Cause string

// The causes.
const (
	CauseFailed       Cause = "failed"       // ansible-playbook failed on a host
	CauseCancelled    Cause = "cancelled"    // an operator cancelled it
	CauseDeadline     Cause = "deadline"     // it ran longer than it may
	CauseInterrupted  Cause = "interrupted"  // its runner vanished, or was told to end and by no cancel: the machine went down, or the process
	CausePrecondition Cause = "precondition" // when its turn came it was no longer legal; it touched nothing
	CauseAbsent       Cause = "absent"       // discover: an address never appeared
	CauseInternal     Cause = "internal"     // a fault of the manager
)

// Phase names what one run of ansible-playbook is for.
type Phase string

// The phases.
const (
	PhaseResidue   Phase = "residue"   // cleanup of what an earlier decommission could not clean
	PhaseConfigure Phase = "configure" // site.yml
	PhaseCleanup   Phase = "cleanup"   // cleanup.yml as a part of the verb
	PhaseUpgrade   Phase = "upgrade"   // rolling-upgrade.yml
	PhaseUndo      Phase = "undo"      // cleanup.yml after a failure
	PhaseAppear    Phase = "appear"    // discover: waiting for the hosts to be seen; no run
)

// What a failed commission cleans.
const (
	OnFailureBatch  = "batch"
	OnFailureFailed = "failed"
)

// Target is a node as a job found it when it was accepted or claimed.
type Target struct {
	Name      string           `json:"name"` // node name; of a discover, the address
	Addr      string           `json:"addr"`
	Label     string           `json:"label,omitempty"`
	Serial    string           `json:"serial,omitempty"`
	From      inventory.Status `json:"from,omitempty"`
	FromGroup string           `json:"from_group,omitempty"` // the group it was in
	Group     string           `json:"group,omitempty"`      // the group it is to be in; empty: leaves
	Residue   []string         `json:"residue,omitempty"`    // groups to clean first
	Applied   string           `json:"applied,omitempty"`    // the job whose configuration it carried
}

// HostResult is how a run ended for one host.
type HostResult struct {
	Begun       bool   `json:"begun,omitempty"` // a task was started on it
	OK          int    `json:"ok,omitempty"`
	Changed     int    `json:"changed,omitempty"`
	Failed      int    `json:"failed,omitempty"`
	Unreachable bool   `json:"unreachable,omitempty"`
	Done        bool   `json:"done,omitempty"` // the play reached its end on this host without a failure
	Task        string `json:"task,omitempty"`
	Message     string `json:"message,omitempty"`
}

// Run is one run of ansible-playbook.
type Run struct {
	Phase    Phase                 `json:"phase"`
	Playbook string                `json:"playbook"`
	Hosts    []string              `json:"hosts"`
	Groups   []string              `json:"groups,omitempty"` // parallel to Hosts: the group each is in for this run
	Started  time.Time             `json:"started"`
	Ended    time.Time             `json:"ended,omitzero"`
	Exit     string                `json:"exit,omitempty"` // done, failed, or a Cause; empty: not ended
	Code     int                   `json:"code,omitempty"`
	Message  string                `json:"message,omitempty"`
	Results  map[string]HostResult `json:"results,omitempty"`
	// NotBegun: ansible-playbook was never started, so no host was touched.
	NotBegun bool `json:"not_begun,omitempty"`
	// Text and Events are the offsets of the job's log at which this run's output begins.
	Text   int64 `json:"text"`
	Events int64 `json:"events"`
}

// ExitDone is the Run.Exit of a run whose every host succeeded.
const ExitDone = "done"

// Job is the durable record of one job. Its bulky inputs are kept beside it.
type Job struct {
	ID             string         `json:"id"`
	Verb           inventory.Verb `json:"verb"`
	Status         JobStatus      `json:"status"`
	Cause          Cause          `json:"cause,omitempty"`
	Message        string         `json:"message,omitempty"`
	Targets        []Target       `json:"targets"`
	Helpers        []string       `json:"helpers,omitempty"`
	Group          string         `json:"group,omitempty"`
	OnFailure      string         `json:"on_failure,omitempty"`
	Force          bool           `json:"force,omitempty"`
	Reason         string         `json:"reason,omitempty"` // the operator's reason
	Actor          string         `json:"actor,omitempty"`
	Note           string         `json:"note,omitempty"`
	RetryOf        string         `json:"retry_of,omitempty"` // the job whose inputs it was accepted with
	Warnings       []string       `json:"warnings,omitempty"`
	PlaybookDigest string         `json:"playbook_digest,omitempty"`
	Timeout        time.Duration  `json:"timeout"`

	Instance string    `json:"instance,omitempty"` // who runs it
	Accepted time.Time `json:"accepted"`
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"` // of the verb's own phases; the failure path gets as long again

	Cancel   int    `json:"cancel,omitempty"`
	CancelBy string `json:"cancel_by,omitempty"`
	Runs     []Run  `json:"runs,omitempty"`
	// Outcomes is set when all that is left to do is to write them to the nodes.
	Outcomes map[string]inventory.Outcome `json:"outcomes,omitempty"`
	// LogBytes is the size of its two logs, uncompressed; set when it ends.
	LogBytes int64 `json:"log_bytes,omitempty"`

	// Revision is the store's revision of this record; not part of it.
	Revision int64 `json:"-"`
}

// Seq is the job's number.
func (j Job) Seq() uint64 {
	n, _ := strconv.ParseUint(j.ID, 10, 64)
	return n
}

// Names are the names of the job's targets, in order. Those of a discover are addresses.
func (j Job) Names() []string {
	names := make([]string, len(j.Targets))
	for i, t := range j.Targets {
		names[i] = t.Name
	}

	return names
}

// Target returns the target of that name.
func (j Job) Target(name string) (Target, bool) {
	i := slices.IndexFunc(j.Targets, func(t Target) bool { return t.Name == name })
	if i < 0 {
		return Target{}, false
	}

	return j.Targets[i], true
}

// Phase is what a Running job is doing.
func (j Job) Phase() Phase {
	if j.Status != Running || len(j.Runs) == 0 {
		return ""
	}

	return j.Runs[len(j.Runs)-1].Phase
}

// Due is when what the job does has to be over: a Running job's failure path
// has a time of its own, as long as the verb's. Zero before it runs.
func (j Job) Due() time.Time {
	if j.Phase() == PhaseUndo {
		return j.Runs[len(j.Runs)-1].Started.Add(j.Timeout)
	}

	return j.Deadline
}

// Inputs are what a job was accepted with, pinned: later edits change nothing.
type Inputs struct {
	// Vars are the merged variables of each target, without the request's.
	Vars map[string]map[string]configuration.Var `json:"vars"`
	// Connections say how each target is reached.
	Connections map[string]configuration.Connection `json:"connections"`
	// Extra are the request's own variables; they win over all others.
	Extra configuration.Vars `json:"extra,omitempty"`
}

// Request asks for a job.
type Request struct {
	Verb      inventory.Verb
	Nodes     []string
	Addrs     []string
	Group     string
	Extra     configuration.Vars
	OnFailure string
	Timeout   time.Duration
	Force     bool
	Reason    string
	Actor     string
	Once      *IdempotencyKey
}

// Stream is one of the two logs of a job.
type Stream string

// The streams.
const (
	StreamText   Stream = "text"   // the output of ansible-playbook and of the job itself, bytes
	StreamEvents Stream = "events" // what happened per host and task, a JSON object a line
)

// Scope is what a set of variables applies to: "global", "group/NAME" or "node/NAME".
type Scope string

// ScopeGlobal is the scope of the globals.
const ScopeGlobal Scope = "global"

// ScopeGroup is the scope of a group's variables.
func ScopeGroup(name string) Scope { return Scope("group/" + name) }

// ScopeNode is the scope of a node's variables.
func ScopeNode(name string) Scope { return Scope("node/" + name) }
