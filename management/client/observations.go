// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"

	"github.com/contiv/cluster/management/api"
)

// Observe sends the report of an observer, of api.MaxObservations at most. The
// manager records every observation but those in the result's Refused. A report
// may be repeated without harm.
func (c *Client) Observe(ctx context.Context, r api.Report) (api.Reported, error) {
	if r.Observations == nil {
		r.Observations = []api.Observation{}
	}

	var out api.Reported

	return out, c.do(ctx, call{method: http.MethodPost, path: api.PathObservations, in: r}, &out)
}
