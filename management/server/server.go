// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/backup"
	"github.com/contiv/cluster/management/desired"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/server/legacy"
	"github.com/contiv/cluster/management/server/nodelist"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/sshkey"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
	"github.com/contiv/cluster/management/window"
)

// State reads the view; see state.Reader. Its methods may be called concurrently.
// Those with a context may block until it ends.
type State interface {
	// View returns the newest view, never nil. It must not be modified.
	View() *state.View
	// Wait blocks until the view has reached the revision.
	Wait(ctx context.Context, revision int64) error
	// Sync blocks until the view shows everything that any instance acknowledged
	// before the call. It returns KindUnavailable without a quorum of the store.
	Sync(ctx context.Context) error
	// Changes returns about limit changes after the revision, in whole revisions,
	// or KindExpired if they are no longer kept. It does not block.
	Changes(revision int64, limit int) (state.Changes, error)
}

// Jobs accepts, cancels and repeats jobs.
type Jobs interface {
	Submit(ctx context.Context, c access.Caller, r job.Request) (job.Job, error)
	Cancel(ctx context.Context, c access.Caller, id string) (job.Job, error)
	// Retry submits an ended job again.
	Retry(ctx context.Context, c access.Caller, id string, r job.RetryRequest) (job.Job, error)
	// Waits returns the jobs ahead of a Queued job, and the reason to wait for them.
	Waits(v *state.View, j job.Job) (ids []string, reason string, until time.Time)
	// Inputs returns the pinned inputs of a job, secrets hidden.
	Inputs(ctx context.Context, id string) (job.Inputs, error)
}

// Logs reads the logs of jobs.
type Logs interface {
	LogSize(ctx context.Context, id string, s job.Stream) (int64, error)
	// Log emits a log from the offset on, without gaps, and with follow until the
	// job has ended. emit may block, and must not keep data.
	Log(ctx context.Context, id string, s job.Stream, offset int64, follow bool,
		emit func(offset int64, data []byte) error) error
	// Difference returns what the last verification of the node found.
	Difference(ctx context.Context, v *state.View, name string) (job.Difference, error)
}

// Nodes observes, changes and forgets nodes.
type Nodes interface {
	// Observe records all observations, or none if it refuses one.
	Observe(ctx context.Context, observer string, observations []inventory.Observation) error
	// Report records the report of an observer, except for the observations in
	// refused, by index. full, unless nil, is the range of a full report, which also
	// marks each node in it as lost that the observer saw before and that is missing.
	Report(ctx context.Context, observer string, full *inventory.NameRange,
		observations []inventory.Observation) (refused map[int]error, revision int64, err error)
	Patch(ctx context.Context, c access.Caller, name string, p node.Patch) (inventory.Node, error)
	Forget(ctx context.Context, c access.Caller, r node.ForgetRequest) (revision int64, err error)
	// History returns the newest entries of a node, oldest first. Limit 0 is all.
	History(ctx context.Context, name string, limit int) ([]inventory.HistoryEntry, error)
}

// Pinger tries logins on nodes and changes nothing. It may block for minutes.
type Pinger interface {
	Ping(ctx context.Context, c access.Caller, names []string) ([]node.PingResult, error)
}

// HostKeeper compares and records ssh host keys of nodes.
type HostKeeper interface {
	// ScanHostKeys changes nothing. It may block for a minute, as TrustHostKey.
	ScanHostKeys(ctx context.Context, c access.Caller, name string) (node.HostKeys, error)
	TrustHostKey(ctx context.Context, c access.Caller, name string, t node.Trust) (inventory.Node, error)
}

// Alerter puts alerts on nodes.
type Alerter interface {
	Alert(ctx context.Context, c access.Caller, r node.AlertRequest) ([]node.Alerted, error)
	EndAlert(ctx context.Context, c access.Caller, r node.AlertEnd) ([]node.Alerted, error)
}

// BMCLogins replaces the logins of BMCs.
type BMCLogins interface {
	// SetLogin returns once the BMC has taken the login and it is recorded, or within minutes. Of user and password, an
	// empty one is as recorded.
	SetLogin(ctx context.Context, c access.Caller, node, user, password, reason string) (inventory.Power, error)
}

