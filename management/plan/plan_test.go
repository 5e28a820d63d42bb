// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

var (
	hostKeyChanged = []string{"a-1: its recorded ssh host key was changed"}
	caChanged      = []string{"the setting ssh.host_ca was changed"}
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// world is a plan for two nodes with its inputs, new at every call.
func world() (Plan, job.Inputs) {
	target := func(name, group string) job.Target {
		return job.Target{
			Name: name, Addr: "10.0.0.1", Label: name[:1], Serial: "1", From: inventory.Allocated, FromGroup: group,
			Group: group, Applied: "5", Playbooks: map[string]string{group: "d1"},
		}
	}

	p := Plan{
		ID: "3f9a1c20-7b1e44d2", Expires: noon,
		World: World{
			Job: job.Job{
				Verb: inventory.VerbUpdate, JobOptions: inventory.JobOptions{Serial: "1"}, PlaybookDigest: "d1",
				Targets: []job.Target{target("a-1", "master"), target("b-1", "worker")},
			},
			Nodes: []Node{
				{Name: "a-1", State: inventory.Discovered, HostKeys: []string{"key"}},
				{Name: "b-1", State: inventory.Discovered},
			},
			Groups: inventory.Groups{
				{Name: "master"}, {Name: "worker", Requires: inventory.Requirements{"master": 1}}, {Name: "other"},
			},
			HostCAs: []string{"ca"}, Ahead: []string{"7"},
		},
	}

	in := job.Inputs{
		Vars: map[string]map[string]configuration.Var{
			"a-1": {
				"x":   {Value: "1"},
				"pin": {Value: configuration.NewSecret("s3cret")},
				"out": {Value: configuration.SourcedSecret()},
			},
			"b-1": {"x": {Value: "1"}},
		},
		Connections: map[string]configuration.Connection{"a-1": {User: "u"}},
	}

	return p, in
}

// TestCompareCleanup: the variables and ssh parameters of the group that a target leaves are a part of the plan.
func TestCompareCleanup(t *testing.T) {
	t.Parallel()

	inputs := func(value, user string) job.Inputs {
		var in job.Inputs
		in.Set("a-1", "other", map[string]configuration.Var{"x": {Value: "1"}}, configuration.Connection{})
		in.Set("a-1", "master", map[string]configuration.Var{"x": {Value: value}}, configuration.Connection{User: user})
		return in
	}

	p, _ := world()
	p.Job.Targets = p.Job.Targets[:1]
	p.Job.Targets[0].Group = "other"

	for _, c := range []struct {
		value, user string
		want        []string
	}{
		{"2", "u", nil},
		{"3", "u", []string{"a-1: variables changed: x"}},
		{"2", "v", []string{"a-1: ssh parameters changed: user"}},
	} {
		var got []string
		for _, d := range Compare(p, inputs("2", "u"), p.World, inputs(c.value, c.user)) {
			got = append(got, d.Text)
		}

		if !slices.Equal(got, c.want) {
			t.Errorf("the differences are %q, want %q", got, c.want)
		}
	}

	// A plan of a former version has the variables of one group.
	former := inputs("2", "u")
	former.Groups, former.CleanupVars, former.CleanupConnections = nil, nil, nil

	if got := Compare(p, former, p.World, inputs("3", "v")); len(got) > 0 {
		t.Errorf("the differences to a former plan are %q", got)
	}
}

// TestCompare changes one thing of the world at a time: the differences name it, and
// nothing else. Most of it is a difference, and the rest was to be expected.
func TestCompare(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		change func(w *World, in job.Inputs)
		want   []string
	}{
		"nothing": {func(*World, job.Inputs) {}, nil},
		"a secret": {func(_ *World, in job.Inputs) {
			in.Vars["a-1"]["pin"] = configuration.Var{Value: configuration.NewSecret("other")}
		}, []string{"a-1: variables changed: pin"}},
		"variables": {func(_ *World, in job.Inputs) {
			in.Vars["b-1"] = map[string]configuration.Var{"z": {Value: "1"}, "y": {Value: "1"}}
		}, []string{"b-1: variables changed: x, y, z"}},
		"the origin of a variable": {func(_ *World, in job.Inputs) {
			in.Vars["b-1"]["x"] = configuration.Var{Value: "1", Origin: configuration.OriginNode}
		}, nil},
		"ssh parameters": {func(_ *World, in job.Inputs) {
			yes := true
			in.Connections["a-1"] = configuration.Connection{User: "u", Become: &yes, KeyFile: "/k"}
		}, []string{"a-1: ssh parameters changed: become, key_file"}},
		"the tags of a group": {func(w *World, _ job.Inputs) {
			w.Job.GroupTags = map[string]inventory.Selection{"master": {Tags: []string{"web"}}}
		}, []string{"the choice of tasks of group master is tags web now, and was none"}},
		"the status": {func(w *World, _ job.Inputs) { w.Job.Targets[0].From = inventory.Quarantined },
			[]string{"a-1: its status is Quarantined now, and was Allocated"}},
		"the group": {func(w *World, _ job.Inputs) { w.Job.Targets[0].FromGroup = "other" },
			[]string{"a-1: its group is other now, and was master"}},
		"the group after": {func(w *World, _ job.Inputs) { w.Job.Targets[1].Group = "" },
			[]string{"b-1: its group after the job is none now, and was worker"}},
		"the address": {func(w *World, _ job.Inputs) { w.Job.Targets[0].Addr = "10.0.0.9" },
			[]string{"a-1: its address is 10.0.0.9 now, and was 10.0.0.1"}},
		"the residue": {func(w *World, _ job.Inputs) { w.Job.Targets[0].Residue = []string{"other"} },
			[]string{"a-1: its residue is other now, and was none"}},
		"a target less": {func(w *World, _ job.Inputs) { w.Job.Targets = w.Job.Targets[:1] },
			[]string{"b-1: it is no target any more"}},
		"a target more": {func(w *World, _ job.Inputs) {
			w.Job.Targets = append(w.Job.Targets, job.Target{Name: "c-1"})
		}, []string{"c-1: it is not in the plan"}},
		"configured by another job": {func(w *World, _ job.Inputs) { w.Job.Targets[0].Applied = "9" },
			[]string{"a-1: job 9 has configured it since"}},
		"configured by a job ahead": {func(w *World, _ job.Inputs) {
			w.Job.Targets[0].Applied, w.Job.Targets[0].Playbooks = "7", map[string]string{"master": "d2"}
		}, nil},
		"configured by nothing known": {func(w *World, _ job.Inputs) { w.Job.Targets[0].Applied = "" },
			[]string{"a-1: its configuration is not known any more, and was that of job 5"}},
		"other playbooks": {func(w *World, _ job.Inputs) {
			w.Job.Targets[0].Playbooks = map[string]string{"master": "d2"}
		}, []string{"a-1: other playbooks have configured it than those of the plan"}},
		"the state": {func(w *World, _ job.Inputs) { w.Nodes[0].State = inventory.Disappeared },
			[]string{"a-1: its state is Disappeared now, and was Discovered"}},
		"a host key": {func(w *World, _ job.Inputs) { w.Nodes[0].HostKeys = []string{"other"} },
			hostKeyChanged},
		"no host key":                {func(w *World, _ job.Inputs) { w.Nodes[0].HostKeys = nil }, hostKeyChanged},
		"the key of a first contact": {func(w *World, _ job.Inputs) { w.Nodes[1].HostKeys = []string{"first"} }, nil},
		"another claims the name": {func(w *World, _ job.Inputs) { w.Nodes[0].Duplicates = []string{"10.9.9.9"} },
			[]string{"a-1: its list of other hosts that claim its name is 10.9.9.9 now, and was none"}},
		"the job ahead has ended": {func(w *World, _ job.Inputs) { w.Ahead = nil }, nil},
		"another job ahead": {func(w *World, _ job.Inputs) { w.Ahead = []string{"7", "8"} },
			[]string{"job 8 has come before it, on some of its nodes"}},
		"the check ahead": {func(w *World, _ job.Inputs) { w.Ahead = []string{"6"} }, nil},
		"a rule": {func(w *World, _ job.Inputs) { w.Groups[1].Requires = inventory.Requirements{"other": 1} },
			[]string{"the requirement of group worker is 1 of other now, and was 1 of master"}},
		"a rule more": {func(w *World, _ job.Inputs) { w.Groups[0].Requires = inventory.Requirements{"other": 1} },
			[]string{"the requirement of group master is 1 of other now, and was none"}},
		"a budget": {func(w *World, _ job.Inputs) { w.Groups[1].Budget.MinAvailable = 2 },
			[]string{"the budget of group worker is min_available 2 now, and was none"}},
		"a group more": {func(w *World, _ job.Inputs) {
			w.Groups = append(w.Groups, inventory.Group{Name: "new"})
		}, nil},
		"a group that needs one of the plan": {func(w *World, _ job.Inputs) {
			w.Groups = append(w.Groups, inventory.Group{Name: "new", Requires: inventory.Requirements{"worker": 1}})
		}, []string{"the requirement of group new is 1 of worker now, and was none"}},
		"a group less": {func(w *World, _ job.Inputs) { w.Groups = w.Groups[:1] },
			[]string{"the requirement of group worker is none now, and was 1 of master"}},
		"a CA":                                  {func(w *World, _ job.Inputs) { w.HostCAs = nil }, caChanged},
		"the number of playbooks of the folder": {func(w *World, _ job.Inputs) { w.Job.PlaybookDigest = "d2" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			p, then := world()
			p.Check = "6"

			other, now := world()
			c.change(&other.World, now)

			var got []string
			for _, d := range Compare(p, then, other.World, now) {
				got = append(got, d.Text)

				if strings.Contains(d.Text, "s3cret") || d.Node != "" && !strings.Contains(d.Text, d.Node) {
					t.Errorf("%+v", d)
				}
			}

			if !slices.Equal(got, c.want) {
				t.Errorf("the differences are %q, want %q", got, c.want)
			}

			err := p.Refuse(Compare(p, then, other.World, now), Again{})
			if (err == nil) != (c.want == nil) {
				t.Errorf("the refusal is %v", err)
			}
		})
	}
}

