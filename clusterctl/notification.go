// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"slices"

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

func notificationRows() rows {
	return rows{
		"notification list":  targets.list(leaf{}),
		"notification log":   deliveries.list(leaf{complete: targetNames}),
		"notification test":  {complete: targetNames, run: notificationTest},
		"notification retry": {complete: targetNames, run: notificationRetry},
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
