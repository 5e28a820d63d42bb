// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/window"
)

// Store keeps jobs, their logs and their inputs. Every method may block until
// its context ends, and all may be called at once. If the guard of a write
// fails, the write returns KindConflict and changes nothing. A write returns once the view
// shows it.
type Store interface {
	JobStore
	LogStore
	node.Putter
	// Inputs returns the inputs a job was accepted with, or KindNotFound.
	Inputs(ctx context.Context, id string) (job.Inputs, error)
}

// JobStore writes the records of jobs.
type JobStore interface {
	// Claim makes a Queued job Running and reserves its nodes, or does neither.
	Claim(ctx context.Context, c state.Claim) (job.Job, error)
	// Finish writes the nodes that a job releases, and then the end of the job.
	// It may be repeated after a partial failure.
	Finish(ctx context.Context, j job.Job, writes []state.NodeWrite) (job.Job, error)
}

// LogStore keeps the logs of jobs.
type LogStore interface {
	// AppendLog stores bytes of a log. offset must be the size of the log.
	AppendLog(ctx context.Context, id string, s job.Stream, offset int64, data []byte) error
	// ReadLog returns bytes from the offset on, up to the end of a stored chunk;
	// none at the end of the log.
	ReadLog(ctx context.Context, id string, s job.Stream, offset int64) ([]byte, error)
	// LogSize returns the size of a log in bytes.
	LogSize(ctx context.Context, id string, s job.Stream) (int64, error)
}

// Results keeps the results of mutations.
type Results interface {
	access.Results
	// DropResults removes the stored results of mutations that are older than
	// before, and the oldest of those over the limit.
	DropResults(ctx context.Context, before time.Time, limit int) error
}

// Playbooks keeps copies of the configured playbooks by content, for jobs that are bound to some.
type Playbooks interface {
	// Pin keeps a copy of the configured playbooks as they are now.
	Pin(ctx context.Context) (digest string, err error)
	// CommitOf returns the commit of the git repository that the playbooks with a digest
	// come from, or "" if they come from elsewhere. It does not block.
	CommitOf(digest string) string
	// Keep reports whether the copy with that digest is on this host. If it is not, it is made
	// again, if that is possible.
	Keep(ctx context.Context, digest string) (bool, error)
	// Changed returns the names of the files that differ between two copies, sorted. It is
	// KindNotFound if one is not on this host.
	Changed(ctx context.Context, then, now string) ([]string, error)
	// Prune removes the remains of runs, and copies, except those that keep
	// returns. It calls keep after it has listed them, so that a run started
	// meanwhile is not touched.
	Prune(ctx context.Context, keep func() (runs, digests []string)) error
}

// Settings is the part of the configuration that the engine depends on. It may
// change while the engine runs.
type Settings struct {
	step.Settings

	JobLimit   int           // jobs that run at a time
	Timeout    time.Duration // of a request that sets none
	Retention  job.Retention
	PlanFor    time.Duration // how long a plan can be applied
	PlanLimit  int           // plans at a time that can be applied
	Windows    window.Calendar
	EventLimit int64  // bytes of events kept of one job
	Own        string // name of the manager's own node; empty: it has none
	// Incomplete is the reason why these are not the settings that the operator
	// chose, or nil. Until then no job is accepted or begun, and none expires.
	Incomplete error
}

// Options are the dependencies of an Engine.
type Options struct {
	State     state.Reader
	Store     Store
	Results   Results
	Records   record.Store
	Executors step.Executors
	Playbooks Playbooks
	Settings  func() Settings
	Self      cluster.Identity // the instance the engine runs jobs for
	// Membership grants the authority to schedule the queue and to run jobs.
	// nil: cluster.Alone.
	Membership cluster.Membership
	Metrics    metrics.Registry
	Audit      access.Auditor
	// Troubles are those of the manager; nil: none are known.
	Troubles *state.Troubles
	Logger   logrus.FieldLogger
}

// Engine runs jobs. All methods may be called at once.
type Engine struct {
	state     state.Reader
	store     Store
	results   Results
	records   record.Store
	jobs      access.Once[job.Job]
	plans     access.Once[plan.Plan]
	executors step.Executors
	playbooks Playbooks
	settings  func() Settings
	self      cluster.Identity
	members   cluster.Membership
	audit     access.Auditor
	counts    counts
	log       logrus.FieldLogger

	jobBackoff   time.Duration // first delay before a failed job is continued
	writeBackoff time.Duration // first delay before a failed write is repeated

	// accepting serializes acceptance in the order of arrival. Numbers are
	// assigned one after another, so concurrent attempts would only conflict.
	accepting chan struct{}

	outages  state.Outages // of the store, for the deadlines of jobs
	troubles *state.Troubles

	mu         sync.Mutex
	running    map[string]time.Time // jobs with a goroutine here, and since when this instance owns them
	claiming   map[string]job.Turn  // decisions about queued jobs that are being carried out
	appended   chan struct{}        // closed when a log grows
	tasks      sync.WaitGroup
	stop       context.CancelFunc
	scheduling *control.Loop
	owning     *control.Loop
	retaining  *control.Loop
}

