// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/cluster"
	. "github.com/contiv/cluster/management/engine"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/secret"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/appear"
	"github.com/contiv/cluster/management/step/playbook"
	"github.com/contiv/cluster/management/step/probe"
	"github.com/contiv/cluster/management/variable"
)

// The programs of the executor of playbooks that the tests script.
type (
	RunSpec       = playbook.RunSpec
	RunExit       = playbook.RunExit
	Run           = playbook.Run
	NotBegunError = playbook.NotBegunError
)

var ErrNeverStarted = playbook.ErrNeverStarted

// scriptedPlaybooks runs nothing: what a playbook does is a function of the
// test. Its runs outlive a Service, as runners outlive a daemon.
type scriptedPlaybooks struct {
	mu      sync.Mutex
	scripts map[string]func(*scriptedRun) // by playbook
	runs    map[string]*scriptedRun
	specs   []RunSpec // in the order of their start
	pinned  string
	check, pin, parse,
	start error
	parsed []string
	held   func()      // called by Parse, without a lock
	kept   [2][]string // what the last Prune was told to keep
	pruned func()      // called by the next Prune
	lost   bool        // no tree is kept
	gone   []string    // trees that are not kept
	hosts  []string    // of the only play of every playbook
	asks   []string    // variables that the plays ask for
	// changed are the files that differ between any two trees.
	changed []string
	// dies reports whether the manager dies before it has started a run, and whether that leaves a
	// run that has not begun. nil: it does not.
	dies func() (dead, left bool)
	// outlines are those of playbooks that are not empty, by digest and file.
	outlines map[[2]string]configuration.Outline
	unhelped bool // no play acts on helpers
}

// scriptedRun is one run of a scripted playbook.
type scriptedRun struct {
	spec RunSpec

	mu        sync.Mutex
	text      map[job.Stream][]byte
	changed   chan struct{}
	ended     bool
	exit      RunExit
	results   map[string]job.HostResult
	keys      map[string][]string
	cancels   int
	cancelled chan struct{} // closed by the first Cancel
	leases    []time.Time
}

var errKilled = errors.New("the manager was killed")

// scriptedProber reaches every host but those with a result of their own.
type scriptedProber struct {
	mu      sync.Mutex
	results map[string]configuration.Reach // by name
	hold    chan struct{}                  // if set: a probe waits for it, or for the end of its context
}

func (p *scriptedProber) Probe(ctx context.Context, hosts []configuration.Host) []configuration.Reach {
	p.mu.Lock()
	hold, reached := p.hold, make([]configuration.Reach, len(hosts))

	for i, h := range hosts {
		reached[i] = p.results[h.Name]
	}

	p.mu.Unlock()

	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}

	return reached
}

// prefixes gives every test keys of its own, also when it is repeated.
var prefixes atomic.Int64

func newPlaybooks() *scriptedPlaybooks {
	return &scriptedPlaybooks{
		scripts: map[string]func(*scriptedRun){},
		runs:    map[string]*scriptedRun{},
		pinned:  "tree-1",

		outlines: map[[2]string]configuration.Outline{},
	}
}

// on sets what a playbook does from now on. Without a script it succeeds.
func (p *scriptedPlaybooks) on(playbook string, script func(*scriptedRun)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scripts[playbook] = script
}

func (p *scriptedPlaybooks) Check(context.Context) error { return p.check }

func (p *scriptedPlaybooks) Pin(context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pinned, p.pin
}

// CommitOf returns a commit for digests that begin with git.
func (p *scriptedPlaybooks) CommitOf(digest string) string {
	if commit, ok := strings.CutPrefix(digest, "git-"); ok {
		return commit
	}
	return ""
}

func (p *scriptedPlaybooks) Kept(_ context.Context, digest string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.lost && digest != "" && (!slices.Contains(p.gone, digest) || p.pinned == digest)
}

// Restore has the playbooks of today.
func (p *scriptedPlaybooks) Restore(ctx context.Context, digest string) (bool, error) {
	now, err := p.Pin(ctx)
	return err == nil && now == digest, err
}

