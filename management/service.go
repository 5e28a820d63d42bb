// SPDX-License-Identifier: Apache-2.0

package management

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// RunSpec is one run of a playbook.
type RunSpec struct {
	ID             string // JOB-N, unique for ever
	PlaybookDigest string // digest of the pinned folder
	Playbook       string
	Hosts          []configuration.Host
	Extra          configuration.Vars
	Deadline       time.Time
	Lease          time.Time // the runner ends its tree when this has passed and was not renewed
}

// RunExit is how a run of ansible-playbook ended.
type RunExit struct {
	Code    int
	Cause   Cause  // empty: the playbook ended by itself; else cancelled, deadline, interrupted or internal
	Message string // in words, where Cause is set
	// NotBegun: ansible-playbook was never started.
	NotBegun bool
}

// ActiveRun is a run that was started, perhaps by an earlier process.
type ActiveRun interface {
	// Wait blocks until the run has ended and nothing of it is left.
	Wait(ctx context.Context) (RunExit, error)
	// Cancel asks the runner to end its whole tree; it waits only for one that is just being started.
	Cancel(ctx context.Context) error
	// Renew lets the runner go on until the given time.
	Renew(until time.Time) error
	// Tail emits the stream from the offset on, until the run has ended and all is emitted.
	Tail(ctx context.Context, s Stream, offset int64, emit func([]byte) error) error
	// Results sums up, after the end, how each host fared.
	Results() (map[string]HostResult, error)
	// HostKeys are the ssh host keys that were recorded at a first contact.
	HostKeys() (map[string][]string, error)
}

// ErrNeverStarted is what Attach returns for a run whose runner never began.
var ErrNeverStarted = errors.New("the run was never started")

// Playbooks runs playbooks.
type Playbooks interface {
	// Check refuses where ansible-playbook is missing or too old.
	Check(ctx context.Context) error
	// Pin keeps a copy of the configured folder as it is now.
	Pin(ctx context.Context) (digest string, err error)
	// Parse refuses playbooks that are missing from the tree or do not parse.
	Parse(ctx context.Context, digest string, playbooks []string, groups []string) error
	// Start starts a run; it goes on when this process ends. It returns soon,
	// whatever becomes of ctx.
	Start(ctx context.Context, spec RunSpec) (ActiveRun, error)
	// Attach finds a run that was started before.
	Attach(id string) (ActiveRun, error)
	// Kept tells whether the copy of that digest is still here.
	Kept(digest string) bool
	// Prune removes what is left of runs and of trees, except what keep names.
	// It calls keep after it has looked at what is there: a run that is started
	// meanwhile is not touched.
	Prune(ctx context.Context, keep func() (runs, trees []string)) error
}

// Settings are what of the configuration the use cases need. They may change
// while the service runs.
type Settings struct {
	Groups      inventory.Groups
	Vars        configuration.Vars // the lowest layer; may hold templates
	Secrets     configuration.Secrets
	Connection  configuration.Connection
	Connections map[string]configuration.Connection // by group
	JobLimit    int                                 // jobs at a time
	Timeout     time.Duration                       // of a verb that names none
	Appear      time.Duration                       // discover: how long hosts may take to be seen
	Lease       time.Duration                       // how long a runner goes on without the daemon
	KeepJobs    int                                 // retention of ended jobs
	KeepFor     time.Duration
	KeepBytes   int64
	EventLimit  int64 // bytes of events kept of one job
	// Own is the name of the node that the manager itself is; empty where it is none.
	Own string
	// AgentVars are the manager's own variables for hosts being prepared; nil
	// where hosts cannot be prepared, for the reason NoAgents.
	AgentVars map[string]any
	NoAgents  error
}

// Options are what a Service is made of.
type Options struct {
	Store     Store
	Playbooks Playbooks
	Settings  func() Settings
	Instance  string
	// Authority tells whether this instance may begin and continue jobs now; it
	// is asked often. nil: it always may.
	Authority func() bool
	Logger    logrus.FieldLogger
}

