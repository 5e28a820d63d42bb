// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"net/http"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

// show returns the route of a read: get returns an object of the view, and the revision of its record. Type A is in the
// document.
func show[A any](
	s *Server, get func(r *http.Request, v *state.View) (object A, revision int64, err error), rt rest.Route,
) rest.Route {
	rt.Method, rt.Doc.Answer = http.MethodGet, *new(A)
	rt.Serve = s.reading(func(w http.ResponseWriter, r *http.Request, v *state.View) error {
		object, revision, err := get(r, v)
		if err != nil {
			return err
		}

		return rest.WriteTagged(w, r, revision, object)
	})

	return rt
}

// act returns the route of a request, by default a POST, with a body of type B and an answer of type A. Both are in the
// document, whose status the answer has. The body openapi.Empty may be absent. Before the answer api.Changed, the view
// shows the change.
func act[B, A any](
	s *Server, do func(r *http.Request, c access.Caller, body B) (A, error), rt rest.Route,
) rest.Route {
	rt.Method, rt.Doc.Answer = cmp.Or(rt.Method, http.MethodPost), *new(A)
	_, empty := any(*new(B)).(openapi.Empty)

	if rt.Method != http.MethodDelete {
		rt.Doc.Body = *new(B)
	}

	rt.Serve = func(w http.ResponseWriter, r *http.Request) error {
		var (
			body B
			err  error
		)

		switch {
		case rt.Doc.Body == nil:
		case empty:
			err = rest.ReadEmpty(w, r)
		default:
			err = rest.ReadJSON(w, r, &body)
		}

		if err != nil {
			return err
		}

		c := caller(r)
		if rt.Idempotent {
			if c, err = keyed(r, body); err != nil {
				return err
			}
		}

		answer, err := do(r, c, body)
		if err != nil {
			return err
		}

		showReplayed(w, r, c)

		if changed, ok := any(answer).(api.Changed); ok {
			s.awaitView(w, r, changed.Revision)
		} else if rt.Doc.Revision {
			rest.ShowRevision(w, s.State.View().Revision)
		}

		return rest.WriteJSON(w, cmp.Or(rt.Doc.Status, http.StatusOK), answer)
	}

	return rt
}

// list returns the route of a list in the order of a listing, with the filters of the route: get returns the items of a
// view, and what each is shown as.
func list[T, W any](
	s *Server, l rest.Listing[T], get func(r *http.Request, v *state.View) (items []T, show func(T) W, err error),
	rt rest.Route,
) rest.Route {
	rt.Method, rt.Query, rt.Doc.Answer = http.MethodGet, l.Query(rt.Query...), api.List[W]{}
	rt.Serve = s.reading(func(w http.ResponseWriter, r *http.Request, v *state.View) error {
		items, show, err := get(r, v)
		if err != nil {
			return err
		}

		at := snapshotOf(v)

		return rest.WriteList(w, r, l, rest.Contents[T, W]{At: at, Tag: at.Tag(), Items: items, Show: show})
	})

	return rt
}
