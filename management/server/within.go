// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/desired"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// within returns use cases that see and change the nodes within the bounds only. A
// node outside is unknown to them. A use case that is missing here is nil, and a route
// that calls it fails: nothing passes by the bounds by default.
func (o Options) within(bounds access.Bounds) Options {
	b := &confined{whole: o, bounds: bounds}

	return Options{
		State:       confinedState{b},
		Jobs:        confinedJobs{b},
		Plans:       confinedPlans{b},
		PlanReader:  confinedPlans{b},
		Rollouts:    confinedRollouts{b},
		Logs:        confinedLogs{b},
		Nodes:       confinedNodes{b},
		Ping:        confinedPing{b},
		HostKeys:    confinedKeys{b},
		Repository:  confinedRepository{b},
		Variables:   confinedVars{b},
		VarsPast:    confinedVars{b},
		Explain:     confinedExplain{b},
		Desired:     confinedDesired{b},
		Settings:    confinedSettings{b},
		Health:      b.health,
		Version:     o.Version,
		Metrics:     http.NotFoundHandler(),
		Logger:      o.Logger,
		HeaderTime:  o.HeaderTime,
		BodyTime:    o.BodyTime,
		IdleTime:    o.IdleTime,
		Stall:       o.Stall,
		StreamGrace: o.StreamGrace,
		Heartbeat:   o.Heartbeat,
		Watches:     o.Watches,
	}
}

// confined is what the confined use cases share. They decide on the whole view: the
// rules of groups depend on nodes that the caller may not see.
type confined struct {
	whole  Options
	bounds access.Bounds

	mu   sync.Mutex
	last *state.Part // of the newest view
}

// partOf returns the part of a view within the bounds.
func (b *confined) partOf(v *state.View) *state.Part {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.last != nil && b.last.Whole() == v {
		return b.last
	}

	part := state.NewPart(v, b.bounds)
	if b.last == nil || b.last.Revision <= part.Revision {
		b.last = part
	}

	return part
}

// part returns the part of the newest view.
func (b *confined) part() *state.Part { return b.partOf(b.whole.State.View()) }

// unknown is the error for a request that names what is not within the bounds. It is
// the same whether that exists or not, and holds the words of the request only.
type unknown struct{ error }

// Unwrap returns the error itself.
func (e unknown) Unwrap() error { return e.error }

// hide returns err without the names of nodes outside the bounds.
func (b *confined) hide(err error) error {
	if _, ok := errors.AsType[unknown](err); ok {
		return err
	}

	e, ok := errors.AsType[*inventory.Error](err)
	if !ok {
		return err
	}

	p, shown := b.part(), *e
	shown.Message, shown.Remedy = p.Text(e.Message), p.Text(e.Remedy)
	shown.Nodes, shown.Actions = p.Names(e.Nodes), actionsWithin(p, e.Actions)

	return &shown
}

// actionsWithin returns the actions that concern no node outside the part.
func actionsWithin(p *state.Part, actions []inventory.Action) []inventory.Action {
	return slices.DeleteFunc(slices.Clone(actions), func(a inventory.Action) bool {
		return len(a.Addrs)+len(a.Ranges) > 0 || len(p.Names(a.Nodes)) < len(a.Nodes)
	})
}

// require adds a condition to those of the caller, on the view that the change is
// decided on: a node that leaves the bounds meanwhile is not changed.
func (b *confined) require(c access.Caller, check func(p *state.Part) error) access.Caller {
	given := c.Precondition
	c.Precondition = func(v *state.View) error {
		if err := check(b.partOf(v)); err != nil {
			return unknown{err}
		}

		if given == nil {
			return nil
		}

		return given(v)
	}

	return c
}

// hasNodes refuses names that are of no node within the bounds.
func hasNodes(names []string) func(*state.Part) error {
	return func(p *state.Part) error {
		if missing := p.Missing(names); len(missing) > 0 {
			return p.MissingNodes(missing)
		}

		return nil
	}
}

// allowGroup refuses a group that is not one of the scope, as an unknown one.
func (b *confined) allowGroup(group string) error {
	if group == "" || b.bounds.AllowsGroup(group) {
		return nil
	}

	_, err := confinedSettings{b}.Groups().Get(group)

	return err
}

