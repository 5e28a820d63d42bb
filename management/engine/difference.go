// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/state"
)

// Difference returns the findings of the last verification of the node, from the events of
// its job. It is KindNotFound if there is none, or if the job is no longer kept.
func (e *Engine) Difference(ctx context.Context, v *state.View, name string) (job.Difference, error) {
	n, err := v.Node(name)
	if err != nil {
		return job.Difference{}, err
	}
	if n.Verification == nil || n.Verification.ByGate() {
		return job.Difference{}, errUnverified(n)
	}

	j, err := v.Job(n.Verification.Job)
	if inventory.KindOf(err) == inventory.KindNotFound {
		return job.Difference{}, inventory.Errorf(inventory.KindNotFound,
			"the findings about %s are no longer kept: they belong to job %s, which has expired",
			name, n.Verification.Job).
			Do("verify it again").With(inventory.Submit(inventory.VerbVerify, name)).About(name)
	}

	if err != nil {
		return job.Difference{}, err
	}

	found := job.Difference{Node: name, Verdict: *n.Verification}
	for _, i := range j.Comparisons(name) {
		if err := e.readFindings(ctx, j, i, &found); err != nil {
			return job.Difference{}, err
		}
	}

	return found, nil
}

// errUnverified returns the error for a node without a verification.
func errUnverified(n inventory.Node) error {
	if n.Status != inventory.Allocated {
		return inventory.Errorf(inventory.KindNotFound,
			"%s was not verified: it is %s, and only a node in service can be verified", n.Name, n.Status).About(n.Name)
	}

	return inventory.Errorf(inventory.KindNotFound, "%s was not verified since its last configuration", n.Name).
		Do("verify it").With(inventory.Submit(inventory.VerbVerify, n.Name)).About(n.Name)
}

// readFindings adds the findings in the events of one run.
func (e *Engine) readFindings(ctx context.Context, j job.Job, index int, found *job.Difference) error {
	return e.eachEvent(ctx, j, index, func(event configuration.Event) { found.Add(j.Runs[index], event) })
}

// eachEvent calls visit for the events of one run.
func (e *Engine) eachEvent(ctx context.Context, j job.Job, index int, visit func(configuration.Event)) error {
	run := j.Runs[index]
	offset, end := run.Events, int64(-1)

	if index+1 < len(j.Runs) {
		end = j.Runs[index+1].Events
	}

	var stream configuration.EventStream

	for end < 0 || offset < end {
		data, err := e.store.ReadLog(ctx, j.ID, job.StreamEvents, offset)
		if err != nil || len(data) == 0 {
			return err
		}
		if end >= 0 {
			data = data[:min(int64(len(data)), end-offset)]
		}

		offset += int64(len(data))

		for _, event := range stream.Write(data) {
			visit(event)
		}
	}

	return nil
}

// Foreseen returns the findings of the check of a plan so far, or nil without a check. It
// is KindNotFound if the job of the check is no longer kept.
func (e *Engine) Foreseen(ctx context.Context, v *state.View, p plan.Plan) (*api.PlanCheck, error) {
	if p.Check == "" {
		return nil, nil
	}

	j, err := v.Job(p.Check)
	if err != nil {
		return nil, err
	}
	found := make([]job.Difference, len(j.Targets))
	at := make(map[string]*job.Difference, len(j.Targets))

	for i, t := range j.Targets {
		found[i].Node = t.Name
		at[t.Name] = &found[i]
	}

	out := &api.PlanCheck{Job: j.ID, Status: api.JobStatus(j.Status), Message: j.Message}

	for i, run := range j.Runs {
		err := e.eachEvent(ctx, j, i, func(event configuration.Event) {
			out.Truncated = out.Truncated || event.Event == "truncated"

			if d := at[event.Host]; d != nil {
				d.Add(run, event)
			}
		})
		if err != nil {
			return nil, err
		}
	}

	left := plan.MaxForeseen
	for _, d := range found {
		out.Truncated = out.Truncated || d.Truncated || len(d.Tasks) > left
		d.Tasks = d.Tasks[:min(len(d.Tasks), left)]

		if left -= len(d.Tasks); len(d.Tasks) > 0 {
			out.Nodes = append(out.Nodes, api.PlanFindings{Node: d.Node, Tasks: d.Tasks})
		}
	}

	return out, nil
}
