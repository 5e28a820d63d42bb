// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
)

func (a *app) auth() *cli.Command {
	return &cli.Command{
		Name: "auth", Usage: "show who you are for the manager, and what you may do",
		Commands: []*cli.Command{
			a.leaf(leaf{
				name:     "whoami",
				usage:    "show your principal, role and scope",
				about:    "The manager answers as it knows the caller: by the socket, a token or a certificate.",
				formats:  objectFormats,
				examples: []string{"clusterctl auth whoami", "clusterctl auth whoami -o json"},
				run:      whoAmI,
			}),
			a.leaf(leaf{
				name:  "can-i",
				args:  "VERB NODE",
				usage: "check whether you may apply a verb to a node",
				about: "VERB is a verb of a job (commission, update, …), or get, history, explain, ping, set, " +
					"get-vars, set-vars or forget. The answer is about role and scope only: the status of the node " +
					"may still forbid the verb. The exit code is 0 for yes and 1 for no; the reason is on stderr.",
				complete: verbThenNode,
				examples: []string{
					"clusterctl auth can-i commission web-1-AB12",
					"clusterctl auth can-i get web-1-AB12 -o json",
				},
				run: canI,
			}),
		},
	}
}

func whoAmI(ctx context.Context, c *call) error {
	id, err := c.manager.WhoAmI(ctx)
	if err != nil {
		return err
	}

	whole := func(p *print.Printer) {
		p.Printf("principal   %s\nrole        %s\nscope       %s\ncredential  %s\n",
			id.Principal, id.Role, cmp.Or(id.Scope.String(), "every node"), id.Credential)

		if id.Issuer != "" {
			p.Printf("issuer      %s\n", id.Issuer)
		}

		if id.Expires != nil {
			p.Printf("expires     %s\n", id.Expires.UTC().Format("2006-01-02 15:04:05 MST"))
		}
	}

	return c.show(print.Answer{Wire: id, Names: []string{id.Principal}, Table: whole, Long: whole})
}

func canI(ctx context.Context, c *call) error {
	answer, err := c.manager.CanI(ctx, c.args[0], c.args[1])
	if err != nil {
		return err
	}

	word := "no"
	if answer.Allowed {
		word = "yes"
	}

	whole := func(p *print.Printer) { p.Printf("%s\n", word) }
	if err := c.show(print.Answer{Wire: answer, Names: []string{word}, Table: whole, Long: whole}); err != nil {
		return err
	}

	if !answer.Allowed {
		return exit.Errorf(exit.Failed, "%s", answer.Reason)
	}

	c.say("%s", answer.Reason)

	return nil
}
