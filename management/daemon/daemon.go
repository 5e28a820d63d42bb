// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/engine"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/serf"
)

// stopBudget is how long a stop may take in all.
const stopBudget = 30 * time.Second

// observer is the name under which the gossip's word is kept with a node.
const observer = inventory.ObserverGossip

// Options are what a daemon is started with.
type Options struct {
	// ConfigPath is the configuration file. Where it is "" the file UsualPath
	// counts if it exists, else the defaults. Reload looks again.
	ConfigPath string
	UsualPath  string
	// Command is the argv of this binary: its subcommands runner and etcd are
	// the processes that the daemon starts.
	Command []string
	// InProcess runs the embedded etcd in this process, without fsync. For tests.
	InProcess bool
	// StaleAfter is how long the store may say nothing before reads are marked
	// stale; 0: that of management/etcd. For tests.
	StaleAfter time.Duration
	// Timing of the gossip; zero: that of a LAN. For tests.
	Timing  serf.Timing
	Version api.Version
	Logger  *logrus.Logger
	// Ready is called when the daemon serves. It may be nil.
	Ready func()
}

// Daemon is one clusterm.
type Daemon struct {
	opts  Options
	node  monitor.Identity // in force
	etcd  *etcd.Client
	store *store.Store

	session   *store.Session // by which this is the instance that runs the jobs
	nodes     *node.Nodes
	variables *variable.Variables
	engine    *engine.Engine
	audit     access.Auditor
	server    *server.Server
	source    gossiper     // nil: none
	agent     *serf.Agent  // the source where it is the agent inside
	remote    *serf.Remote // the source where it is an existing agent
	key       string       // of the gossip
	self      string       // the executable, for hosts being prepared
	book      *playbooks
	meters    *meters
	inside    *etcd.Server // nil: an existing etcd is used
	id        string       // of this instance
	addrs     []net.Addr

	mu       sync.Mutex
	file     Config          // as read from the file
	named    map[string]bool // the keys that the file names
	overlay  map[string]any  // the overlay that effective was made with
	current  Config          // in force
	refused  error           // why the overlay is not in force
	reread   chan struct{}   // holds one token where the store is to be told what the file says
	teardown []cleanup
	failed   chan error
}

// cleanup is one step of the teardown, by name.
type cleanup struct {
	name string
	do   func(context.Context) error
}

// Path is the configuration file as of now; "" the defaults.
func (o Options) Path() string {
	if o.ConfigPath == "" && o.UsualPath != "" {
		if _, err := os.Stat(o.UsualPath); err == nil {
			return o.UsualPath
		}
	}

	return o.ConfigPath
}

// New reads and checks the configuration. It touches nothing.
func New(o Options) (*Daemon, error) {
	file, named, err := LoadConfig(o.Path())
	if err != nil {
		return nil, err
	}

	o.StaleAfter = cmp.Or(o.StaleAfter, store.StaleAfter)
	d := &Daemon{
		opts:    o,
		file:    file,
		named:   named,
		current: file,
		failed:  make(chan error, 4),
		reread:  make(chan struct{}, 1),
	}
	d.setLevel(file)

	return d, nil
}

func (d *Daemon) onStop(name string, do func(context.Context) error) {
	d.teardown = append(d.teardown, cleanup{name, do})
}

