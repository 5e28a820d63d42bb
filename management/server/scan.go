// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"time"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/scan"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) scanRoutes() []rest.Route {
	listing := rest.ListingOf[api.ExpectedMachine](
		"key",
		"result",
		"node",
		"addr",
		"bmc",
	).By("key", api.ExpectedMachine.Key)
	listing.Key = "key"

	return []rest.Route{
		list(s, *listing, s.getExpected, rest.Route{
			Path: api.PathExpected, Allow: access.Readers.Scoped(), Doc: &openapi.Doc{
				ID:      "listExpected",
				Tag:     aboutNodes,
				Summary: "Compare what is registered with what is seen",
				Text: "Returns every registered machine, and what is seen without being registered: nodes whose " +
					"agent speaks, BMCs that answered the newest scan, and neighbours of nodes by LLDP. " +
					"Within a scope there are nodes only.",
				Success: "The machines, by node, by BMC, or by what LLDP says.",
			},
		}),
		act(s, func(r *http.Request, c access.Caller, _ openapi.Empty) (api.Scan, error) {
			return s.Scanner.Request(r.Context(), c)
		}, rest.Route{Path: api.PathScan, Allow: access.Operators, Doc: &openapi.Doc{
			ID: "startScan", Tag: aboutNodes, Summary: "Scan for BMCs",
			Text: "Asks every address in the ranges of the configuration file what answers there by IPMI and " +
				"Redfish, without a login. It changes no node. While a scan runs, it is that one.",
			Success: "The scan, which has begun or will in seconds.",
			Fails:   openapi.Fails{409: "The site names no ranges."},
		}}),
	}
}

func (s *Server) getExpected(
	_ *http.Request, v *state.Scoped,
) ([]api.ExpectedMachine, func(api.ExpectedMachine) api.ExpectedMachine, error) {
	show := func(e api.ExpectedMachine) api.ExpectedMachine { return e }
	return scan.Expected(v, v.Nodes(), v.All(), time.Now()), show, nil
}
