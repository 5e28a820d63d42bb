// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// Plan decides about a request as Submit does, and stores the result as a plan. Nothing
// is done, unless the request asks for a check: then a job checks at once which changes
// Ansible foresees, and the plan is that of the job without the check.
func (e *Engine) Plan(ctx context.Context, c access.Caller, r job.Request) (plan.Plan, error) {
	entry := access.Record{
		Action: "plans.create." + string(r.Verb), Targets: slices.Concat(r.Nodes, r.Addrs, r.Ranges), Reason: r.Reason,
	}

	var made plan.Plan

	asked := entry.Targets
	err := access.Audited(ctx, e.audit, c, entry, func(ctx context.Context, entry *access.Record) (err error) {
		made, err = inTurn(ctx, e, c, e.plans, func(v *state.View) (plan.Plan, error) {
			settings := e.settings()
			if err := e.mayPlan(v, settings); err != nil {
				return plan.Plan{}, err
			}
			pins, err := e.prepare(ctx, c, v, settings, &r, nil)
			if err != nil {
				return plan.Plan{}, err
			}
			return e.plans.Decide(ctx, c, access.Request(r, settings.Groups), func(tx *record.Tx) (plan.Plan, error) {
				p, err := e.addPlan(ctx, c, tx, settings, r, pins)
				entry.Job, entry.Targets = p.Check, slices.Concat([]string{p.ID}, asked)
				return p, err
			})
		})

		if entry.Job, entry.Targets = "", asked; err == nil {
			entry.Job, entry.Targets = made.Check, slices.Concat([]string{made.ID}, asked)
		}

		return err
	})

	return made, err
}

// mayPlan refuses a plan if there are too many, or if the manager does not know its
// identity, which is a part of the plan.
func (e *Engine) mayPlan(v *state.View, settings Settings) error {
	now := time.Now()

	open := 0
	for _, p := range record.All(v, &plan.Kind) {
		if p.Open(now) {
			open++
		}
	}

	if open >= settings.PlanLimit {
		return inventory.Errorf(inventory.KindRefused, "%s kept that can be applied, which is the limit (jobs.plans)",
			inventory.Count(open, "plan is", "plans are")).
			Do("delete some that are not needed, or wait until they expire").With(inventory.ListPlans())
	}

	if settings.Manager == "" {
		return inventory.Errorf(inventory.KindUnavailable, "the identity of the manager is not known yet").
			Do("try again; the health shows the cause").With(inventory.ShowHealth())
	}

	return nil
}

// addPlan stores the plan, and a job that checks it, if the request asks for that.
func (e *Engine) addPlan(
	ctx context.Context, c access.Caller, tx *record.Tx, settings Settings, r job.Request, pins []step.Pin,
) (plan.Plan, error) {
	v := state.ViewOf(tx)

	j, in, err := e.judge(ctx, c, v, settings, r, pins, nil)
	if err != nil {
		return plan.Plan{}, err
	}

	checked := ""

	if r.Check {
		check := j
		check.ID, check.Diff = v.NextID(), true
		checked, j.Check = check.ID, false
		state.AcceptJob(tx, check, in)
	}

	now := time.Now()
	p := plan.Plan{
		ID: plan.NewID(settings.Manager), Manager: settings.Manager, Actor: c.Principal,
		Created: now, Expires: now.Add(settings.PlanFor),
		World: plan.NewWorld(v.Snapshot, j, settings.Groups, settings.HostCAs),
		Check: checked,
	}
	p.Describe(v.Snapshot, settings.JobLimit, settings.Windows.Hold(v, now))

	record.Put(tx, &plan.Kind, &p)
	tx.Attach(state.PutInputs{Name: plan.InputsOf(p.ID), Inputs: in})
	c.Keep(tx, access.Result{Plan: p.ID})

	return p, nil
}

// ApplyPlan submits the job of a plan: the same nodes, playbooks, variables and options.
// It refuses if the world has changed since the plan was made, and names the changes. The
// comparison and the acceptance are one: no change comes between them. A plan is applied
// once.
func (e *Engine) ApplyPlan(ctx context.Context, c access.Caller, id string) (job.Job, error) {
	entry := access.Record{Action: "plans.apply", Targets: []string{id}}

	return e.audited(ctx, c, entry, func(ctx context.Context, entry *access.Record) (job.Job, error) {
		return inTurn(ctx, e, c, e.jobs, func(v *state.View) (job.Job, error) {
			return e.applyPlan(ctx, c, v, id, entry)
		})
	})
}

