// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// inService describes a node that serves: whether it is outdated, and the result of its
// last verification.
func (e *nodeExplainer) inService() string {
	text := "it is in service; "
	if now := currency(e.Judgement); now != "" {
		text += now + "; "
	}

	v := e.Node.Verification

	switch {
	case v == nil:
		return text + "not verified since it was last configured"
	case v.Result == inventory.Clean:
		return text + fmt.Sprintf("verified clean %s ago", age(e.Now.Sub(v.Time)))
	}

	return text + fmt.Sprintf("%s (%s ago)", v.Describe(), age(e.Now.Sub(v.Time)))
}

// verification reports a node that differs from its configuration, and one about which
// the last verification could not tell.
func (e *nodeExplainer) verification() {
	n := e.Node

	v := n.Verification
	if v == nil || v.Result == inventory.Clean {
		return
	}
	message := "it differs from its configuration: " + v.Detail()
	remedy := "see the differences; if they are not wanted, configure it again"
	again, configure := e.again()
	actions := append([]inventory.Action{inventory.ShowDifference(n.Name)}, configure...)

	if len(e.Judgement.Undone) > 0 {
		remedy = "see the differences; " + again
	}

	if v.Result == inventory.Unverified {
		message = "the verification could not tell whether it differs from its configuration: " + v.Detail()
		remedy = "see what was found; once the cause is corrected, verify it again"
		actions = []inventory.Action{inventory.ShowDifference(n.Name), inventory.Submit(inventory.VerbVerify, n.Name)}
	}

	if v.ByGate() {
		message = "it does not serve as it should: " + v.Detail()
		remedy = "once the cause is corrected, verify it"
		actions = []inventory.Action{inventory.Submit(inventory.VerbVerify, n.Name)}
	}

	f := finding(AboutDrift, "%s", message).on(n.Name).since(v.Time).do("%s", remedy).with(actions...)
	f.Job = v.Job
	e.add(f)
}

// drifted reports the nodes that a verification found to differ.
func (e *jobExplainer) drifted() {
	const most = 8 // nodes with an action of their own

	var names []string
	for _, t := range e.Job.Targets {
		if v := e.Job.Outcomes[t.Name].Verdict; v != nil && v.Result == inventory.Drifted {
			names = append(names, t.Name)
		}
	}

	var actions []inventory.Action
	for _, name := range names[:min(len(names), most)] {
		actions = append(actions, inventory.ShowDifference(name))
	}

	e.add(finding(AboutDrift, "not as configured: %s", job.ShortList(names)).of(e.Job).on(names...).
		do("see the differences; if they are not wanted, configure the nodes again").
		with(append(actions, inventory.Submit(inventory.VerbApply, names...))...))
}

// age returns a duration in its largest unit, such as 5m or 3d.
func age(d time.Duration) string {
	const day = 24 * time.Hour

	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(d, 0)/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	}

	return fmt.Sprintf("%dd", d/day)
}