// Importer registers machines from lists.
type Importer interface {
	// Import returns once all machines are registered, or within minutes. mayReach is why the caller may not change how
	// nodes are reached, or nil.
	Import(ctx context.Context, c access.Caller, mayReach error, r api.Import) (api.Imported, error)
	// Configure changes what is registered of nodes by name. connection is that of r.
	Configure(
		ctx context.Context, c access.Caller, mayReach error, r api.Configure, connection configuration.Connection,
	) (api.Imported, error)
	// Merge makes two nodes of one machine one. mayReach is that of Import.
	Merge(ctx context.Context, c access.Caller, mayReach error, r api.Merge) (revision int64, err error)
	// Split takes the registration of a machine from a node.
	Split(ctx context.Context, c access.Caller, r api.Split) (revision int64, err error)
}

// Classes makes and removes classes of hardware.
type Classes interface {
	Create(ctx context.Context, c access.Caller, name, from, nodes string) (api.Class, error)
	Delete(ctx context.Context, c access.Caller, name string) error
}

// Scanner looks for BMCs.
type Scanner interface {
	// Request asks for a scan, and returns before it ends.
	Request(ctx context.Context, c access.Caller) (api.Scan, error)
}

// GossipKeeper rotates the key of the gossip. It does not block for long.
type GossipKeeper interface {
	Rotate(ctx context.Context, c access.Caller, r gossipkey.Request) (gossipkey.Status, error)
}

// SSHKeeper rotates the ssh key of the manager. It does not block for long.
type SSHKeeper interface {
	Status() sshkey.Status
	Rotate(ctx context.Context, c access.Caller, r sshkey.Request) (sshkey.Status, error)
	Cancel(ctx context.Context, c access.Caller) (sshkey.Status, error)
}

// Policies has the state of automation, and lets operators stop and release it. Its
// changes return when they are stored.
type Policies interface {
	Status() api.Policies
	// name is that of a policy, or state.AllPolicies.
	Pause(ctx context.Context, c access.Caller, name, reason string) (api.Policies, error)
	Resume(ctx context.Context, c access.Caller, name, reason string) (api.Policies, error)
	Release(ctx context.Context, c access.Caller, reason string) (api.Policies, error)
	Enable(ctx context.Context, c access.Caller, name string, all bool, reason string) (api.Policies, error)
	Disable(ctx context.Context, c access.Caller, name, reason string) (api.Policies, error)
	// Test changes nothing. Without given nodes it uses the inventory of today.
	Test(name string, given []inventory.Node) (api.PolicyTested, error)
}

// Windows has the maintenance windows, and freezes changes. Its changes return when they
// are stored.
type Windows interface {
	Status(v *state.View) window.Status
	// Freeze lasts until the time, or until Lift if that is zero.
	Freeze(ctx context.Context, c access.Caller, until time.Time, reason string) (window.Freeze, error)
	Lift(ctx context.Context, c access.Caller, reason string) (window.Freeze, error)
}

// Variables sets and reads variables. Secrets are hidden in its results.
type Variables interface {
	Set(ctx context.Context, c access.Caller, s state.Scope, v configuration.Vars) (variable.Changed, error)
	// Patch sets the variables in patch. A nil value removes a variable.
	Patch(ctx context.Context, c access.Caller, s state.Scope, patch configuration.Vars) (variable.Changed, error)
	// Get returns the variables of the scope itself, or KindNotFound if there is
	// no such group or node.
	Get(s state.Scope) (configuration.Vars, error)
	// Merger merges the variables of the view's nodes.
	Merger(v *state.View) merge.Merger
	// Hider returns a function that hides the secrets in variables.
	Hider() func(configuration.Vars) configuration.Vars
}

// VariableHistory reads and reverses recorded changes of variables.
type VariableHistory interface {
	// History returns the recorded changes of the scope, oldest first, secrets
	// hidden.
	History(ctx context.Context, s state.Scope) ([]variable.Change, error)
	// Undo sets the variables of the scope to their values as of the revision.
	Undo(ctx context.Context, c access.Caller, s state.Scope, to int64) (variable.Changed, error)
}

