// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/fleet"
	"github.com/contiv/cluster/clusterctl/follow"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

const fleetHelp = "A fleet file is one YAML document: settings, variables, connections, groups with their rules, and " +
	"nodes with their groups, labels and variables. What it does not name is left alone."

func (a *app) fleet() *cli.Command {
	return &cli.Command{
		Name:        "fleet",
		Usage:       "describe the whole fleet in a file, and bring the manager to it",
		Description: fleetHelp,
		Commands: []*cli.Command{
			a.leaf(leaf{
				name:  "export",
				usage: "print the fleet file of the manager",
				about: "Secrets are not part of it: each is marked as one to keep. A caller with a scope gets the " +
					"part within it. A node that a job holds, or that is Quarantined, has no group in the file.",
				formats:  []string{print.FormatJSON, print.FormatYAML},
				examples: []string{"clusterctl fleet export > fleet.yaml", "clusterctl fleet export -o json"},
				run:      fleetExport,
			}),
			a.leaf(leaf{
				name:  "diff",
				usage: "show what fleet apply would do, and change nothing",
				about: "The exit code is 0 if there is nothing to do, and 7 otherwise. An error in the file has its " +
					"position.",
				flags:   fleetFlags(),
				formats: []string{print.FormatJSON, print.FormatYAML},
				examples: []string{
					"clusterctl fleet diff -f fleet.yaml",
					"clusterctl fleet diff -f fleet.yaml --prune",
					"clusterctl fleet diff -f fleet.yaml -o json",
				},
				run: fleetDiff,
			}),
			a.leaf(leaf{
				name:  "apply",
				usage: "bring the manager to the state of a fleet file",
				about: "It shows the difference and asks. Then it changes settings, variables, labels and " +
					"connections, and submits the jobs, one after the other: a node that enters a group is " +
					"commissioned, one that changes it is updated, one whose group is none is decommissioned. The " +
					"first failure ends it, with a list of the steps done and not done; a repeat goes on. What " +
					"somebody else changed since the difference was made is refused, by name.\n" +
					"Without a terminal, or with the file from stdin, it needs --yes.",
				flags: append(
					fleetFlags(),
					yesFlag(),
					valueFlag("reason", "the `REASON` for the history (default: fleet apply)"),
				),
				formats: []string{print.FormatJSON, print.FormatYAML},
				examples: []string{
					"clusterctl fleet apply -f fleet.yaml",
					"clusterctl fleet apply -f fleet.yaml --prune",
					"clusterctl fleet apply -f fleet.yaml --yes --reason 'rack r2 is new'",
				},
				run: fleetApply,
			}),
			a.leaf(leaf{
				name:     "schema",
				usage:    "print the JSON schema of fleet files, for editors",
				formats:  []string{print.FormatJSON},
				examples: []string{"clusterctl fleet schema > fleet.schema.json"},
				local:    true,
				run: func(_ context.Context, c *call) error {
					schema, err := fleet.Schema()
					if err != nil {
						return err
					}

					return c.write(schema)
				},
			}),
		},
	}
}

func fleetFlags() []cli.Flag {
	return []cli.Flag{
		valueFlag("file", "the fleet `FILE`, a folder of files (*.yaml, *.yml, *.json) to merge, or - for stdin", "f"),
		switchFlag(
			"prune",
			"also remove what the sections of the file do not name, and decommission the nodes in service that it "+
				"does not name; no node is forgotten",
		),
		switchFlag("ignore-missing", "leave out nodes and secrets that the manager does not have"),
		switchFlag("secrets", "write secrets with a source even where the manager has a value"),
	}
}

func fleetExport(ctx context.Context, c *call) error {
	s, err := fleet.Load(ctx, c.manager)
	if err != nil {
		return err
	}

	if s.Partial {
		c.say("your scope is %s: settings, and connection and variables of every node, are left out", s.Scope)
	}

	if c.format == print.FormatTable {
		c.format = print.FormatYAML
	}

	return c.show(print.Answer{Wire: fleet.Export(s)})
}

// fleetFile reads the fleet file of the command line.
func (c *call) fleetFile(ctx context.Context) (*fleet.Document, error) {
	path := c.String("file")
	if path == "" {
		return nil, exit.Usagef("%s needs a fleet file", short(c.FullName())).
			Try("add -f FILE; for one to begin with: %s fleet export", c.self())
	}

	sources, err := fleet.Sources(path, func() ([]byte, error) { return c.readStdin(ctx) })
	if err != nil {
		return nil, err
	}

	return fleet.Read(sources...)
}

