// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Meter counts requests. Its methods may be called concurrently.
type Meter interface {
	// Begin counts a request in flight.
	Begin()
	// End counts its answer.
	End(r *http.Request, rt Route, status int, took time.Duration)
}

// Options configure a Router. All fields are required.
type Options struct {
	// Admit authenticates the caller of a request, and decides whether it may use
	// the route, before anything else of the request is read. It returns the
	// principal, and the context of the handler. A refusal returns both too, the
	// principal if it is known.
	Admit func(r *http.Request, rt Route) (ctx context.Context, principal string, err error)
	// Failed receives the error of each request that failed, as its client sees it.
	// r has the context of Admit.
	Failed func(r *http.Request, rt Route, err *inventory.Error)
	// Remote returns the other end of the connection, for the access log.
	Remote func(r *http.Request) string
	Meter  Meter
	Logger logrus.FieldLogger
	// Stopping ends when requests in flight must be given up.
	Stopping context.Context
	// BodyLimit is the size in bytes of the largest body; see SetBodyLimit.
	BodyLimit int64
	// BodyTime bounds the arrival of a body.
	BodyTime time.Duration
	// Stall bounds one write to a client. A client that does not read for this
	// long is disconnected.
	Stall time.Duration
	// StreamGrace bounds the last write of a stream after EndStream.
	StreamGrace time.Duration
}

// Router serves routes and does for each of them the work that all have in
// common: admission, errors, metrics and the access log.
type Router struct {
	options   Options
	routes    []Route
	mux       *mux.Router
	literal   map[string]http.Handler // of the paths without a variable
	bodyLimit atomic.Int64
}

// NewRouter returns a router that serves the routes. Paths are matched as they
// were sent: no redirects, and an escaped slash is part of a name.
func NewRouter(o Options, routes []Route) *Router {
	router := &Router{
		options: o, routes: routes,
		mux: mux.NewRouter().SkipClean(true).UseEncodedPath(), literal: map[string]http.Handler{},
	}
	router.SetBodyLimit(o.BodyLimit)

	byPath := map[string][]Route{}
	for _, rt := range routes {
		byPath[rt.Path] = append(byPath[rt.Path], rt)
	}

	// One handler per path, so that a wrong method is a 405 with the right ones.
	for _, rt := range routes {
		methods, ok := byPath[rt.Path]
		if !ok {
			continue // registered with the first method of the path
		}

		delete(byPath, rt.Path)

		if handler := router.methods(methods); strings.Contains(rt.Path, "{") {
			router.mux.Path(rt.Path).Handler(handler)
		} else {
			router.literal[rt.Path] = handler
		}
	}

	router.mux.NotFoundHandler = http.HandlerFunc(router.notFound)

	return router
}

// Routes returns every served route. The caller must not modify them.
func (router *Router) Routes() []Route { return router.routes }

// SetBodyLimit sets the size in bytes of the largest body of later requests.
func (router *Router) SetBodyLimit(bytes int64) { router.bodyLimit.Store(bytes) }

// ServeHTTP answers one request. A path without variables wins over a pattern that matches
// it as well.
func (router *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if handler, ok := router.literal[r.URL.EscapedPath()]; ok {
		handler.ServeHTTP(w, r)
		return
	}

	router.mux.ServeHTTP(w, r)
}

// methods serves the methods of one path.
func (router *Router) methods(routes []Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet // net/http omits the body
		}

		for _, rt := range routes {
			if rt.Method == method {
				router.handle(w, r, rt)
				return
			}
		}

		router.handle(w, r, methodNotAllowed(r.Method, routes))
	})
}

// methodNotAllowed returns a route that answers OPTIONS, and refuses every
// other method that the routes of the path do not have.
func methodNotAllowed(method string, routes []Route) Route {
	var allowed []string
	for _, rt := range routes {
		allowed = append(allowed, rt.Method)
		if rt.Method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}

	path := routes[0].Path

	return Route{
		Method: method, Path: path, Family: routes[0].Family, unserved: true,
		Serve: func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Allow", strings.Join(append(allowed, http.MethodOptions), ", "))

			if r.Method == http.MethodOptions {
				w.WriteHeader(http.StatusNoContent)
				return nil
			}

			err := inventory.Errorf(inventory.KindUnsupported, "%s is not served at %s", r.Method, path).
				Do("use %s", strings.Join(allowed, " or "))

			return withStatus{http.StatusMethodNotAllowed, err}
		},
	}
}