func (p *scriptedPlaybooks) Changed(context.Context, string, string) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed, nil
}

func (p *scriptedPlaybooks) Plays(string, string) []configuration.Play {
	p.mu.Lock()
	defer p.mu.Unlock()

	plays := []configuration.Play{{Hosts: p.hosts, Asks: p.asks}}
	if !p.unhelped {
		plays = append(plays, configuration.Play{Hosts: []string{configuration.HelpersGroup}})
	}
	return plays
}

func (p *scriptedPlaybooks) Outline(digest, playbook string) configuration.Outline {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outlines[[2]string{digest, playbook}]
}

func (p *scriptedPlaybooks) Parse(_ context.Context, digest string, playbooks, groups, hosts []string) error {
	if p.held != nil {
		p.held()
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.parsed = append(p.parsed, strings.Join([]string{
		digest, strings.Join(playbooks, ","), strings.Join(groups, ","), strings.Join(hosts, ","),
	}, ":"))

	return p.parse
}

func (p *scriptedPlaybooks) Start(_ context.Context, spec RunSpec) (Run, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.start != nil {
		return nil, p.start
	}

	if p.runs[spec.ID] != nil {
		return nil, fmt.Errorf("run %s was started twice", spec.ID)
	}

	r := &scriptedRun{
		spec:      spec,
		text:      map[job.Stream][]byte{},
		changed:   make(chan struct{}),
		cancelled: make(chan struct{}),
	}

	if p.dies != nil {
		if dead, left := p.dies(); dead && left {
			r.ended, r.exit = true, RunExit{Cause: job.CauseInterrupted, Message: "it was given up", NotBegun: true}
			p.runs[spec.ID] = r
			return nil, errKilled
		} else if dead {
			return nil, errKilled
		}
	}

	p.runs[spec.ID] = r
	p.specs = append(p.specs, spec)

	script := p.scripts[spec.Playbook]

	if script == nil {
		script = succeeds
	}

	go script(r)

	return r, nil
}

func (p *scriptedPlaybooks) Attach(id string) (Run, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if r := p.runs[id]; r != nil {
		return r, nil
	}
	return nil, ErrNeverStarted
}

func (p *scriptedPlaybooks) Prune(_ context.Context, keep func() (runs, trees []string)) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.kept[0], p.kept[1] = keep()
	if p.pruned != nil {
		p.pruned()
		p.pruned = nil
	}

	return nil
}

// run returns a run that was started.
func (p *scriptedPlaybooks) run(id string) *scriptedRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[id]
}

func (p *scriptedPlaybooks) started() []RunSpec {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.specs)
}

func (r *scriptedRun) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// says adds output.
func (r *scriptedRun) says(s job.Stream, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text[s] = append(r.text[s], fmt.Sprintf(format, args...)...)
	r.wake()
}

// ends is the end of the run.
func (r *scriptedRun) ends(exit RunExit, results map[string]job.HostResult) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if !r.ended {
		r.ended, r.exit, r.results = true, exit, results
		r.wake()
	}
}

// acted are the hosts that the run acts on.
func (r *scriptedRun) acted() []string {
	var names []string
	for _, h := range r.spec.Hosts {
		if h.Role != "peer" {
			names = append(names, h.Name)
		}
	}

	return names
}

func (r *scriptedRun) Wait(ctx context.Context) (RunExit, error) {
	for {
		r.mu.Lock()
		ended, exit, changed := r.ended, r.exit, r.changed
		r.mu.Unlock()

		if ended {
			return exit, nil
		}

		select {
		case <-ctx.Done():
			return RunExit{}, ctx.Err()
		case <-changed:
		}
	}
}

func (r *scriptedRun) Cancel(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.cancels++; r.cancels == 1 {
		close(r.cancelled)
	}
	return nil
}

func (r *scriptedRun) Renew(until time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases = append(r.leases, until)
	return nil
}

