// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

var plans = noun[api.Plan]{
	columns: print.PlanColumns, name: func(p api.Plan) string { return p.ID }, empty: "no plans found",
	all: every((*client.Client).Plans),
}

// planIDs completes plans, newest first.
var planIDs = plans.offer(func(p api.Plan) candidate { return candidate{p.ID, print.PlanTitle(p)} })

func planRows() rows {
	return rows{
		"plan list": plans.list(leaf{}),
		"plan show": {
			complete: planIDs,
			run:      named((*client.Client).PlanOf, (*print.Printer).Plan, plans.name),
		},
		"plan delete": {
			complete: planIDs,
			run:      onEach((*client.Client).DeletePlan, "the plan %s is deleted"),
		},
		"apply": {needs: "plan",
			run: func(ctx context.Context, c *call) error {
				if c.String("plan") == "" {
					return exit.Usagef("--plan is empty").Try("give the id of a plan; see: %s plan list", c.self())
				}

				j, err := c.manager.ApplyPlan(ctx, c.String("plan"))
				return c.accepted(ctx, j, err)
			},
		},
	}
}

// makePlan makes and prints the plan of the request. It waits for its check, if it has
// one.
func (c *call) makePlan(ctx context.Context, r api.JobRequest) error {
	p, err := c.manager.Plan(ctx, r)
	if err != nil {
		return err
	}
	if p.Check == nil || c.Bool("no-wait") {
		return c.showMade(p)
	}

	c.say("job %s checks what Ansible would change", p.Check.Job)

	check, err := c.manager.Job(ctx, p.Check.Job)
	if err == nil {
		check, err = c.follow(ctx, check)
	}

	if err != nil && ctx.Err() != nil {
		return exit.Errorf(exit.Interrupted, "detached; job %s continues its check", p.Check.Job).
			Try("to see the plan: %s plan show %s", c.self(), p.ID)
	}

	if err != nil {
		return err
	}

	if p, err = c.manager.PlanOf(ctx, p.ID); err != nil {
		return err
	}

	if err := c.showMade(p); err != nil || check.Status == api.Complete {
		return err
	}

	return exit.Errorf(exit.JobFailed, "the check of the plan is %s: %s", check.Status, print.JobMessage(check)).
		Try("to see the cause and a remedy: %s job why %s", c.self(), check.ID)
}

func (c *call) showMade(p api.Plan) error {
	if err := c.showPlan(p, nil); err != nil {
		return err
	}

	c.say("nothing was changed; to do what the plan says: %s apply --plan %s", c.self(), p.ID)
	return nil
}

// showPlan prints a plan, unless the request failed.
func (c *call) showPlan(plan api.Plan, err error) error {
	return view(c, (*print.Printer).Plan, plans.name)(plan, err)
}