// TestRefusalIsShort: a refusal names the first differences, the number of the others,
// and the nodes.
func TestRefusalIsShort(t *testing.T) {
	t.Parallel()

	p, _ := world()

	var all []Difference
	for range 20 {
		all = append(all, Difference{"a-1", "a-1: x"})
	}

	err := p.Refuse(all, Again{})
	if text := err.Error(); strings.Count(text, "a-1: x") != 12 || !strings.Contains(text, "and 8 more differences") {
		t.Error(text)
	}
}

// TestCheckOpen: a plan is open until it is applied, or its time is over.
func TestCheckOpen(t *testing.T) {
	t.Parallel()

	p, _ := world()
	before := noon.Add(-time.Second)

	if err := p.CheckOpen(before, Again{}); err != nil || !p.Open(before) ||
		!slices.Equal(p.InUse(before), []string{"d1"}) {
		t.Errorf("%v, %v", err, p.InUse(before))
	}

	if err := p.CheckOpen(noon, Again{}); inventory.KindOf(err) != inventory.KindRefused || p.InUse(noon) != nil {
		t.Errorf("at its end: %v", err)
	}

	if got := Expired([]*Plan{&p}, before); got != nil {
		t.Errorf("expired: %v", got)
	}

	if got := Expired([]*Plan{&p}, noon); !slices.Equal(got, []string{p.ID}) {
		t.Errorf("expired: %v", got)
	}

	p.Applied = "9"
	if err := p.CheckOpen(before, Again{}); err == nil || !strings.Contains(err.Error(), "as job 9") ||
		p.InUse(before) != nil {
		t.Errorf("applied: %v", err)
	}
}

