// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

const (
	// revisionTime limits how long a request waits for the view to reach a revision.
	revisionTime = 10 * time.Second
	// lostTime limits how long a linearizable read waits while the view is stale.
	// It suffices if the quorum has just returned.
	lostTime = time.Second
	// noticeTime is the delay after which a waiting linearizable read checks
	// whether the view has become stale.
	noticeTime = 5 * time.Second
)

// snapshotOf returns the revision of a view and whether it is stale.
func snapshotOf(v *state.Scoped) rest.Snapshot {
	return rest.Snapshot{Revision: v.Revision, Stale: v.Stale}
}

// reading returns the handler of a read: serve gets a view that is as recent as the query requires.
func (s *Server) reading(serve func(http.ResponseWriter, *http.Request, *state.Scoped) error) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q := rest.Query(r)

		if q.Has("consistency") {
			if err := s.sync(r.Context()); err != nil {
				return err
			}
		}

		if err := s.awaitRevision(r.Context(), q.Number(openapi.MinRevision)); err != nil {
			return err
		}

		v := s.view(r.Context())
		rest.ShowRevision(w, v.Revision)

		if v.Stale {
			w.Header().Set(api.HeaderStale, "true")
		}

		return serve(w, r, v)
	}
}

// awaitRevision blocks until the view shows the revision, for revisionTime at most.
func (s *Server) awaitRevision(request context.Context, revision int64) error {
	if revision <= s.State.View().Revision {
		return nil
	}

	ctx, cancel := context.WithTimeout(request, revisionTime)
	defer cancel()

	err := s.State.Wait(ctx, revision)

	timedOut := ctx.Err() != nil && request.Err() == nil
	if err == nil || !timedOut {
		return err
	}

	return inventory.
		Errorf(inventory.KindUnavailable, "the view has not reached revision %d within %s; it is at %d",
			revision, revisionTime, s.State.View().Revision).
		Do("repeat without min_revision to read the current view")
}

// sync blocks until the view shows every change that was acknowledged before.
func (s *Server) sync(request context.Context) error {
	limit := revisionTime
	if s.State.View().Stale {
		limit = lostTime
	}
	ctx, cancel := context.WithTimeout(request, limit)
	defer cancel()

	// The quorum may be lost while the read waits for it.
	defer time.AfterFunc(noticeTime, func() {
		if s.State.View().Stale {
			cancel()
		}
	}).Stop()

	err := s.State.Sync(ctx)
	if err == nil || request.Err() != nil {
		return err
	}

	reason := "does not answer in time"
	if s.State.View().Stale {
		reason = "has had no quorum for more than 3 s"
	}

	unavailable := inventory.
		Errorf(inventory.KindUnavailable, "cannot serve a linearizable read: the store %s", reason).
		Do("repeat without consistency=linearizable to read the last known state; the health shows the cause").
		With(inventory.ShowHealth())
	unavailable.Err = err

	return unavailable
}

// awaitView blocks until the view shows a change, for revisionTime at most, and
// states the revision in the header. The change is stored already: a view that
// lags behind is no error.
func (s *Server) awaitView(w http.ResponseWriter, r *http.Request, revision int64) {
	if err := s.awaitRevision(r.Context(), revision); err != nil {
		s.Logger.WithError(err).WithField("revision", revision).Warn("the view does not show a stored change yet")
	}

	rest.ShowRevision(w, revision)
}
