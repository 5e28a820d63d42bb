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
	"github.com/contiv/cluster/inventory"
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
	c := comparison{plan: p, now: now}

	c.targets()
	c.nodes()

	for _, t := range p.Job.Targets {
		c.inputs(t, then, inputs)
	}

	c.ahead()
	c.rules()

	if !slices.Equal(p.HostCAs, now.HostCAs) {
		c.add("", "the setting ssh.host_ca was changed")
	}

	return c.found
}

type comparison struct {
	plan  Plan
	now   World
	found []Difference
}

func (c *comparison) add(node, format string, args ...any) {
	c.found = append(c.found, Difference{node, fmt.Sprintf(format, args...)})
}

// targets compares the targets, and the condition of each before and after the job.
func (c *comparison) targets() {
	planned, found := byName(c.plan.Job.Targets), byName(c.now.Job.Targets)

	for _, t := range c.now.Job.Targets {
		if _, ok := planned[t.Name]; !ok {
			c.add(t.Name, "%s is not in the plan", t.Name)
		}
	}

	for _, then := range c.plan.Job.Targets {
		now, ok := found[then.Name]
		if !ok {
			c.add(then.Name, "%s is no target any more", then.Name)
			continue
		}

		for _, part := range []struct{ name, then, now string }{
			{"address", then.Addr, now.Addr},
			{"node", then.Node(), now.Node()},
			{"status", string(then.From), string(now.From)},
			{"group", then.FromGroup, now.FromGroup},
			{"group after the job", then.Group, now.Group},
			{"residue", strings.Join(then.Residue, ", "), strings.Join(now.Residue, ", ")},
			{"host keys of the request", strings.Join(then.HostKeys, ", "), strings.Join(now.HostKeys, ", ")},
		} {
			if part.then != part.now {
				c.add(
					then.Name,
					"%s: its %s is %s now, and was %s",
					then.Name,
					part.name,
					orNone(part.now),
					orNone(part.then),
				)
			}
		}

		c.configured(then, now)
	}
}

func byName(targets []job.Target) map[string]job.Target {
	found := make(map[string]job.Target, len(targets))
	for _, t := range targets {
		found[t.Name] = t
	}

	return found
}

// configured compares the jobs and the playbooks that have configured the target.
func (c *comparison) configured(then, now job.Target) {
	expected := slices.Contains(c.plan.Ahead, now.Applied)

	switch {
	case then.Applied != now.Applied && now.Applied == "":
		c.add(then.Name, "%s: its configuration is not known any more, and was that of job %s", then.Name, then.Applied)
	case then.Applied != now.Applied && !expected:
		c.add(then.Name, "%s: job %s has configured it since", then.Name, now.Applied)
	case !maps.Equal(then.Playbooks, now.Playbooks) && !expected:
		c.add(then.Name, "%s: other playbooks have configured it than those of the plan", then.Name)
	}
}

// nodes compares the part of the nodes that a job does not pin.
func (c *comparison) nodes() {
	found := make(map[string]Node, len(c.now.Nodes))
	for _, n := range c.now.Nodes {
		found[n.Name] = n
	}

	for _, then := range c.plan.Nodes {
		now, ok := found[then.Name]
		if !ok {
			continue // the targets differ, too
		}

		if now.State != then.State {
			c.add(then.Name, "%s: its state is %s now, and was %s", then.Name, now.State, then.State)
		}

		// A first contact since then records the keys.
		if len(then.HostKeys) > 0 && !slices.Equal(then.HostKeys, now.HostKeys) {
			c.add(then.Name, "%s: its recorded ssh host key was changed", then.Name)
		}

		if !slices.Equal(then.Duplicates, now.Duplicates) {
			c.add(then.Name, "%s: the other hosts that claim its name were %s, and are %s",
				then.Name, orNone(strings.Join(then.Duplicates, ", ")), orNone(strings.Join(now.Duplicates, ", ")))
		}
	}
}

// inputs compares the variables and the ssh parameters of a target, in each group of the plan that both have.
// A target in other groups differs anyway.
func (c *comparison) inputs(t job.Target, then, now job.Inputs) {
	var keys, fields []string

	for _, group := range c.plan.Job.InputGroups(t) {
		vars, connection, planned := then.Of(t, group)
		nowVars, nowConnection, known := now.Of(t, group)

		if planned && known {
			keys = append(keys, job.DifferentKeys(vars, nowVars)...)

			for _, field := range differentFields(connection, nowConnection) {
				if !slices.Contains(fields, field) {
					fields = append(fields, field)
				}
			}
		}
	}

	if len(keys) > 0 {
		slices.Sort(keys)
		c.add(t.Name, "%s: variables changed: %s", t.Name, job.ShortList(slices.Compact(keys)))
	}

	if len(fields) > 0 {
		c.add(t.Name, "%s: ssh parameters changed: %s", t.Name, strings.Join(fields, ", "))
	}
}

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

// ahead finds jobs that have come between.
func (c *comparison) ahead() {
	for _, id := range c.now.Ahead {
		if id != c.plan.Check && !slices.Contains(c.plan.Ahead, id) {
			c.add("", "job %s has come before it, on some of its nodes", id)
		}
	}
}

// rules compares the rules of the groups that the targets enter or leave.
func (c *comparison) rules() {
	touched := map[string]bool{}
	for _, t := range c.plan.Job.Targets {
		touched[t.Group], touched[t.FromGroup] = true, true
	}

	isTouched := func(group string) bool { return touched[group] }
	matters := func(g inventory.Group) bool {
		return isTouched(g.Name) || slices.ContainsFunc(g.Requires.Groups(), isTouched)
	}
	then, now := requirements(c.plan.Groups, matters), requirements(c.now.Groups, matters)

	all := maps.Clone(then)
	maps.Copy(all, now)

	for _, group := range slices.Sorted(maps.Keys(all)) {
		was, existed := then[group]
		is, exists := now[group]

		switch {
		case existed && !exists:
			c.add("", "the rule of group %s, which required %s, does not apply any more", group, orNone(was))
		case !existed:
			c.add("", "group %s requires %s now", group, orNone(is))
		case was != is:
			c.add("", "group %s requires %s now, and required %s", group, orNone(is), orNone(was))
		}
	}

	c.budgets(touched)
	c.tags()
}

// tags compares the tags of the groups that the job configures or verifies.
func (c *comparison) tags() {
	seen := map[string]bool{}

	for _, t := range c.plan.Job.Targets {
		was, is := c.plan.Job.GroupTags[t.Group], c.now.Job.GroupTags[t.Group]
		if seen[t.Group] || was.Equal(is) {
			continue
		}

		seen[t.Group] = true
		c.add("", "the tags of group %s are %s now, and were %s", t.Group, orNone(is.String()), orNone(was.String()))
	}
}

// budgets compares the budgets of the groups that the targets enter or leave. A group
// that is gone has another rule, too.
func (c *comparison) budgets(touched map[string]bool) {
	for _, was := range c.plan.Groups {
		is, err := c.now.Groups.Get(was.Name)
		if err != nil || !touched[was.Name] || is.Budget == was.Budget {
			continue
		}

		c.add("", "the budget of group %s is %s now, and was %s",
			was.Name, orNone(is.Budget.String()), orNone(was.Budget.String()))
	}
}

// requirements returns those of the groups that matter.
func requirements(groups inventory.Groups, matters func(inventory.Group) bool) map[string]string {
	found := map[string]string{}
	for _, g := range groups {
		if matters(g) {
			found[g.Name] = g.Requires.String()
		}
	}

	return found
}

func orNone(text string) string { return cmp.Or(text, "none") }
