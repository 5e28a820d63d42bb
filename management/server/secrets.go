// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
)

func (s *Server) secretRoutes() []rest.Route {
	return []rest.Route{
		{
			Method: http.MethodGet, Path: api.PathSecrets, Serve: s.getSecrets,
			Doc: &openapi.Doc{
				ID: "getSecrets", Summary: "Show the state of the secret variables",
				Text: "Returns the keys that encrypt secret variables in the store, and what cannot be decrypted. " +
					"It never returns a value.",
				Answer: api.Secrets{}, Success: "The state.",
			},
		},
		{
			Method: http.MethodPost, Path: api.PathRotate, Serve: s.rotateSecrets,
			Doc: &openapi.Doc{
				ID: "rotateSecrets", Summary: "Encrypt all secrets with a new key",
				Text: "Makes a new key, encrypts every secret with it, and then removes the former one from the " +
					"key file. If it is interrupted, both keys are kept; a repetition or a restart continues it.",
				Body: api.SecretsRotation{}, Answer: api.Secrets{}, Success: "The state after the rotation.",
				Fails: openapi.Fails{409: ""},
			},
		},
	}
}

func (s *Server) getSecrets(w http.ResponseWriter, r *http.Request) error {
	status, err := s.Secrets.Status(r.Context())
	if err != nil {
		return err
	}

	return rest.WriteJSON(w, http.StatusOK, status)
}

func (s *Server) rotateSecrets(w http.ResponseWriter, r *http.Request) error {
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