// Start brings everything up, in an order in which each part finds what it
// needs, and returns when the API is served. After an error nothing is left.
func (d *Daemon) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			_ = d.Stop(context.WithoutCancel(ctx))
		}
	}()

	c, log := d.file, d.opts.Logger
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the data directory %s cannot be made: %w", c.DataDir, err).
			Do("run as root, or configure another data_dir")
	}

	if d.node, err = identify(c.Node, !c.Gossip.Off && c.Gossip.RPC == ""); err != nil {
		return err
	}

	if d.self, err = os.Executable(); err != nil {
		return err
	}

	// A taken address is found before anything else is started.
	listeners, err := d.listen(c)
	if err != nil {
		return err
	}

	if d.etcd, err = d.dial(ctx, c); err != nil {
		return err
	}

	d.onStop("connection to etcd", func(context.Context) error { return d.etcd.Close() })

	if d.store, err = store.Open(ctx, d.etcd, log, d.opts.StaleAfter); err != nil {
		return err
	}

	d.meters = newMeters(d.opts.Version)
	d.store.OnAsk(d.meters.asked)
	d.onStop("view", func(context.Context) error { d.store.Close(); return nil })

	if d.book, err = openPlaybooks(
		ctx,
		c.DataDir,
		slices.Concat(d.opts.Command, []string{"runner"}),
		d.effective,
		d.meters,
		log,
	); err != nil {
		return err
	}

	if err := d.enter(ctx, c); err != nil {
		return err
	}

	audit := auditLog{log}
	d.audit = audit
	d.nodes = node.New(node.Options{
		State: d.store, Store: d.store, Settings: d.nodeSettings, Audit: audit, Logger: log,
	})
	d.variables = variable.New(variable.Options{
		State: d.store, Store: d.store, Settings: d.variableSettings, Audit: audit,
	})
	d.engine = engine.New(engine.Options{
		State: d.store, Store: measuredStore{d.store, d.meters}, Runner: d.book, Playbooks: d.book,
		Settings: d.settings, Instance: d.node.Name(), Authority: d.session.Valid, Audit: audit, Logger: log,
	})
	d.noteFile(ctx)

	if err := d.gossip(ctx, c); err != nil {
		return err
	}

	d.meters.registry.MustRegister(metrics.Snapshot(d.snapshot))
	d.server = server.New(server.Options{
		State: d.store, Jobs: d.engine, Logs: d.engine, Nodes: d.nodes, Variables: d.variables,
		Explain: explain.New(d.store, d.explainSettings), Settings: d,
		Health: d.health, Version: d.version, Logger: log,
		Metrics: d.meters.handler(), Registerer: d.meters.registry,
	})
	d.server.SetBodyLimit(d.effective().MaxBody)
	d.engine.Start(ctx)
	d.onStop("jobs", func(context.Context) error { d.engine.Stop(); return nil })

	serving := make(chan struct{})
	go func() {
		defer close(serving)

		if err := d.server.Serve(listeners...); err != nil {
			d.failed <- fmt.Errorf("the API: %w", err)
		}
	}()
	d.onStop("API", func(ctx context.Context) error {
		// What waits for a store that is gone waits in vain.
		patience := d.knownGone()
		if !d.store.View().Stale {
			patience += d.opts.StaleAfter
		}

		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(patience, func() {
			if d.store.View().Stale {
				cancel()
			}
		}).Stop()
		err := d.server.Shutdown(ctx)
		<-serving

		return err
	})

	for _, l := range listeners {
		log.WithField("addr", l.Addr()).Info("the API is served")
	}

	// Nothing else waits for it: it takes as long as all that was done so far.
	checking, cancel := context.WithCancel(context.WithoutCancel(ctx))

	checked := make(chan struct{})
	go func() {
		defer close(checked)

		if err := d.book.Check(checking); err != nil && checking.Err() == nil {
			log.WithError(err).Warn("no job can run yet")
		}
	}()
	d.onStop("check of ansible-playbook", func(context.Context) error { cancel(); <-checked; return nil })

	return nil
}

// dial starts the embedded etcd and connects to it, or connects to an existing one.
func (d *Daemon) dial(ctx context.Context, c Config) (*etcd.Client, error) {
	dir, log := filepath.Join(c.DataDir, "etcd"), d.opts.Logger
	if c.Etcd.Used() {
		// The rest of the data directory is for one daemon as well.
		lock, err := etcd.LockDir(ctx, dir, log)
		if err != nil {
			return nil, err
		}

		d.onStop("data directory", func(context.Context) error { return lock.Close() })

		if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
			log.Warnf("%s has data of the embedded etcd; with etcd.endpoints it is not looked at", c.DataDir)
		}

		return etcd.DialExisting(ctx, c.Etcd, log)
	}

	so := etcd.ServerOptions{Dir: dir, NoSync: d.opts.InProcess, Log: log}
	if !d.opts.InProcess {
		so.Command = slices.Concat(d.opts.Command, []string{"etcd"})
	}

	var err error
	if d.inside, err = etcd.StartServer(ctx, so); err != nil {
		return nil, err
	}

	d.onStop("etcd", func(context.Context) error { return d.inside.Close() })

	client, err := etcd.Dial(ctx, etcd.Keys(etcd.DefaultPrefix), d.inside.Endpoint())
	if ended := d.inside.Ended(); err != nil && ended != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable,
			"the embedded etcd did not start, the last time because of: %w", ended).
			Do("free some space if the disk is full, end what else uses %s; restore it from a backup only where "+
				"etcd says that the data are damaged",
				c.DataDir)
	}

	return client, err
}

