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
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/access/oidc"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/boot"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/cluster/datadir"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/desired"
	"github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/enroll"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/gossip"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/management/image"
	"github.com/contiv/cluster/management/instance"
	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/pki"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/repository"
	"github.com/contiv/cluster/management/restore"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/scan"
	"github.com/contiv/cluster/management/secret/keyring"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/management/sshkey"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/playbook"
	"github.com/contiv/cluster/management/step/playbook/program"
	"github.com/contiv/cluster/management/step/power"
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
	// BootPorts are those of the boot service. For tests.
	BootPorts boot.Ports
	// Executors returns those of further kinds of step; it may be nil. For tests.
	Executors func(record.Store) step.Executors
	Version   api.Version
	Logger    *logrus.Logger
	// Ready is called when the daemon serves. It may be nil.
	Ready func()
	// Status receives a line about the condition of the daemon when that changes.
	// It may be nil.
	Status func(string)
}

// Daemon is one clusterm. New makes it; Start completes it.
type Daemon struct {
	opts   Options
	file   setting.File // as read at the start
	failed chan error   // failures that end the daemon
	parts  control.Parts

	host
	records
	keys
	callers
	useCases

	metrics metrics.Registry
	// troubles are those of this process, from its start.
	troubles state.Troubles

	mu     sync.Mutex // guards server, which a changed configuration may reach before it exists
	server *server.Server
}

// host is this host and its place among others.
type host struct {
	node     monitor.Identity // complete
	identity cluster.Identity // of the instance
	bound    []bound          // where the API listens
	gossip   *gossip.Gossip
	programs *program.Runner
}

// bound is an address at which the daemon listens.
type bound struct {
	scheme string // of the URLs of the API; empty: others
	addr   net.Addr
}

// records are what the store has, beside the use cases.
type records struct {
	etcd     *etcd.Opened
	store    *store.Store
	member   *store.Membership // of the instances that run jobs
	audit    access.Auditor
	trail    *audit.Trail
	settings *setting.Settings
}

// keys look after the keys of the manager.
type keys struct {
	secrets   *keyring.Keyring
	gossipKey *gossipkey.Keeper
	sshKey    *sshkey.Keeper
}

// callers decide who a caller is.
type callers struct {
	tokens       *access.Tokens
	clients      *access.Certificates // of clients
	issuer       *oidc.Verifier       // nil: no tokens of an issuer
	certificates *pki.Keeper          // nil: no HTTPS
	refresh      *control.Loop        // of the certificates
}

// useCases are what the API and the loops act through.
type useCases struct {
	nodes      *node.Nodes
	judge      *node.Judge
	imports    *enroll.Service
	scanner    *scan.Scanner
	instances  *instance.Service
	images     *image.Images
	boot       *boot.Service
	variables  *variable.Variables
	engine     *engine.Engine
	policies   *policy.Loop
	rollouts   *rollout.Loop
	notifier   *notify.Notifier
	desired    *desired.Source
	repository *repository.Keeper
	bmcs       *bmc.Pool
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
	d.parts.Logger = o.Logger
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
	d.gossip.Identify(ctx, d.store, func(later func(context.Context)) {
		d.parts.Go(ctx, "identity of the manager", later)
	})

	d.gossipKey = d.gossip.Keeper(gossipkey.Options{
		State: d.store, Records: d.store, Leads: d.member.Leads, Node: d.node.Name(), Settings: d.settings.GossipKey,
		Audit: d.audit, Logger: d.opts.Logger.WithField("part", "gossip key"),
	}, d.programs.NewProber())
	d.openSSHKey()
	d.trackRepository()
	d.wireUseCases()

	// Before the API: without the note of the playbooks, no node would be outdated at first.
	d.programs.Note.Begin(ctx, d.identity.ID, d.store)
	d.parts.OnStopOf(d.programs.Note.Name, d.programs.Note.Stop)

	// Before the API: its first answer carries the entity tag of this file.
	d.settings.Start(ctx, d.identity.ID)
	d.parts.OnStopOf("settings", d.settings.Stop)

	d.parts.OnStop("gossip", func(context.Context) error { return d.gossip.Close() })

	if err := d.gossip.Start(ctx, d.store.View(), d.nodes); err != nil {
		return err
	}

	d.parts.Measure(d.programs.Note.Loop, d.repository.Loop, d.policies.Loop, d.rollouts.Loop)
	d.parts.Run(ctx, d.gossipKey.Loop, d.sshKey.Loop, d.judge.Loop)

	// After the gossip: a step that waits for hosts needs current observations.
	d.engine.Start(ctx)
	d.parts.Measure(d.engine.Loops()...)
	d.parts.OnStopOf("jobs", d.engine.Stop)

	d.repository.Start(ctx)
	d.parts.OnStopOf("repository", d.repository.Stop)

	d.parts.Run(ctx, d.nodes.WatchMonitors(), d.nodes.WatchAlerts(), d.imports.Loop, d.scanner.Loop,
		d.instances.Loop, d.images.Loop, d.boot.Loop,
		power.Watch(power.WatchOptions{
			State:  d.store,
			Leads:  d.member.Leads,
			Asker:  d.bmcs,
			Record: power.RecordIn(d.store),
			Logger: d.opts.Logger,
		}))
	d.parts.Measure(d.boot.Serving)
	d.parts.Go(ctx, d.boot.Serving.Name, d.boot.Serve)
	d.parts.Run(ctx, d.notifier.Loops()...)
	d.parts.Go(ctx, "automation", restore.Automation{
		DataDir: d.file.DataDir, State: d.store, Records: d.store, Logger: d.opts.Logger, RetryEvery: retryEvery,
		Policies: d.policies, Rollouts: d.rollouts,
	}.Run)

	d.parts.Run(ctx, d.tokens.Loops()...)
	d.parts.Run(ctx, d.secrets.Loop)
	d.startUpkeep(ctx)
	d.serve(listeners)
	d.parts.Go(ctx, "check of ansible-playbook", d.programs.WarnUnable)
	d.parts.Go(ctx, "watch of the processor", d.troubles.Watch)

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
		Identity: d.identity, Addr: d.node.Addr, API: d.urls(),
		Version: d.opts.Version.Version, Schema: etcd.Schema, Started: time.Now().UTC(),
	}
	if d.certificates != nil {
		self.CA = d.certificates.Fingerprint()
	}

	d.member, err = d.store.Join(ctx, store.SessionOptions{
		Self: self,
		TTL:  cmp.Or(d.opts.InstanceTTL, store.SessionTTL),
		Log:  d.opts.Logger,
		Lost: func(err error) { d.failed <- err },

		Members: func() []string { return instance.IDs(d.store.View()) },
		// Another instance has keys that this one needs.
		Beside: func() error {
			v := d.store.View()
			return cmp.Or(instance.CheckMember(v, id), d.store.Secrets().Problem(), sshkey.CheckBeside(v))
		},
	})
	if err != nil {
		return err
	}

	d.parts.OnStopOf("instance", d.member.Close)

	return nil
}

