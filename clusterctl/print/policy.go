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

// Policies prints the state of automation.
func (p *Printer) Policies(s api.Policies) {
	brake := "off"
	if s.Brake.Engaged {
		brake = "on: " + Line(s.Brake.Message)
	} else if s.Brake.Released != nil {
		brake = fmt.Sprintf("off, released on %s by %s", timeOf(s.Brake.Released), Line(s.Brake.ReleasedBy))
	}

	fields := []Field{
		{"Brake", p.goodIf(!s.Brake.Engaged, brake)},
		{"All policies", pause(s.Paused)},
	}

	for _, policy := range s.Policies {
		if policy.Paused != nil {
			fields = append(fields, Field{"Policy " + Line(policy.Name), pause(policy.Paused)})
		}
	}

	p.Fields(fields)
	p.gap()

	rows := make([][]string, len(s.Policies))
	for i, policy := range s.Policies {
		rows[i] = []string{
			Line(policy.Name), policyState(policy), fmt.Sprint(policy.Pending), Line(policy.About),
		}
	}

	p.Rows([]string{"POLICY", "STATE", "PENDING", "WHAT IT DOES"}, rows)

	if len(s.Decisions) == 0 {
		return
	}

	p.gap()

	rows = nil
	for _, d := range s.Decisions[:min(len(s.Decisions), shownDecisions)] {
		rows = append(rows, []string{
			Time(d.Time), Line(d.Policy), Line(concerned(d)), Line(d.Action), Line(d.Phase), Line(d.Job), Line(d.Case),
		})
	}

	p.Rows([]string{"TIME", "POLICY", "NODE", "ACTION", "PHASE", "JOB", "WHAT HAPPENED"}, rows)
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
	p.Fields([]Field{
		{"Policy", Line(t.Policy)},
		{"What it does", Line(t.About)},
		{"Halted", Line(t.Halted)},
		{"Nodes", fmt.Sprintf("%d, of which %d concern it", t.Nodes, len(t.Outlooks))},
	})

	p.roles(t.Roles)

	if len(t.Outlooks) == 0 {
		return
	}

	p.gap()

	rows := make([][]string, len(t.Outlooks))
	for i, o := range t.Outlooks {
		now := "no"
		if o.Now {
			now = "yes"
		}

		rows[i] = []string{
			Line(o.Node), Line(cmp.Or(o.Action, "none")), Line(cmp.Or(o.Group, "none")), now, Line(o.Message),
		}
	}

	p.Rows([]string{"NODE", "ACTION", "GROUP", "NOW", "WHAT IT WOULD DO"}, rows)
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
	p.Fields([]Field{
		{"Policy", Line(s.Name)},
		{"What it does", Line(s.About)},
		{"Turned", turn(s)},
		{"State", pause(s.Paused)},
		{"Halted", Line(s.Halted)},
		{"Pending nodes", fmt.Sprint(s.Pending)},
	})
	p.roles(s.Roles)

	for _, d := range s.Decisions {
		p.gap()
		p.Fields([]Field{
			{"Decided", Time(d.Time)},
			{"Node", Line(concerned(d))},
			{"Action", Line(d.Action)},
			{"Group", Line(d.Group)},
			{"In place of", Line(d.Replaces)},
			{"What happened", Line(d.Case)},
			{"Evidence", lines(d.Evidence)},
			{"Prevented by", lines(d.Prevent)},
			{"Phase", Line(d.Phase)},
			{"Job", Line(cmp.Or(d.Job, "none"))},
			{"Rollout", Line(d.Rollout)},
			{"Changes", changes(d)},
			{"Result", Line(d.Result)},
		})
	}
}

// roles prints the groups that a policy fills, and what there is to say about them.
func (p *Printer) roles(roles []api.PolicyRole) {
	if len(roles) == 0 {
		return
	}

	p.gap()

	rows := make([][]string, len(roles))
	for i, r := range roles {
		wanted := "any"
		if r.Count > 0 {
			wanted = fmt.Sprint(r.Count)
		}

		places := make([]string, 0, len(r.Places))
		for _, value := range slices.Sorted(maps.Keys(r.Places)) {
			places = append(places, fmt.Sprintf("%s: %d", Line(value), r.Places[value]))
		}

		rows[i] = []string{
			Line(r.Group), wanted, fmt.Sprint(r.InService), fmt.Sprint(r.Healthy), fmt.Sprint(r.Coming),
			fmt.Sprint(r.Surplus), cmp.Or(strings.Join(places, ", "), "none"),
		}
	}

	p.Rows([]string{"ROLE", "WANTED", "IN SERVICE", "HEALTHY", "COMING", "SURPLUS", "SPREAD"}, rows)

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
