// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// fakeIdentity is the identity of the fake manager, which is a part of its plans.
const fakeIdentity = "3f9a1c207b1e44d2"

// planID returns the id of the nth plan of the fake manager.
func planID(n int) string { return fmt.Sprintf("3f9a1c20-%08d", n) }

// Plan stores a plan of any request on known nodes.
func (m *fakeManager) Plan(ctx context.Context, c access.Caller, r job.Request) (plan.Plan, error) {
	if err := m.called("plan %s %v group=%q check=%t actor=%s", r.Verb, r.Nodes, r.Group, r.Check,
		c.Principal); err != nil {
		return plan.Plan{}, err
	}

	if _, err := c.Check(ctx, m, m.View(), access.Request(r, inventory.DefaultGroups())); err != nil {
		return plan.Plan{}, err
	}

	if missing := m.View().Missing(r.Nodes); len(missing) > 0 {
		return plan.Plan{}, m.View().MissingNodes(missing)
	}

	now := time.Now()
	p := plan.Plan{
		Manager: fakeIdentity,
		Actor:   c.Principal,
		Created: now,
		Expires: now.Add(time.Hour),
		World: plan.World{Job: job.Job{
			Verb:           r.Verb,
			Group:          r.Group,
			JobOptions:     inventory.JobOptions{Serial: r.Serial},
			PlaybookDigest: "d1",
			Warnings:       []string{"careful"},
		}, Ahead: []string{"1"}},
		Expected: &api.PlanTime{
			Jobs:     3,
			Median:   api.Duration(time.Minute),
			Shortest: api.Duration(time.Second),
			Longest:  api.Duration(time.Hour),
			Total:    api.Duration(time.Minute),
		},
		Rules: []api.PlanRule{
			{Group: "service-worker", Requires: "service-master", Minimum: 1, Joins: true, Left: 1, Dependents: 4},
		},
		Service: []api.PlanService{
			{Group: "service-worker", Nodes: r.Nodes, AtOnce: 1, Before: 5, RequiredBy: []string{"x"}},
		},
	}

	for _, name := range r.Nodes {
		n, _ := m.View().Node(name)
		p.Job.Targets = append(p.Job.Targets, job.Target{
			Name: name, Addr: n.Addr, Label: n.Label, Serial: n.Serial, From: n.Status, Group: r.Group,
		})
		p.Nodes = append(p.Nodes, plan.Node{Name: name, State: n.State})
	}

	if r.Check {
		p.Check = "1"
	}

	p.Revision = m.change(func(v *state.View) {
		p.ID = planID(len(record.List(v, &plan.Kind)) + 1)
		p.Revision = v.Revision
		v.View = record.Set(v.View, &plan.Kind, p.ID, &p)
	})

	in := job.Inputs{Extra: configuration.Vars{"release": "2"}, Vars: map[string]map[string]configuration.Var{}}
	for _, t := range p.Job.Targets {
		in.Vars[t.Name] = map[string]configuration.Var{"motd": {Value: "hello", Origin: configuration.OriginGlobal}}
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	m.inputs[plan.InputsOf(p.ID)] = in

	return p, nil
}

func (m *fakeManager) FindPlan(v *state.View, id string) (plan.Plan, error) {
	if err := plan.CheckID(id, fakeIdentity); err != nil {
		return plan.Plan{}, err
	}

	p := record.Get(v, &plan.Kind, id)
	if p == nil {
		return plan.Plan{}, plan.Unknown(id, v.Jobs())
	}
	return *p, nil
}

func (m *fakeManager) ApplyPlan(ctx context.Context, c access.Caller, id string) (job.Job, error) {
	if err := m.called("apply plan %s actor=%s", id, c.Principal); err != nil {
		return job.Job{}, err
	}

	subject := func(s *state.Scoped) error {
		p, err := m.FindPlan(s.View, id)
		if err != nil {
			return err
		}
		return s.CheckTargets(p.Job.Targets)
	}
	if _, err := c.Check(ctx, m, m.View(), subject); err != nil {
		return job.Job{}, err
	}

	p, err := m.FindPlan(m.View(), id)
	if err != nil {
		return job.Job{}, err
	}

	if c.Key != nil {
		m.mu.Lock()
		d, ok := m.results[c.Key.ID]
		m.mu.Unlock()

		if c.Key.Replayed = ok; ok {
			return m.View().Job(d.Job)
		}
	}

	if err := p.CheckOpen(time.Now(), plan.Again{}); err != nil {
		return job.Job{}, err
	}

	var j job.Job

	m.change(func(v *state.View) {
		j = p.Job
		j.ID, j.Status = strconv.Itoa(len(v.Jobs())+1), job.Queued
		j.Plan, j.PlannedBy, j.Actor = id, p.Actor, c.Principal
		j.Accepted, j.Revision = time.Unix(1700000000, 0).UTC(), v.Revision
		v.PutJob(&j)

		p.Applied, p.AppliedBy, p.AppliedAt = j.ID, c.Principal, time.Now()
		v.View = record.Set(v.View, &plan.Kind, id, &p)
	})

	m.mu.Lock()
	defer m.mu.Unlock()

	if c.Key != nil {
		m.results[c.Key.ID] = access.Result{Request: c.Key.Request, Job: j.ID}
	}

	return j, nil
}

func (m *fakeManager) DeletePlan(ctx context.Context, c access.Caller, id string) (int64, error) {
	subject := func(s *state.Scoped) error {
		_, err := m.FindPlan(s.View, id)
		return err
	}
	if _, err := c.Check(ctx, m, m.View(), subject); err != nil {
		return 0, err
	}

	if _, err := m.FindPlan(m.View(), id); err != nil {
		return 0, err
	}

	return m.change(func(v *state.View) {
		v.View = record.Set(v.View, &plan.Kind, id, nil)
	}), nil
}

func (m *fakeManager) Foreseen(_ context.Context, v *state.View, p plan.Plan) (*api.PlanCheck, error) {
	if p.Check == "" {
		return nil, nil
	}

	j, err := v.Job(p.Check)
	if err != nil {
		return nil, err
	}

	var nodes []api.PlanFindings
	for _, t := range p.Job.Targets {
		nodes = append(nodes, api.PlanFindings{Node: t.Name, Tasks: []api.TaskFinding{
			{Kind: api.FindingDiffers, Playbook: "site.yml", Task: "Write", Diff: "-bb-1\n+ccc-1"},
		}})
	}

	return &api.PlanCheck{Job: j.ID, Nodes: nodes}, nil
}
