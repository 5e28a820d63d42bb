// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/desired"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// Desired has the desired configurations of nodes. It does not block.
type Desired interface {
	Of(v *state.View) *desired.Configurations
}

// VariableHistory reads the history of variables.
type VariableHistory interface {
	// VarsHistory returns the recorded changes of a scope, oldest first.
	VarsHistory(ctx context.Context, s state.Scope) ([]variable.Change, error)
}

// changesFor returns the recorded changes of the variables of a node, if one of them is
// why it is outdated.
func (e *Explainer) changesFor(
	ctx context.Context, j desired.Judgement, n inventory.Node,
) (map[state.Scope][]variable.Change, error) {
	if !slices.Contains(j.Differs, inventory.PartVariables) {
		return nil, nil
	}

	changes := map[state.Scope][]variable.Change{}

	for _, scope := range scopesOf(n) {
		list, err := e.history.VarsHistory(ctx, scope)
		if err != nil {
			return nil, err
		}
		changes[scope] = list
	}

	return changes, nil
}

// scopesOf returns the scopes of the node's variables.
func scopesOf(n inventory.Node) []state.Scope {
	return []state.Scope{state.ScopeGlobal, state.ScopeGroup(n.Group), state.ScopeNode(n.Name)}
}

// outdated reports a node with another desired configuration than the applied one.
func (e *nodeExplainer) outdated() {
	n := e.Node
	if !e.Judgement.Outdated {
		return
	}

	var (
		reasons []string
		since   time.Time
	)

	add := func(text string, at time.Time) {
		reasons = append(reasons, text)

		if !at.IsZero() && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}

	for _, part := range e.Judgement.Differs {
		switch part {
		case inventory.PartPlaybooks:
			add(e.changedPlaybooks())
		case inventory.PartVariables:
			add(e.changedVariables())
		case inventory.PartTags:
			add(fmt.Sprintf("the tags of group %s have changed: %s now, %s then",
				n.Group, cmp.Or(e.Judgement.Desired.Tags, "all tasks"), cmp.Or(n.Configured.Tags, "all tasks")),
				time.Time{})
		case inventory.PartMasters:
			add(e.changedMasters(), time.Time{})
		default:
			add(fmt.Sprintf("its %s has changed", part), time.Time{})
		}
	}

	remedy, actions := e.again()
	f := finding(AboutOutdated, "it is outdated: %s", strings.Join(reasons, "; ")).on(n.Name).since(since).
		do("%s", remedy).with(actions...)
	f.Job = n.Applied
	e.add(f)
}

// again returns how to configure the node again. What only a request had set, such as the version
// of an upgrade, is kept: it is set for the node first.
func (e *nodeExplainer) again() (remedy string, actions []inventory.Action) {
	apply := inventory.Submit(inventory.VerbApply, e.Node.Name)

	undone, edit := e.undone()
	if len(undone) == 0 && edit == "" {
		return "configure it again", []inventory.Action{apply}
	}
	remedy, actions = e.keep(undone)

	// The apply is no action before somebody has edited the file: it would take the value back.
	if edit != "" {
		return strings.Join(nonEmpty(edit, remedy, "then configure it again"), "; "), actions
	}

	// With the values set, nothing else may be left to apply.
	set := actions[0].Name == inventory.ActionSetVariable
	if set && (len(e.Judgement.Differs) > 1 || e.changedSince() || len(undone) < len(e.Judgement.Undone)) {
		remedy += "; then configure it again"
		actions = append(actions, apply)
	}

	return remedy, actions
}

// undone returns the variables of Judgement.Undone that a variable of the node keeps, and how to keep those that
// host_vars of the playbooks sets to another value.
func (e *nodeExplainer) undone() (names []string, edit string) {
	var inFolder, files []string

	for _, name := range e.Judgement.Undone {
		own, isSet := e.HostVars[name]
		if !isSet {
			names = append(names, name)
			continue
		}

		inFolder = append(inFolder, name)

		if !slices.Contains(files, own.File) {
			files = append(files, own.File)
		}
	}

	if len(inFolder) > 0 {
		edit = fmt.Sprintf("keep %s by setting it in %s of the playbooks: host_vars wins over a variable of the node",
			job.ShortList(inFolder), job.ShortList(files))
	}

	return names, edit
}

// keep returns how to keep variables that only a request had set, by setting them for the node.
func (e *nodeExplainer) keep(undone []string) (remedy string, actions []inventory.Action) {
	if len(undone) == 0 {
		return "", nil
	}

	for _, name := range undone {
		value, err := json.Marshal(e.Request[name])
		if e.Request[name] == nil || err != nil { // a secret, or no longer kept
			return fmt.Sprintf("to keep %s, set it for the node: the next apply takes it back", job.ShortList(undone)),
				[]inventory.Action{inventory.ShowJob(e.Node.Applied)}
		}

		actions = append(actions, inventory.SetVariable(e.Node.Name, name, string(value)))
	}

	remedy = fmt.Sprintf("keep %s by setting it for the node: an apply alone takes it back", job.ShortList(undone))

	return remedy, actions
}

