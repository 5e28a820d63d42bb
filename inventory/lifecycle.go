// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"
)

// Status is where a node is in its life. It is what operators and jobs set; the
// monitor never changes it, except that a node it sees for the first time
// starts as Unallocated (or Quarantined, where a tombstone says so).
type Status string

// The statuses of the verbs that exist.
const (
	Unallocated     Status = "Unallocated"     // ready to be commissioned
	Provisioning    Status = "Provisioning"    // configuration is being pushed
	Allocated       Status = "Allocated"       // commissioned, in service
	Maintenance     Status = "Maintenance"     // being updated, upgraded, verified or repaired
	Decommissioning Status = "Decommissioning" // being decommissioned or cleared
	Decommissioned  Status = "Decommissioned"  // configuration removed; may be commissioned again
	Quarantined     Status = "Quarantined"     // cannot be trusted to be clean or to be who it says it is
)

// Statuses lists every status with its meaning, in the order of a node's life.
var Statuses = []struct {
	Status     Status
	Meaning    string
	InProgress bool // a job holds the node
}{
	{Unallocated, "ready to be commissioned", false},
	{Provisioning, "configuration is being pushed", true},
	{Allocated, "commissioned, in service", false},
	{Maintenance, "being updated, upgraded, verified or repaired", true},
	{Decommissioning, "being decommissioned or cleared", true},
	{Decommissioned, "configuration removed; may be commissioned again", false},
	{
		Quarantined,
		"cannot be trusted to be clean or to be who it says it is; fenced until an operator clears it",
		false,
	},
}

// ParseStatus returns the status of that name, in any case.
func ParseStatus(s string) (Status, error) {
	for _, row := range Statuses {
		if strings.EqualFold(string(row.Status), s) {
			return row.Status, nil
		}
	}

	return "", Errorf(KindInvalid, "%q is not a status", s)
}

// InProgress tells whether a job holds every node of this status.
func (s Status) InProgress() bool {
	for _, row := range Statuses {
		if row.Status == s {
			return row.InProgress
		}
	}

	return false
}

// State is whether the monitor sees a node. Only observations change it.
type State string

// The states.
const (
	Unknown     State = "Unknown"     // no observer has said anything yet
	Discovered  State = "Discovered"  // at least one observer sees it
	Disappeared State = "Disappeared" // every observer that knew it has lost it
)

// States lists every state with its meaning.
var States = []struct {
	State   State
	Meaning string
}{
	{Unknown, "no observer has said anything of it yet"},
	{Discovered, "at least one observer sees it"},
	{Disappeared, "every observer that knew it has lost it"},
}

// ParseState returns the state of that name, in any case.
func ParseState(s string) (State, error) {
	for _, row := range States {
		if strings.EqualFold(string(row.State), s) {
			return row.State, nil
		}
	}

	return "", Errorf(KindInvalid, "%q is not a state", s)
}

// Verb is what an operator, or the monitor, does to a node.
type Verb string

// The verbs.
const (
	VerbDiscovered   Verb = "discovered"   // the monitor sees it (anew)
	VerbDisappeared  Verb = "disappeared"  // the monitor has lost it
	VerbDiscover     Verb = "discover"     // prepare hosts, by address, for discovery
	VerbCommission   Verb = "commission"   // configure it and bring it into service
	VerbUpdate       Verb = "update"       // provision it again, perhaps in another group
	VerbMaintenance  Verb = "maintenance"  // upgrade it in place
	VerbDecommission Verb = "decommission" // take it out of service and clean it, best effort
	VerbClear        Verb = "clear"        // clean a quarantined node and trust it again
	VerbForget       Verb = "forget"       // remove its record, leaving a tombstone
)

// Transition is one row of the lifecycle table: a verb that a job carries out.
type Transition struct {
	Verb    Verb
	From    []Status // the statuses it is legal from
	Through Status   // the in-progress status while a job does it
	Success Status   // the status after success; empty: the node is no longer known
	// Failed is the status after a failure whose cleanup succeeded, or that
	// needed none; empty: the status it came from.
	Failed Status
	// Dirty is the status after a failure whose cleanup failed too or was
	// skipped. Equal to Failed where the verb cleans nothing.
	Dirty         Status
	NeedsDiscover bool   // legal only while the node is Discovered
	Failure       string // the failure path, for the documentation
	Meaning       string // what the verb does, for the documentation
}

