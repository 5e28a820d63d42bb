// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
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
func snapshotOf(v *state.View) rest.Snapshot {
	return rest.Snapshot{Revision: v.Revision, Stale: v.Stale}
}

// read begins a read: it checks the query and waits until the view is as recent
// as the query requires.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (*state.View, url.Values, error) {
	q, err := rest.Query(r)
	if err != nil {
		return nil, nil, err
	}

	minimum, _, err := rest.Number(q, "min_revision")
	if err != nil {
		return nil, nil, err
	}

	consistency, err := rest.Single(q, "consistency")
	if err != nil {
		return nil, nil, err
	}

	switch consistency {
	case "":
	case rest.Linearizable:
		if err := s.sync(r.Context()); err != nil {
			return nil, nil, err
		}
	default:
		return nil, nil, inventory.
			Errorf(inventory.KindInvalid, "the query parameter consistency is %q", consistency).
			Do("write %s, or leave it out", rest.Linearizable)
	}

	if err := s.awaitRevision(r.Context(), minimum); err != nil {
		return nil, nil, err
	}

	v := s.State.View()
	rest.ShowRevision(w, v.Revision)

	if v.Stale {
		w.Header().Set(api.HeaderStale, "true")
	}

	return v, q, nil
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

// readOne begins a read of the resource that a parameter of the path names.
func (s *Server) readOne(
	w http.ResponseWriter,
	r *http.Request,
	parameter string,
) (*state.View, url.Values, string, error) {
	v, q, err := s.read(w, r)
	if err != nil {
		return nil, nil, "", err
	}

	name, err := rest.Param(r, parameter)

	return v, q, name, err
}

// changeOne begins a change of the resource that a parameter of the path names.
// Changes have no query.
func changeOne(r *http.Request, parameter string) (string, error) {
	if err := rest.NoQuery(r); err != nil {
		return "", err
	}

	return rest.Param(r, parameter)
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