// notFound answers requests for paths that are not served.
func (router *Router) notFound(w http.ResponseWriter, r *http.Request) {
	rt := Route{Method: r.Method, Path: "unknown", Family: Plain, unserved: true}
	if strings.HasPrefix(r.URL.Path, "/v1") {
		rt.Family = Versioned
	}

	rt.Serve = func(_ http.ResponseWriter, r *http.Request) error {
		path := r.URL.EscapedPath()

		err := inventory.Errorf(inventory.KindNotFound, "there is no path %s", path)
		if near := nearest(router.routes, path); near != "" {
			return err.Do("did you mean %s?", near)
		}
		return err.Do("the paths begin with /v1; GET %s describes them", api.PathDocs)
	}

	router.handle(w, r, rt)
}

// handle runs one handler, writes its error, and counts and logs the request.
func (router *Router) handle(w http.ResponseWriter, r *http.Request, rt Route) {
	started := time.Now()

	router.options.Meter.Begin()

	rec := &recorder{ResponseWriter: w, stall: router.options.Stall, grace: router.options.StreamGrace}
	n := &note{
		route:     rt,
		id:        requestID(r),
		bodyLimit: max(router.bodyLimit.Load(), rt.BodyLimit),
		fields:    logrus.Fields{},
	}
	r = r.WithContext(context.WithValue(r.Context(), noteKey{}, n))
	rec.body = awaitBody(w, r, router.options.BodyTime, rt.Uploads)

	rec.Header().Set("Cache-Control", "no-store")
	rec.Header().Set("X-Content-Type-Options", "nosniff")
	rec.Header().Set(api.HeaderRequestID, n.id)

	r, err := router.attempt(rec, r, n)

	broken := false

	switch {
	case err == nil && rec.status == 0:
		rec.WriteHeader(http.StatusOK)
	case err != nil && rec.status == 0:
		err = router.writeError(rec, r, rt, err)
	case err != nil:
		// The status is on the wire already. Breaking the connection is the only
		// way left to show the client that the answer is incomplete.
		broken = true
		router.options.Logger.WithError(err).WithField("path", loggablePath(r)).Debug("broke off an incomplete answer")
	}

	took := time.Since(started)
	router.options.Meter.End(r, rt, rec.status, took)

	// Reads are left out: they are frequent and change nothing.
	if rt.Mutates() {
		router.logAccess(r, n, rec.status, took, err)
	}

	if broken {
		panic(http.ErrAbortHandler)
	}
}

// attempt authenticates the request, calls its handler, and returns a panic of
// the handler as an error. It returns the request with the context of its caller.
func (router *Router) attempt(
	w http.ResponseWriter, r *http.Request, n *note,
) (admitted *http.Request, err error) {
	admitted = r
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it in the same way
				err = http.ErrAbortHandler
				return
			}

			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()

	// Admit first: the answer to a refused request reveals nothing else.
	ctx, principal, err := router.options.Admit(r, n.route)
	r, n.principal = r.WithContext(ctx), principal
	admitted = r

	if err != nil {
		return r, err
	}

	if n.route.unserved {
		return r, n.route.Serve(w, r)
	}

	if n.params, err = paramsOf(r); err != nil {
		return r, err
	}

	if n.route.Family.Strict {
		if err := checkHeaders(r, n.route); err != nil {
			return r, err
		}

		if n.query, err = ParseQuery(r.URL.RawQuery, n.route.Query); err != nil {
			return r, err
		}
	}

	err = n.route.Serve(w, r)

	// The credentials of the caller may have become invalid meanwhile.
	if cause, ok := errors.AsType[*inventory.Error](context.Cause(ctx)); ok && err != nil {
		return r, cause
	}

	return r, err
}

// writeError answers with the form of err that clients may see, and returns it.
func (router *Router) writeError(w http.ResponseWriter, r *http.Request, rt Route, err error) error {
	shown := router.showable(r, err)
	f := Failure{Err: shown, Problem: presentable(api.ProblemOf(shown))}
	f.Problem.RequestID = RequestID(r)

	if own, ok := errors.AsType[withStatus](err); ok {
		f.Problem.Status, f.FixedStatus = own.status, true
	}

	if shown.Kind == inventory.KindUnauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}

	// The record comes before the answer, so that a reader of the answer finds it.
	router.options.Failed(r, rt, shown)
	rt.Family.WriteError(w, f)

	return shown
}

// logAccess logs a request that changes state, or failed to. The audit record
// of the mutation itself is made below HTTP, by access.Audited.
func (router *Router) logAccess(r *http.Request, n *note, status int, took time.Duration, err error) {
	fields := logrus.Fields{
		"actor": n.principal, "method": loggable(r.Method), "path": loggablePath(r), "status": status,
		"duration": took.Round(time.Microsecond).String(), "remote": router.options.Remote(r), "request": n.id,
	}
	for name, value := range n.fields {
		fields[name] = value
	}

	if err != nil {
		fields["error"] = loggable(err.Error())
	}

	router.options.Logger.WithFields(fields).Info("request")
}
