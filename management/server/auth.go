// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"net/http"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server/rest"
)

func (s *Server) authRoutes() []rest.Route {
	return []rest.Route{
		{Method: http.MethodGet, Path: api.PathWhoAmI, Serve: s.getWhoAmI},
		{Method: http.MethodGet, Path: api.PathCanI, Serve: s.getCanI, Query: []string{"verb", "node"}},
	}
}

func (s *Server) getWhoAmI(w http.ResponseWriter, r *http.Request) error {
	if err := rest.NoQuery(r); err != nil {
		return err
	}

	return rest.WriteJSON(w, http.StatusOK, identityOf(access.IdentityOf(r.Context())))
}

// getCanI answers whether the caller may apply a verb to a node. The node is looked up
// last, so that a caller who may not read nodes learns nothing of them.
func (s *Server) getCanI(w http.ResponseWriter, r *http.Request) error {
	q, err := rest.Query(r)
	if err != nil {
		return err
	}

	verb, err := rest.Single(q, "verb")
	if err != nil {
		return err
	}

	name, err := rest.Single(q, "node")
	if err != nil {
		return err
	}

	if verb == "" || name == "" {
		return inventory.Errorf(inventory.KindInvalid, "the query lacks verb or node").
			Do("write ?verb=commission&node=NAME")
	}

	question, err := access.QuestionOf(verb)
	if err != nil {
		return err
	}

	id := access.IdentityOf(r.Context())
	answer := api.Permission{Verb: verb, Node: name, Principal: id.Principal, Role: string(id.Role)}

	if err = access.Authorize(id, question.Route); err == nil {
		_, err = s.State.View().Node(name)
	}

	answer.Reason = "the role " + string(id.Role) + " may use " + question.Route.String()

	if answer.Allowed = err == nil; !answer.Allowed {
		answer.Reason = reasonOf(err)
	}

	return rest.WriteJSON(w, http.StatusOK, answer)
}

// reasonOf returns the message and the remedy of an error.
func reasonOf(err error) string {
	e, ok := errors.AsType[*inventory.Error](err)
	if !ok {
		return err.Error()
	}

	return strings.TrimSuffix(e.Message+"; "+e.Remedy, "; ")
}
