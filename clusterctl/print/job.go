// SPDX-License-Identifier: Apache-2.0

package print

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// JobColumns are the columns of a table of jobs.
var JobColumns = ColumnsOf(Cells[api.Job]{
	"nodes":    func(_ Paint, j *api.Job) string { return List(Targets(*j)) },
	"duration": func(_ Paint, j *api.Job) string { return Elapsed(j.Started, j.Ended) },
	"commit":   func(_ Paint, j *api.Job) string { return shortHash(j.Commit) },
	"message":  jobMessage,
}, "id,number", "verb", "status", "phase,wide", "position,wide", "nodes", "group", "actor",
	"accepted,age", "accepted,wide", "started,wide", "ended,wide", "deadline,wide", "duration", "cause,wide",
	"retry-of=retry_of,number,wide", "commit,wide", "instance,wide", "message").
	sorted("duration", func(a, b *api.Job) int { return cmp.Compare(runTime(a), runTime(b)) })

// jobMessage returns how a job ended or, while it is queued, its obstacle.
func jobMessage(_ Paint, j *api.Job) string {
	if j.Status == api.Queued {
		return WaitReason(*j)
	}
	return Line(j.Message)
}

// runTime returns how long a job ran, and 0 before its end.
func runTime(j *api.Job) time.Duration {
	if j.Started == nil || j.Ended == nil {
		return 0
	}
	return j.Ended.Sub(*j.Started)
}

// Targets returns the nodes of a job, or the addresses of a discover.
func Targets(j api.Job) []string {
	// A discover has addresses until its hosts appear as nodes.
	if len(j.Nodes) > 0 {
		return j.Nodes
	}
	return j.Addrs
}

// Title names a job, e.g. "commission of a-1, b-2 as service-worker".
func Title(j api.Job) string {
	text := string(j.Verb)
	if of := Targets(j); len(of) > 0 {
		text += " of " + strings.Join(of, ", ")
	}
	if j.Group != "" {
		text += " as " + j.Group
	}

	if j.Check {
		text += ", as a check"
	}

	if len(j.Tags)+len(j.SkipTags) > 0 {
		text += ", only some tasks"
	}

	if j.RetryOf != "" {
		text += " (retry of job " + j.RetryOf + ")"
	}

	return Line(text)
}

// WaitReason returns the obstacle of a queued job, or "" if the job only waits
// for a free slot.
func WaitReason(j api.Job) string {
	switch {
	case j.WaitReason != "":
		return Line(j.WaitReason)
	case len(j.WaitsFor) == 1:
		return "waits for job " + List(j.WaitsFor)
	case len(j.WaitsFor) > 1:
		return "waits for jobs " + List(j.WaitsFor)
	}

	return ""
}

// WaitTime returns how long a queued job waits for its window or the end of a freeze, in
// brackets after a space, or "".
func WaitTime(j api.Job) string {
	if j.WaitUntil == nil || !j.WaitUntil.After(time.Now()) {
		return ""
	}
	return " (in " + span(time.Until(*j.WaitUntil)) + ")"
}

// Job prints one job: the fields that a person needs, or everything.
func (p *Printer) Job(j api.Job, everything bool) {
	details := jobDetails
	if everything {
		details = slices.Concat(jobDetails, jobRest)
	}
	details.Details(p, j)
	p.Summary(j)
	runColumns.Table(p, j.Runs)

	if lines := Failures(j); lines != nil {
		p.gap()
		p.Printf("%s\n", p.fold(strings.Join(lines, "\n"), 0))
	}

	if everything {
		for _, r := range j.Runs {
			p.run(j, r)
		}

		p.variables(j.Vars)
	}
}

var jobCells = Cells[api.Job]{
	"status":  Paint.jobStatus,
	"message": func(_ Paint, j *api.Job) string { return Text(forReader(*j, j.Message)) },
	"wait reason": func(_ Paint, j *api.Job) string {
		if j.Status != api.Queued {
			return "" // only a queued job has an obstacle
		}
		return WaitReason(*j) + WaitTime(*j)
	},
	"plan":           ofPlan,
	"tags of groups": func(_ Paint, j *api.Job) string { return groupTags(j.GroupTags) },
	"warnings":       func(_ Paint, j *api.Job) string { return Text(strings.Join(j.Warnings, "\n")) },
	"cancellation":   cancellation,
	"duration":       func(_ Paint, j *api.Job) string { return Elapsed(j.Started, j.Ended) },
	"output": func(_ Paint, j *api.Job) string {
		if j.LogBytes == 0 {
			return "" // in a list, where the size is not loaded
		}
		return inventory.Count(j.LogBytes, "byte", "bytes")
	},
}

func optionsOfJob(j *api.Job) inventory.JobOptions { return j.JobOptions }