func (e *Engine) applyPlan(
	ctx context.Context, c access.Caller, v *state.View, id string, entry *access.Record,
) (job.Job, error) {
	settings := e.settings()
	subject := func(s *state.Scoped) error {
		p, err := planOf(s.View, s.View, settings.Manager, id)
		if err != nil {
			return err
		}
		return s.CheckTargets(p.Job.Targets)
	}

	v, err := c.Check(ctx, e.state, v, subject)
	if err != nil {
		return job.Job{}, err
	}
	p, err := planOf(v, v, settings.Manager, id)
	if err != nil {
		return job.Job{}, err
	}
	entry.Targets = slices.Concat([]string{p.ID}, p.Job.Names())
	entry.Reason = p.Job.Reason

	// A refusal names the variables of the request, as far as they are kept.
	then, unkept := e.store.Inputs(ctx, plan.InputsOf(id))
	if err := cmp.Or(p.CheckOpen(time.Now(), settings.again(then)), unkept); err != nil {
		return job.Job{}, err
	}
	pins, changed, err := e.preparePlan(ctx, c, v, settings, p, then)
	if err != nil {
		return job.Job{}, err
	}
	return e.jobs.Decide(ctx, c, subject, func(tx *record.Tx) (job.Job, error) {
		return e.acceptPlan(ctx, c, tx, id, then, pins, changed)
	})
}

// again returns the part of its request that a refusal of a plan with the inputs shows.
func (s Settings) again(in job.Inputs) plan.Again {
	return plan.Again{Extra: s.Secrets.HideVars(in.Extra), Timeout: s.Timeout}
}

// errPlaybooksChanged ends the preparation of a plan with changed playbooks.
var errPlaybooksChanged = errors.New("the playbooks have changed")

// preparePlan refuses the job of a plan as prepare refuses a request. It returns its pins, and how
// the playbooks of today differ from those of the plan, as far as its job runs them.
func (e *Engine) preparePlan(
	ctx context.Context, c access.Caller, v *state.View, settings Settings, p plan.Plan, then job.Inputs,
) (pins []step.Pin, changed []plan.Difference, err error) {
	r := p.Job.Again(then.Extra)

	if v, err = e.admit(ctx, c, v, settings, &r); err != nil {
		return nil, nil, err
	}

	j, err := acceptRequest(v, settings, r)
	if err != nil {
		return nil, nil, p.Illegal(err, settings.again(then))
	}

	compare := func(ctx context.Context) (_ string, err error) {
		changed, err = e.comparePlaybooks(ctx, p.Job.PlaybookDigest)
		return p.Job.PlaybookDigest, err
	}

	pins, err = e.prepareSteps(ctx, step.Request{View: v, Job: j, Extra: r.Extra, Playbooks: compare})

	switch {
	case errors.Is(err, errPlaybooksChanged):
		return pins, changed, nil
	case err != nil:
		return nil, nil, err
	}

	return pins, nil, nil // a job that runs none of them ignores the change
}

// FindPlan returns the plan of the view with that id. It refuses an id of another
// manager, and is KindNotFound for one that is not kept.
func (e *Engine) FindPlan(v *state.View, id string) (plan.Plan, error) {
	return planOf(v, v, e.settings().Manager, id)
}

// planOf returns the plan of that id. v has the records of r, and manager is the identity of this manager.
func planOf(r record.Reader, v *state.View, manager, id string) (plan.Plan, error) {
	if err := plan.CheckID(id, manager); err != nil {
		return plan.Plan{}, err
	}

	p := record.Get(r, &plan.Kind, id)
	if p == nil {
		return plan.Plan{}, cmp.Or(v.Damaged(&plan.Kind, id), plan.Unknown(id, v.Jobs()))
	}
	return *p, nil
}

