// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"maps"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// Retry submits an ended job again: its targets, extra variables, group and
// options, with the playbooks and variables of now. They are often the
// correction; the new job lists the differences. A pinned retry takes the
// playbooks and variables of the old job, and only the ssh parameters of now.
// The new job is checked like any other.
func (e *Engine) Retry(
	ctx context.Context, c access.Caller, ref string, r job.RetryRequest,
) (job.Job, error) {
	record := access.Record{Action: "jobs.retry", Targets: []string{ref}}

	return e.audited(ctx, c, record, func(ctx context.Context, record *access.Record) (job.Job, error) {
		return e.retry(ctx, c, ref, r, record)
	})
}

func (e *Engine) retry(
	ctx context.Context, c access.Caller, ref string, retry job.RetryRequest, record *access.Record,
) (job.Job, error) {
	settings := e.settings()
	if j, found, err := e.jobs.Replay(ctx, c); found || err != nil {
		return j, err
	}

	v, err := c.Check(ctx, e.state, e.state.View(), access.Retry(ref, retry))
	if err != nil {
		return job.Job{}, err
	}
	old, err := v.Job(ref)
	if err != nil {
		return job.Job{}, err
	}

	retry.Usual = settings.Timeout

	r, differences, err := v.Retry(old, retry)
	if err != nil {
		return job.Job{}, err
	}
	names := slices.Concat(r.Nodes, r.Addrs)

	then, err := e.keptInputs(ctx, old, names)
	if err != nil {
		return job.Job{}, err
	}
	r.Extra = maps.Clone(then.Extra)
	if r.Extra == nil {
		r.Extra = configuration.Vars{}
	}

	maps.Copy(r.Extra, retry.Extra)

	record.Action, record.Targets, record.Reason = record.Action+"."+string(r.Verb), names, r.Reason

	// The digest is known once the request itself is found right.
	digest := ""
	choose := func(ctx context.Context) (_ string, err error) {
		if retry.Pinned {
			digest = old.PlaybookDigest
			return digest, e.checkKept(ctx, old, names)
		}

		digest, err = e.playbooks.Pin(ctx)

		return digest, err
	}
	pin := func(v *state.View, j *job.Job) (now job.Inputs, err error) {
		if now = inputs(v, settings, *j, r); retry.Pinned {
			now, err = pinnedInputs(now, old, *j, then)
		}

		j.RetryOf, j.PlaybookDigest = old.ID, digest
		j.Differences = slices.Concat(differences, job.DifferentInputs(old, *j, then, now))

		return now, err
	}

	return e.queue(ctx, c, settings, r, choose, pin)
}

// keptInputs returns the inputs of an ended job, or refuses if they are no longer
// kept.
func (e *Engine) keptInputs(ctx context.Context, old job.Job, names []string) (job.Inputs, error) {
	in, err := e.store.Inputs(ctx, old.ID)
	if inventory.KindOf(err) == inventory.KindNotFound || err == nil && in.Vars == nil {
		actions, with := job.AnewWithout(old, names, e.settings().Timeout)

		return in, inventory.Errorf(inventory.KindRefused, "the inputs of job %s are no longer kept", old.ID).
			Do("submit a new job%s", with).With(actions...)
	}

	return in, err
}

// checkKept refuses a pinned retry if the playbooks of the job are no longer kept.
func (e *Engine) checkKept(ctx context.Context, old job.Job, names []string) error {
	// A job that cleans with the playbooks of its nodes may have none of its own.
	if old.PlaybookDigest == "" {
		return nil
	}

	kept, err := e.playbooks.Keep(ctx, old.PlaybookDigest)
	if err == nil && !kept {
		err = inventory.Errorf(inventory.KindRefused,
			"the playbooks that job %s was accepted with are no longer kept on this host, "+
				"and the folder of playbooks is not as it was then", old.ID).
			Do("restore the folder, or retry with the playbooks and variables of today").
			With(inventory.RetryJob(old.ID, false).On(names...))
	}

	return err
}

// pinnedInputs returns the old job's variables with the ssh parameters of now. It
// refuses a target that is meant for another group by now.
func pinnedInputs(now job.Inputs, old, again job.Job, then job.Inputs) (job.Inputs, error) {
	for _, t := range again.Targets {
		// Variables of the former group do not fit the new one.
		was, _ := old.Target(t.Name)
		if t.Group != was.Group {
			return job.Inputs{}, inventory.Errorf(inventory.KindRefused,
				"%s is in group %s now, and job %s was for group %s", t.Name, t.Group, old.ID, was.Group).
				Do("retry it with the variables of today").
				With(inventory.RetryJob(old.ID, false).On(again.Names()...)).About(t.Name)
		}

		for _, group := range again.InputGroups(t) {
			if vars, _, known := then.Of(was, group); known {
				_, connection, _ := now.Of(t, group)
				now.Set(t.Name, group, vars, connection)
			}
		}
	}

	return now, nil
}
