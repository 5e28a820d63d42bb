// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server/rest"
)

func (s *Server) secretRoutes() []rest.Route {
	return []rest.Route{
		{Method: http.MethodGet, Path: api.PathSecrets, Serve: s.getSecrets},
		{Method: http.MethodPost, Path: api.PathRotate, Serve: s.rotateSecrets},
	}
}

func (s *Server) getSecrets(w http.ResponseWriter, r *http.Request) error {
	if err := rest.NoQuery(r); err != nil {
		return err
	}

	status, err := s.Secrets.Status(r.Context())
	if err != nil {
		return err
	}

	return rest.WriteJSON(w, http.StatusOK, status)
}

func (s *Server) rotateSecrets(w http.ResponseWriter, r *http.Request) error {
	if err := rest.NoQuery(r); err != nil {
		return err
	}

	var body api.SecretsRotation
	if err := rest.ReadJSON(w, r, &body); err != nil {
		return err
	}

	rest.Note(r, "abandon", body.Abandon)

	status, err := s.Secrets.Rotate(r.Context(), caller(r), body.Abandon)
	if err != nil {
		return err
	}

	return rest.WriteJSON(w, http.StatusOK, status)
}
