// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/contiv/cluster/management/api"
)

// Notifications returns the targets that are told what happens, in configuration order.
func (c *Client) Notifications(ctx context.Context) (api.Notifications, error) {
	var out api.Notifications
	return out, c.do(ctx, call{method: http.MethodGet, path: api.PathNotifications}, &out)
}

// Deliveries returns the deliveries of a target, the oldest first. status is pending,
// delivered, dead, or empty for all.
func (c *Client) Deliveries(ctx context.Context, target, status string) (api.Deliveries, error) {
	in := call{method: http.MethodGet, path: api.PathDeliveries, params: []string{target}}
	if status != "" {
		in.query = url.Values{"status": {status}}
	}

	var out api.Deliveries

	return out, c.do(ctx, in, &out)
}

// TestNotification sends a test event to a target, and fails unless that accepts it.
func (c *Client) TestNotification(ctx context.Context, target string) (api.Notification, error) {
	var out api.Notification
	in := call{method: http.MethodPost, path: api.PathTestNotification, params: []string{target}}

	return out, c.do(ctx, in, &out)
}

// RetryDeliveries makes the dead deliveries of a target pending again.
func (c *Client) RetryDeliveries(ctx context.Context, target string) (api.Notification, error) {
	var out api.Notification
	in := call{method: http.MethodPost, path: api.PathRetryDeliveries, params: []string{target}}

	return out, c.do(ctx, in, &out)
}
