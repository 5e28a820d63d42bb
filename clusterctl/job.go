// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

const whichJob = "ID is a job's number, active (the running job that was started last) or last (the one that ended last)."

func (a *app) job() *cli.Command {
	return &cli.Command{
		Name: "job", Aliases: []string{"jobs"}, Usage: "jobs: what the manager does, did, and will do",
		Commands: []*cli.Command{
			a.leaf(leaf{
				name: "list", usage: "list jobs, the newest last",
				formats: tableFormats,
				flags: append([]cli.Flag{
					&cli.StringSliceFlag{
						Name:  "status",
						Usage: "only jobs of this `STATUS`: Queued, Running, Complete, Errored or Cancelled",
					},
					&cli.StringFlag{Name: "node", Usage: "only jobs about this node or address: its `NAME`"},
					&cli.StringFlag{Name: "limit", Value: "20", Usage: "at most the newest `N`; 0: all"},
					watchFlag(),
				}, columnFlags(jobColumns.names())...),
				examples: []string{
					"clusterctl job list",
					"clusterctl job list --status Running,Queued",
					"clusterctl job list --limit 0 -o json",
					"clusterctl job list -o wide --sort -took",
					"clusterctl job list --columns id,nodes,note --sort status,-id",
					"clusterctl job list -w",
				},
				run: jobList,
			}),
			a.leaf(leaf{
				name:     "get",
				args:     "ID",
				min:      1,
				max:      1,
				usage:    "show one job",
				about:    whichJob + " -o long shows its variables as well.",
				examples: []string{"clusterctl job get last", "clusterctl job get 12 -o long"},
				run: func(ctx context.Context, c *call) error {
					j, err := c.manager.Job(ctx, c.args[0])
					if err != nil {
						return err
					}

					return c.showJob(j)
				},
			}),
			a.jobWhy(),
			a.leaf(leaf{
				name:    "logs",
				aliases: []string{"log"},
				args:    "ID",
				min:     1,
				max:     1,
				usage:   "print a job's output",
				about:   whichJob,
				flags: []cli.Flag{
					&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until the job has ended"},
					&cli.BoolFlag{
						Name:  "events",
						Usage: "what happened per host and task instead of the text: a JSON object a line",
					},
				},
				formats: []string{},
				examples: []string{
					"clusterctl job logs last",
					"clusterctl job logs -f active",
					"clusterctl job logs --events 12",
				},
				run: jobLogs,
			}),
			a.leaf(leaf{
				name: "wait", args: "ID", min: 1, max: 1, usage: "wait for a job, with its progress, as the verbs do",
				about:    whichJob + " The exit code is 3 when the job fails.",
				examples: []string{"clusterctl job wait active"},
				run: func(ctx context.Context, c *call) error {
					j, err := c.manager.Job(ctx, c.args[0])
					if err != nil {
						return err
					}

					c.say("job %s: %s", j.ID, title(j))

					return c.wait(ctx, j)
				},
			}),
			a.jobRetry(),
			a.leaf(leaf{
				name:  "cancel",
				args:  "ID",
				min:   1,
				max:   1,
				usage: "stop a job, and take its failure path",
				about: whichJob + "\nA queued job ends at once. A running one is stopped and cleans up after itself; cancelling it once more skips " +
					"the cleanup, and leaves its nodes Quarantined.",
				examples: []string{"clusterctl job cancel 12", "clusterctl job cancel active"},
				run: func(ctx context.Context, c *call) error {
					j, err := c.manager.Cancel(ctx, c.args[0])
					if err != nil {
						return err
					}

					switch {
					case j.Status.Ended():
						c.say("job %s is %s", j.ID, j.Status)
					case j.Cancel > 1:
						c.say(
							"job %s is being cancelled without its cleanup; to watch: %s job wait %s",
							j.ID,
							c.self(),
							j.ID,
						)
					default:
						c.say("job %s is being cancelled; to watch: %s job wait %s", j.ID, c.self(), j.ID)
					}

					if c.format == formatTable {
						return nil
					}

					return c.showJob(j)
				},
			}),
		},
	}
}

