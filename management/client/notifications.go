// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/url"

	"github.com/contiv/cluster/management/api"
)

// Notifications returns the targets that are told what happens, in configuration order.
func (c *Client) Notifications(ctx context.Context) (api.Notifications, error) {
	return get[api.Notifications](ctx, c, api.PathNotifications)
}

// Deliveries returns the deliveries of a target, the oldest first. status is pending,
// delivered, dead, or empty for all.
func (c *Client) Deliveries(ctx context.Context, target, status string) (api.Deliveries, error) {
	query := url.Values{}
	if status != "" {
		query.Set("status", status)
	}
	return find[api.Deliveries](ctx, c, api.PathDeliveries, query, target)
}

// TestNotification sends a test event to a target, and fails unless that accepts it.
func (c *Client) TestNotification(ctx context.Context, target string) (api.Notification, error) {
	return post[api.Notification](ctx, c, api.PathTestNotification, nil, target)
}

// RetryDeliveries makes the dead deliveries of a target pending again.
func (c *Client) RetryDeliveries(ctx context.Context, target string) (api.Notification, error) {
	return post[api.Notification](ctx, c, api.PathRetryDeliveries, nil, target)
}
