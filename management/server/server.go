// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management"
	"github.com/contiv/cluster/management/api"
)

// Manager is what the server needs of the use cases. All methods may be called
// at once; those with a context may block until it ends.
type Manager interface {
	Reader
	Operator
	Logs
}

// Reader answers from the newest view, and what is not in it from the store.
type Reader interface {
	// View is the newest view, never nil; nobody may change it.
	View() *management.View
	// WaitRevision returns when the view has reached the revision.
	WaitRevision(ctx context.Context, revision int64) error
	// Sync returns when the view shows everything that was acknowledged, by
	// whatever instance, before it was called. It fails where that cannot be
	// known: KindUnavailable.
	Sync(ctx context.Context) error
	Groups() inventory.Groups
	// Waits says what a Queued job waits for, and why.
	Waits(v *management.View, j management.Job) (ids []string, reason string)
	// History returns the newest entries of a node, newest last; limit 0: all.
	History(ctx context.Context, node string, limit int) ([]inventory.HistoryEntry, error)
	// Explain says why a node is, or is not, in service.
	Explain(ctx context.Context, v *management.View, node string) (management.NodeExplanation, error)
	// ExplainJob says why a job is as it is.
	ExplainJob(v *management.View, j management.Job) management.JobExplanation
	// Vars are what is set for the scope itself, KindNotFound where there is no
	// such group or node.
	Vars(scope management.Scope) (configuration.Vars, error)
	// MergedVars are the variables that a node gets.
	MergedVars(node string) (map[string]configuration.Var, error)
	// Merger says what variables the view's nodes get.
	Merger(v *management.View) management.Merger
	// Inputs are what a job was accepted with.
	Inputs(ctx context.Context, job string) (management.Inputs, error)
	// Changes are what changed after the revision, about limit at most and whole
	// revisions; KindExpired where that is no longer kept. It does not block.
	Changes(revision int64, limit int) (management.Changes, error)
}

// Operator does what an operator, or an observer, asks for. A change that is
// given a condition is made only where that holds.
type Operator interface {
	Submit(ctx context.Context, r management.Request) (management.Job, error)
	Cancel(
		ctx context.Context,
		job, actor string,
		only management.Condition,
		once *management.IdempotencyKey,
	) (management.Job, error)
	// Retry asks for an ended job once more, with the same inputs.
	Retry(ctx context.Context, job string, failed bool, actor string, once *management.IdempotencyKey) (management.Job, error)
	Forget(
		ctx context.Context,
		nodes []string,
		force bool,
		reason, actor string,
		once *management.IdempotencyKey,
	) (revision int64, err error)
	PatchNode(
		ctx context.Context,
		node string,
		p management.NodePatch,
		actor string,
		only management.Condition,
	) (inventory.Node, error)
	SetVars(
		ctx context.Context,
		scope management.Scope,
		v configuration.Vars,
		actor string,
		only management.Condition,
	) (revision int64, warnings []string, err error)
	// PatchVars sets what the patch names; a nil value unsets.
	PatchVars(
		ctx context.Context,
		scope management.Scope,
		patch configuration.Vars,
		actor string,
		only management.Condition,
	) (revision int64, warnings []string, err error)
	// Observe records all words, or, where it refuses one, none.
	Observe(ctx context.Context, observer string, words []inventory.Observation) error
	// Report records the report of an observer, except for the observations in
	// refused, by index. A full report also counts each node that the observer saw
	// before and that is missing as lost.
	Report(
		ctx context.Context, observer string, full bool, observations []inventory.Observation,
	) (refused map[int]error, revision int64, err error)
}

// Logs reads the logs of jobs.
type Logs interface {
	LogSize(ctx context.Context, job string, s management.Stream) (int64, error)
	// Log emits a log from the offset on, without gaps; with follow until the
	// job has ended. emit may take its time, and must not keep data.
	Log(
		ctx context.Context,
		job string,
		s management.Stream,
		offset int64,
		follow bool,
		emit func(offset int64, data []byte) error,
	) error
}

