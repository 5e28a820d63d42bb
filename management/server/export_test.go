// SPDX-License-Identifier: Apache-2.0

package server

import "time"

// Route is a row of the route table.
type Route struct {
	Method, Path string
	Query        []string
	Tagged       bool // its changes can depend on If-Match
	Once         bool // it takes an Idempotency-Key
}

// Routes is everything that is served.
func (s *Server) Routes() []Route {
	var out []Route
	for _, rt := range s.routes {
		out = append(out, Route{rt.method, rt.path, rt.query, rt.tagged, rt.once})
	}

	return out
}

// Decode is how bodies are read.
var Decode = decode

// Hasten has streams end soon after the server stops. Call it before Serve.
func Hasten() { farewell = 100 * time.Millisecond }