// listen binds the addresses of the API.
func (d *Daemon) listen() (listeners []net.Listener, err error) {
	for _, at := range []struct {
		name, scheme, addr string
		listen             func(addr string) (net.Listener, error)
	}{
		{"socket", "unix", d.file.Socket, server.ListenUnix},
		{"port", "http", d.file.PlainHTTP, server.ListenLoopback},
		// Behind the socket: a second daemon with this data directory has failed by now.
		{"HTTPS", "https", d.file.Listen, d.listenTLS},
		{"metrics", "", d.file.Metrics, server.ListenMetrics},
	} {
		if at.addr == "" {
			continue
		}

		l, err := at.listen(at.addr)
		if err != nil {
			return nil, err
		}

		d.parts.OnStop(at.name, func(context.Context) error { return ignoreClosed(l.Close()) })

		listeners = append(listeners, l)
		d.bound = append(d.bound, bound{at.scheme, l.Addr()})
	}

	return listeners, nil
}

// urls returns the URLs of the API, that for other hosts last.
func (d *Daemon) urls() []string {
	var all []string

	for _, b := range d.bound {
		at, isTCP := b.addr.(*net.TCPAddr)
		switch {
		case b.scheme == "":
		case !isTCP:
			all = append(all, b.scheme+"://"+d.file.Socket)
		// The address of all of this host is none for others.
		case at.IP.IsUnspecified() && d.node.Addr != "":
			all = append(all, b.scheme+"://"+net.JoinHostPort(d.node.Addr, strconv.Itoa(at.Port)))
		default:
			all = append(all, b.scheme+"://"+at.String())
		}
	}

	return all
}

// listenTLS binds the address of HTTPS.
func (d *Daemon) listenTLS(addr string) (net.Listener, error) {
	if err := d.openCertificates(); err != nil {
		return nil, err
	}
	return server.ListenTLS(addr, d.certificates.ServerConfig())
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
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
	d.parts.OnStop("API", func(ctx context.Context) error {
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

// Addrs returns the addresses of the Unix socket, and then of plain HTTP, HTTPS and
// the metrics, as far as they are configured.
func (d *Daemon) Addrs() []net.Addr {
	all := make([]net.Addr, len(d.bound))
	for i, b := range d.bound {
		all[i] = b.addr
	}

	return all
}

// Reload reads the configuration file again. It takes effect as a whole, or is
// refused with the reason and changes nothing.
func (d *Daemon) Reload() error {
	// The kernel does not record the sender of a signal.
	_, err := d.settings.Reload(context.Background(), access.Caller{Principal: "signal:SIGHUP"})
	return err
}

// reloaded reports a reload of the configuration file.
func (d *Daemon) reloaded(ctx context.Context, refused error) {
	if refused != nil {
		d.opts.Logger.WithError(refused).Error("the configuration was not reloaded; the old one stays in force")
		d.status("serving with the former configuration; the reload was refused: " + line(refused.Error()))
		return
	}

	// A file of the site that cannot be used shows in health.
	if d.certificates != nil {
		d.refresh.Await(ctx)
	}

	d.opts.Logger.Info("the configuration was reloaded")
	d.status(serving)
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
	return d.parts.Stop(ctx)
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