func jobList(ctx context.Context, c *call) error {
	limit, err := number(c, "limit", 0)
	if err != nil {
		return err
	}

	if !c.IsSet("limit") {
		limit = 20
	}

	filter := client.JobFilter{Node: c.String("node"), Limit: limit}
	for _, word := range values(c, "status") {
		s, err := parseJobStatus(word)
		if err != nil {
			return err
		}

		filter.Status = append(filter.Status, s)
	}

	layout, err := jobColumns.read(c)
	if err != nil {
		return err
	}

	if c.Bool("watch") {
		return followJobs(ctx, c, layout, filter)
	}

	jobs, err := c.manager.Jobs(ctx, filter)
	if err != nil {
		return err
	}

	layout.sort(jobs.Items)

	v := view{wire: jobs, stale: jobs.Stale}
	for _, j := range jobs.Items {
		v.names = append(v.names, j.ID)
	}

	v.table = func(p *printer) { layout.print(p, jobs.Items) }
	v.long = func(p *printer) {
		for _, j := range jobs.Items {
			p.job(j, true)
		}
	}

	if len(jobs.Items) == 0 && c.forPeople() {
		c.say("there are no such jobs")
		return nil
	}

	return c.show(v)
}

func parseJobStatus(word string) (api.JobStatus, error) {
	for _, s := range api.JobStatuses {
		if strings.EqualFold(string(s), word) {
			return s, nil
		}
	}

	return "", usagef(
		"%q is not a job's status",
		word,
	).do("the statuses are %v", strings.Trim(fmt.Sprint(api.JobStatuses), "[]"))
}

// jobLogs prints the bytes of a job's output as they are, or its events.
func jobLogs(ctx context.Context, c *call) error {
	// Without patience of the client's own: an outage is told of here.
	m, err := c.dial(-1)
	if err != nil {
		return err
	}

	r := &logReader{call: c, from: m, id: c.args[0]}

	read := r.text
	if c.Bool("events") {
		read = r.events
	}

	o := outage{note: func(s string) { c.say("%s", s) }}

	r.answered = o.over
	for {
		err := read(ctx)
		if err == nil || !r.began {
			return err
		}

		if err := o.wait(ctx, err); err != nil {
			return err
		}
	}
}

// logReader reads a job's output in several attempts, each going on where the
// one before ended.
type logReader struct {
	*call
	from     *client.Client
	id       string
	offset   int64 // of the text
	seen     int   // events
	began    bool  // there was an answer
	answered func()
}

func (r *logReader) text(ctx context.Context) error {
	log, err := r.from.Log(ctx, r.id, r.offset, r.Bool("follow"))
	if err != nil {
		return err
	}

	defer func() { _ = log.Close() }()
	r.began, r.id = true, log.Job() // "active" may be another one later
	r.answered()

	buf := make([]byte, 32<<10)
	for {
		n, err := log.Read(buf)
		if n > 0 {
			if err := r.write(buf[:n]); err != nil {
				return err
			}

			r.offset += int64(n)
		}

		if err == io.EOF {
			return nil
		}

		if err != nil {
			return err
		}
	}
}

func (r *logReader) events(ctx context.Context) error {
	if !r.began {
		j, err := r.from.Job(ctx, r.id)
		if err != nil {
			return err
		}

		r.id, r.began = j.ID, true
	}

	n := 0

	return r.from.Events(ctx, r.id, 0, r.Bool("follow"), func(e api.Event) error {
		r.answered()

		if n++; n <= r.seen {
			return nil
		}

		r.seen = n
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)

		if err := enc.Encode(e); err != nil {
			return err
		}

		return r.write(b.Bytes())
	})
}

// showJob prints one job.
func (c *call) showJob(j api.Job) error {
	return c.show(view{
		wire: j, names: []string{j.ID},
		table: func(p *printer) { p.job(j, false) },
		long:  func(p *printer) { p.job(j, true) },
	})
}