// Explainer explains the condition of nodes and jobs.
type Explainer interface {
	Node(ctx context.Context, v *state.View, name string, reader explain.Reader) (explain.NodeExplanation, error)
	Job(v *state.View, j job.Job, reader explain.Reader) explain.JobExplanation
}

// Desired has the desired configurations of nodes. It does not block.
type Desired interface {
	Of(v *state.View) *desired.Configurations
}

// Settings shows and changes the configuration.
type Settings interface {
	Config() api.Config
	// Patch sets keys of the overlay and returns the resulting configuration. A
	// nil value removes a key from the overlay.
	Patch(ctx context.Context, c access.Caller, patch map[string]any) (api.Config, error)
	// Preview checks a patch as Patch does, changes nothing, and returns the
	// configuration that Patch would lead to.
	Preview(ctx context.Context, c access.Caller, patch map[string]any) (api.Config, error)
	// Reload reads the configuration file again. It takes effect as a whole, or is
	// refused with the reason.
	Reload(ctx context.Context, c access.Caller) (api.Config, error)
	Groups() inventory.Groups
}

// Secrets has the state of the secret variables, and rotates their key.
type Secrets interface {
	// Status reads all stored variables.
	Status(ctx context.Context) (api.Secrets, error)
	// Rotate encrypts all secrets with a new key. It may take minutes.
	Rotate(ctx context.Context, c access.Caller, abandon bool) (api.Secrets, error)
}

// Tokens creates, revokes and verifies bearer tokens.
type Tokens interface {
	// Authenticate returns the identity behind a token, or KindUnauthenticated. It
	// may block for some seconds for a token of another issuer.
	Authenticate(ctx context.Context, token string) (access.Identity, error)
	// Follow returns a context that ends when the token of the identity is no
	// longer valid, with the reason as its cause.
	Follow(ctx context.Context, id access.Identity) context.Context
	Create(ctx context.Context, c access.Caller, by access.Identity, r access.TokenRequest) (
		made access.Token, token string, err error)
	// Revoke removes the token with the id or the name.
	Revoke(ctx context.Context, c access.Caller, ref string) (revision int64, err error)
}

// Trail reads the audit trail; see audit.Trail. Its methods may block while they read
// files, until their context ends.
type Trail interface {
	// Sync returns once the other methods show every record that was made before.
	Sync(ctx context.Context) error
	// Read calls emit with the selected entries, the oldest first.
	Read(ctx context.Context, f audit.Filter, emit func(audit.Entry) error) error
	// Newest returns the newest selected entries, the oldest first.
	Newest(ctx context.Context, f audit.Filter, most int) ([]audit.Entry, error)
	// After returns the entries after a number, and a channel that the next one
	// closes. It does not block for one.
	After(ctx context.Context, seq uint64) ([]audit.Entry, <-chan struct{}, error)
	// Verify checks the chain.
	Verify(ctx context.Context) (audit.Report, error)
}

// DefaultBodyLimit is the initial size in bytes of the largest request body; see
// SetBodyLimit.
const DefaultBodyLimit = 1 << 20

// Options are the use cases and limits of a Server.
type Options struct {
	State      State
	Jobs       Jobs
	Plans      Plans
	PlanReader PlanReader // of the plans that Plans makes
	Logs       Logs
	Nodes      Nodes
	Ping       Pinger
	Alerts     Alerter
	BMCLogins  BMCLogins
	Importer   Importer
	Scanner    Scanner
	Classes    Classes
	Images     Images
	Contents   ImageContents // of Images
	Boot       Boot
	Members    Members
	Variables  Variables
	VarsPast   VariableHistory
	Explain    Explainer
	Desired    Desired
	Settings   Settings
	// Backup writes all records, as they are at one revision, as a backup by this version of clusterm, and blocks until
	// w has them. An error before its first byte left nothing in w.
	Backup func(ctx context.Context, version string, w io.Writer) (backup.Trailer, error)

	Automation
	Keys
	Access
	Telemetry
	Limits
}

// Automation has what happens without a request for each step, and who hears of it.
type Automation struct {
	Policies   Policies
	Windows    Windows
	Rollouts   Rollouts
	Repository Repository
	Notifier   Notifier
}

