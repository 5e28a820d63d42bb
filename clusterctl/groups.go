// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

var groups = noun[print.Group]{
	columns: print.GroupColumns, name: func(g print.Group) string { return g.Name }, empty: "no groups found",
	all: allGroups,
}

func groupsRows() rows {
	return rows{
		"groups": groups.list(leaf{}),
	}
}

// allGroups returns the groups with the numbers of their nodes.
func allGroups(ctx context.Context, c *call) (listing[print.Group], error) {
	groups, err := c.manager.Groups(ctx)
	if err != nil {
		return listing[print.Group]{}, err
	}

	nodes, err := c.manager.Nodes(ctx, client.NodeFilter{})
	if err != nil {
		return listing[print.Group]{}, err
	}

	return listingOf(api.List[print.Group]{
		Items: countGroups(groups.Items, nodes.Items),
		Total: groups.Total, Revision: nodes.Revision, Stale: groups.Stale || nodes.Stale,
	}, nil)
}

// countGroups returns the groups with the numbers of their nodes.
func countGroups(groups []inventory.Group, nodes []api.Node) []print.Group {
	counted := make([]print.Group, len(groups))
	at := map[string]*print.Group{}

	for i, g := range groups {
		counted[i].Group = g
		at[g.Name] = &counted[i]
	}

	for _, n := range nodes {
		g, configured := at[n.Group]
		if !configured {
			continue
		}
		g.Nodes++

		judged := inventory.Node{Status: n.Status, State: n.State, Verb: n.Verb, Cleaned: n.Cleaned}
		if n.Verification != nil {
			judged.Verification = &inventory.Verdict{Failed: n.Verification.Failed}
		}
		if judged.Healthy() {
			g.Healthy++
		}
	}

	return counted
}
