// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// servesMeanwhile reports whether the job that holds the node leaves it in service.
func servesMeanwhile(n api.Node) bool {
	row, known := inventory.TransitionOf(n.Verb)
	return known && n.Job != "" && row.KeepsService && n.State == inventory.Discovered && !n.Cleaned
}

// NodeExplanation prints why a node is, or is not, in service. program is the
// prefix of the commands in remedies.
func (p *Printer) NodeExplanation(e api.NodeExplanation, program string) {
	n := e.Node

	inService := p.inService(n)

	switch {
	case !e.Ready && servesMeanwhile(n):
		inService = "yes, meanwhile: " + Line(LocalTimes(e.Summary))
	case !e.Ready:
		inService = p.Paint.Bad("no: ") + Line(LocalTimes(e.Summary))
	}

	jobs := make([]string, len(e.Jobs))
	for i, j := range e.Jobs {
		jobs[i] = p.jobOfNode(j)
	}

	// The keys themselves are in nodes get -o long.
	keys := "none; recorded at the first connection"
	if len(n.HostKeys) > 0 {
		keys = fmt.Sprintf("recorded (%d)", len(n.HostKeys))
	}

	p.Fields([]Field{
		{"Node", Line(n.Name) + withPrefix(" at ", Line(n.Addr))},
		{"In service", inService},
		{"Status", p.statusWithOrigin(e)},
		{"State", p.stateWithObservers(e)},
		{"Group", Line(n.Group) + withPrefix(": ", Line(e.Rule))},
		{"Jobs", strings.Join(jobs, "\n")},
		{"Residue of", List(n.Residue)},
		{"Duplicates", List(n.Duplicates)},
		{"Outdated", p.Paint.outdated(&n)},
		{"Applied by", withPrefix("job ", Line(n.Applied)) + withPrefix(" at ", appliedAt(&n))},
		{"Host key", keys},
		{"Hardware", hardware(&n)},
		{"Waits for", waitText(e.Wait)},
		{"Next", Line(LocalTimes(e.Next))},
	})
	p.findings(e.Findings, program)
	p.failures(e.Failures)
}

// inService describes a node that serves.
func (p *Printer) inService(n api.Node) string {
	text := p.Paint.Good("yes") + "; "

	if n.Outdated != nil {
		word := "up to date; "
		if *n.Outdated {
			word = p.Paint.Bad("outdated") + " (" + differing(&n) + "); "
		}
		text += word
	}

	if n.Verification == nil {
		return text + "not verified since it was last configured"
	}

	return text + p.Paint.verdict(n.Verification)
}

func (p *Printer) statusWithOrigin(e api.NodeExplanation) string {
	status := p.Paint.Status(e.Node.Status)
	if e.StatusSince != nil {
		status += " since " + Time(*e.StatusSince) + withPrefix(", by ", Line(e.StatusBy))
	}
	return withPrevious(status, string(e.Node.Status), string(e.Node.PrevStatus))
}

func (p *Printer) stateWithObservers(e api.NodeExplanation) string {
	state := p.Paint.State(e.Node.State) + withPrefix(" since ", timeOf(e.StateSince))

	return state +
		withPrefix("; seen by ", List(observers(&e.Node, true))) +
		withPrefix("; lost by ", List(observers(&e.Node, false)))
}

// jobOfNode describes a job that claims a node or waits for it.
func (p *Printer) jobOfNode(j api.Job) string {
	line := Line(j.ID) + " " + Title(j) + ": " + p.Paint.Job(j.Status)
	if j.Phase != "" {
		line += " (" + Line(j.Phase) + ")"
	}
	if j.Deadline != nil {
		line += ", deadline " + Time(*j.Deadline)
	}

	if j.Position > 0 {
		line += fmt.Sprintf(", queue position %d", j.Position)
	}

	return line
}

// JobExplanation prints why a job waits, runs on or has failed. program is the
// prefix of the commands in remedies.
func (p *Printer) JobExplanation(e api.JobExplanation, program string) {
	steps := make([]string, len(e.Steps))
	for i, s := range e.Steps {
		steps[i] = Line(LocalTimes(s))
	}

	p.Fields([]Field{
		{"Job", Line(e.Job.ID) + ", " + Title(e.Job)},
		{"Retry of", withPrefix("job ", Line(e.Job.RetryOf))},
		{"Status", p.Paint.jobStatus(&e.Job)},
		{"Summary", Line(LocalTimes(e.Summary))},
		{"Steps", strings.Join(steps, "\n")},
		{"Waits for", waitText(e.Wait)},
		{"Next", Line(LocalTimes(e.Next))},
	})
	p.findings(e.Findings, program)
	p.failures(e.Failures)
}

func waitText(w *api.Wait) string {
	if w == nil {
		return ""
	}

	text := Line(LocalTimes(w.For)) + ", since " + Time(w.Since)
	if w.Until != nil {
		text += ", until " + Time(*w.Until) + " at the latest" + withPrefix(": ", Line(LocalTimes(w.Origin)))
	}

	return text
}

// remedyIndent begins each line of a remedy.
const remedyIndent = "    "

// findings prints each finding, with its remedy and the commands below it.
func (p *Printer) findings(findings []api.Finding, program string) {
	if len(findings) == 0 {
		return
	}

	p.gap()

	for _, f := range findings {
		p.hang("- ", "  ", LocalTimes(f.Message))

		// A command stays on one line, so that it can be pasted.
		words := p.fold(Text(f.Remedy), len(remedyIndent))
		remedy := exit.Remedy(program, words, api.RestoreActions(f.Actions))

		for line := range strings.Lines(Text(remedy)) {
			p.Printf("%s%s\n", remedyIndent, p.Paint.Busy(strings.TrimSpace(line)))
		}
	}
}

// failures prints the tasks that failed, each with its whole message.
func (p *Printer) failures(failures []api.Failure) {
	for _, f := range failures {
		line := Line(f.Host) + " " + p.Paint.Bad(failureKind(f.Unreachable))
		if f.Task != "" {
			line += fmt.Sprintf(" at the task %q", Line(f.Task))
		}

		// A host that is unreachable from the start has no task.
		if f.Playbook != "" && f.Task == "" {
			line += " in " + Line(f.Playbook)
		} else if f.Playbook != "" {
			line += " of " + Line(f.Playbook)
		}

		p.gap()
		p.Printf("%s\n", p.fold(fmt.Sprintf("%s (job %s, %s)", line, Line(f.Job), Line(f.Phase)), 0))

		if f.Message != "" {
			p.hang("  | ", "  | ", f.Message)
		}
	}
}

// hang prints text with first before its first line and next before each other line.
func (p *Printer) hang(first, next, text string) {
	folded := p.fold(strings.TrimSpace(Text(text)), width(first))
	p.Printf("%s%s\n", first, strings.ReplaceAll(folded, "\n", "\n"+next))
}
