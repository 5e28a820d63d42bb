// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
)

// rules returns the rules that the verb of the job was judged by. nodes are sorted by
// name.
func rules(j job.Job, nodes []*inventory.Node, groups inventory.Groups) []api.PlanRule {
	verb, err := job.VerbOf(j.Verb)
	if err != nil {
		return nil
	}

	first := names(j.Batches()[0])

	var found []api.PlanRule

	add := func(g inventory.Group, required string, joins bool) {
		r := api.PlanRule{Group: g.Name, Requires: required, Minimum: g.Requires[required], Joins: joins}

		for _, n := range nodes {
			if slices.Contains(first, n.Name) {
				continue
			}

			if n.Group == required && n.Healthy() {
				r.Left++
			}

			if n.Group == g.Name && n.InService() {
				r.Dependents++
			}
		}

		found = append(found, r)
	}

	for _, g := range groups {
		joins := func(t job.Target) bool { return t.Group == g.Name }

		for _, required := range g.Requires.Groups() {
			leaves := func(t job.Target) bool { return t.FromGroup == required && t.From == inventory.Allocated }

			switch {
			case verb.Joins && slices.ContainsFunc(j.Targets, joins):
				add(g, required, true)
			case verb.Leaves && slices.ContainsFunc(j.Targets, leaves):
				add(g, required, false)
			}
		}
	}

	return found
}

// service returns the interruptions of service by the job, by group.
func service(j job.Job, nodes []*inventory.Node, groups inventory.Groups) []api.PlanService {
	verb, err := job.VerbOf(j.Verb)
	if err != nil || !verb.Leaves && !verb.Row.Interrupts() {
		return nil
	}

	var found []api.PlanService
	for _, g := range groups {
		s := api.PlanService{Group: g.Name}

		for _, batch := range j.Batches() {
			taken := names(slices.DeleteFunc(slices.Clone(batch), func(t job.Target) bool {
				return t.FromGroup != g.Name || t.From != inventory.Allocated
			}))
			s.Nodes = append(s.Nodes, taken...)
			s.AtOnce = max(s.AtOnce, len(taken))
		}

		if len(s.Nodes) == 0 {
			continue
		}

		for _, n := range nodes {
			if n.Group == g.Name && n.Commissioned() {
				s.Before++
			}
		}

		s.RequiredBy = groups.Dependents(g.Name)
		found = append(found, s)
	}

	return found
}

func names(targets []job.Target) []string {
	list := make([]string, len(targets))
	for i, t := range targets {
		list[i] = t.Name
	}

	return list
}

// measured bounds the jobs that are measured, the newest ones.
const measured = 50

// Expect measures the kept jobs that did the same as j would, and succeeded: the time
// from start to end, divided by the number of nodes. It is nil if there are none.
func Expect(jobs []*job.Job, j job.Job) *api.PlanTime {
	var times []time.Duration

	for _, old := range slices.Backward(jobs) {
		alike := old.Verb == j.Verb && old.Check == j.Check && old.Force == j.Force &&
			slices.Equal(old.Tags, j.Tags) && slices.Equal(old.SkipTags, j.SkipTags)
		finished := old.Status == job.Complete && !old.Started.IsZero() && len(old.Targets) > 0

		if alike && finished {
			times = append(times, old.Ended.Sub(old.Started)/time.Duration(len(old.Targets)))
		}

		if len(times) == measured {
			break
		}
	}

	if len(times) == 0 {
		return nil
	}

	slices.Sort(times)

	// Of an even number, the median lies between the two in the middle.
	median := api.Duration(times[(len(times)-1)/2]+times[len(times)/2]) / 2

	return &api.PlanTime{
		Jobs: len(times), Median: median, Shortest: api.Duration(times[0]), Longest: api.Duration(times[len(times)-1]),
		Total: median * api.Duration(len(j.Targets)),
	}
}