// New returns an engine that accepts jobs. Start makes it run them.
func New(o Options) *Engine {
	e := &Engine{
		state: o.State, store: o.Store, results: o.Results, records: o.Records,
		executors: o.Executors, playbooks: o.Playbooks,
		jobs:     access.Once[job.Job]{Kind: &job.Kind, Records: o.Records, Results: o.Results, State: o.State},
		plans:    access.Once[plan.Plan]{Kind: &plan.Kind, Records: o.Records, Results: o.Results, State: o.State},
		settings: o.Settings,
		self:     o.Self, members: o.Membership, audit: o.Audit, log: o.Logger, counts: newCounts(o.Metrics),
		troubles:   o.Troubles,
		jobBackoff: time.Second, writeBackoff: 100 * time.Millisecond,
		claiming: map[string]job.Turn{},
		running:  map[string]time.Time{}, appended: make(chan struct{}), accepting: make(chan struct{}, 1),
	}
	if e.members == nil {
		e.members = cluster.Alone{}
	}
	return e
}

// Start begins to run jobs: those that an earlier process left Running, and those that are
// assigned to this instance from then on. They run until Stop.
func (e *Engine) Start(ctx context.Context) {
	ctx, e.stop = context.WithCancel(context.WithoutCancel(ctx))
	e.scheduling, e.owning, e.retaining = e.schedule(ctx), e.own(ctx), e.retention()

	for _, l := range e.Loops() {
		l.Start(ctx)
	}
}

// Stop ends all work here and waits for it. Runners go on: the next process
// adopts them.
func (e *Engine) Stop() {
	if e.stop == nil {
		return
	}

	e.stop()

	for _, l := range e.Loops() {
		l.Stop()
	}

	e.tasks.Wait()
}

// Loops returns the loops of the engine, once it has started.
func (e *Engine) Loops() []*control.Loop {
	return []*control.Loop{e.owning, e.scheduling, e.retaining}
}

// Waits returns the jobs a Queued job waits for, and why. until is when its maintenance window
// opens, or the freeze ends, if it waits for that; zero: unknown.
func (e *Engine) Waits(v *state.View, j job.Job) (ids []string, reason string, until time.Time) {
	if j.Status != job.Queued {
		return nil, "", time.Time{}
	}

	settings, now := e.settings(), time.Now()
	t := job.TurnOf(v.Snapshot, settings.Groups, settings.JobLimit, j, settings.hold(v, now))

	// The window may be closed while something else holds the job.
	if verdict := settings.Windows.Judge(v, j, now); t.Reason == verdict.Reason {
		until = verdict.Until
	}

	return t.WaitsFor, t.Reason, until
}

// Inputs returns the inputs a job was accepted with, secrets hidden.
func (e *Engine) Inputs(ctx context.Context, id string) (job.Inputs, error) {
	in, err := e.store.Inputs(ctx, id)
	if err != nil {
		return job.Inputs{}, err
	}
	return e.hidden(in), nil
}

// hidden returns the inputs without their secrets. Inputs leave the engine for people:
// runs read them from the store.
func (e *Engine) hidden(in job.Inputs) job.Inputs {
	secrets := e.settings().Secrets
	in.Extra = secrets.HideVars(in.Extra)

	hidden := in.Vars
	in.Vars = nil

	if hidden != nil {
		in.Vars = hideAll(secrets, hidden)
	}

	in.CleanupVars = maps.Clone(in.CleanupVars)
	for group, vars := range in.CleanupVars {
		in.CleanupVars[group] = hideAll(secrets, vars)
	}

	return in
}

// decideItself carries out a decision of the manager and leaves its audit record, see access.Audited.
func (e *Engine) decideItself(ctx context.Context, r access.Record, carryOut func(context.Context) error) error {
	self := access.Caller{Principal: access.Manager}
	return access.Audited(ctx, e.audit, self, r, func(ctx context.Context, _ *access.Record) error {
		return carryOut(ctx)
	})
}

// retryConflict and retryUnavailable repeat writes, see package state.
func (e *Engine) retryConflict(ctx context.Context, decide func(*state.View) error) error {
	return state.RetryConflict(ctx, e.state, decide)
}

func (e *Engine) retryUnavailable(ctx context.Context, write func() error) error {
	warn := func(err error) { e.log.WithError(err).Warn("the store is unavailable; retrying") }
	return state.RetryUnavailable(ctx, e.writeBackoff, warn, write)
}
