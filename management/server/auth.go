// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
)

func (s *Server) authRoutes() []rest.Route {
	return []rest.Route{
		{
			Method: http.MethodGet, Path: api.PathWhoAmI, Allow: access.Everyone.Scoped(), Serve: s.getWhoAmI,
			Doc: &openapi.Doc{
				ID: "whoAmI", Summary: "Show the caller",
				Text:   "Returns the principal, the role and the scope of the caller, as the manager knows them.",
				Answer: api.Identity{}, Success: "The caller.",
			},
		},
		{
			Method: http.MethodGet, Path: api.PathCanI, Allow: access.Everyone.Scoped(), Serve: s.getCanI,
			Query: []openapi.Param{
				{
					Name: "verb", Required: true, Example: "commission",
					Help: "A verb of a job on nodes, or `get`, `history`, `explain`, `ping`, `set`, `get-vars`, " +
						"`set-vars`, `forget`.",
				},
				{Name: "node", Required: true, Example: "host1-c976", Help: "The name of a node."},
			},
			Doc: &openapi.Doc{
				ID: "canI", Summary: "Check a permission of the caller",
				Text: "Returns whether the role and the scope of the caller allow a verb on a node, with the " +
					"reason. Nothing else is checked: the status of the node may still forbid the verb. A node " +
					"outside of the scope is answered as an unknown one.",
				Answer: api.Permission{}, Success: "The answer, and its reason.",
			},
		},
	}
}

func (s *Server) getWhoAmI(w http.ResponseWriter, r *http.Request) error {
	return rest.WriteJSON(w, http.StatusOK, identityOf(access.IdentityOf(r.Context())))
}

// getCanI answers whether the caller may apply a verb to a node. The node is looked up
// last, so that a caller who may not read nodes learns nothing of them.
func (s *Server) getCanI(w http.ResponseWriter, r *http.Request) error {
	q := rest.Query(r)

	verb, name := q.Text("verb"), q.Text("node")

	route, err := s.routeOf(verb)
	if err != nil {
		return err
	}

	id := access.IdentityOf(r.Context())
	answer := api.Permission{Verb: verb, Node: name, Principal: id.Principal, Role: string(id.Role)}

	if err = route.Allow.Authorize(id, route.String()); err == nil {
		_, err = s.view(r.Context()).Node(name)
	}

	answer.Reason = "the role " + string(id.Role) + " may use " + route.String()

	if answer.Allowed = err == nil; !answer.Allowed {
		answer.Reason = reasonOf(err)
	}

	return rest.WriteJSON(w, http.StatusOK, answer)
}

// routeOf returns the route that a verb of can-i is about: one with that name, or that of jobs.
func (s *Server) routeOf(verb string) (rest.Route, error) {
	var verbs []string

	for _, rt := range s.router.Routes() {
		if rt.Verb == verb {
			return rt, nil
		}
		if rt.Verb != "" {
			verbs = append(verbs, rt.Verb)
		}
	}

	for _, t := range inventory.Lifecycle {
		if !t.ChangesStatus() || t.TakesAddrs || slices.Contains(verbs, string(t.Verb)) {
			continue
		}
		if string(t.Verb) == verb {
			return s.route(http.MethodPost, api.PathJobs), nil
		}
		verbs = append(verbs, string(t.Verb))
	}

	return rest.Route{}, inventory.Errorf(inventory.KindInvalid, "there is no verb %q", verb).
		Do("the verbs are %s", strings.Join(verbs, ", "))
}

// reasonOf returns the message and the remedy of an error.
func reasonOf(err error) string {
	e, ok := errors.AsType[*inventory.Error](err)
	if !ok {
		return err.Error()
	}
	return strings.TrimSuffix(e.Message+"; "+e.Remedy, "; ")
}
