// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// RunOptions are the parameters of Run.
type RunOptions struct {
	Manager *client.Client
	// Follow waits for the end of a job, and returns its last record.
	Follow func(ctx context.Context, j api.Job) (api.Job, error)
	// Each is called before and after each step.
	Each func(Step)
	// Reason is the reason for the histories of the nodes.
	Reason string
	// Patience is how long a step waits for a manager that does not answer.
	Patience time.Duration
}

// Run carries out the steps of a plan in order, until one fails. It returns the steps
// with their results, also with an error: that of the failed step.
func (p *Plan) Run(ctx context.Context, o RunOptions) ([]Step, error) {
	steps := p.Steps()

	for i := range steps {
		s := &steps[i]
		o.Each(*s)

		if err := p.carryOut(ctx, o, s); err != nil {
			s.Result, s.Error = StepFailed, exit.Message(err)
			if ctx.Err() != nil {
				s.Result = StepInterrupted
			}

			o.Each(*s)

			return steps, err
		}

		s.Result = StepDone
		o.Each(*s)
	}

	return steps, nil
}

// carryOut carries out one step.
func (p *Plan) carryOut(ctx context.Context, o RunOptions, s *Step) error {
	r := &request{p: p, o: o, changes: s.changes}

	switch s.kind {
	case stepConfig:
		return r.repeat(ctx, r.config)
	case stepVars:
		return r.repeat(ctx, r.vars)
	case stepNode:
		return r.repeat(ctx, r.node)
	}

	return p.job(ctx, o, s)
}

// maxConflicts bounds the attempts of a step whose record others change, in other places.
const maxConflicts = 20

// request is one write with its preconditions.
type request struct {
	p       *Plan
	o       RunOptions
	changes []Change
	again   bool // an earlier attempt may have been carried out
}