// Service carries out the use cases. All methods may be called at once.
type Service struct {
	Options
	now     func() time.Time
	started time.Time // since when this process may run jobs

	retryJob   time.Duration // is waited before a job is tried again, twice as long each time
	retryWrite time.Duration // the same of a write, while the store is unavailable

	// accepting is held while a job is accepted: numbers are given one after the
	// other, so those who accept at once would only conflict.
	accepting chan struct{}

	mu       sync.Mutex
	running  map[string]bool // jobs that have an executor here
	appended chan struct{}   // closed when a log grows
	tasks    sync.WaitGroup
	stop     context.CancelFunc
}

// New returns a Service that serves reads and requests; Start makes it run jobs.
func New(o Options) *Service {
	return &Service{
		Options: o, now: time.Now, retryJob: time.Second, retryWrite: 100 * time.Millisecond,
		running: map[string]bool{}, appended: make(chan struct{}), accepting: make(chan struct{}, 1),
	}
}

// Start begins to run jobs: first those that an earlier process left Running,
// then the queue's. They run until Stop.
func (s *Service) Start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.started = s.now()
	s.tasks.Go(func() { s.schedule(ctx) })
	s.tasks.Go(func() { s.retain(ctx) })
}

// Stop ends all work here. Runners go on: the next process adopts them.
func (s *Service) Stop() {
	if s.stop != nil {
		s.stop()
	}

	s.tasks.Wait()
}

// View is the newest view.
func (s *Service) View() *View { return s.Store.View() }

// WaitRevision returns when the view has reached the revision.
func (s *Service) WaitRevision(ctx context.Context, revision int64) error {
	return s.Store.Wait(ctx, revision)
}

// Sync returns when the view shows everything that was acknowledged before.
func (s *Service) Sync(ctx context.Context) error { return s.Store.Sync(ctx) }

// Changes are what changed after the revision, secrets hidden.
func (s *Service) Changes(revision int64, limit int) (Changes, error) {
	changes, err := s.Store.Changes(revision, limit)
	for i, c := range changes.List {
		if c.Vars != nil {
			changes.List[i].Vars = s.Settings().Secrets.HideVars(c.Vars)
		}
	}

	return changes, err
}

// Groups are the configured groups.
func (s *Service) Groups() inventory.Groups { return s.Settings().Groups }

// attempts bounds how often a decision is taken again because something else
// was written first.
const attempts = 20

// again repeats a decision and its guarded write until nothing came between.
func (s *Service) again(ctx context.Context, do func(*View) error) error {
	var err error
	for range attempts {
		v := s.Store.View()
		if err = do(v); inventory.KindOf(err) != inventory.KindConflict {
			return err
		}

		if serr := s.Store.Sync(ctx); serr != nil {
			return serr
		}
	}

	return err
}

// Submit accepts a job or refuses it. The answer comes as soon as it is queued.
func (s *Service) Submit(ctx context.Context, r Request) (Job, error) {
	settings := s.Settings()

	return s.queue(
		ctx,
		settings,
		r,
		func() (string, error) { return s.Playbooks.Pin(ctx) },
		func(v *View, j *Job) (Inputs, error) {
			return s.pin(v, settings, *j, r), nil
		},
	)
}