// enter makes this the instance that runs the jobs.
func (d *Daemon) enter(ctx context.Context, c Config) error {
	var err error
	if d.id, err = instanceID(c.DataDir); err != nil {
		return err
	}

	self := state.Instance{
		ID: d.id, Node: d.node.Name(), Addr: d.node.Addr, API: []string{"unix://" + c.Socket},
		Version: d.opts.Version.Version, Started: time.Now().UTC(),
	}
	for _, addr := range d.addrs {
		if addr.Network() == "tcp" {
			self.API = append(self.API, "http://"+addr.String())
		}
	}

	d.session, err = d.store.Enter(
		ctx,
		store.Entry{Self: self, TTL: store.SessionTTL, Log: d.opts.Logger, Lost: func(err error) {
			d.failed <- fmt.Errorf("the jobs are another instance's: %w", err)
		}},
	)
	if err != nil {
		return err
	}

	d.onStop("instance", func(context.Context) error { d.session.Close(); return nil })

	return nil
}

// alive is why no job is begun or continued now.
func (d *Daemon) alive() error {
	if d.session.Valid() {
		return nil
	}

	return inventory.Errorf(inventory.KindUnavailable,
		"the store may take this instance for dead, so it begins no job").
		Do("it goes on by itself when the store answers")
}

func (d *Daemon) listen(c Config) (listeners []net.Listener, err error) {
	l, err := server.ListenUnix(c.Socket)
	if err != nil {
		return nil, err
	}

	d.onStop("socket", func(context.Context) error { return ignoreClosed(l.Close()) })

	listeners = append(listeners, l)
	if c.PlainHTTP != "" {
		l, err := server.ListenLoopback(c.PlainHTTP)
		if err != nil {
			return nil, err
		}

		d.onStop("port", func(context.Context) error { return ignoreClosed(l.Close()) })
		listeners = append(listeners, l)
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

// Addrs are the addresses that the API is served at, the Unix socket first.
func (d *Daemon) Addrs() []net.Addr { return d.addrs }

// Engine returns the daemon's job engine, for tests.
func (d *Daemon) Engine() *engine.Engine { return d.engine }

// View returns the daemon's newest view, for tests.
func (d *Daemon) View() *state.View { return d.store.View() }

// Stop ends everything in reverse order of its start. Runners go on: the next
// daemon adopts them.
func (d *Daemon) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopBudget)
	defer cancel()

	var errs []error
	for _, step := range slices.Backward(d.teardown) {
		d.opts.Logger.WithField("part", step.name).Debug("stopping")

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
// stops it. That ctx ends during the start is no error. Every value on reload
// has it read its configuration file again.
func (d *Daemon) Run(ctx context.Context, reload <-chan os.Signal) error {
	if err := d.Start(ctx); err != nil {
		return serf.StartError(ctx, err, d.opts.Logger)
	}

	if d.opts.Ready != nil {
		d.opts.Ready()
	}

	for {
		select {
		case <-ctx.Done():
			d.opts.Logger.Info("stopping")
			return d.Stop(context.WithoutCancel(ctx))
		case err := <-d.failed:
			return errors.Join(err, d.Stop(context.WithoutCancel(ctx)))
		case <-reload:
			if err := d.Reload(); err != nil {
				d.opts.Logger.WithError(err).Error("the configuration was not reloaded; the old one stays in force")
			} else {
				d.opts.Logger.Info("the configuration was reloaded")
			}
		}
	}
}

// Reload reads the configuration file again. It takes effect whole, or is
// refused with the reason and changes nothing.
func (d *Daemon) Reload() error {
	file, named, err := LoadConfig(d.opts.Path())
	if err != nil {
		return err
	}

	d.mu.Lock()
	old := d.file
	d.mu.Unlock()
	var fixed []string

	before := keys(old)
	for _, k := range keys(file) {
		i := slices.IndexFunc(before, func(b keyed) bool { return b.key == k.key })
		if isFileKey(k.key) && (i < 0 || !reflect.DeepEqual(before[i].value, k.value)) {
			fixed = append(fixed, k.key)
		}
	}

	if len(fixed) > 0 {
		return inventory.Errorf(inventory.KindRefused, "%s cannot change while clusterm runs",
			strings.Join(fixed, ", ")).
			Do("restart it: systemctl restart clusterm")
	}

	overlay := d.store.View().Overlay

	merged, err := overlaid(file, overlay)
	if err != nil {
		return err
	}

	if err := d.usable(context.Background(), merged); err != nil {
		return err
	}

	d.mu.Lock()
	d.file, d.named = file, named
	d.overlay, d.current, d.refused = overlay, merged, nil // a newer overlay counts from the next look on (effective)
	d.mu.Unlock()
	d.apply(merged)

	select {
	case d.reread <- struct{}{}:
	default: // it will be told the newest anyway
	}

	return nil
}

// noteBackOff returns the delays before retrying a failed write of the file's digest.
func noteBackOff() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: time.Second, Multiplier: 2, MaxInterval: 10 * time.Second, RandomizationFactor: 0.5,
	}
}