// TestID: ids are new, and name their manager.
func TestID(t *testing.T) {
	t.Parallel()

	const manager = "3f9a1c207b1e44d2"

	one, two := NewID(manager), NewID(manager)
	if one == two || CheckID(one, manager) != nil {
		t.Errorf("%s, %s: %v", one, two, CheckID(one, manager))
	}

	if err := CheckID(one, "aaaaaaaa7b1e44d2"); inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "of another manager") {
		t.Error(err)
	}
}

// TestExpect measures only what did the same, and succeeded.
func TestExpect(t *testing.T) {
	t.Parallel()

	took := func(verb inventory.Verb, status job.Status, nodes int, d time.Duration) job.Job {
		return job.Job{
			Verb: verb, Status: status, Targets: make([]job.Target, nodes), Started: noon, Ended: noon.Add(d),
		}
	}

	check := took(inventory.VerbApply, job.Complete, 1, time.Hour)
	check.Check = true

	part := took(inventory.VerbApply, job.Complete, 1, time.Hour)
	part.Tags = []string{"x"}

	jobs := jobtest.List(
		took(inventory.VerbApply, job.Complete, 2, 4*time.Minute),
		took(inventory.VerbApply, job.Complete, 1, 10*time.Minute),
		took(inventory.VerbApply, job.Complete, 1, time.Minute),
		took(inventory.VerbApply, job.Complete, 1, 4*time.Minute),
		took(inventory.VerbApply, job.Errored, 1, time.Hour),
		took(inventory.VerbUpdate, job.Complete, 1, time.Hour),
		check, part,
	)

	next := job.Job{Verb: inventory.VerbApply, Targets: make([]job.Target, 3)}
	const minute = api.Duration(time.Minute)

	want := api.PlanTime{Jobs: 4, Median: 3 * minute, Shortest: minute, Longest: 10 * minute, Total: 9 * minute}

	if got := Expect(jobs, next); got == nil || *got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	if got := Expect(jobs[4:], next); got != nil {
		t.Errorf("without any: %+v", got)
	}
}

