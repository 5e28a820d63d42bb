// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
)

func (s *Server) tokenRoutes() []rest.Route {
	return []rest.Route{
		{Method: http.MethodPost, Path: api.PathTokens, Serve: s.postToken, Doc: &openapi.Doc{
			ID:      "createToken",
			Summary: "Create a bearer token",
			Text: "The answer holds the token, and no other answer does: only a hash is stored. Its role has " +
				"no permission that the caller lacks. Send it as `Authorization: Bearer TOKEN`, over HTTPS or " +
				"the Unix socket; plain HTTP refuses it.",
			Body:    api.TokenRequest{},
			Answer:  api.NewToken{},
			Success: "The token is valid.",
			Fails:   openapi.Fails{404: "", 409: ""},
		}},
		{Method: http.MethodDelete, Path: api.PathToken, Serve: s.deleteToken, Doc: &openapi.Doc{
			ID: "revokeToken", Summary: "Revoke a bearer token",
			Text:   "The token is refused from now on, on open connections as well, and its open streams end.",
			Path:   []openapi.Param{{Name: "id", Help: "The id or the name of a token.", Example: "pipeline"}},
			Answer: api.Changed{}, Success: "The token is revoked.", Revision: true,
			Fails: openapi.Fails{404: ""},
		}},
	}
}

func (s *Server) postToken(w http.ResponseWriter, r *http.Request) error {
	var body api.TokenRequest
	if err := rest.ReadJSON(w, r, &body); err != nil {
		return err
	}

	rest.Note(r, "token", body.Name)
	rest.Note(r, "role", body.Role)

	request := access.TokenRequest{Name: body.Name, Role: access.Role(body.Role)}

	if body.Scope != nil {
		request.Scope = access.Scope{Groups: body.Scope.Groups, Selector: body.Scope.Selector}
		rest.Note(r, "scope", request.Scope.String())

		// An empty scope is likely the mistake of a script, and would be every node.
		if request.Scope.All() {
			return inventory.Errorf(inventory.KindInvalid, "the scope is empty and would be every node").
				Do("name groups or write a selector, or leave the scope out")
		}
	}

	if body.Expires != "" {
		var err error
		if request.Expires, err = time.ParseDuration(body.Expires); err != nil || request.Expires <= 0 {
			return inventory.Errorf(inventory.KindInvalid, "expires: %q is not a duration", body.Expires).
				Do("write it like 90s, 15m or 720h")
		}
	}

	made, token, err := s.Tokens.Create(r.Context(), caller(r), access.IdentityOf(r.Context()), request)
	if err != nil {
		return err
	}

	return rest.WriteJSON(w, http.StatusOK, api.NewToken{Token: token, Record: tokenOf(made)})
}

func (s *Server) deleteToken(w http.ResponseWriter, r *http.Request) error {
	id := rest.Param(r, "id")

	rest.Note(r, "token", id)

	revision, err := s.Tokens.Revoke(r.Context(), caller(r), id)
	if err != nil {
		return err
	}

	s.awaitView(w, r, revision)

	return rest.WriteJSON(w, http.StatusOK, api.Changed{Revision: revision})
}
