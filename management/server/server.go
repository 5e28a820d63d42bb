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
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// State gives access to the newest view, see state.Reader. All methods may be
// called at once; those with a context may block until it ends.
type State interface {
	// View returns the newest view, never nil. Nobody may change it.
	View() *state.View
	// Wait blocks until the view has reached the revision.
	Wait(ctx context.Context, revision int64) error
	// Sync blocks until the view shows everything that any instance acknowledged
	// before the call. It returns KindUnavailable if that cannot be known.
	Sync(ctx context.Context) error
	// Changes returns the changes after the revision, about limit at most and
	// whole revisions, or KindExpired if they are no longer kept. It does not
	// block.
	Changes(revision int64, limit int) (state.Changes, error)
}

// Jobs accepts, cancels and repeats jobs.
type Jobs interface {
	Submit(ctx context.Context, c access.Caller, r job.Request) (job.Job, error)
	Cancel(ctx context.Context, c access.Caller, id string) (job.Job, error)
	// Retry submits an ended job again with the same inputs.
	Retry(ctx context.Context, c access.Caller, id string, failed bool) (job.Job, error)
	// Waits returns the jobs a Queued job waits for, and why.
	Waits(v *state.View, j job.Job) (ids []string, reason string)
	// Inputs returns the inputs a job was accepted with, secrets hidden.
	Inputs(ctx context.Context, id string) (job.Inputs, error)
}

// Logs reads the logs of jobs.
type Logs interface {
	LogSize(ctx context.Context, id string, s job.Stream) (int64, error)
	// Log emits a log from the offset on, without gaps; with follow until the
	// job has ended. emit may block, and must not keep data.
	Log(ctx context.Context, id string, s job.Stream, offset int64, follow bool,
		emit func(offset int64, data []byte) error) error
}

// Nodes observes, changes and forgets nodes.
type Nodes interface {
	// Observe records all observations, or none if it refuses one.
	Observe(ctx context.Context, observer string, observations []inventory.Observation) error
	// Report records the report of an observer, except for the observations in
	// refused, by index. A full report also counts each node that the observer
	// saw before and that is missing as lost.
	Report(ctx context.Context, observer string, full bool, observations []inventory.Observation) (
		refused map[int]error, revision int64, err error)
	Patch(ctx context.Context, c access.Caller, name string, p node.Patch) (inventory.Node, error)
	Forget(ctx context.Context, c access.Caller, r node.ForgetRequest) (revision int64, err error)
	// History returns the newest entries of a node, oldest first; limit 0: all.
	History(ctx context.Context, name string, limit int) ([]inventory.HistoryEntry, error)
}

// Variables sets and reads variables. Secrets are hidden in everything it returns.
type Variables interface {
	Set(ctx context.Context, c access.Caller, s state.Scope, v configuration.Vars) (variable.Changed, error)
	// Patch sets the variables in patch; nil removes one.
	Patch(ctx context.Context, c access.Caller, s state.Scope, patch configuration.Vars) (variable.Changed, error)
	// Get returns the variables of the scope itself, or KindNotFound if there is
	// no such group or node.
	Get(s state.Scope) (configuration.Vars, error)
	// Merger merges the variables of the view's nodes.
	Merger(v *state.View) variable.Merger
	// Hide hides the secrets in changes.
	Hide(changes []state.Change) []state.Change
}

// Explainer answers why a node or a job is as it is.
type Explainer interface {
	Node(ctx context.Context, v *state.View, name string) (explain.NodeExplanation, error)
	Job(v *state.View, j job.Job) explain.JobExplanation
}

// Settings shows and changes the configuration.
type Settings interface {
	Config() api.Config
	// Patch sets keys of the overlay; a nil value removes one. It returns the
	// configuration then in force.
	Patch(ctx context.Context, c access.Caller, patch map[string]any) (api.Config, error)
	Groups() inventory.Groups
}

// DefaultBodyLimit is the size in bytes of the largest body of a request,
// unless SetBodyLimit says otherwise.
const DefaultBodyLimit = 1 << 20

// Options are what a Server is made of.
type Options struct {
	State     State
	Jobs      Jobs
	Logs      Logs
	Nodes     Nodes
	Variables Variables
	Explain   Explainer
	Settings  Settings
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
