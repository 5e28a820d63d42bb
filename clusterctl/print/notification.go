// SPDX-License-Identifier: Apache-2.0

package print

import "github.com/contiv/cluster/management/api"

// NotificationColumns are the columns of a table of targets of notifications.
var NotificationColumns = ColumnsOf[api.Notification](nil,
	"name", "to", "pending", "dead", "delivered", "last=last.last", "last.error", "events,wide")

// DeliveryColumns are the columns of a table of deliveries.
var DeliveryColumns = ColumnsOf[api.Delivery](nil,
	"event.time", "status", "attempts", "event=event.kind", "event.summary", "error", "last,wide", "id,wide")
