// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"
)

// Status is a step in the lifecycle of a node. Operators and jobs set it. The
// monitor sets it only once, for a node that appears for the first time:
// Unallocated, or Quarantined if there is a tombstone.
type Status string

// The statuses.
const (
	Unallocated     Status = "Unallocated"     // ready to be commissioned
	Provisioning    Status = "Provisioning"    // being configured by a commission
	Allocated       Status = "Allocated"       // commissioned, in service
	Maintenance     Status = "Maintenance"     // being updated or upgraded
	Decommissioning Status = "Decommissioning" // being decommissioned, cleared or forgotten
	Decommissioned  Status = "Decommissioned"  // configuration removed; may be commissioned again
	Quarantined     Status = "Quarantined"     // possibly unclean, or another host under this name
)

// Statuses lists every status with its meaning, in the order of the lifecycle.
var Statuses = []struct {
	Status     Status
	Meaning    string
	InProgress bool // a job holds every node of this status
}{
	{Unallocated, "ready to be commissioned", false},
	{Provisioning, "being configured by a commission", true},
	{Allocated, "commissioned, in service", false},
	{Maintenance, "being updated (provisioned again) or upgraded in place", true},
	{Decommissioning, "being decommissioned, cleared or forgotten", true},
	{Decommissioned, "configuration removed; may be commissioned again", false},
	{Quarantined, "possibly unclean, or another host under this name; fenced until an operator clears it", false},
}

// ParseStatus returns the named status, ignoring case.
func ParseStatus(s string) (Status, error) {
	for _, row := range Statuses {
		if strings.EqualFold(string(row.Status), s) {
			return row.Status, nil
		}
	}

	return "", Errorf(KindInvalid, "%q is not a status", s)
}

// InProgress reports whether a job holds every node of this status.
func (s Status) InProgress() bool {
	for _, row := range Statuses {
		if row.Status == s {
			return row.InProgress
		}
	}

	return false
}

// State is the result of monitoring a node. Only observations change it.
type State string

// The states.
const (
	Unknown     State = "Unknown"     // not reported by any observer yet
	Discovered  State = "Discovered"  // seen by at least one observer
	Disappeared State = "Disappeared" // lost by every observer that has seen it
)

// States lists every state with its meaning.
var States = []struct {
	State   State
	Meaning string
}{
	{Unknown, "not reported by any observer yet"},
	{Discovered, "seen by at least one observer"},
	{Disappeared, "lost by every observer that has seen it"},
}

// ParseState returns the named state, ignoring case.
func ParseState(s string) (State, error) {
	for _, row := range States {
		if strings.EqualFold(string(row.State), s) {
			return row.State, nil
		}
	}

	return "", Errorf(KindInvalid, "%q is not a state", s)
}

// Verb is an action of an operator or of the monitor on a node.
type Verb string

// The verbs.
const (
	VerbDiscovered   Verb = "discovered"   // the monitor sees the node, for the first time or again
	VerbDisappeared  Verb = "disappeared"  // the monitor lost the node
	VerbDiscover     Verb = "discover"     // prepare hosts, by address, for discovery
	VerbCommission   Verb = "commission"   // configure a node and bring it into service
	VerbUpdate       Verb = "update"       // provision a node again, optionally in another group
	VerbMaintenance  Verb = "maintenance"  // upgrade a node in place
	VerbDecommission Verb = "decommission" // take a node out of service and clean it, best effort
	VerbClear        Verb = "clear"        // clean a quarantined node and trust it again
	VerbForget       Verb = "forget"       // remove the record of a node, leaving a tombstone
)

// Transition is one row of the lifecycle table: a verb that a job carries out.
type Transition struct {
	Verb    Verb
	From    []Status // legal statuses before
	Through Status   // the in-progress status while the job runs
	Success Status   // the status after success; empty: the record is removed
	// Failed is the status after a failure if the cleanup succeeded or none was
	// needed. Empty restores the status before the job.
	Failed Status
	// Dirty is the status after a failure if the cleanup failed or was skipped. It
	// equals Failed for verbs without cleanup.
	Dirty         Status
	NeedsDiscover bool   // legal only for a Discovered node
	Failure       string // describes the failure path, for the documentation
	Meaning       string // describes the verb, for the documentation
}

