// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// verb is a leaf that requests a job.
func (a *app) verb(verb inventory.Verb, l leaf) *cli.Command {
	l.name = string(verb)
	l.min, l.max = 1, -1

	if verb != inventory.VerbDiscover {
		l.args = "NAME…"
		l.selects = true
		l.about += "\n" + chooseHelp
		l.flags = append(l.flags, selectorFlag(), yesFlag())
	}

	// The common parts of the help follow the description of the verb.
	l.about = strings.TrimSpace(l.about + "\n\n" + waitHelp)
	l.flags = append(l.flags, jobFlags()...)
	l.run = func(ctx context.Context, c *call) error { return c.submit(ctx, verb) }

	return a.leaf(l)
}

// jobFlags are the options of every command that requests a job.
func jobFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name:  "timeout",
			Usage: "the time limit of the job: a `DURATION` such as 90s, 15m or 1h30m (default: as configured)",
		},
		&cli.StringFlag{Name: "reason", Usage: "the `REASON` for the history"},
		&cli.BoolFlag{Name: "no-wait", Usage: "print the id of the job, and do not wait"},
	}
}

func (a *app) discover() *cli.Command {
	return a.verb(inventory.VerbDiscover, leaf{
		args:  "ADDR…",
		usage: "prepare hosts by address, so that they appear as nodes",
		about: "The job installs the agent over ssh at each address (IPv4, IPv6 or host name), and is complete once " +
			"every " +
			"host has appeared as a Discovered node.",
		flags: []cli.Flag{extraVarsFlag("variables for the preparation")},
		examples: []string{
			"clusterctl discover 192.168.2.11 192.168.2.12",
			"clusterctl discover fd00::11 -e '{\"agent_interface\": \"eth1\"}'",
		},
	})
}

// submit requests the job that the command line describes, and waits for it.
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
		Verb:      verb,
		Group:     c.String("host-group"),
		OnFailure: c.String("on-failure"),
		Force:     c.Bool("force"),
		Reason:    c.String("reason"),
	}
	if r.ExtraVars, err = raw(vars); err != nil {
		return err
	}

	// Hosts have no names before their discovery.
	if verb == inventory.VerbDiscover {
		r.Addrs = c.args
	} else {
		r.Nodes = c.args
	}

	if c.IsSet("timeout") {
		// One grammar of durations for the API and the command line.
		if err := r.Timeout.UnmarshalText([]byte(c.String("timeout"))); err != nil {
			message, remedy := exit.Explain(err)
			return exit.Usagef("--timeout: %s", message).Try("%s", remedy)
		}
	}

	j, err := c.manager.Submit(ctx, r)

	return c.accepted(ctx, j, err)
}
