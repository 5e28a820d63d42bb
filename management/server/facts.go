// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/hardware"
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
		act(s, s.postClass, rest.Route{
			Path: api.PathClasses, Allow: access.Operators,
			Doc: &openapi.Doc{
				ID: "createClass", Tag: aboutNodes, Summary: "Make a class of hardware",
				Text: "The class has the shape of the newest inspection of a node: parts by slot, model and number, " +
					"and versions, without serial numbers. Each inspection compares the nodes that the selector of " +
					"the class matches with it, and puts an alert on those that differ. A class of the same name is " +
					"replaced.",
				Success: "The class.", Revision: true,
				Fails: openapi.Fails{
					400: "The name or the selector is invalid.", 404: "The node does not exist, or was not inspected.",
					409: "The vendor or product of the node is not known, or there are 100 classes.",
				},
			},
		}),
		act(s, s.deleteClass, rest.Route{
			Path: api.PathClass, Method: http.MethodDelete, Allow: access.Operators,
			Doc: &openapi.Doc{
				ID: "deleteClass", Tag: aboutNodes, Summary: "Delete a class of hardware",
				Text:    "The alerts that it has raised end with it.",
				Path:    []openapi.Param{{Name: "name", Help: "The name of the class.", Example: "r640"}},
				Success: "The class is deleted.", Revision: true,
				Fails: openapi.Fails{404: ""},
			},
		}),
	}
}

func (s *Server) postClass(r *http.Request, c access.Caller, body api.ClassRequest) (api.Class, error) {
	rest.Note(r, "class", body.Name)
	return s.Classes.Create(r.Context(), c, body.Name, body.From, body.Nodes)
}

func (s *Server) deleteClass(r *http.Request, c access.Caller, _ openapi.Empty) (api.Changed, error) {
	name := rest.Param(r, "name")
	rest.Note(r, "class", name)

	if err := s.Classes.Delete(r.Context(), c, name); err != nil {
		return api.Changed{}, err
	}

	return api.Changed{Revision: s.view(r.Context()).Revision}, nil
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

	out := api.NodeFacts{
		Node: name, Inspection: kept.All[at], Facts: all[at], Inspections: kept.All,
		RootDevice: state.RootDevice(v.Whole(), n.Name, all[at].Disks),
		Classes:    hardware.Compare(v.Whole(), n, all[at]),
	}
	if len(out.Classes) == 0 && at == len(all)-1 {
		out.Peers = inventory.Peers(n, v.Nodes())
	}

	out.Changes, err = kept.Changes(at)

	return out, 0, err
}
