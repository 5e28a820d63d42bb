// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/server/legacy"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

// Plans makes, applies and deletes plans.
type Plans interface {
	// Plan decides about a request as Jobs.Submit does, and stores the result as a plan.
	Plan(ctx context.Context, c access.Caller, r job.Request) (plan.Plan, error)
	// ApplyPlan submits the job of a plan, or refuses if the world has changed since.
	ApplyPlan(ctx context.Context, c access.Caller, id string) (job.Job, error)
	DeletePlan(ctx context.Context, c access.Caller, id string) (revision int64, err error)
}

// PlanReader reads plans.
type PlanReader interface {
	// FindPlan returns the plan of the view with that id, or KindNotFound. It refuses the
	// id of another manager.
	FindPlan(v *state.View, id string) (plan.Plan, error)
	// Foreseen returns the findings of the check of a plan so far; nil without a check.
	Foreseen(ctx context.Context, v *state.View, p plan.Plan) (*api.PlanCheck, error)
}

func (s *Server) planRoutes() []rest.Route {
	return []rest.Route{
		act(s, s.postPlan, rest.Route{
			Path: api.PathPlans, Allow: access.Operators.Scoped(), Idempotent: true,
			Doc: &openapi.Doc{
				ID: "makePlan", Tag: aboutJobs, Summary: "Plan a job",
				Text: "Takes the same request as `POST /v1/jobs` and decides about it in the same way, but does " +
					"nothing: it stores what would be done, with all that it depends on. `POST " +
					"/v1/plans/{id}/apply` does exactly that, once, until the plan expires (`jobs.plan_for`). With " +
					"`check`, a job also runs at once to check what Ansible would change; the plan is that of the " +
					"job without the check.",
				Status: 201, Success: "The plan.", Revision: true,
				Location: "plan", Fails: openapi.Fails{404: "", 409: "", 410: ""},
			},
		}),
		show(s, s.getPlan, rest.Route{
			Path: api.PathPlan, Allow: access.Readers.Scoped(),
			Query: []openapi.Param{
				{
					Name: "vars", Type: openapi.Flag, Default: "true",
					Help: "Whether to include the variables. Default `true`.",
				},
			},
			Doc: &openapi.Doc{
				ID: "getPlan", Tag: aboutJobs, Summary: "Show one plan",
				Text: "Returns the plan with its targets, its variables and their origin (secrets are hidden), and " +
					"what its check has found so far.",
				Path: []openapi.Param{planID}, Success: "The plan.", Fails: openapi.Fails{409: ""},
			},
		}),
		act(s, s.deletePlan, rest.Route{
			Method: http.MethodDelete, Path: api.PathPlan, Allow: access.Operators.Scoped(),
			Doc: &openapi.Doc{
				ID: "deletePlan", Tag: aboutJobs, Summary: "Delete a plan",
				Text: "Its job, if it was applied, goes on.", Path: []openapi.Param{planID},
				Success: "The plan is deleted.", Revision: true, Fails: openapi.Fails{409: ""},
			},
		}),
		act(s, s.postApplyPlan, rest.Route{
			Path: api.PathApplyPlan, Allow: access.Operators.Scoped(), Idempotent: true,
			Doc: &openapi.Doc{
				ID: "applyPlan", Tag: aboutJobs, Summary: "Apply a plan",
				Text: "Submits the job of the plan: the same nodes, playbooks, variables and options. If anything " +
					"of that has changed since the plan was made, it refuses and names the changes: the nodes and " +
					"what configured them, their variables and ssh parameters, the playbooks, the rules of the " +
					"groups, or a job that has come before. The comparison and the acceptance are one transaction. " +
					"A plan is applied once.",
				Path: []openapi.Param{planID}, Status: 202,
				Success: "The accepted job.", Revision: true, Location: "job",
				Fails: openapi.Fails{
					409: "The plan was applied already, has expired, or does not fit any more.", 410: "",
				},
			},
		}),
	}
}

func (s *Server) postPlan(r *http.Request, c access.Caller, body api.JobRequest) (api.Plan, error) {
	request, err := jobRequest(r, body)
	if err != nil {
		return api.Plan{}, err
	}
	made, err := s.Plans.Plan(r.Context(), c, request)
	if err != nil {
		return api.Plan{}, err
	}
	rest.Note(r, "plan", made.ID)

	v := s.view(r.Context())

	return s.wholePlan(r.Context(), v, made.Within(v), true)
}

func (s *Server) getPlan(r *http.Request, v *state.Scoped) (api.Plan, int64, error) {
	q, id := rest.Query(r), rest.Param(r, "id")

	p, err := s.PlanReader.FindPlan(v.View, id)
	if err != nil {
		return api.Plan{}, 0, err
	}
	out, err := s.wholePlan(r.Context(), v, p, q.Flag("vars"))

	return out, p.Revision, err
}

