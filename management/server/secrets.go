// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
)

func (s *Server) secretRoutes() []rest.Route {
	return []rest.Route{
		{
			Method: http.MethodGet, Path: api.PathSecrets, Allow: access.Readers, Serve: s.getSecrets,
			Doc: &openapi.Doc{
				ID: "getSecrets", Summary: "Show the state of the secret variables",
				Text: "Returns the keys that encrypt secret variables in the store, and what cannot be decrypted. " +
					"It never returns a value.",
				Answer: api.Secrets{}, Success: "The state.",
			},
		},
		act(s, s.rotateSecrets, rest.Route{
			Path: api.PathRotate, Allow: access.Admins,
			Doc: &openapi.Doc{
				ID: "rotateSecrets", Summary: "Encrypt all secrets with a new key",
				Text: "Makes a new key, encrypts every secret with it, and then removes the former one from the " +
					"key file. If it is interrupted, both keys are kept; a repetition or a restart continues it.",
				Success: "The state after the rotation.",
				Fails:   openapi.Fails{409: ""},
			},
		}),
	}
}

func (s *Server) getSecrets(w http.ResponseWriter, r *http.Request) error {
	status, err := s.Secrets.Status(r.Context())
	if err != nil {
		return err
	}
	return rest.WriteJSON(w, http.StatusOK, status)
}

func (s *Server) rotateSecrets(r *http.Request, c access.Caller, body api.SecretsRotation) (api.Secrets, error) {
	rest.Note(r, "abandon", body.Abandon)
	status, err := s.Secrets.Rotate(r.Context(), c, body.Abandon)
	return status, err
}
