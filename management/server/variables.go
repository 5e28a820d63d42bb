// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// scopeOf returns the scope that the path of a request names.
type scopeOf func(*http.Request) state.Scope

func (s *Server) variableRoutes() []rest.Route {
	global := func(*http.Request) state.Scope { return state.ScopeGlobal }

	secret := []openapi.Param{{
		Name: querySecret,
		Help: "Names of variables in the body, separated by commas, that become secret: the store holds them " +
			"encrypted, and every answer shows `(hidden)`. The value `(hidden)` makes a variable that is set " +
			"secret. A secret variable stays secret until it is removed.",
	}}

	var routes []rest.Route
	for _, row := range []struct {
		path        string
		scope       scopeOf
		name, words string // in the ids and in the summaries of the operations
		in          []openapi.Param
		read, write access.Permission
		change      string // the verb of can-i
		get         rest.Route
	}{
		{
			api.PathGlobalVars, global, "Global", "the globals", nil, access.Readers, access.ChangeGlobals, "",
			rest.Route{Doc: &openapi.Doc{Answer: openapi.Ref("Vars"), Success: "The variables of this scope."}},
		},
		{
			api.PathGroupVars, namedScope(state.ScopeGroup), "Group", "a group's variables", []openapi.Param{groupName},
			access.Readers.Scoped(), access.Operators.Scoped(), "",
			rest.Route{Doc: &openapi.Doc{Answer: openapi.Ref("Vars"), Success: "The variables of this scope."}},
		},
		{
			api.PathNodeVars, namedScope(state.ScopeNode), "Node", "a node's variables", []openapi.Param{nodeName},
			access.Readers.Scoped(), access.Operators.Scoped(), "set-vars",
			rest.Route{
				Verb: "get-vars",
				Query: []openapi.Param{{
					Name: "merged", Type: openapi.Flag,
					Help: "Whether to return all variables of the node, merged from all scopes and each with its " +
						"origin, instead of only those set for the node itself.",
				}},
				Doc: &openapi.Doc{
					Answer: openapi.AnyOf{openapi.Ref("MergedVars"), openapi.Ref("Vars")},
					Success: "The node's own variables (`Vars`), or with `merged` all its variables " +
						"(`MergedVars`).",
				},
			},
		},
	} {
		vars, get := openapi.Ref("Vars"), row.get
		get.Method, get.Path, get.Serve = http.MethodGet, row.path, s.getVars(row.scope)
		get.Doc.ID, get.Doc.Summary = "get"+row.name+"Vars", "Show "+row.words

		rows := []rest.Route{get, {
			Method: http.MethodPut, Path: row.path, Serve: s.changeVars(row.scope, Variables.Set), Conditional: true,
			Query: secret, Doc: &openapi.Doc{
				ID: "set" + row.name + "Vars", Summary: "Replace " + row.words, Body: vars,
				Answer: api.Changed{}, Success: "The variables are set.", Revision: true,
			},
		}, {
			Method: http.MethodPatch, Path: row.path, Serve: s.changeVars(row.scope, Variables.Patch),
			Conditional: true, Verb: row.change, Query: secret, Doc: &openapi.Doc{
				ID: "patch" + row.name + "Vars", Summary: "Change some of " + row.words,
				Text: "Sets the variables in the body; `null` removes a variable.", Body: vars,
				Answer: api.Changed{}, Success: "The variables are changed.", Revision: true,
			},
		}, list(s, varsHistoryListing, s.getVarsHistory(row.scope), rest.Route{
			Path: row.path + api.SuffixHistory, Doc: &openapi.Doc{
				ID: "get" + row.name + "VarsHistory", Summary: "Show the changes of " + row.words,
				Text: "Returns the recorded changes, newest first, with the values before and after and without " +
					"secrets. The manager keeps the newest 50 of this scope, within 64 KiB, and always the newest.",
				Success: "The changes, newest first.",
			},
		}), {
			Method: http.MethodPost, Path: row.path + api.SuffixUndo, Serve: s.undoVars(row.scope), Conditional: true,
			Doc: &openapi.Doc{
				ID: "undo" + row.name + "Vars", Summary: "Undo changes of " + row.words,
				Text: "Sets all variables of the scope to their values as of a revision, secrets included. To undo " +
					"one change, send its revision less one. The undo is a change in the history itself. A " +
					"repetition changes nothing.",
				Body: api.VarsUndo{}, Answer: api.Changed{}, Revision: true,
				Success: "The variables have the values as of that revision.",
				Fails:   openapi.Fails{410: "The history does not reach back to that revision."},
			},
		}}

		for _, rt := range rows {
			rt.Doc.Tag, rt.Doc.Path, rt.Allow = aboutVariables, row.in, row.write
			if rt.Method == http.MethodGet {
				rt.Allow = row.read
			}

			routes = append(routes, rt)
		}
	}

	return routes
}