var (
	jobDetails = slices.Concat(
		ColumnsOf(jobCells, "Job=id", "verb", "status", "message", "wait reason", "retry_of", "plan", "rollout",
			"Differs in=differences", "nodes", "Addresses=addrs", "helpers", "group"),
		optionColumns(optionsOfJob, func(o inventory.JobOption) bool { return !o.Long }),
		ColumnsOf(jobCells, "tags of groups", "note,text", "warnings", "actor", "reason,text", "cancellation",
			"accepted", "started", "ended", "duration"),
	)
	// jobRest are the fields that only -o long shows.
	jobRest = slices.Concat(
		ColumnsOf(jobCells, "Queue position=position", "Waits for jobs=waits_for", "Waits until=wait_until", "phase"),
		optionColumns(optionsOfJob, func(o inventory.JobOption) bool { return o.Long }),
		ColumnsOf(jobCells, "deadline", "instance", "playbook_digest", "commit", "output", "revision"),
	)
)

// ofPlan describes the plan that a job carries out.
func ofPlan(_ Paint, j *api.Job) string {
	if j.Plan == "" {
		return ""
	}
	return Line(j.Plan) + ", made by " + Line(j.PlannedBy)
}

// jobStatus returns the status of a job with its phase and cause.
func (p Paint) jobStatus(j *api.Job) string {
	status := p.Job(j.Status)
	// The phase of a job that ended is history.
	if j.Phase != "" && !j.Status.Ended() {
		status += " (" + Line(j.Phase) + ")"
	}

	if j.Cause != "" {
		status += " (" + Line(j.Cause) + ")"
	}

	return status
}

func cancellation(_ Paint, j *api.Job) string {
	if j.Cancel == 0 {
		return ""
	}

	text := "requested " + inventory.Count(j.Cancel, "time", "times")

	switch {
	case j.CancelledByYou:
		text += ", first by you"
	case j.CancelBy != "":
		text += ", first by " + Line(j.CancelBy)
	}

	return text
}

// JobMessage returns how a job ended, in the words for its reader.
func JobMessage(j api.Job) string { return Line(forReader(j, j.Message)) }

// forReader returns a message about a job without the name of its reader.
func forReader(j api.Job, message string) string {
	if !j.CancelledByYou {
		return message
	}
	return strings.Replace(message, "cancelled by "+j.CancelBy, "you cancelled it", 1)
}

var runColumns = ColumnsOf(Cells[api.Run]{
	"duration": func(_ Paint, r *api.Run) string { return Elapsed(&r.Started, r.Ended) },
	"exit": func(_ Paint, r *api.Run) string {
		// A code of 0 adds nothing.
		if r.Code != 0 {
			return fmt.Sprintf("%s (code %d)", Line(r.Exit), r.Code)
		}
		return Line(r.Exit)
	},
}, "phase", "kind", "playbook", "hosts", "started", "duration", "exit", "message")

// resultColumns are the columns of the results of a run. One that compares reports changes that it
// did not make.
func resultColumns(compares bool) Columns[api.HostResult] {
	cells := Cells[api.HostResult]{"host": func(_ Paint, h *api.HostResult) string { return resultHost(*h) }}

	if !compares {
		return ColumnsOf(cells, "host", "ok", "changed", "failed,else 0", "unreachable", "Would change=foreseen",
			"Not judged=unjudged", "executed", "Failed task=task", "message")
	}

	return ColumnsOf(cells, "host", "ok", "Reported changes=changed", "failed,else 0", "unreachable",
		"Would change=foreseen", "Not judged=unjudged", "executed", "judged", "Failed task=task", "message", "doubt")
}

// run prints one run with the results of its hosts.
func (p *Printer) run(j api.Job, r api.Run) {
	hosts := make([]string, len(r.Hosts))
	for i, h := range r.Hosts {
		hosts[i] = h
		// The group that the host had in this run.
		if i < len(r.Groups) && r.Groups[i] != "" {
			hosts[i] += " (" + r.Groups[i] + ")"
		}
	}

	// Those that configured the hosts, if they are not the job's.
	own := ""
	if r.PlaybookDigest != j.PlaybookDigest {
		own = Line(r.PlaybookDigest)
	}

	p.Fields([]Field{
		{"Run", Line(r.Phase)},
		{"Playbook", Line(r.Playbook)},
		{"Playbooks", own},
		{"Hosts", List(hosts)},
		{"Started", Time(r.Started)},
		{"Ended", timeOf(r.Ended)},
		{"Exit", Line(r.Exit)},
		{"Code", fmt.Sprint(r.Code)},
		{"Message", Text(r.Message)},
		{"Manager", Line(LocalTimes(strings.Join(r.Troubles, "; ")))},
	})

	resultColumns(j.Check || j.Verb.Verifies()).Rows(p, r.Results)
}

// resultHost returns the host of a result, marked if the request does not name it.
func resultHost(h api.HostResult) string {
	if h.Helper {
		return Line(h.Host) + " (helper)"
	}
	return Line(h.Host)
}

// totals sums the results of one host over all runs of a job.
type totals struct{ ok, changed, failed, unreachable int }

