// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/mux"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// handler answers a request, or returns why not.
type handler func(w http.ResponseWriter, r *http.Request) error

// door is a family of routes with one way to tell a failure.
type door int

const (
	doorV1     door = iota // a problem, with the kind's status
	doorLegacy             // 500 and the reason as text
	doorPlain              // the reason as text, with the kind's status
)

// route is one method of one path.
type route struct {
	method string
	path   string
	serve  handler
	door   door
	query  []string // the query parameters that it reads; under /v1 others are refused
	reads  bool     // changes nothing, whatever its method
	// unserved: it only says that the path or the method is not served
	unserved bool
	once     bool // it takes an Idempotency-Key
	tagged   bool // its changes can depend on If-Match and If-None-Match
	asIs     bool // shows nothing of the view, so it takes none of viewQuery
	lasts    bool // streams, or waits on demand
}

func (rt route) changes() bool {
	return !rt.reads && !rt.unserved && rt.method != http.MethodGet && rt.method != http.MethodHead
}

// newRouter routes every path to its methods. A path is taken as it was sent:
// no redirects, and an escaped slash is part of a name.
func (s *Server) newRouter() *mux.Router {
	router := mux.NewRouter().SkipClean(true).UseEncodedPath()

	byPath := map[string][]route{}
	for _, rt := range s.routes {
		byPath[rt.path] = append(byPath[rt.path], rt)
	}

	for _, rt := range s.routes {
		methods, ok := byPath[rt.path]
		if !ok {
			continue // done with its first method
		}

		delete(byPath, rt.path)
		router.Path(rt.path).Handler(s.methods(methods))
	}

	router.NotFoundHandler = http.HandlerFunc(s.unknownPath)

	return router
}

// methods serves the methods of one path.
func (s *Server) methods(routes []route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet // net/http leaves the body out
		}

		for _, rt := range routes {
			if rt.method == method {
				s.handle(w, r, rt)
				return
			}
		}

		rt := route{method: r.Method, path: routes[0].path, door: routes[0].door, unserved: true}
		rt.serve = func(w http.ResponseWriter, r *http.Request) error {
			var allowed []string
			for _, rt := range routes {
				allowed = append(allowed, rt.method)
				if rt.method == http.MethodGet {
					allowed = append(allowed, http.MethodHead)
				}
			}

			w.Header().Set("Allow", strings.Join(append(allowed, http.MethodOptions), ", "))

			if r.Method == http.MethodOptions {
				w.WriteHeader(http.StatusNoContent)
				return nil
			}

			return withStatus{
				http.StatusMethodNotAllowed,
				inventory.Errorf(inventory.KindUnsupported, "%s is not served at %s", r.Method, rt.path).
					Do("use %s", strings.Join(allowed, " or ")),
			}
		}
		s.handle(w, r, rt)
	})
}

// unknownPath answers requests for paths that are not served.
func (s *Server) unknownPath(w http.ResponseWriter, r *http.Request) {
	rt := route{method: r.Method, path: "unknown", door: doorPlain, unserved: true}
	if strings.HasPrefix(r.URL.Path, "/v1") {
		rt.door = doorV1
	}

	rt.serve = func(_ http.ResponseWriter, r *http.Request) error {
		e := inventory.Errorf(inventory.KindNotFound, "there is no path %s", r.URL.EscapedPath())
		if near := s.nearest(r.URL.EscapedPath()); near != "" {
			return e.Do("did you mean %s?", near)
		}

		return e.Do("the paths begin with /v1; GET /v1/docs describes them")
	}
	s.handle(w, r, rt)
}

// nearest is the served path that differs least from the one asked for, if
// that is little.
func (s *Server) nearest(path string) string {
	asked := strings.Split(strings.TrimSuffix(path, "/"), "/")

	best, cost := "", 4
	for _, rt := range s.routes {
		served := strings.Split(rt.path, "/")
		if len(served) != len(asked) {
			continue
		}

		sum := 0
		for i, part := range served {
			if !strings.HasPrefix(part, "{") || asked[i] == "" {
				sum += inventory.Distance(part, asked[i])
			}
		}

		if sum < cost {
			best, cost = rt.path, sum
		}
	}

	return best
}

