// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

var classes = noun[api.Class]{
	columns: print.ClassColumns,
	name:    func(c api.Class) string { return c.Name },
	empty:   "there is no class of hardware",
	all:     every((*client.Client).Classes),
}

func classRows() rows {
	name := func(c api.Class) string { return c.Name }
	offered := classes.offer(func(c api.Class) candidate { return candidate{c.Name, c.Nodes} })

	return rows{
		"class list": classes.list(leaf{}),
		"class create": {
			names: true, needs: "from", complete: oneNode, formats: namelessFormats,
			run: func(ctx context.Context, c *call) error {
				return view(c, (*print.Printer).Class, name)(c.manager.CreateClass(ctx, api.ClassRequest{
					Name: c.args[0], From: c.String("from"), Nodes: c.String("nodes"),
				}))
			},
		},
		"class show": {
			names: true, complete: offered,
			run: func(ctx context.Context, c *call) error {
				l, err := c.manager.Classes(ctx)
				if err != nil {
					return err
				}

				for _, one := range l.Items {
					if one.Name == c.args[0] {
						return view(c, (*print.Printer).Class, name)(one, nil)
					}
				}

				return exit.Errorf(exit.NotFound, "there is no class %q", c.args[0]).
					Try("to list the classes: %s class list", c.self())
			},
		},
		"class delete": {
			complete: offered,
			run:      onEach((*client.Client).DeleteClass, "the class %s is deleted"),
		},
	}
}