func totalsByHost(j api.Job) map[string]totals {
	all := map[string]totals{}
	for _, r := range j.Runs {
		for _, h := range r.Results {
			t := all[h.Host]
			t.ok += h.OK
			t.changed += h.Changed
			t.failed += h.Failed

			if h.Unreachable {
				t.unreachable++
			}

			all[h.Host] = t
		}
	}

	return all
}

// Summary prints the result of a job for each host.
func (p *Printer) Summary(j api.Job) {
	if len(j.Hosts) == 0 {
		return
	}

	// The summary of a host has no counts of ok and failed tasks.
	counts := totalsByHost(j)

	rows := make([][]string, len(j.Hosts))
	for i, h := range j.Hosts {
		result := p.Paint.Good("done")
		switch {
		case h.OK && j.Check:
			result = p.Paint.Good("checked")
		case j.Verb.Verifies():
			result = p.verifyResult(h)
		case h.OK && len(j.Tags)+len(j.SkipTags) > 0:
			result = p.Paint.Changed("done in part")
		case h.OK:
		case onlyCleaned(j, h.Host):
			result = p.Paint.Changed("cleaned")
		case j.Status == api.Cancelled:
			result = p.Paint.Changed("cancelled")
		default:
			result = p.Paint.Bad("failed")
		}

		t := counts[h.Host]
		rows[i] = []string{
			Line(h.Host),
			p.Paint.Status(h.Status),
			result,
			fmt.Sprint(t.ok),
			fmt.Sprint(h.Changed),
			fmt.Sprint(t.failed),
			positive(t.unreachable),
			Line(ownError(j, h)),
		}
	}

	p.gap()
	p.Rows([]string{"HOST", "STATUS", "RESULT", "OK", changedHeader(j), "FAILED", "UNREACHABLE", "ERROR"},
		append(rows, p.helperRows(j, counts)...))
}

// verifyResult returns the result of a verification of a host.
func (p *Printer) verifyResult(h api.HostSummary) string {
	result, _, _ := strings.Cut(h.Error, ":")

	switch {
	case h.OK:
		return p.Paint.Good(string(inventory.Clean))
	case result == string(inventory.Drifted):
		return p.Paint.Bad(result)
	}

	return p.Paint.Changed(string(inventory.Unverified))
}

// changedHeader is the header of the numbers of changed tasks.
func changedHeader(j api.Job) string {
	if j.Check || j.Verb.Verifies() {
		return "WOULD CHANGE"
	}
	return "CHANGED"
}

// onlyCleaned reports whether the job cleaned up a host on which nothing failed.
func onlyCleaned(j api.Job, host string) bool {
	cleaned := false

	for _, r := range j.Runs {
		for _, h := range r.Results {
			if h.Host != host {
				continue
			}

			if h.Failed > 0 || h.Unreachable {
				return false
			}

			cleaned = r.Phase == "undo" && r.Exit == "done"
		}
	}

	return cleaned
}

// ownError returns the error of a host, unless it is that of the whole job, which
// is printed once.
func ownError(j api.Job, h api.HostSummary) string {
	if h.Error == j.Message {
		return ""
	}
	return forReader(j, h.Error)
}

// helperRows returns the rows of the helpers on which a play has acted.
func (p *Printer) helperRows(j api.Job, counts map[string]totals) [][]string {
	var rows [][]string
	for _, name := range j.Helpers {
		t, acted := counts[name]
		if !acted {
			continue
		}

		result := p.Paint.Good("helped")
		if t.failed+t.unreachable > 0 {
			result = p.Paint.Bad("failed")
		}

		rows = append(rows, []string{
			Line(name), "", result, fmt.Sprint(t.ok), fmt.Sprint(t.changed), fmt.Sprint(t.failed),
			positive(t.unreachable), "",
		})
	}

	return rows
}

// Failures returns one line for each task of a job that failed.
func Failures(j api.Job) []string {
	var lines []string
	for _, r := range j.Runs {
		for _, h := range r.Results {
			failed := h.Failed > 0 || h.Unreachable || h.Task != "" || h.Message != ""
			if failed {
				lines = append(lines, failureLine(r, h))
			}
		}
	}

	return lines
}

func failureLine(r api.Run, h api.HostResult) string {
	// A phase without a playbook, such as a verification, has a message but no task.
	if r.Playbook == "" {
		return fmt.Sprintf("%s: %s (%s)", Line(h.Host), Line(h.Message), Line(r.Phase))
	}

	line := resultHost(h) + ": " + failureKind(h.Unreachable)
	if h.Task != "" {
		line += fmt.Sprintf(" at the task %q", Line(h.Task))
	}
	line += fmt.Sprintf(" of %s (%s)", Line(r.Playbook), Line(r.Phase))
	if h.Message != "" {
		line += ": " + Clip(Line(h.Message), taskWidth)
	}
	return line
}

func failureKind(unreachable bool) string {
	if unreachable {
		return "unreachable"
	}
	return "failed"
}
