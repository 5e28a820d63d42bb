// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"maps"
	"slices"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Runs returns the imports of a view, the newest first, without their nodes.
func Runs(v *state.View) []api.ImportRun {
	all := []api.ImportRun{}

	for _, i := range record.List(v, &Kind) {
		run := i.run(v)
		run.Nodes = nil
		all = append(all, run)
	}

	slices.SortFunc(all, func(a, b api.ImportRun) int { return b.Started.Compare(a.Started) })

	return all
}

// Run returns an import, and how far its nodes came.
func Run(v *state.View, id string) (api.ImportRun, error) {
	i := record.Get(v, &Kind, id)
	if i == nil {
		return api.ImportRun{}, inventory.Errorf(
			inventory.KindNotFound,
			"there is no import %q",
			inventory.Shorten(
				id,
				100,
			),
		).Do("look for it in the list of imports, GET %s; the results of a day are kept", api.PathImports)
	}

	return i.run(v), nil
}

func (i *Import) run(v *state.View) api.ImportRun {
	out := api.ImportRun{
		ID: i.ID, Actor: i.Actor, Started: i.Started, Registered: !i.Ended.IsZero(), Verbs: i.Verbs, Jobs: i.Jobs,
		Waits: i.Waits,
		Done:  !i.Ended.IsZero() && len(i.Then) == 0,
	}

	steps := make([]step, len(i.Jobs))

	for at, id := range i.Jobs {
		j, err := v.Job(id)
		if err != nil {
			continue // it is no longer kept
		}

		steps[at] = step{job: &j, targets: map[string]job.Target{}}
		for _, t := range j.Targets {
			steps[at].targets[t.Name] = t
		}

		if !j.Status.Ended() {
			out.Done = false
		}
	}

	// A node may be of the request, or of the jobs alone.
	takes := map[string]bool{} // those that the verbs take
	for name := range i.Actions {
		takes[name] = false
	}

	for name := range i.Skipped {
		takes[name] = false
	}

	for _, name := range slices.Concat(i.Nodes, i.Joins) {
		takes[name] = true
	}

	joins, at := setOf(i.Joins), joinsAt(i.Verbs)

	for _, name := range slices.Sorted(maps.Keys(takes)) {
		first := 0
		if joins[name] {
			first = at
		}

		n := i.node(v, name, takes[name], first, steps)
		if n.Error != "" && n.Step != "" {
			out.Failed++
		}

		out.Nodes = append(out.Nodes, n)
	}

	out.Total = len(out.Nodes)

	return out
}

// step is a job of an import, with its targets by name; zero: it is no longer kept.
type step struct {
	job     *job.Job
	targets map[string]job.Target
}

// node returns how far a node came. takes: the verbs take it, beginning with the one at first.
func (i *Import) node(v *state.View, name string, takes bool, first int, steps []step) api.ImportedNode {
	out := api.ImportedNode{Node: name, Action: i.Actions[name]}

	if n, known := v.Lookup(name); known {
		out.Status = n.Status
	}

	if reason := i.Skipped[name]; reason != "" {
		out.Action, out.Error = api.ImportSkipped, reason
		return out
	}

	if !takes {
		return out // nothing follows
	}

	for at, s := range steps {
		if s.job == nil || at < first {
			continue
		}

		target, takes := s.targets[name]
		if !takes {
			out.Step, out.Job, out.Error = i.Verbs[at], "", i.Refused[name]
			return out
		}

		out.Step, out.Job = s.job.Verb, s.job.ID

		if !s.job.Status.Ended() {
			return out
		}

		if r := s.job.ResultOf(target); !r.OK {
			out.Error = r.Error
			return out
		}
	}

	out.Step, out.Job, out.Error = "", "", i.Refused[name]
	if left := i.Verbs[max(first, len(i.Jobs)):]; len(left) > 0 && (out.Error != "" || len(i.Then) > 0) {
		out.Step = left[0]
	}

	return out
}
