// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/contiv/cluster/management/api"
)

// fleetTime is added to the timeout of a comparison: it may check playbooks, also one by one.
const fleetTime = 5 * time.Minute

// Fleet returns the fleet file of the manager, with its keys in order.
func (c *Client) Fleet(ctx context.Context) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, api.PathFleet)
}

// FleetDiff compares fleet files with the manager. It changes nothing.
func (c *Client) FleetDiff(ctx context.Context, r api.FleetRequest) (api.FleetDiff, error) {
	var out api.FleetDiff

	err := c.do(ctx, call{method: http.MethodPost, path: api.PathFleetDiff, in: r, extra: fleetTime}, &out)
	for i, change := range out.Changes {
		out.Changes[i].Before, out.Changes[i].After = native(change.Before), native(change.After)
	}

	return out, err
}

// FleetApply carries out one step of a difference. It fails with KindPrecondition if a value
// has changed since the difference was made.
func (c *Client) FleetApply(ctx context.Context, a api.FleetApply) (api.Changed, error) {
	return ask[api.Changed](ctx, c, call{method: http.MethodPost, path: api.PathFleetApply, in: a, extra: fleetTime})
}
