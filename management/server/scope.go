// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

// view returns what the caller of a request sees of the newest view. Handlers have no other one.
func (s *Server) view(ctx context.Context) *state.Scoped {
	return access.IdentityOf(ctx).Filter.View(s.State.View())
}

// scoped returns a handler whose errors name no node outside of the caller's scope. Before a use case has
// decided, on the whole view, an error has the words of the request only, which stay as they are.
func (s *Server) scoped(serve rest.Handler) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		err := serve(w, r)
		if err == nil || !access.OriginOf(r.Context()).Recorded() {
			return err
		}
		return s.view(r.Context()).Error(err)
	}
}
