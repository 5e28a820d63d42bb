// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/management/api"
)

// highlyAvailable is how many instances it takes to go on without one of them.
const highlyAvailable = 3

func (a *app) instance() *cli.Command {
	return &cli.Command{
		Name: "instance", Aliases: []string{"instances"}, Usage: "the managers that are alive",
		Commands: []*cli.Command{
			a.leaf(leaf{
				name: "list", usage: "list the managers that are alive, the oldest first",
				about:    "One that ended without a word stays in the list for 15 seconds.",
				examples: []string{"clusterctl instance list", "clusterctl instance list -o json"},
				run: func(ctx context.Context, c *call) error {
					l, err := c.manager.Instances(ctx)
					if err != nil {
						return err
					}
					switch n := len(l.Items); {
					case n == 1:
						c.say("warning: one instance is not highly available: while its host is down, nothing is managed")
					case n < highlyAvailable:
						c.say("warning: %d instances are not highly available: it takes %d to go on without one of them", n, highlyAvailable)
					}
					v := view{wire: l, stale: l.Stale, table: func(p *printer) { p.instances(l.Items, false) }, long: func(p *printer) { p.instances(l.Items, true) }}
					for _, in := range l.Items {
						v.names = append(v.names, in.ID)
					}
					return c.show(v)
				},
			}),
		},
	}
}

func (p *printer) instances(items []api.Instance, all bool) {
	header := []string{"ID", "NODE", "ADDR", "VERSION", "STARTED"}
	if all {
		header = append(header, "API")
	}
	var rows [][]string
	for _, in := range items {
		row := []string{oneLine(in.ID), oneLine(in.Node), oneLine(in.Addr), oneLine(in.Version), timeText(in.Started)}
		if all {
			row = append(row, oneLine(strings.Join(in.API, " ")))
		}
		rows = append(rows, row)
	}
	p.rows(header, rows)
}
