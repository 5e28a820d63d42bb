// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

var alerts = noun[api.NodeAlert]{
	columns: print.AlertColumns,
	name:    func(a api.NodeAlert) string { return a.ID },
	empty:   "no node has an alert",
	all: func(ctx context.Context, c *call) (listing[api.NodeAlert], error) {
		if err := c.selectNodes(ctx); err != nil {
			return listing[api.NodeAlert]{}, err
		}

		l, err := c.manager.Alerts(ctx)
		if len(c.args) > 0 {
			l.Items = slices.DeleteFunc(l.Items, func(a api.NodeAlert) bool { return !slices.Contains(c.args, a.Node) })
			l.Total = len(l.Items)
		}

		return listingOf(l, err)
	},
}

func alertRows() rows {
	return rows{
		"alert list": alerts.list(leaf{max: -1, selects: true, names: true, complete: anyNodes}),
		"alert add":  {selects: true, names: true, needs: "reason", run: addAlert},
		"alert end": {
			complete: offer(func(ctx context.Context, m *client.Client) ([]api.NodeAlert, error) {
				l, err := m.Alerts(ctx)
				return l.Items, err
			}, func(a api.NodeAlert) candidate { return candidate{a.ID, a.Reason} }),
			run: endAlert,
		},
	}
}

func addAlert(ctx context.Context, c *call) error {
	request := api.AlertRequest{Reason: c.String("reason"), Source: c.String("source")}

	for _, verb := range values(c, "blocks") {
		effect := inventory.Effect(blocks + verb)
		if !slices.ContainsFunc(inventory.Effects, func(row effectRow) bool { return row.Effect == effect }) {
			return exit.Usagef("--blocks: an alert cannot block %q", verb).
				Try("write %s", strings.Join(blockable(), " or "))
		}

		request.Effects = append(request.Effects, effect)
	}

	if c.Bool("exclude") {
		request.Effects = append(request.Effects, inventory.Excluded)
	}

	if c.Bool("silence") {
		request.Effects = append(request.Effects, inventory.Silenced)
	}

	if c.IsSet("until") {
		until, err := parseUntil("until", c.String("until"), time.Now())
		if err != nil {
			return err
		}
		request.Until = &until
	}

	if err := c.choose(ctx, "put an alert on"); err != nil {
		return err
	}
	request.Nodes = c.args

	return c.showAlerts(c.manager.AddAlert(ctx, request))
}

func endAlert(ctx context.Context, c *call) error {
	return c.showAlerts(c.manager.EndAlert(ctx, api.AlertEnd{
		ID: c.args[0], Nodes: values(c, "node"), Reason: c.String("reason"),
	}))
}

// showAlerts prints alerts that were changed, unless the request failed.
func (c *call) showAlerts(l api.List[api.NodeAlert], err error) error {
	if err != nil {
		return err
	}

	layout, err := layoutOf(c, print.AlertColumns)
	if err != nil {
		return err
	}

	return alerts.show(c, layout, listing[api.NodeAlert]{answer: l, items: l.Items})
}

// blocks begins the name of each effect that refuses a verb.
const blocks = "blocks-"

// effectRow is a row of inventory.Effects.
type effectRow = struct {
	Effect  inventory.Effect
	Meaning string
}

// blockable returns the verbs that an alert can refuse.
func blockable() []string {
	var verbs []string
	for _, row := range inventory.Effects {
		if verb, is := strings.CutPrefix(string(row.Effect), blocks); is {
			verbs = append(verbs, verb)
		}
	}

	return verbs
}