// queue accepts a request whose inputs inputs collects, once everything that
// can be wrong with it was looked at. tree is asked for the digest of the
// playbooks when the request itself is found right.
func (s *Service) queue(
	ctx context.Context,
	settings Settings,
	r Request,
	tree func() (string, error),
	inputs func(*View, *Job) (Inputs, error),
) (Job, error) {
	v := s.Store.View()
	if j, err := s.doneJob(ctx, r.Once); j != nil || err != nil {
		return orZero(j), err
	}

	if r.Timeout == 0 {
		r.Timeout = settings.Timeout
	}

	if r.Verb == inventory.VerbDiscover && settings.AgentVars == nil {
		return Job{}, settings.NoAgents
	}

	if err := configuration.CheckVars(r.Extra); err != nil {
		return Job{}, err
	}

	if _, err := settings.Secrets.Restore(r.Extra, nil); err != nil {
		return Job{}, err
	}

	if r.Verb == inventory.VerbForget {
		for _, name := range r.Nodes {
			if err := s.notOwn(name); err != nil {
				return Job{}, err
			}
		}
	}

	// What is wrong with the request itself is said before anything costly.
	if _, err := accept(v, settings.Groups, r); err != nil {
		return Job{}, err
	}

	if err := s.Playbooks.Check(ctx); err != nil {
		return Job{}, err
	}

	digest, err := tree()
	if err != nil {
		return Job{}, err
	}

	if !r.Force {
		if err := s.Playbooks.Parse(ctx, digest, playbooks(r.Verb), settings.Groups.Names()); err != nil {
			return Job{}, err
		}
	}

	select {
	case s.accepting <- struct{}{}:
		defer func() { <-s.accepting }()
	case <-ctx.Done():
		return Job{}, ctx.Err()
	}

	var job Job

	err = s.again(ctx, func(v *View) error {
		if j, err := s.doneJob(ctx, r.Once); j != nil || err != nil {
			job = orZero(j)
			return err
		}

		j, err := accept(v, settings.Groups, r)
		if err != nil {
			return err
		}

		in, err := inputs(v, &j)
		if err != nil {
			return err
		}

		for _, path := range configuration.LooksLikeTemplate(r.Extra) {
			j.Warnings = append(j.Warnings, templateWarning(path))
		}

		j.PlaybookDigest, j.Accepted = digest, s.now()
		job, err = s.Store.Accept(ctx, v.Seq, j, in, r.Once)

		return err
	})
	if err == nil && !r.Once.replayed() {
		s.Logger.WithFields(logrus.Fields{"job": job.ID, "verb": job.Verb, "nodes": job.Names(), "actor": job.Actor}).
			Info("job accepted")
	}

	return job, err
}

func templateWarning(path string) string {
	return fmt.Sprintf("the value of %s looks like a template; it is passed on as it is and never evaluated", path)
}

// pin collects the inputs of a job as they are now.
func (s *Service) pin(v *View, settings Settings, j Job, r Request) Inputs {
	in := Inputs{
		Vars:        map[string]map[string]configuration.Var{},
		Connections: map[string]configuration.Connection{},
		Extra:       r.Extra,
	}
	for _, t := range j.Targets {
		group := cmp.Or(t.Group, t.FromGroup)

		name := t.Name
		if j.Verb == inventory.VerbDiscover {
			name = ""
			if t.Label != "" {
				name = inventory.NodeName(t.Label, t.Serial)
			}
		}

		in.Vars[t.Name] = merged(v, settings, group, name)
		in.Connections[t.Name] = connection(v, settings, group, name)
	}

	return in
}

func merged(v *View, settings Settings, group, node string) map[string]configuration.Var {
	layers := []configuration.Layer{
		{Origin: configuration.OriginConfig, Vars: settings.Vars, Trusted: true},
		{Origin: configuration.OriginGlobal, Vars: v.Vars(ScopeGlobal)},
	}
	if group != "" {
		layers = append(layers, configuration.Layer{Origin: configuration.OriginGroup, Vars: v.Vars(ScopeGroup(group))})
	}

	if node != "" {
		layers = append(layers, configuration.Layer{Origin: configuration.OriginNode, Vars: v.Vars(ScopeNode(node))})
	}

	return configuration.Merge(layers...)
}

func connection(v *View, settings Settings, group, node string) configuration.Connection {
	c := settings.Connections[group].Over(settings.Connection)
	if own := v.Connection(node); own != nil {
		c = own.Over(c)
	}

	return c
}

