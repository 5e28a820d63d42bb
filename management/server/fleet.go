// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/fleet"
	"github.com/contiv/cluster/management/server/rest"
)

func (s *Server) fleetRoutes() []rest.Route {
	return []rest.Route{
		{Method: http.MethodGet, Path: api.PathFleet, Serve: s.getFleet},
		{
			Method: http.MethodPost, Path: api.PathFleetDiff, Serve: s.postFleetDiff, ReadOnly: true,
			// As text in JSON, most characters of a file take one byte, and some take two.
			BodyLimit: 2 * api.MaxFleetBytes,
		},
		{Method: http.MethodPost, Path: api.PathFleetApply, Serve: s.postFleetApply},
	}
}

// fleet compares fleet files by the use cases of the server: those of a scope know nothing
// outside of it.
func (s *Server) fleet() fleet.Manager {
	return fleet.Manager{State: s.State, Settings: s.Settings, Variables: s.Variables, Nodes: s.Nodes}
}

func (s *Server) getFleet(w http.ResponseWriter, r *http.Request) error {
	v, _, err := s.read(w, r)
	if err != nil {
		return err
	}

	file, err := s.fleet().Export(v, access.IdentityOf(r.Context()))
	if err != nil {
		return err
	}

	return rest.WriteTagged(w, r, 0, file)
}

func (s *Server) postFleetDiff(w http.ResponseWriter, r *http.Request) error {
	if err := rest.NoQuery(r); err != nil {
		return err
	}

	var body api.FleetRequest
	if err := rest.ReadJSON(w, r, &body); err != nil {
		return err
	}

	if err := s.sync(r.Context()); err != nil {
		return err
	}

	v := s.State.View()
	rest.ShowRevision(w, v.Revision)

	diff, err := s.fleet().Diff(r.Context(), v, access.IdentityOf(r.Context()), body)
	if err != nil {
		return err
	}

	return rest.WriteJSON(w, http.StatusOK, diff)
}

func (s *Server) postFleetApply(w http.ResponseWriter, r *http.Request) error {
	if err := rest.NoQuery(r); err != nil {
		return err
	}

	var body api.FleetApply
	if err := rest.ReadJSON(w, r, &body); err != nil {
		return err
	}

	// Log the names only: values may be secrets.
	names := make([]string, len(body.Changes))
	for i, c := range body.Changes {
		names[i] = c.String()
	}

	rest.Note(r, "changes", names)

	if err := s.sync(r.Context()); err != nil {
		return err
	}

	revision, err := s.fleet().Apply(r.Context(), access.IdentityOf(r.Context()), body)
	if err != nil {
		return err
	}

	s.awaitView(w, r, revision)

	return rest.WriteJSON(w, http.StatusOK, api.Changed{Revision: revision})
}
