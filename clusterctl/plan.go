// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// planHelp is the one rule about plans of verbs.
const planHelp = "With --plan nothing is done, and no confirmation is asked for: the manager stores what the job " +
	"would do and prints it. clusterctl apply --plan ID then does exactly that."

// planCheckHelp completes planHelp for verbs with --check.
const planCheckHelp = "With --plan --check a job also checks what Ansible would change, and the plan shows its " +
	"findings."

func planFlag() cli.Flag {
	return switchFlag("plan", "do nothing, and print what would be done, as a plan")
}

// planHelpOf returns the help about plans of the verb.
func planHelpOf(row inventory.Transition) string {
	if row.Accepts(inventory.FieldCheck) {
		return planHelp + " " + planCheckHelp
	}
	return planHelp
}

var plans = noun[api.Plan]{
	columns: print.PlanColumns, name: func(p api.Plan) string { return p.ID }, empty: "no plans found",
	all: every((*client.Client).Plans),
}

// planIDs completes plans, newest first.
var planIDs = plans.offer(func(p api.Plan) candidate { return candidate{p.ID, print.PlanTitle(p)} })

func (a *app) plan() leaf {
	return leaf{
		name: "plan", aliases: []string{"plans"}, usage: "list, show and delete plans",
		commands: []leaf{
			plans.list(leaf{
				name: "list", usage: "list the plans, newest first",
				about: "--plan of any command that starts a job makes a plan. It can be applied once, until it " +
					"expires (jobs.plan_for).",
				examples: []string{"clusterctl plan list", "clusterctl plan list -o json"},
			}),
			{
				name: "show", aliases: []string{"get"}, args: "ID", usage: "show a plan", complete: planIDs,
				about: "It shows the nodes with what they would become, the rules of the groups, what goes out of " +
					"service, the variables with their origin (secrets hidden), and what a check found.",
				examples: []string{
					"clusterctl plan show 3f9a1c20-7b1e44d2",
					"clusterctl plan show 3f9a1c20-7b1e44d2 -o json",
				},
				run: func(ctx context.Context, c *call) error {
					return c.showPlan(c.manager.PlanOf(ctx, c.args[0]))
				},
			},
			{
				name: "delete", args: "ID…", usage: "delete plans", complete: planIDs,
				about:    "The job of a plan that was applied goes on.",
				examples: []string{"clusterctl plan delete 3f9a1c20-7b1e44d2"},
				run: func(ctx context.Context, c *call) error {
					return c.changeEach(ctx, c.manager.DeletePlan, "the plan %s is deleted")
				},
			},
		},
	}
}

// apply is the command that carries a plan out.
func (a *app) apply() leaf {
	return leaf{
		name: "apply", usage: "do what a plan says",
		about: "The job has the nodes, playbooks, variables and options of the plan. The manager refuses, and names " +
			"what is different, if anything has changed since the plan was made: a node, its group or variables, the " +
			"playbooks, the rules of the groups, ssh parameters or host keys. The id says exactly what is done, so " +
			"there is no question. To configure nodes without a plan, use nodes apply.\n" +
			"\n" + waitHelp,
		flags: []cli.Flag{
			&cli.StringFlag{Name: "plan", Usage: "the `ID` of the plan", Required: true},
			noWaitFlag(),
			waitTimeoutFlag(),
		},
		examples: []string{
			"clusterctl apply --plan 3f9a1c20-7b1e44d2",
			"clusterctl apply --plan 3f9a1c20-7b1e44d2 --no-wait",
		},
		run: func(ctx context.Context, c *call) error {
			if c.String("plan") == "" {
				return exit.Usagef("--plan is empty").Try("give the id of a plan; see: %s plan list", c.self())
			}

			j, err := c.manager.ApplyPlan(ctx, c.String("plan"))
			return c.accepted(ctx, j, err)
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