func (r *scriptedRun) Tail(ctx context.Context, s job.Stream, offset int64, emit func([]byte) error) error {
	for {
		r.mu.Lock()
		data, ended, changed := r.text[s], r.ended, r.changed
		r.mu.Unlock()

		if offset < int64(len(data)) {
			chunk := data[offset:]
			if err := emit(chunk); err != nil {
				return err
			}
			offset += int64(len(chunk))
			continue
		}

		if ended {
			return nil
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (r *scriptedRun) Results() (map[string]job.HostResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results, nil
}

func (r *scriptedRun) HostKeys() (map[string][]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys, nil
}

// What a scripted playbook may do.

func succeeds(r *scriptedRun) {
	results := map[string]job.HostResult{}
	for _, h := range r.acted() {
		results[h] = job.HostResult{Begun: true, Done: true, OK: 2, Changed: 1, Judged: 2}
	}

	r.says(job.StreamText, "%s ran on %s\n", r.spec.Playbook, strings.Join(r.acted(), ", "))
	r.says(job.StreamEvents, "{\"event\":\"stats\"}\n")
	r.ends(RunExit{}, results)
}

// failsOn fails on some hosts and succeeds on the others.
func failsOn(hosts ...string) func(*scriptedRun) {
	return func(r *scriptedRun) {
		results := map[string]job.HostResult{}
		for _, h := range r.acted() {
			results[h] = job.HostResult{Begun: true, Done: true, OK: 2}
			if slices.Contains(hosts, h) {
				results[h] = job.HostResult{Begun: true, Failed: 1, Task: "Install", Message: "no space left"}
			}
		}

		r.ends(RunExit{Code: 2}, results)
	}
}

// endsBy ends with a cause, every host begun.
func endsBy(cause job.Cause) func(*scriptedRun) {
	return func(r *scriptedRun) {
		results := map[string]job.HostResult{}
		for _, h := range r.acted() {
			results[h] = job.HostResult{Begun: true}
		}

		r.ends(RunExit{Code: -1, Cause: cause}, results)
	}
}

// gate is a playbook that goes on until the test says how it ends, or it is cancelled.
type gate struct {
	begun chan *scriptedRun
	open  chan func(*scriptedRun)
}

func newGate() gate { return gate{make(chan *scriptedRun, 10), make(chan func(*scriptedRun), 10)} }

func (g gate) script(r *scriptedRun) {
	r.says(job.StreamText, "%s begins\n", r.spec.Playbook)
	g.begun <- r

	select {
	case then := <-g.open:
		then(r)
	case <-r.cancelled:
		endsBy(job.CauseCancelled)(r)
	}
}

// bench is a Service on a store that is real, with playbooks that are not.
type bench struct {
	prober  scriptedProber
	sources playbook.Sources
	t       *testing.T
	server  *etcd.Server
	prefix  string
	client  *etcd.Client
	secrets *store.Secrets
	store   *store.Store
	books   *scriptedPlaybooks
	wrap    func(keeper) keeper
	before  func(tx *record.Tx) // each commit of records; nil: nothing
	power   step.Executor

	*Engine
	nodes     *node.Nodes
	variables *variable.Variables
	explainer *explain.Explainer
	audit     auditTrail
	instance  string
	members   cluster.Membership
	mu        sync.Mutex
	settings  Settings
}

// shared is the etcd of all tests that leave it alone; each has a prefix of its own.
var shared *etcd.Server

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "etcd" { // a server that can be taken away
		os.Exit(etcd.Main(os.Args[2]))
	}

	debug.SetGCPercent(400) // the tests end before much has to be collected
	waitTogether()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "cm")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)

		if shared, err = etcd.StartServer(
			context.Background(),
			etcd.ServerOptions{Dir: dir, NoSync: true, Log: silent()},
		); err != nil {
			panic(err)
		}

		defer shared.Close()

		return m.Run()
	}())
}

// waitTogether has more tests wait at a time than there are processors, unless
// the command line says otherwise.
func waitTogether() {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
}

