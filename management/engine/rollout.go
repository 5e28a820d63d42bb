// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
)

// SubmitRollout submits the job of a node of a rollout, and notes it there in the same
// transaction: a second call, later or at the same time on the same record, is refused
// with KindPrecondition. extra are the extra variables of the rollout.
func (e *Engine) SubmitRollout(
	ctx context.Context, c access.Caller, r rollout.Record, b rollout.Begin, extra configuration.Vars,
) (rollout.Record, error) {
	request := r.RequestOf(b, extra)
	entry := access.Record{
		Action: "jobs.submit." + string(request.Verb), Targets: request.Nodes, Reason: request.Reason,
	}

	_, err := e.audited(ctx, c, entry, func(ctx context.Context, _ *access.Record) (j job.Job, err error) {
		j, r, err = e.submitRollout(ctx, c, r, b, request)
		return j, err
	})

	return r, err
}

func (e *Engine) submitRollout(
	ctx context.Context, c access.Caller, r rollout.Record, b rollout.Begin, request job.Request,
) (job.Job, rollout.Record, error) {
	release, err := e.enter(ctx)
	if err != nil {
		return job.Job{}, r, err
	}
	defer release()

	settings, v := e.settings(), e.state.View()
	if err := checkCurrent(v, r); err != nil {
		return job.Job{}, r, err
	}

	digest := func(ctx context.Context) (string, error) { return e.rolloutPlaybooks(ctx, r.PlaybooksOf(b.Node)) }

	pins, err := e.prepare(ctx, c, v, settings, &request, digest)
	if err != nil {
		return job.Job{}, r, err
	}

	begun := r

	accepted, revision, err := record.Decide(ctx, e.records, func(tx *record.Tx) (job.Job, error) {
		if err := checkCurrent(tx, r); err != nil {
			return job.Job{}, err
		}

		return e.accept(ctx, c, tx, settings, request, pins, nil, func(j *job.Job, _ job.Inputs) error {
			j.Rollout = r.ID
			begun = r.Begun(b, *j, time.Now())
			record.Put(tx, &rollout.Kind, &begun)
			return nil
		})
	})
	if err != nil {
		return job.Job{}, r, err
	}
	accepted.Revision, begun.Revision = revision, revision

	return accepted, begun, nil
}

// checkCurrent refuses a record that is not the newest one of its rollout.
func checkCurrent(stored record.Reader, r rollout.Record) error {
	if record.Revision(stored, &rollout.Kind, r.ID) != r.Revision {
		return inventory.Errorf(inventory.KindPrecondition, "rollout %s was changed meanwhile", r.ID).
			Do("read it again and decide anew")
	}

	return nil
}

// rolloutPlaybooks returns the digest that a rollout is bound to, or refuses if its playbooks
// are not on this host.
func (e *Engine) rolloutPlaybooks(ctx context.Context, digest string) (string, error) {
	kept, err := e.playbooks.Keep(ctx, digest)
	if err == nil && !kept {
		err = inventory.Errorf(inventory.KindRefused,
			"the playbooks of the rollout (digest %s) are missing or damaged on this host, "+
				"and the folder of playbooks is not as it was then", shorten(digest)).
			Do("restore the folder as it was, or resume the rollout with the playbooks of now")
	}

	return digest, err
}

// PrepareRollout refuses a request for a job that could not run, as far as that is known
// before any job is accepted. It returns the digest of the playbooks of now, and their commit.
func (e *Engine) PrepareRollout(
	ctx context.Context, c access.Caller, r job.Request,
) (digest, commit string, err error) {
	release, err := e.enter(ctx)
	if err != nil {
		return "", "", err
	}
	defer release()

	pin := func(ctx context.Context) (_ string, err error) {
		digest, err = e.playbooks.Pin(ctx)
		return digest, err
	}

	_, err = e.prepare(ctx, c, e.state.View(), e.settings(), &r, pin)
	if err == nil && digest == "" {
		digest, err = e.playbooks.Pin(ctx)
	}

	return digest, e.playbooks.CommitOf(digest), err
}

// PinPlaybooks keeps a copy of the configured playbooks as they are now.
func (e *Engine) PinPlaybooks(ctx context.Context) (digest, commit string, err error) {
	digest, err = e.playbooks.Pin(ctx)
	return digest, e.playbooks.CommitOf(digest), err
}

// KeptPlaybooks reports whether the playbooks with that digest are on this host.
func (e *Engine) KeptPlaybooks(ctx context.Context, digest string) (bool, error) {
	kept, err := e.playbooks.Keep(ctx, digest)

	switch inventory.KindOf(err) {
	case inventory.KindRefused, inventory.KindInvalid, inventory.KindNotFound:
		return false, nil // there are no playbooks of now, which may be the reason for an undo
	}

	return kept, err
}