// namedScope returns the scope of the name in the path.
func namedScope(scope func(string) state.Scope) scopeOf {
	return func(r *http.Request) state.Scope { return scope(rest.Param(r, "name")) }
}

func (s *Server) getVars(scopeOf scopeOf) rest.Handler {
	return s.reading(func(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
		if rest.Query(r).Flag("merged") {
			return s.writeMergedVars(w, r, v)
		}

		scope := scopeOf(r)

		if err := v.CheckVars(scope); err != nil {
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
		return rest.WriteTagged(w, r, record.Revision(v, &state.Variables, string(scope)), vars)
	})
}

func (s *Server) writeMergedVars(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
	name := rest.Param(r, "name")

	n, err := v.Node(name)
	if err != nil {
		return err
	}
	return rest.WriteTagged(w, r, 0, mergedOf(s.Variables.Merger(v.Whole()).Of(&n)))
}

// varsChange is one way to change the variables of a scope: a method of Variables.
type varsChange func(
	m Variables, ctx context.Context, c access.Caller, s state.Scope, v configuration.Vars,
) (variable.Changed, error)

// querySecret is the query parameter with the names of the variables in the body that
// become secret, separated by commas.
const querySecret = "secret"

// markSecrets returns the variables of a request with those marked that the query names.
func markSecrets(r *http.Request, vars configuration.Vars) (configuration.Vars, error) {
	list := rest.Query(r).Text(querySecret)
	if list == "" {
		return vars, nil
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
		scope := scopeOf(r)

		rest.Note(r, "scope", scope)

		body, err := readObject(w, r)
		if err != nil {
			return err
		}

		// Log the names only: values may be secrets.
		rest.Note(r, "vars", slices.Sorted(maps.Keys(body)))

		vars, err := markSecrets(r, body)
		if err != nil {
			return err
		}

		return s.onceOnVars(w, r, scope, body, func(c access.Caller) (variable.Changed, error) {
			return change(s.Variables, r.Context(), c, scope, vars)
		})
	}
}

// onceOnVars is once for a change of variables, with its precondition.
func (s *Server) onceOnVars(
	w http.ResponseWriter, r *http.Request, scope state.Scope, body any,
	change func(access.Caller) (variable.Changed, error),
) error {
	return s.once(w, r, body, func(c access.Caller) error {
		c, err := guarded(r, c, "the variables of "+string(scope), func(v *state.View) (int64, error) {
			return record.Revision(v, &state.Variables, string(scope)), nil
		})
		if err != nil {
			return err
		}

		changed, err := change(c)
		if err != nil {
			return err
		}

		s.awaitView(w, r, changed.Revision)

		return rest.WriteJSON(w, http.StatusOK, api.Changed{Revision: changed.Revision, Warnings: changed.Warnings})
	})
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

func (s *Server) getVarsHistory(
	scopeOf scopeOf,
) func(*http.Request, *state.Scoped) ([]variable.Change, func(variable.Change) api.VarsChange, error) {
	return func(r *http.Request, v *state.Scoped) ([]variable.Change, func(variable.Change) api.VarsChange, error) {
		scope := scopeOf(r)

		if err := v.CheckVars(scope); err != nil {
			return nil, nil, err
		}

		history, err := s.VarsPast.History(r.Context(), scope)

		return history, varsChangeOf, err
	}
}

func (s *Server) undoVars(scopeOf scopeOf) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		scope := scopeOf(r)

		rest.Note(r, "scope", scope)

		var undo api.VarsUndo
		if err := rest.ReadJSON(w, r, &undo); err != nil {
			return err
		}

		rest.Note(r, "to", undo.To)

		return s.onceOnVars(w, r, scope, undo, func(c access.Caller) (variable.Changed, error) {
			return s.VarsPast.Undo(r.Context(), c, scope, undo.To)
		})
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
