// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/management/api"
)

func (a *app) nodesExplain() *cli.Command {
	return a.leaf(leaf{
		name:  "explain",
		args:  "NAME",
		min:   1,
		max:   1,
		usage: "say why a node is, or is not, in service, and what helps",
		about: "Status and state with their beginning, what its group needs, the jobs that hold it or wait for it, the tasks that failed with " +
			"what they printed, residue, tombstone, duplicates, host key; what happens next by itself; and for everything that is in the way, the command that helps.",
		formats:  []string{formatLong, formatJSON, formatYAML},
		examples: []string{"clusterctl nodes explain web-1-AB12", "clusterctl nodes explain web-1-AB12 -o json"},
		run: func(ctx context.Context, c *call) error {
			e, err := c.manager.Explain(ctx, c.args[0])
			if err != nil {
				return err
			}

			return c.show(view{wire: e, table: func(p *printer) { p.explainNode(e) }})
		},
	})
}

func (a *app) jobWhy() *cli.Command {
	return a.leaf(leaf{
		name:  "why",
		args:  "ID",
		min:   1,
		max:   1,
		usage: "say why a job waits, runs on or has failed, and what helps",
		about: whichJob + "\nIts place in the queue and what it waits for; the hosts that failed, with the task and what it printed; " +
			"what the manager did then; and the command that helps.",
		formats:  []string{formatLong, formatJSON, formatYAML},
		examples: []string{"clusterctl job why last", "clusterctl job why 12 -o json"},
		run: func(ctx context.Context, c *call) error {
			e, err := c.manager.ExplainJob(ctx, c.args[0])
			if err != nil {
				return err
			}

			return c.show(view{wire: e, table: func(p *printer) { p.explainJob(e) }})
		},
	})
}

func (a *app) jobRetry() *cli.Command {
	return a.leaf(leaf{
		name:  "retry",
		args:  "ID",
		min:   1,
		max:   1,
		usage: "ask for a job that failed or was cancelled once more, with the inputs it had",
		about: whichJob + "\nPlaybooks, merged and extra variables, group and options are those that the job was accepted with, whatever was changed since. " +
			"How hosts are reached (nodes set, ssh in the configuration) is taken as it is now. It is checked like any other request; a job in which nothing failed is refused.\n\n" + waitHelp,
		flags: []cli.Flag{
			&cli.BoolFlag{Name: "failed", Usage: "only the nodes that the job did not bring where it should have"},
			&cli.BoolFlag{Name: "no-wait", Usage: "print the new job's id and do not wait"},
		},
		examples: []string{"clusterctl job retry last", "clusterctl job retry 12 --failed"},
		run: func(ctx context.Context, c *call) error {
			j, err := c.manager.Retry(ctx, c.args[0], api.Retry{Failed: c.Bool("failed")})
			return c.accepted(ctx, j, err)
		},
	})
}

