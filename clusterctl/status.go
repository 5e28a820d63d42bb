// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"sync"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

func (a *app) health() leaf {
	return leaf{
		name: "health", hidden: true, formats: namelessFormats, usage: "check the health of the manager",
		about:    "The exit code is 1 unless the manager is healthy.",
		examples: []string{"clusterctl health", "clusterctl health -o json"},
		run: func(ctx context.Context, c *call) error {
			h, err := c.manager.Health(ctx)
			if err != nil {
				return err
			}

			return c.showHealth(h, print.Answer{Wire: h, Table: func(p *print.Printer) { p.Health(h) }})
		},
	}
}

// showHealth shows an answer about the health h, which decides on the exit code.
func (c *call) showHealth(h api.Health, answer print.Answer) error {
	for _, w := range h.Warnings {
		c.say("warning: %s", w)
	}

	answer.Stale = h.Stale
	if err := c.show(answer); err != nil {
		return err
	}

	if h.Status != api.HealthOK {
		return exit.Errorf(exit.Failed, "the manager is %s", h.Status).
			Try("see the checks above, and the log of the manager: journalctl -u clusterm")
	}

	return nil
}

// state is the answer of `status` as JSON and YAML.
type state struct {
	Health    api.Health     `json:"health"`
	Version   versions       `json:"version"`
	Instances []api.Instance `json:"instances"`
}

func (a *app) status() leaf {
	return leaf{
		name: "status", formats: namelessFormats,
		usage: "show the health of the manager, its version and its instances",
		about: "The exit code is 1 unless the manager is healthy. An instance that crashed disappears from the list " +
			"after 15 seconds. The version of clusterctl alone needs no manager: clusterctl --version.",
		examples: []string{"clusterctl status", "clusterctl status -o json"},
		run:      showStatus,
	}
}

func showStatus(ctx context.Context, c *call) error {
	s := state{Version: versions{Client: c.app.Version}}

	var (
		all       sync.WaitGroup
		server    api.Version
		instances api.List[api.Instance]
		failed    [3]error
	)

	all.Go(func() { s.Health, failed[0] = c.manager.Health(ctx) })
	all.Go(func() { server, failed[1] = c.manager.Version(ctx) })
	all.Go(func() { instances, failed[2] = c.manager.Instances(ctx) })
	all.Wait()

	if err := cmp.Or(failed[:]...); err != nil {
		return err
	}

	layout, err := print.InstanceColumns.Layout(nil, nil, c.format)
	if err != nil {
		return err
	}

	s.Version.Server, s.Instances = &server, instances.Items
	c.warnOfInstances(len(s.Instances))

	return c.showHealth(s.Health, print.Answer{Wire: s, Table: func(p *print.Printer) {
		p.Health(s.Health)
		p.Versions(s.Version.Client, &server)
		p.Printf("\n")
		layout.Print(p, s.Instances)
	}})
}

// versions is the answer of `version` as JSON and YAML.
type versions struct {
	Client api.Version  `json:"client"`
	Server *api.Version `json:"server,omitempty"`
}

func (a *app) version() leaf {
	return leaf{
		name: "version", hidden: true, formats: namelessFormats,
		usage:    "print the versions of clusterctl and of the manager",
		flags:    []cli.Flag{switchFlag("client", "the version of clusterctl only; contacts no manager")},
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
				p.Versions(v.Client, v.Server)
			}})
			if err != nil {
				return err
			}

			return failed
		},
	}
}
