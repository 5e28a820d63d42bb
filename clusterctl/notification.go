// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

var targets = noun[api.Notification]{
	columns: print.NotificationColumns,
	name:    func(n api.Notification) string { return n.Name },
	empty: "no notifications are configured: write some under notifications in the configuration file of the " +
		"manager, and reload it (systemctl reload clusterm)",
	all: func(ctx context.Context, c *call) (listing[api.Notification], error) {
		l, err := c.manager.Notifications(ctx)
		return listing[api.Notification]{answer: l, items: l.Items}, err
	},
}

var deliveries = noun[api.Delivery]{
	columns: print.DeliveryColumns,
	name:    func(d api.Delivery) string { return d.ID },
	empty:   "no deliveries found",
	all: func(ctx context.Context, c *call) (listing[api.Delivery], error) {
		l, err := c.manager.Deliveries(ctx, c.args[0], c.String("status"))
		return listing[api.Delivery]{answer: l, items: l.Items}, err
	},
}

var targetNames = targets.offer(func(n api.Notification) candidate { return candidate{n.Name, n.To} })

func (a *app) notification() leaf {
	return leaf{
		name: "notification", usage: "show and test who is told what happens",
		commands: []leaf{
			targets.list(leaf{
				name: "list", usage: "list the targets with their deliveries",
				about: "The targets are in the configuration file (notifications). A delivery is pending until the " +
					"target accepts it, and dead once the target refused it or a day has passed.",
				examples: []string{"clusterctl notification list", "clusterctl notification list -o wide"},
			}),
			deliveries.list(leaf{
				name: "log", args: "TARGET", usage: "list the deliveries of a target, the oldest first",
				complete: targetNames,
				about:    "Deliveries that have ended are kept for 7 days, and the newest 1000.",
				flags:    []cli.Flag{valueFlag("status", "only those that are pending, delivered, dead or bundled")},
				examples: []string{
					"clusterctl notification log chat",
					"clusterctl notification log chat --status dead",
				},
			}),
			{
				name: "test", args: "TARGET…", usage: "send a test event to targets, and wait for their answers",
				complete: targetNames,
				examples: []string{"clusterctl notification test chat"},
				run:      notificationTest,
			},
			{
				name: "retry", args: "TARGET…", usage: "deliver what is dead again", complete: targetNames,
				examples: []string{"clusterctl notification retry chat"},
				run:      notificationRetry,
			},
		},
	}
}

func notificationTest(ctx context.Context, c *call) error {
	// The first refusal ends the command, as its exit code.
	for _, target := range slices.Compact(c.args) {
		n, err := c.manager.TestNotification(ctx, target)
		if err != nil {
			return err
		}
		c.say("%s accepted a test, at %s", n.Name, n.To)
	}

	return nil
}

func notificationRetry(ctx context.Context, c *call) error {
	for _, target := range slices.Compact(c.args) {
		n, err := c.manager.RetryDeliveries(ctx, target)
		if err != nil {
			return err
		}
		c.say("%s has %d pending and %d dead deliveries", n.Name, n.Pending, n.Dead)
	}

	return nil
}