// repeat repeats an attempt while the record changes in other places, and while the
// manager does not answer. Each attempt reads the record again.
func (r *request) repeat(ctx context.Context, attempt func(context.Context) error) error {
	delays := backoff.NewExponentialBackOff()
	delays.InitialInterval, delays.MaxInterval = 100*time.Millisecond, 5*time.Second

	var since time.Time // the first failure in a row to reach the manager

	for conflicts := 0; ; {
		err := attempt(ctx)

		switch kind := inventory.KindOf(err); {
		case err == nil, isMeanwhile(err):
			return err
		case kind == inventory.KindPrecondition, kind == inventory.KindConflict:
			if conflicts++; conflicts > maxConflicts {
				return err
			}

			since = time.Time{}
		case kind == inventory.KindUnavailable:
			r.again = true

			if since.IsZero() {
				since = time.Now()
				delays.Reset()
			}

			if time.Since(since) > r.o.Patience {
				return err
			}

			if err := sleep(ctx, delays.NextBackOff()); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// sleep waits for a time, or for the end of the context.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// meanwhile is the refusal of a cell that somebody else changed since the comparison.
type meanwhile struct{ err *inventory.Error }

func (e meanwhile) Error() string { return e.err.Error() }
func (e meanwhile) Unwrap() error { return e.err }

func isMeanwhile(err error) bool {
	_, ok := errors.AsType[meanwhile](err)
	return ok
}

// pending returns the changes that are not made yet. has returns the value of a cell as
// it is now; a cell that is neither as it was compared nor as it is to be is refused.
func (r *request) pending(has func(Change) any) ([]Change, error) {
	var left []Change

	for _, c := range r.changes {
		now := has(c)

		as := func(v any) bool {
			return sameAsRead(now, v) || absent(c.Cell, now) && absent(c.Cell, v) || same(c.Cell, now, v)
		}

		done := as(c.After)
		if c.After == nil && c.value == nil {
			done = now == nil // an empty value is still there
		}

		// A secret shows no value, so it is written again if in doubt.
		secret := c.Part == PartSecrets && c.value != nil && c.value != configuration.Hidden

		switch {
		case !secret && done:
		case as(c.before()), secret && r.again:
			left = append(left, c)
		default:
			return nil, r.changedMeanwhile(c, now)
		}
	}

	return left, nil
}

// inBrief returns a value in words.
func inBrief(v any) string {
	if v == nil {
		return "not set"
	}

	return inventory.Shorten(print.Scalar(v), 80)
}

// changedMeanwhile returns the refusal of a change.
func (r *request) changedMeanwhile(c Change, now any) error {
	return meanwhile{inventory.Errorf(inventory.KindPrecondition,
		"%s was changed meanwhile: it was %s when the difference was made, and is %s now",
		c.Cell, inBrief(c.Before), inBrief(now)).
		Do("look at the difference again, then decide again")}
}

// config writes settings, groups and connections of groups in one request.
func (r *request) config(ctx context.Context) error {
	now, tag, err := readConfig(ctx, r.o.Manager)
	if err != nil {
		return err
	}

	left, err := r.pending(now.value)
	if err != nil || len(left) == 0 {
		return err
	}

	_, err = r.o.Manager.IfMatch(tag).PatchConfig(ctx, now.patch(left, r.p.groups))

	return err
}

// vars writes the variables of one scope.
func (r *request) vars(ctx context.Context) error {
	scope := scopeOf(r.changes[0].Cell)

	vars, tag, err := r.o.Manager.Newest().TaggedVars(ctx, scope)
	if err != nil {
		return err
	}

	left, err := r.pending(func(c Change) any { return vars[c.Key] })
	if err != nil || len(left) == 0 {
		return err
	}

	patch, secrets := api.Vars{}, []string(nil)
	for _, c := range left {
		patch[c.Key] = c.value

		if c.Part == PartSecrets && c.value != nil {
			secrets = append(secrets, c.Key)
		}
	}

	_, err = r.o.Manager.IfMatch(tag).PatchSecretVars(ctx, scope, patch, secrets...)

	return err
}

// node writes labels and connection of a node.
func (r *request) node(ctx context.Context) error {
	n, err := r.o.Manager.Newest().Node(ctx, r.changes[0].Name)
	if err != nil {
		return err
	}

	cells := nodeCells(n)

	left, err := r.pending(func(c Change) any { return cells[c.Cell] })
	if err != nil || len(left) == 0 {
		return err
	}

	patch, connection := api.NodePatch{Labels: map[string]*string{}}, connectionValues(n.Connection)
	connects := false

	for _, c := range left {
		if c.Part == PartLabels {
			patch.Labels[c.Key] = textOrNil(c.value)
			continue
		}

		connects = true

		if connection == nil {
			connection = map[string]any{}
		}

		if connection[c.Key] = c.value; c.value == nil {
			delete(connection, c.Key)
		}
	}

	if connects {
		whole, err := connectionOf(connection)
		if err != nil {
			return err
		}

		patch.Connection = &whole
	}

	_, err = r.o.Manager.IfMatch(client.Tag(n.Revision)).PatchNode(ctx, n.Name, patch)

	return err
}

func textOrNil(v any) *string {
	text, ok := v.(string)
	if !ok {
		return nil
	}

	return &text
}

// job submits the job of a step, on the condition that its nodes are as they were
// compared, and waits for its end.
func (p *Plan) job(ctx context.Context, o RunOptions, s *Step) error {
	submission := api.JobRequest{
		Verb:       s.move.Verb,
		Nodes:      s.move.Nodes,
		Group:      s.move.Group,
		JobOptions: inventory.JobOptions{SharedOptions: inventory.SharedOptions{Reason: o.Reason}},
		Expect:     map[string]api.Expected{},
	}

	for _, name := range s.move.Nodes {
		n := p.nodes[name]
		submission.Expect[name] = api.Expected{Status: n.Status, Group: n.Group}
	}

	// One key for all attempts: a manager that accepted the job answers with it.
	keyed := o.Manager.IdempotencyKey(api.NewRequestID() + api.NewRequestID())

	var j api.Job

	attempts := &request{p: p, o: o}

	err := attempts.repeat(ctx, func(ctx context.Context) (err error) {
		j, err = keyed.Submit(ctx, submission)

		// Another attempt would meet the same nodes.
		if e, ok := errors.AsType[*inventory.Error](err); ok && e.Kind == inventory.KindPrecondition {
			return meanwhile{e}
		}

		return err
	})
	if err != nil {
		return err
	}

	s.Job = j.ID

	end, err := o.Follow(ctx, j)
	if err != nil {
		return err
	}

	if end.Status != api.Complete {
		return exit.Errorf(exit.JobFailed, "job %s (%s) is %s: %s", end.ID, end.Verb, end.Status, end.Message)
	}

	return nil
}

// value returns the value that a change replaces, as it is now; nil for none.
func (c Config) value(change Change) any {
	at := change.Cell

	switch ofManager := at.Level == LevelManager; {
	case ofManager && at.Part == PartGroup:
		return c.orderOf(change.Before)
	case ofManager && change.value == nil && !c.removable(at):
		return nil // the removal is done
	case ofManager:
		return c.Settings[settingOf(at)].Value
	}

	return c.cells()[at]
}

// orderOf returns the order of the groups that are in the list.
func (c Config) orderOf(list any) any {
	names, _ := list.([]any)

	var order []any
	for _, name := range c.names() {
		if slices.Contains(names, any(name)) {
			order = append(order, name)
		}
	}

	return order
}

// patch returns the settings to change for the changes. order is that of the groups.
func (c Config) patch(changes []Change, order []string) map[string]any {
	patch := map[string]any{}

	for _, change := range changes {
		switch at := change.Cell; {
		case at.Level == LevelManager && at.Part != PartGroup:
			patch[settingOf(at)] = change.value
		case at.Part == PartConnection:
			patch[settingGroupSSH] = c.groupSSH(changes)
		default:
			patch[settingGroups] = c.withGroups(changes, order)
		}
	}

	return patch
}

// groupSSH returns the connections of the groups after the changes.
func (c Config) groupSSH(changes []Change) map[string]map[string]any {
	out := map[string]map[string]any{}
	for name, connection := range c.GroupSSH {
		out[name] = maps.Clone(connection)
	}

	for _, change := range changes {
		if change.Part != PartConnection || change.Level != LevelGroup {
			continue
		}

		if out[change.Name] == nil {
			out[change.Name] = map[string]any{}
		}

		if out[change.Name][change.Key] = change.value; isZero(change.value) {
			delete(out[change.Name], change.Key)
		}
	}

	maps.DeleteFunc(out, func(_ string, connection map[string]any) bool { return len(connection) == 0 })

	return out
}

// withGroups returns the groups with their rules after the changes.
func (c Config) withGroups(changes []Change, order []string) []map[string]any {
	var out []map[string]any
	for _, g := range c.Groups {
		out = append(out, maps.Clone(g))
	}

	find := func(name string) int {
		return slices.IndexFunc(out, func(g map[string]any) bool { return g["name"] == name })
	}

	for _, change := range changes {
		i := find(change.Name)

		switch {
		case change.Level != LevelGroup || change.Part == PartConnection:
		case change.Part == PartGroup && change.After == nil && i >= 0:
			out = slices.Delete(out, i, i+1)
		case change.Part == PartGroup && i < 0:
			out = append(out, map[string]any{"name": change.Name})
		case change.Part == PartRules && i >= 0:
			if out[i][change.Key] = change.value; isZero(change.value) {
				delete(out[i], change.Key)
			}
		}
	}

	// Groups that the file does not order come last, as they were.
	place := func(g map[string]any) int {
		for i, name := range order {
			if g["name"] == name {
				return i
			}
		}

		return len(order)
	}
	slices.SortStableFunc(out, func(a, b map[string]any) int { return place(a) - place(b) })

	return out
}