// fleetPlan compares the document with the manager as it is now.
func (c *call) fleetPlan(ctx context.Context, d *fleet.Document) (*fleet.Plan, error) {
	s, err := fleet.Load(ctx, c.manager)
	if err != nil {
		return nil, err
	}

	plan, err := fleet.Compare(d, s, fleet.Options{
		Prune: c.Bool("prune"), IgnoreMissing: c.Bool("ignore-missing"), RewriteSecrets: c.Bool("secrets"),
		Value: fleet.SecretValue,
	})
	if err != nil {
		return nil, err
	}

	for _, what := range plan.Skipped {
		c.say("left out, because the manager does not have it: %s", what)
	}

	return plan, nil
}

func fleetDiff(ctx context.Context, c *call) error {
	d, err := c.fleetFile(ctx)
	if err != nil {
		return err
	}

	plan, err := c.fleetPlan(ctx, d)
	if err != nil {
		return err
	}

	if !plan.Differs && c.format == print.FormatTable {
		c.say("there is no difference")
		return nil
	}

	err = plan.Judge(ctx, c.manager)
	if inventory.KindOf(err) == inventory.KindForbidden {
		c.say("the manager did not check the settings and groups: that takes the role admin")
		err = nil
	}

	if err != nil {
		return err
	}

	if err := c.show(print.Answer{Wire: plan, Table: func(p *print.Printer) { printPlan(p, plan) }}); err != nil {
		return err
	}

	if plan.Differs {
		return &exit.Error{Code: exit.Differs}
	}

	return nil
}

func fleetApply(ctx context.Context, c *call) error {
	d, err := c.fleetFile(ctx)
	if err != nil {
		return err
	}

	plan, err := c.fleetReady(ctx, d)
	if err != nil {
		return err
	}

	if !plan.Differs {
		c.say("there is no difference")

		if c.format == print.FormatTable {
			return nil
		}

		return c.show(print.Answer{Wire: fleetResult{Plan: plan, Steps: []fleet.Step{}}})
	}

	if err := plan.Judge(ctx, c.manager); err != nil {
		return err
	}

	if err := c.showDifference(plan); err != nil {
		return err
	}

	if len(plan.Obstacles) > 0 {
		return exit.Errorf(exit.Refused, "nothing was changed: %s", strings.Join(plan.Obstacles, "\n")).
			Try("remove the obstacles, or leave the nodes out of the file")
	}

	if err := c.confirmPlan(ctx, plan); err != nil {
		return err
	}

	return c.runPlan(ctx, plan)
}

// fleetReady returns the plan once no job decides about its nodes.
func (c *call) fleetReady(ctx context.Context, d *fleet.Document) (*fleet.Plan, error) {
	for {
		plan, err := c.fleetPlan(ctx, d)
		if err != nil || len(plan.Waits) == 0 {
			return plan, err
		}

		for _, w := range plan.Waits {
			c.say("waiting for job %s (%s), which decides about %s", w.Job, w.Verb, strings.Join(w.Nodes, ", "))

			j, err := c.manager.Job(ctx, w.Job)
			if err != nil {
				return nil, err
			}

			if _, err := c.follow(ctx, j); err != nil {
				return nil, err
			}
		}
	}
}

// showDifference prints the plan before the question. Other formats than the table have it in
// the result.
func (c *call) showDifference(plan *fleet.Plan) error {
	answer := print.Answer{Table: func(p *print.Printer) { printPlan(p, plan) }}
	if c.format == print.FormatTable {
		return c.show(answer)
	}

	text, err := answer.Render(print.FormatTable, print.Style{})
	if err == nil {
		c.say("%s", strings.TrimRight(string(text), "\n"))
	}

	return err
}

// confirmPlan asks for the confirmation of a plan. The question names every node that
// leaves.
func (c *call) confirmPlan(ctx context.Context, plan *fleet.Plan) error {
	leaving := plan.Leaving()

	switch {
	case c.Bool("yes"):
		return nil
	case c.String("file") == fleet.Stdin:
		return exit.Usagef("cannot ask for confirmation: stdin is in use for the fleet file").Try("add --yes")
	case !c.atTerminal():
		return exit.Usagef("%s needs a confirmation, which takes a terminal", short(c.FullName())).
			Try("to confirm it here: add --yes")
	}

	question := fmt.Sprintf("make %s and run %s", inventory.Count(len(plan.Changes), "change", "changes"),
		inventory.Count(len(plan.Jobs), "job", "jobs"))
	if len(leaving) > 0 {
		question += ", which take " + strings.Join(leaving, ", ") + " out of service"
	}

	return c.confirm(ctx, question)
}

// fleetResult is the answer of fleet apply.
type fleetResult struct {
	Plan  *fleet.Plan  `json:"plan"`
	Steps []fleet.Step `json:"steps"`
}