// TestDescribe: what goes out of service, and the rules, follow the batches.
func TestDescribe(t *testing.T) {
	t.Parallel()

	node := func(name, group string) *inventory.Node {
		return &inventory.Node{
			Name: name, Addr: name, Status: inventory.Allocated, Group: group, State: inventory.Discovered,
		}
	}

	s := jobtest.With(
		node("a-1", "master"), node("b-1", "master"), node("c-1", "worker"), node("d-1", "worker"),
	)
	groups := inventory.Groups{{Name: "master"}, {Name: "worker", Requires: inventory.Requirements{"master": 1}}}

	for _, c := range []struct {
		verb    inventory.Verb
		serial  string
		nodes   []string
		rules   []api.PlanRule
		service []api.PlanService
	}{
		{inventory.VerbApply, "", []string{"a-1"}, nil, nil},
		{
			inventory.VerbUpdate, "1", []string{"a-1", "c-1", "b-1"},
			[]api.PlanRule{{Group: "worker", Requires: "master", Minimum: 1, Joins: true, Left: 1, Dependents: 2}},
			[]api.PlanService{
				{Group: "master", Nodes: []string{"a-1", "b-1"}, AtOnce: 1, Before: 2, RequiredBy: []string{"worker"}},
				{Group: "worker", Nodes: []string{"c-1"}, AtOnce: 1, Before: 2},
			},
		},
		{
			inventory.VerbDecommission, "", []string{"a-1"},
			[]api.PlanRule{{Group: "worker", Requires: "master", Minimum: 1, Left: 1, Dependents: 2}},
			[]api.PlanService{
				{Group: "master", Nodes: []string{"a-1"}, AtOnce: 1, Before: 2, RequiredBy: []string{"worker"}},
			},
		},
	} {
		j, err := job.Accept(
			s,
			groups,
			job.Request{
				Verb:       c.verb,
				Nodes:      c.nodes,
				JobOptions: inventory.JobOptions{Serial: c.serial},
				Timeout:    time.Hour,
			},
		)
		if err != nil {
			t.Errorf("%s: %v", c.verb, err)
			continue
		}

		p := Plan{World: NewWorld(s, j, groups, nil)}
		p.Describe(s, 4, nil)

		if !reflect.DeepEqual(p.Rules, c.rules) || !reflect.DeepEqual(p.Service, c.service) {
			t.Errorf("%s: %+v, %+v", c.verb, p.Rules, p.Service)
		}
	}
}
