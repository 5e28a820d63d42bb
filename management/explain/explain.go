// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/desired"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
	"github.com/contiv/cluster/management/window"
)

// About is the subject of a Finding: one word that clients can act on.
type About string

// The subjects of findings.
const (
	AboutJob        About = "job"        // a job holds the node, or another job is waited for
	AboutQueue      About = "queue"      // a job is in the queue
	AboutManager    About = "manager"    // the manager itself was in trouble
	AboutQuarantine About = "quarantine" // the node is fenced
	AboutTombstone  About = "tombstone"  // the node was forgotten before
	AboutState      About = "state"      // no observer sees the node
	AboutObservers  About = "observers"  // observers contradict each other
	AboutDuplicates About = "duplicates" // several live hosts claim to be the node
	AboutAddress    About = "address"    // another node has the same address
	AboutHostKey    About = "host-key"   // ssh does not accept the host's key
	AboutSSHKey     About = "ssh-key"    // a rotation of the manager's ssh key waits for the node
	AboutAccess     About = "access"     // the host does not accept the manager's credentials
	AboutFailure    About = "failure"    // a task, or the whole job, failed
	AboutRefusal    About = "refusal"    // the precondition of a job failed, so it was not begun
	AboutIdentity   About = "identity"   // which machine the node is
	AboutAlert      About = "alert"      // somebody found something about the node
	AboutHardware   About = "hardware"   // its hardware is not as expected, or what follows from it
	AboutResidue    About = "residue"    // configuration that could not be removed
	AboutRule       About = "rule"       // the node's group lacks a provider
	AboutApplied    About = "applied"    // the configuration of the node is unknown
	AboutDrift      About = "drift"      // the node differs from its configuration, or that is unknown
	AboutOutdated   About = "outdated"   // the node would be configured with something else now
	AboutIdle       About = "idle"       // no operator has commissioned the node
	AboutPolicy     About = "policy"     // a policy is for the node
	AboutReturn     About = "return"     // the node disappeared and appeared again
	AboutRollout    About = "rollout"    // the node or the job is a part of a rollout
	AboutWindow     About = "window"     // a maintenance window or a freeze decides when it may change
)

// Finding is one reason for the current situation: its subject and facts, the
// same in words, and a remedy.
type Finding struct {
	About   About
	Job     string    // the id of the job concerned; may be empty
	Nodes   []string  // the nodes and addresses concerned; may be empty
	Group   string    // the group that is missing a node; may be empty
	Since   time.Time // the start of the situation; zero if unknown
	Message string
	Remedy  string             // the next step for the operator, in words; may be empty
	Actions []inventory.Action // that carry the remedy out; may be empty
}

// finding returns a finding about a subject, with its message.
func finding(about About, format string, args ...any) Finding {
	return Finding{About: about, Message: fmt.Sprintf(format, args...)}
}

// of sets the job that the finding concerns.
func (f Finding) of(j job.Job) Finding {
	f.Job = j.ID
	return f
}

// on sets the nodes that the finding concerns.
func (f Finding) on(nodes ...string) Finding {
	f.Nodes = nodes
	return f
}

// since sets the start of the situation.
func (f Finding) since(t time.Time) Finding {
	f.Since = t
	return f
}

// do sets the remedy in words.
func (f Finding) do(format string, args ...any) Finding {
	f.Remedy = fmt.Sprintf(format, args...)
	return f
}

// with adds actions that carry the remedy out.
func (f Finding) with(actions ...inventory.Action) Finding {
	f.Actions = append(f.Actions, actions...)
	return f
}

// Facts are the inputs of every explanation.
type Facts struct {
	View     *state.View
	Groups   inventory.Groups
	JobLimit int // jobs that run at a time
	Windows  window.Calendar
	// Incomplete is that of Settings.
	Incomplete error
	Now        time.Time
	Reader
	// Connect returns the ssh parameters of a node as they are now.
	Connect func(v *state.View, group, node string) configuration.Connection
	// KeyLaggard returns why, and since when, a rotation of the manager's ssh key waits for
	// a node; ok is false if none does. nil: none is known.
	KeyLaggard func(node string) (reason string, since time.Time, ok bool)
	// Judgement compares the explained node with its desired configuration.
	Judgement desired.Judgement
	// Playbooks are those that would configure a node now.
	Playbooks state.Playbooks
	// Masters are the nodes that every inventory has now.
	Masters []string
	// Changes are the recorded changes of its variables, if it is outdated by them.
	Changes map[state.Scope][]variable.Change
	// Request are the values of Judgement.Undone, as far as they are kept.
	Request configuration.Vars
	// HostVars are the variables that host_vars of the playbooks sets for the node, if Judgement.Undone has any.
	HostVars map[string]configuration.FileVar
	// Automation are the reasons of the policies for the node.
	Automation []state.PolicyReason
}

// Reader is who asks for an explanation.
type Reader struct {
	Name string // the principal; empty: unknown
	// Sees is what the reader sees of the view; nil: the whole.
	Sees *state.Scoped
}

// sees reports whether the reader may know of a job.
func (r Reader) sees(id string) bool {
	if r.Sees == nil {
		return true
	}

	_, err := r.Sees.Job(id)
	return err == nil
}

