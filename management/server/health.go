// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) healthRoutes() []rest.Route {
	return []rest.Route{
		{
			Method: http.MethodGet, Path: api.PathHealth, Allow: access.Everyone.Scoped(), Serve: s.getHealth,
			Doc: &openapi.Doc{
				ID: "getHealth", Summary: "Check the health of the daemon", Answer: api.Health{},
				Success: "The daemon is healthy.",
				Fails:   openapi.Fails{503: "The daemon is degraded; `checks` has the reason."},
			},
		},
		{
			Method: http.MethodGet, Path: api.PathVersion, Allow: access.Everyone.Scoped(), Serve: s.getVersion,
			Doc: &openapi.Doc{
				ID: "getVersion", Summary: "Show the versions", Answer: api.Version{},
				Success: "The versions.", Tagged: true,
			},
		},
	}
}

func (s *Server) getHealth(w http.ResponseWriter, r *http.Request) error {
	h := s.healthOf(r.Context(), s.view(r.Context()))

	status := http.StatusOK
	if h.Status != api.HealthOK {
		status = http.StatusServiceUnavailable
	}
	return rest.WriteJSON(w, status, h)
}

// healthOf returns the health of the manager with the counts of the view.
func (s *Server) healthOf(ctx context.Context, v *state.Scoped) api.Health {
	h := s.Health(ctx)
	if v.All() {
		return h
	}

	counts := s.Desired.Of(v.Whole()).Count(v.Nodes())
	h.Outdated, h.Unknown = counts.Outdated, counts.Unknown
	h.Nodes, h.Jobs = len(v.Nodes()), map[api.JobStatus]int{}

	for _, j := range v.Jobs() {
		if !j.Status.Ended() {
			h.Jobs[api.JobStatus(j.Status)]++
		}
	}

	checks := map[string]string{}
	for name, result := range h.Checks {
		checks[name] = v.Text(result)
	}

	h.Checks, h.Warnings, h.Instance = checks, v.Texts(h.Warnings), v.Text(h.Instance)

	return h
}

func (s *Server) getVersion(w http.ResponseWriter, r *http.Request) error {
	return rest.WriteTagged(w, r, 0, s.Version(r.Context()))
}