// changedMasters describes other masters than those with which the node was configured.
func (e *nodeExplainer) changedMasters() string {
	const variables = "variables of the masters have changed"

	nodes, vars := e.Judgement.Desired.MastersDiffer(e.Node.Configured.Configuration)
	if !nodes {
		return variables
	}

	text := e.otherMasters()
	if vars {
		text += "; " + variables
	}
	return text
}

// otherMasters describes masters that came, left, or have another address.
func (e *nodeExplainer) otherMasters() string {
	then, now := e.Node.Configured.MasterNames, e.Masters
	if then == nil {
		return "the masters have changed"
	}

	without := func(names, others []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
	}

	var parts []string
	if came := without(now, then); len(came) > 0 {
		parts = append(parts, "with "+job.ShortList(came))
	}

	if left := without(then, now); len(left) > 0 {
		parts = append(parts, "without "+job.ShortList(left))
	}

	if len(parts) == 0 {
		return "the address or the group of a master has changed"
	}

	return "the masters have changed: " + strings.Join(parts, ", ")
}

// changedPlaybooks describes other playbooks than those that were applied.
func (e *nodeExplainer) changedPlaybooks() (string, time.Time) {
	now := e.Playbooks

	text := "the playbooks are others than those that configured it"
	if now.Since.After(e.Node.Configured.Time) {
		return text + ", since " + stamp(now.Since), now.Since
	}
	return text, time.Time{}
}

// changedVariables describes other variables than those that were applied.
func (e *nodeExplainer) changedVariables() (string, time.Time) {
	from := e.pinned()

	var (
		parts []string
		since time.Time
	)

	for _, scope := range scopesOf(e.Node) {
		names := map[string]bool{}

		for _, c := range e.Changes[scope] {
			if !c.Time.After(from) {
				continue
			}

			if since.IsZero() || c.Time.Before(since) {
				since = c.Time
			}

			for _, vars := range []map[string]any{c.Before, c.After} {
				for name := range vars {
					names[name] = true
				}
			}
		}

		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%s (%s)", job.ShortList(slices.Sorted(maps.Keys(names))), scope))
		}
	}

	text := "its variables are others than those that configured it"

	switch {
	case len(parts) > 0:
		text = "variables have changed: " + strings.Join(parts, ", ") + ", since " + stamp(since)
	case len(e.Judgement.Undone) == 0:
		// Variables of the configuration file have no history, and histories are bounded.
		text += ", and no change of them is recorded since " + stamp(from)
	}

	if len(e.Judgement.Undone) > 0 {
		text += fmt.Sprintf("; only the request of job %s had set %s", e.Node.Applied,
			job.ShortList(e.Judgement.Undone))
	}

	return text, since
}

// pinned returns when the variables that configured the node were pinned: a job has those of its
// acceptance.
func (e *nodeExplainer) pinned() time.Time {
	if j, err := e.View.Job(e.Node.Applied); err == nil && !j.Accepted.IsZero() {
		return j.Accepted
	}
	return e.Node.Configured.Time
}

// changedSince reports whether a change of the stored variables is recorded since they were pinned.
func (e *nodeExplainer) changedSince() bool {
	for _, changes := range e.Changes {
		if slices.ContainsFunc(changes, func(c variable.Change) bool { return c.Time.After(e.pinned()) }) {
			return true
		}
	}

	return false
}

// notRecorded reports a node that was configured before that was recorded, or whose
// configuration cannot be compared.
func (e *nodeExplainer) notRecorded() {
	j, n := e.Judgement, e.Node
	if !j.InService || j.Known || n.Status != inventory.Allocated || n.Applied == "" {
		return
	}
	message := fmt.Sprintf("what job %s applied to it was not recorded", n.Applied)
	remedy, actions := "configure it again, if you need to know", []inventory.Action{
		inventory.Submit(inventory.VerbApply, n.Name),
	}

	switch {
	case n.Configured == nil:
	case j.Desired.Playbooks == "":
		message, remedy = "the playbooks of the manager cannot be read", "see the health"
		actions = []inventory.Action{inventory.ShowHealth()}
	case j.Desired.Variables == "":
		message, remedy = "its variables cannot be compared, because secrets are locked", "see the health"
		actions = []inventory.Action{inventory.ShowHealth()}
	default:
		message = "its variables cannot be compared with those that configured it"
	}

	e.add(finding(AboutApplied, "%s, so it is not known whether it is outdated", message).on(n.Name).
		do("%s", remedy).with(actions...))
}

// currency describes in one word or two whether the node is outdated, if that is known.
func currency(j desired.Judgement) string {
	switch {
	case j.Outdated:
		parts := make([]string, len(j.Differs))
		for i, part := range j.Differs {
			parts[i] = string(part)
		}

		return "outdated (" + strings.Join(parts, ", ") + ")"
	case j.Known:
		return "up to date"
	}

	return ""
}
