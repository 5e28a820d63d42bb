// SPDX-License-Identifier: Apache-2.0

package job

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// Status is the position of a job in its life.
type Status string

// The job statuses.
const (
	Queued    Status = "Queued"
	Running   Status = "Running"
	Complete  Status = "Complete"
	Errored   Status = "Errored"
	Cancelled Status = "Cancelled"
)

// Ended reports whether the status is final.
func (s Status) Ended() bool { return s == Complete || s == Errored || s == Cancelled }

// Cause is the reason, in one word, why a job did not simply succeed.
type Cause string

// The causes.
const (
	CauseFailed      Cause = "failed"      // ansible-playbook failed on a host
	CauseCancelled   Cause = "cancelled"   // an operator cancelled the job
	CauseDeadline    Cause = "deadline"    // the job exceeded its timeout
	CauseInterrupted Cause = "interrupted" // the runner died or got a signal without a cancel, e.g. at a shutdown
	// CausePrecondition: the job, or its next batch, was no longer legal when its turn came.
	CausePrecondition Cause = "precondition"
	CauseDrifted      Cause = "drifted"  // verify: a node differs from its configuration
	CauseAbsent       Cause = "absent"   // discover: an address never appeared
	CauseInternal     Cause = "internal" // a fault of the manager
)

// Phase is the purpose of one run.
type Phase string

// The phases.
const (
	PhaseResidue   Phase = "residue"   // cleanup.yml for the residue of an earlier decommission
	PhaseErase     Phase = "erase"     // erase.yml
	PhaseClean     Phase = "clean"     // clean.yml
	PhaseConfigure Phase = "configure" // site.yml
	PhaseCleanup   Phase = "cleanup"   // cleanup.yml as a part of the verb
	PhaseApply     Phase = "apply"     // site.yml on nodes in service
	PhaseUpgrade   Phase = "upgrade"   // rolling-upgrade.yml
	PhaseUndo      Phase = "undo"      // cleanup.yml, or discover-undo.yml, after a failure
	PhaseAppear    Phase = "appear"    // wait until the hosts of a discover are observed
	PhaseProbe     Phase = "probe"     // try to reach the hosts of a discover by ssh
	PhaseVerify    Phase = "verify"    // verify.yml
	PhaseDrift     Phase = "drift"     // site.yml in check mode, with differences
	PhasePower     Phase = "power"     // switch the hosts by their BMCs
	// PhaseCredentials checks the credentials of the hosts: ssh and BMC.
	PhaseCredentials Phase = "credentials"
	PhaseInspect     Phase = "inspect" // find the hardware facts of the hosts
	PhaseInstall     Phase = "install" // boot the hosts from the network, and write an image to their disks
)

// Configures reports whether a run of the phase puts a configuration on its hosts.
func (p Phase) Configures() bool { return p == PhaseConfigure || p == PhaseApply || p == PhaseUpgrade }

// Verifies reports whether a run of the phase compares its hosts with their configuration, and changes nothing.
func (p Phase) Verifies() bool { return p == PhaseVerify || p == PhaseDrift }

// Target is a node as the job found it when it was accepted or claimed.
type Target struct {
	Name      string           `json:"name"` // node name; for a discover, the address
	Addr      string           `json:"addr"`
	Label     string           `json:"label,omitempty"`
	Serial    string           `json:"serial,omitempty"`
	Known     string           `json:"known,omitempty"` // the name of the node, if that is not LABEL-SERIAL
	From      inventory.Status `json:"from,omitempty"`
	FromGroup string           `json:"from_group,omitempty"` // its group before the job
	Group     string           `json:"group,omitempty"`      // its group after success; empty: none
	Residue   []string         `json:"residue,omitempty"`    // groups to clean first
	Uncleaned bool             `json:"uncleaned,omitempty"`  // an earlier cleaning failed: clean.yml comes first
	Applied   string           `json:"applied,omitempty"`    // the job that had configured the node
	// Playbooks are the digests of the playbooks that had configured the node, by
	// each group that it carried.
	Playbooks map[string]string `json:"playbooks,omitempty"`
	// Variables is the checksum of the variables with which the job configures the
	// node, those of the request included; empty: unknown.
	Variables string `json:"variables,omitempty"`
	// Configured is the checksum of the variables with which the node had been
	// configured; empty: unknown.
	Configured string `json:"configured,omitempty"`
	// ConfiguredTags describe the choice of tasks with which the node had been configured,
	// if Configured is known.
	ConfiguredTags string `json:"configured_tags,omitempty"`
	// ConfiguredMasters is the checksum of the masters with which the node had been configured;
	// empty: unknown.
	ConfiguredMasters string `json:"configured_masters,omitempty"`
	Ranged            bool   `json:"ranged,omitempty"` // discover: an address of a range, skipped if it is silent
	// HostKeys are the ssh host keys that the request gave for the address, in the form
	// of inventory.Node.HostKeys.
	HostKeys []string `json:"host_keys,omitempty"`
}