func silent() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// patience bounds every wait; one that is fulfilled ends at once.
const patience = time.Minute

func newBench(t *testing.T, change ...func(*bench)) *bench {
	t.Helper()

	b := &bench{
		t:        t,
		secrets:  store.NewSecrets(secret.NewRing(secret.NewKey()), nil),
		server:   shared,
		prefix:   fmt.Sprintf("/%d", prefixes.Add(1)),
		books:    newPlaybooks(),
		instance: "bench-1",
		power:    switched{},
		audit:    auditTrail{written: make(chan struct{}, 1)},
		settings: Settings{
			JobLimit: 4, Timeout: time.Hour,
			Settings: step.Settings{
				Settings: merge.Settings{Groups: inventory.DefaultGroups()}, Appear: time.Minute, Lease: time.Minute,
				AgentVars: map[string]any{"clusterm_gossip_port": "7946"}, Manager: "manager-1",
			},
		},
	}
	for _, c := range change {
		c(b)
	}

	b.up()
	t.Cleanup(b.down)

	return b
}

// current returns the settings as they are now.
func (b *bench) current() Settings {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.settings
}

// kinds are the kinds of record in the store of a bench.
var kinds = append([]record.Any{&job.Kind, &plan.Kind}, state.Kinds...)

// keeper is all that an engine uses of its store.
type keeper interface {
	Store
	record.Store
}

// runningIn returns the Running job that a transaction writes, or nil.
func runningIn(tx *record.Tx) *job.Job {
	writes, err := tx.Writes(nil)
	if err != nil {
		return nil
	}

	for _, w := range writes {
		id, isJob := strings.CutPrefix(w.Path, job.Kind.Path(""))
		if !isJob {
			continue
		}

		if j, err := job.Kind.Decode(id, w.Value, 0); err == nil && j.Status == job.Running {
			return j
		}
	}

	return nil
}

// dropJob removes a job, as the retention does.
func (b *bench) dropJob(id string) {
	b.t.Helper()

	_, _, err := record.Decide(b.within(patience), b.store, func(tx *record.Tx) (any, error) {
		state.DropJob(tx, id)
		return nil, nil
	})
	b.must(err)
}

// between calls a function between each decision and its commit.
type between struct {
	record.Store

	before func(*record.Tx)
}

func (s between) Commit(ctx context.Context, tx *record.Tx) (int64, error) {
	if s.before != nil {
		s.before(tx)
	}
	return s.Store.Commit(ctx, tx)
}

// switched is an executor of one step on every host, which succeeds.
type switched struct {
	step.Plain

	limit int // of nodes at a time; 0: 1
}

func (x switched) Run(ctx context.Context, s step.Step, out step.Events) (step.Result, error) {
	return step.Each(ctx, s, out, max(x.limit, 1), "power", func(context.Context, string) error { return nil })
}

// options returns those of an engine of the bench with the store.
func (b *bench) options(s keeper) Options {
	settings := func() step.Settings { return b.current().Settings }
	playbooks := playbook.New(playbook.Options{
		State: b.store, Inputs: s, Runner: b.books, Playbooks: b.books, Content: b.books, Sources: b.sources,
		Settings: settings, Logger: silent(),
	})

	return Options{
		State:   b.store,
		Store:   s,
		Results: b.store,
		Records: between{s, b.before},
		Executors: step.Executors{
			job.StepPlaybook: playbooks,
			job.StepProbe:    probe.New(probe.Options{State: b.store, Prober: &b.prober, Settings: settings}),
			job.StepAppear: appear.New(appear.Options{
				State: b.store, Store: s, Settings: settings, Keys: playbooks.HostKeys,
			}),
			job.StepPower:       b.power,
			job.StepCredentials: switched{limit: 50},
			job.StepInspect:     switched{},
			job.StepInstall:     switched{},
		},
		Playbooks:  playbooks,
		Settings:   b.current,
		Self:       cluster.Identity{ID: "id-" + b.instance, Node: b.instance},
		Membership: b.members,
		Audit:      &b.audit,
		Logger:     silent(),
	}
}