// Waits says what a Queued job waits for, and why.
func (s *Service) Waits(v *View, j Job) (ids []string, reason string) {
	if j.Status != Queued {
		return nil, ""
	}

	settings := s.Settings()
	t := turn(v, settings.Groups, settings.JobLimit, j)

	return t.WaitsFor, t.Reason
}

// Cancel asks a job to end. A Queued one ends at once; a Running one takes its
// failure path; asked a second time, it skips the cleanup.
func (s *Service) Cancel(ctx context.Context, id, actor string, only Condition, once *IdempotencyKey) (Job, error) {
	var out Job

	err := s.again(ctx, func(v *View) error {
		if j, err := s.doneJob(ctx, once); j != nil || err != nil {
			out = orZero(j)
			return err
		}

		v, err := only.Holds(ctx, s.Store, v)
		if err != nil {
			return err
		}

		j, err := v.Job(id)
		if err != nil {
			return err
		}

		switch {
		case j.Status.Ended():
			return inventory.Errorf(inventory.KindRefused, "job %s has ended: %s", j.ID, j.Status).
				Do("see clusterctl job get %s", j.ID)
		case j.Status == Queued:
			j.Status, j.Cause, j.Message, j.Ended = Cancelled, CauseCancelled, "cancelled by "+orSomeone(
				actor,
			)+" while it was queued", s.now()
			j.Cancel, j.CancelBy = 1, actor
		default:
			j.Cancel, j.CancelBy = min(j.Cancel+1, 2), cmp.Or(j.CancelBy, actor)
		}

		out, err = s.Store.Cancel(ctx, j, once)

		return err
	})
	if err == nil && !once.replayed() {
		s.Logger.WithFields(logrus.Fields{"job": out.ID, "actor": actor, "times": out.Cancel}).Info("cancel asked for")
	}

	return out, err
}

// Forget removes the records of nodes and leaves tombstones: all of them or none.
func (s *Service) Forget(
	ctx context.Context,
	names []string,
	force bool,
	reason, actor string,
	once *IdempotencyKey,
) (revision int64, err error) {
	r := Request{Verb: inventory.VerbForget, Nodes: names}
	if err := checkNames(r, names); err != nil {
		return 0, err
	}

	begun, left := s.now(), names

	err = s.again(ctx, func(v *View) error {
		if d, err := s.done(ctx, once); d != nil || err != nil {
			if d != nil {
				revision = d.Revision
			}

			return err
		}

		// What an earlier attempt has buried already is no longer missing.
		left = slices.DeleteFunc(slices.Clone(left), func(name string) bool {
			g, ok := v.Tombstones[name]
			_, known := v.node(name)

			return ok && !known && g.Actor == actor && !g.Time.Before(begun)
		})
		if missing := v.missing(left); len(missing) > 0 {
			return inventory.Errorf(inventory.KindNotFound, "no such node: %s", join(missing)).
				Do("see clusterctl nodes get").
				About(missing...)
		}

		var writes []NodeWrite
		var refusals []*inventory.Error

		if len(left) == 0 {
			revision = v.Revision
			return nil
		}

		for _, name := range left {
			n, _ := v.node(name)
			if err := s.notOwn(name); err != nil {
				refusals = append(refusals, err)
				continue
			}

			if err := n.CheckForget(force); err != nil {
				refusals = append(refusals, err.(*inventory.Error))
			}

			for _, j := range v.Jobs {
				if j.Status == Running && slices.Contains(j.Helpers, name) {
					refusals = append(refusals, inventory.Errorf(inventory.KindRefused, "%s helps job %s", name, j.ID).
						Do("wait for the job: clusterctl job logs -f %s", j.ID).About(name))
				}
			}

			writes = append(writes, s.bury(n, actor, reason))
		}

		if err := together(refusals); err != nil {
			return err
		}

		if err := s.Groups().CheckLeave(v.Nodes, names); err != nil {
			return err
		}

		revision, err = s.Store.Forget(ctx, v.Generation, writes, once)

		return err
	})
	if err == nil && !once.replayed() {
		s.Logger.WithFields(logrus.Fields{"nodes": names, "actor": actor, "force": force, "reason": reason}).
			Info("forgotten")
	}

	return revision, err
}

