// SPDX-License-Identifier: Apache-2.0

package print

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/management/api"
)

// shownDecisions is the number of decisions in the list of policies.
const shownDecisions = 10

var (
	policyColumns = ColumnsOf(Cells[api.Policy]{
		"state": func(_ Paint, s *api.Policy) string { return policyState(*s) },
	}, "Policy=name", "state", "pending", "What it does=about")

	decisionColumns = ColumnsOf(Cells[api.Decision]{
		"node": func(_ Paint, d *api.Decision) string { return Line(concerned(*d)) },
	}, "time", "policy", "node", "action", "phase", "job", "What happened=case")

	decisionDetails = ColumnsOf(Cells[api.Decision]{
		"node":    func(_ Paint, d *api.Decision) string { return Line(concerned(*d)) },
		"changes": func(_ Paint, d *api.Decision) string { return changes(*d) },
	}, "Decided=time", "node", "action", "group", "In place of=replaces", "What happened=case", "evidence,lines",
		"Prevented by=prevent,lines", "phase", "job,else none", "rollout", "changes", "result")

	policyDetails = ColumnsOf(Cells[api.Policy]{
		"turned": func(_ Paint, s *api.Policy) string { return turn(*s) },
		"state":  func(_ Paint, s *api.Policy) string { return pause(s.Paused) },
	}, "Policy=name", "What it does=about", "turned", "state", "halted", "Pending nodes=pending")

	roleColumns = ColumnsOf(Cells[api.PolicyRole]{"spread": spread},
		"Role=group", "Wanted=count,else any", "in_service", "healthy", "coming", "surplus", "spread,else none")

	testedDetails = ColumnsOf(Cells[api.PolicyTested]{
		"nodes": func(_ Paint, t *api.PolicyTested) string {
			return fmt.Sprintf("%d, of which %d concern it", t.Nodes, len(t.Outlooks))
		},
	}, "policy", "What it does=about", "halted", "nodes")

	outlookColumns = ColumnsOf[api.PolicyOutlook](nil,
		"node", "action,else none", "group,else none", "now", "What it would do=message")
)

// Policies prints the state of automation.
func (p *Printer) Policies(s api.Policies) {
	brake := "off"
	if s.Brake.Engaged {
		brake = "on: " + Line(s.Brake.Message)
	} else if !s.Brake.Released.IsZero() {
		brake = fmt.Sprintf("off, released on %s by %s", Time(s.Brake.Released), Line(s.Brake.ReleasedBy))
	}

	fields := []Field{
		{"Brake", p.Paint.goodIf(!s.Brake.Engaged, brake)},
		{"All policies", pause(s.Paused)},
	}

	for _, policy := range s.Policies {
		if policy.Paused != nil {
			fields = append(fields, Field{"Policy " + Line(policy.Name), pause(policy.Paused)})
		}
	}

	p.Fields(fields)
	policyColumns.Table(p, s.Policies)
	decisionColumns.Table(p, s.Decisions[:min(len(s.Decisions), shownDecisions)])
}

func policyState(s api.Policy) string {
	switch {
	case !s.On:
		return "off"
	case s.Paused != nil:
		return "paused"
	case s.Halted != "":
		return "halted"
	}

	return "active"
}

// PolicyLine describes in one line the state of a policy, or of api.AllPolicies.
func PolicyLine(s api.Policies, name string) string {
	if name == api.AllPolicies {
		return allPolicies(s)
	}

	i := slices.IndexFunc(s.Policies, func(p api.Policy) bool { return p.Name == name })

	// The rollouts of a policy may outlive its configuration.
	if i < 0 {
		return "policy " + Line(name) + " is not configured; its rollouts begin no node"
	}

	policy := s.Policies[i]
	text := "policy " + Line(name) + " is "

	switch state := policyState(policy); state {
	case "paused":
		return text + pause(policy.Paused)
	case "halted":
		return text + "on, and halted: " + Line(policy.Halted)
	default:
		return text + state
	}
}

// allPolicies describes in one line whether all policies are paused.
func allPolicies(s api.Policies) string {
	if s.Paused != nil {
		return "all policies are " + pause(s.Paused)
	}

	text := "the pause of all policies is over"

	var still []string

	for _, policy := range s.Policies {
		if policy.Paused != nil {
			still = append(still, Line(policy.Name))
		}
	}

	if len(still) > 0 {
		text += "; paused by themselves: " + strings.Join(still, ", ")
	}

	return text
}

// turn describes whether a policy is on.
func turn(s api.Policy) string {
	word := "off"
	if s.On {
		word = "on"
	}
	if s.Turned == nil {
		return word
	}

	text := fmt.Sprintf("%s since %s by %s", word, Time(s.Turned.Since), Line(s.Turned.Actor))
	if s.Turned.Reason != "" {
		text += ": " + Line(s.Turned.Reason)
	}
	return text
}

// PolicyTested prints the effects that a policy would have.
func (p *Printer) PolicyTested(t api.PolicyTested) {
	testedDetails.Details(p, t)
	p.roles(t.Roles)
	outlookColumns.Table(p, t.Outlooks)
}

// pause describes a pause.
func pause(s *api.PolicyPause) string {
	if s == nil {
		return "active"
	}

	text := fmt.Sprintf("paused since %s by %s", Time(s.Since), Line(s.Actor))
	if s.Reason != "" {
		text += ": " + Line(s.Reason)
	}
	return text
}

// Policy prints one policy and its decisions.
func (p *Printer) Policy(s api.Policy) {
	policyDetails.Details(p, s)
	p.roles(s.Roles)

	for _, d := range s.Decisions {
		decisionDetails.Details(p, d)
	}
}

// spread returns the number of nodes at each value of the label.
func spread(_ Paint, r *api.PolicyRole) string {
	places := make([]string, 0, len(r.Places))
	for _, value := range slices.Sorted(maps.Keys(r.Places)) {
		places = append(places, fmt.Sprintf("%s: %d", Line(value), r.Places[value]))
	}

	return strings.Join(places, ", ")
}

// roles prints the groups that a policy fills, and what there is to say about them.
func (p *Printer) roles(roles []api.PolicyRole) {
	if len(roles) == 0 {
		return
	}

	roleColumns.Table(p, roles)

	var fields []Field

	for _, r := range roles {
		group := Line(r.Group)
		fields = append(fields,
			Field{"Warnings of " + group, lines(r.Warnings)}, Field{"Notes on " + group, lines(r.Notes)})
	}

	p.Fields(fields)
}

// concerned names the nodes of a decision: a few, or their number.
func concerned(d api.Decision) string {
	if len(d.Nodes) > 3 {
		return fmt.Sprintf("%s and %d more", d.Nodes[0], len(d.Nodes)-1)
	}
	return cmp.Or(d.Node, strings.Join(d.Nodes, ", "))
}

// changes returns the command that shows the changes between the commits of a decision.
func changes(d api.Decision) string {
	if d.From == "" || d.Commit == "" {
		return ""
	}
	return fmt.Sprintf("clusterctl repo diff %s %s", Line(d.From), Line(d.Commit))
}

// lines returns texts one below the other.
func lines(texts []string) string {
	shown := make([]string, len(texts))
	for i, t := range texts {
		shown[i] = Line(t)
	}

	return strings.Join(shown, "\n")
}
