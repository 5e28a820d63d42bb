// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

func (a *app) config() *cli.Command {
	return &cli.Command{
		Name: "config", Usage: "the manager's own configuration",
		Commands: []*cli.Command{
			a.leaf(leaf{
				name:  "get",
				args:  "[KEY]",
				max:   1,
				usage: "show the configuration in force, and where each value comes from",
				about: "KEY is a key (jobs.forks) or the start of some (jobs). -o long says as well which keys can be set here; the others belong to the manager's configuration file.",
				examples: []string{
					"clusterctl config get",
					"clusterctl config get jobs",
					"clusterctl config get -o long",
				},
				run: configGet,
			}),
			a.leaf(leaf{
				name:     "set",
				args:     "KEY=VALUE…",
				min:      1,
				max:      -1,
				usage:    "change the configuration: it takes effect, or is refused",
				about:    "What is set here lies over the configuration file, and stays across restarts.\n" + valueHelp,
				examples: []string{"clusterctl config set jobs.limit=8 jobs.timeout=2h"},
				run: func(ctx context.Context, c *call) error {
					v, err := assignments(c.args)
					if err != nil {
						return err
					}

					return c.patchConfig(ctx, v, "set")
				},
			}),
			a.leaf(leaf{
				name:     "unset",
				args:     "KEY…",
				min:      1,
				max:      -1,
				usage:    "take back what was set; the configuration file counts again",
				examples: []string{"clusterctl config unset jobs.limit"},
				run: func(ctx context.Context, c *call) error {
					v := api.Vars{}
					for _, k := range c.args {
						v[k] = nil
					}

					return c.patchConfig(ctx, v, "unset")
				},
			}),
		},
	}
}

func configGet(ctx context.Context, c *call) error {
	all, err := c.manager.Config(ctx)
	if err != nil {
		return err
	}

	if len(c.args) == 0 {
		return c.showConfig(all)
	}

	key := c.args[0]

	some := api.Config{}
	for k, s := range all {
		if k == key || strings.HasPrefix(k, strings.TrimSuffix(key, ".")+".") {
			some[k] = s
		}
	}

	if len(some) == 0 {
		f := failf(ExitNotFound, "the configuration has no key %q", key)
		if near := inventory.Closest(key, slices.Collect(maps.Keys(all))); near != "" {
			return f.do("did you mean %s?", near)
		}

		return f.do("clusterctl config get lists the keys")
	}

	return c.showConfig(some)
}

func (c *call) patchConfig(ctx context.Context, patch api.Vars, did string) error {
	now, err := c.manager.PatchConfig(ctx, patch)
	if err != nil {
		return err
	}

	some := api.Config{}
	for k := range patch {
		if s, ok := now[k]; ok {
			some[k] = s
		}
	}

	if c.format == formatTable {
		for _, k := range slices.Sorted(maps.Keys(some)) {
			value := scalar(some[k].Value)
			if value == "" {
				value = "empty"
			}

			c.say("%s: %s is now %s (%s)", did, k, value, some[k].Origin)
		}

		return nil
	}

	return c.showConfig(some)
}

func (c *call) showConfig(cfg api.Config) error {
	names := slices.Sorted(maps.Keys(cfg))

	return c.show(view{
		wire: cfg, names: names,
		table: func(p *printer) {
			var rows [][]string
			for _, k := range names {
				rows = append(rows, []string{oneLine(k), scalar(cfg[k].Value), oneLine(cfg[k].Origin)})
			}

			p.rows([]string{"KEY", "VALUE", "ORIGIN"}, rows)
		},
		long: func(p *printer) {
			var rows [][]string
			for _, k := range names {
				rows = append(
					rows,
					[]string{oneLine(k), scalar(cfg[k].Value), oneLine(cfg[k].Origin), yesNo(cfg[k].Settable)},
				)
			}

			p.rows([]string{"KEY", "VALUE", "ORIGIN", "SETTABLE"}, rows)
		},
	})
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}

	return "no"
}
