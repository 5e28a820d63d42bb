// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

const waitHelp = "It waits for the job and shows its progress. Ctrl-C detaches; the job goes on. The exit code is 3 when the job fails."

// verb is a leaf that asks for a job.
func (a *app) verb(l leaf, verb inventory.Verb) *cli.Command {
	if verb != inventory.VerbDiscover {
		l.selects = true
		l.about += "\n" + chooseHelp
		l.flags = append(l.flags, selectorFlag(), yesFlag())
	}

	l.about = strings.TrimSpace(l.about + "\n\n" + waitHelp)
	l.flags = append(l.flags, jobFlags()...)
	l.run = func(ctx context.Context, c *call) error { return c.submit(ctx, verb) }

	return a.leaf(l)
}

// jobFlags are the options of everything that asks for a job.
func jobFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name:  "timeout",
			Usage: "how long the job may run: a `DURATION` like 90s, 15m or 1h30m (default: as configured)",
		},
		&cli.StringFlag{Name: "reason", Usage: "`WHY`, for the history"},
		&cli.BoolFlag{Name: "no-wait", Usage: "print the job's id and do not wait"},
	}
}

func (a *app) discover() *cli.Command {
	return a.verb(leaf{
		name: string(
			inventory.VerbDiscover,
		),
		args:  "ADDR…",
		min:   1,
		max:   -1,
		usage: "prepare hosts by address, so that they appear as nodes",
		about: "It installs the agent over ssh on each address (IPv4, IPv6 or host name), and is complete when every one " +
			"of them has appeared as Discovered.",
		flags: []cli.Flag{extraVarsFlag("variables for the preparation")},
		examples: []string{
			"clusterctl discover 192.168.2.11 192.168.2.12",
			"clusterctl discover fd00::11 -e '{\"agent_interface\": \"eth1\"}'",
		},
	}, inventory.VerbDiscover)
}

// submit asks for the job that the command line describes, and waits for it.
func (c *call) submit(ctx context.Context, verb inventory.Verb) error {
	if verb != inventory.VerbDiscover {
		if err := c.choose(ctx, string(verb)); err != nil {
			return err
		}
	}

	vars, err := c.extraVars(ctx)
	if err != nil {
		return err
	}

	r := api.JobRequest{
		Verb: verb, Group: c.String("host-group"), OnFailure: c.String("on-failure"),
		Force: c.Bool("force"), Reason: c.String("reason"),
	}
	if r.ExtraVars, err = raw(vars); err != nil {
		return err
	}

	if verb == inventory.VerbDiscover {
		r.Addrs = c.args
	} else {
		r.Nodes = c.args
	}

	if c.IsSet("timeout") {
		if err := r.Timeout.UnmarshalText([]byte(c.String("timeout"))); err != nil {
			message, remedy := explain(err)
			return usagef("--timeout: %s", message).do("%s", remedy)
		}
	}

	j, err := c.manager.Submit(ctx, r)

	return c.accepted(ctx, j, err)
}

// accepted goes on with what the manager answered to a request for a job: it
// waits for the job, or prints its id.
func (c *call) accepted(ctx context.Context, j api.Job, err error) error {
	if errors.Is(err, context.Canceled) {
		return failf(ExitInterrupted, "interrupted before the manager had answered; it may have accepted the job").
			do("see: %s job list", c.self())
	}

	if err != nil {
		return err
	}

	for _, w := range j.Warnings {
		c.say("warning: %s", w)
	}

	if c.Bool("no-wait") {
		if c.format == formatTable {
			c.format = formatName
		}

		return c.showJob(j)
	}

	c.say("job %s: %s", j.ID, title(j))

	if j.Note != "" {
		c.say("job %s: %s", j.ID, j.Note)
	}

	return c.wait(ctx, j)
}

// title says what a job is, e.g. "commission of a-1, b-2 as service-worker".
func title(j api.Job) string {
	text := string(j.Verb)
	if of := targets(j); len(of) > 0 {
		text += " of " + strings.Join(of, ", ")
	}

	if j.Group != "" {
		text += " as " + j.Group
	}

	if j.RetryOf != "" {
		text += " (retry of job " + j.RetryOf + ")"
	}

	return oneLine(text)
}
