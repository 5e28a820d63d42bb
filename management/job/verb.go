// SPDX-License-Identifier: Apache-2.0

package job

import (
	"strings"

	"github.com/contiv/cluster/inventory"
)

// The files of a configuration repository.
const (
	PlaybookSite    = "site.yml"
	PlaybookCleanup = "cleanup.yml"
	PlaybookVerify  = "verify.yml"
	PlaybookClean   = "clean.yml"
	PlaybookUpgrade = "rolling-upgrade.yml"
)

// PlaybookDiscoverUndo and PlaybookErase are bundled playbooks that are never run from the configured
// folder. PlaybooksBundled takes the place of the digest of their folder: each
// instance runs its own copy.
const (
	PlaybookDiscoverUndo = "discover-undo.yml"
	PlaybookErase        = "erase.yml"
	PlaybooksBundled     = "bundled"
)

// Verb is a kind of job as a value: which playbooks run, which rules apply and
// how the job proceeds. Its row of the lifecycle table holds the rest: the
// targets and options of a request and the effect on the status of nodes.
//
// To add a verb, add a row to inventory.Lifecycle and a file that registers one value.
type Verb struct {
	Name inventory.Verb
	// Row is the verb's row of the lifecycle table. Register sets it.
	Row inventory.Transition
	// Steps are the kinds of step that the verb may have. Their executors are asked before a
	// job is accepted.
	Steps []StepKind
	// Playbooks are the files the verb may run. All must parse at acceptance.
	Playbooks []string
	// Optional are further files. Those that a folder has must parse.
	Optional []string
	// OnlyUncleaned: Optional are for targets that are Uncleaned, and matter only if there are any.
	OnlyUncleaned bool

	// Joins: the targets enter a group, so the group's needs must be met.
	Joins bool
	// Leaves: the targets leave service, so no dependent may be left behind.
	Leaves bool
	// Helps: a surviving node of every needed group that a target enters or
	// leaves is held as a helper.
	Helps bool
	// InstallsAgent: the job installs the agent on its hosts.
	InstallsAgent bool
	// RemovesAgent: the job removes the agent, so it never takes the manager's
	// own host.
	RemovesAgent bool
	// Cleans: the job cleans its targets of the configuration that they carry, with
	// the playbooks that configured them.
	Cleans bool
	// GroupAtClaim: a node enters its new group when the job claims it, not
	// only when the job succeeds.
	GroupAtClaim bool
	// RetryAs is the verb that brings a node that a failure has taken out of service
	// into the group of its target. Empty: the same verb.
	RetryAs inventory.Verb
	// GroupAfter returns the group of a node after success. nil: none.
	GroupAfter func(Job, inventory.Node) string

	// defaults fills in options the request left open. May be nil.
	defaults func(*Job)
	// defaultGroup: a request without a group gets the one the rules suggest.
	defaultGroup bool
	// result returns the result for a target, given that by the end of the job. May be nil.
	result func(Job, Target, TargetResult) TargetResult
	// Plan returns the next step of a running job.
	Plan func(*Planner) Step
	// Next describes, for a verb that changes no status, how a running job ends.
	Next string
}

// verbs holds the registered verbs by name.
var verbs = map[inventory.Verb]Verb{}

// Register adds a verb during the initialization of a package. It panics if
// the lifecycle table has no row for the verb.
func Register(v Verb) {
	row, ok := inventory.TransitionOf(v.Name)
	if !ok {
		panic("job: no row in inventory.Lifecycle for the verb " + string(v.Name))
	}
	v.Row = row
	verbs[v.Name] = v
}

// Verbs returns every verb, in the order of the lifecycle table.
func Verbs() []Verb {
	all := make([]Verb, 0, len(verbs))
	for _, row := range inventory.Lifecycle {
		if v, ok := verbs[row.Verb]; ok {
			all = append(all, v)
		}
	}

	return all
}

// VerbOf returns the verb of that name, or KindInvalid with the registered names.
func VerbOf(name inventory.Verb) (Verb, error) {
	if v, ok := verbs[name]; ok {
		return v, nil
	}

	var names []string
	for _, v := range Verbs() {
		names = append(names, string(v.Name))
	}

	return Verb{}, inventory.Errorf(inventory.KindInvalid, "there is no verb %q for a job", name).
		Do("use %s or %s", join(names[:len(names)-1]), names[len(names)-1])
}

// verb returns the value of a verb that an accepted job names. Acceptance has
// checked the name.
func (j Job) verb() Verb {
	v, _ := VerbOf(j.Verb)
	return v
}

// TakesAddrs reports whether the targets of the job are addresses, not nodes.
func (j Job) TakesAddrs() bool { return j.verb().Row.TakesAddrs }

// ChoosesGroup reports whether the rules suggest a group for a request without one.
func (v Verb) ChoosesGroup() bool { return v.defaultGroup }

// refuseField returns the error for a field the verb does not accept.
func (v Verb) refuseField(f inventory.Field) error {
	var owners []string
	for _, row := range inventory.Lifecycle {
		if row.Accepts(f) {
			owners = append(owners, string(row.Verb))
		}
	}

	remedy := strings.Join(owners, " and ")
	if f == inventory.FieldForce {
		remedy += ", and to forgetting a record without its agent"
	}
	return inventory.Errorf(inventory.KindInvalid, "%s does not accept %s", v.Name, f).Do("it belongs to %s", remedy)
}
