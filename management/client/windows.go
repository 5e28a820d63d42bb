// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"

	"github.com/contiv/cluster/management/api"
)

// Windows returns the maintenance windows and the freeze.
func (c *Client) Windows(ctx context.Context) (api.Windows, error) {
	var out api.Windows
	return out, c.do(ctx, call{method: http.MethodGet, path: api.PathWindows}, &out)
}

// Freeze returns the freeze of all changes.
func (c *Client) Freeze(ctx context.Context) (api.Freeze, error) {
	var out api.Freeze
	return out, c.do(ctx, call{method: http.MethodGet, path: api.PathFreeze}, &out)
}

// SetFreeze holds back every job that would change a host.
func (c *Client) SetFreeze(ctx context.Context, in api.FreezeRequest) (api.Freeze, error) {
	var out api.Freeze
	return out, c.do(ctx, call{method: http.MethodPost, path: api.PathFreeze, in: in}, &out)
}

// LiftFreeze ends the freeze.
func (c *Client) LiftFreeze(ctx context.Context, reason string) (api.Freeze, error) {
	var out api.Freeze

	in := api.FreezeLift{Reason: reason}

	return out, c.do(ctx, call{method: http.MethodPost, path: api.PathLiftFreeze, in: in}, &out)
}
