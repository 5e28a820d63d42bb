// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/contiv/cluster/management/api"
)

// Windows returns the maintenance windows and the freeze.
func (c *Client) Windows(ctx context.Context) (api.Windows, error) {
	return get[api.Windows](ctx, c, api.PathWindows)
}

// Freeze returns the freeze of all changes.
func (c *Client) Freeze(ctx context.Context) (api.Freeze, error) {
	return get[api.Freeze](ctx, c, api.PathFreeze)
}

// SetFreeze holds back every job that would change a host.
func (c *Client) SetFreeze(ctx context.Context, in api.FreezeRequest) (api.Freeze, error) {
	return post[api.Freeze](ctx, c, api.PathFreeze, in)
}

// LiftFreeze ends the freeze.
func (c *Client) LiftFreeze(ctx context.Context, reason string) (api.Freeze, error) {
	return post[api.Freeze](ctx, c, api.PathLiftFreeze, api.FreezeLift{Reason: reason})
}