// Configurer shows and changes the configuration.
type Configurer interface {
	Config() api.Config
	// PatchConfig sets keys in the overlay; a nil value takes one out. It
	// returns the configuration then in force.
	PatchConfig(ctx context.Context, patch map[string]any, actor string, only management.Condition) (api.Config, error)
}

// DefaultBodyLimit is the size in bytes of the largest body of a request,
// unless SetBodyLimit says otherwise.
const DefaultBodyLimit = 1 << 20

// Options are what a Server is made of.
type Options struct {
	Manager    Manager
	Configurer Configurer
	// Health says how the daemon is; it may take its time until ctx ends.
	Health func(ctx context.Context) api.Health
	// Version says what runs; it may take its time until ctx ends.
	Version func(ctx context.Context) api.Version
	// Metrics answers /metrics; nil: there is no such path.
	Metrics http.Handler
	// Registerer gets the server's own metrics; nil: they are not counted.
	Registerer prometheus.Registerer
	Logger     logrus.FieldLogger
	// Stall bounds one write to a client; one that does not read for so long
	// is dropped. 0: 30 s.
	Stall time.Duration
	// Heartbeat is after how long without a change a watch is told that there
	// was none. 0: 10 s.
	Heartbeat time.Duration
	// Watches is how many watches there may be at once. 0: 256.
	Watches int
}

// Server serves the API. It is an http.Handler for tests; Serve serves it on
// listeners.
type Server struct {
	Options
	router    *mux.Router
	routes    []route
	http      *http.Server
	metrics   *metrics
	bodyLimit atomic.Int64
	nodes     encoded[nodeEncoder]
	infos     encoded[infoEncoder]
	watches   atomic.Int64 // that are open

	base     context.Context // ends when requests must not go on
	stop     context.CancelFunc
	draining context.Context // ends when streams must not go on
	drain    context.CancelFunc
}

// New returns a server that listens nowhere yet.
func New(o Options) *Server {
	if o.Stall == 0 {
		o.Stall = 30 * time.Second
	}

	if o.Heartbeat == 0 {
		o.Heartbeat = 10 * time.Second
	}

	if o.Watches == 0 {
		o.Watches = 256
	}

	if o.Logger == nil {
		silent := logrus.New()
		silent.SetOutput(io.Discard)
		o.Logger = silent
	}

	s := &Server{Options: o, metrics: newMetrics(o.Registerer)}
	s.bodyLimit.Store(DefaultBodyLimit)
	s.base, s.stop = context.WithCancel(context.Background())
	s.draining, s.drain = context.WithCancel(s.base)
	s.routes = append(s.v1(), s.legacy()...)
	s.router = s.newRouter()
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return s.base },
		ConnContext:       withPeer,
		ErrorLog:          log.New(debugWriter{o.Logger}, "", 0),
		// No WriteTimeout: streams last as long as their jobs. Every write has
		// a deadline of its own instead (recorder).
	}

	return s
}

// SetBodyLimit sets the size in bytes of the largest body of a request from
// now on.
func (s *Server) SetBodyLimit(bytes int64) { s.bodyLimit.Store(bytes) }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.router.ServeHTTP(w, r) }

// Serve answers requests on the listeners and closes them in the end. It
// returns nil after Shutdown, and an error as soon as one listener fails; then
// the others are closed as well.
func (s *Server) Serve(listeners ...net.Listener) error {
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- s.http.Serve(l) }()
	}

	var failed error
	for range listeners {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) && failed == nil {
			failed = err
			s.stop()
			_ = s.http.Close()
		}
	}

	return failed
}

// lastWords is how long requests have to be answered that the manager is stopping.
const lastWords = time.Second

// Shutdown closes the listeners, ends streams at once, and waits for the other
// requests until ctx ends. What still waits then is answered that the manager is
// stopping, and what takes no answer is cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drain()
	err := s.http.Shutdown(ctx)
	s.stop()

	if err == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()

	if err = s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}

	return err
}

// debugWriter takes what net/http has to say: broken connections and the like.
type debugWriter struct{ logger logrus.FieldLogger }

func (d debugWriter) Write(p []byte) (int, error) {
	d.logger.WithField("from", "net/http").Debug(string(p))
	return len(p), nil
}