// NodeExplanation answers why a node is, or is not, in service.
type NodeExplanation struct {
	Node    inventory.Node
	Ready   bool   // commissioned, Discovered, and without a problem
	Summary string // the answer in one sentence
	// StatusSince is the time of the last change of the status, and StatusBy its
	// actor; zero if the history does not reach back so far.
	StatusSince time.Time
	StatusBy    string
	StateSince  time.Time     // the same for the state
	StateReason string        // of the last change of the state; mostly empty
	Rule        string        // the rule of the node's group, in words; empty: none
	Jobs        []job.Job     // jobs that hold the node or wait for it, in the order of the queue
	Failures    []api.Failure // of the job that holds the node or set its last error, oldest first
	Findings    []Finding     // the main obstacle first
	Wait        *Wait         // of the job that holds it, or is the next to; nil: there is none
	Next        string        // the next event without an operator
}

// JobExplanation answers why a job is queued, still runs, or failed.
type JobExplanation struct {
	Job      job.Job
	Summary  string
	Failures []api.Failure // oldest first
	Steps    []string      // each step of the job with its result, in order
	Findings []Finding
	Wait     *Wait  // nil: it waits for nothing
	Next     string // the next event without an operator
}

// History reads the history of nodes.
type History interface {
	// History returns the newest entries of a node, oldest first.
	History(ctx context.Context, node string, limit int) ([]inventory.HistoryEntry, error)
	VariableHistory
	// Inputs returns the inputs of a job, or KindNotFound.
	Inputs(ctx context.Context, job string) (job.Inputs, error)
}

// Settings is the part of the configuration that explanations depend on.
type Settings struct {
	Groups   inventory.Groups
	JobLimit int // jobs that run at a time
	Windows  window.Calendar
	// Incomplete is the reason why these are not the settings that the operator chose, or nil.
	// Until then no job begins.
	Incomplete error
	// Connect merges the ssh parameters of site, group and node.
	Connect func(v *state.View, group, node string) configuration.Connection
	// KeyLaggard is that of Facts.
	KeyLaggard func(node string) (reason string, since time.Time, ok bool)
}

// Automation explains the decisions of the manager itself.
type Automation interface {
	// Explain returns the reasons of the policies for a node.
	Explain(v *state.View, n inventory.Node) []state.PolicyReason
}

// Explainer answers why a node or a job is as it is.
type Explainer struct {
	history    History
	desired    Desired // may be nil
	settings   func() Settings
	automation Automation
}

// New returns an explainer. Without d it does not tell whether a node is outdated. a may
// be nil.
func New(h History, d Desired, settings func() Settings, a Automation) *Explainer {
	return &Explainer{h, d, settings, a}
}

// Node answers the reader, a principal, why a node is, or is not, in service.
func (e *Explainer) Node(ctx context.Context, v *state.View, name string, reader Reader) (NodeExplanation, error) {
	n, err := v.Node(name)
	if t := record.Get(v, &state.Tombstones, name); err != nil && t != nil {
		return NodeExplanation{}, inventory.Errorf(inventory.KindNotFound, "%s was forgotten on %s by %s%s",
			name, stamp(t.Time), job.OrSomebody(t.Actor), because(t.Reason)).
			Do("when it is seen again it is Quarantined until it is cleared").About(name)
	}

	if err != nil {
		return NodeExplanation{}, err
	}

	history, err := e.history.History(ctx, name, inventory.HistoryLimit)
	if err != nil {
		return NodeExplanation{}, err
	}

	facts := e.facts(v, reader)
	if e.desired != nil {
		now := e.desired.Of(v)

		facts.Judgement, facts.Playbooks, facts.Masters = now.Judge(&n), now.Playbooks(), now.Masters()
		if facts.Changes, err = e.changesFor(ctx, facts.Judgement, n); err != nil {
			return NodeExplanation{}, err
		}

		// Without them, the remedy names the variables alone.
		if len(facts.Judgement.Undone) > 0 {
			if in, err := e.history.Inputs(ctx, n.Applied); err == nil {
				facts.Request = now.Visible(in.Extra)
			}

			facts.HostVars = now.FolderVars(&n).Host
		}
	}

	if e.automation != nil {
		facts.Automation = e.automation.Explain(v, n)
	}

	return ExplainNode(facts, n, history), nil
}

// Job answers the reader, a principal, why a job is as it is.
func (e *Explainer) Job(v *state.View, j job.Job, reader Reader) JobExplanation {
	facts := e.facts(v, reader)
	if e.desired != nil {
		facts.Playbooks = e.desired.Of(v).Playbooks()
	}
	return ExplainJob(facts, j)
}

func (e *Explainer) facts(v *state.View, reader Reader) Facts {
	settings := e.settings()

	return Facts{
		View: v, Groups: settings.Groups, JobLimit: settings.JobLimit, Windows: settings.Windows,
		Incomplete: settings.Incomplete, Now: time.Now(), Reader: reader,
		Connect: settings.Connect, KeyLaggard: settings.KeyLaggard,
	}
}

func (f Facts) turn(j job.Job) job.Turn {
	t := job.TurnOf(f.View.Snapshot, f.Groups, f.JobLimit, j, f.hold())

	shown := slices.DeleteFunc(slices.Clone(t.WaitsFor), func(id string) bool { return !f.sees(id) })
	if len(shown) < len(t.WaitsFor) {
		t.WaitsFor, t.Reason = shown, state.HiddenJobs
	}
	return t
}
