// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/contiv/cluster/management/api"
)

// Addresses returns the addresses of registered machines, or a page of them.
func (c *Client) Addresses(ctx context.Context, page ...Page) (api.List[api.Address], error) {
	return listed[api.Address](ctx, c, api.PathAddresses, page)
}

// ReserveAddress gives an address to a registered machine until it is released.
func (c *Client) ReserveAddress(ctx context.Context, r api.AddressRequest) (api.Address, error) {
	return post[api.Address](ctx, c, api.PathAddresses, r)
}

// ReleaseAddress takes an address back.
func (c *Client) ReleaseAddress(ctx context.Context, addr string) (api.Changed, error) {
	return remove(ctx, c, api.PathAddress, addr)
}

// NodeBoots returns the newest boots of a node from the network.
func (c *Client) NodeBoots(ctx context.Context, name string) (api.NodeBoots, error) {
	return get[api.NodeBoots](ctx, c, api.PathNodeBoots, name)
}

// Boot returns how the instance that answers serves the machines that boot.
func (c *Client) Boot(ctx context.Context) (api.BootStatus, error) {
	return get[api.BootStatus](ctx, c, api.PathBoot)
}
