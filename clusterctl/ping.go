// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

func (a *app) nodesPing() leaf {
	return leaf{
		name: "ping", args: "NAME…", selects: true, names: true, formats: tableFormats,
		usage: "check from the manager that nodes answer over ssh",
		about: "The manager tries a login on each node, with its connection settings and its recorded host key, as a " +
			"job does. Nothing is changed, and jobs go on meanwhile. The exit code is 1 if a node does not answer; " +
			"stderr has the cause and the remedy for each.",
		flags: []cli.Flag{selectorFlag()},
		examples: []string{
			"clusterctl nodes ping web-1-AB12",
			"clusterctl nodes ping -l group=service-worker",
			"clusterctl nodes ping web-1-AB12 web-2-CD34 -o json",
		},
		run: pingNodes,
	}
}

func pingNodes(ctx context.Context, c *call) error {
	if err := c.selectEach(ctx); err != nil {
		return err
	}

	all := api.List[api.PingResult]{Items: []api.PingResult{}}
	for chunk := range slices.Chunk(c.args, api.MaxPing) {
		part, err := c.manager.Ping(ctx, chunk...)
		if err != nil {
			return err
		}
		all.Items = append(all.Items, part.Items...)
		all.Total, all.Revision, all.Stale = len(all.Items), part.Revision, all.Stale || part.Stale
	}

	err := noun[api.PingResult]{
		columns: print.PingColumns, long: print.PingDetails.Blocks,
		name: func(r api.PingResult) string { return r.Node },
		all: func(context.Context, *call) (listing[api.PingResult], error) {
			return listingOf(all, nil)
		},
	}.showAll(ctx, c)
	if err != nil {
		return err
	}

	return c.silentNodes(all.Items)
}

// silentNodes returns the error about the nodes that did not answer, with the cause
// and the remedy of each, or nil.
func (c *call) silentNodes(results []api.PingResult) error {
	var lines []string

	silent := 0
	for _, r := range results {
		if r.Answered {
			continue
		}

		silent++

		lines = append(lines, r.Node+": "+r.Message)
		if remedy := exit.Remedy(c.self(), r.Remedy, api.RestoreActions(r.Actions)); remedy != "" {
			lines = append(lines, "  "+strings.ReplaceAll(remedy, "\n", "\n  "))
		}
	}

	if silent == 0 {
		return nil
	}

	return exit.Errorf(exit.Failed, "%d of %s did not answer", silent, inventory.Count(len(results), "node", "nodes")).
		Try("%s", strings.Join(lines, "\n"))
}
