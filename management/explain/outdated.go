// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
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
		default:
			add(fmt.Sprintf("its %s has changed", part), time.Time{})
		}
	}

	f := finding(AboutOutdated, "it is outdated: %s", strings.Join(reasons, "; ")).on(n.Name).since(since).
		do("configure it again").with(inventory.Submit(inventory.VerbApply, n.Name))
	f.Job = n.Applied
	e.add(f)
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
	applied := e.Node.Configured

	// A job has the variables of its acceptance.
	from := applied.Time
	if j, err := e.View.Job(e.Node.Applied); err == nil && !j.Accepted.IsZero() {
		from = j.Accepted
	}

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
	case len(applied.Extra) == 0:
		// Variables of the configuration file have no history, and histories are bounded.
		text += ", and no change of them is recorded since " + stamp(from)
	}

	if len(applied.Extra) > 0 {
		text += fmt.Sprintf("; only the request of job %s had set %s", e.Node.Applied, job.ShortList(applied.Extra))
	}

	return text, since
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
