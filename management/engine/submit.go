// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// Submit accepts a job or refuses it. It returns as soon as the job is queued.
func (e *Engine) Submit(ctx context.Context, c access.Caller, r job.Request) (job.Job, error) {
	entry := access.Record{
		Action: "jobs.submit." + string(r.Verb), Targets: slices.Concat(r.Nodes, r.Addrs, r.Ranges),
		Reason: r.AuditReason(),
	}

	return e.audited(ctx, c, entry, func(ctx context.Context, _ *access.Record) (job.Job, error) {
		return e.queue(ctx, c, e.settings(), r, nil, nil)
	})
}

// SubmitWith accepts a job unless with fails, which writes what belongs to it in the same transaction.
func (e *Engine) SubmitWith(
	ctx context.Context, c access.Caller, r job.Request, with func(tx *record.Tx, j *job.Job) error,
) (job.Job, error) {
	entry := access.Record{Action: "jobs.submit." + string(r.Verb), Targets: r.Nodes, Reason: r.AuditReason()}

	return e.audited(ctx, c, entry, func(ctx context.Context, _ *access.Record) (job.Job, error) {
		release, err := e.enter(ctx)
		if err != nil {
			return job.Job{}, err
		}
		defer release()

		settings, v := e.settings(), e.state.View()

		pins, err := e.prepare(ctx, c, v, settings, &r, nil)
		if err != nil {
			return job.Job{}, err
		}

		accepted, revision, err := record.Decide(ctx, e.records, func(tx *record.Tx) (job.Job, error) {
			return e.accept(ctx, c, tx, settings, r, pins, nil,
				func(j *job.Job, _ job.Inputs) error { return with(tx, j) })
		})
		accepted.Revision = revision

		return accepted, err
	})
}

// audited carries out a request for a job and leaves its audit record, which
// names the job if there is one.
func (e *Engine) audited(
	ctx context.Context, c access.Caller, r access.Record,
	request func(context.Context, *access.Record) (job.Job, error),
) (job.Job, error) {
	var accepted job.Job

	err := access.Audited(ctx, e.audit, c, r, func(ctx context.Context, record *access.Record) (err error) {
		// After an error the job may have the number of somebody else's.
		if accepted, err = request(ctx, record); err == nil {
			record.Job = accepted.ID
		}
		return err
	})

	return accepted, err
}

// queue accepts a request. playbooks chooses those that the job is bound to, once the
// request itself is found right, see step.Request. pin returns the inputs of the accepted job;
// nil: those of now.
func (e *Engine) queue(
	ctx context.Context, c access.Caller, settings Settings, r job.Request,
	playbooks func(context.Context) (string, error), pin func(*state.View, *job.Job) (job.Inputs, error),
) (job.Job, error) {
	return inTurn(ctx, e, c, e.jobs, func(v *state.View) (job.Job, error) {
		pins, err := e.prepare(ctx, c, v, settings, &r, playbooks)
		if err != nil {
			return job.Job{}, err
		}
		return e.jobs.Decide(ctx, c, access.Request(r, settings.Groups), func(tx *record.Tx) (job.Job, error) {
			return e.accept(ctx, c, tx, settings, r, pins, pin, func(*job.Job, job.Inputs) error { return nil })
		})
	})
}

// inTurn carries out a request once it is the next one to be judged, unless an earlier request with its key was.
func inTurn[T any](
	ctx context.Context, e *Engine, c access.Caller, once access.Once[T], do func(*state.View) (T, error),
) (T, error) {
	var none T

	release, err := e.enter(ctx)
	if err != nil {
		return none, err
	}
	defer release()

	// Take the view before the look-up, see access.Caller.Replay.
	v := e.state.View()

	if r, found, err := once.Replay(ctx, c); found || err != nil {
		return r, err
	}

	return do(v)
}

