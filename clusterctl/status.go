// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

func (a *app) health() *cli.Command {
	return a.leaf(leaf{
		name:     "health",
		usage:    "check the health of the manager",
		about:    "The exit code is 1 unless the manager is healthy.",
		formats:  namelessFormats,
		examples: []string{"clusterctl health", "clusterctl health -o json"},
		run: func(ctx context.Context, c *call) error {
			h, err := c.manager.Health(ctx)
			if err != nil {
				return err
			}

			for _, w := range h.Warnings {
				c.say("warning: %s", w)
			}

			answer := print.Answer{Wire: h, Stale: h.Stale, Table: func(p *print.Printer) { p.Health(h) }}
			if err := c.show(answer); err != nil {
				return err
			}

			if h.Status != api.HealthOK {
				return exit.Errorf(exit.Failed, "the manager is %s", h.Status).
					Try("see the checks above, and the log of the manager: journalctl -u clusterm")
			}

			return nil
		},
	})
}

// versions is the answer of `version` as JSON and YAML.
type versions struct {
	Client api.Version  `json:"client"`
	Server *api.Version `json:"server,omitempty"`
}

func (a *app) version() *cli.Command {
	return a.leaf(leaf{
		name:  "version",
		usage: "print the versions of clusterctl and of the manager",
		flags: []cli.Flag{&cli.BoolFlag{Name: "client", Usage: "the version of clusterctl only; contacts no " +
			"manager"}},
		formats:  namelessFormats,
		examples: []string{"clusterctl version", "clusterctl version --client"},
		run: func(ctx context.Context, c *call) error {
			v := versions{Client: c.app.Version}

			// The version of clusterctl is worth printing without a manager, too.
			var failed error
			if !c.Bool("client") {
				server, err := c.manager.Version(ctx)
				if err == nil {
					v.Server = &server
				}

				failed = err
			}

			err := c.show(print.Answer{Wire: v, Table: func(p *print.Printer) {
				p.Printf("%s\n", print.VersionLine("clusterctl", v.Client))

				if v.Server != nil {
					p.Printf("%s\n", print.VersionLine("clusterm  ", *v.Server))
				}
			}})
			if err != nil {
				return err
			}

			return failed
		},
	})
}
