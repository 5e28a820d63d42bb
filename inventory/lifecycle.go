// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"
)

// Status is a step in the lifecycle of a node. Operators and jobs set it. The
// monitor sets it only once, for a node whose agent speaks for the first time:
// Unallocated or Manageable, as the site has it, or Quarantined if there is a tombstone.
type Status string

// The statuses.
const (
	Enrolled        Status = "Enrolled"        // registered from a list of machines; credentials not verified yet
	Verifying       Status = "Verifying"       // its credentials (ssh, BMC) are being checked
	Manageable      Status = "Manageable"      // its credentials work; not offered for use yet
	Inspecting      Status = "Inspecting"      // hardware facts are being collected
	Installing      Status = "Installing"      // an operating system is being installed
	Cleaning        Status = "Cleaning"        // being cleaned before it is offered for use
	Unallocated     Status = "Unallocated"     // ready to be commissioned
	Provisioning    Status = "Provisioning"    // being configured by a commission
	Allocated       Status = "Allocated"       // commissioned, in service
	Maintenance     Status = "Maintenance"     // being updated, verified, or configured or upgraded in place
	Decommissioning Status = "Decommissioning" // being decommissioned, cleared or forgotten
	Decommissioned  Status = "Decommissioned"  // configuration removed; may be commissioned again
	Quarantined     Status = "Quarantined"     // possibly unclean, or another host under this name
)

// AsBefore is no status of a node: the success of a verb that gives nodes back the status that they had before.
const AsBefore Status = "as before"

// Statuses lists every status with its meaning, in the order of the lifecycle.
var Statuses = []struct {
	Status     Status
	Meaning    string
	InProgress bool // a job holds every node of this status
}{
	{Enrolled, "registered from a list of machines; its credentials are not verified yet", false},
	{Verifying, "credentials (ssh, BMC) are being checked", true},
	{Manageable, "credentials work; not yet offered for use", false},
	{Inspecting, "hardware facts are being collected", true},
	{Installing, "an operating system is being installed", true},
	{Cleaning, "residues of earlier use are being removed before it is offered", true},
	{Unallocated, "ready to be commissioned", false},
	{Provisioning, "being configured by a commission", true},
	{Allocated, "commissioned, in service", false},
	{Maintenance, "being updated (set up anew), verified, or configured or upgraded in place", true},
	{Decommissioning, "being decommissioned, cleared or forgotten", true},
	{Decommissioned, "configuration removed; may be commissioned again", false},
	{Quarantined, "possibly unclean, or another host under this name; fenced until an operator clears it", false},
}

// settled returns the statuses in which no job holds a node.
func settled() []Status {
	var all []Status
	for _, row := range Statuses {
		if !row.InProgress {
			all = append(all, row.Status)
		}
	}

	return all
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
	VerbRegister     Verb = "register"     // an operator registered the machine, or changed what is registered of it
	VerbReturned     Verb = "returned"     // a policy decided on a node that is seen again
	VerbQuarantine   Verb = "quarantine"   // a policy fenced a node: another host answers under its name
	VerbConflict     Verb = "conflict"     // the addresses at which observers see the node began or ceased to differ
	VerbTrust        Verb = "trust"        // an operator recorded another ssh host key
	VerbAlert        Verb = "alert"        // an alert on the node was added, changed or ended
	VerbDiscover     Verb = "discover"     // prepare hosts, by address, for discovery
	VerbManage       Verb = "manage"       // check the credentials of a node: its ssh login and its BMC
	VerbInspect      Verb = "inspect"      // find the hardware facts of a node
	VerbInstall      Verb = "install"      // install an operating system on a node
	VerbProvide      Verb = "provide"      // clean a node, and offer it for use
	VerbCommission   Verb = "commission"   // configure a node and bring it into service
	VerbUpdate       Verb = "update"       // move a node to another group, or set it up anew
	VerbApply        Verb = "apply"        // configure a node again in place
	VerbReapply      Verb = "reapply"      // clean a node and configure it again in its group
	VerbMaintenance  Verb = "maintenance"  // upgrade a node in place
	VerbVerify       Verb = "verify"       // compare a node with the configuration that it should carry
	VerbDecommission Verb = "decommission" // take a node out of service and clean it, best effort
	VerbPower        Verb = "power"        // switch a node, or set what it boots from, by its BMC
	VerbClear        Verb = "clear"        // clean a quarantined node and trust it again
	VerbForget       Verb = "forget"       // remove the record of a node, leaving a tombstone
)

