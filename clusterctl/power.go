// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"slices"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

var powers = noun[api.Power]{
	columns: print.PowerColumns,
	name:    func(p api.Power) string { return p.Node },
	empty:   "no BMC is registered",
	all: func(ctx context.Context, c *call) (listing[api.Power], error) {
		if err := c.selectNodes(ctx); err != nil {
			return listing[api.Power]{}, err
		}

		// A name that no node has is a mistake, and a node without a BMC is none of the list.
		if len(c.args) > 0 && c.String("selector") == "" {
			if _, err := c.manager.Nodes(ctx, client.NodeFilter{Names: c.args}); err != nil {
				return listing[api.Power]{}, err
			}
		}

		l, err := c.manager.Power(ctx)
		if len(c.args) > 0 {
			l.Items = slices.DeleteFunc(l.Items, func(p api.Power) bool { return !slices.Contains(c.args, p.Node) })
			l.Total = len(l.Items)
		}

		return listingOf(l, err)
	},
}

// powerRows returns the commands that switch nodes: the verb power with its variables.
func powerRows() rows {
	all := rows{"power status": powers.list(leaf{max: -1, selects: true, names: true, complete: anyNodes})}

	for _, to := range []string{"on", "off", "cycle", "reset", "soft"} {
		// Nothing stops when a node is turned on.
		all["power "+to] = powerVerb("power "+to, to == "on", func(c *call) api.Vars {
			vars := api.Vars{"to": to}
			for flag, name := range map[string]string{"ramp": "ramp", "per-rack": "per_rack"} {
				if c.IsSet(flag) {
					vars[name] = c.String(flag)
				}
			}

			return vars
		})
	}

	for _, device := range []string{"pxe", "disk", "cdrom", "setup", "default"} {
		path := "power boot " + device
		all[path] = powerVerb(path, true, func(c *call) api.Vars {
			vars := api.Vars{"boot": device}
			if c.IsSet("mode") {
				vars["mode"] = c.String("mode")
			}
			if c.Bool("lasting") {
				vars["lasting"] = true
			}

			return vars
		})
	}

	all["power rotate-password"] = powerVerb("power rotate-password", true, func(*call) api.Vars {
		return api.Vars{"rotate_password": true}
	})

	all["power login"] = leaf{names: true, complete: anyNodes, run: setBMCLogin}

	return all
}

// setBMCLogin gives the login of a BMC, or has the recorded one tried once more.
func setBMCLogin(ctx context.Context, c *call) error {
	login := api.BMCLogin{User: c.String("user"), Reason: c.String("reason")}

	switch again := c.Bool("again"); {
	case again && (c.IsSet("user") || c.IsSet("password-file")):
		return exit.Usagef("--again tries the recorded login, and takes no other one").Try("leave it out")
	case !again:
		password, err := c.bmcPassword(ctx, "password-file", cmp.Or(c.String("password-file"), "-"))
		if err != nil {
			return err
		}
		login.Password = password

		// The manager would try the recorded one.
		if login.Password == "" {
			return exit.Usagef("the password is empty").Try("give one, or --again for the recorded login")
		}
	}

	p, err := c.manager.SetBMCLogin(ctx, c.args[0], login)
	if err != nil {
		return err
	}

	layout, err := layoutOf(c, print.PowerColumns)
	if err != nil {
		return err
	}

	return powers.show(c, layout, listing[api.Power]{answer: p, items: []api.Power{p}})
}

// powerVerb returns a command that requests the verb power with variables of its own.
func powerVerb(path string, gentle bool, vars func(*call) api.Vars) leaf {
	row, _ := inventory.TransitionOf(inventory.VerbPower)

	shown := row
	shown.KeepsService = gentle
	shown.Options = slices.DeleteFunc(slices.Clone(row.Options), func(o inventory.Option) bool {
		return o.Field == inventory.FieldExtraVars || gentle && o.Field == inventory.FieldForce
	})

	l := verbAs(shown, path)
	l.usage = ""
	l.run = func(ctx context.Context, c *call) error { return c.submitAs(ctx, shown, path, vars(c)) }

	return l
}