// Node returns the name of the target's node, or "" for an address without a
// node.
func (t Target) Node() string {
	switch {
	case t.Known != "":
		return t.Known
	case t.Label == "":
		return ""
	}

	return inventory.NodeName(t.Label, t.Serial)
}

// HostResult is the result of one run on one host.
type HostResult struct {
	Begun       bool   `json:"begun,omitempty"` // at least one task was started
	OK          int    `json:"ok,omitempty"`    // tasks
	Changed     int    `json:"changed,omitempty"`
	Failed      int    `json:"failed,omitempty"`
	Ignored     int    `json:"ignored,omitempty"` // failures that the playbook ignores
	Unreachable bool   `json:"unreachable,omitempty"`
	Done        bool   `json:"done,omitempty"`     // the play reached its end without a failure
	Selected    bool   `json:"selected,omitempty"` // a task acted that the job's tags select
	Executed    int    `json:"executed,omitempty"` // tasks that a check executed, with a change or a failure
	Foreseen    int    `json:"foreseen,omitempty"` // tasks that would change the host, found by a check
	Unjudged    int    `json:"unjudged,omitempty"` // tasks that a check cannot judge
	Judged      int    `json:"judged,omitempty"`   // tasks that compared the host with their aim
	Doubt       string `json:"doubt,omitempty"`    // why the host may differ although nothing failed on it
	Task        string `json:"task,omitempty"`     // the task that failed
	Message     string `json:"message,omitempty"`
}

// mayHaveChanged reports whether a task may have changed the host. A host that
// refused the connection before any task changed it is as it was.
func (r HostResult) mayHaveChanged() bool {
	refused := r.Unreachable && configuration.NeverConnected(r.Message)
	return r.Begun && (!refused || r.Changed > 0 || r.Failed > 0)
}

// unreached reports whether ssh never got into the host, so that it is as it was.
func (r HostResult) unreached() bool { return r.Unreachable && !r.Done && !r.mayHaveChanged() }

// Bad reports whether the result shows a failure of the host itself: a task failed,
// it was unreachable, or no play acted on it.
func (r HostResult) Bad() bool {
	return !r.Done && (r.Failed > 0 || r.Unreachable || r.untouched())
}

// untouched reports whether no play of the playbook acted on the host.
func (r HostResult) untouched() bool {
	return !r.Done && !r.Begun && r.Failed == 0 && !r.Unreachable && r.Message != ""
}

// ExitDone is the Run.Exit of a run that succeeded on every host.
const ExitDone = "done"

// Run is one step of a job that was begun: a run of ansible-playbook, or a wait
// for hosts to appear.
type Run struct {
	Kind     StepKind `json:"kind,omitempty"`
	Phase    Phase    `json:"phase"`
	Playbook string   `json:"playbook"`
	// PlaybookDigest is the digest of the folder of the run, or PlaybooksBundled;
	// empty: that of the job.
	PlaybookDigest string `json:"playbook_digest,omitempty"`

	Hosts   []string  `json:"hosts"`
	Groups  []string  `json:"groups,omitempty"` // parallel to Hosts: the group of each for this run
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Exit    string    `json:"exit,omitempty"` // ExitDone or a Cause; empty: still running
	Code    int       `json:"code,omitempty"` // exit status of ansible-playbook
	Message string    `json:"message,omitempty"`
	// Results has an entry for each of Hosts, and for each helper on which a play
	// has acted.
	Results map[string]HostResult `json:"results,omitempty"`
	// NotBegun: ansible-playbook is known to have never been executed, so no host
	// was touched.
	NotBegun bool `json:"not_begun,omitempty"`
	// TakenOver: another instance, or an earlier attempt that was lost, may have begun this step.
	TakenOver bool `json:"taken_over,omitempty"`
	// Bound: what runs on the host of an instance ends with its ownership of the job, so that the next owner need not
	// wait. Otherwise it may go on for jobs.runner_lease.
	Bound bool `json:"bound,omitempty"`
	// Lost: the run ended because its instance lost the job, so its step is begun again.
	Lost bool `json:"lost,omitempty"`
	// Masters and MasterNames are the nodes of groups that others require, as the inventory of the
	// run has them, see inventory.Configured.
	Masters     string   `json:"masters,omitempty"`
	MasterNames []string `json:"master_names,omitempty"`
	// Troubles are those of the manager itself during a run that failed, in words.
	Troubles []string `json:"troubles,omitempty"`
	// Text and Events are the offsets in the job's logs where the output of
	// this run begins, in bytes.
	Text   int64 `json:"text"`
	Events int64 `json:"events"`
}

