// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
)

func (s *Server) healthRoutes() []rest.Route {
	return []rest.Route{
		{
			Method: http.MethodGet, Path: api.PathHealth, Serve: s.getHealth,
			Doc: &openapi.Doc{
				ID: "getHealth", Summary: "Check the health of the daemon", Answer: api.Health{},
				Success: "The daemon is healthy.",
				Fails:   openapi.Fails{503: "The daemon is degraded; `checks` has the reason."},
			},
		},
		{
			Method: http.MethodGet, Path: api.PathVersion, Serve: s.getVersion,
			Doc: &openapi.Doc{
				ID: "getVersion", Summary: "Show the versions", Answer: api.Version{},
				Success: "The versions.", Tagged: true,
			},
		},
	}
}

func (s *Server) getHealth(w http.ResponseWriter, r *http.Request) error {
	h := s.Health(r.Context())

	status := http.StatusOK
	if h.Status != api.HealthOK {
		status = http.StatusServiceUnavailable
	}

	return rest.WriteJSON(w, status, h)
}

func (s *Server) getVersion(w http.ResponseWriter, r *http.Request) error {
	return rest.WriteTagged(w, r, 0, s.Version(r.Context()))
}
