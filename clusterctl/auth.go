// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

func authRows() rows {
	return rows{
		"auth whoami": {formats: objectFormats, run: whoAmI},
		"auth can-i":  {complete: verbThenNode, run: canI},
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