func (b *bench) up() {
	b.t.Helper()
	ctx := b.within(patience)

	var err error
	if b.client, err = etcd.Dial(ctx, b.prefix, b.server.Endpoint()); err != nil {
		b.t.Fatal(err)
	}

	if b.store, err = store.Open(ctx, b.client, kinds, b.secrets, silent(), 10*store.StaleAfter); err != nil {
		b.t.Fatal(err)
	}

	var s keeper = b.store
	if b.wrap != nil {
		s = b.wrap(s)
	}

	b.Engine = New(b.options(s))
	b.nodes = node.New(node.Options{
		State: b.store, Store: b.store, Audit: &b.audit, Logger: silent(),
		Settings: func() node.Settings {
			now := b.current()
			return node.Settings{Groups: now.Groups, Own: now.Own}
		},
	})
	b.variables = variable.New(variable.Options{
		Store: b.store, Audit: &b.audit,
		Settings: func() merge.Settings { return b.current().Settings.Settings },
	})
	b.explainer = explain.New(b.store, nil, func() explain.Settings {
		return explain.Settings{Groups: b.current().Groups, JobLimit: b.current().JobLimit}
	}, nil)
	b.Hasten()
	b.Start(b.t.Context())
}

// down stops the Service; runs go on.
func (b *bench) down() {
	b.Stop()
	b.store.Close()
	b.client.Close()
}

func (b *bench) restart() {
	b.t.Helper()
	b.down()
	b.up()
}

func (b *bench) set(change func(*Settings)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.settings)
}

func (b *bench) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), d)
	b.t.Cleanup(cancel)
	return ctx
}

func word(label string, alive bool) inventory.Observation {
	addr := "10.0.0." + fmt.Sprint(label[0]-'a'+1)
	if n, err := strconv.Atoi(label[1:]); err == nil {
		addr = fmt.Sprintf("10.0.%d.%d", n+1, label[0]-'a'+1)
	}
	return inventory.Observation{Label: label, Serial: "1", Addr: addr, Alive: alive}
}

// see reports nodes a-1, b-1, … as alive.
func (b *bench) see(labels string) {
	b.t.Helper()

	var words []inventory.Observation
	for _, l := range strings.Fields(labels) {
		words = append(words, word(l, true))
	}

	b.must(b.Observe(b.within(patience), "gossip", words))
}

func (b *bench) lose(labels string) {
	b.t.Helper()

	var words []inventory.Observation
	for _, l := range strings.Fields(labels) {
		words = append(words, word(l, false))
	}

	b.must(b.Observe(b.within(patience), "gossip", words))
}

func (b *bench) must(err error) {
	b.t.Helper()

	if err != nil {
		b.t.Fatal(err)
	}
}

func names(labels string) []string {
	out := strings.Fields(labels)
	for i := range out {
		out[i] += "-1"
	}

	return out
}

// ask submits a request on nodes.
func (b *bench) ask(verb inventory.Verb, labels, group string) job.Job {
	b.t.Helper()
	j, err := b.Submit(b.within(patience), job.Request{Verb: verb, Nodes: names(labels), Group: group})
	b.must(err)
	return j
}

// until waits for something to be true of the view.
func (b *bench) until(what string, is func(*state.View) bool) {
	b.t.Helper()

	ctx := b.within(patience)
	for {
		changed := b.store.Changed()

		v := b.View()
		if is(v) {
			return
		}

		select {
		case <-changed:
		case <-ctx.Done():
			b.t.Fatalf("%s: not so after %s\njobs %+v\nnodes %+v", what, patience, v.Jobs(), records(v))
		}
	}
}

func (b *bench) job(id string) job.Job {
	b.t.Helper()
	j, err := b.View().Job(id)
	b.must(err)
	return j
}