// Lifecycle is the table: every verb that a job carries out on nodes. Code,
// documentation and tests read it; nothing else decides what is legal.
var Lifecycle = []Transition{
	{
		Verb:          VerbCommission,
		From:          []Status{Unallocated, Decommissioned},
		Through:       Provisioning,
		Success:       Allocated,
		Failed:        Unallocated,
		Dirty:         Quarantined,
		NeedsDiscover: true,
		Meaning:       "configure a node and bring it into service",
		Failure:       "all nodes of the batch (with `on_failure: failed` those that failed) are cleaned up, then Unallocated; Quarantined where the cleanup fails too",
	},
	{
		Verb: VerbUpdate, From: []Status{Allocated}, Through: Maintenance, Success: Allocated,
		Failed: Unallocated, Dirty: Quarantined, NeedsDiscover: true,
		Meaning: "provision a node again, perhaps in another group",
		Failure: "nodes whose cleanup has begun: cleanup, then Unallocated or Quarantined; the others stay Allocated",
	},
	{
		Verb: VerbMaintenance, From: []Status{Allocated}, Through: Maintenance, Success: Allocated,
		Failed: Allocated, Dirty: Allocated, NeedsDiscover: true,
		Meaning: "upgrade a node in place",
		Failure: "Allocated, with the error kept and the applied configuration unknown; nothing is cleaned",
	},
	{
		Verb: VerbDecommission, From: []Status{Allocated, Quarantined}, Through: Decommissioning, Success: Decommissioned,
		Failed: Decommissioned, Dirty: Decommissioned,
		Meaning: "take a node out of service and clean it",
		Failure: "Decommissioned all the same; what could not be cleaned is kept as residue",
	},
	{
		Verb: VerbClear, From: []Status{Quarantined}, Through: Decommissioning, Success: Unallocated,
		Failed: Quarantined, Dirty: Quarantined,
		Meaning: "clean a quarantined node (`--force --reason` skips the cleanup) and trust it again",
		Failure: "Quarantined",
	},
	{
		// A record alone is forgotten without a job, see Node.CheckForget.
		Verb:          VerbForget,
		From:          []Status{Unallocated, Decommissioned, Quarantined},
		Through:       Decommissioning,
		NeedsDiscover: true,
		Meaning:       "with `--remove-agent`: remove the agent from a node, then its record, leaving a tombstone",
		Failure:       "the status it came from",
	},
}

// TransitionOf returns the verb's row of the table.
func TransitionOf(v Verb) (Transition, bool) {
	for _, t := range Lifecycle {
		if t.Verb == v {
			return t, true
		}
	}

	return Transition{}, false
}

// Check refuses the verb on the node as it is, saying why and what is legal.
func (t Transition) Check(n Node) error {
	switch {
	case n.Status.InProgress():
		return Errorf(KindRefused, "%s is %s: job %s holds it", n.Name, n.Status, n.Job).
			Do("wait for the job (clusterctl job logs -f %s) or cancel it (clusterctl job cancel %s)", n.Job, n.Job).
			About(n.Name)
	case !slices.Contains(t.From, n.Status):
		from := make([]string, len(t.From))
		for i, s := range t.From {
			from[i] = string(s)
		}

		return Errorf(
			KindRefused,
			"%s is %s; %s takes nodes that are %s",
			n.Name,
			n.Status,
			t.Verb,
			strings.Join(from, " or "),
		).
			Do("%s", legal(n)).
			About(n.Name)
	case t.NeedsDiscover && n.State != Discovered:
		return Errorf(KindRefused, "%s is %s, and %s needs it Discovered", n.Name, n.State, t.Verb).
			Do("start its agent, or prepare it again: clusterctl discover %s", n.Addr).About(n.Name)
	case t.NeedsDiscover && len(n.Duplicates) > 0:
		return Errorf(
			KindRefused,
			"%s is claimed by several live hosts: %s",
			n.Name,
			strings.Join(append([]string{n.Addr}, n.Duplicates...), ", "),
		).
			Do("give each host a serial number of its own, and restart its agent").
			About(n.Name)
	}

	return nil
}

// legal is a sentence on what may be done with the node now.
func legal(n Node) string {
	var verbs []string
	for _, t := range Lifecycle {
		if slices.Contains(t.From, n.Status) {
			verbs = append(verbs, string(t.Verb))
		}
	}

	return "what is legal now: " + strings.Join(verbs, ", ")
}
