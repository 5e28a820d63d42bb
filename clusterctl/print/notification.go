// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/management/api"
)

// NotificationColumns are the columns of a table of targets of notifications.
var NotificationColumns = Columns[api.Notification]{
	textColumn("name", func(n *api.Notification) string { return n.Name }),
	textColumn("to", func(n *api.Notification) string { return n.To }),
	textColumn("pending", func(n *api.Notification) string { return strconv.Itoa(n.Pending) }),
	textColumn("dead", func(n *api.Notification) string { return strconv.Itoa(n.Dead) }),
	textColumn("delivered", func(n *api.Notification) string { return strconv.Itoa(n.Delivered) }),
	timeColumn("last", func(n *api.Notification) time.Time { return lastOf(n.Last) }),
	textColumn("error", func(n *api.Notification) string {
		if n.Last == nil {
			return ""
		}

		return n.Last.Error
	}),
	textColumn("events", func(n *api.Notification) string { return strings.Join(n.Events, ",") }).wide(),
}

// DeliveryColumns are the columns of a table of deliveries.
var DeliveryColumns = Columns[api.Delivery]{
	timeColumn("time", func(d *api.Delivery) time.Time { return d.Event.Time }),
	textColumn("status", func(d *api.Delivery) string { return d.Status }),
	textColumn("attempts", func(d *api.Delivery) string { return strconv.Itoa(d.Attempts) }),
	textColumn("event", func(d *api.Delivery) string { return d.Event.Kind }),
	textColumn("summary", func(d *api.Delivery) string { return d.Event.Summary }),
	textColumn("error", func(d *api.Delivery) string { return d.Error }),
	timeColumn("last", lastOf).wide(),
	textColumn("id", func(d *api.Delivery) string { return d.ID }).wide(),
}

func lastOf(d *api.Delivery) time.Time {
	if d == nil || d.Last == nil {
		return time.Time{}
	}

	return *d.Last
}
