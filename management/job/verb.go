// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// The files of a configuration repository.
const (
	PlaybookSite    = "site.yml"
	PlaybookCleanup = "cleanup.yml"
	PlaybookVerify  = "verify.yml"
	PlaybookUpgrade = "rolling-upgrade.yml"
)

// Verb is a kind of job as a value: what a request may contain, which playbooks
// run, which rules apply and how the job proceeds. Adding a verb means adding
// one value to verbs and one row to inventory.Lifecycle.
type Verb struct {
	Name inventory.Verb
	// Row is the verb's row of the lifecycle table, or nil if the job changes
	// the status of no node.
	Row *inventory.Transition
	// TakesAddrs: the request names addresses of hosts instead of nodes.
	TakesAddrs bool
	// Options are the optional fields of a request that the verb understands.
	Options []Option
	// Playbooks are the files the verb may run. All must parse at acceptance.
	Playbooks []string

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
	// GroupAtClaim: a node enters its new group when the job claims it, not
	// only when the job succeeds.
	GroupAtClaim bool

	// groupAfter returns the group of a node after success. nil: none.
	groupAfter func(Job, inventory.Node) string
	// defaults fills in options the request left open. May be nil.
	defaults func(*Job)
	// defaultGroup: a request without a group gets the one the rules suggest.
	defaultGroup bool
	// plan returns the next step of a running job.
	plan func(*planner) Step
	// Next describes, for a verb without a row, how a running job ends.
	Next string
}

// verbs is the table of all verbs, in the order of the documentation.
var verbs []Verb

// The table refers to plans that refer to the table, hence init.
func init() {
	verbs = []Verb{discover, commission, update, maintenance, decommission, clearQuarantine, forget}
	for i := range verbs {
		if row, ok := inventory.TransitionOf(verbs[i].Name); ok {
			verbs[i].Row = &row
		}
	}
}

// Verbs returns every verb, in the order of the documentation.
func Verbs() []Verb { return slices.Clone(verbs) }

// VerbOf returns the verb of that name, or KindInvalid with the names there are.
func VerbOf(name inventory.Verb) (Verb, error) {
	for _, v := range verbs {
		if v.Name == name {
			return v, nil
		}
	}

	names := make([]string, len(verbs))
	for i, v := range verbs {
		names[i] = string(v.Name)
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
func (j Job) TakesAddrs() bool { return j.verb().TakesAddrs }

// Option is an optional field of a request.
type Option string

// The options.
const (
	OptionGroup     Option = "a host group"
	OptionOnFailure Option = "on_failure"
	OptionForce     Option = "force"
)

// takes reports whether the verb understands the option.
func (v Verb) takes(o Option) bool { return slices.Contains(v.Options, o) }

// refuseOption returns the error for an option the verb does not understand.
func (v Verb) refuseOption(o Option) error {
	var owners []string
	for _, other := range verbs {
		if other.takes(o) {
			owners = append(owners, string(other.Name))
		}
	}

	remedy := strings.Join(owners, " and ")
	if o == OptionForce {
		remedy += ", and to forgetting a record without its agent"
	}

	return inventory.Errorf(inventory.KindInvalid, "%s makes no sense for %s", o, v.Name).Do("it belongs to %s", remedy)
}