// notOwn refuses to forget the node that the manager itself is: its agent is
// the manager, which would see it again at once.
func (s *Service) notOwn(name string) *inventory.Error {
	if own := s.Settings().Own; own == "" || own != name {
		return nil
	}

	return inventory.Errorf(inventory.KindRefused, "%s is the manager's own host, which has no agent but the manager", name).
		Do("to take it away, end the manager: systemctl disable --now clusterm").
		About(name)
}

// bury is the write that removes a node and leaves its tombstone.
func (s *Service) bury(n inventory.Node, actor, reason string) NodeWrite {
	return NodeWrite{Node: n, Tombstone: &inventory.Tombstone{
		Name:     n.Name,
		Label:    n.Label,
		Serial:   n.Serial,
		HostKeys: n.HostKeys,
		Residue:  n.Carries(),
		Time:     s.now(),
		Actor:    actor,
		Reason:   reason,
	}}
}

// NodePatch changes what operators say of a node.
type NodePatch struct {
	Connection    *configuration.Connection // how it is reached; replaces the whole; nil changes nothing
	ForgetHostKey bool
	Labels        map[string]*string // are set; nil takes one away
}

// PatchNode changes what operators say of a node, all of it or nothing. It is
// no transition, so it adds nothing to the history.
func (s *Service) PatchNode(
	ctx context.Context,
	name string,
	p NodePatch,
	actor string,
	only Condition,
) (inventory.Node, error) {
	if p.Connection == nil && !p.ForgetHostKey && len(p.Labels) == 0 {
		return inventory.Node{}, inventory.Errorf(inventory.KindInvalid, "nothing is to be changed").
			Do("set connection, labels or forget_host_key")
	}

	if p.Connection != nil {
		if err := p.Connection.Check(); err != nil {
			return inventory.Node{}, err
		}
	}

	var node inventory.Node

	err := s.again(ctx, func(v *View) error {
		v, err := only.Holds(ctx, s.Store, v)
		if err != nil {
			return err
		}

		n, err := v.Node(name)
		if err != nil {
			return err
		}

		if n, err = n.Relabel(p.Labels); err != nil {
			return err
		}

		if p.ForgetHostKey {
			if n.Job != "" {
				return inventory.Errorf(inventory.KindRefused, "%s is held by job %s", name, n.Job).
					Do("wait for the job").
					About(name)
			}

			n.HostKeys = nil
		}

		n.Updated = s.now()
		if err := s.putNodes(ctx, []NodeWrite{{Node: n, Connection: p.Connection}}); err != nil {
			return err
		}

		node, err = s.View().Node(name)

		return err
	})
	if err == nil {
		s.Logger.WithFields(logrus.Fields{"node": name, "actor": actor, "forget_host_key": p.ForgetHostKey, "labels": len(p.Labels)}).
			Info("node changed")
	}

	return node, err
}

// putNodes writes nodes, if there are any, and makes a conflict an error.
func (s *Service) putNodes(ctx context.Context, writes []NodeWrite) error {
	if len(writes) == 0 {
		return nil
	}

	conflicts, err := s.Store.PutNodes(ctx, writes)
	if err == nil && len(conflicts) > 0 {
		err = inventory.Errorf(inventory.KindConflict, "%s changed meanwhile", join(conflicts)).
			Do("repeat the request").
			About(conflicts...)
	}

	return err
}

// History returns the newest entries of a node, oldest first.
func (s *Service) History(ctx context.Context, name string, limit int) ([]inventory.HistoryEntry, error) {
	if _, err := s.View().Node(name); err != nil {
		return nil, err
	}

	if limit <= 0 || limit > inventory.HistoryLimit {
		limit = inventory.HistoryLimit
	}

	return s.Store.History(ctx, name, limit)
}