// Job is the durable record of one job. Its inputs and its logs are stored
// beside it.
type Job struct {
	ID      string         `json:"id"`
	Verb    inventory.Verb `json:"verb"`
	Status  Status         `json:"status"`
	Cause   Cause          `json:"cause,omitempty"`
	Message string         `json:"message,omitempty"` // the outcome in words
	Targets []Target       `json:"targets"`
	Helpers []string       `json:"helpers,omitempty"`
	Group   string         `json:"group,omitempty"`

	inventory.JobOptions

	Actor     string `json:"actor,omitempty"`
	Note      string `json:"note,omitempty"`       // a choice that the manager made
	RetryOf   string `json:"retry_of,omitempty"`   // the job that this one repeats
	Plan      string `json:"plan,omitempty"`       // the id of the plan that this job carries out
	PlannedBy string `json:"planned_by,omitempty"` // the principal that made the plan
	Rollout   string `json:"rollout,omitempty"`    // the id of the rollout that this job is a part of
	// Differences describe how the job differs from the one that it repeats.
	Differences []string `json:"differences,omitempty"`
	Warnings    []string `json:"warnings,omitempty"`
	// PlaybookDigest is the digest of the configured folder at the acceptance.
	PlaybookDigest string `json:"playbook_digest,omitempty"`
	// Commit is the commit of the git repository that PlaybookDigest comes from; empty: it
	// comes from elsewhere.
	Commit string `json:"commit,omitempty"`
	// WithoutVerify are the digests of those playbooks of a verification that have no verify.yml.
	WithoutVerify []string `json:"without_verify,omitempty"`
	// WithoutHelpers: no play of its playbooks acts on a helper, so it holds none.
	WithoutHelpers bool `json:"without_helpers,omitempty"`
	// ExtraNames are the names of the variables of the request, sorted, at most
	// inventory.MaxExtraNames.
	ExtraNames []string `json:"extra_names,omitempty"`
	// ExtraSums are the checksums of their values, parallel to ExtraNames.
	ExtraSums []string `json:"extra_sums,omitempty"`
	// GroupTags choose the tasks of the runs that configure or verify nodes of a group, by
	// group, as they were at the acceptance. Groups with all tasks are absent.
	GroupTags map[string]inventory.Selection `json:"group_tags,omitempty"`
	Timeout   time.Duration                  `json:"timeout"`
	// TimeoutFrom names where Timeout comes from; empty: unknown, in records of former versions.
	TimeoutFrom string `json:"timeout_from,omitempty"`

	Instance string `json:"instance,omitempty"` // the instance that runs the job, by its node
	// Former is the instance that ran the job before, and was lost. What it has begun may go on; empty: nothing does.
	Former   string    `json:"former,omitempty"`
	Accepted time.Time `json:"accepted"`
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	// Deadline ends the verb's own phases. The failure path gets another Timeout.
	Deadline time.Time `json:"deadline,omitzero"`
	// Outage is the time without the store since the start, by which Deadline was put off, and OutageUntil when that
	// was counted last.
	Outage      time.Duration `json:"outage,omitempty"`
	OutageUntil time.Time     `json:"outage_until,omitzero"`

	Cancel   int    `json:"cancel,omitempty"` // cancel requests, at most 2
	CancelBy string `json:"cancel_by,omitempty"`
	Runs     []Run  `json:"runs,omitempty"`
	// Outcomes are set once the end is decided and only has to be written to
	// the nodes.
	Outcomes map[string]inventory.Outcome `json:"outcomes,omitempty"`
	// LogBytes is the uncompressed size of both logs, set at the end.
	LogBytes int64 `json:"log_bytes,omitempty"`

	// Revision is the store's revision of this record; it is not stored.
	Revision int64 `json:"-"`
}

