// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// RolloutColumns are the columns of a table of rollouts.
var RolloutColumns = ColumnsOf(Cells[api.Rollout]{
	"action":   func(_ Paint, r *api.Rollout) string { return api.VerbWords(r.Spec.Action) },
	"progress": func(_ Paint, r *api.Rollout) string { return RolloutProgress(*r) },
}, "id", "action", "status", "progress", "actor", "created,age", "created,wide", "ended,wide", "reason,wide")

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

// Rollout prints one rollout, or the preview of one, with its nodes.
func (p *Printer) Rollout(r api.Rollout) {
	s := r.Spec

	fields := []Field{
		{"Rollout", Line(r.ID)},
		{"Status", Line(string(r.Status))},
		{"Reason", Line(r.Reason)},
		{"Waits", Line(r.Waits)},
		{"Progress", RolloutProgress(r)},
		{"Expected", remaining(r)},
		{"Action", Line(api.VerbWords(s.Action))},
		{"Selector", Line(s.Selector)},
		{"Group", Line(s.Group)},
		{"At a time", "at most " + orDefault(s.MaxUnavailable, "1")},
		{"Canary", canaryOf(r)},
		{"Stops after", fmt.Sprintf("more than %d failed", s.MaxFailures)},
		{"Order", orderOf(s.Order)},
		{"Strategies", strategiesOf(s.Strategies)},
		{"Gate", gateOf(s.Gate)},
		{"Soak", lasting(s.Soak)},
	}

	options := inventory.JobOptions{SharedOptions: s.SharedOptions}
	fields = append(fields, optionFields(options, func(o inventory.JobOption) bool { return o.Shared })...)

	p.Fields(append(fields, []Field{
		{"Extra variables", Line(strings.Join(r.ExtraNames, ", "))},
		{"Job timeout", lasting(s.Timeout)},
		{"Needs approval", yesIf(s.RequireApproval && r.Approved == nil)},
		{"Approved", markOf(r.Approved)},
		{"Takes back", Line(r.UndoOf)},
		{"Reason given", Line(s.Reason)},
		{"Playbooks", Line(r.PlaybookDigest)},
		{"Commit", Line(r.Commit)},
		{"Actor", Line(r.Actor)},
		{"Started", timeOf(r.Started)},
		{"Ended", timeOf(r.Ended)},
	}...))

	p.gap()

	rows := make([][]string, len(r.Nodes))
	for i, n := range r.Nodes {
		rows[i] = []string{
			fmt.Sprint(i + 1), Line(n.Name), Line(n.Group), turnOf(s, i), Line(n.State), Line(n.Job),
			Line(strings.Join(nonEmpty(n.Reason, n.Window), "; ")),
		}
	}

	p.Rows([]string{"NO", "NODE", "GROUP", "TURN", "STATE", "JOB", "REASON"}, rows)
}

var rolloutEventCells = Cells[api.RolloutEvent]{
	"actor": func(_ Paint, e *api.RolloutEvent) string { return actorOf(*e) },
}

var (
	// RolloutEventColumns are the columns of a table of the events of a rollout.
	RolloutEventColumns = ColumnsOf(rolloutEventCells, "time", "Event=kind", "node", "actor", "text")
	// RolloutEventDetails are an event of a rollout in whole.
	RolloutEventDetails = ColumnsOf(rolloutEventCells, "time", "Event=kind", "node", "actor", "text,text")
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

// actorOf names who caused an event of a rollout.
func actorOf(e api.RolloutEvent) string {
	if e.Actor == "" {
		return "clusterm"
	}

	return Line(e.Actor)
}

// canaryOf describes the nodes that go first, and whether a person has to promote the rollout
// after them.
func canaryOf(r api.Rollout) string {
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

// lasting describes a duration; 0 is none.
func lasting(d api.Duration) string {
	if d == 0 {
		return ""
	}

	return Duration(time.Duration(d))
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

func remaining(r api.Rollout) string {
	if r.Remaining == nil || r.Status.Ended() {
		return ""
	}

	return "about " + Duration(time.Duration(*r.Remaining))
}

func orDefault(text, otherwise string) string {
	if text == "" {
		return otherwise
	}

	return Line(text)
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
		parts = append(parts, fmt.Sprintf("HTTP check of port %d, %s", g.HTTP.Port, orDefault(g.HTTP.Path, "/")))
	}

	if g.Command != nil {
		parts = append(parts, "command "+Line(g.Command.Name))
	}

	return strings.Join(parts, "; ")
}

// nonEmpty returns the texts that are not empty.
func nonEmpty(texts ...string) []string {
	var out []string

	for _, t := range texts {
		if t != "" {
			out = append(out, t)
		}
	}

	return out
}
