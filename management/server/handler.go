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
	s *Server, get func(r *http.Request, v *state.Scoped) (object A, revision int64, err error), rt rest.Route,
) rest.Route {
	rt.Method, rt.Doc.Answer = http.MethodGet, *new(A)
	rt.Serve = s.reading(func(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
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
			var request any
			if !empty {
				request = body
			}

			if c, err = keyed(r, request); err != nil {
				return err
			}
		}

		answer, err := do(r, c, body)
		if err != nil {
			return err
		}

		showReplayed(w, r, c)

		if err := s.showChange(w, r, rt, answer); err != nil {
			return err
		}

		return rest.WriteJSON(w, cmp.Or(rt.Doc.Status, http.StatusOK), answer)
	}

	return rt
}

// showChange sets the headers of the answer to a change which the document announces.
func (s *Server) showChange(w http.ResponseWriter, r *http.Request, rt rest.Route, answer any) error {
	var (
		path, id string
		revision int64 // of the record
	)

	switch a := answer.(type) {
	case api.Changed:
		s.awaitView(w, r, a.Revision)
		return nil
	case api.Reported:
		s.awaitView(w, r, a.Revision)
		return nil
	case api.Job:
		path, id, revision = api.PathJob, a.ID, a.Revision
	case api.Plan:
		path, id, revision = api.PathPlan, a.ID, a.Revision
	case api.Rollout:
		path, id, revision = api.PathRollout, a.ID, a.Revision
	case api.Node:
		revision = a.Revision
	}

	if rt.Doc.Tagged {
		w.Header().Set("ETag", rest.RecordTag(revision))
	}

	if rt.Doc.Location != "" {
		location, err := api.Path(path, id)
		if err != nil {
			return err
		}
		w.Header().Set("Location", location)
	}

	switch {
	case !rt.Doc.Revision:
	case id != "":
		rest.ShowRevision(w, revision)
	default:
		rest.ShowRevision(w, s.State.View().Revision)
	}

	return nil
}

// list returns the route of a list in the order of a listing, with the filters of the route: get returns the items of a
// view, and what each is shown as.
func list[T, W any](
	s *Server, l rest.Listing[T], get func(r *http.Request, v *state.Scoped) (items []T, show func(T) W, err error),
	rt rest.Route,
) rest.Route {
	rt.Method, rt.Query, rt.Doc.Answer = http.MethodGet, l.Query(rt.Query...), api.List[W]{}
	rt.Serve = s.reading(func(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
		items, show, err := get(r, v)
		if err != nil {
			return err
		}

		at := snapshotOf(v)
		tag := at.Tag()

		if l.Outside {
			text, err := rest.EncodeJSON(items)
			if err != nil {
				return err
			}
			tag = "W/" + rest.Tag(0, text)
		}

		return rest.WriteList(w, r, l, rest.Contents[T, W]{At: at, Tag: tag, Items: items, Show: show})
	})

	return rt
}
