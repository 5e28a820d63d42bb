// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"slices"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
)

// Routes returns every route of the API.
func Routes() []rest.Route { return (&Server{}).routes() }

// route returns a served route.
func (s *Server) route(method, path string) rest.Route {
	routes := s.router.Routes()
	return routes[slices.IndexFunc(routes, func(rt rest.Route) bool { return rt.Method == method && rt.Path == path })]
}

func (s *Server) routes() []rest.Route { return append(s.versioned(), s.legacy().Routes()...) }

// versioned returns the routes of /v1, and /metrics.
func (s *Server) versioned() []rest.Route {
	routes := slices.Concat(
		s.nodeRoutes(),
		s.enrollRoutes(),
		s.factsRoutes(),
		s.alertRoutes(),
		s.scanRoutes(),
		s.imageRoutes(),
		s.bootRoutes(),
		s.memberRoutes(),
		s.inventoryRoutes(),
		s.jobRoutes(),
		s.planRoutes(),
		s.logRoutes(),
		s.variableRoutes(),
		s.settingRoutes(),
		s.resourceRoutes(),
		s.fleetRoutes(),
		s.tokenRoutes(),
		s.certificateRoutes(),
		s.gossipKeyRoutes(),
		s.sshKeyRoutes(),
		s.policyRoutes(),
		s.windowRoutes(),
		s.rolloutRoutes(),
		s.repositoryRoutes(),
		s.watchRoutes(),
	)

	// Reads of the view accept the parameters that set how recent it must be.
	for i := range routes {
		if routes[i].Method == http.MethodGet {
			routes[i].Query = append(slices.Clone(routes[i].Query), rest.ViewQuery...)
		}
	}

	routes = slices.Concat(
		routes, s.authRoutes(), s.secretRoutes(), s.healthRoutes(), s.auditRoutes(), s.backupRoutes(),
		s.referenceRoutes(), s.notificationRoutes(),
	)
	for i := range routes {
		routes[i].Family = rest.Versioned
	}

	return append(routes, rest.Route{
		Method: http.MethodGet, Path: api.PathMetrics, Allow: access.Readers, Family: rest.Plain,
		Doc: &openapi.Doc{
			ID: "getMetrics", Summary: "Read the metrics",
			Text: "Returns metrics in the text format of Prometheus. docs/metrics.md explains them.", Answer: "",
			Type: api.TypeText, Success: "The metrics.",
		},
		Serve: func(w http.ResponseWriter, r *http.Request) error {
			s.Metrics.ServeHTTP(w, r)
			return nil
		},
	})
}