// Keys are the keys of the manager and of the nodes.
type Keys struct {
	HostKeys  HostKeeper
	GossipKey GossipKeeper
	SSHKey    SSHKeeper
	Secrets   Secrets
}

// Access decides who a caller is, and records what callers do.
type Access struct {
	// PlainHTTPRole is the role of every request over plain HTTP. Empty: every such
	// request is denied.
	PlainHTTPRole access.Role
	// CertifiedCaller returns the identity behind a client certificate that the
	// handshake verified, or refuses it. With nil no certificate is a credential.
	CertifiedCaller func(*x509.Certificate) (access.Identity, error)
	// Certificates are the known client certificates. With nil the routes refuse.
	Certificates Certificates
	Tokens       Tokens
	// Audit receives the records of requests that no use case decides on. With nil
	// there are none.
	Audit access.Auditor
	// Trail is the audit trail to read. With nil the routes refuse.
	Trail Trail
	// Results are those of requests with an Idempotency-Key.
	Results access.Results
}

// Telemetry shows how the daemon is.
type Telemetry struct {
	// Room refuses changes while there is no room for them, except those that end or remove something. With nil there
	// always is.
	Room func() error
	// Health returns the health of the daemon. It may block until ctx ends.
	Health func(ctx context.Context) api.Health
	// Version returns the running versions. It may block until ctx ends.
	Version func(ctx context.Context) api.Version
	// Metrics serves /metrics. With nil the path has nothing to show.
	Metrics http.Handler
	// Registerer receives the metrics of the server itself. It may be nil.
	Registerer prometheus.Registerer
	Logger     logrus.FieldLogger
}

// Limits protect the server from its clients.
type Limits struct {
	// HeaderTime limits the arrival of a request's header. 0 is 10 s.
	HeaderTime time.Duration
	// BodyTime limits the arrival of a request's body. 0 is 30 s.
	BodyTime time.Duration
	// IdleTime limits how long a connection stays open between requests. 0 is 45 s.
	IdleTime time.Duration
	// Stall limits one write to a client. A client that does not read for this
	// long is disconnected. 0 is 30 s.
	Stall time.Duration
	// StreamGrace limits the last write of a stream when the server stops. 0 is 1 s.
	StreamGrace time.Duration
	// AuditTime limits one read of the audit trail for a page, a check or a follower. 0 is
	// 1 min. An export lasts as long as its client reads.
	AuditTime time.Duration
	// Heartbeat is how often an idle watch receives a progress event. 0 is 10 s.
	Heartbeat time.Duration
	// Watches limits the number of open watches. 0 is 256.
	Watches int
}

// Server serves the API on listeners. It is also an http.Handler, for tests.
type Server struct {
	Options
	router  *rest.Router
	http    *http.Server
	public  *http.Server // of ListenMetrics
	metrics *metrics
	nodes   nodelist.Cache[nodeEncoder]
	filters access.Filters
	watches *atomic.Int64 // open ones

	requests, streams *callerLimit

	base     context.Context // ends when requests must be given up
	stop     context.CancelFunc
	draining context.Context // ends earlier, when streams must end
	drain    context.CancelFunc
	// reference renders the document of the API when it is first asked for.
	reference func() (map[string][]byte, error)
}

// New returns a server without listeners. It panics if nobody may use a route.
func New(o Options) *Server {
	o.setDefaults()

	s := &Server{
		Options: o, metrics: newMetrics(o.Registerer), watches: &atomic.Int64{},
		requests: newCallerLimit(DefaultRequests), streams: newCallerLimit(DefaultStreams),
		reference: sync.OnceValues(renderReference),
	}
	s.base, s.stop = context.WithCancel(context.Background())
	s.draining, s.drain = context.WithCancel(s.base)

	routes := s.routes()
	for i, rt := range routes {
		if len(rt.Allow.Roles) == 0 {
			panic(rt.String() + " does not say who may use it") // a fault of the code: no default is safe
		}

		rt.Serve = s.scoped(rt.Serve)
		routes[i].Serve = s.bound(rt)
	}

	router := rest.Options{
		Admit: s.admit, Failed: s.failed, Remote: remote, Meter: s.metrics, Logger: o.Logger, Stopping: s.base,
		BodyLimit: DefaultBodyLimit, BodyTime: o.BodyTime, Stall: o.Stall, StreamGrace: o.StreamGrace,
	}
	s.router = rest.NewRouter(router, routes)
	s.http, s.public = s.newHTTP(s), s.newPublic(router)

	return s
}

