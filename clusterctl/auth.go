// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

func (a *app) auth() leaf {
	return leaf{
		name: "auth", usage: "show who you are for the manager, and what you may do",
		commands: []leaf{
			{
				name: "whoami", formats: objectFormats, usage: "show your principal, role and scope",
				about:    "The manager answers as it knows the caller: by the socket, a token or a certificate.",
				examples: []string{"clusterctl auth whoami", "clusterctl auth whoami -o json"},
				run:      whoAmI,
			},
			{
				name: "can-i", args: "VERB NODE", usage: "check whether you may apply a verb to a node",
				complete: verbThenNode,
				about: "VERB is a verb of a job (commission, update, …), or get, history, explain, ping, set, " +
					"get-vars, set-vars or forget. The answer is about role and scope only: the status of the node " +
					"may still forbid the verb. The exit code is 0 for yes and 1 for no; the reason is on stderr.",
				examples: []string{
					"clusterctl auth can-i commission web-1-AB12",
					"clusterctl auth can-i get web-1-AB12 -o json",
				},
				run: canI,
			},
		},
	}
}

func whoAmI(ctx context.Context, c *call) error {
	return view(c, print.IdentityDetails.Details, func(id api.Identity) string {
		return id.Principal
	})(c.manager.WhoAmI(ctx))
}

func canI(ctx context.Context, c *call) error {
	answer, err := c.manager.CanI(ctx, c.args[0], c.args[1])
	if err != nil {
		return err
	}

	word := func(may api.Permission) string { return print.YesNo(may.Allowed) }
	draw := func(p *print.Printer, may api.Permission) { p.Printf("%s\n", word(may)) }

	if err := view(c, draw, word)(answer, nil); err != nil {
		return err
	}

	if !answer.Allowed {
		return exit.Errorf(exit.Failed, "%s", answer.Reason)
	}

	c.say("%s", answer.Reason)

	return nil
}