// noteFile has the store know what the configuration file says, now and after
// every Reload, so that the configuration's tag and those who watch it know of
// a change. It is in force whether the store answers or not.
func (d *Daemon) noteFile(ctx context.Context) {
	if err := d.store.NoteFile(ctx, d.id, d.fileDigest()); err != nil {
		d.reread <- struct{}{}
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))

	ended := make(chan struct{})
	go func() {
		defer close(ended)

		for {
			select {
			case <-ctx.Done():
				return
			case <-d.reread:
			}

			// Retry without an end: only the note makes the reload a change of the
			// configuration, so its readers would miss it.
			_, _ = backoff.Retry(ctx, func() (struct{}, error) {
				return struct{}{}, d.store.NoteFile(ctx, d.id, d.fileDigest())
			}, backoff.WithBackOff(noteBackOff()), backoff.WithMaxElapsedTime(0))
		}
	}()
	d.onStop("file", func(context.Context) error { cancel(); <-ended; return nil })
}

// fileDigest tells what is shown of the file's configuration from what it was.
func (d *Daemon) fileDigest() string {
	d.mu.Lock()
	defer d.mu.Unlock()

	shown, err := json.Marshal(d.shown(d.file, nil))
	if err != nil {
		return err.Error()
	}

	return fmt.Sprintf("%x", sha256.Sum256(shown))
}

// usable refuses what only a look at this host, or at the nodes, can tell.
func (d *Daemon) usable(ctx context.Context, c Config) error {
	old := d.effective()
	if err := c.usable(ctx, old); err != nil {
		return err
	}

	var orphans []string
	for _, n := range d.store.View().Nodes {
		if _, err := c.Groups.Get(n.Group); n.Group != "" && err != nil {
			orphans = append(orphans, fmt.Sprintf("%s is in %s", n.Name, n.Group))
		}
	}

	if len(orphans) > 0 {
		return inventory.Errorf(inventory.KindRefused, "groups: nodes are in groups that would be gone: %s",
			strings.Join(orphans, ", ")).
			Do("decommission them, or keep the groups")
	}

	return nil
}

// apply has parts outside the use cases follow a changed configuration.
func (d *Daemon) apply(c Config) {
	d.setLevel(c)

	if d.server != nil {
		d.server.SetBodyLimit(c.MaxBody)
	}
}

func (d *Daemon) setLevel(c Config) {
	if level, err := logrus.ParseLevel(c.LogLevel); err == nil {
		d.opts.Logger.SetLevel(level)
	}
}