// Transition is one row of the lifecycle table: a verb that a job carries out, with its request and its effect on
// the status of nodes.
type Transition struct {
	Verb Verb

	// From lists the legal statuses before. It is empty, like all statuses of the row, if the verb changes the status
	// of no node.
	From []Status
	// FromResidue lists the statuses that are legal too if the node carries residue.
	FromResidue []Status

	Through Status // the in-progress status while the job runs
	Success Status // the status after success, or AsBefore; empty: the record is removed
	// Failed is the status after a failure if the cleanup succeeded or none was
	// needed. Empty restores the status before the job.
	Failed Status
	// Dirty is the status after a failure if the cleanup failed or was skipped. It
	// equals Failed for verbs without cleanup.
	Dirty         Status
	NeedsDiscover bool // legal only for a Discovered node
	// RefusedBy is the effect of an alert that refuses the verb on its node; empty: none does.
	RefusedBy    Effect
	KeepsService bool // the node serves while the job runs
	// Verifies: the job compares its nodes with their configuration, by the playbooks that configured them. It leaves
	// them as they were, with a verdict.
	Verifies bool
	// CleansHost: the job runs clean.yml on a node that is Uncleaned. Only such a verb offers it for use again.
	CleansHost bool
	// Replaces: the job replaces all that is on the root disk of a node. No way from one status to another has it.
	Replaces bool
	// Looks: the job changes nothing on the hosts, so that no maintenance window holds it. All verifications do.
	Looks bool

	// Undo is the verb that takes it back, given the group and the playbooks before; empty: none does.
	Undo Verb

	// All is the status of the nodes that are meant by all nodes: those for which the verb is the next step. By name,
	// the verb may take others. Empty: all is never meant.
	All Status

	// TakesAddrs: a request names addresses of hosts instead of nodes.
	TakesAddrs bool
	// Options are the optional fields that a request may set, besides those of every request.
	Options []Option

	Meaning string // describes the verb, for help and documentation
	Failure string // describes the failure path, for explanations and documentation
}

// Field is the name of an optional field of a request.
type Field string

// The optional fields that are no options of the job.
const (
	FieldGroup     Field = "group"
	FieldExtraVars Field = "extra_vars"
	FieldHostKeys  Field = "host_keys"
)

// The options of verbs that can take their nodes batch by batch.
var (
	optionSerial = Option{
		FieldSerial,
		"the size of a batch: a number of nodes such as 2, or a share such as 25% (default: all nodes at once)",
	}
	optionMaxFailures = Option{
		FieldMaxFailures, "the number of failed nodes with which the next batch still begins (default: 0)",
	}
)

// optionPlaybooks is the option of verbs that clean nodes.
var optionPlaybooks = Option{
	FieldPlaybooks,
	"the playbooks of the cleanup: current for the configured folder (default: those that configured each node)",
}

// optionsInPlace are the options of verbs that leave a node in service, whatever happens: only there may a run leave
// out changes.
var optionsInPlace = []Option{
	{FieldExtraVars, "variables for this run only"},
	optionSerial, optionMaxFailures,
	{FieldCheck, "change nothing, and report what would change"},
	{FieldTags, "run only the tasks with one of these tags; the applied configuration is unknown then"},
	{FieldSkipTags, "leave out the tasks with one of these tags; the applied configuration is unknown then"},
}

// Option is an optional field of a request that a verb accepts.
type Option struct {
	Field   Field
	Meaning string // for help and documentation
}

