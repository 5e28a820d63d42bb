// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"strings"

	"github.com/contiv/cluster/clusterctl/print"
)

func (a *app) nodesDiff() leaf {
	return leaf{
		name: "diff", args: "NAME", names: true, formats: namelessFormats,
		usage: "show what the last verification of a node found, task by task",
		about: "For each task that would change the node, it shows the file and line in the playbooks and the " +
			"difference, if the module reports one: - is what the node has, + what the playbooks want. It also shows " +
			"failed checks of verify.yml, tasks that check mode cannot judge, and tasks that were executed all the " +
			"same. Secrets are hidden. nodes verify makes a new verification; nodes apply configures the node again.",
		examples: []string{"clusterctl nodes diff web-1-AB12", "clusterctl nodes diff web-1-AB12 -o json"},
		run: func(ctx context.Context, c *call) error {
			d, err := c.manager.Difference(ctx, c.args[0])
			if err != nil {
				return err
			}

			// Such a difference is no drift of the host: an apply would take an upgrade back.
			if n, err := c.manager.Node(ctx, c.args[0]); err == nil && len(n.RequestVars) > 0 {
				c.say(
					"only the request of job %s had set %s: nodes apply would take that back; "+
						"to keep it: %s nodes explain %s",
					n.Applied,
					strings.Join(n.RequestVars, ", "),
					c.self(),
					n.Name,
				)
			}

			return view(c, (*print.Printer).Difference)(d, nil)
		},
	}
}
