// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/fleet"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

func fleetRows() rows {
	return rows{
		"fleet export": {formats: []string{print.FormatJSON, print.FormatYAML}, run: fleetExport},
		"fleet diff":   {formats: []string{print.FormatJSON, print.FormatYAML}, run: fleetDiff},
		"fleet apply":  {formats: []string{print.FormatJSON, print.FormatYAML}, run: fleetApply},
		"fleet schema": {
			local:   true,
			formats: []string{print.FormatJSON},
			run:     func(_ context.Context, c *call) error { return c.write(api.FleetSchema) },
		},
	}
}

func fleetExport(ctx context.Context, c *call) error {
	who, err := c.manager.WhoAmI(ctx)
	if err != nil {
		return err
	}
	if who.Scope != nil {
		c.say("your scope is %s: settings, and connection and variables of every node, are left out", who.Scope)
	}

	file, err := c.manager.Newest().Fleet(ctx)
	if err != nil {
		return err
	}

	if c.format == print.FormatTable {
		c.format = print.FormatYAML
	}

	return c.show(print.Answer{Wire: file})
}

// fleetFiles reads the fleet files of the command line.
func (c *call) fleetFiles(ctx context.Context) (api.FleetRequest, error) {
	path := c.String("file")
	if path == "" {
		return api.FleetRequest{}, exit.Usagef("%s needs a fleet file", short(c.FullName())).
			Try("add -f FILE; for one to begin with: %s fleet export", c.self())
	}

	files, err := fleet.Sources(path, func() ([]byte, error) { return c.readStdin(ctx) })

	return api.FleetRequest{
		Files:          files,
		Prune:          c.Bool("prune"),
		IgnoreMissing:  c.Bool("ignore-missing"),
		RewriteSecrets: c.Bool("secrets"),
	}, err
}

// fleetCompare compares the files with the manager as it is now. The steps that it returns
// have their secrets; the difference itself is for people and has no steps.
func (c *call) fleetCompare(ctx context.Context, r api.FleetRequest) (api.FleetDiff, []api.FleetStep, error) {
	diff, err := c.manager.FleetDiff(ctx, r)

	// The file is at fault, and no log of the manager tells more about it.
	if e, ok := errors.AsType[*inventory.Error](err); ok && e.Kind == inventory.KindInvalid {
		e.Request = ""
	}

	if err != nil {
		return diff, nil, err
	}

	steps := diff.Steps
	diff.Steps = nil

	if err := fleet.FillSecrets(steps); err != nil {
		return diff, nil, err
	}

	for _, what := range diff.Skipped {
		c.say("left out, because the manager does not have it: %s", what)
	}

	return diff, steps, nil
}

func fleetDiff(ctx context.Context, c *call) error {
	request, err := c.fleetFiles(ctx)
	if err != nil {
		return err
	}
	diff, _, err := c.fleetCompare(ctx, request)
	if err != nil {
		return err
	}

	if !diff.Differs && c.format == print.FormatTable {
		c.say("there is no difference")
		return nil
	}

	if diff.Unchecked != "" {
		c.say("the manager did not check the settings and groups: that takes the role admin")
	}

	if err := c.show(print.Answer{Wire: diff, Table: func(p *print.Printer) { printDiff(p, diff) }}); err != nil {
		return err
	}

	if diff.Differs {
		return &exit.Error{Code: exit.Differs}
	}

	return nil
}

func fleetApply(ctx context.Context, c *call) error {
	request, err := c.fleetFiles(ctx)
	if err != nil {
		return err
	}
	diff, steps, err := c.fleetReady(ctx, request)
	if err != nil {
		return err
	}

	if !diff.Differs {
		c.say("there is no difference")

		if c.format == print.FormatTable {
			return nil
		}
		return c.show(print.Answer{Wire: fleetResult{Plan: diff, Steps: []fleet.Result{}}})
	}

	if diff.Unchecked != "" {
		return exit.Errorf(exit.Refused, "%s", diff.Unchecked).
			Try("repeat the request with a credential of the role admin")
	}

	if err := c.showDifference(diff); err != nil {
		return err
	}

	if len(diff.Obstacles) > 0 {
		return exit.Errorf(exit.Refused, "nothing was changed: %s", strings.Join(diff.Obstacles, "\n")).
			Try("remove the obstacles, or leave the nodes out of the file")
	}

	if err := c.confirmFleet(ctx, diff); err != nil {
		return err
	}

	return c.runFleet(ctx, diff, steps)
}

// fleetReady returns the difference once no job decides about its nodes.
func (c *call) fleetReady(ctx context.Context, r api.FleetRequest) (api.FleetDiff, []api.FleetStep, error) {
	for {
		diff, steps, err := c.fleetCompare(ctx, r)
		if err != nil || len(diff.Waits) == 0 {
			return diff, steps, err
		}

		for _, w := range diff.Waits {
			c.say("waiting for job %s (%s), which decides about %s", w.Job, w.Verb, strings.Join(w.Nodes, ", "))

			j, err := c.manager.Job(ctx, w.Job)
			if err != nil {
				return diff, nil, err
			}
			if _, err := c.follow(ctx, j); err != nil {
				return diff, nil, err
			}
		}
	}
}

