// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/access/mtls"
	"github.com/contiv/cluster/management/access/oidc"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/cluster/datadir"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/desired"
	"github.com/contiv/cluster/management/engine"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/gossip"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/pki"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/repository"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/secret/keyring"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/management/sshkey"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/playbook"
	"github.com/contiv/cluster/management/step/playbook/program"
	"github.com/contiv/cluster/management/variable"
	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/serf"
)

// stopBudget limits the time of a stop, all parts together.
const stopBudget = 30 * time.Second

// retryEvery is the time between two attempts to reach the store at the start.
const retryEvery = 2 * time.Second

// Options are the parameters of a Daemon.
type Options struct {
	// ConfigPath is the configuration file. If it is empty, the file UsualPath is
	// used if it exists, and the defaults otherwise. Reload looks again.
	ConfigPath string
	UsualPath  string
	// Command is the argv of this binary: its subcommands runner and etcd are
	// the processes that the daemon starts.
	Command []string
	// InProcess runs the embedded etcd in this process, without fsync. For tests.
	InProcess bool
	// AcceptEmptyStore lets the daemon begin with an empty store although its data
	// directory belongs to a former one.
	AcceptEmptyStore bool
	// StaleAfter is the silence of the store after which reads are marked stale;
	// 0: the default of management/etcd. For tests.
	StaleAfter time.Duration
	// InstanceTTL is how long an instance counts as alive without contact to the store; 0: as usual. For tests.
	InstanceTTL time.Duration
	// Quota of an embedded etcd in this process, in bytes, and the time between two
	// looks at its size (negative: none); 0: as usual. For tests.
	Quota       int64
	UpkeepEvery time.Duration
	// PlaybooksEvery is the time between two looks at the folder of playbooks; 0: as
	// usual. For tests.
	PlaybooksEvery time.Duration
	// CertificatesEvery is the time between two looks at the certificates; 0: as usual. For tests.
	CertificatesEvery time.Duration
	// Timing of the gossip; zero: timing for a LAN. For tests.
	Timing serf.Timing
	// Certificates has the lifetimes and the clock of the certificates; zero: as
	// usual. For tests.
	Certificates pki.Options
	// Executors are those of further kinds of step. For tests.
	Executors step.Executors
	Version   api.Version
	Logger    *logrus.Logger
	// Ready is called when the daemon serves. It may be nil.
	Ready func()
	// Status receives a line about the condition of the daemon when that changes.
	// It may be nil.
	Status func(string)
}

// Daemon is one clusterm. New makes it; Start sets the fields below file.
type Daemon struct {
	opts   Options
	file   setting.File // as read at the start
	failed chan error   // failures that end the daemon

	node     monitor.Identity // of this host, complete
	etcd     *etcd.Client
	embedded *etcd.Server // nil: an existing etcd is used
	store    *store.Store
	identity cluster.Identity
	addrs    []net.Addr

	member    *store.Membership // of the instances that run jobs
	settings  *setting.Settings
	nodes     *node.Nodes
	variables *variable.Variables
	engine    *engine.Engine
	audit     access.Auditor
	trail     *audit.Trail
	tokens    *access.Tokens
	clients   *access.Certificates // of clients
	secrets   *keyring.Keyring
	gossip    *gossip.Gossip
	gossipKey *gossipkey.Keeper
	notifier  *notify.Notifier
	sshKey    *sshkey.Keeper
	policies  *policy.Loop
	rollouts  *rollout.Loop
	programs  *program.Runner
	desired   *desired.Source

	repository *repository.Keeper

	certificates *pki.Keeper    // nil: no HTTPS
	refresh      *control.Loop  // of the certificates
	issuer       *oidc.Verifier // nil: no tokens of an issuer

	metrics   metrics.Registry
	decisions *metrics.CounterVec // of policies

	mu       sync.Mutex // guards server, which a changed configuration may reach before it exists, and loops
	server   *server.Server
	loops    []*control.Loop // that are measured
	teardown []cleanup
}

