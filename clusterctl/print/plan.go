// SPDX-License-Identifier: Apache-2.0

package print

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// PlanColumns are the columns of a table of plans.
var PlanColumns = ColumnsOf(Cells[api.Plan]{
	"verb":  func(_ Paint, p *api.Plan) string { return api.VerbWords(p.Request.Verb) },
	"nodes": func(_ Paint, p *api.Plan) string { return List(planned(*p)) },
}, "id", "status", "verb", "nodes", "request.group", "actor", "created,age", "expires", "job,number",
	"created,wide", "applied_by,wide", "request.reason,wide")

// planned returns the nodes of a plan, or the addresses of a discover.
func planned(p api.Plan) []string {
	return slices.Concat(p.Request.Nodes, p.Request.Addrs, p.Request.Ranges)
}

// PlanTitle describes a plan in a few words.
func PlanTitle(p api.Plan) string {
	return Clip(api.VerbWords(p.Request.Verb)+" of "+List(planned(p)), 50) + ": " + Line(string(p.Status))
}

var planCells = Cells[api.Plan]{
	"status":   planStatus,
	"made by":  func(_ Paint, p *api.Plan) string { return Line(p.Actor) + ", " + Time(p.Created) },
	"verb":     func(_ Paint, p *api.Plan) string { return Line(api.VerbWords(p.Request.Verb)) },
	"begins":   begins,
	"expected": expected,
	"warnings": func(_ Paint, p *api.Plan) string { return Text(strings.Join(p.Warnings, "\n")) },
}

var planDetails = slices.Concat(
	ColumnsOf(planCells, "Plan=id", "status", "made by", "verb", "request.group", "note,text", "playbook_digest"),
	optionColumns(func(p *api.Plan) inventory.JobOptions { return p.Request.JobOptions },
		func(inventory.JobOption) bool { return true }),
	ColumnsOf(planCells,
		"Time limit=request.timeout", "request.reason,text", "begins", "helpers", "expected", "warnings"),
)

// Plan prints one plan.
func (p *Printer) Plan(plan api.Plan) {
	planDetails.Details(p, plan)
	p.planTargets(plan)
	p.planEffects(plan)
	p.variables(plan.Vars)
	p.planCheck(plan.Check)
}

func planStatus(_ Paint, plan *api.Plan) string {
	switch plan.Status {
	case api.PlanApplied:
		return fmt.Sprintf("%s as job %s by %s, %s",
			plan.Status, Line(plan.Job), Line(plan.AppliedBy), timeOf(plan.Applied))
	case api.PlanOpen:
		return fmt.Sprintf("%s, until %s", plan.Status, Time(plan.Expires))
	}

	return Line(string(plan.Status))
}

// begins describes when the job would begin.
func begins(_ Paint, plan *api.Plan) string {
	switch {
	case plan.Waits != "":
		return "later: " + Line(plan.Waits)
	case len(plan.Ahead) > 0:
		return "after job " + List(plan.Ahead)
	}

	return "at once"
}

// expected describes how long the job may take.
func expected(_ Paint, plan *api.Plan) string {
	e := plan.Expected
	if e == nil {
		return fmt.Sprintf("not known: no %s that succeeded is kept", Line(api.VerbWords(plan.Request.Verb)))
	}
	return fmt.Sprintf("about %s: %s for one node (%s to %s, in %s)", Duration(time.Duration(e.Total)),
		Duration(time.Duration(e.Median)), Duration(time.Duration(e.Shortest)), Duration(time.Duration(e.Longest)),
		inventory.Count(e.Jobs, "earlier job", "earlier jobs"))
}

func (p *Printer) planTargets(plan api.Plan) {
	if len(plan.Targets) == 0 {
		return
	}

	rows := make([][]string, len(plan.Targets))
	for i, t := range plan.Targets {
		batch := ""
		if plan.Request.Serial != "" {
			batch = fmt.Sprint(t.Batch)
		}

		removed := t.Status != "" && t.StatusAfter == "" // only such a verb has no status after it
		after := string(t.StatusAfter)

		if removed {
			after = "removed"
		}

		var configured []string
		for _, group := range slices.Sorted(maps.Keys(t.Playbooks)) {
			configured = append(configured, fmt.Sprintf("%s (%s)", short(t.Playbooks[group]), group))
		}

		rows[i] = []string{
			Line(t.Name), batch, Line(t.Node), Line(string(t.State)),
			fromTo(string(t.Status), after), fromTo(t.Group, t.GroupAfter),
			Line(t.Addr), List(t.Residue), List(configured),
		}
	}

	p.gap()
	p.Rows([]string{"TARGET", "BATCH", "NODE", "STATE", "STATUS", "GROUP", "ADDRESS", "RESIDUE", "CONFIGURED BY"}, rows)
}