// waits says what a queued job waits for; "": for nothing but its turn.
func waits(j api.Job) string {
	switch {
	case j.WaitReason != "":
		return oneLine(j.WaitReason)
	case len(j.WaitsFor) == 1:
		return "waits for job " + list(j.WaitsFor)
	case len(j.WaitsFor) > 1:
		return "waits for jobs " + list(j.WaitsFor)
	}

	return ""
}

// job prints one job; all: everything about it.
func (p *printer) job(j api.Job, all bool) {
	status := p.paint.job(j.Status)
	if j.Phase != "" && !j.Status.Ended() {
		status += " (" + oneLine(j.Phase) + ")"
	}

	if j.Cause != "" {
		status += " (" + oneLine(j.Cause) + ")"
	}

	cancel := ""
	if j.Cancel > 0 {
		cancel = "asked for " + inventory.Count(j.Cancel, "time", "times")
		if j.CancelBy != "" {
			cancel += ", first by " + oneLine(j.CancelBy)
		}
	}

	waiting := ""
	if j.Status == api.Queued {
		waiting = waits(j)
	}

	ended := timePtr(j.Ended)
	if t := took(j.Started, j.Ended); t != "" {
		ended += " (took " + t + ")"
	}

	pairs := []string{
		"Job",
		oneLine(j.ID),
		"Verb",
		oneLine(string(j.Verb)),
		"Status",
		status,
		"Reason",
		printable(j.Message, true),
		"Waits",
		waiting,
		"Retry of",
		oneLine(j.RetryOf),
		"Nodes",
		list(j.Nodes),
		"Addresses",
		list(j.Addrs),
		"Helpers",
		list(j.Helpers),
		"Group",
		oneLine(j.Group),
		"Note",
		printable(j.Note, true),
		"Warnings",
		printable(strings.Join(j.Warnings, "\n"), true),
		"Asked by",
		oneLine(j.Actor),
		"Because",
		printable(j.Reason, true),
		"Cancel",
		cancel,
		"Accepted",
		timeText(j.Accepted),
		"Started",
		timePtr(j.Started),
		"Ended",
		ended,
	}
	if all {
		output := "" // of the jobs of a list it is not known
		if j.LogBytes > 0 {
			output = inventory.Count(j.LogBytes, "byte", "bytes")
		}

		pairs = append(
			pairs,
			"Place in queue",
			positive(j.Position),
			"Waits for jobs",
			list(j.WaitsFor),
			"Phase",
			oneLine(j.Phase),
			"On failure",
			oneLine(j.OnFailure),
			"Force",
			map[bool]string{true: "yes"}[j.Force],
			"Deadline",
			timePtr(j.Deadline),
			"Instance",
			oneLine(j.Instance),
			"Playbooks",
			oneLine(j.PlaybookDigest),
			"Output",
			output,
			"Revision",
			fmt.Sprint(j.Revision),
		)
	}

	p.fields(pairs...)
	p.summary(j)

	if len(j.Runs) > 0 {
		p.gap()

		var rows [][]string
		for _, r := range j.Runs {
			exit := oneLine(r.Exit)
			if r.Code != 0 {
				exit += fmt.Sprintf(" (code %d)", r.Code)
			}

			rows = append(
				rows,
				[]string{
					oneLine(r.Phase),
					oneLine(r.Playbook),
					clip(list(r.Hosts), 40),
					timeText(r.Started),
					took(&r.Started, r.Ended),
					exit,
					clip(oneLine(r.Message), 72),
				},
			)
		}

		p.rows([]string{"PHASE", "PLAYBOOK", "HOSTS", "STARTED", "TOOK", "EXIT", "REASON"}, rows)
	}

	if lines := failures(j); lines != nil {
		p.gap()
		fmt.Fprintln(p.w, strings.Join(lines, "\n"))
	}

	if all {
		p.jobDetails(j)
	}
}

