// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

const valueHelp = "A VALUE is read as YAML: true, 42, 1.5, \"text\", [a, b], {k: v}; everything else is text as it stands.\n" +
	"Quote a value twice to keep it text: 'release=\"1.10\"'."

func (a *app) vars() *cli.Command {
	scopeFlags := func(more ...cli.Flag) []cli.Flag {
		return append([]cli.Flag{
			&cli.BoolFlag{Name: "global", Usage: "the variables of every node"},
			&cli.StringFlag{
				Name:    "group",
				Aliases: []string{"host-group", "g"},
				Usage:   "the variables of this host `GROUP`",
			},
			&cli.StringFlag{Name: "node", Aliases: []string{"n"}, Usage: "the variables of this node: its `NAME`"},
		}, more...)
	}

	return &cli.Command{
		Name:  "vars",
		Usage: "variables for the playbooks: of all nodes, of a group, of a node",
		Description: "Precedence, low to high: configuration file, global, group, node, request (-e of a verb). A key replaces " +
			"the whole value of a lower level.",
		Commands: []*cli.Command{
			a.leaf(leaf{
				name:  "get",
				args:  "[KEY…]",
				max:   -1,
				usage: "show variables: all of a level, or those named",
				flags: scopeFlags(
					&cli.BoolFlag{
						Name:  "merged",
						Usage: "with --node: every variable as the node gets it, and where it comes from",
					},
				),
				examples: []string{
					"clusterctl vars get --global",
					"clusterctl vars get --node web-1-AB12 --merged",
					"clusterctl vars get --group service-worker env -o json",
				},
				run: varsGet,
			}),
			a.leaf(leaf{
				name: "set", args: "[KEY=VALUE…]", max: -1, usage: "set variables; the others stay",
				about: valueHelp,
				flags: scopeFlags(extraVarsFlag("variables to set")),
				examples: []string{
					"clusterctl vars set --global proxy=http://proxy:3128 retries=3",
					"clusterctl vars set --group service-worker -e '{\"env\": {\"tier\": \"back\"}}'",
					"clusterctl vars set --node web-1-AB12 -e @vars.yml",
				},
				run: varsSet,
			}),
			a.leaf(leaf{
				name: "unset", args: "KEY…", min: 1, max: -1, usage: "remove variables",
				about:    "A key that is not set there is an error (exit code 4), and then none is removed.",
				flags:    scopeFlags(),
				examples: []string{"clusterctl vars unset --node web-1-AB12 proxy retries"},
				run:      varsUnset,
			}),
		},
	}
}

func (a *app) global() *cli.Command {
	return &cli.Command{
		Name: "global", Aliases: []string{"globals"}, Usage: "the variables of every node, as a whole",
		Commands: []*cli.Command{
			a.leaf(leaf{
				name: "get", usage: "show the global variables",
				examples: []string{"clusterctl global get", "clusterctl global get -o yaml"},
				run: func(ctx context.Context, c *call) error {
					v, err := c.manager.Vars(ctx, client.ScopeGlobal)
					if err != nil {
						return err
					}

					return c.showVars(v)
				},
			}),
			a.leaf(leaf{
				name: "set", usage: "replace all global variables",
				about: "What is not given is removed; `clusterctl vars set --global` changes single keys.",
				flags: []cli.Flag{extraVarsFlag("all global variables")},
				examples: []string{
					"clusterctl global set -e '{\"env\": {\"proxy\": \"http://proxy:3128\"}}'",
					"clusterctl global set -e @globals.yml",
					"clusterctl global set -e '{}'",
				},
				run: func(ctx context.Context, c *call) error {
					v, err := c.extraVars(ctx)
					if err != nil {
						return err
					}

					if v == nil {
						what := "%s needs -e"
						if c.IsSet("extra-vars") {
							what = "%s: -e holds no object, and nothing was changed"
						}

						return usagef(
							what,
							short(c.FullName()),
						).do("give all variables: -e '{\"KEY\": \"VALUE\"}' or -e @FILE; -e '{}' removes every one")
					}

					done, err := c.manager.SetVars(ctx, client.ScopeGlobal, v)
					if err != nil {
						return err
					}

					return c.changed(done, slices.Sorted(maps.Keys(v)), "the global variables are now: %s", keys(v))
				},
			}),
		},
	}
}

// scope is what --global, --group or --node names.
type scope struct {
	client.Scope
	node string // empty: it is not a node's
	name string
}

// scope reads --global, --group and --node, of which exactly one has to be there.
func (c *call) scope() (scope, error) {
	var given []scope
	if c.Bool("global") {
		given = append(given, scope{Scope: client.ScopeGlobal, name: "every node"})
	}

	if g := c.String("group"); g != "" {
		given = append(given, scope{Scope: client.ScopeGroup(g), name: "group " + g})
	}

	if n := c.String("node"); n != "" {
		given = append(given, scope{Scope: client.ScopeNode(n), node: n, name: "node " + n})
	}

	if len(given) != 1 {
		return scope{}, usagef(
			"%s needs one of --global, --group GROUP and --node NAME",
			short(c.FullName()),
		).do("%s --help shows examples", c.FullName())
	}

	return given[0], nil
}