// Lifecycle is the table of all verbs that jobs carry out on nodes. Nothing else
// decides on the legality of a verb; the documentation and the tests are
// derived from it.
var Lifecycle = []Transition{
	{
		Verb: VerbCommission, From: []Status{Unallocated, Decommissioned}, Through: Provisioning, Success: Allocated,
		Failed: Unallocated, Dirty: Quarantined, NeedsDiscover: true,
		Meaning: "configure a node and bring it into service",
		Failure: "the nodes of the batch (with `on_failure: failed` only the failed ones) are cleaned up and become" +
			" Unallocated, or Quarantined if the cleanup fails too",
	},
	{
		Verb: VerbUpdate, From: []Status{Allocated}, Through: Maintenance, Success: Allocated,
		Failed: Unallocated, Dirty: Quarantined, NeedsDiscover: true,
		Meaning: "provision a node again, optionally in another group",
		Failure: "nodes with a begun cleanup are cleaned up and become Unallocated, or Quarantined if that fails;" +
			" the others stay Allocated",
	},
	{
		Verb: VerbMaintenance, From: []Status{Allocated}, Through: Maintenance, Success: Allocated,
		Failed: Allocated, Dirty: Allocated, NeedsDiscover: true,
		Meaning: "upgrade a node in place",
		Failure: "Allocated, with `last_error` set and the applied configuration unknown; nothing is cleaned up",
	},
	{
		Verb: VerbDecommission, From: []Status{Allocated, Quarantined}, Through: Decommissioning,
		Success: Decommissioned, Failed: Decommissioned, Dirty: Decommissioned,
		Meaning: "take a node out of service and clean it",
		Failure: "Decommissioned nevertheless; configuration left on the node is recorded as `residue`",
	},
	{
		Verb: VerbClear, From: []Status{Quarantined}, Through: Decommissioning, Success: Unallocated,
		Failed: Quarantined, Dirty: Quarantined,
		Meaning: "clean a quarantined node (`--force --reason` skips the cleanup) and trust it again",
		Failure: "Quarantined",
	},
	{
		// Removing the record alone takes no job, see Node.CheckForget.
		Verb: VerbForget, From: []Status{Unallocated, Decommissioned, Quarantined}, Through: Decommissioning,
		NeedsDiscover: true,
		Meaning:       "with `--remove-agent`: remove the agent from a node, then its record, leaving a tombstone",
		Failure:       "back to the status before",
	},
}

// TransitionOf returns the row of the verb in the lifecycle table.
func TransitionOf(v Verb) (Transition, bool) {
	for _, t := range Lifecycle {
		if t.Verb == v {
			return t, true
		}
	}

	return Transition{}, false
}

// Check returns an error of KindRefused if the verb is not legal for n now.
func (t Transition) Check(n Node) error {
	switch {
	case n.Status.InProgress():
		return Errorf(KindRefused, "%s is %s: job %s holds it", n.Name, n.Status, n.Job).
			Do("wait for the job (clusterctl job logs -f %s) or cancel it (clusterctl job cancel %s)", n.Job, n.Job).
			About(n.Name)
	case !slices.Contains(t.From, n.Status):
		// Dead ends do not exist: every status has a legal verb to suggest.
		return Errorf(KindRefused, "%s is %s; %s takes nodes that are %s",
			n.Name, n.Status, t.Verb, joinWords(t.From, " or ")).
			Do("legal now: %s", joinWords(legalVerbs(n.Status), ", ")).
			About(n.Name)
	case t.NeedsDiscover && n.State != Discovered:
		return Errorf(KindRefused, "%s is %s, and %s needs it Discovered", n.Name, n.State, t.Verb).
			Do("start its agent, or prepare it again: clusterctl discover %s", n.Addr).
			About(n.Name)
	case t.NeedsDiscover && len(n.Duplicates) > 0:
		// Ansible would reach only one of the hosts, and not reliably the same one.
		hosts := append([]string{n.Addr}, n.Duplicates...)

		return Errorf(KindRefused, "%s is claimed by several live hosts: %s", n.Name, strings.Join(hosts, ", ")).
			Do("give each host a serial number of its own, and restart its agent").
			About(n.Name)
	}

	return nil
}

// legalVerbs returns the verbs that are legal from the status.
func legalVerbs(s Status) []Verb {
	var verbs []Verb
	for _, t := range Lifecycle {
		if slices.Contains(t.From, s) {
			verbs = append(verbs, t.Verb)
		}
	}

	return verbs
}

// joinWords is strings.Join for statuses and verbs.
func joinWords[S ~string](words []S, separator string) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}

	return strings.Join(texts, separator)
}
