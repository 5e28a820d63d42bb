// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/follow"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

const (
	jobIDs = "ID is the number of a job, active (the running job that started last) or last (the newest job, which " +
		"may still be queued)."
	readJobHelp   = jobIDs + " Without ID, the command is about the newest job."
	changeJobHelp = jobIDs + " Only a number needs no confirmation: for active and last, the command asks at a " +
		"terminal, and needs --yes in a script."

	// jobActive and jobLast stand for the number of a job.
	jobActive = "active"
	jobLast   = "last"

	// defaultJobs is the default of job list --limit.
	defaultJobs = 20
)

func (a *app) job() leaf {
	return leaf{
		name: "job", aliases: []string{"jobs"}, usage: "list, follow, explain, retry and cancel jobs",
		commands: []leaf{a.jobList(), a.jobGet(), a.jobWhy(), a.jobLogs(), a.jobWait(), a.jobRetry(), a.jobCancel()},
	}
}

func (a *app) jobList() leaf {
	flags := []cli.Flag{
		listFlag("status", "only jobs with this `STATUS`: Queued, Running, Complete, Errored or Cancelled"),
		valueFlag("node", "only jobs of the node or address `NAME`"),
		&cli.StringFlag{Name: "limit", Value: fmt.Sprint(defaultJobs), Usage: "at most the newest `N` jobs; 0: all"},
		watchFlag(),
	}

	l := jobs.list(leaf{
		name: "list", usage: "list jobs, newest last", flags: flags,
		examples: []string{
			"clusterctl job list",
			"clusterctl job list --status Running,Queued",
			"clusterctl job list --limit 0 -o json",
			"clusterctl job list -o wide --sort -duration",
			"clusterctl job list --columns id,nodes,message --sort status,-id",
			"clusterctl job list -w",
		},
	})
	l.run = listJobs

	return l
}

var jobs = noun[api.Job]{
	columns: print.JobColumns,
	name:    func(j api.Job) string { return j.ID },
	empty:   "no jobs found",
	long: func(p *print.Printer, items []api.Job) {
		for _, j := range items {
			p.Job(j, true)
		}
	},
	all: func(ctx context.Context, c *call) (listing[api.Job], error) {
		filter, err := jobFilter(c)
		if err != nil {
			return listing[api.Job]{}, err
		}
		return listingOf(c.manager.Jobs(ctx, filter))
	},
}

// jobsThat completes jobs, newest first, and names for jobs.
func jobsThat(keep func(api.Job) bool, aliases ...string) positional {
	some := offer(func(ctx context.Context, m *client.Client) ([]api.Job, error) {
		l, err := m.Jobs(ctx, client.JobFilter{Limit: 100})
		slices.Reverse(l.Items)
		return l.Items, err
	}, func(j api.Job) candidate {
		if keep != nil && !keep(j) {
			return candidate{}
		}
		return candidate{j.ID, print.Clip(print.Title(j), 50) + ": " + string(j.Status)}
	})

	return func(ctx context.Context, c *completer, current string) []candidate {
		if c.manager == nil || len(c.args) > 0 {
			return nil
		}
		return append(some(ctx, c, current), words(aliases...)...)
	}
}

func isOpen(j api.Job) bool { return !j.Status.Ended() }

func (a *app) jobGet() leaf {
	return leaf{
		name: "get", args: "[ID]", readsJob: true, usage: "show one job",
		about:    readJobHelp + " -o long includes its variables.",
		examples: []string{"clusterctl job get", "clusterctl job get 12 -o long"},
		run: func(ctx context.Context, c *call) error {
			j, err := c.manager.Job(ctx, c.args[0])
			if err != nil {
				return err
			}
			return c.showJob(j)
		},
	}
}

func (a *app) jobLogs() leaf {
	return leaf{
		name: "logs", aliases: []string{"log"}, args: "[ID]", readsJob: true, formats: []string{},
		usage: "print the output of a job",
		about: readJobHelp + "\n" +
			"Control characters that a host printed are replaced, unless you give --raw.\n" +
			"The output has no times. --timestamps prints instead one line for each result of a host and task, with " +
			"its time, and --since only the later ones of these lines.",
		flags: []cli.Flag{
			switchFlag("follow", "continue until the job ends", "f"),
			valueFlag("tail", "only the last `N` lines of the output so far"),
			switchFlag("raw", "the output as Ansible wrote it, control characters included"),
			switchFlag("events", "the results per host and task instead of the text, one JSON object per line"),
			switchFlag("timestamps", "the results per host and task instead of the text, one line each, with its time"),
			sinceFlag("as --timestamps (or --events), but only the results"),
		},
		examples: []string{
			"clusterctl job logs",
			"clusterctl job logs -f --tail 20",
			"clusterctl job logs --timestamps 12",
			"clusterctl job logs -f --since 10m",
			"clusterctl job logs --events 12",
		},
		run: func(ctx context.Context, c *call) error {
			// follow.Log reports outages, which a patient client would hide.
			m, err := c.dial(impatient)
			if err != nil {
				return err
			}

			tail, err := number(c, "tail", 1)
			if err != nil {
				return err
			}

			since, err := c.since()
			if err != nil {
				return err
			}

			events, timed := c.Bool("events"), c.Bool("timestamps")

			switch {
			case events && timed:
				return exit.Usagef("--events and --timestamps exclude each other").
					Try("drop --timestamps: each event has its time")
			case tail > 0 && (events || timed || !since.IsZero()):
				return exit.Usagef("--tail excludes --events, --timestamps and --since").
					Try("drop --tail, or choose the latest results with --since")
			}

			o := follow.LogOptions{
				Follow: c.Bool("follow"), Events: events, Timed: timed || !since.IsZero(), Tail: tail, Since: since,
			}

			out := c.output()
			if c.Bool("raw") {
				out.Text = c.write
			}
			return follow.Log(ctx, m, c.args[0], o, out)
		},
	}
}