// acceptPlan compares the plan with the view, and accepts its job on it.
func (e *Engine) acceptPlan(
	ctx context.Context, c access.Caller, tx *record.Tx, id string, then job.Inputs,
	pins []step.Pin, changed []plan.Difference,
) (job.Job, error) {
	// All that plan.Compare may find different, but for the settings in a file.
	tx.DependOn(&job.Nodes, &job.Kind, &state.Variables, &state.Connections, &state.Overlays)
	v := state.ViewOf(tx)

	settings := e.settings()
	if err := settings.refuse(); err != nil {
		return job.Job{}, err
	}
	p, err := planOf(tx, v, settings.Manager, id)
	if err != nil {
		return job.Job{}, err
	}

	again := settings.again(then)
	if err := p.CheckOpen(time.Now(), again); err != nil {
		return job.Job{}, err
	}

	r := p.Job.Again(then.Extra)

	var differs error

	j, err := e.accept(ctx, c, tx, settings, r, pins, nil, func(j *job.Job, now job.Inputs) error {
		world := plan.NewWorld(v.Snapshot, *j, settings.Groups, settings.HostCAs)
		if differs = p.Refuse(slices.Concat(changed, plan.Compare(p, then, world, now)), again); differs != nil {
			return differs
		}

		j.Plan, j.PlannedBy, j.Note = p.ID, p.Actor, p.Job.Note
		p.Applied, p.AppliedBy, p.AppliedAt = j.ID, c.Principal, j.Accepted
		record.Put(tx, &plan.Kind, &p)

		return nil
	})
	if err != nil {
		err = cmp.Or(differs, p.Illegal(err, again))
	}
	return j, err
}

// comparePlaybooks returns errPlaybooksChanged, and the difference, if the playbooks of
// today are not those of the digest.
func (e *Engine) comparePlaybooks(ctx context.Context, planned string) ([]plan.Difference, error) {
	now, err := e.playbooks.Pin(ctx)
	if err != nil || now == planned {
		return nil, err
	}
	return []plan.Difference{{Text: e.describeChanged(ctx, planned, now)}}, errPlaybooksChanged
}

// describeChanged names the files that differ between the playbooks of two digests.
func (e *Engine) describeChanged(ctx context.Context, then, now string) string {
	text := fmt.Sprintf("the playbooks have changed (digest %s now, and %s then)", shorten(now), shorten(then))

	before, after := e.playbooks.CommitOf(then), e.playbooks.CommitOf(now)
	if before != "" || after != "" {
		text = fmt.Sprintf("the playbooks have changed (%s now, and %s then)", nameOf(now, after), nameOf(then, before))
	}

	// Another instance may have made the plan, and has the copy.
	files, err := e.playbooks.Changed(ctx, then, now)
	if err != nil || len(files) == 0 {
		return text
	}
	return text + ": " + job.ShortList(files)
}

// nameOf names playbooks by their commit, or by their digest if they come from elsewhere.
func nameOf(digest, commit string) string {
	if commit == "" {
		return "digest " + shorten(digest)
	}
	return "commit " + shorten(commit)
}

// shorten returns enough of a digest for a person to tell two apart.
func shorten(digest string) string { return digest[:min(len(digest), 12)] }

// DeletePlan removes a plan, and returns a revision of the store without it. Its job, if
// it was applied, goes on.
func (e *Engine) DeletePlan(ctx context.Context, c access.Caller, id string) (revision int64, err error) {
	entry := access.Record{Action: "plans.delete", Targets: []string{id}}
	err = access.Audited(ctx, e.audit, c, entry, func(ctx context.Context, _ *access.Record) error {
		subject := func(s *state.Scoped) error {
			_, err := e.FindPlan(s.View, id)
			return err
		}

		_, _, err := access.Decide(ctx, e.records, c, subject, func(tx *record.Tx) (any, error) {
			if _, err := planOf(tx, state.ViewOf(tx), e.settings().Manager, id); err != nil {
				return nil, err
			}

			dropPlan(tx, id)
			return nil, nil
		})

		return err
	})

	return e.state.View().Revision, err
}

// dropPlan removes a plan with its inputs.
func dropPlan(tx *record.Tx, id string) {
	tx.Attach(state.DropInputs{Name: plan.InputsOf(id)})
	record.Remove(tx, &plan.Kind, id)
}

// expirePlans removes the plans that are over.
func (e *Engine) expirePlans(ctx context.Context, now time.Time) error {
	expired := plan.Expired(record.List(e.state.View(), &plan.Kind), now)
	if len(expired) == 0 {
		return nil
	}
	entry := access.Record{Action: "plans.expire", Targets: expired, Reason: "their time is over (jobs.plan_for)"}

	return e.decideItself(ctx, entry, func(context.Context) error { return e.drop(ctx, expired, dropPlan) })
}
