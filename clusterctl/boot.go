// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

var addresses = noun[api.Address]{
	columns: print.AddressColumns,
	name:    func(a api.Address) string { return a.Addr },
	empty:   "no machine has an address of the manager",
	all:     every((*client.Client).Addresses),
}

func bootRows() rows {
	offered := addresses.offer(func(a api.Address) candidate { return candidate{a.Addr, cmp.Or(a.Node, a.Conflict)} })

	return rows{
		"boot status": {
			formats: namelessFormats,
			run: func(ctx context.Context, c *call) error {
				return view(c, (*print.Printer).Boot)(c.manager.Boot(ctx))
			},
		},
		"nodes boots": {
			names: true, formats: namelessFormats,
			run: func(ctx context.Context, c *call) error {
				n, err := c.manager.NodeBoots(ctx, c.args[0])
				if err == nil && len(n.Boots) == 0 {
					c.say("no job has booted %s from the network", n.Node)
				}

				return view(c, (*print.Printer).NodeBoots)(n, err)
			},
		},
		"boot addresses": addresses.list(leaf{}),
		"boot reserve":   {names: true, complete: oneNode, run: reserveAddress},
		"boot release": {
			complete: offered, run: onEach((*client.Client).ReleaseAddress, "the address %s is released"),
		},
	}
}

func reserveAddress(ctx context.Context, c *call) error {
	made, err := c.manager.ReserveAddress(ctx, api.AddressRequest{
		Node: c.args[0], Addr: c.args[1], MAC: c.String("mac"),
	})
	return view(c, (*print.Printer).Address, addresses.name)(made, err)
}