// errWhole refuses a request that concerns the manager as a whole.
func errWhole(what string) error {
	return inventory.Errorf(inventory.KindForbidden, "%s: this concerns the whole manager", what).
		Do("repeat the request with a credential without a scope")
}

// health returns the health of the manager with the counts of the part.
func (b *confined) health(ctx context.Context) api.Health {
	h, p := b.whole.Health(ctx), b.part()

	counts := b.whole.Desired.Of(p.Whole()).Count(p.Nodes)

	h.Outdated, h.Unknown = counts.Outdated, counts.Unknown
	h.Nodes, h.Jobs = len(p.Nodes), map[api.JobStatus]int{}

	for _, j := range p.Jobs {
		if !j.Status.Ended() {
			h.Jobs[api.JobStatus(j.Status)]++
		}
	}

	checks := map[string]string{}
	for name, result := range h.Checks {
		checks[name] = p.Text(result)
	}

	h.Checks, h.Warnings, h.Instance = checks, p.Texts(h.Warnings), p.Text(h.Instance)

	return h
}

type confinedState struct{ *confined }

func (s confinedState) View() *state.View { return s.part().View }

func (s confinedState) Wait(ctx context.Context, revision int64) error {
	return s.whole.State.Wait(ctx, revision)
}

func (s confinedState) Sync(ctx context.Context) error { return s.whole.State.Sync(ctx) }

func (s confinedState) Changes(revision int64, limit int) (state.Changes, error) {
	c, err := s.whole.State.Changes(revision, limit)
	c.List = s.part().Changes(c.List)

	return c, err
}

type confinedJobs struct{ *confined }

func (s confinedJobs) Submit(ctx context.Context, c access.Caller, r job.Request) (job.Job, error) {
	if err := s.mayAsk(r); err != nil {
		return job.Job{}, err
	}

	j, err := s.whole.Jobs.Submit(ctx, s.require(c, s.mayRequest(r)), r)

	return s.part().Job(j), s.hide(err)
}

// mayAsk refuses a request, for a job or a plan of one, that concerns more than the
// bounds whichever nodes it names.
func (b *confined) mayAsk(r job.Request) error {
	if len(r.Addrs)+len(r.Ranges) > 0 {
		return errWhole("a host that is no node yet is in no scope")
	}

	if err := b.allowGroup(r.Group); err != nil {
		return err
	}

	// The default is a group of the whole configuration.
	if v, err := job.VerbOf(r.Verb); err == nil && v.ChoosesGroup() && r.Group == "" && !b.bounds.AllowsGroup("") {
		return inventory.Errorf(inventory.KindInvalid, "the request names no group").
			Do("name one of the groups of the scope")
	}

	return nil
}

// mayRequest is mayJoin for the group of a request, or the one that it gets by default.
func (b *confined) mayRequest(r job.Request) func(*state.Part) error {
	return func(p *state.Part) error {
		group := r.Group
		if v, err := job.VerbOf(r.Verb); err == nil && v.ChoosesGroup() && group == "" {
			group = p.Whole().DefaultGroup(b.whole.Settings.Groups())
		}

		return b.mayJoin(r.Nodes, group)(p)
	}
}

// mayJoin refuses names that are of no node within the bounds, and a group in which a
// node would leave them.
func (b *confined) mayJoin(names []string, group string) func(*state.Part) error {
	return func(p *state.Part) error {
		if err := hasNodes(names)(p); err != nil || group == "" {
			return err
		}

		for _, name := range names {
			n, err := p.View.Node(name)
			if err != nil {
				return err
			}

			if n.Group = group; !b.bounds.Contains(&n) {
				return inventory.Errorf(inventory.KindForbidden, "in %s, %s would leave the scope", group, name).
					Do("ask a caller without a scope to do that").
					About(name)
			}
		}

		return nil
	}
}

// hasJob returns an error like that for an unknown job if the reference selects one
// outside the part.
func hasJob(p *state.Part, ref string) (job.Job, error) {
	j, err := p.View.Job(ref)
	if err != nil {
		return j, err
	}

	// "active" and "last" may select another job of the whole view.
	if selected, err := p.Whole().Job(ref); err != nil || selected.ID != j.ID {
		return job.Job{}, inventory.Errorf(inventory.KindNotFound, "there is no job %q", ref).
			Do("use the id of the job").With(inventory.ListJobs())
	}

	return j, nil
}

