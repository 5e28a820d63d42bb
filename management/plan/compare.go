// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/job"
)

// Difference is one way in which the world is not as it was when a plan was made. It
// names variables, and never has their values.
type Difference struct {
	Node string // empty: it concerns no single node
	Text string
}

// Compare returns the differences between the world of a plan with its inputs, and the
// one in which it is to be applied. The effects of the jobs ahead of the plan, and of its
// own check, were expected and are no differences.
func Compare(p Plan, then job.Inputs, now World, inputs job.Inputs) []Difference {
	var found []Difference

	add := func(node, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if node != "" {
			text = node + ": " + text
		}
		found = append(found, Difference{node, text})
	}

	was, is := p.places(), now.places()

	for _, t := range now.Job.Targets {
		if _, planned := was[t.Name]; !planned {
			add(t.Name, "it is not in the plan")
		}
	}

	for _, t := range p.Job.Targets {
		was := was[t.Name]

		is, ok := is[t.Name]
		if !ok {
			add(t.Name, "it is no target any more")
			continue
		}

		for _, text := range differentFacts(was.facts(), is.facts()) {
			add(t.Name, "its %s", text)
		}

		// A first contact since then records the keys.
		if keys := was.node.HostKeys; len(keys) > 0 && !slices.Equal(keys, is.node.HostKeys) {
			add(t.Name, "its recorded ssh host key was changed")
		}

		if text := configuredSince(t, is.target); text != "" && !slices.Contains(p.Ahead, is.target.Applied) {
			add(t.Name, "%s", text)
		}

		vars, fields := differentInputs(p.Job, t, then, inputs)
		if len(vars) > 0 {
			add(t.Name, "variables changed: %s", job.ShortList(vars))
		}
		if len(fields) > 0 {
			add(t.Name, "ssh parameters changed: %s", strings.Join(fields, ", "))
		}
	}

	for _, id := range now.Ahead {
		if id != p.Check && !slices.Contains(p.Ahead, id) {
			add("", "job %s has come before it, on some of its nodes", id)
		}
	}

	for _, text := range differentFacts(p.groupFacts(p.Job.Targets), now.groupFacts(p.Job.Targets)) {
		add("", "the %s", text)
	}

	if !slices.Equal(p.HostCAs, now.HostCAs) {
		add("", "the setting ssh.host_ca was changed")
	}

	return found
}

// place is a target with its node, which is zero for an address without one.
type place struct {
	target job.Target
	node   Node
}

// places returns the targets by name.
func (w World) places() map[string]place {
	nodes := make(map[string]Node, len(w.Nodes))
	for _, n := range w.Nodes {
		nodes[n.Name] = n
	}

	found := make(map[string]place, len(w.Job.Targets))

	for _, t := range w.Job.Targets {
		name := t.Name
		if w.Job.TakesAddrs() {
			name = t.Node()
		}
		found[t.Name] = place{t, nodes[name]}
	}

	return found
}

// facts returns what a job depends on that can be told in words, by name.
func (p place) facts() map[string]string {
	return map[string]string{
		"address": p.target.Addr, "node": p.target.Node(), "status": string(p.target.From), "group": p.target.FromGroup,
		"group after the job": p.target.Group, "residue": strings.Join(p.target.Residue, ", "),
		"list of host keys of the request": strings.Join(p.target.HostKeys, ", "),
		"state":                            string(p.node.State),
		"list of other hosts that claim its name": strings.Join(p.node.Duplicates, ", "),
	}
}

// groupFacts are the facts of the groups that the targets enter or leave.
func (w World) groupFacts(targets []job.Target) map[string]string {
	facts, touched := map[string]string{}, map[string]bool{}

	for _, t := range targets {
		touched[t.Group], touched[t.FromGroup] = true, true
		facts["choice of tasks of group "+t.Group] = w.Job.GroupTags[t.Group].String()
	}

	isTouched := func(group string) bool { return touched[group] }

	for _, g := range w.Groups {
		if touched[g.Name] || slices.ContainsFunc(g.Requires.Groups(), isTouched) {
			facts["requirement of group "+g.Name] = g.Requires.String()
		}

		if touched[g.Name] {
			facts["budget of group "+g.Name] = g.Budget.String()
		}
	}

	return facts
}

// differentFacts describes the facts that differ.
func differentFacts(then, now map[string]string) (texts []string) {
	all := maps.Clone(then)
	maps.Copy(all, now)

	for _, name := range slices.Sorted(maps.Keys(all)) {
		if then[name] != now[name] {
			texts = append(texts, fmt.Sprintf("%s is %s now, and was %s",
				name, cmp.Or(now[name], "none"), cmp.Or(then[name], "none")))
		}
	}

	return texts
}

// configuredSince describes what has configured the target since then, or is empty.
func configuredSince(then, now job.Target) string {
	switch {
	case then.Applied != now.Applied && now.Applied == "":
		return fmt.Sprintf("its configuration is not known any more, and was that of job %s", then.Applied)
	case then.Applied != now.Applied:
		return fmt.Sprintf("job %s has configured it since", now.Applied)
	case !maps.Equal(then.Playbooks, now.Playbooks):
		return "other playbooks have configured it than those of the plan"
	}

	return ""
}

// differentInputs returns the variables and the ssh parameters of a target that differ, in each group of the plan that
// both have. A target in other groups differs anyway.
func differentInputs(planned job.Job, t job.Target, then, now job.Inputs) (vars, fields []string) {
	for _, group := range planned.InputGroups(t) {
		thenVars, thenConnection, wasKnown := then.Of(t, group)
		nowVars, nowConnection, known := now.Of(t, group)

		if wasKnown && known {
			vars = append(vars, job.DifferentKeys(thenVars, nowVars)...)
			fields = append(fields, differentFields(thenConnection, nowConnection)...)
		}
	}

	return unique(vars), unique(fields)
}

func unique(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

// differentFields returns the names of the fields that differ.
func differentFields(then, now configuration.Connection) []string {
	var (
		fields []string
		a, b   = reflect.ValueOf(then), reflect.ValueOf(now)
	)

	for i := range a.NumField() {
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			fields = append(fields, name)
		}
	}

	return fields
}
