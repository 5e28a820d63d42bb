// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/record"
)

// Site is what the configuration says about inspections.
type Site struct {
	Rules  []Rule
	Groups inventory.Groups
	// ClassBlocks: a node that does not fit its class is not provided.
	ClassBlocks bool
}

// Verdict is what follows from an inspection of a node.
type Verdict struct {
	Node    inventory.Node
	Entries []inventory.HistoryEntry
	Notes   []string // for the output of the job
	Failure error    // why the inspection fails; nil: it does not
}

// What begins the sources of the alerts of rules and classes.
const (
	sourceRule  = "rule "
	sourceClass = "class "
)

// clock is any time, for the check of an alert.
var clock = time.Unix(0, 0)

// alert returns the alert of a rule that fails nodes.
func (r Rule) alert(now time.Time) (inventory.Alert, error) {
	return inventory.NewAlert(
		r.Fail, sourceRule+r.Name, []inventory.Effect{inventory.BlocksProvide}, time.Time{}, access.Manager, now,
	)
}

// Judge applies the rules in their order to a node with the facts of its newest inspection, and compares it with its
// classes. Later rules see the labels of earlier ones, and classes see all.
func (s Site) Judge(r record.Reader, n inventory.Node, found facts.Facts, job string, now time.Time) Verdict {
	j := judge{
		Verdict: Verdict{Node: n},
		trigger: inventory.Trigger{Actor: access.Manager, Job: job, Time: now},
	}

	for _, rule := range s.Rules {
		if match, err := parse(rule.When, s.Groups); err == nil && match.Matches(&j.Node) {
			j.apply(rule)
		}
	}

	for _, c := range Compare(r, j.Node, found) {
		j.compared(c, s.ClassBlocks)
	}

	j.alert()

	if len(j.failures) > 0 {
		j.Failure = inventory.Errorf(inventory.KindRefused, "%s", strings.Join(j.failures, "; ")).
			Do("mend it and inspect it again").About(n.Name)
	}

	return j.Verdict
}

// judge makes a verdict.
type judge struct {
	Verdict

	trigger  inventory.Trigger
	alerts   []inventory.Alert // that the node should have
	failures []string
}

func (j *judge) apply(r Rule) {
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		next, entry, changed, err := j.Node.Rule(r.Name, key, r.Labels[key], j.trigger)
		if err != nil {
			j.failures = append(j.failures, fmt.Sprintf("the rule %s: %v", r.Name, err))
			return
		}

		if changed {
			j.Node, j.Entries = next, append(j.Entries, entry)
			j.Notes = append(j.Notes, entry.Reason)
		}
	}

	if r.Fail == "" {
		return
	}

	j.failures = append(j.failures, fmt.Sprintf("the rule %s fails it: %s", r.Name, r.Fail))

	if a, err := r.alert(j.trigger.Time); err == nil {
		j.alerts = append(j.alerts, a)
	}
}

// maxReason bounds the differences in an alert, in bytes.
const maxReason = 280

// compared notes the differences from a class, and raises an alert with them.
func (j *judge) compared(c facts.Comparison, blocks bool) {
	if len(c.Differences) == 0 {
		return
	}

	for _, d := range c.Differences {
		j.Notes = append(j.Notes, fmt.Sprintf("not as the class %s: %s", c.Class, d))
	}

	var effects []inventory.Effect
	if blocks {
		effects = append(effects, inventory.BlocksProvide)
	}

	// Texts of a host may have anything.
	reason := strings.Join(strings.Fields(inventory.Printable(strings.Join(c.Differences, "; "))), " ")

	a, err := inventory.NewAlert(inventory.Shorten(reason, maxReason), sourceClass+c.Class, effects, time.Time{},
		access.Manager, j.trigger.Time)
	if err != nil {
		j.failures = append(j.failures, fmt.Sprintf("the class %s: %v", c.Class, err))
		return
	}

	j.alerts = append(j.alerts, a)
}

// ours reports whether an inspection has raised the alert.
func ours(a inventory.Alert) bool {
	return a.Actor == access.Manager &&
		(strings.HasPrefix(a.Source, sourceRule) || strings.HasPrefix(a.Source, sourceClass))
}

// alert ends the alerts of earlier inspections that no longer hold, and raises those that do.
func (j *judge) alert() {
	for _, a := range slices.Clone(j.Node.Alerts) {
		holds := slices.ContainsFunc(j.alerts, func(b inventory.Alert) bool { return a.ID == b.ID })
		if holds || !ours(a) {
			continue
		}

		t := j.trigger
		t.Reason = "the newest inspection fits"

		if next, entry, changed := j.Node.EndAlert(a.ID, t); changed {
			j.Node, j.Entries = next, append(j.Entries, entry)
		}
	}

	for _, a := range j.alerts {
		next, entry, changed, err := j.Node.Alert(a, j.trigger)
		if err != nil {
			j.failures = append(j.failures, fmt.Sprintf("%s: %v", a.Source, err))
			continue
		}

		if changed {
			j.Node, j.Entries = next, append(j.Entries, entry)
		}
	}
}