func (a *app) jobWait() leaf {
	return leaf{
		name: "wait", args: "[ID]", readsJob: true, usage: "follow the progress of a job until it ends",
		complete: jobsThat(isOpen, jobActive),
		about: readJobHelp + " The exit code is 3 if the job fails, 8 if it leaves residue, and 1 after " +
			"--wait-timeout.",
		flags: []cli.Flag{waitTimeoutFlag()},
		examples: []string{
			"clusterctl job wait",
			"clusterctl job wait 12",
			"clusterctl job wait 12 --wait-timeout 10m",
		},
		run: func(ctx context.Context, c *call) error {
			j, err := c.manager.Job(ctx, c.args[0])
			if err != nil {
				return err
			}
			c.say("job %s: %s", j.ID, print.Title(j))

			return c.wait(ctx, j)
		},
	}
}

func (a *app) jobRetry() leaf {
	return leaf{
		name: "retry", args: "ID [NAME…]", changesJob: true,
		usage:    "repeat a failed job, with the playbooks and variables of today",
		complete: jobsThat(func(j api.Job) bool { return j.Status.Ended() && j.Status != api.Complete }, jobLast),
		about: changeJobHelp + "\n" +
			"The new job has the verb, group, extra variables and options of the original. Everything else is as " +
			"today, because that is where causes are corrected; the differences are printed: playbooks, names of " +
			"changed variables, groups and their tags, and nodes that cannot be retried. With --pinned the new job " +
			"has the playbooks, variables and tags of groups of the original, even if they have changed since.\n" +
			"Nodes that a failed update has taken out of service are commissioned, into the group of the update. The " +
			"nodes on which an update succeeded are left out and named, because a second update would take them out " +
			"of service again; --all includes them. NAME limits the new job to these nodes of the original. A job " +
			"without a failure is refused.\n" +
			"\n" + waitHelp,
		flags: []cli.Flag{
			switchFlag("failed", "only the nodes on which the job failed"),
			switchFlag("all", "all nodes, also those on which an update succeeded"),
			switchFlag("pinned", "with the playbooks, variables and tags of groups of the original"),
			valueFlag("playbooks", "the `PLAYBOOKS` of the cleanup: current for the configured folder (default: as "+
				"in the original)"),
			valueFlag("serial", "the `SIZE` of a batch (default: that of the original)"),
			extraVarsFlag("variables that override those of the original request"),
			timeoutFlag("that of the original"),
			yesFlag(),
			noWaitFlag(),
			waitTimeoutFlag(),
		},
		examples: []string{
			"clusterctl job retry 12",
			"clusterctl job retry 12 --failed",
			"clusterctl job retry 12 web-1-AB12",
			"clusterctl job retry 12 --pinned",
			"clusterctl job retry 12 -e release=2.2",
			"clusterctl job retry 12 --timeout 2h",
		},
		run: func(ctx context.Context, c *call) error {
			timeout, err := c.duration("timeout")
			if err != nil {
				return err
			}

			vars, err := c.extraVars(ctx)
			if err != nil {
				return err
			}
			extra, err := raw(vars)
			if err != nil {
				return err
			}

			j, err := c.manager.Retry(ctx, c.args[0], api.Retry{
				Serial: c.String("serial"), ExtraVars: extra,
				Failed: c.Bool("failed"), All: c.Bool("all"), Nodes: c.args[1:], Pinned: c.Bool("pinned"),
				Playbooks: c.String("playbooks"), Timeout: timeout,
			})

			return c.accepted(ctx, j, err)
		},
	}
}

func (a *app) jobCancel() leaf {
	return leaf{
		name: "cancel", args: "ID", changesJob: true, usage: "cancel a job", complete: jobsThat(isOpen, jobActive),
		about: changeJobHelp + "\n" +
			"A queued job ends at once. A running job stops and cleans up. To skip the cleanup, cancel again; the " +
			"nodes of the job are then Quarantined.",
		flags:    []cli.Flag{yesFlag()},
		examples: []string{"clusterctl job cancel 12", "clusterctl job cancel active --yes"},
		run:      cancelJob,
	}
}