// handle runs one handler and does for it what all need.
func (s *Server) handle(w http.ResponseWriter, r *http.Request, rt route) {
	started := time.Now()

	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	rec := &recorder{ResponseWriter: w, stall: s.Stall}
	n := &note{fields: logrus.Fields{}, query: rt.query}
	r = r.WithContext(context.WithValue(r.Context(), noteKey{}, n))
	rec.Header().Set("Cache-Control", "no-store")
	rec.Header().Set("X-Content-Type-Options", "nosniff")

	serve := rt.serve
	if rt.door == doorV1 && !rt.unserved {
		serve = func(w http.ResponseWriter, r *http.Request) error {
			if err := meant(r, rt); err != nil {
				return err
			}

			return rt.serve(w, r)
		}
	}

	err := s.attempt(rec, r, n, serve)

	broken := false
	if err != nil {
		if rec.status != 0 {
			// An answer has begun: all that can be said is that it is not whole.
			broken = true
			s.Logger.WithError(err).WithField("path", r.URL.Path).Debug("an answer was broken off")
		} else {
			err = s.fail(rec, r, rt.door, err)
		}
	} else if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}

	took := time.Since(started)
	s.metrics.count(r, rt.path, rec.status, took, rt.lasts)

	if rt.changes() {
		s.audit(r, n, rec.status, took, err)
	}

	if broken {
		panic(http.ErrAbortHandler)
	}
}

// attempt calls the handler and turns a panic into an error.
func (s *Server) attempt(w http.ResponseWriter, r *http.Request, n *note, serve handler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, too
				err = http.ErrAbortHandler
				return
			}

			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()

	if err := refuseBrowsers(r); err != nil {
		return err
	}

	if n.actor, err = actor(r); err != nil {
		return err
	}

	return serve(w, r)
}

// withStatus is an error that has a status of its own instead of its kind's.
type withStatus struct {
	status int
	err    error
}

func (e withStatus) Error() string { return e.err.Error() }
func (e withStatus) Unwrap() error { return e.err }

// fail tells the client why, and returns what it told.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, d door, err error) error {
	told := s.explain(r, err)

	p := api.ProblemOf(told)
	if own, ok := errors.AsType[withStatus](err); ok {
		p.Status = own.status
	}

	switch d {
	case doorV1:
		if p.Status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}

		body, merr := json.Marshal(p)
		if merr != nil {
			body = []byte("{}")
		}

		w.Header().Set("Content-Type", api.TypeProblem)
		write(w, p.Status, append(body, '\n'))
	case doorLegacy:
		w.Header().Set(api.HeaderProblem, string(told.Kind))
		// The contract answers every failure with 500. Access control precedes it, and
		// an error with a status of its own (405) is outside of it.
		_, outside := errors.AsType[withStatus](err)
		denied := told.Kind == inventory.KindUnauthenticated || told.Kind == inventory.KindForbidden

		if !outside && !denied {
			p.Status = http.StatusInternalServerError
		}

		fallthrough
	case doorPlain:
		w.Header().Set("Content-Type", api.TypeText)

		text := p.Detail
		if p.Remedy != "" {
			text += "; " + p.Remedy
		}

		write(w, p.Status, []byte(text+"\n"))
	}

	return told
}

// explain turns any error into one that a client may see. What has no kind is
// logged in full under a number, and the number is all that is shown.
func (s *Server) explain(r *http.Request, err error) *inventory.Error {
	if e, ok := errors.AsType[*inventory.Error](
		err,
	); ok && slices.Contains(inventory.Kinds, e.Kind) &&
		e.Kind != inventory.KindInternal {
		return e
	}

	switch {
	case s.base.Err() != nil:
		return inventory.Errorf(inventory.KindUnavailable, "the manager is stopping").Do("repeat when it runs again")
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		return inventory.Errorf(inventory.KindUnavailable, "the request was given up by its sender")
	case errors.Is(err, context.DeadlineExceeded):
		return inventory.Errorf(inventory.KindUnavailable, "it took too long").
			Do("repeat the request; see clusterctl version and the daemon's log if that changes nothing")
	}

	var b [4]byte
	_, _ = rand.Read(b[:])
	incident := hex.EncodeToString(b[:])
	s.Logger.WithFields(logrus.Fields{"incident": incident, "method": r.Method, "path": r.URL.Path}).
		WithError(err).
		Error("a request met a fault")

	return inventory.Errorf(inventory.KindInternal, "the manager met a fault of its own, incident %s", incident).
		Do("its log has the details: journalctl -u clusterm | grep %s", incident)
}

// note is what a handler has to say about its request, for the records.
type note struct {
	actor  string
	query  []string // the query parameters of its route
	fields logrus.Fields
}

