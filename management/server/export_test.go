// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/contiv/cluster/management/server/rest"
)

// OnSocket returns a context of requests from an account over the Unix socket.
func OnSocket(ctx context.Context, uid uint32, name string) context.Context {
	return context.WithValue(ctx, peerKey{}, peer{on: onSocket, uid: uid, name: name})
}

// OnPlain returns a context of requests over plain HTTP.
func OnPlain(ctx context.Context) context.Context {
	return context.WithValue(ctx, peerKey{}, peer{on: onPlain, name: "127.0.0.1:1"})
}

// OnTLS returns a context of requests over HTTPS.
func OnTLS(ctx context.Context) context.Context {
	return context.WithValue(ctx, peerKey{}, peer{on: onTLS, name: "192.0.2.1:1"})
}

// Routes returns every served route.
func (s *Server) Routes() []rest.Route { return s.router.Routes() }