// enter blocks until the request is the next one to be judged. Requests are judged in
// the order of their arrival: the first one that needs a folder parses it for seconds,
// and those behind it must not overtake it.
func (e *Engine) enter(ctx context.Context) (release func(), err error) {
	// Go serves blocked senders first come, first served.
	select {
	case e.accepting <- struct{}{}:
		return func() { <-e.accepting }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// prepare refuses a request that is wrong, completes it, and returns the pins of the executors of its steps once those
// could run.
func (e *Engine) prepare(
	ctx context.Context, c access.Caller, v *state.View, settings Settings, r *job.Request,
	playbooks func(context.Context) (string, error),
) ([]step.Pin, error) {
	v, err := e.admit(ctx, c, v, settings, r)
	if err != nil {
		return nil, err
	}

	// Refuse a wrong request before the executors are asked: they may take seconds.
	j, err := acceptRequest(v, settings, *r)
	if err != nil {
		return nil, err
	}
	return e.prepareSteps(ctx, step.Request{View: v, Job: j, Extra: r.Extra, Playbooks: playbooks})
}

// prepareSteps asks the executors of the job's steps, and returns their pins, and every problem at once.
func (e *Engine) prepareSteps(ctx context.Context, r step.Request) ([]step.Pin, error) {
	executors, err := e.executorsOf(r.Job.Verb)
	if err != nil {
		return nil, err
	}

	var (
		pins     []step.Pin
		problems []*inventory.Error
		first    error
	)

	for _, executor := range executors {
		pin, err := executor.Prepare(ctx, r)
		if pin != nil {
			pins = append(pins, pin)
		}

		if err == nil {
			continue
		}

		problem, ok := errors.AsType[*inventory.Error](err)
		if !ok {
			return pins, err
		}
		problems = append(problems, problem)
		first = cmp.Or(first, err)
	}

	if len(problems) > 1 {
		return pins, job.Combine(problems)
	}

	return pins, first
}

// executorsOf returns the executors of the steps that jobs of the verb may have.
func (e *Engine) executorsOf(name inventory.Verb) ([]step.Executor, error) {
	verb, err := job.VerbOf(name)
	if err != nil {
		return nil, err
	}
	return e.executors.Of(verb)
}

// admit refuses a request that no view makes right, and completes it. It returns the view
// that the preconditions were checked on.
func (e *Engine) admit(
	ctx context.Context, c access.Caller, v *state.View, settings Settings, r *job.Request,
) (*state.View, error) {
	v, err := c.Check(ctx, e.state, v, access.Request(*r, settings.Groups))
	if err != nil {
		return nil, err
	}

	if err := settings.refuse(); err != nil {
		return nil, err
	}

	if r.Timeout == 0 {
		r.Timeout, r.TimeoutFrom = settings.Timeout, job.TimeoutUsual
	}

	r.TimeoutFrom = cmp.Or(r.TimeoutFrom, "the request")

	return v, checkRequest(settings, *r)
}

// refuse returns the error for a job under incomplete settings, or nil: it would run
// with other playbooks and variables than the operator chose.
func (s Settings) refuse() error {
	if s.Incomplete == nil {
		return nil
	}

	refused := inventory.Errorf(inventory.KindRefused, "no job is accepted: %w", s.Incomplete)
	if e, ok := errors.AsType[*inventory.Error](s.Incomplete); ok {
		refused.Message, refused.Remedy, refused.Actions = "no job is accepted: "+e.Message, e.Remedy, e.Actions
	}
	return refused
}

// hold returns the hold of the queue at that time.
func (s Settings) hold(v *state.View, now time.Time) job.Hold {
	return s.Windows.Hold(v, now).Unless(s.Incomplete)
}

// checkRequest refuses a request that is wrong in itself, before any costly step.
func checkRequest(settings Settings, r job.Request) error {
	if err := configuration.CheckVars(r.Extra); err != nil {
		return err
	}

	if _, err := settings.Secrets.Restore(r.Extra, nil); err != nil {
		return err
	}

	// A job would run with the text in place of the secret.
	for _, name := range slices.Sorted(maps.Keys(r.Extra)) {
		if configuration.HasHidden(r.Extra[name]) {
			return inventory.Errorf(inventory.KindInvalid,
				"the value of %s has %q, which stands for a secret that was not shown", name, configuration.Hidden).
				Do("give the value itself")
		}
	}

	verb, err := job.VerbOf(r.Verb)
	if err != nil {
		return err
	}

	// The manager's host has no agent to remove but the manager.
	if verb.RemovesAgent {
		for _, name := range r.Nodes {
			if err := node.CheckNotOwn(name, settings.Own); err != nil {
				return err
			}
		}
	}

	return nil
}

// accept decides about a request on the records of the transaction, and stores its job. with completes the job, which
// has its number, and writes what belongs to it.
func (e *Engine) accept(
	ctx context.Context, c access.Caller, tx *record.Tx, settings Settings, r job.Request, pins []step.Pin,
	pin func(*state.View, *job.Job) (job.Inputs, error), with func(*job.Job, job.Inputs) error,
) (job.Job, error) {
	v := state.ViewOf(tx)

	j, in, err := e.judge(ctx, c, v, settings, r, pins, pin)
	if err != nil {
		return job.Job{}, err
	}
	j.ID = v.NextID()
	if err := with(&j, in); err != nil {
		return job.Job{}, err
	}

	state.AcceptJob(tx, j, in)
	c.Keep(tx, access.Result{Job: j.ID})

	return j, nil
}

// judge returns the job of a request as it is to be accepted on the view, with its
// inputs.
func (e *Engine) judge(
	ctx context.Context, c access.Caller, v *state.View, settings Settings, r job.Request, pins []step.Pin,
	pin func(*state.View, *job.Job) (job.Inputs, error),
) (job.Job, job.Inputs, error) {
	j, err := acceptRequest(v, settings, r)
	if err != nil {
		return job.Job{}, job.Inputs{}, err
	}

	// Executors that have helpers say so.
	j.WithoutHelpers = true

	for _, pin := range pins {
		if err := pin(ctx, v, &j); err != nil {
			return job.Job{}, job.Inputs{}, err
		}
	}

	in := inputs(v, settings, j, r)

	if pin != nil {
		if in, err = pin(v, &j); err != nil {
			return job.Job{}, job.Inputs{}, err
		}
	}

	if err := checkReadable(in); err != nil {
		return job.Job{}, job.Inputs{}, err
	}

	for _, path := range configuration.LooksLikeTemplate(r.Extra) {
		j.Warnings = append(j.Warnings, merge.TemplateWarning(path))
	}

	j.Actor, j.Accepted = c.Principal, time.Now()
	identifyInputs(state.ChecksumKey(v), &j, in)
	j.Warnings = append(j.Warnings, takenBack(v, settings, j, in)...)

	return j, in, nil
}

// inputs collects the inputs of a job as they are now.
func inputs(v *state.View, settings Settings, j job.Job, r job.Request) job.Inputs {
	in := job.Inputs{
		Vars:        map[string]map[string]configuration.Var{},
		Connections: map[string]configuration.Connection{},
		Extra:       r.Extra,
	}

	for _, t := range j.Targets {
		for _, group := range j.InputGroups(t) {
			in.Set(t.Name, group, settings.Merge(v, group, t.Node()), settings.Connect(v, group, t.Node()))
		}
	}

	// A variable that is secret somewhere is secret in a request as well.
	marked := state.Marked(v)
	in.Extra = r.Extra.Mark(func(name string) bool { return marked(name) || secretAnywhere(in, name) })

	return in
}

// identifyInputs records the checksum of the variables of each target.
func identifyInputs(key configuration.ChecksumKey, j *job.Job, in job.Inputs) {
	if j.TakesAddrs() {
		return
	}

	for i := range j.Targets {
		t := &j.Targets[i]

		// Without a key, or with a secret that cannot be read, it is unknown.
		t.Variables, _ = key.Checksum(in.Vars[t.Name], in.Extra)
	}

	// A value of the request is data, as a stored one is.
	request := configuration.Merge(configuration.Layer{Origin: configuration.OriginRequest, Vars: in.Extra})
	j.ExtraSums = nil

	for _, name := range j.ExtraNames {
		j.ExtraSums = append(j.ExtraSums, key.ChecksumOf(name, request))
	}
}

// takenBack warns about variables that only a former request has set: the job configures its nodes
// without their values, unless its own request sets them.
func takenBack(v *state.View, settings Settings, j job.Job, in job.Inputs) (warnings []string) {
	if j.TakesAddrs() || j.Verb.Verifies() {
		return nil
	}

	key := state.ChecksumKey(v)

	for _, t := range j.Targets {
		n, known := v.Lookup(t.Node())
		if !known || t.From != inventory.Allocated || t.Group == "" || n.Configured == nil {
			continue
		}
		differ := t.Variables == "" || t.Variables != n.Configured.Variables
		if !differ || len(n.Configured.Extra) == 0 {
			continue
		}

		vars := in.Vars[t.Name]
		if settings.FolderVars != nil {
			own, _ := settings.FolderVars(j.PlaybookDigest, t.Node(), t.Group)
			vars = own.Merge(vars)
		}

		names := slices.DeleteFunc(n.Configured.Undone(differ, func(name string) string {
			return key.ChecksumOf(name, vars)
		}), func(name string) bool {
			_, again := in.Extra[name]
			return again
		})

		if text := job.TakenBack(&n, names); text != "" {
			warnings = append(warnings, text)
		}
	}

	return warnings
}

// secretAnywhere reports whether the variable is marked as secret for one of the hosts.
func secretAnywhere(in job.Inputs, name string) bool {
	found := false

	in.EachVars(func(_ string, vars map[string]configuration.Var) {
		_, secret := vars[name].Value.(configuration.Secret)
		found = found || secret
	})

	return found
}

// checkReadable refuses inputs with secrets that cannot be read now.
func checkReadable(in job.Inputs) error {
	hosts := []map[string]map[string]configuration.Var{in.Vars}
	for _, group := range slices.Sorted(maps.Keys(in.CleanupVars)) {
		hosts = append(hosts, in.CleanupVars[group])
	}

	for _, vars := range hosts {
		for _, host := range slices.Sorted(maps.Keys(vars)) {
			if err := configuration.CheckReadable(vars[host]); err != nil {
				return err
			}
		}
	}

	extra := make(map[string]configuration.Var, len(in.Extra))
	for name, value := range in.Extra {
		extra[name] = configuration.Var{Value: value, Origin: configuration.OriginRequest}
	}

	return configuration.CheckReadable(extra)
}

func hideAll(
	secrets configuration.Secrets, vars map[string]map[string]configuration.Var,
) map[string]map[string]configuration.Var {
	hidden := make(map[string]map[string]configuration.Var, len(vars))
	for host, v := range vars {
		hidden[host] = secrets.HideMerged(v)
	}

	return hidden
}

// Cancel asks a job to end. A Queued job ends at once; a Running one takes its
// failure path. The second request skips the cleanup.
func (e *Engine) Cancel(ctx context.Context, c access.Caller, id string) (job.Job, error) {
	entry := access.Record{Action: "jobs.cancel", Targets: []string{id}}

	return e.audited(ctx, c, entry, func(ctx context.Context, _ *access.Record) (job.Job, error) {
		return e.jobs.Decide(ctx, c, access.Job(id), func(tx *record.Tx) (job.Job, error) {
			j, err := state.ViewOf(tx).Job(id)
			if err != nil {
				return job.Job{}, err
			}

			if j.Status.Ended() {
				return job.Job{}, inventory.Errorf(inventory.KindRefused, "job %s has ended: %s", j.ID, j.Status).
					Do("see its result").With(inventory.ShowJob(j.ID))
			}

			j = withCancel(j, c.Principal)
			record.Put(tx, &job.Kind, &j)
			c.Keep(tx, access.Result{Job: j.ID})

			return j, nil
		})
	})
}

// withCancel returns the job with one more cancel request.
func withCancel(j job.Job, principal string) job.Job {
	if j.Status == job.Queued {
		j.Status, j.Cause, j.Ended = job.Cancelled, job.CauseCancelled, time.Now()
		j.Message = job.CancelledWhileQueued(principal)
		j.Cancel, j.CancelBy = 1, principal
		return j
	}

	j.Cancel, j.CancelBy = min(j.Cancel+1, 2), cmp.Or(j.CancelBy, principal)

	return j
}