// jobDetails prints every run's results and the pinned variables.
func (p *printer) jobDetails(j api.Job) {
	for _, r := range j.Runs {
		hosts := make([]string, len(r.Hosts))
		for i, h := range r.Hosts {
			hosts[i] = h
			if i < len(r.Groups) && r.Groups[i] != "" {
				hosts[i] += " (" + r.Groups[i] + ")"
			}
		}

		ended := ""
		if r.Ended != nil {
			ended = timeText(*r.Ended)
		}

		p.fields(
			"Run",
			oneLine(r.Phase),
			"Playbook",
			oneLine(r.Playbook),
			"Hosts",
			list(hosts),
			"Started",
			timeText(r.Started),
			"Ended",
			ended,
			"Exit",
			oneLine(r.Exit),
			"Code",
			fmt.Sprint(r.Code),
			"Reason",
			printable(r.Message, true),
		)

		var rows [][]string
		for _, h := range r.Results {
			rows = append(rows, []string{
				oneLine(
					h.Host,
				),
				fmt.Sprint(h.OK),
				fmt.Sprint(h.Changed),
				fmt.Sprint(h.Failed),
				map[bool]string{true: "yes"}[h.Unreachable],
				oneLine(h.Task),
				oneLine(h.Message),
			})
		}

		if rows != nil {
			p.rows([]string{"HOST", "OK", "CHANGED", "FAILED", "UNREACHABLE", "FAILED TASK", "MESSAGE"}, rows)
		}
	}

	if len(j.Vars) == 0 {
		return
	}

	p.gap()

	var rows [][]string
	for _, host := range slices.Sorted(maps.Keys(j.Vars)) {
		for _, k := range slices.Sorted(maps.Keys(j.Vars[host])) {
			v := j.Vars[host][k]
			rows = append(rows, []string{oneLine(host), oneLine(k), scalar(v.Value), oneLine(v.Origin)})
		}
	}

	p.rows([]string{"HOST", "VARIABLE", "VALUE", "ORIGIN"}, rows)
}

// tally adds the results of a host over all runs of a job.
type tally struct{ ok, changed, failed, unreachable int }

func tallies(j api.Job) map[string]tally {
	all := map[string]tally{}
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

// summary prints how the job ended, or stands, for each host.
func (p *printer) summary(j api.Job) {
	if len(j.Hosts) == 0 {
		return
	}

	counts := tallies(j)

	var rows [][]string
	for _, h := range j.Hosts {
		result := p.paint.good("done")
		switch {
		case h.OK:
		case j.Status == api.Cancelled:
			result = p.paint.changed("cancelled")
		default:
			result = p.paint.bad("failed")
		}

		t := counts[h.Host]

		unreachable := ""
		if t.unreachable > 0 {
			unreachable = fmt.Sprint(t.unreachable)
		}

		rows = append(rows, []string{
			oneLine(
				h.Host,
			),
			p.paint.status(h.Status),
			result,
			fmt.Sprint(t.ok),
			fmt.Sprint(h.Changed),
			fmt.Sprint(t.failed),
			unreachable,
			clip(oneLine(h.Error), 100),
		})
	}

	p.gap()
	p.rows([]string{"HOST", "STATUS", "RESULT", "OK", "CHANGED", "FAILED", "UNREACHABLE", "ERROR"}, rows)
}

// failures are the tasks that failed, one line each.
func failures(j api.Job) []string {
	var lines []string
	for _, r := range j.Runs {
		for _, h := range r.Results {
			if h.Failed == 0 && !h.Unreachable && h.Task == "" && h.Message == "" {
				continue
			}

			what := "failed"
			if h.Unreachable {
				what = "unreachable"
			}

			if r.Playbook == "" {
				lines = append(lines, fmt.Sprintf("%s: %s (%s)", oneLine(h.Host), oneLine(h.Message), oneLine(r.Phase)))
				continue
			}

			line := fmt.Sprintf("%s: %s", oneLine(h.Host), what)
			if h.Task != "" {
				line += fmt.Sprintf(" at the task %q", oneLine(h.Task))
			}

			line += fmt.Sprintf(" of %s (%s)", oneLine(r.Playbook), oneLine(r.Phase))
			if h.Message != "" {
				line += ": " + clip(oneLine(h.Message), 400)
			}

			lines = append(lines, line)
		}
	}

	return lines
}