// runPlan carries the plan out, and shows the results of its steps.
func (c *call) runPlan(ctx context.Context, plan *fleet.Plan) error {
	reason := c.String("reason")
	if reason == "" {
		reason = "fleet apply"
	}

	steps, failure := plan.Run(ctx, fleet.RunOptions{
		Manager: c.manager, Reason: reason, Patience: follow.Patience,
		Follow: func(ctx context.Context, j api.Job) (api.Job, error) {
			for _, w := range j.Warnings {
				c.say("warning: %s", w)
			}

			c.say("job %s: %s", j.ID, print.Title(j))

			return c.follow(ctx, j)
		},
		Each: func(s fleet.Step) {
			if s.Result == fleet.StepDone {
				c.say("done: %s", s.Title)
			}
		},
	})

	result := fleetResult{plan, steps}
	if err := c.show(print.Answer{Wire: result, Table: func(p *print.Printer) { printSteps(p, steps) }}); err != nil {
		return err
	}

	if failure == nil {
		c.sayOutdated(plan)
		return nil
	}

	return c.stepFailed(steps, failure)
}

// stepFailed returns the error of the step that failed, with the way to go on.
func (c *call) stepFailed(steps []fleet.Step, err error) error {
	message, remedy := exit.Explain(c.self(), err)
	if remedy != "" {
		remedy += "\n"
	}

	for _, s := range steps {
		switch {
		case s.Result == fleet.StepFailed && s.Job != "":
			message = s.Title + ": " + message
			remedy += fmt.Sprintf("to see the cause and a remedy: %s job why %s\n", c.self(), s.Job)
		case s.Result == fleet.StepFailed:
			message = s.Title + ": " + message
		case s.Result == fleet.StepInterrupted && s.Job != "":
			message = fmt.Sprintf("detached; job %s continues, and the steps after it are not done", s.Job)
			remedy += fmt.Sprintf("to cancel it: %s job cancel %s\n", c.self(), s.Job)
		}
	}

	return exit.Errorf(exit.Code(err), "%s", message).Try("%sto go on from here: %s", remedy, c.fleetAgain())
}

// fleetAgain returns the command that applies the same file again.
func (c *call) fleetAgain() string {
	command := c.self() + " fleet apply -f " + api.ShellQuote(c.String("file"))

	for _, flag := range []string{"prune", "ignore-missing", "secrets"} {
		if c.Bool(flag) {
			command += " --" + flag
		}
	}

	return command
}

// sayOutdated names the way that changed variables reach the nodes in service.
func (c *call) sayOutdated(plan *fleet.Plan) {
	for _, change := range plan.Changes {
		if change.Part == fleet.PartVars || change.Part == fleet.PartSecrets {
			c.say("nodes in service get changed variables with: %s rollout start --action %s -l outdated=true",
				c.self(), inventory.VerbApply)

			return
		}
	}
}

// printPlan prints a plan as tables.
func printPlan(p *print.Printer, plan *fleet.Plan) {
	if len(plan.Changes) > 0 {
		rows := make([][]string, len(plan.Changes))
		for i, c := range plan.Changes {
			rows[i] = []string{
				c.Action,
				print.Line(c.Where()),
				print.Line(c.Item()),
				planValue(c, c.Before),
				planValue(c, c.After),
			}
		}

		p.Rows([]string{"CHANGE", "WHERE", "WHAT", "FROM", "TO"}, rows)
	}

	if len(plan.Jobs) > 0 {
		rows := make([][]string, len(plan.Jobs))
		for i, m := range plan.Jobs {
			rows[i] = []string{strconv.Itoa(i + 1), string(m.Verb), print.Line(m.Group), print.List(m.Nodes)}
		}

		p.Rows([]string{"JOB", "VERB", "GROUP", "NODES"}, rows)
	}

	for _, w := range plan.Waits {
		p.Printf("waits for job %s (%s): %s\n", print.Inline(w.Job), w.Verb, print.List(w.Nodes))
	}

	for _, text := range plan.Obstacles {
		p.Printf("obstacle: %s\n", print.Inline(text))
	}
}

// planValue returns a value of a change in a table; nothing for none, and for a group
// that exists.
func planValue(c fleet.Change, v any) string {
	if v == nil || c.Level == fleet.LevelGroup && c.Part == fleet.PartGroup {
		return ""
	}

	return print.Scalar(v)
}

// printSteps prints the results of steps.
func printSteps(p *print.Printer, steps []fleet.Step) {
	rows := make([][]string, len(steps))
	for i, s := range steps {
		rows[i] = []string{s.Result, print.Line(s.Job), print.Line(s.Title)}
	}

	p.Rows([]string{"RESULT", "JOB", "STEP"}, rows)
}