// end waits for the end of a job and checks its status and cause, such as "Complete" or
// "Errored failed".
func (b *bench) end(id, how string) job.Job {
	b.t.Helper()
	b.until("job "+id+" has ended", func(v *state.View) bool {
		j, err := v.Job(id)
		return err == nil && j.Status.Ended()
	})

	j := b.job(id)
	if got := strings.TrimSpace(string(j.Status) + " " + string(j.Cause)); got != how {
		b.t.Fatalf("job %s ended %s, want %s: %s", id, got, how, j.Message)
	}
	return j
}

// do submits a request and waits for its end.
func (b *bench) do(verb inventory.Verb, labels, group, how string) job.Job {
	b.t.Helper()
	return b.end(b.ask(verb, labels, group).ID, how)
}

// held submits a request on nodes, and returns when its run of the playbook has begun. The gate
// holds that, and all later runs of it.
func (b *bench) held(playbook string, verb inventory.Verb, labels, group string) (job.Job, gate) {
	b.t.Helper()

	g := newGate()
	b.books.on(playbook, g.script)
	j := b.ask(verb, labels, group)
	b.begun(g)

	return j, g
}

func (b *bench) begun(g gate) *scriptedRun {
	b.t.Helper()

	select {
	case r := <-g.begun:
		return r
	case <-b.within(patience).Done():
		b.t.Fatal("the run does not begin")
		return nil
	}
}

// are checks nodes: "a Allocated service-master, b Unallocated".
func (b *bench) are(want string) {
	b.t.Helper()

	for _, line := range strings.Split(want, ",") {
		f := strings.Fields(line)
		n, err := b.View().Node(f[0] + "-1")
		b.must(err)

		got := strings.TrimSpace(string(n.Status) + " " + n.Group)
		if got != strings.Join(f[1:], " ") {
			b.t.Errorf("%s is %s, want %s (%s)", n.Name, got, strings.Join(f[1:], " "), n.LastError)
		}

		if !n.Status.InProgress() && (n.Job != "" || n.Verb != "" || n.Before != nil) {
			b.t.Errorf("%s is still held: %+v", n.Name, n)
		}
	}
}

// phases are the runs of a job, with how they ended.
func phases(j job.Job) string {
	var out []string
	for _, r := range j.Runs {
		out = append(out, string(r.Phase)+":"+r.Exit)
	}

	return strings.Join(out, " ")
}

func (b *bench) log(id string, stream job.Stream) string {
	b.t.Helper()
	var out []byte
	b.must(b.Log(b.within(patience), id, stream, 0, true, func(offset int64, data []byte) error {
		if offset != int64(len(out)) {
			b.t.Errorf("a gap at %d", offset)
		}

		out = append(out, data...)
		return nil
	}))

	return string(out)
}

// refused checks that an error is a refusal of that kind with those words.
func (b *bench) refused(err error, kind inventory.Kind, words ...string) {
	b.t.Helper()

	if inventory.KindOf(err) != kind {
		b.t.Errorf("%v is %q, want %q", err, inventory.KindOf(err), kind)
		return
	}

	text := err.Error()
	if e, ok := errors.AsType[*inventory.Error](err); ok {
		text += fmt.Sprint(e.Actions)
	}

	for _, w := range words {
		if !strings.Contains(text, w) {
			b.t.Errorf("%q is not in: %s", w, text)
		}
	}
}

// records are the view's nodes by value, for comparing and for printing.
func records(v *state.View) []inventory.Node {
	out := make([]inventory.Node, len(v.Nodes()))
	for i, n := range v.Nodes() {
		out[i] = *n
	}

	return out
}

// The use cases as anna carries them out, unless a test names somebody else.

func anna() access.Caller { return access.Caller{Principal: "anna"} }

func (b *bench) View() *state.View { return b.store.View() }

func (b *bench) Submit(ctx context.Context, r job.Request) (job.Job, error) {
	return b.Engine.Submit(ctx, anna(), r)
}

func (b *bench) submitWith(ctx context.Context, r job.Request, key *access.Key) (job.Job, error) {
	return b.Engine.Submit(ctx, access.Caller{Principal: "anna", Key: key}, r)
}

