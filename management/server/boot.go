// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/boot"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

// Boot gives addresses to registered machines.
type Boot interface {
	Reserve(ctx context.Context, c access.Caller, r api.AddressRequest) (api.Address, error)
	Release(ctx context.Context, c access.Caller, addr string) error
	// Status is that of this instance. It does not block.
	Status() api.BootStatus
}

func (s *Server) bootRoutes() []rest.Route {
	addr := openapi.Param{
		Name: "addr", Help: "The address.", Example: "10.9.1.100", Missing: "The manager gives the address to nobody.",
	}

	return []rest.Route{
		show(s, func(*http.Request, *state.Scoped) (api.BootStatus, int64, error) {
			return s.Boot.Status(), 0, nil
		}, rest.Route{Path: api.PathBoot, Allow: access.Readers, Doc: &openapi.Doc{
			ID: "getBoot", Tag: aboutBoot, Summary: "Show how machines are served that boot",
			Text: "Returns the network interfaces on which the instance that answers gives addresses to registered " +
				"machines, what is left of the pool, and the newest query of each MAC with the reason for its answer.",
			Success: "The state of the instance.",
		}}),
		show(s, func(r *http.Request, v *state.Scoped) (api.NodeBoots, int64, error) {
			n, err := v.Node(rest.Param(r, "name"))
			return boot.NodeBoots(v, n.Name), 0, err
		}, rest.Route{Path: api.PathNodeBoots, Allow: access.Readers.Scoped(), Doc: &openapi.Doc{
			ID:      "getNodeBoots",
			Tag:     aboutBoot,
			Summary: "Show the boots of a node from the network",
			Text: "Returns the newest 5 starts of the machine that jobs have ordered: what it asked the boot " +
				"service, what it got, and what the boot environment reported. Only while one has not ended, the " +
				"machine is given more than its address.",
			Path:    []openapi.Param{nodeName},
			Success: "The boots.",
			Fails:   openapi.Fails{404: "The node does not exist."},
		}}),
		act(s, func(r *http.Request, c access.Caller, in api.AddressRequest) (api.Address, error) {
			return s.Boot.Reserve(r.Context(), c, in)
		}, rest.Route{Path: api.PathAddresses, Allow: access.Operators, Doc: &openapi.Doc{
			ID: "reserveAddress", Tag: aboutBoot, Summary: "Reserve an address",
			Text: "Gives an address to a network port of a registered machine until it is released, also one outside " +
				"of the pool. It takes the place of the one that the port had. The machine has it once it asks again.",
			Success: "The address.", Revision: true,
			Fails: openapi.Fails{
				400: "It is no IPv4 address of a host.",
				409: "The address is somebody else's, or the machine is not registered with such a port.",
			},
		}}),
		act(s, func(r *http.Request, c access.Caller, _ openapi.Empty) (api.Changed, error) {
			return api.Changed{}, s.Boot.Release(r.Context(), c, rest.Param(r, "addr"))
		}, rest.Route{
			Path: api.PathAddress, Method: http.MethodDelete, Allow: access.Operators, Doc: &openapi.Doc{
				ID: "releaseAddress", Tag: aboutBoot, Summary: "Release an address",
				Text: "Takes an address back, or forgets that it cannot be used. A machine that had it gets one of " +
					"the pool.",
				Path: []openapi.Param{addr}, Success: "The address is released.", Revision: true,
			},
		}),
	}
}
