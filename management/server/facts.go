// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"

	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) factsRoutes() []rest.Route {
	return []rest.Route{
		show(s, s.getFacts, rest.Route{
			Path: api.PathFacts, Allow: access.Readers.Scoped(),
			Query: []openapi.Param{{
				Name: "inspection", Type: openapi.Number, Min: 1,
				Help: "The number of an inspection, instead of the newest one. The answer lists those that are kept.",
			}},
			Doc: &openapi.Doc{
				ID: "getFacts", Tag: aboutNodes, Summary: "Show the hardware facts of a node",
				Text: "Returns what an inspection found on the node, and what differs from the inspection before. " +
					"The newest 10 inspections are kept. New fields may be added to the facts; what was not found is " +
					"absent.",
				Path: []openapi.Param{nodeName}, Success: "The facts.",
				Fails: openapi.Fails{404: "The node does not exist, or was not inspected."},
			},
		}),
	}
}

func (s *Server) getFacts(r *http.Request, v *state.Scoped) (api.NodeFacts, int64, error) {
	name := rest.Param(r, "name")

	n, err := v.Node(name)
	if err != nil {
		return api.NodeFacts{}, 0, err
	}

	kept := record.Get(v, &state.Facts, n.Name)

	at, err := kept.At(n, int(rest.Query(r).Number("inspection")))
	if err != nil {
		return api.NodeFacts{}, 0, err
	}

	all, err := kept.Facts()
	if err != nil {
		return api.NodeFacts{}, 0, fmt.Errorf("the facts of %s cannot be read: %w", name, err)
	}

	out := api.NodeFacts{Node: name, Inspection: kept.All[at], Facts: all[at], Inspections: kept.All}
	if at > 0 {
		out.Changes = facts.Diff(all[at-1], all[at])
	}

	return out, 0, nil
}
