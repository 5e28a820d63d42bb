// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"slices"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

func pingRows() rows {
	return rows{
		"nodes ping": {selects: true, names: true, formats: tableFormats, run: pingNodes},
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
