// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/state"
)

// confinedPlans knows the plans of which all targets are within the bounds.
type confinedPlans struct{ *confined }

func (s confinedPlans) Plan(ctx context.Context, c access.Caller, r job.Request) (plan.Plan, error) {
	if err := s.mayAsk(r); err != nil {
		return plan.Plan{}, err
	}

	made, err := s.whole.Plans.Plan(ctx, s.require(c, s.mayRequest(r)), r)

	return made.Within(s.part()), s.hide(err)
}

func (s confinedPlans) ApplyPlan(ctx context.Context, c access.Caller, id string) (job.Job, error) {
	j, err := s.whole.Plans.ApplyPlan(ctx, s.require(c, func(p *state.Part) error {
		planned, err := s.whole.PlanReader.FindPlan(p.View, id)
		if err != nil {
			return err
		}

		if err := s.allowGroup(planned.Job.Group); err != nil {
			return err
		}

		// Its nodes may have left the bounds since, and a default group is that of a target.
		for _, t := range planned.Job.Targets {
			if err := s.mayJoin([]string{t.Name}, t.Group)(p); err != nil {
				return err
			}
		}

		return nil
	}), id)

	return s.part().Job(j), s.hide(err)
}

func (s confinedPlans) DeletePlan(ctx context.Context, c access.Caller, id string) (int64, error) {
	revision, err := s.whole.Plans.DeletePlan(ctx, s.require(c, func(p *state.Part) error {
		_, err := s.whole.PlanReader.FindPlan(p.View, id)
		return err
	}), id)

	return revision, s.hide(err)
}

func (s confinedPlans) FindPlan(_ *state.View, id string) (plan.Plan, error) {
	return s.whole.PlanReader.FindPlan(s.part().View, id)
}

func (s confinedPlans) PlanInputs(ctx context.Context, id string) (job.Inputs, error) {
	if _, err := s.FindPlan(nil, id); err != nil {
		return job.Inputs{}, err
	}

	return s.whole.PlanReader.PlanInputs(ctx, id)
}

func (s confinedPlans) Foreseen(ctx context.Context, _ *state.View, planned plan.Plan) (*plan.Foreseen, error) {
	p := s.part()

	// Its targets are those of the plan, which the caller may see.
	found, err := s.whole.PlanReader.Foreseen(ctx, p.Whole(), planned)
	if found == nil || err != nil {
		return nil, s.hide(err)
	}

	found.Job = p.Job(found.Job)

	for _, d := range found.Nodes {
		cutFindings(p, d.Tasks)
	}

	return found, nil
}