// showDifference prints the difference before the question. Other formats than the table have it in
// the result.
func (c *call) showDifference(diff api.FleetDiff) error {
	answer := print.Answer{Table: func(p *print.Printer) { printDiff(p, diff) }}
	if c.format == print.FormatTable {
		return c.show(answer)
	}
	text, err := answer.Render(print.FormatTable, print.Style{})
	if err == nil {
		c.say("%s", strings.TrimRight(string(text), "\n"))
	}

	return err
}

// confirmFleet asks for the confirmation of a difference. The question names every node that
// leaves.
func (c *call) confirmFleet(ctx context.Context, diff api.FleetDiff) error {
	leaving := diff.Leaving()

	switch {
	case c.Bool("yes"):
		return nil
	case c.String("file") == fleet.Stdin:
		return exit.Usagef("cannot ask for confirmation: stdin is in use for the fleet file").Try("add --yes")
	case !c.atTerminal():
		return exit.Usagef("%s needs a confirmation, which takes a terminal", short(c.FullName())).
			Try("to confirm it here: add --yes")
	}

	question := fmt.Sprintf("make %s and run %s", inventory.Count(len(diff.Changes), "change", "changes"),
		inventory.Count(len(diff.Jobs), "job", "jobs"))
	if len(leaving) > 0 {
		question += ", which take " + strings.Join(leaving, ", ") + " out of service"
	}
	return c.confirm(ctx, question)
}

// fleetResult is the answer of fleet apply.
type fleetResult struct {
	Plan  api.FleetDiff  `json:"plan"`
	Steps []fleet.Result `json:"steps"`
}

// runFleet carries the steps of a difference out, and shows their results.
func (c *call) runFleet(ctx context.Context, diff api.FleetDiff, steps []api.FleetStep) error {
	reason := c.String("reason")
	if reason == "" {
		reason = "fleet apply"
	}

	results, failure := fleet.Run(ctx, steps, fleet.Options{
		Manager: c.manager, Reason: reason, Note: func(text string) { c.say("%s", text) },
		Follow: func(ctx context.Context, j api.Job) (api.Job, error) {
			for _, w := range j.Warnings {
				c.say("warning: %s", w)
			}

			c.say("job %s: %s", j.ID, print.Title(j))
			return c.follow(ctx, j)
		},
		Done: func(r fleet.Result) { c.say("done: %s", r.Title) },
	})

	answer := print.Answer{
		Wire: fleetResult{diff, results}, Table: func(p *print.Printer) { resultColumns.Rows(p, results) },
	}
	if err := c.show(answer); err != nil {
		return err
	}

	if failure == nil {
		c.sayOutdated(diff)
		return nil
	}

	return c.stepFailed(results, failure)
}

// stepFailed returns the error of the step that failed, with the way to go on.
func (c *call) stepFailed(results []fleet.Result, err error) error {
	message, remedy := exit.Explain(c.self(), err)
	if remedy != "" {
		remedy += "\n"
	}

	for _, s := range results {
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
func (c *call) sayOutdated(diff api.FleetDiff) {
	for _, change := range diff.Changes {
		if change.Part == api.PartVars || change.Part == api.PartSecrets {
			c.say("nodes in service get changed variables with: %s rollout start %s -l outdated=true",
				c.self(), inventory.VerbApply)

			return
		}
	}
}

var (
	changeColumns = print.ColumnsOf(print.Cells[api.FleetChange]{
		"where": func(_ print.Paint, c *api.FleetChange) string { return print.Line(c.Where()) },
		"what":  func(_ print.Paint, c *api.FleetChange) string { return print.Line(c.Item()) },
		"from":  func(_ print.Paint, c *api.FleetChange) string { return changed(*c, c.Before) },
		"to":    func(_ print.Paint, c *api.FleetChange) string { return changed(*c, c.After) },
	}, "Change=action", "where", "what", "from", "to")
	resultColumns = print.ColumnsOf[fleet.Result](nil, "result", "job", "Step=title")
)

// printDiff prints a difference as tables.
func printDiff(p *print.Printer, diff api.FleetDiff) {
	if len(diff.Changes) > 0 {
		changeColumns.Rows(p, diff.Changes)
	}

	if len(diff.Jobs) > 0 {
		rows := make([][]string, len(diff.Jobs))
		for i, m := range diff.Jobs {
			rows[i] = []string{strconv.Itoa(i + 1), string(m.Verb), print.Line(m.Group), print.List(m.Nodes)}
		}

		p.Rows([]string{"JOB", "VERB", "GROUP", "NODES"}, rows)
	}

	for _, w := range diff.Waits {
		p.Printf("waits for job %s (%s): %s\n", print.Inline(w.Job), w.Verb, print.List(w.Nodes))
	}

	for _, text := range diff.Obstacles {
		p.Printf("obstacle: %s\n", print.Inline(text))
	}
}

// changed returns a value of a change in a table; nothing for none, and for a group
// that exists.
func changed(c api.FleetChange, v any) string {
	if v == nil || c.Level == api.LevelGroup && c.Part == api.PartGroup {
		return ""
	}
	return print.Scalar(v)
}
