// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// Retry submits an ended job again with the inputs it was accepted with:
// playbooks, merged and extra variables, group and options. Only the ssh
// parameters are taken as they are now: they are often the correction. failed
// leaves out the targets that succeeded. The new job is checked like any other.
func (e *Engine) Retry(ctx context.Context, c access.Caller, ref string, failed bool) (job.Job, error) {
	record := access.Record{Action: "jobs.retry", Targets: []string{ref}}

	return e.audited(ctx, c, record, func(record *access.Record) (job.Job, error) {
		return e.retry(ctx, c, ref, failed, record)
	})
}

func (e *Engine) retry(
	ctx context.Context, c access.Caller, ref string, failed bool, record *access.Record,
) (job.Job, error) {
	settings := e.settings()
	if j, err := c.ReplayJob(ctx, e.store, e.state); j != nil || err != nil {
		return orZero(j), err
	}

	old, err := e.state.View().Job(ref)
	if err != nil {
		return job.Job{}, err
	}

	names, unfinished := old.Names(), old.Unfinished()

	switch {
	case !old.Status.Ended():
		return job.Job{}, inventory.Errorf(inventory.KindRefused, "job %s has not ended: it is %s", old.ID, old.Status).
			Do("wait for it, or cancel it").With(inventory.WaitForJob(old.ID), inventory.CancelJob(old.ID))
	case len(unfinished) == 0:
		return job.Job{}, inventory.Errorf(inventory.KindRefused, "nothing failed in job %s", old.ID).
			Do("to do the same again, submit a new job").With(anew(old, names))
	case failed:
		names = unfinished
	}

	// A retry repeats the job as it was accepted, even if the configuration has changed.
	in, err := e.keptInputs(ctx, old, names)
	if err != nil {
		return job.Job{}, err
	}

	r := retryRequest(old, names, in)
	record.Action, record.Targets, record.Reason = record.Action+"."+string(r.Verb), names, r.Reason

	pin := func(v *state.View, j *job.Job) (job.Inputs, error) {
		j.RetryOf = old.ID
		return retryInputs(v, settings, old, j, r, in)
	}
	digest := func(context.Context) (string, error) { return old.PlaybookDigest, nil }

	j, err := e.queue(ctx, c, settings, r, digest, pin)

	if refusal, ok := errors.AsType[*inventory.Error](err); ok && refusal.Kind == inventory.KindRefused {
		// The lifecycle refuses to repeat a success. Name the option that leaves it out.
		succeeded := func(name string) bool {
			return slices.Contains(names, name) && !slices.Contains(unfinished, name)
		}
		if slices.ContainsFunc(refusal.Nodes, succeeded) {
			refusal.Actions = nil
			return job.Job{}, refusal.Do("leave out the nodes that succeeded").With(inventory.RetryJob(old.ID, true))
		}
	}

	return j, err
}

// keptInputs returns the inputs of an ended job, or refuses if they or its
// playbooks are no longer kept.
func (e *Engine) keptInputs(ctx context.Context, old job.Job, names []string) (job.Inputs, error) {
	in, err := e.store.Inputs(ctx, old.ID)
	if inventory.KindOf(err) == inventory.KindNotFound || err == nil && in.Vars == nil {
		return in, inventory.Errorf(inventory.KindRefused, "the inputs of job %s are no longer kept", old.ID).
			Do("submit a new job, with the playbooks and variables of today").With(anew(old, names))
	}

	if err != nil {
		return in, err
	}

	// A job that cleans with the playbooks of its nodes may have none of its own.
	if old.PlaybookDigest == "" {
		return in, nil
	}

	kept, err := e.keepPlaybooks(ctx, old.PlaybookDigest)
	if err == nil && !kept {
		err = inventory.Errorf(inventory.KindRefused,
			"the playbooks that job %s was accepted with are no longer kept on this host, "+
				"and the folder of playbooks is not as it was then", old.ID).
			Do("restore the folder, or submit a new job, with the playbooks and variables of today").
			With(anew(old, names))
	}

	return in, err
}

// keepPlaybooks reports whether the playbooks with that digest are on this host.
// If they are not, it copies the configured folder as it is now: the same
// content has the same digest.
func (e *Engine) keepPlaybooks(ctx context.Context, digest string) (bool, error) {
	if e.playbooks.Kept(ctx, digest) {
		return true, nil
	}

	now, err := e.playbooks.Pin(ctx)

	return err == nil && now == digest, err
}

func retryRequest(old job.Job, names []string, in job.Inputs) job.Request {
	r := job.Request{
		Verb: old.Verb, Group: old.Group, Extra: in.Extra, OnFailure: old.OnFailure, Serial: old.Serial,
		MaxFailures: old.MaxFailures, Timeout: old.Timeout,
		Playbooks: old.Playbooks, Force: old.Force, TakeOver: old.TakeOver, Reason: old.Reason,
	}
	if old.TakesAddrs() {
		r.Addrs = names
	} else {
		r.Nodes = names
	}

	return r
}

// retryInputs returns the old job's variables with the ssh parameters of now. It
// refuses a target that is meant for another group by now.
func retryInputs(
	v *state.View, settings Settings, old job.Job, j *job.Job, r job.Request, in job.Inputs,
) (job.Inputs, error) {
	now := inputs(v, settings, *j, r)

	for _, t := range j.Targets {
		// Variables of the former group do not fit the new one.
		was, _ := old.Target(t.Name)
		if t.Group != was.Group {
			return job.Inputs{}, inventory.Errorf(inventory.KindRefused,
				"%s is in group %s now, and job %s was for group %s", t.Name, t.Group, old.ID, was.Group).
				Do("submit a new job").With(anew(old, j.Names())).About(t.Name)
		}

		now.Vars[t.Name] = in.Vars[t.Name]
	}

	return now, nil
}

// anew returns the action that submits the same job for the names as a new one.
func anew(old job.Job, names []string) inventory.Action {
	if old.TakesAddrs() {
		return inventory.Discover(names...)
	}

	return inventory.Submit(old.Verb, names...).Joining(old.Group)
}
