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
		act(s, s.postToken, rest.Route{Path: api.PathTokens, Allow: access.Admins, Doc: &openapi.Doc{
			ID:      "createToken",
			Summary: "Create a bearer token",
			Text: "The answer holds the token, and no other answer does: only a hash is stored. Its role has " +
				"no permission that the caller lacks. Send it as `Authorization: Bearer TOKEN`, over HTTPS or " +
				"the Unix socket; plain HTTP refuses it.",

			Success: "The token is valid.",
			Fails:   openapi.Fails{404: "", 409: ""},
		}}),
		act(s, s.deleteToken, rest.Route{Path: api.PathToken, Method: http.MethodDelete,
			Allow: access.Admins, Doc: &openapi.Doc{
				ID: "revokeToken", Summary: "Revoke a bearer token",
				Text:    "The token is refused from now on, on open connections as well, and its open streams end.",
				Path:    []openapi.Param{{Name: "id", Help: "The id or the name of a token.", Example: "pipeline"}},
				Success: "The token is revoked.", Revision: true,
				Fails: openapi.Fails{404: ""},
			}}),
	}
}

func (s *Server) postToken(r *http.Request, c access.Caller, body api.TokenRequest) (api.NewToken, error) {
	rest.Note(r, "token", body.Name)
	rest.Note(r, "role", body.Role)

	request := access.TokenRequest{Name: body.Name, Role: access.Role(body.Role)}

	if body.Scope != nil {
		request.Scope = access.Scope{Groups: body.Scope.Groups, Selector: body.Scope.Selector}
		rest.Note(r, "scope", request.Scope.String())

		// An empty scope is likely the mistake of a script, and would be every node.
		if request.Scope.All() {
			return api.NewToken{}, inventory.
				Errorf(inventory.KindInvalid, "the scope is empty and would be every node").
				Do("name groups or write a selector, or leave the scope out")
		}
	}

	if body.Expires != "" {
		var err error
		if request.Expires, err = time.ParseDuration(body.Expires); err != nil || request.Expires <= 0 {
			return api.NewToken{}, inventory.
				Errorf(inventory.KindInvalid, "expires: %q is not a duration", body.Expires).
				Do("write it like 90s, 15m or 720h")
		}
	}

	made, token, err := s.Tokens.Create(r.Context(), c, access.IdentityOf(r.Context()), request)

	return api.NewToken{Token: token, Record: tokenOf(made)}, err
}

func (s *Server) deleteToken(r *http.Request, c access.Caller, _ openapi.Empty) (api.Changed, error) {
	id := rest.Param(r, "id")

	rest.Note(r, "token", id)

	revision, err := s.Tokens.Revoke(r.Context(), c, id)
	return api.Changed{Revision: revision}, err
}