func (s confinedJobs) Cancel(ctx context.Context, c access.Caller, id string) (job.Job, error) {
	j, err := s.whole.Jobs.Cancel(ctx, s.require(c, func(p *state.Part) error {
		_, err := hasJob(p, id)
		return err
	}), id)

	return s.part().Job(j), s.hide(err)
}

func (s confinedJobs) Retry(ctx context.Context, c access.Caller, id string, r job.RetryRequest) (job.Job, error) {
	j, err := s.whole.Jobs.Retry(ctx, s.require(c, func(p *state.Part) error {
		old, err := hasJob(p, id)
		if err != nil {
			return err
		}

		// Its nodes may have left the bounds since.
		names := r.Nodes
		if len(names) == 0 {
			names = old.Names()
		}

		if err := s.allowGroup(old.Group); err != nil {
			return err
		}

		return s.mayJoin(names, old.Group)(p)
	}), id, r)

	return s.part().Job(j), s.hide(err)
}

// Waits leaves out the jobs that the caller may not see.
func (s confinedJobs) Waits(_ *state.View, j job.Job) (ids []string, reason string, until time.Time) {
	p := s.part()

	// j lacks what the caller may not see.
	if whole, err := p.Whole().Job(j.ID); err == nil {
		j = whole
	}

	all, reason, until := s.whole.Jobs.Waits(p.Whole(), j)
	for _, id := range all {
		if _, err := p.View.Job(id); err == nil {
			ids = append(ids, id)
		}
	}

	if len(ids) < len(all) {
		return ids, state.HiddenJobs, until
	}

	return ids, p.Text(reason), until
}

func (s confinedJobs) Inputs(ctx context.Context, id string) (job.Inputs, error) {
	if _, err := s.part().View.Job(id); err != nil {
		return job.Inputs{}, err
	}

	return s.whole.Jobs.Inputs(ctx, id)
}

type confinedLogs struct{ *confined }

func (s confinedLogs) LogSize(ctx context.Context, id string, stream job.Stream) (int64, error) {
	if _, err := s.part().View.Job(id); err != nil {
		return 0, err
	}

	return s.whole.Logs.LogSize(ctx, id, stream)
}

func (s confinedLogs) Log(ctx context.Context, id string, stream job.Stream, offset int64, follow bool,
	emit func(offset int64, data []byte) error,
) error {
	if _, err := s.part().View.Job(id); err != nil {
		return err
	}

	return s.whole.Logs.Log(ctx, id, stream, offset, follow, emit)
}

func (s confinedLogs) Difference(ctx context.Context, _ *state.View, name string) (job.Difference, error) {
	p := s.part()
	if _, err := p.View.Node(name); err != nil {
		return job.Difference{}, err
	}

	// Its job may be one of several nodes, and the findings are those of this one.
	found, err := s.whole.Logs.Difference(ctx, p.Whole(), name)
	if err != nil {
		return found, s.hide(err)
	}

	found.Verdict.Reason = p.Text(found.Verdict.Reason)
	cutFindings(p, found.Tasks)

	return found, nil
}

// cutFindings cuts the names of nodes outside of the part from findings.
func cutFindings(p *state.Part, tasks []job.TaskFinding) {
	for i, f := range tasks {
		tasks[i] = job.TaskFinding{
			Kind: f.Kind, Action: f.Action, Playbook: p.Text(f.Playbook), Play: p.Text(f.Play), Role: p.Text(f.Role),
			Task: p.Text(f.Task), Path: p.Text(f.Path), Message: p.Text(f.Message), Diff: p.Text(f.Diff),
		}
	}
}

type confinedNodes struct{ *confined }

func (s confinedNodes) Observe(context.Context, string, []inventory.Observation) error {
	return errWhole("a host that is no node yet is in no scope")
}

func (s confinedNodes) Report(context.Context, string, *inventory.NameRange, []inventory.Observation) (
	map[int]error, int64, error,
) {
	return nil, 0, errWhole("a host that is no node yet is in no scope")
}