type noteKey struct{}

func noteIn(r *http.Request) *note { return r.Context().Value(noteKey{}).(*note) }

// mention adds a field to the record of the request.
func mention(r *http.Request, field string, value any) { noteIn(r).fields[field] = value }

// audit writes the record of a request that changes something, or was to.
func (s *Server) audit(r *http.Request, n *note, status int, took time.Duration, err error) {
	p := peerIn(r)

	fields := logrus.Fields{
		"actor": n.actor, "method": r.Method, "path": r.URL.Path, "status": status,
		"duration": took.Round(time.Microsecond).String(), "remote": p.name,
	}
	if p.unix {
		fields["remote"] = "uid " + strconv.FormatUint(uint64(p.uid), 10)
	}

	maps.Copy(fields, n.fields)

	if err != nil {
		fields["refused"] = err.Error()
	}

	s.Logger.WithFields(fields).Info("audit")
}

// pieceSize is how much is written of an answer at a time.
const pieceSize = 256 << 10

// recorder remembers the status, and gives every piece of an answer a deadline
// of its own: a client that does not read holds its own connection only, and
// not for long.
type recorder struct {
	http.ResponseWriter
	stall  time.Duration
	status int

	mu   sync.Mutex
	over bool // the deadline is the last one
}

// Unwrap lets http.ResponseController find the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}

	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}

	written := 0
	for {
		w.extend()
		n, err := w.ResponseWriter.Write(p[written:min(len(p), written+pieceSize)])

		written += n
		if err != nil || written >= len(p) {
			return written, err
		}
	}
}

func (w *recorder) extend() {
	w.mu.Lock()
	defer w.mu.Unlock()

	if !w.over {
		// Not every writer has deadlines; those of tests do without.
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.stall))
	}
}

// farewell is how long a stream may still take, when the server stops, for what
// it is writing; tests give it less.
var farewell = time.Second

// cut leaves a last moment for what is being written. It may be called by
// another goroutine while the request is being answered.
func (w *recorder) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(farewell))
}

// write writes a whole answer. That it may not arrive is the client's business.
func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// writeJSON answers with a value.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	b, err := encodeJSON(v)
	if err != nil {
		return err
	}

	writeBody(w, status, b)

	return nil
}

func writeBody(w http.ResponseWriter, status int, json []byte) {
	w.Header().Set("Content-Type", api.TypeJSON)
	write(w, status, json)
}

// encodeJSON is the one form of JSON that answers have, a newline at its end.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)

	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("write the answer: %w", err)
	}

	return b.Bytes(), nil
}

// param is a parameter of the path.
func param(r *http.Request, name string) (string, error) {
	value, err := url.PathUnescape(mux.Vars(r)[name])
	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "the %s in the path is not escaped properly: %w", name, err)
	}

	return value, nil
}

// query reads the query. Names that the route does not have are refused.
func query(r *http.Request) (url.Values, error) {
	allowed := noteIn(r).query

	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the query does not parse: %w", err)
	}

	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(allowed, name) {
			e := inventory.Errorf(inventory.KindInvalid, "there is no query parameter %q here", name)
			if len(allowed) == 0 {
				return nil, e.Do("leave it out: there are none")
			}

			return nil, e.Do("use %s", strings.Join(allowed, ", "))
		}
	}

	return q, nil
}

// single is the one value of a query parameter, "" where it is absent.
func single(q url.Values, name string) (string, error) {
	switch values := q[name]; {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", inventory.Errorf(inventory.KindInvalid, "the query parameter %s is given %d times", name,
			len(values)).
			Do("give it once")
	case values[0] == "":
		return "", inventory.Errorf(inventory.KindInvalid, "the query parameter %s is empty", name).
			Do("give it a value, or leave it out")
	default:
		return values[0], nil
	}
}

func number(q url.Values, name string) (int64, bool, error) {
	text, err := single(q, name)
	if err != nil || text == "" {
		return 0, false, err
	}

	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, false, inventory.Errorf(inventory.KindInvalid, "the query parameter %s is %q", name, text).
			Do("write a whole number, 0 or more")
	}

	return n, true, nil
}

func truth(q url.Values, name string, otherwise bool) (bool, error) {
	text, err := single(q, name)
	if err != nil || text == "" {
		return otherwise, err
	}

	switch text {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}

	return false, inventory.Errorf(inventory.KindInvalid, "the query parameter %s is %q", name, text).
		Do("write true or false")
}
