// SPDX-License-Identifier: Apache-2.0

package print

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// RolloutColumns are the columns of a table of rollouts.
var RolloutColumns = ColumnsOf(rolloutCells,
	"id", "action", "status", "progress", "actor", "created,age", "created,wide", "ended,wide", "reason,wide")

// RolloutProgress counts the nodes of a rollout in one line.
func RolloutProgress(r api.Rollout) string {
	c := r.Count
	text := fmt.Sprintf("%d/%d done", c.Done, c.Total)

	for _, part := range []struct {
		n    int
		what string
	}{{c.InProgress, "in progress"}, {c.Failed, "failed"}, {c.Skipped, "skipped"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}

	return text
}

// RolloutLine describes a rollout in one line: its status, progress and estimate.
func RolloutLine(r api.Rollout) string {
	text := Line(string(r.Status)) + ": " + RolloutProgress(r)

	switch {
	case r.Waits != "":
		text += "; waits: " + Line(r.Waits)
	case r.Reason != "":
		text += "; " + Line(r.Reason)
	}

	if r.Remaining != nil && r.Status == "Running" {
		text += "; about " + Duration(time.Duration(*r.Remaining)) + " left"
	}

	return text
}

var rolloutCells = Cells[api.Rollout]{
	"progress": func(_ Paint, r *api.Rollout) string { return RolloutProgress(*r) },
	"expected": remaining,
	"action":   func(_ Paint, r *api.Rollout) string { return Line(api.VerbWords(r.Spec.Action)) },
	"canary":   canaryOf,
	"at a time": func(_ Paint, r *api.Rollout) string {
		return "at most " + Line(cmp.Or(r.Spec.MaxUnavailable, "1"))
	},
	"stops after": func(_ Paint, r *api.Rollout) string {
		return fmt.Sprintf("more than %d failed", r.Spec.MaxFailures)
	},
	"order":      func(_ Paint, r *api.Rollout) string { return orderOf(r.Spec.Order) },
	"strategies": func(_ Paint, r *api.Rollout) string { return strategiesOf(r.Spec.Strategies) },
	"gate":       func(_ Paint, r *api.Rollout) string { return gateOf(r.Spec.Gate) },
	"needs approval": func(_ Paint, r *api.Rollout) string {
		return yesIf(r.Spec.RequireApproval && r.Approved == nil)
	},
	"approved": func(_ Paint, r *api.Rollout) string { return markOf(r.Approved) },
}

var rolloutDetails = slices.Concat(
	ColumnsOf(rolloutCells, "Rollout=id", "status", "reason", "waits", "progress", "expected", "action",
		"spec.selector", "spec.group", "at a time", "canary", "stops after", "order", "strategies", "gate",
		"spec.soak"),
	optionColumns(func(r *api.Rollout) inventory.JobOptions {
		return inventory.JobOptions{SharedOptions: r.Spec.SharedOptions}
	}, func(o inventory.JobOption) bool { return o.Shared }),
	ColumnsOf(rolloutCells, "Extra variables=extra_names", "Job timeout=spec.timeout", "needs approval", "approved",
		"Takes back=undo_of", "Reason given=spec.reason", "Playbooks=playbook_digest", "commit", "actor", "started",
		"ended"),
)

// Rollout prints one rollout, or the preview of one, with its nodes.
func (p *Printer) Rollout(r api.Rollout) {
	rolloutDetails.Details(p, r)
	p.gap()

	rows := make([][]string, len(r.Nodes))
	for i, n := range r.Nodes {
		rows[i] = []string{
			fmt.Sprint(i + 1), Line(n.Name), Line(n.Group), turnOf(r.Spec, i), Line(n.State), Line(n.Job),
			Line(strings.Join(nonEmpty(n.Reason, n.Window), "; ")),
		}
	}

	p.Rows([]string{"NO", "NODE", "GROUP", "TURN", "STATE", "JOB", "REASON"}, rows)
}

var (
	// RolloutEventColumns are the columns of a table of the events of a rollout.
	RolloutEventColumns = ColumnsOf[api.RolloutEvent](nil, "time", "Event=kind", "node", "actor,else clusterm", "text")
	// RolloutEventDetails are an event of a rollout in whole.
	RolloutEventDetails = ColumnsOf[api.RolloutEvent](nil,
		"time", "Event=kind", "node", "actor,else clusterm", "text,text")
)

// RolloutEventLine describes an event of a rollout in one line.
func RolloutEventLine(e api.RolloutEvent) string {
	line := Time(e.Time) + "  " + Line(e.Kind)
	if e.Node != "" {
		line += "  " + Line(e.Node)
	}
	if e.Actor != "" {
		line += "  by " + Line(e.Actor)
	}

	if e.Text != "" {
		line += ": " + Line(e.Text)
	}

	return line
}

// canaryOf describes the nodes that go first, and whether a person has to promote the rollout
// after them.
func canaryOf(_ Paint, r *api.Rollout) string {
	text := positive(r.Spec.Canary)

	switch {
	case r.Promoted != nil:
		text += ", promoted " + markOf(r.Promoted)
	case r.Spec.Promote:
		text += ", then it waits for its promotion"
	}

	return text
}

// markOf describes the act of a person, with its time.
func markOf(m *api.RolloutMark) string {
	if m == nil {
		return ""
	}

	text := "by " + Line(m.By) + " at " + timeOf(&m.At)
	if m.Reason != "" {
		text += ": " + Line(m.Reason)
	}
	return text
}

// strategiesOf describes the bounds of single groups.
func strategiesOf(of map[string]api.RolloutStrategy) string {
	var groups []string

	for _, name := range slices.Sorted(maps.Keys(of)) {
		one := of[name]
		strategy := inventory.Strategy{
			MaxUnavailable: inventory.Amount(one.MaxUnavailable), MaxFailures: one.MaxFailures,
		}

		if one.Soak != nil {
			strategy.Soak = Duration(time.Duration(*one.Soak))
		}

		groups = append(groups, Line(name+": "+strategy.String()))
	}

	return strings.Join(groups, "; ")
}

// turnOf names the part of a rollout to which the node with the index belongs.
func turnOf(s api.RolloutSpec, index int) string {
	if index < s.Canary {
		return "canary"
	}
	return ""
}

func remaining(_ Paint, r *api.Rollout) string {
	if r.Remaining == nil || r.Status.Ended() {
		return ""
	}
	return "about " + Duration(time.Duration(*r.Remaining))
}

func orderOf(o *api.RolloutOrder) string {
	if o == nil {
		return "by name"
	}

	if o.Label != "" {
		return "by the label " + Line(o.Label) + ", never two of one value at once"
	}
	return "by " + Line(o.By)
}

func gateOf(g *api.RolloutGate) string {
	if g == nil {
		return ""
	}

	var parts []string
	if g.SkipVerify {
		parts = append(parts, "no verification")
	}

	if g.HTTP != nil {
		parts = append(parts, fmt.Sprintf("HTTP check of port %d, %s", g.HTTP.Port, Line(cmp.Or(g.HTTP.Path, "/"))))
	}

	if g.Command != nil {
		parts = append(parts, "command "+Line(g.Command.Name))
	}

	return strings.Join(parts, "; ")
}

// nonEmpty returns the texts that are not empty.
func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(t string) bool { return t == "" })
}