// Lifecycle is the table of all verbs that jobs carry out. Nothing else decides
// on the legality of a verb. The commands of clusterctl, the documentation and
// the tests are derived from it.
var Lifecycle = []Transition{
	{
		Verb: VerbDiscover, TakesAddrs: true,
		Options: []Option{
			{FieldExtraVars, "variables for the preparation"},
			{FieldTakeOver, "also take hosts that belong to another manager; needs a reason"},
			{FieldHostKeys, "the ssh host keys of addresses, so that the first contact is verified and not trusted"},
		},
		Meaning: "prepare hosts by address, so that they appear as nodes",
		Failure: "the hosts that appear become nodes; the others are restored to their state before the job",
	},
	{
		Verb: VerbManage, From: []Status{Enrolled, Unallocated, Decommissioned}, Through: Verifying,
		Success: Manageable, Looks: true, All: Enrolled,
		Options: []Option{
			{FieldForce, "ask BMCs again that have refused the login before; needs a reason"},
		},
		Meaning: "check the credentials of nodes: the ssh login with become, the login at the BMC and the power state",
		Failure: "the status before, with `last_error` set: all that failed on the node, each with its remedy",
	},
	{
		Verb: VerbInspect, From: []Status{Manageable}, Through: Inspecting,
		Success: Manageable, Failed: Manageable, Dirty: Manageable, Looks: true, All: Manageable,
		Options: []Option{
			{FieldConcurrency, "the number of nodes that are inspected at a time (default: 20)"},
			{FieldBoot, "restart the machines, and boot them from the network for it: they need no system"},
		},
		Meaning: "find the hardware facts of nodes over ssh and by their BMCs, and keep them as a snapshot",
		Failure: "Manageable, with `last_error` set; what was found of the other nodes is kept",
	},
	{
		Verb:     VerbInstall,
		From:     []Status{Manageable, Quarantined},
		Through:  Installing,
		Success:  Manageable,
		Failed:   Manageable,
		Dirty:    Quarantined,
		Replaces: true,
		Options: []Option{
			{FieldImage, "the image (default: that of the registration of each node)"},
			{FieldConcurrency, "the number of nodes that are installed at a time (default: 20)"},
			{FieldExtraVars, "variables for the agent's part of site.yml"},
		},
		Meaning: "boot nodes from the network, write an image to their disk, and bring their agents up",
		Failure: "Quarantined, with the reason in `last_error`; a node whose disk was not touched, or whose system" +
			" runs without its agent, is Manageable",
	},
	{
		Verb: VerbProvide, From: []Status{Manageable}, Through: Cleaning, Success: Unallocated,
		Failed: Manageable, Dirty: Quarantined, CleansHost: true, RefusedBy: BlocksProvide, All: Manageable,
		Options: []Option{
			{FieldExtraVars, "variables for the cleaning"},
			{FieldErase, "erase the disks that the running system does not use: metadata or full"},
			optionPlaybooks,
		},
		Meaning: "clean nodes and offer them for use",
		Failure: "Quarantined, with what is left in `last_error`; a host that ssh never reached is as it was, and" +
			" stays Manageable",
	},
	{
		Verb: VerbCommission, From: []Status{Unallocated, Decommissioned}, Through: Provisioning, Success: Allocated,
		Failed: Unallocated, Dirty: Quarantined, NeedsDiscover: true, RefusedBy: BlocksCommission,
		Undo: VerbDecommission,
		Options: []Option{
			{FieldGroup, "the host group to join, e.g. service-master"},
			{FieldExtraVars, "variables for this commission only"},
			{
				FieldOnFailure,
				"the scope of the cleanup if a node fails: batch (all nodes of the request, the default) or failed",
			},
			optionPlaybooks,
		},
		Meaning: "configure nodes and bring them into service",
		Failure: "the nodes of the batch (with `on_failure: failed` only the failed ones) are cleaned up and become" +
			" Unallocated, or Quarantined if the cleanup fails too; a host that ssh never reached is as it was," +
			" and becomes Unallocated without a cleanup",
	},
	{
		Verb: VerbUpdate, From: []Status{Allocated}, Through: Maintenance, Success: Allocated,
		Failed: Unallocated, Dirty: Quarantined, NeedsDiscover: true,
		Undo: VerbUpdate,
		Options: []Option{
			{FieldGroup, "the host group to move to (default: the current group)"},
			{FieldExtraVars, "variables for this update only"},
			optionSerial, optionMaxFailures,
			optionPlaybooks,
		},
		Meaning: "take nodes out of service to move them to another group, or to set them up anew",
		Failure: "nodes with a begun cleanup are cleaned up and become Unallocated, or Quarantined if that fails;" +
			" the others stay Allocated",
	},
	{
		Verb: VerbApply, From: []Status{Allocated}, Through: Maintenance, Success: Allocated,
		Failed: Allocated, Dirty: Allocated, NeedsDiscover: true, KeepsService: true,
		Undo:    VerbApply,
		Options: optionsInPlace,
		Meaning: "configure nodes again in place, without a cleanup first",
		Failure: "Allocated, with `last_error` set and the applied configuration unknown; nothing is cleaned up",
	},
	{
		Verb: VerbReapply, From: []Status{Allocated}, Through: Maintenance, Success: Allocated,
		Failed: Allocated, Dirty: Allocated, NeedsDiscover: true,
		Undo: VerbReapply,
		Options: []Option{
			{FieldExtraVars, "variables for this run only"},
			optionSerial, optionMaxFailures,
			optionPlaybooks,
		},
		Meaning: "clean nodes and configure them again in their own group, with the playbooks and variables of now",
		Failure: "Allocated, with `last_error` set; the applied configuration of nodes with a begun cleanup is" +
			" unknown, and they may not serve until a repetition succeeds",
	},
	{
		Verb: VerbMaintenance, From: []Status{Allocated}, Through: Maintenance, Success: Allocated,
		Failed: Allocated, Dirty: Allocated, NeedsDiscover: true, KeepsService: true,
		Undo:    VerbApply,
		Options: optionsInPlace,
		Meaning: "upgrade nodes in place",
		Failure: "Allocated, with `last_error` set and the applied configuration unknown; nothing is cleaned up",
	},
	{
		Verb: VerbVerify, From: []Status{Allocated}, Through: Maintenance, Success: Allocated,
		Failed: Allocated, Dirty: Allocated, NeedsDiscover: true, KeepsService: true, Verifies: true, Looks: true,
		Options: []Option{
			{FieldExtraVars, "variables for this verification only"},
			optionSerial,
			{
				FieldMaxFailures,
				"the number of nodes without a verdict with which the next batch still begins (default: 0)",
			},
			{FieldPlaybooks, "the playbooks to compare with: current for the configured folder (default: those that" +
				" configured each node)"},
			{FieldStrict, "take a node with tasks that check mode cannot judge for unknown, not for clean"},
		},
		Meaning: "compare nodes in service with the configuration that they should carry, and change nothing",
		Failure: "Allocated, as before; the verdict is unknown",
	},
	{
		Verb: VerbDecommission, From: []Status{Allocated, Quarantined}, Through: Decommissioning,
		Success: Decommissioned, Failed: Decommissioned, Dirty: Decommissioned,
		FromResidue: []Status{Unallocated, Decommissioned},
		Undo:        VerbCommission,
		Options: []Option{
			{FieldExtraVars, "variables for the cleanup"}, optionSerial, optionMaxFailures, optionPlaybooks,
		},
		Meaning: "take nodes out of service and clean them, or clean them again of their residue",
		Failure: "Decommissioned nevertheless; configuration left on the node is recorded as `residue`",
	},
	{
		Verb: VerbClear, From: []Status{Quarantined}, Through: Decommissioning, Success: Unallocated,
		Failed: Quarantined, Dirty: Quarantined, CleansHost: true,
		Options: []Option{
			{FieldExtraVars, "variables for the cleanup"},
			optionPlaybooks,
			{FieldForce, "skip the cleanup, for hosts that you have cleaned yourself; needs a reason"},
		},
		Meaning: "clean quarantined nodes and make them available again; after a failed cleaning also with clean.yml",
		Failure: "Quarantined",
	},
	{
		Verb: VerbPower, From: settled(), Through: Maintenance, Success: AsBefore, RefusedBy: BlocksPower,
		Options: []Option{
			{
				FieldExtraVars,
				"to: on, off, cycle, reset or soft; boot: pxe, disk, cdrom, setup or default, with mode: bios" +
					" or uefi, and lasting: true for every boot from now on; rotate_password: true for a new" +
					" password of the BMC; ramp: the nodes a minute, such as 20/min;" +
					" per_rack: the nodes of a rack at a time",
			},
			optionSerial,
			optionMaxFailures,
			{FieldForce, "switch nodes in service too; needs a reason"},
		},
		Meaning: "switch nodes on or off by their BMCs, or set what they boot from",
		Failure: "the status before; the job has the reason, and `power status` what a BMC said last",
	},
	{
		// Removing the record alone takes no job, see Node.CheckForget.
		Verb: VerbForget, From: []Status{Enrolled, Manageable, Unallocated, Decommissioned, Quarantined},
		Through: Decommissioning, NeedsDiscover: true,
		Options: []Option{{FieldExtraVars, "variables for the removal of the agent"}},
		Meaning: "remove the records of nodes, optionally with the agents of their hosts",
		Failure: "back to the status before",
	},
}