// effective is the configuration in force: the file's with the overlay over it.
func (d *Daemon) effective() Config {
	overlay := d.store.View().Overlay
	d.mu.Lock()
	if len(overlay) == 0 && len(d.overlay) == 0 || reflect.DeepEqual(overlay, d.overlay) {
		defer d.mu.Unlock()
		return d.current
	}

	merged, err := overlaid(d.file, overlay)

	d.overlay, d.refused = overlay, err
	if err != nil {
		// The file has changed so that the overlay no longer fits.
		merged = d.file
		d.opts.Logger.WithError(err).Error("the overlay of the configuration is not in force")
	}

	d.current = merged
	d.mu.Unlock()
	d.apply(merged)

	return merged
}

// settings are what the use cases need of the configuration in force.
func (d *Daemon) settings() engine.Settings {
	c := d.effective()
	s := engine.Settings{
		Settings: c.variableSettings(),
		JobLimit: c.Jobs.Limit, Timeout: time.Duration(c.Jobs.Timeout), Appear: time.Duration(c.Jobs.Appear),
		Lease:      time.Duration(c.Jobs.RunnerLease),
		Retention:  job.Retention{Count: c.Jobs.Keep, Age: time.Duration(c.Jobs.KeepFor), Bytes: c.Jobs.KeepBytes},
		EventLimit: c.Jobs.OutputLimit,
		Own:        d.own(),
	}
	s.AgentVars, s.NoAgents = d.agentVars(c.Gossip)

	return s
}

func (c Config) variableSettings() variable.Settings {
	return variable.Settings{
		Groups: c.Groups, Vars: c.Vars, Secrets: c.SecretVars, Connection: c.SSH, Connections: c.GroupSSH,
	}
}

func (d *Daemon) variableSettings() variable.Settings { return d.effective().variableSettings() }

func (d *Daemon) nodeSettings() node.Settings {
	return node.Settings{Groups: d.effective().Groups, Own: d.own()}
}

func (d *Daemon) explainSettings() explain.Settings {
	c := d.effective()
	return explain.Settings{Groups: c.Groups, JobLimit: c.Jobs.Limit}
}

// Groups returns the configured groups.
func (d *Daemon) Groups() inventory.Groups { return d.effective().Groups }

// Config shows the configuration in force with the origin of every key.
func (d *Daemon) Config() api.Config {
	c := d.effective()
	d.mu.Lock()
	defer d.mu.Unlock()

	overlay := d.overlay
	if d.refused != nil {
		overlay = nil
	}

	return d.shown(c, overlay)
}

// shown is a configuration as it is shown, with the overlay that is in it. The
// caller holds the lock.
func (d *Daemon) shown(c Config, overlay map[string]any) api.Config {
	out := api.Config{}

	found := map[string]string{"node.label": d.node.Label, "node.serial": d.node.Serial, "node.addr": d.node.Addr}
	for _, k := range keys(c) {
		origin := "default"
		if d.named[k.key] {
			origin = "file"
		}

		if _, ok := overlay[k.key]; ok {
			origin = "overlay"
		}

		if own, ok := found[k.key]; ok && k.value == "" {
			k.value, origin = own, "found"
		}

		if k.key == "vars" {
			k.value = c.SecretVars.HideVars(c.Vars)
		}

		out[k.key] = api.Setting{Value: k.value, Origin: origin, Settable: !isFileKey(k.key)}
	}

	return out
}

// Patch sets keys in the overlay; a null takes a key out of it. The
// outcome is in force when it returns, or refused as a whole.
func (d *Daemon) Patch(ctx context.Context, c access.Caller, patch map[string]any) (api.Config, error) {
	record := access.Record{Action: "settings.patch", Targets: slices.Sorted(maps.Keys(patch))}

	err := access.Audited(ctx, d.audit, c, record, func(*access.Record) error { return d.patch(ctx, c, patch) })
	if err != nil {
		return nil, err
	}

	return d.Config(), nil
}

