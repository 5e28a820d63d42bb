// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net"
	"net/http"
	"net/http/pprof" // nothing serves the default mux, with which it registers
	"slices"
	"strings"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server/rest"
)

// publicPaths are served on ListenMetrics, without authentication.
var publicPaths = []string{api.PathHealth, api.PathMetrics}

// publicPrincipal is the principal of a request there.
const publicPrincipal = "metrics_listen"

// newPublic returns the server of the routes that need no authentication.
func (s *Server) newPublic(o rest.Options) *http.Server {
	o.Admit = func(r *http.Request, _ rest.Route) (context.Context, string, error) {
		return access.WithIdentity(r.Context(), access.Identity{Principal: publicPrincipal}), publicPrincipal, nil
	}

	routes := slices.DeleteFunc(s.versioned(), func(rt rest.Route) bool {
		return rt.Method != http.MethodGet || !slices.Contains(publicPaths, rt.Path)
	})

	public := s.newHTTP(rest.NewRouter(o, routes))
	public.ConnContext = nil // no connection is one of the API's listeners

	return public
}

// profiles is the path of the profiles of this process.
const profiles = "/debug/pprof/"

// serveProfile serves a profile to the owner of the process on the Unix socket, and
// reports whether it did. On every other listener there is no such path.
func serveProfile(w http.ResponseWriter, r *http.Request) bool {
	p := peerOf(r)
	if p.on != onSocket || !isOwner(p.uid) || r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, profiles) {
		return false
	}

	switch strings.TrimPrefix(r.URL.Path, profiles) {
	case "profile":
		pprof.Profile(w, r)
	case "trace":
		pprof.Trace(w, r)
	case "cmdline":
		pprof.Cmdline(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	default:
		pprof.Index(w, r)
	}

	return true
}

// serverOf returns the server of a listener.
func (s *Server) serverOf(l net.Listener) *http.Server {
	if _, ok := l.(metricsListener); ok {
		return s.public
	}
	return s.http
}