// ChangesStatus reports whether the verb moves nodes through the lifecycle.
func (t Transition) ChangesStatus() bool { return t.Through != "" }

// Verifies reports whether a job of the verb changes nothing, and gives its nodes a verdict.
func (v Verb) Verifies() bool {
	row, _ := TransitionOf(v)
	return row.Verifies
}

// EndsService reports whether the verb takes nodes out of service, for good or until it succeeds.
func (t Transition) EndsService() bool { return slices.Contains(t.From, Allocated) && !t.KeepsService }

// Interrupts reports whether the verb takes nodes out of service until it
// succeeds.
func (t Transition) Interrupts() bool { return t.EndsService() && t.Success == Allocated }

// After returns the status after success of a node with the status before; empty: it is removed.
func (t Transition) After(before Status) Status {
	if t.Success == AsBefore {
		return before
	}
	return t.Success
}

// Accepts reports whether a request may set the field.
func (t Transition) Accepts(f Field) bool {
	return slices.ContainsFunc(t.Options, func(o Option) bool { return o.Field == f }) ||
		slices.ContainsFunc(Options, func(o JobOption) bool { return o.Field == f && o.Takes != nil && o.Takes(t) })
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
		return n.held()
	case !t.Takes(n):
		// Dead ends do not exist: every status has a legal verb to suggest.
		return Errorf(KindRefused, "%s is %s; %s takes nodes that are %s",
			n.Name, n.Status, t.Verb, joinWords(t.From, " or ")).
			Do("legal now: %s", joinWords(legalVerbs(n), ", ")).
			About(n.Name)
	case n.Uncleaned && t.offers() && !t.CleansHost:
		return Errorf(KindRefused, "a cleaning failed on %s and none succeeded since, so %s does not take it",
			n.Name, t.Verb).
			Do("make it Manageable, then provide it, which cleans it").
			With(Submit(VerbManage, n.Name)).
			About(n.Name)
	case n.Alerted(t.RefusedBy) != nil:
		return t.refusedBy(*n.Alerted(t.RefusedBy), n)
	case t.NeedsDiscover && n.State != Discovered:
		if t.Success == "" && n.State == Disappeared {
			return Errorf(KindRefused, "%s is %s, and %s needs it Discovered", n.Name, n.State, t.Verb).
				Do("start its agent, or forget the record alone if the host is gone").
				With(ForgetNodes(n.Name)).
				About(n.Name)
		}

		if n.Addr == "" {
			return Errorf(KindRefused, "%s is %s, and %s needs it Discovered", n.Name, n.State, t.Verb).
				Do("import its addr for ssh, then prepare it").
				About(n.Name)
		}

		return Errorf(KindRefused, "%s is %s, and %s needs it Discovered", n.Name, n.State, t.Verb).
			Do("start its agent, or prepare it again").
			With(Discover(n.Addr)).
			About(n.Name)
	case len(n.Duplicates) > 0:
		// Ansible would reach only one of the hosts, and not reliably the same one.
		hosts := append([]string{n.Addr}, n.Duplicates...)

		return Errorf(KindRefused, "%s is claimed by several live hosts: %s%s",
			n.Name, strings.Join(hosts, ", "), n.Conflict()).
			Do("give each host a serial number of its own, and restart its agent; or, if the host at %s is this node, "+
				"trust its ssh host key and set the other claims aside, with a reason", n.Addr).
			About(n.Name)
	case t.NeedsDiscover && n.AnnouncedFrom != "" && len(n.HostKeys) == 0:
		// Any member of the gossip could have the manager configure any host.
		return Errorf(
			KindRefused,
			"%s is announced at %s by a member at %s, and no ssh host key shows that it is there",
			n.Name,
			n.Addr,
			n.AnnouncedFrom,
		).
			Do("make sure that the host at %s is this node, then trust its key", n.Addr).
			With(TrustHostKey(n.Name)).
			About(n.Name)
	}

	return nil
}

// Takes reports whether the verb is legal from the status of n.
func (t Transition) Takes(n Node) bool {
	return slices.Contains(t.From, n.Status) || len(n.Residue) > 0 && slices.Contains(t.FromResidue, n.Status)
}

// offers reports whether an end of the verb offers the node for use, or has it in service.
func (t Transition) offers() bool {
	return slices.ContainsFunc([]Status{t.Success, t.Failed, t.Dirty}, func(s Status) bool {
		return s == Unallocated || s == Allocated
	})
}

// legalVerbs returns the verbs that are legal from the status of n.
func legalVerbs(n Node) []Verb {
	var verbs []Verb
	for _, t := range Lifecycle {
		// What leads to no other status is no way out of this one, and nobody is told to lose data.
		if t.Takes(n) && t.Success != AsBefore && !t.Replaces {
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