// cleanup is a named step of the teardown.
type cleanup struct {
	name string
	do   func(context.Context) error
}

// Path returns the configuration file to read now, or "" for the defaults.
func (o Options) Path() string {
	if o.ConfigPath == "" && o.UsualPath != "" {
		if _, err := os.Stat(o.UsualPath); err == nil {
			return o.UsualPath
		}
	}

	return o.ConfigPath
}

// New reads and checks the configuration. It changes nothing on the host.
func New(o Options) (*Daemon, error) {
	file, err := setting.Load(o.Path(), adapters{})
	if err != nil {
		return nil, err
	}

	// health and shutdownAPI derive their timeouts from it.
	o.StaleAfter = cmp.Or(o.StaleAfter, store.StaleAfter)
	d := &Daemon{opts: o, file: file, failed: make(chan error, 4), metrics: metrics.NewRegistry()}
	d.decisions = newDecisions(d.metrics)
	d.metrics.Gauge("clusterm_build_info").
		WithLabelValues(o.Version.Version, o.Version.Commit, runtime.Version()).
		Set(1)
	d.programs = program.New(program.Options{
		DataDir: file.DataDir, Command: slices.Concat(o.Command, []string{"runner"}),
		Config:  func() playbook.Config { return d.settings.Current().Programs() },
		Metrics: d.metrics, Logger: o.Logger, LookEvery: o.PlaybooksEvery,
	})
	d.apply(file.Config)

	return d, nil
}

// onStop adds a step to the teardown. Stop runs the steps in reverse order.
func (d *Daemon) onStop(name string, do func(context.Context) error) {
	d.teardown = append(d.teardown, cleanup{name, do})
}

// Start starts every part after the parts that it needs, and returns when the
// API is served. If it fails, it stops the parts that it started.
func (d *Daemon) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			_ = d.Stop(context.WithoutCancel(ctx))
		}
	}()

	if err := d.prepareHost(); err != nil {
		return err
	}

	// Bind first: a taken address is an error before any other part has started.
	listeners, err := d.listen()
	if err != nil {
		return err
	}

	if err := d.openStore(ctx); err != nil {
		return err
	}

	if err := d.programs.Open(ctx); err != nil {
		return err
	}

	if err := d.enter(ctx); err != nil {
		return err
	}

	d.runAudit(ctx)
	d.identifyManager(ctx)

	if d.gossipKey, err = d.gossip.Keeper(gossipkey.Options{
		State: d.store, Node: d.node.Name(), Settings: d.settings.GossipKey, Audit: d.audit,
		Logger: d.opts.Logger.WithField("part", "gossip key"),
	}, d.programs.NewProber()); err != nil {
		return err
	}

	d.openSSHKey()
	d.trackRepository()
	d.wireUseCases()

	// Before the API: without the note of the playbooks, no node would be outdated at first.
	d.programs.Note.Begin(ctx, d.identity.ID, d.store)
	d.onStop(d.programs.Note.Name, func(context.Context) error { d.programs.Note.Stop(); return nil })

	// Before the API: its first answer carries the entity tag of this file.
	d.settings.Start(ctx, d.identity.ID)
	d.onStop("settings", func(context.Context) error { d.settings.Stop(); return nil })

	d.onStop("gossip", func(context.Context) error { return d.gossip.Close() })

	if err := d.gossip.Start(ctx, d.store.View(), d.nodes); err != nil {
		return err
	}

	d.measure(d.programs.Note.Loop, d.repository.Loop, d.policies.Loop, d.rollouts.Loop)
	d.run(ctx, d.gossipKey.Loop, d.sshKey.Loop)

	// After the gossip: a step that waits for hosts needs current observations.
	d.engine.Start(ctx)
	d.measure(d.engine.Loops()...)
	d.onStop("jobs", func(context.Context) error { d.engine.Stop(); return nil })

	d.repository.Start(ctx)
	d.onStop("repository", func(context.Context) error { d.repository.Stop(); return nil })

	d.run(ctx, d.nodes.WatchMonitors())
	d.run(ctx, d.notifier.Loops()...)
	d.background(ctx, "automation", d.runAutomation)

	d.run(ctx, d.tokens.Loops()...)
	d.run(ctx, d.secrets.Loop)
	d.startUpkeep(ctx)
	d.serve(listeners)
	d.checkRunner(ctx)

	return nil
}

