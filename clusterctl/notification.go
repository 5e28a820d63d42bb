// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

func (a *app) notification() *cli.Command {
	return &cli.Command{
		Name: "notification", Usage: "show and test who is told what happens",
		Commands: []*cli.Command{
			a.leaf(leaf{
				name:  "list",
				usage: "list the targets with their deliveries",
				about: "The targets are in the configuration file (notifications). A delivery is pending until the " +
					"target accepts it, and dead once the target refused it or a day has passed.",
				formats: tableFormats,
				flags:   columnFlags(print.NotificationColumns.Names()),
				examples: []string{
					"clusterctl notification list",
					"clusterctl notification list -o wide",
				},
				run: notificationList,
			}),
			a.leaf(leaf{
				name:  "log",
				args:  "TARGET",
				min:   1,
				max:   1,
				usage: "list the deliveries of a target, the oldest first",
				about: "Deliveries that have ended are kept for 7 days, and the newest 1000.",
				flags: append(columnFlags(print.DeliveryColumns.Names()), &cli.StringFlag{
					Name: "status", Usage: "only those that are pending, delivered, dead or bundled",
				}),
				formats: tableFormats,
				examples: []string{
					"clusterctl notification log chat",
					"clusterctl notification log chat --status dead",
				},
				run: notificationLog,
			}),
			a.leaf(leaf{
				name:  "test",
				args:  "TARGET…",
				min:   1,
				max:   -1,
				usage: "send a test event to targets, and wait for their answers",
				examples: []string{
					"clusterctl notification test chat",
				},
				run: notificationTest,
			}),
			a.leaf(leaf{
				name:  "retry",
				args:  "TARGET…",
				min:   1,
				max:   -1,
				usage: "deliver what is dead again",
				examples: []string{
					"clusterctl notification retry chat",
				},
				run: notificationRetry,
			}),
		},
	}
}

func notificationList(ctx context.Context, c *call) error {
	load := func() (listing[api.Notification], error) {
		l, err := c.manager.Notifications(ctx)
		return listing[api.Notification]{answer: l, items: l.Items}, err
	}

	return showList(c, print.NotificationColumns, load, func(n api.Notification) string { return n.Name },
		"no notifications are configured: write some under notifications in the configuration file of the manager, "+
			"and reload it (systemctl reload clusterm)")
}

func notificationLog(ctx context.Context, c *call) error {
	load := func() (listing[api.Delivery], error) {
		l, err := c.manager.Deliveries(ctx, c.Args().First(), c.String("status"))
		return listing[api.Delivery]{answer: l, items: l.Items}, err
	}

	return showList(c, print.DeliveryColumns, load, func(d api.Delivery) string { return d.ID },
		"no deliveries found")
}

func notificationTest(ctx context.Context, c *call) error {
	// The first refusal ends the command, as its exit code.
	for _, target := range slices.Compact(c.Args().Slice()) {
		n, err := c.manager.TestNotification(ctx, target)
		if err != nil {
			return err
		}

		c.say("%s accepted a test, at %s", n.Name, n.To)
	}

	return nil
}

func notificationRetry(ctx context.Context, c *call) error {
	for _, target := range slices.Compact(c.Args().Slice()) {
		n, err := c.manager.RetryDeliveries(ctx, target)
		if err != nil {
			return err
		}

		c.say("%s has %d pending and %d dead deliveries", n.Name, n.Pending, n.Dead)
	}

	return nil
}