func (d *Daemon) patch(ctx context.Context, caller access.Caller, patch map[string]any) error {
	if len(patch) == 0 {
		return inventory.Errorf(inventory.KindInvalid, "no key is named").Do("see clusterctl config get")
	}

	v, err := caller.Precondition.Check(ctx, d.store, d.store.View())
	if err != nil {
		return err
	}

	overlay := map[string]any{}
	maps.Copy(overlay, v.Overlay)

	if vars, ok := patch["vars"].(map[string]any); ok {
		c := d.effective()

		restored, err := c.SecretVars.Restore(vars, c.Vars)
		if err != nil {
			return err
		}

		patch = maps.Clone(patch)
		patch["vars"] = map[string]any(restored)
	}

	for key, value := range patch {
		if value == nil {
			if isFileKey(key) {
				return inventory.Errorf(inventory.KindRefused, "%s belongs to the configuration file", key).
					Do("change it there and restart clusterm")
			}

			// What an older version knew, and set, can still be taken back.
			if _, set := overlay[key]; !set &&
				!slices.ContainsFunc(keys(d.effective()), func(k keyed) bool { return k.key == key }) {
				return noKey(key)
			}

			delete(overlay, key)
			continue
		}

		overlay[key] = value
	}

	d.mu.Lock()
	file := d.file
	d.mu.Unlock()

	merged, err := overlaid(file, overlay)
	if err != nil {
		return err
	}

	if err := d.usable(ctx, merged); err != nil {
		return err
	}

	if _, err := d.store.PutOverlay(ctx, v.Revision, overlay); err != nil {
		return err
	}

	return nil
}

// knownGone is how long is waited for a store that has said nothing for long,
// in case it is just back.
func (d *Daemon) knownGone() time.Duration { return d.opts.StaleAfter / 3 }

// leastRoom is how much room the data directory needs, in bytes: that of the
// next segment of the etcd's log, which is taken in advance.
const leastRoom = 64 << 20

// roomIn is an error where the file system of the directory has less room.
func roomIn(dir string, least uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("the room in %s cannot be found out: %w", dir, err)
	}

	// What is kept for root is left out: it is not there for long.
	if left := fs.Bavail * uint64(fs.Frsize); left < least {
		return fmt.Errorf(
			"only %d bytes left on the file system of %s, and less than %d MiB is too little for jobs and records; "+
				"free some space",
			left,
			dir,
			least>>20,
		)
	}

	return nil
}

// health looks at every part.
func (d *Daemon) health(ctx context.Context) api.Health {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	v := d.store.View()

	asking, enough := ctx, context.CancelFunc(func() {})
	if v.Stale {
		asking, enough = context.WithTimeout(ctx, d.knownGone())
	}

	defer enough()
	h := api.Health{
		Status: api.HealthOK, Instance: d.engine.Instance(), Revision: v.Revision, Stale: v.Stale, Nodes: len(v.Nodes),
		Checks: map[string]string{}, Jobs: map[api.JobStatus]int{},
	}
	check := func(part string, err error) {
		h.Checks[part] = "ok"
		if err != nil {
			h.Checks[part], h.Status = err.Error(), api.HealthDegraded
		}
	}
	_, warning, problem := d.etcd.Server()
	check("store", errors.Join(d.store.Sync(asking), problem))
	check("instance", d.alive())

	if warning != "" {
		h.Warnings = append(h.Warnings, warning)
	}

	check("ansible", d.book.Check(ctx))

	if d.source == nil {
		h.Checks["gossip"] = "off"
	} else {
		check("gossip", d.source.Err())
	}

	current := d.effective()
	check("disk", roomIn(current.DataDir, leastRoom))
	d.mu.Lock()
	refused := d.refused
	d.mu.Unlock()

	if refused == nil {
		refused = current.present(Default())
	}

	check("configuration", refused)

	for _, j := range v.Jobs {
		if !j.Status.Ended() {
			h.Jobs[api.JobStatus(j.Status)]++
		}
	}

	return h
}

func (d *Daemon) version(ctx context.Context) api.Version {
	v := d.opts.Version
	v.Go = runtime.Version()
	v.Etcd, _, _ = d.etcd.Server()
	v.Ansible, _ = d.book.Version(ctx) // where it cannot be run, health says so

	return v
}