// prepareHost makes the data directory and completes the identity of this host.
func (d *Daemon) prepareHost() error {
	dir := d.file.DataDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the data directory %s cannot be made: %w", dir, err).
			Do("run as root, or configure another data_dir")
	}

	// Playbooks copy this program to hosts that are being prepared.
	executable, err := os.Executable()
	if err != nil {
		return err
	}

	// Only an agent needs an address that other hosts can reach.
	runsAgent := !d.file.Gossip.Off && d.file.Gossip.RPC == ""
	if d.node, err = serf.Identify(d.file.Node, runsAgent); err != nil {
		return err
	}

	d.gossip = gossip.New(gossip.Options{
		Config: serf.SourceConfig(d.file.Gossip), Node: d.node, DataDir: d.file.DataDir, Executable: executable,
		Timing: d.opts.Timing, Logger: d.opts.Logger, Failed: func(err error) { d.failed <- err },
	})

	return d.openIssuer()
}

// enter makes this one of the instances that run jobs.
func (d *Daemon) enter(ctx context.Context) error {
	id, err := datadir.InstanceID(d.file.DataDir)
	if err != nil {
		return err
	}
	d.identity = cluster.Identity{ID: id, Node: d.node.Name()}

	self := state.Instance{
		Identity: d.identity, Addr: d.node.Addr, API: []string{"unix://" + d.file.Socket},
		Version: d.opts.Version.Version, Started: time.Now().UTC(),
	}
	for _, addr := range d.addrs {
		if addr.Network() == "tcp" {
			self.API = append(self.API, "http://"+addr.String())
		}
	}

	d.member, err = d.store.Join(ctx, store.SessionOptions{
		Self:   self,
		TTL:    cmp.Or(d.opts.InstanceTTL, store.SessionTTL),
		Log:    d.opts.Logger,
		Lost:   func(err error) { d.failed <- err },
		Beside: d.mayStandBeside,
	})
	if err != nil {
		return err
	}

	d.onStop("instance", func(context.Context) error { d.member.Close(); return nil })

	return nil
}

// mayStandBeside refuses to run jobs beside another instance without the keys that they need.
func (d *Daemon) mayStandBeside() error {
	if err := d.store.Secrets().Problem(); err != nil {
		return err
	}

	if sshkey.RotationOf(d.store.View()).Phase.Running() {
		return inventory.Errorf(inventory.KindRefused,
			"another instance is rotating the ssh key, which is not on this host").
			Do("wait for the end of the rotation (clusterctl key status ssh), and copy the new key to this host")
	}

	return nil
}

// identifyManager identifies the manager. It tries again in the background while the
// store accepts no writes. Until then no host can be prepared; all else works.
func (d *Daemon) identifyManager(ctx context.Context) {
	err := d.gossip.Identify(ctx, d.store)
	if err == nil {
		return
	}

	d.opts.Logger.WithError(err).Warn("the identity of the manager cannot be read; no host can be prepared yet")

	d.background(ctx, "identity of the manager", func(ctx context.Context) {
		warn := func(error) {} // a request to prepare a host gets the reason

		err := state.RetryUnavailable(ctx, retryEvery, warn, func() error { return d.gossip.Identify(ctx, d.store) })

		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.opts.Logger.WithError(err).Error("the identity of the manager cannot be read; no host can be prepared")
		default:
			d.opts.Logger.Info("the manager has its identity: hosts can be prepared")
		}
	})
}

