// SPDX-License-Identifier: Apache-2.0

package server

import "github.com/contiv/cluster/management/server/rest"

// Routes returns every served route.
func (s *Server) Routes() []rest.Route { return s.router.Routes() }
