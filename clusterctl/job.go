// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/follow"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

const (
	// jobActive and jobLast stand for the number of a job.
	jobActive = "active"
	jobLast   = "last"

	// defaultJobs is the default of job list --limit.
	defaultJobs = 20
)

func jobRows() rows {
	list := jobs.list(leaf{})
	list.run = listJobs

	return rows{
		"job list": list,
		"job get": {
			readsJob: true,
			run: func(ctx context.Context, c *call) error {
				j, err := c.manager.Job(ctx, c.args[0])
				if err != nil {
					return err
				}
				return c.showJob(j)
			},
		},
		"job why": {
			readsJob: true,
			formats:  namelessFormats,
			run: func(ctx context.Context, c *call) error {
				return view(c, func(p *print.Printer, e api.JobExplanation) {
					p.JobExplanation(e, c.self())
				})(c.manager.ExplainJob(ctx, c.args[0]))
			},
		},
		"job logs": {
			readsJob: true,
			formats:  []string{},
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
				host, task := c.String("host"), c.String("task")
				some := !since.IsZero() || host != "" || task != ""

				switch {
				case events && timed:
					return exit.Usagef("--events and --timestamps exclude each other").
						Try("drop --timestamps: each event has its time")
				case tail > 0 && (events || timed || some):
					return exit.Usagef("--tail excludes --events, --timestamps, --since, --host and --task").
						Try("drop --tail, or choose the latest results with --since")
				}

				o := follow.LogOptions{
					Follow: c.Bool("follow"), Events: events, Timed: timed || some, Tail: tail, Since: since,
					Host: host, Task: task,
				}

				out := c.output()
				if c.Bool("raw") {
					out.Text = c.write
				}
				return follow.Log(ctx, m, c.args[0], o, out)
			},
		},
		"job wait": {
			readsJob: true,
			complete: jobsThat(isOpen, jobActive),
			run: func(ctx context.Context, c *call) error {
				j, err := c.manager.Job(ctx, c.args[0])
				if err != nil {
					return err
				}
				c.say("job %s: %s", j.ID, print.Title(j))
				return c.wait(ctx, j)
			},
		},
		"job retry": {
			changesJob: true,
			complete:   jobsThat(func(j api.Job) bool { return j.Status.Ended() && j.Status != api.Complete }, jobLast),
			run: func(ctx context.Context, c *call) error {
				request := api.Retry{Nodes: c.args[1:]}
				if err := c.fill(&request); err != nil {
					return err
				}

				vars, err := c.extraVars(ctx)
				if err != nil {
					return err
				}
				if request.ExtraVars, err = raw(vars); err != nil {
					return err
				}

				j, err := c.manager.Retry(ctx, c.args[0], request)

				return c.accepted(ctx, j, err)
			},
		},
		"job cancel": {changesJob: true, complete: jobsThat(isOpen, jobActive), run: cancelJob},
	}
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