func (s confinedNodes) Patch(
	ctx context.Context, c access.Caller, name string, patch node.Patch,
) (inventory.Node, error) {
	n, err := s.whole.Nodes.Patch(ctx, s.require(c, func(p *state.Part) error {
		n, err := p.View.Node(name)
		if err != nil {
			return err
		}

		if n, err = n.Relabel(patch.Labels); err != nil || s.bounds.Contains(&n) {
			return err
		}

		return inventory.Errorf(inventory.KindForbidden, "with these labels %s would leave the scope", name).
			Do("ask a caller without a scope to set them").About(name)
	}), name, patch)

	return *s.part().Show(&n), s.hide(err)
}

type confinedKeys struct{ *confined }

func (s confinedKeys) ScanHostKeys(ctx context.Context, c access.Caller, name string) (node.HostKeys, error) {
	if _, err := s.part().View.Node(name); err != nil {
		return node.HostKeys{}, err
	}

	keys, err := s.whole.HostKeys.ScanHostKeys(ctx, c, name)

	return keys, s.hide(err)
}

func (s confinedKeys) TrustHostKey(context.Context, access.Caller, string, node.Trust) (inventory.Node, error) {
	return inventory.Node{}, errWhole("the host key decides on which machine playbooks run")
}

func (s confinedNodes) Forget(ctx context.Context, c access.Caller, r node.ForgetRequest) (int64, error) {
	had := map[string]bool{} // the nodes that were within the bounds at an earlier attempt

	revision, err := s.whole.Nodes.Forget(ctx, s.require(c, func(p *state.Part) error {
		// That attempt may have removed some of them.
		names := slices.DeleteFunc(slices.Clone(r.Nodes), func(name string) bool {
			_, exists := p.Whole().Lookup(name)
			return had[name] && !exists
		})
		if err := hasNodes(names)(p); err != nil {
			return err
		}

		for _, name := range names {
			had[name] = true
		}

		return nil
	}), r)

	return revision, s.hide(err)
}

func (s confinedNodes) History(ctx context.Context, name string, limit int) ([]inventory.HistoryEntry, error) {
	p := s.part()
	if _, err := p.View.Node(name); err != nil {
		return nil, err
	}

	entries, err := s.whole.Nodes.History(ctx, name, limit)

	shown := slices.Clone(entries)
	for i, e := range entries {
		shown[i].Reason = p.Text(e.Reason)
	}

	return shown, s.hide(err)
}

type confinedPing struct{ *confined }

func (s confinedPing) Ping(ctx context.Context, c access.Caller, names []string) ([]node.PingResult, error) {
	p := s.part()
	if err := hasNodes(names)(p); err != nil {
		return nil, err
	}

	results, err := s.whole.Ping.Ping(ctx, c, names)
	for i, r := range results {
		results[i].Message, results[i].Remedy = p.Text(r.Message), p.Text(r.Remedy)
		results[i].Actions = actionsWithin(p, r.Actions)
	}

	return results, s.hide(err)
}

type confinedVars struct{ *confined }

// check returns an error like that for an unknown node or group unless the variables
// belong to the part.
func (s confinedVars) check(scope state.Scope) func(*state.Part) error {
	return func(p *state.Part) error {
		if scope.In(p) {
			return nil
		}

		switch kind, name := scope.Split(); kind {
		case "node":
			_, err := p.View.Node(name)
			return err
		case "group":
			return inventory.Errorf(inventory.KindNotFound, "the scope does not contain a whole group %q", name).
				Do("read and set the variables of single nodes")
		default:
			return errWhole("the globals are those of every node")
		}
	}
}

func (s confinedVars) Set(
	ctx context.Context, c access.Caller, scope state.Scope, vars configuration.Vars,
) (variable.Changed, error) {
	changed, err := s.whole.Variables.Set(ctx, s.require(c, s.check(scope)), scope, vars)
	return changed, s.hide(err)
}

func (s confinedVars) Patch(
	ctx context.Context, c access.Caller, scope state.Scope, patch configuration.Vars,
) (variable.Changed, error) {
	changed, err := s.whole.Variables.Patch(ctx, s.require(c, s.check(scope)), scope, patch)
	return changed, s.hide(err)
}

func (s confinedVars) Get(scope state.Scope) (configuration.Vars, error) {
	if err := s.check(scope)(s.part()); err != nil {
		return nil, err
	}

	vars, err := s.whole.Variables.Get(scope)

	return vars, s.hide(err)
}

// Merger merges the variables of the whole view: those of the groups and the globals
// belong to the configuration of a node.
func (s confinedVars) Merger(*state.View) variable.Merger {
	return s.whole.Variables.Merger(s.whole.State.View())
}