// setDefaults replaces the options that are not set.
func (o *Options) setDefaults() {
	o.HeaderTime = cmp.Or(o.HeaderTime, 10*time.Second)
	o.BodyTime = cmp.Or(o.BodyTime, 30*time.Second)
	o.IdleTime = cmp.Or(o.IdleTime, 45*time.Second)
	o.Stall = cmp.Or(o.Stall, 30*time.Second)
	o.StreamGrace = cmp.Or(o.StreamGrace, time.Second)
	o.AuditTime = cmp.Or(o.AuditTime, time.Minute)
	o.Heartbeat = cmp.Or(o.Heartbeat, 10*time.Second)
	o.Watches = cmp.Or(o.Watches, 256)

	if o.Metrics == nil {
		o.Metrics = http.NotFoundHandler()
	}

	if o.Logger == nil {
		silent := logrus.New()
		silent.SetOutput(io.Discard)
		o.Logger = silent
	}
}

// newHTTP returns a server with the limits of the options.
func (s *Server) newHTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: s.HeaderTime, // of the TLS handshake, too
		IdleTimeout:       s.IdleTime,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return s.base },
		ConnContext:       withPeer,
		ConnState:         noteState,
		ErrorLog:          log.New(debugWriter{s.Logger}, "", 0),
		// There is no ReadTimeout and no WriteTimeout: streams last as long as their
		// jobs. Instead, package rest sets a deadline for every body and every write.
	}
}

// legacy returns the contract of the first generation on top of the same use cases.
func (s *Server) legacy() *legacy.API {
	return legacy.New(legacy.Options{
		View: s.view, Jobs: s.Jobs, Nodes: s.Nodes, Variables: s.Variables, Settings: s.Settings,
		AwaitView: s.awaitView, Tail: s.tail,
		StreamLog: func(w http.ResponseWriter, r *http.Request, id string) error {
			return s.streamLog(w, r, id, job.StreamText, 0, true)
		},
	})
}

// SetBodyLimit sets the size in bytes of the largest body of later requests.
func (s *Server) SetBodyLimit(bytes int64) { s.router.SetBodyLimit(bytes) }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !serveProfile(w, r) {
		s.router.ServeHTTP(w, r)
	}
}

// Serve answers requests on the listeners and closes them at the end. It blocks
// until Shutdown, and then returns nil. If one listener fails, Serve closes the
// others and returns the error.
func (s *Server) Serve(listeners ...net.Listener) error {
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- s.serverOf(l).Serve(l) }()
	}

	var failed error
	for range listeners {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) && failed == nil {
			// The daemon cannot serve without one of its listeners: end the others too.
			failed = err
			s.stop()
			_ = errors.Join(s.http.Close(), s.public.Close())
		}
	}

	return failed
}

// refuseTime limits how long the server answers the remaining requests with an
// error when it stops.
const refuseTime = time.Second

// Shutdown closes the listeners, ends streams at once, and waits for the other
// requests until ctx ends. It then answers the remaining requests with
// KindUnavailable, and closes the connections that do not read the answer.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drain()

	err := errors.Join(s.public.Shutdown(ctx), s.http.Shutdown(ctx))
	s.stop()

	if err == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refuseTime)
	defer cancel()

	if err = errors.Join(s.public.Shutdown(ctx), s.http.Shutdown(ctx)); err != nil {
		_ = errors.Join(s.http.Close(), s.public.Close())
	}

	return err
}

// debugWriter logs the messages of net/http, most of them about broken connections.
type debugWriter struct{ logger logrus.FieldLogger }

func (d debugWriter) Write(p []byte) (int, error) {
	d.logger.WithField("from", "net/http").Debug(inventory.Shorten(string(p), 1<<10))
	return len(p), nil
}