func varsGet(ctx context.Context, c *call) error {
	s, err := c.scope()
	if err != nil {
		return err
	}

	if c.Bool("merged") {
		if s.node == "" {
			return usagef("--merged needs --node NAME").do("%s --node NAME --merged", c.FullName())
		}

		m, err := c.manager.MergedVars(ctx, s.node)
		if err != nil {
			return err
		}

		if len(m) == 0 && len(c.args) == 0 && c.forPeople() {
			c.say("no variables are set")
			return nil
		}

		if m, err = pick(m, c.args, s.name); err != nil {
			return err
		}

		return c.show(view{wire: m, names: slices.Sorted(maps.Keys(m)), table: func(p *printer) {
			var rows [][]string
			for _, k := range slices.Sorted(maps.Keys(m)) {
				rows = append(rows, []string{oneLine(k), scalar(m[k].Value), oneLine(m[k].Origin)})
			}

			p.rows([]string{"VARIABLE", "VALUE", "ORIGIN"}, rows)
		}})
	}

	v, err := c.manager.Vars(ctx, s.Scope)
	if err != nil {
		return err
	}

	if v, err = pick(v, c.args, s.name); err != nil {
		return err
	}

	return c.showVars(v)
}

// pick takes the named keys; none named: all.
func pick[V any](m map[string]V, names []string, where string) (map[string]V, error) {
	if len(names) == 0 {
		return m, nil
	}

	picked := map[string]V{}

	var missing []string
	for _, k := range names {
		v, ok := m[k]
		if !ok {
			missing = append(missing, k)
			continue
		}

		picked[k] = v
	}

	if len(missing) > 0 {
		return nil, failf(ExitNotFound, "nothing is set for %s at %s", strings.Join(missing, ", "), where).
			do("what is set: %s", keys(m))
	}

	return picked, nil
}

func keys[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}

	return list(slices.Sorted(maps.Keys(m)))
}

func varsSet(ctx context.Context, c *call) error {
	s, err := c.scope()
	if err != nil {
		return err
	}

	v, err := c.extraVars(ctx)
	if err != nil {
		return err
	}

	single, err := assignments(c.args)
	if err != nil {
		return err
	}

	if v == nil && len(single) == 0 {
		return usagef("%s needs KEY=VALUE or -e", short(c.FullName())).do("%s --help shows examples", c.FullName())
	}

	if v == nil {
		v = api.Vars{}
	}

	maps.Copy(v, single)

	var null []string
	for k, value := range v {
		if value == nil {
			null = append(null, k)
		}
	}

	if len(null) > 0 {
		slices.Sort(null)
		return usagef(
			"%s cannot be set to null",
			strings.Join(null, ", "),
		).do("use clusterctl vars unset to remove a variable")
	}

	done, err := c.manager.PatchVars(ctx, s.Scope, v)
	if err != nil {
		return err
	}

	return c.changed(done, slices.Sorted(maps.Keys(v)), "set for %s: %s", s.name, keys(v))
}

func varsUnset(ctx context.Context, c *call) error {
	s, err := c.scope()
	if err != nil {
		return err
	}

	set, err := c.manager.Vars(ctx, s.Scope)
	if err != nil {
		return err
	}

	if _, err := pick(set, c.args, s.name); err != nil {
		return err // a key that is not set is more likely misspelt than gone
	}

	patch := api.Vars{}
	for _, k := range c.args {
		patch[k] = nil
	}

	done, err := c.manager.PatchVars(ctx, s.Scope, patch)
	if err != nil {
		return err
	}

	return c.changed(done, slices.Sorted(maps.Keys(patch)), "unset for %s: %s", s.name, keys(patch))
}

// changed says what a change did, in words on stderr or in the format asked for.
func (c *call) changed(done api.Changed, names []string, format string, args ...any) error {
	for _, w := range done.Warnings {
		c.say("warning: %s", w)
	}

	if c.forPeople() {
		c.say(format, args...)
		return nil
	}

	return c.show(view{wire: done, names: names})
}

func (c *call) showVars(v api.Vars) error {
	names := slices.Sorted(maps.Keys(v))
	if len(v) == 0 && c.forPeople() {
		c.say("no variables are set")
		return nil
	}

	return c.show(view{
		wire: v, names: names,
		table: func(p *printer) {
			var rows [][]string
			for _, k := range names {
				rows = append(rows, []string{oneLine(k), scalar(v[k])})
			}

			p.rows([]string{"VARIABLE", "VALUE"}, rows)
		},
	})
}
