// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

// highlyAvailable is the least number of instances that tolerates the loss of one.
const highlyAvailable = 3

var instances = noun[api.Instance]{
	columns: print.InstanceColumns,
	name:    func(in api.Instance) string { return in.ID },
	empty:   "no instances found",
	all: func(ctx context.Context, c *call) (listing[api.Instance], error) {
		l, err := c.manager.Instances(ctx)
		if err == nil {
			c.warnOfInstances(len(l.Items))
		}

		return listingOf(l, err)
	},
}

func (a *app) instance() leaf {
	return leaf{
		name: "instance", aliases: []string{"instances"}, hidden: true,
		usage: "list the running instances of the manager",
		commands: []leaf{
			instances.list(leaf{
				name: "list", usage: "list the running instances of the manager, oldest first",
				about: "An instance that crashed disappears from the list after 15 seconds.",
				examples: []string{
					"clusterctl instance list",
					"clusterctl instance list -o json",
					"clusterctl instance list --columns node,version --sort version,node",
				},
			}),
		},
	}
}

// warnOfInstances warns of too few instances: etcd needs a majority of its members.
func (c *call) warnOfInstances(n int) {
	switch {
	case n == 1:
		c.say("warning: a single instance is not highly available: while its host is down, nothing is managed")
	case n < highlyAvailable:
		c.say("warning: %d instances are not highly available: tolerating the loss of one takes %d", n, highlyAvailable)
	}
}