func (b *bench) Cancel(
	ctx context.Context, id, actor string, only access.Precondition, key *access.Key,
) (job.Job, error) {
	return b.Engine.Cancel(ctx, access.Caller{Principal: actor, Precondition: only, Key: key}, id)
}

func (b *bench) Retry(ctx context.Context, id string, failed bool, actor string, key *access.Key) (job.Job, error) {
	r := job.RetryRequest{Failed: failed}
	return b.Engine.Retry(ctx, access.Caller{Principal: actor, Key: key}, id, r)
}

func (b *bench) Forget(
	ctx context.Context, nodes []string, force bool, reason, actor string, key *access.Key,
) (int64, error) {
	r := node.ForgetRequest{Nodes: nodes, Force: force, Reason: reason}
	return b.nodes.Forget(ctx, access.Caller{Principal: actor, Key: key}, r)
}

func (b *bench) PatchNode(
	ctx context.Context, name string, p node.Patch, actor string, only access.Precondition,
) (inventory.Node, error) {
	return b.nodes.Patch(ctx, access.Caller{Principal: actor, Precondition: only}, name, p)
}

func (b *bench) SetVars(
	ctx context.Context, s state.Scope, v configuration.Vars, actor string, only access.Precondition,
) (int64, []string, error) {
	c, err := b.variables.Set(ctx, access.Caller{Principal: actor, Precondition: only}, s, v)
	return c.Revision, c.Warnings, err
}

func (b *bench) PatchVars(
	ctx context.Context, s state.Scope, v configuration.Vars, actor string, only access.Precondition,
) (int64, []string, error) {
	c, err := b.variables.Patch(ctx, access.Caller{Principal: actor, Precondition: only}, s, v)
	return c.Revision, c.Warnings, err
}

func (b *bench) Vars(s state.Scope) (configuration.Vars, error) { return b.variables.Get(s) }

func (b *bench) MergedVars(name string) (map[string]configuration.Var, error) {
	return b.variables.Merged(name)
}

func (b *bench) Observe(ctx context.Context, observer string, o []inventory.Observation) error {
	return b.nodes.Observe(ctx, observer, o)
}

func (b *bench) History(ctx context.Context, name string, limit int) ([]inventory.HistoryEntry, error) {
	return b.nodes.History(ctx, name, limit)
}

func (b *bench) Explain(ctx context.Context, v *state.View, name string) (explain.NodeExplanation, error) {
	return b.explainer.Node(ctx, v, name, explain.Reader{})
}

// auditTrail keeps audit records.
type auditTrail struct {
	mu      sync.Mutex
	records []access.Record
	written chan struct{} // holds a token after a record
}

func (a *auditTrail) Record(_ context.Context, r access.Record) {
	a.mu.Lock()
	a.records = append(a.records, r)
	a.mu.Unlock()

	select {
	case a.written <- struct{}{}:
	default: // the reader has not taken the last token yet
	}
}

// wait blocks until there are count records, and takes them.
func (a *auditTrail) wait(ctx context.Context, count int) []string {
	var lines []string
	for {
		lines = append(lines, a.take()...)
		if len(lines) >= count {
			return lines
		}

		select {
		case <-ctx.Done():
			return lines
		case <-a.written:
		}
	}
}

// take returns the records since the last call: "principal action targets [kind]".
func (a *auditTrail) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()

	var lines []string
	for _, r := range a.records {
		line := r.Principal + " " + r.Action + " " + strings.Join(r.Targets, ",")
		if r.Err != nil {
			line += " " + string(inventory.KindOf(r.Err))
		}
		lines = append(lines, line)
	}

	a.records = nil

	return lines
}

func (b *bench) Report(
	ctx context.Context, observer string, full bool, o []inventory.Observation,
) (map[int]error, int64, error) {
	if !full {
		return b.nodes.Report(ctx, observer, nil, o)
	}
	return b.nodes.Report(ctx, observer, &inventory.NameRange{}, o)
}
