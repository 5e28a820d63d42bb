// SPDX-License-Identifier: Apache-2.0

package server

// Routes lists "METHOD path" of everything that is served.
func (s *Server) Routes() []string {
	var out []string
	for _, rt := range s.routes {
		out = append(out, rt.method+" "+rt.path)
	}
	return out
}

// Decode is how bodies are read.
var Decode = decode
