// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/server/rest"
)

// maxScopes bounds the servers that are kept for scopes. Each keeps its part of a view,
// and is soon made again.
const maxScopes = 64

// scopes keeps a server for each scope in use. The server of a scope has use cases
// that know nothing outside of it, so a route that is added to Server is scoped
// without an effort of its own.
type scopes struct {
	whole *Server

	mu      sync.Mutex
	servers map[scopeKey]map[access.Route]rest.Handler
}

// scopeKey identifies a scope. No other one has the same.
type scopeKey struct{ groups, selector string }

func keyOf(scope access.Scope) scopeKey {
	return scopeKey{fmt.Sprintf("%q", scope.Groups), scope.Selector}
}

// dispatch serves a route within the scope of the caller.
func (s *scopes) dispatch(rt rest.Route) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		scope := access.IdentityOf(r.Context()).Scope
		if scope.All() {
			return rt.Serve(w, r)
		}

		handlers, err := s.of(scope)
		if err != nil {
			return err
		}

		return handlers[routeOf(rt)](w, r)
	}
}

// of returns the handlers of the server within a scope, by route.
func (s *scopes) of(scope access.Scope) (map[access.Route]rest.Handler, error) {
	key := keyOf(scope)

	s.mu.Lock()
	defer s.mu.Unlock()

	if handlers, ok := s.servers[key]; ok {
		return handlers, nil
	}

	bounds, err := scope.Bounds()
	if err != nil {
		return nil, err
	}

	if len(s.servers) >= maxScopes {
		clear(s.servers)
	}

	handlers := map[access.Route]rest.Handler{}
	for _, rt := range s.whole.within(bounds).routes() {
		handlers[routeOf(rt)] = rt.Serve
	}

	s.servers[key] = handlers

	return handlers, nil
}

// within returns a server that shares the limits and the metrics of s, and whose use
// cases are bounded.
func (s *Server) within(bounds access.Bounds) *Server {
	return &Server{
		Options: s.Options.within(bounds), metrics: s.metrics, watches: s.watches,
		base: s.base, stop: s.stop, draining: s.draining, drain: s.drain,
	}
}