// explainNode prints why a node is, or is not, in service.
func (p *printer) explainNode(e api.NodeExplanation) {
	n := e.Node

	ready := p.paint.good("yes")
	if !e.Ready {
		ready = p.paint.bad("no: ") + oneLine(e.Summary)
	}

	status := p.paint.status(n.Status)
	if e.StatusSince != nil {
		status += " since " + timeText(*e.StatusSince)
		if e.StatusBy != "" {
			status += ", by " + oneLine(e.StatusBy)
		}
	}

	if n.PrevStatus != "" && n.PrevStatus != n.Status {
		status += " (was " + oneLine(string(n.PrevStatus)) + ")"
	}

	state := p.paint.state(n.State)
	if e.StateSince != nil {
		state += " since " + timeText(*e.StateSince)
	}

	if by := seenBy(&n, true); len(by) > 0 {
		state += "; seen by " + list(by)
	}

	if by := seenBy(&n, false); len(by) > 0 {
		state += "; lost by " + list(by)
	}

	group := oneLine(n.Group)
	if e.Rule != "" {
		group += ": " + oneLine(e.Rule)
	}

	var jobs []string
	for _, j := range e.Jobs {
		line := title(j) + ": " + p.paint.job(j.Status)
		if j.Phase != "" {
			line += " (" + oneLine(j.Phase) + ")"
		}

		if j.Deadline != nil {
			line += ", deadline " + timeText(*j.Deadline)
		}

		if j.Position > 0 {
			line += fmt.Sprintf(", place %d in the queue", j.Position)
		}

		jobs = append(jobs, oneLine(j.ID)+" "+line)
	}

	keys := "none recorded yet; the first contact records it"
	if len(n.HostKeys) > 0 {
		keys = fmt.Sprintf("recorded (%d)", len(n.HostKeys))
	}

	p.fields(
		"Node",
		oneLine(n.Name)+" at "+oneLine(n.Addr),
		"In service",
		ready,
		"Status",
		status,
		"State",
		state,
		"Group",
		group,
		"Jobs",
		strings.Join(jobs, "\n"),
		"Residue of",
		list(n.Residue),
		"Claimed by",
		list(n.Duplicates),
		"Applied by",
		applied(n.Applied),
		"Host key",
		keys,
		"Next",
		oneLine(e.Next),
	)
	p.findings(e.Findings)
	p.whatFailed(e.Failures)
}

func applied(job string) string {
	if job == "" {
		return ""
	}

	return "job " + oneLine(job)
}

// explainJob prints why a job is as it is.
func (p *printer) explainJob(e api.JobExplanation) {
	j := e.Job

	status := p.paint.job(j.Status)
	if j.Phase != "" && !j.Status.Ended() {
		status += " (" + oneLine(j.Phase) + ")"
	}

	if j.Cause != "" {
		status += " (" + oneLine(j.Cause) + ")"
	}

	steps := make([]string, len(e.Steps))
	for i, s := range e.Steps {
		steps[i] = oneLine(s)
	}

	p.fields(
		"Job",
		oneLine(j.ID)+", "+title(j),
		"Retry of",
		applied(j.RetryOf),
		"Status",
		status,
		"Why",
		oneLine(e.Summary),
		"Steps",
		strings.Join(steps, "\n"),
		"Next",
		oneLine(e.Next),
	)
	p.findings(e.Findings)
	p.whatFailed(e.Failures)
}

// findings prints each finding with what helps below it.
func (p *printer) findings(findings []api.Finding) {
	if len(findings) == 0 {
		return
	}

	p.gap()

	for _, f := range findings {
		fmt.Fprintf(p.w, "- %s\n", strings.ReplaceAll(strings.TrimSpace(printable(f.Message, true)), "\n", "\n  "))

		if f.Remedy != "" {
			fmt.Fprintf(p.w, "    %s\n", p.paint.busy(oneLine(f.Remedy)))
		}
	}
}

// whatFailed prints the tasks that failed, each with all of its message.
func (p *printer) whatFailed(failures []api.Failure) {
	for _, f := range failures {
		what := "failed"
		if f.Unreachable {
			what = "unreachable"
		}

		line := fmt.Sprintf("%s %s", oneLine(f.Host), p.paint.bad(what))
		if f.Task != "" {
			line += fmt.Sprintf(" at the task %q", oneLine(f.Task))
		}

		if f.Playbook != "" && f.Task == "" {
			line += " in " + oneLine(f.Playbook)
		} else if f.Playbook != "" {
			line += " of " + oneLine(f.Playbook)
		}

		p.gap()
		fmt.Fprintf(p.w, "%s (job %s, %s)\n", line, oneLine(f.Job), oneLine(f.Phase))

		if f.Message != "" {
			fmt.Fprintf(
				p.w,
				"  | %s\n",
				strings.ReplaceAll(strings.TrimSpace(printable(f.Message, true)), "\n", "\n  | "),
			)
		}
	}
}