func (s *Server) deletePlan(r *http.Request, c access.Caller, _ openapi.Empty) (api.Changed, error) {
	id := rest.Param(r, "id")

	rest.Note(r, "plan", id)

	revision, err := s.Plans.DeletePlan(r.Context(), c, id)
	return api.Changed{Revision: revision}, err
}

func (s *Server) postApplyPlan(r *http.Request, c access.Caller, _ openapi.Empty) (api.Job, error) {
	id := rest.Param(r, "id")
	rest.Note(r, "plan", id)
	j, err := s.Plans.ApplyPlan(r.Context(), c, id)
	return s.accepted(r, j, err)
}

// jobRequest returns the request for a job, or for a plan of one.
func jobRequest(r *http.Request, body api.JobRequest) (job.Request, error) {
	rest.Note(r, "verb", body.Verb)
	rest.Note(r, "nodes", slices.Concat(body.Nodes, body.Addrs, body.Ranges))

	extra, err := legacy.ExtraVars(body.ExtraVars, configuration.ParseVars)

	return job.Request{
		Verb:       body.Verb,
		Nodes:      body.Nodes,
		Addrs:      body.Addrs,
		Ranges:     body.Ranges,
		Group:      body.Group,
		Extra:      extra,
		JobOptions: body.JobOptions,
		Timeout:    time.Duration(body.Timeout),
		HostKeys:   body.HostKeys,
		Expect:     expectedFrom(body.Expect),
	}, err
}

// requestOf returns the wire form of a request, without its variables.
func requestOf(r job.Request) api.JobRequest {
	return api.JobRequest{
		Verb:       r.Verb,
		Nodes:      r.Nodes,
		Addrs:      r.Addrs,
		Ranges:     r.Ranges,
		Group:      r.Group,
		JobOptions: r.JobOptions,
		Timeout:    api.Duration(r.Timeout),
		HostKeys:   r.HostKeys,
	}
}

// planOf returns the wire form of a plan in a list.
func planOf(p plan.Plan, now time.Time) api.Plan {
	out := api.Plan{
		ID: p.ID, Manager: p.Manager, Status: api.PlanOpen, Actor: p.Actor, Created: p.Created, Expires: p.Expires,
		Job: p.Applied, AppliedBy: p.AppliedBy, Applied: optionalTime(p.AppliedAt),
		Request: requestOf(p.Job.Again(nil)), PlaybookDigest: p.Job.PlaybookDigest, Note: p.Job.Note,
		Helpers: p.Helpers, Ahead: p.Ahead, Waits: p.Waits, Warnings: p.Job.Warnings,
		Rules: p.Rules, Service: p.Service, Expected: p.Expected, Revision: p.Revision,
	}

	switch {
	case p.Applied != "":
		out.Status = api.PlanApplied
	case !p.Open(now):
		out.Status = api.PlanExpired
	}

	return out
}

// wholePlan returns the wire form of a single plan.
func (s *Server) wholePlan(ctx context.Context, v *state.Scoped, p plan.Plan, withVars bool) (api.Plan, error) {
	out := planOf(p, time.Now())
	out.Targets = planTargets(p)

	if withVars {
		in, err := s.Jobs.Inputs(ctx, plan.InputsOf(p.ID))
		if err != nil {
			return out, err
		}
		out.Vars = pinnedVars(p.Job, in)
	}

	if p.Check == "" {
		return out, nil
	}

	// Its targets are those of the plan, which the caller may see.
	found, err := s.PlanReader.Foreseen(ctx, v.Whole(), p)

	// The retention of jobs may be shorter than that of plans.
	if inventory.KindOf(err) == inventory.KindNotFound {
		out.Check = &api.PlanCheck{Job: p.Check, Message: "the job is no longer kept, nor is what it found"}
		return out, nil
	}

	if err != nil {
		return out, v.Error(err)
	}

	found.Message = v.Text(found.Message)
	for i, n := range found.Nodes {
		found.Nodes[i].Tasks = job.FindingsWithin(v, n.Tasks)
	}

	out.Check = found

	return out, nil
}

// planTargets returns the targets of a plan as they would be found and left.
func planTargets(p plan.Plan) []api.PlanTarget {
	row, _ := inventory.TransitionOf(p.Job.Verb)

	states := make(map[string]inventory.State, len(p.Nodes))
	for _, n := range p.Nodes {
		states[n.Name] = n.State
	}

	targets := make([]api.PlanTarget, 0, len(p.Job.Targets))

	for i, batch := range p.Job.Batches() {
		for _, t := range batch {
			out := api.PlanTarget{
				Name: t.Name, Addr: t.Addr, State: states[t.Name], Batch: i + 1,
				Status: t.From, StatusAfter: row.After(t.From), Group: t.FromGroup, GroupAfter: t.Group,
				Residue: t.Residue, Applied: t.Applied, Playbooks: t.Playbooks,
			}
			if row.TakesAddrs {
				out.Node, out.State = t.Node(), states[t.Node()]
			}
			targets = append(targets, out)
		}
	}

	return targets
}