// SetVars replaces the variables of the scope.
func (s *Service) SetVars(
	ctx context.Context,
	scope Scope,
	vars configuration.Vars,
	actor string,
	only Condition,
) (int64, []string, error) {
	return s.changeVars(
		ctx,
		scope,
		actor,
		only,
		vars,
		func(_, given configuration.Vars) configuration.Vars { return given },
	)
}

// PatchVars sets the variables of the patch, and unsets those that are null in it.
func (s *Service) PatchVars(
	ctx context.Context,
	scope Scope,
	patch configuration.Vars,
	actor string,
	only Condition,
) (int64, []string, error) {
	return s.changeVars(ctx, scope, actor, only, patch, func(old, given configuration.Vars) configuration.Vars {
		vars := configuration.Vars{}
		maps.Copy(vars, old)

		for k, value := range given {
			if value == nil {
				delete(vars, k)
			} else {
				vars[k] = value
			}
		}

		return vars
	})
}

func (s *Service) changeVars(
	ctx context.Context,
	scope Scope,
	actor string,
	only Condition,
	given configuration.Vars,
	change func(old, given configuration.Vars) configuration.Vars,
) (revision int64, warnings []string, err error) {
	err = s.again(ctx, func(v *View) error {
		v, err := only.Holds(ctx, s.Store, v)
		if err != nil {
			return err
		}

		if err := s.checkScope(v, scope); err != nil {
			return err
		}

		restored, err := s.Settings().Secrets.Restore(given, v.Vars(scope))
		if err != nil {
			return err
		}

		vars := change(v.Vars(scope), restored)
		if err := configuration.CheckVars(vars); err != nil {
			return err
		}

		warnings = nil
		for _, path := range configuration.LooksLikeTemplate(given) {
			warnings = append(warnings, templateWarning(path))
		}

		revision, err = s.Store.PutVars(ctx, v.Revision, scope, vars)

		return err
	})
	if err == nil {
		s.Logger.WithFields(logrus.Fields{"scope": scope, "actor": actor}).Info("variables changed")
	}

	return revision, warnings, err
}

func (s *Service) checkScope(v *View, scope Scope) error {
	kind, name, _ := strings.Cut(string(scope), "/")
	switch kind {
	case "global":
		return nil
	case "node":
		_, err := v.Node(name)
		return err
	case "group":
		if name == inventory.GroupPrepare {
			return nil
		}

		_, err := s.Groups().Get(name)

		return err
	}

	return inventory.Errorf(inventory.KindInvalid, "%q is not a scope of variables", scope).
		Do("use global, group/NAME or node/NAME")
}

// Vars returns the variables of the scope, secrets hidden.
func (s *Service) Vars(scope Scope) (configuration.Vars, error) {
	v := s.View()
	if err := s.checkScope(v, scope); err != nil {
		return nil, err
	}

	return s.Settings().Secrets.HideVars(v.Vars(scope)), nil
}

// MergedVars are a node's variables as a job would pin them now, without a
// request's, secrets hidden.
func (s *Service) MergedVars(name string) (map[string]configuration.Var, error) {
	v := s.View()

	n, err := v.Node(name)
	if err != nil {
		return nil, err
	}

	return s.Merger(v).Of(&n), nil
}

// Merger says what variables the view's nodes get now.
func (s *Service) Merger(v *View) Merger { return MergerOf(v, s.Settings()) }

// Inputs returns what a job was accepted with, secrets hidden.
func (s *Service) Inputs(ctx context.Context, id string) (Inputs, error) {
	in, err := s.Store.Inputs(ctx, id)
	if err != nil {
		return Inputs{}, err
	}

	secrets := s.Settings().Secrets
	in.Extra = secrets.HideVars(in.Extra)

	vars := make(map[string]map[string]configuration.Var, len(in.Vars))
	for host, v := range in.Vars {
		vars[host] = secrets.HideMerged(v)
	}

	in.Vars = vars

	return in, nil
}