// listen binds the addresses of the API.
func (d *Daemon) listen() ([]net.Listener, error) {
	socket, err := server.ListenUnix(d.file.Socket)
	if err != nil {
		return nil, err
	}
	d.onStop("socket", func(context.Context) error { return ignoreClosed(socket.Close()) })

	listeners := []net.Listener{socket}

	if d.file.PlainHTTP != "" {
		port, err := server.ListenLoopback(d.file.PlainHTTP)
		if err != nil {
			return nil, err
		}
		d.onStop("port", func(context.Context) error { return ignoreClosed(port.Close()) })
		listeners = append(listeners, port)
	}

	// Behind the socket: a second daemon with this data directory has failed by now.
	if d.file.Listen != "" {
		if err := d.openCertificates(); err != nil {
			return nil, err
		}

		port, err := server.ListenTLS(d.file.Listen, d.certificates.ServerConfig())
		if err != nil {
			return nil, err
		}
		d.onStop("HTTPS", func(context.Context) error { return ignoreClosed(port.Close()) })
		listeners = append(listeners, port)
	}

	if d.file.Metrics != "" {
		port, err := server.ListenMetrics(d.file.Metrics)
		if err != nil {
			return nil, err
		}
		d.onStop("metrics", func(context.Context) error { return ignoreClosed(port.Close()) })
		listeners = append(listeners, port)
	}

	for _, l := range listeners {
		d.addrs = append(d.addrs, l.Addr())
	}

	return listeners, nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// wireUseCases makes the use cases and the server, and starts none of them.
func (d *Daemon) wireUseCases() {
	log := d.opts.Logger
	d.nodes = node.New(node.Options{
		State:    d.store,
		Store:    d.store,
		Prober:   func(caller string) node.Prober { return d.programs.Pinger.For(caller) },
		Settings: d.settings.Nodes,
		Yield: func(ctx context.Context, who string, nodes []string) error {
			return d.policies.Yield(ctx, who, nodes)
		},
		Leads:  d.member.Leads,
		Audit:  d.audit,
		Logger: log,
	})
	d.variables = variable.New(variable.Options{
		Store: d.store, Settings: d.settings.Variables, Audit: d.audit, Marked: d.secrets.Kick,
	})
	d.desired = desired.New(d.identity.ID, d.settings.Variables)
	executors, playbooks := d.newExecutors()
	d.engine = engine.New(engine.Options{
		State: d.store, Store: d.store, Metrics: d.metrics, Records: d.store, Executors: executors,
		Playbooks: playbooks, Settings: d.settings.Engine, Self: d.identity,
		Membership: d.member, Audit: d.audit, Logger: log,
	})

	d.rollouts = d.newRollouts()
	d.policies = d.newPolicies()

	d.tokens = access.NewTokens(d.store, d.audit, func() inventory.Groups { return d.settings.Current().Groups })

	d.clients = access.NewCertificates(d.store, d.audit, mtls.Issued(d.pkiDir()))
	d.tokens.WatchCertificates(d.clients)

	if d.issuer != nil {
		d.tokens.Trust(d.issuer)
	}

	d.metrics.MustRegister(metrics.Snapshot(d.snapshot))

	d.wireNotifier()

	api := server.New(server.Options{
		State:      d.store,
		Jobs:       d.engine,
		Plans:      d.engine,
		PlanReader: d.engine,
		Logs:       d.engine,
		Nodes:      d.nodes,
		Ping:       d.nodes,
		Variables:  d.variables,
		VarsPast:   d.variables,
		Explain:    explain.New(d.store, d.desired, d.explainSettings, d.policies),
		Desired:    d.desired,
		Settings:   settingsAPI{d.settings, d.reload, d.former},

		Automation: server.Automation{
			Policies: d.policies, Windows: d.newWindows(), Rollouts: d.rollouts, Repository: d.repository,
			Notifier: d.notifier,
		},
		Keys: server.Keys{HostKeys: d.nodes, GossipKey: d.gossipKey, SSHKey: d.sshKey, Secrets: d.secrets},
		Access: server.Access{
			PlainHTTPRole: access.Role(d.file.PlainRole), CertifiedCaller: mtls.Caller(d.clients),
			Certificates: d.clients, Tokens: d.tokens, Audit: d.audit, Trail: d.trail,
		},
		Telemetry: server.Telemetry{
			Health: d.health, Version: d.version, Metrics: d.metrics.Handler(), Registerer: d.metrics, Logger: log,
		},
	})

	d.mu.Lock()
	d.server = api
	d.mu.Unlock()

	// The overlay may have set the body limit before the server existed.
	d.apply(d.settings.Current())
}

// apply puts the parts of a configuration into force that no use case reads.
func (d *Daemon) apply(c setting.Config) {
	if level, err := logrus.ParseLevel(c.LogLevel); err == nil {
		d.opts.Logger.SetLevel(level)
	}

	if d.notifier != nil {
		d.notifier.SetTargets(c.Targets())
	}

	// The folder may have changed.
	d.programs.Note.Kick()

	// secret_vars may have changed.
	if d.secrets != nil {
		d.secrets.Kick()
	}

	if d.repository != nil {
		d.repository.Kick()
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	if d.server != nil {
		d.server.SetBodyLimit(c.MaxBody)
		d.server.SetCallerLimits(c.MaxRequests, c.MaxStreams)
	}
}

// serve serves the API on the listeners until Stop.
func (d *Daemon) serve(listeners []net.Listener) {
	stopped := make(chan struct{})

	go func() {
		defer close(stopped)

		if err := d.server.Serve(listeners...); err != nil {
			d.failed <- fmt.Errorf("the API: %w", err)
		}
	}()
	d.onStop("API", func(ctx context.Context) error {
		err := d.shutdownAPI(ctx)
		<-stopped
		return err
	})

	for _, l := range listeners {
		d.opts.Logger.WithField("addr", l.Addr()).Info("the API is served")
	}
}

// shutdownAPI waits for the open requests, unless the store is gone: requests
// that wait for it would wait in vain.
func (d *Daemon) shutdownAPI(ctx context.Context) error {
	grace := d.outageTimeout()
	if !d.store.View().Stale {
		grace += d.opts.StaleAfter
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	cancelIfStale := func() {
		if d.store.View().Stale {
			cancel()
		}
	}
	defer time.AfterFunc(grace, cancelIfStale).Stop()

	return d.server.Shutdown(ctx)
}

// checkRunner warns if no job can run. It does not block: the check takes as
// long as the rest of the start, and no part waits for it.
func (d *Daemon) checkRunner(ctx context.Context) {
	d.background(ctx, "check of ansible-playbook", func(ctx context.Context) {
		if err := d.programs.Check(ctx); err != nil && ctx.Err() == nil {
			d.opts.Logger.WithError(err).Warn("no job can run yet")
		}
	})
}

// measure lets the metrics have loops.
func (d *Daemon) measure(loops ...*control.Loop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loops = append(d.loops, loops...)
}

// run starts loops, which go on until Stop.
func (d *Daemon) run(ctx context.Context, loops ...*control.Loop) {
	d.measure(loops...)

	for _, l := range loops {
		l.Start(ctx)
		d.onStop(l.Name, func(context.Context) error { l.Stop(); return nil })
	}
}

// background runs a part of the daemon that ends with its context. Stop ends it,
// not ctx, and waits for it.
func (d *Daemon) background(ctx context.Context, name string, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})

	go func() {
		defer close(ended)
		run(ctx)
	}()
	d.onStop(name, func(context.Context) error { cancel(); <-ended; return nil })
}

// Addrs returns the addresses of the Unix socket, and then of plain HTTP, HTTPS and
// the metrics, as far as they are configured.
func (d *Daemon) Addrs() []net.Addr { return d.addrs }

// signalPrincipal is the principal of a reload by SIGHUP. The kernel does not
// record the sender of a signal.
const signalPrincipal = "signal:SIGHUP"

// Reload reads the configuration file again. It takes effect as a whole, or is
// refused with the reason and changes nothing.
func (d *Daemon) Reload() error {
	_, err := d.reload(context.Background(), access.Caller{Principal: signalPrincipal})
	return err
}

// reload returns the nodes of former, if the folder of playbooks has changed.
func (d *Daemon) reload(ctx context.Context, c access.Caller) (former []string, err error) {
	folder := d.settings.Current().Playbooks

	err = d.settings.Reload(ctx, c)
	if err != nil {
		d.opts.Logger.WithError(err).Error("the configuration was not reloaded; the old one stays in force")
		d.status("serving with the former configuration; the reload was refused: " + oneLine(err))
		return nil, err
	}

	// A file of the site that cannot be used shows in health.
	if d.certificates != nil {
		d.refresh.Await(ctx)
	}

	d.opts.Logger.Info("the configuration was reloaded")
	d.status(serving)

	if d.settings.Current().Playbooks == folder {
		return nil, nil
	}

	if former = d.former(ctx); len(former) > 0 {
		d.opts.Logger.Infof("still cleaned with the playbooks that configured them: %s", job.ShortList(former))
	}

	return former, nil
}

// formerTimeout bounds the copy of the folder of playbooks for former.
const formerTimeout = time.Minute

// former returns the nodes that other playbooks than the configured ones clean,
// because those configured them. It is called after a change that has taken effect, so
// a folder that cannot be read is logged only.
func (d *Daemon) former(ctx context.Context) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, formerTimeout)
	defer cancel()

	digest, err := d.programs.Pin(ctx)
	if err != nil {
		d.opts.Logger.WithError(err).Warn("the nodes with other playbooks than the configured ones are unknown")
		return nil
	}

	for _, n := range d.store.View().Nodes() {
		if n.CarriesOther(digest) {
			names = append(names, n.Name)
		}
	}

	slices.Sort(names)

	return names
}

