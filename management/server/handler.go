// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/contiv/cluster/inventory"
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

		var request any
		if !empty {
			request = body
		}

		return s.once(w, r, request, func(c access.Caller) error {
			answer, err := do(r, c, body)
			if err != nil {
				return err
			}

			showReplayed(w, r, c)

			if err := s.showChange(w, r, rt, answer); err != nil {
				return err
			}

			return rest.WriteJSON(w, cmp.Or(rt.Doc.Status, http.StatusOK), answer)
		})
	}

	return rt
}

// once has a change carried out for its caller, and answered, unless the request has an Idempotency-Key under which it
// was: then the answer shows what is there now.
func (s *Server) once(w http.ResponseWriter, r *http.Request, body any, serve func(access.Caller) error) error {
	c, err := keyed(r, body)
	if err != nil {
		return err
	}

	if c.Key == nil || rest.RouteOf(r).Idempotent {
		return serve(c)
	}

	if done, err := s.replay(w, r, c); done || err != nil {
		return err
	}

	c.Key.WithRecord = true

	if err = serve(c); errors.Is(err, access.ErrCarriedOut) {
		if done, err := s.replay(w, r, c); done || err != nil {
			return err
		}
	}

	return err
}

// replay answers a request whose change was carried out before under its key.
func (s *Server) replay(w http.ResponseWriter, r *http.Request, c access.Caller) (done bool, err error) {
	result, err := c.Replay(r.Context(), s.Results, s.State)
	if result == nil || err != nil {
		return false, err
	}

	showReplayed(w, r, c)

	rt := rest.RouteOf(r)
	if changed, ok := rt.Doc.Answer.(api.Changed); ok {
		changed.Revision = result.Revision
		s.awaitView(w, r, changed.Revision)

		return true, rest.WriteJSON(w, http.StatusOK, changed)
	}

	if !replays(rt) {
		return true, inventory.Errorf(inventory.KindExpired,
			"the request was carried out at %s, and its answer is not kept", result.Time.UTC().Format(time.RFC3339)).
			Do("list what it made; to do it once more, make a new Idempotency-Key")
	}

	// The preconditions were those of the change.
	read := r.Clone(r.Context())
	read.Header.Del("If-None-Match")

	return true, s.route(http.MethodGet, rt.Shows).Serve(as{w, rt}, read)
}

// replays reports whether a retry with a key has the answer of the change.
func replays(rt rest.Route) bool {
	_, changed := rt.Doc.Answer.(api.Changed)
	return rt.Idempotent || rt.Shows != "" || changed
}

// as writes the answer of another route with the status and the headers of its own.
type as struct {
	http.ResponseWriter
	route rest.Route
}

// WriteHeader implements http.ResponseWriter.
func (a as) WriteHeader(int) {
	if !a.route.Doc.Tagged {
		a.Header().Del("ETag")
	}
	a.ResponseWriter.WriteHeader(cmp.Or(a.route.Doc.Status, http.StatusOK))
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
