// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// scopeOf returns the scope that the path of a request names.
type scopeOf func(*http.Request) (state.Scope, error)

func (s *Server) variableRoutes() []rest.Route {
	global := func(*http.Request) (state.Scope, error) { return state.ScopeGlobal, nil }

	var routes []rest.Route
	for _, row := range []struct {
		path  string
		scope scopeOf
		query []string
	}{
		{api.PathGlobalVars, global, nil},
		{api.PathGroupVars, namedScope(state.ScopeGroup), nil},
		{api.PathNodeVars, namedScope(state.ScopeNode), []string{"merged"}},
	} {
		set, patch := s.changeVars(row.scope, Variables.Set), s.changeVars(row.scope, Variables.Patch)
		past := s.getVarsHistory(row.scope)
		routes = append(routes,
			rest.Route{Method: http.MethodGet, Path: row.path, Serve: s.getVars(row.scope), Query: row.query},
			rest.Route{
				Method: http.MethodPut, Path: row.path, Serve: set, Conditional: true, Query: []string{querySecret},
			},
			rest.Route{
				Method: http.MethodPatch, Path: row.path, Serve: patch, Conditional: true, Query: []string{querySecret},
			},
			rest.Route{Method: http.MethodGet, Path: row.path + api.SuffixHistory, Serve: past, Query: listQuery()},
			rest.Route{
				Method:      http.MethodPost,
				Path:        row.path + api.SuffixUndo,
				Serve:       s.undoVars(row.scope),
				Conditional: true,
			},
		)
	}

	return routes
}

// namedScope returns the scope of the name in the path.
func namedScope(scope func(string) state.Scope) scopeOf {
	return func(r *http.Request) (state.Scope, error) {
		name, err := rest.Param(r, "name")
		if err != nil {
			return "", err
		}

		return scope(name), nil
	}
}

func (s *Server) getVars(scopeOf scopeOf) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		v, q, err := s.read(w, r)
		if err != nil {
			return err
		}

		merged, err := rest.Bool(q, "merged", false)
		if err != nil {
			return err
		}

		if merged {
			return s.writeMergedVars(w, r, v)
		}

		scope, err := scopeOf(r)
		if err != nil {
			return err
		}

		vars, err := s.Variables.Get(scope)
		if err != nil {
			return err
		}

		if vars == nil {
			vars = configuration.Vars{}
		}

		// The variables may be newer than v. The tag is then too old, and a change
		// with it is refused, which is safe.
		return rest.WriteTagged(w, r, v.VariablesAt[scope], vars)
	}
}

func (s *Server) writeMergedVars(w http.ResponseWriter, r *http.Request, v *state.View) error {
	name, err := rest.Param(r, "name")
	if err != nil {
		return err
	}

	n, err := v.Node(name)
	if err != nil {
		return err
	}

	return rest.WriteTagged(w, r, 0, mergedOf(s.Variables.Merger(v).Of(&n)))
}

// varsChange is one way to change the variables of a scope: a method of Variables.
type varsChange func(
	m Variables, ctx context.Context, c access.Caller, s state.Scope, v configuration.Vars,
) (variable.Changed, error)

// querySecret is the query parameter with the names of the variables in the body that
// become secret, separated by commas.
const querySecret = "secret"

// markSecrets returns the variables of a request with those marked that the query names.
func markSecrets(q url.Values, vars configuration.Vars) (configuration.Vars, error) {
	list, err := rest.Single(q, querySecret)
	if err != nil || list == "" {
		return vars, err
	}

	names := strings.Split(list, ",")
	for _, name := range names {
		if vars[name] == nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "secret: the body sets no variable %q", name).
				Do("name variables of the body; the value %q makes one that is set secret", configuration.Hidden)
		}
	}

	return vars.Mark(func(name string) bool { return slices.Contains(names, name) }), nil
}

func (s *Server) changeVars(scopeOf scopeOf, change varsChange) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q, err := rest.Query(r)
		if err != nil {
			return err
		}

		scope, err := scopeOf(r)
		if err != nil {
			return err
		}

		rest.Note(r, "scope", scope)

		vars, err := readObject(w, r)
		if err != nil {
			return err
		}

		// Log the names only: values may be secrets.
		rest.Note(r, "vars", slices.Sorted(maps.Keys(vars)))

		if vars, err = markSecrets(q, vars); err != nil {
			return err
		}

		c, err := varsCaller(r, scope)
		if err != nil {
			return err
		}

		changed, err := change(s.Variables, r.Context(), c, scope, vars)
		if err != nil {
			return err
		}

		return s.writeChanged(w, r, changed)
	}
}

// varsCaller returns the caller of a change of variables, with its precondition.
func varsCaller(r *http.Request, scope state.Scope) (access.Caller, error) {
	c := caller(r)

	var err error

	c.Precondition, err = precondition(r, "the variables of "+string(scope), func(v *state.View) (int64, error) {
		return v.VariablesAt[scope], nil
	})

	return c, err
}

func (s *Server) writeChanged(w http.ResponseWriter, r *http.Request, changed variable.Changed) error {
	s.awaitView(w, r, changed.Revision)

	return rest.WriteJSON(w, http.StatusOK, api.Changed{Revision: changed.Revision, Warnings: changed.Warnings})
}

var varsHistoryListing = rest.Listing[variable.Change]{
	Key: "seq", Default: "-seq",
	Fields: map[string]func(variable.Change) string{
		"seq":    func(c variable.Change) string { return rest.SortNumber(strconv.FormatUint(c.Seq, 10)) },
		"time":   func(c variable.Change) string { return rest.SortTime(c.Time) },
		"actor":  func(c variable.Change) string { return c.Actor },
		"action": func(c variable.Change) string { return c.Action },
	},
}

func (s *Server) getVarsHistory(scopeOf scopeOf) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		v, q, err := s.read(w, r)
		if err != nil {
			return err
		}

		scope, err := scopeOf(r)
		if err != nil {
			return err
		}

		history, err := s.VarsPast.History(r.Context(), scope)
		if err != nil {
			return err
		}

		at := snapshotOf(v)

		return rest.WriteList(w, r, q, varsHistoryListing, rest.Contents[variable.Change, api.VarsChange]{
			At: at, Tag: at.Tag(), Items: history, Show: varsChangeOf,
		})
	}
}

func (s *Server) undoVars(scopeOf scopeOf) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := rest.NoQuery(r); err != nil {
			return err
		}

		scope, err := scopeOf(r)
		if err != nil {
			return err
		}

		rest.Note(r, "scope", scope)

		var undo api.VarsUndo
		if err := rest.ReadJSON(w, r, &undo); err != nil {
			return err
		}

		rest.Note(r, "to", undo.To)

		c, err := varsCaller(r, scope)
		if err != nil {
			return err
		}

		changed, err := s.VarsPast.Undo(r.Context(), c, scope, undo.To)
		if err != nil {
			return err
		}

		return s.writeChanged(w, r, changed)
	}
}

// readObject reads a body with an object of any content, as variables.
func readObject(w http.ResponseWriter, r *http.Request) (configuration.Vars, error) {
	var body map[string]json.RawMessage
	if err := rest.ReadJSON(w, r, &body); err != nil {
		return nil, err
	}

	if body == nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the body has to be an object, not null").
			Do("send {} for none")
	}

	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}

	return configuration.ParseVars(raw)
}