// serving is the status of a daemon that serves its API.
const serving = "serving"

// status reports a status to the supervisor of the process.
func (d *Daemon) status(text string) {
	if d.opts.Status != nil {
		d.opts.Status(text)
	}
}

// Stop ends all parts in the reverse order of their start, within 30 seconds.
// Runners go on: the next daemon adopts them.
func (d *Daemon) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopBudget)
	defer cancel()

	var errs []error
	for _, step := range slices.Backward(d.teardown) {
		d.opts.Logger.WithField("part", step.name).Debug("stopping")

		// A step that ignores ctx must not keep the others from their turn.
		done := make(chan error, 1)
		go func() { done <- step.do(ctx) }()

		select {
		case err := <-done:
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", step.name, err))
			}
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("%s did not end in time", step.name))
		}
	}

	d.teardown = nil

	return errors.Join(errs...)
}

// Run starts the daemon, serves until ctx ends or a part fails for good, and
// stops it. The end of ctx during the start is no error. Each value on reload
// makes it read its configuration file again.
func (d *Daemon) Run(ctx context.Context, reload <-chan os.Signal) error {
	if err := d.Start(ctx); err != nil {
		return serf.StartError(ctx, err, d.opts.Logger)
	}

	if d.opts.Ready != nil {
		d.opts.Ready()
	}

	d.status(serving)

	for {
		select {
		case <-ctx.Done():
			d.opts.Logger.Info("stopping")
			return d.Stop(context.WithoutCancel(ctx))
		case err := <-d.failed:
			// A supervisor restarts the process, which is safer than half a daemon.
			return errors.Join(err, d.Stop(context.WithoutCancel(ctx)))
		case <-reload:
			_ = d.Reload() // it logs the result
		}
	}
}