// Seq returns the job's number.
func (j Job) Seq() uint64 {
	n, _ := strconv.ParseUint(j.ID, 10, 64)
	return n
}

// Names returns the names of the targets in order; addresses for a discover.
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

// Helped returns the helpers on which a play of the run has acted, sorted.
func (r Run) Helped() []string {
	var helped []string
	for _, name := range slices.Sorted(maps.Keys(r.Results)) {
		if !slices.Contains(r.Hosts, name) {
			helped = append(helped, name)
		}
	}

	return helped
}

// LastRun returns the newest run, or nil before the first.
func (j Job) LastRun() *Run {
	if len(j.Runs) == 0 {
		return nil
	}
	return &j.Runs[len(j.Runs)-1]
}

// Phase returns the current phase of a Running job, else "".
func (j Job) Phase() Phase {
	if j.Status != Running || len(j.Runs) == 0 {
		return ""
	}
	return j.LastRun().Phase
}

// Cancels reports whether the job's cancel applies to the run. The first request
// ends the verb's own phases, the second the failure path as well.
func (j Job) Cancels(run Run) bool {
	if run.Phase == PhaseUndo {
		return j.Cancel > 1
	}
	return j.Cancel > 0
}

// Due returns the deadline of the current phase. The failure path of a Running
// job has a deadline of its own. Due is zero before the job runs.
func (j Job) Due() time.Time {
	if j.Phase() == PhaseUndo {
		return j.LastRun().Started.Add(j.Timeout)
	}
	return j.Deadline
}

// Counted returns the time from which on Due counts outages of the store.
func (j Job) Counted() time.Time {
	switch {
	case j.Phase() == PhaseUndo:
		return j.LastRun().Started
	case j.OutageUntil.IsZero():
		return j.Started
	}

	return j.OutageUntil
}

// PutOff returns the job with a deadline that does not count an outage of the store, up to now.
func (j Job) PutOff(outage time.Duration, now time.Time) Job {
	j.Deadline, j.Outage, j.OutageUntil = j.Deadline.Add(outage), j.Outage+outage, now
	return j
}

// Inputs are the values a job was accepted with. Later edits do not change them.
type Inputs struct {
	// Groups has the group of each target in Vars and Connections. Former versions stored none.
	Groups map[string]string
	// Vars are the merged variables of each target, without those of the request.
	Vars map[string]map[string]configuration.Var
	// Connections are the ssh parameters of each target.
	Connections map[string]configuration.Connection
	// CleanupVars and CleanupConnections are those of the targets in further groups of which the job may
	// clean them, by group and target.
	CleanupVars        map[string]map[string]map[string]configuration.Var
	CleanupConnections map[string]map[string]configuration.Connection
	// Extra are the variables of the request. They override all others.
	Extra configuration.Vars
}

// TimeoutUsual is where the timeout of a request that sets none comes from.
const TimeoutUsual = "jobs.timeout"

// Request asks for a job.
type Request struct {
	Verb   inventory.Verb
	Nodes  []string // for verbs that take nodes
	Addrs  []string // for verbs that take addresses
	Ranges []string // of addresses, besides Addrs
	Group  string
	Extra  configuration.Vars

	inventory.JobOptions

	// GroupTags are those of the job in place of those of today; nil: today's.
	GroupTags map[string]inventory.Selection
	Timeout   time.Duration // 0: the configured default
	// TimeoutFrom names where Timeout comes from; empty: the caller.
	TimeoutFrom string
	// HostKeys are ssh public keys of addresses. An address without any shows its key
	// at the first contact, and that one counts.
	HostKeys map[string][]string
	// Expect holds what the request expects of its nodes, by name. Empty: anything.
	Expect map[string]Expected
}

// Stream is one of the two logs of a job.
type Stream string

// The streams.
const (
	StreamText   Stream = "text"   // output of ansible-playbook and of the job itself
	StreamEvents Stream = "events" // per-host and per-task events, one JSON object a line
)