// short is enough of a digest for a person to tell two apart.
func short(digest string) string { return Line(digest[:min(len(digest), 12)]) }

// fromTo describes a change, or the value that stays.
func fromTo(from, to string) string {
	if from == to {
		return Line(from)
	}
	return Line(cmp.Or(from, "none") + " → " + cmp.Or(to, "none"))
}

// planEffects prints the interruptions of service, and the rules that were judged.
func (p *Printer) planEffects(plan api.Plan) {
	var lines []string

	for _, s := range plan.Service {
		line := fmt.Sprintf("out of service: %s of group %s (%s)",
			inventory.Count(len(s.Nodes), "node", "nodes"), Line(s.Group), List(s.Nodes))
		if s.AtOnce < len(s.Nodes) {
			line += fmt.Sprintf(", %d at a time", s.AtOnce)
		}
		if s.Before > 0 {
			line += fmt.Sprintf("; %d in service now", s.Before)
		}

		if len(s.RequiredBy) > 0 {
			line += "; required by " + List(s.RequiredBy)
		}

		lines = append(lines, line)
	}

	for _, r := range plan.Rules {
		line := fmt.Sprintf("rule met: %s requires %d of %s", Line(r.Group), r.Minimum, Line(r.Requires))

		switch {
		case r.Joins && r.Left > 0:
			line += fmt.Sprintf("; %s in service for those who join", inventory.Count(r.Left, "node is", "nodes are"))
		case !r.Joins && r.Left > 0:
			line += fmt.Sprintf("; %s in service for %d", inventory.Count(r.Left, "node stays", "nodes stay"),
				r.Dependents)
		case !r.Joins && r.Dependents == 0:
			line += "; no node of the first stays in service"
		}

		lines = append(lines, line)
	}

	if len(lines) > 0 {
		p.gap()
		p.Printf("%s\n", p.fold(strings.Join(lines, "\n"), 0))
	}
}

// variables prints variables with their origin; those that all hosts have alike once.
func (p *Printer) variables(vars map[string]api.MergedVars) {
	hosts := slices.Sorted(maps.Keys(vars))
	if len(hosts) == 0 {
		return
	}

	common := api.MergedVars{}

	for key, v := range vars[hosts[0]] {
		same := func(host string) bool {
			other, ok := vars[host][key]
			return ok && reflect.DeepEqual(v, other)
		}
		if len(hosts) > 1 && !slices.ContainsFunc(hosts, func(host string) bool { return !same(host) }) {
			common[key] = v
		}
	}

	var rows [][]string

	add := func(host string, of api.MergedVars, left api.MergedVars) {
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if _, out := left[key]; !out {
				rows = append(rows, []string{Line(host), Line(key), Scalar(of[key].Value), Line(of[key].Origin)})
			}
		}
	}

	add(fmt.Sprintf("all %d", len(hosts)), common, nil)

	for _, host := range hosts {
		add(host, vars[host], common)
	}

	if len(rows) > 0 {
		p.gap()
		p.Rows([]string{"HOST", "VARIABLE", "VALUE", "ORIGIN"}, rows)
	}
}

// planCheck prints the findings of the check of a plan.
func (p *Printer) planCheck(check *api.PlanCheck) {
	if check == nil {
		return
	}

	status := ""
	if check.Status != "" {
		status = " (" + p.Paint.Job(check.Status) + ")"
	}
	p.Fields([]Field{{"Check", "job " + Line(check.Job) + status}, {"Result", Text(check.Message)}})

	for _, n := range check.Nodes {
		p.gap()
		p.Printf("%s:\n", Line(n.Node))

		for _, f := range n.Tasks {
			p.finding(f)
		}
	}

	if check.Truncated {
		p.gap()
		p.Printf(
			"Findings are missing: there are more than a plan shows, or the events of the job reached their limit.\n",
		)
	}
}