func (s confinedVars) Hide(changes []state.Change) []state.Change {
	return s.whole.Variables.Hide(changes)
}

func (s confinedVars) History(ctx context.Context, scope state.Scope) ([]variable.Change, error) {
	if err := s.check(scope)(s.part()); err != nil {
		return nil, err
	}

	history, err := s.whole.VarsPast.History(ctx, scope)

	return history, s.hide(err)
}

func (s confinedVars) Undo(
	ctx context.Context, c access.Caller, scope state.Scope, to int64,
) (variable.Changed, error) {
	changed, err := s.whole.VarsPast.Undo(ctx, s.require(c, s.check(scope)), scope, to)
	return changed, s.hide(err)
}

type confinedExplain struct{ *confined }

// confinedDesired judges the nodes of a part by the whole view: the variables of others
// are among their inputs, and only a keyed hash of them is shown.
type confinedDesired struct{ *confined }

func (s confinedDesired) Of(*state.View) *desired.Configurations {
	return s.whole.Desired.Of(s.part().Whole())
}

func (s confinedExplain) Node(
	ctx context.Context, _ *state.View, name string, reader explain.Reader,
) (explain.NodeExplanation, error) {
	p := s.part()
	if _, err := p.View.Node(name); err != nil {
		return explain.NodeExplanation{}, err
	}

	reader.Sees = p.View

	e, err := s.whole.Explain.Node(ctx, p.Whole(), name, reader)
	if err != nil {
		return e, s.hide(err)
	}

	e.Node, e.Summary, e.Next = *p.Show(&e.Node), p.Text(e.Summary), p.Text(e.Next)
	e.Failures, e.Findings = failuresWithin(p, e.Failures), findingsWithin(p, e.Findings)

	jobs := e.Jobs
	e.Jobs = nil

	for i := range jobs {
		if jobs[i].In(p) {
			e.Jobs = append(e.Jobs, p.Job(jobs[i]))
		}
	}

	return e, nil
}

func (s confinedExplain) Job(_ *state.View, j job.Job, reader explain.Reader) explain.JobExplanation {
	p := s.part()

	// The texts are made from the whole record: j lacks what the caller may not see.
	if whole, err := p.Whole().Job(j.ID); err == nil {
		j = whole
	}

	reader.Sees = p.View

	e := s.whole.Explain.Job(p.Whole(), j, reader)
	e.Job, e.Summary, e.Next, e.Steps = p.Job(e.Job), p.Text(e.Summary), p.Text(e.Next), p.Texts(e.Steps)
	e.Failures, e.Findings = failuresWithin(p, e.Failures), findingsWithin(p, e.Findings)

	return e
}

func failuresWithin(p *state.Part, failures []explain.Failure) []explain.Failure {
	shown := slices.Clone(failures)
	for i, f := range failures {
		shown[i].Host, shown[i].Task, shown[i].Message = p.Text(f.Host), p.Text(f.Task), p.Text(f.Message)
	}

	return shown
}

func findingsWithin(p *state.Part, findings []explain.Finding) []explain.Finding {
	shown := slices.Clone(findings)
	for i, f := range findings {
		shown[i].Message, shown[i].Remedy = p.Text(f.Message), p.Text(f.Remedy)
		shown[i].Nodes, shown[i].Actions = p.Names(f.Nodes), actionsWithin(p, f.Actions)
	}

	return shown
}

type confinedSettings struct{ *confined }

// Config returns nil: the settings concern the whole manager.
func (s confinedSettings) Config() api.Config { return nil }

func (s confinedSettings) Patch(context.Context, access.Caller, map[string]any) (api.Config, error) {
	return nil, errWhole("a setting applies to every node")
}

func (s confinedSettings) Preview(context.Context, access.Caller, map[string]any) (api.Config, error) {
	return nil, errWhole("a setting applies to every node")
}

func (s confinedSettings) Reload(context.Context, access.Caller) (api.Config, error) {
	return nil, errWhole("a setting applies to every node")
}

// Groups returns the groups of the scope.
func (s confinedSettings) Groups() inventory.Groups {
	return slices.DeleteFunc(slices.Clone(s.whole.Settings.Groups()), func(g inventory.Group) bool {
		return !s.bounds.AllowsGroup(g.Name)
	})
}
