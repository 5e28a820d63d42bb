// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/contiv/cluster/management/api"
)

// Observe sends the report of an observer, of api.MaxObservations at most. The
// manager records every observation but those in the result's Refused. A report
// may be repeated without harm.
func (c *Client) Observe(ctx context.Context, r api.Report) (api.Reported, error) {
	if r.Observations == nil {
		r.Observations = []api.Observation{}
	}
	return post[api.Reported](ctx, c, api.PathObservations, r)
}
