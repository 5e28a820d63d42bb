// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"strings"
	"time"

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
				name:    "list",
				usage:   "list the managers that are alive, the oldest first",
				about:   "One that ended without a word stays in the list for 15 seconds.",
				formats: tableFormats,
				flags:   columnFlags(instanceColumns.names()),
				examples: []string{
					"clusterctl instance list",
					"clusterctl instance list -o json",
					"clusterctl instance list --columns node,version --sort version,node",
				},
				run: func(ctx context.Context, c *call) error {
					layout, err := instanceColumns.read(c)
					if err != nil {
						return err
					}

					l, err := c.manager.Instances(ctx)
					if err != nil {
						return err
					}

					switch n := len(l.Items); {
					case n == 1:
						c.say(
							"warning: one instance is not highly available: while its host is down, nothing is managed",
						)
					case n < highlyAvailable:
						c.say(
							"warning: %d instances are not highly available: it takes %d to go on without one of them",
							n,
							highlyAvailable,
						)
					}

					layout.sort(l.Items)
					v := view{wire: l, stale: l.Stale, table: func(p *printer) { layout.print(p, l.Items) }}

					v.long = func(p *printer) { layout.all(instanceColumns).print(p, l.Items) }
					for _, in := range l.Items {
						v.names = append(v.names, in.ID)
					}

					return c.show(v)
				},
			}),
		},
	}
}

var instanceColumns = columns[api.Instance]{
	{name: "id", cell: func(_ paint, in *api.Instance) string { return oneLine(in.ID) }},
	{name: "node", cell: func(_ paint, in *api.Instance) string { return oneLine(in.Node) }},
	{name: "addr", cell: func(_ paint, in *api.Instance) string { return oneLine(in.Addr) }},
	{name: "version", cell: func(_ paint, in *api.Instance) string { return oneLine(in.Version) }},
	{
		name:  "started",
		order: byTime(func(in *api.Instance) time.Time { return in.Started }),
		cell:  func(_ paint, in *api.Instance) string { return timeText(in.Started) },
	},
	{
		name: "api",
		wide: true,
		cell: func(_ paint, in *api.Instance) string { return oneLine(strings.Join(in.API, " ")) },
	},
}