// resolveJob replaces "last", or a missing argument, by the number of the newest
// job. The API's own "last" is the job that ended last, but the operator's last job
// is the one of the last request.
func (c *call) resolveJob(ctx context.Context) error {
	if len(c.args) > 0 && c.args[0] != jobLast {
		return nil
	}

	jobs, err := c.manager.Jobs(ctx, client.JobFilter{Limit: 1})
	if err != nil {
		return err
	}
	if len(jobs.Items) == 0 {
		return exit.Errorf(exit.NotFound, "there are no jobs yet").Try("to list the nodes: %s nodes get", c.self())
	}

	c.args = append([]string{jobs.Items[0].ID}, c.args[min(1, len(c.args)):]...)

	return nil
}

// chooseJob replaces "active" and "last" by the number of a job, after the operator
// has confirmed it: another job may have started since the last look.
func (c *call) chooseJob(ctx context.Context) error {
	if word := c.args[0]; word != jobActive && word != jobLast {
		return nil
	}

	if err := c.resolveJob(ctx); err != nil {
		return err
	}

	j, err := c.manager.Job(ctx, c.args[0])
	if err != nil {
		return err
	}
	c.args[0] = j.ID
	name := short(c.FullName())

	refusal := exit.Usagef("%s needs the number of a job, or a confirmation, which takes a terminal", name).
		Try("now it is job %[1]s, %[2]s: %[3]s %[1]s\nto confirm any job here: add --yes",
			j.ID, print.Title(j), c.FullName())

	return c.approve(ctx, fmt.Sprintf("%s %s, %s", strings.TrimPrefix(name, "job "), "job "+j.ID, print.Title(j)),
		refusal)
}

func listJobs(ctx context.Context, c *call) error {
	if c.Bool("watch") {
		return watchJobs(ctx, c)
	}
	return jobs.showAll(ctx, c)
}

// jobFilter reads the filters of job list.
func jobFilter(c *call) (f client.JobFilter, err error) {
	f = client.JobFilter{Node: c.String("node"), Limit: defaultJobs}

	// number returns 0, which means all, for an option that is not given.
	if c.IsSet("limit") {
		if f.Limit, err = number(c, "limit", 0); err != nil {
			return f, err
		}
	}

	f.Status, err = choices(c, "status", "a status of a job", api.JobStatuses)

	return f, err
}

// watchJobs is job list --watch.
func watchJobs(ctx context.Context, c *call) error {
	filter, err := jobFilter(c)
	if err != nil {
		return err
	}

	layout, err := layoutOf(c, print.JobColumns)
	if err != nil {
		return err
	}

	if err := c.checkWatch(); err != nil {
		return err
	}

	// Ids are numbers in text: job 10 follows job 9.
	older := print.ByNumber(func(j *api.Job) string { return j.ID })

	return follow.Table[api.Job]{
		Layout:  layout,
		Options: client.WatchOptions{Kinds: []api.WatchKind{api.WatchJobs}},
		Decode:  api.Change.Job,
		Name:    func(j api.Job) string { return j.ID },
		// A watch of jobs has no filters of its own.
		Match: func(j api.Job) bool {
			return (filter.Status == nil || slices.Contains(filter.Status, j.Status)) &&
				(filter.Node == "" || slices.Contains(print.Targets(j), filter.Node))
		},
		Order: func(a, b api.Job) int { return older(&a, &b) },
		Limit: filter.Limit,
	}.Follow(ctx, c.manager, c.output())
}

func cancelJob(ctx context.Context, c *call) error {
	j, err := c.manager.Cancel(ctx, c.args[0])
	if err != nil {
		return err
	}

	switch {
	case j.Status.Ended():
		c.say("job %s is %s", j.ID, j.Status)
	case j.Cancel > 1:
		c.say("job %s is being cancelled without cleanup; to follow it: %s job wait %s", j.ID, c.self(), j.ID)
	default:
		c.say("job %s is being cancelled; to follow it: %s job wait %s", j.ID, c.self(), j.ID)
	}

	// The sentence on stderr is the answer for people.
	if c.format == print.FormatTable {
		return nil
	}

	return c.showJob(j)
}

// showJob prints one job.
func (c *call) showJob(j api.Job) error {
	return c.show(print.Answer{
		Wire: j, Names: []string{j.ID},
		Table: func(p *print.Printer) { p.Job(j, false) },
		Long:  func(p *print.Printer) { p.Job(j, true) },
	})
}

func (a *app) jobWhy() leaf {
	return leaf{
		name: "why", args: "[ID]", readsJob: true, formats: namelessFormats,
		usage: "explain why a job waits, still runs or has failed, with remedies",
		about: readJobHelp + "\n" +
			"The explanation shows the position of the job in the queue and its obstacle, the failed hosts with task " +
			"and output, the steps that the manager took, and a command for every problem.",
		examples: []string{"clusterctl job why", "clusterctl job why 12 -o json"},
		run: func(ctx context.Context, c *call) error {
			return view(c, func(p *print.Printer, e api.JobExplanation) {
				p.JobExplanation(e, c.self())
			})(c.manager.ExplainJob(ctx, c.args[0]))
		},
	}
}
