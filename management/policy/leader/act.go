// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/state"
)

// carryOut carries out the recorded decisions, those of an earlier process as well. One
// that cannot be carried out yet is tried again in the next round.
func (l *Leader) carryOut(ctx context.Context, settings Settings) error {
	var failures []error

	for _, d := range l.State.View().Automation.Decisions {
		if d.Phase != state.PhaseDecided || ctx.Err() != nil || !l.Leads() {
			continue
		}

		// The brake and a pause hold decisions back; people are still made room for.
		halted := policy.Halted(l.State.View().Automation, d.Policy) != ""
		if halted && d.Action != state.ActionYield {
			continue
		}

		if err := l.act(ctx, settings, d); err != nil {
			failures = append(failures, err)
		}
	}

	return errors.Join(failures...)
}

// act carries out one decision and records its result. An error is worth a retry.
func (l *Leader) act(ctx context.Context, settings Settings, d state.Decision) error {
	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()

	id, err := l.perform(ctx, settings, d)

	switch inventory.KindOf(err) {
	case "":
		d.Phase, d.Job = state.PhaseDone, id
	case inventory.KindUnavailable, inventory.KindConflict, inventory.KindInternal:
		return err
	default:
		d.Phase, d.Result = state.PhaseRefused, inventory.Shorten(job.Message(err), maxResult)
		l.Logger.WithError(err).WithField("id", d.ID).Warn("a decision was refused")
	}

	return state.RetryConflict(ctx, l.State, func(v *state.View) error {
		return l.Store.PutAutomation(ctx, v.Automation.Replace(d))
	})
}

const (
	maxResult = 500 // bytes of the result of a decision
	maxReason = 900 // bytes of the reason in a history and of a job
)

// perform carries out a decision, and returns the job that does it, if there is one.
func (l *Leader) perform(ctx context.Context, settings Settings, d state.Decision) (id string, err error) {
	if time.Since(d.Time) > forget {
		return "", inventory.Errorf(inventory.KindRefused, "it could not be carried out within %s", forget)
	}

	caller := principal(d.Policy)
	caller.Key = keyOf(d)

	switch d.Action {
	case state.ActionYield:
		caller.Precondition = stillYields(d.Cancel)
		_, err := l.Jobs.Cancel(ctx, caller, d.Cancel)

		return d.Cancel, err
	case state.ActionQuarantine:
		return "", l.quarantine(ctx, d)
	case state.ActionVerify, state.ActionRepair:
		if err := l.note(ctx, d); err != nil {
			return "", err
		}

		// A change of the mode since the decision counts.
		if !settings.Permits(d, l.State.View()) {
			return "", inventory.Errorf(inventory.KindRefused, "policies.on_return of its group was changed meanwhile")
		}

		j, err := l.Jobs.Submit(ctx, caller, request(d))

		return j.ID, err
	}

	return "", inventory.Errorf(inventory.KindRefused, "this version cannot carry out %q", d.Action)
}

// stillYields is the precondition of a cancel: a repair may have begun since the
// decision, and that goes on.
func stillYields(id string) access.Precondition {
	return func(v *state.View) error {
		if j, err := v.Job(id); err == nil && !policy.Yields(j) {
			return inventory.Errorf(
				inventory.KindPrecondition,
				"job %s may have changed its hosts by now, or has ended",
				id,
			)
		}

		return nil
	}
}

// request returns the job that carries a decision out.
func request(d state.Decision) job.Request {
	r := job.Request{
		Verb: inventory.VerbVerify, Nodes: []string{d.Node},
		Reason: inventory.Shorten("it returned: "+d.Case, maxReason),
	}

	if d.Action == state.ActionRepair {
		r.Verb = repairVerb
	}

	return r
}

// repairVerb cleans a node and configures it for its group.
const repairVerb = inventory.VerbReapply

// keyOf returns the idempotency key of a decision.
func keyOf(d state.Decision) *access.Key {
	sum := sha256.Sum256([]byte("decision\x00" + d.ID))
	id := hex.EncodeToString(sum[:])

	return &access.Key{ID: id, Request: id}
}

// note writes a decision into the history of its node, once.
func (l *Leader) note(ctx context.Context, d state.Decision) error {
	return state.RetryConflict(ctx, l.State, func(v *state.View) error {
		n, err := v.Node(d.Node)
		if err != nil || !n.Presence.Handled.Before(d.Time) {
			return err
		}

		write := mark(n, state.PolicyPrincipal(d.Policy), reasonOf(d), d.Time)

		return node.PutNodes(ctx, l.Store, []state.NodeWrite{write})
	})
}

// reasonOf returns a decision as the reason in a history.
func reasonOf(d state.Decision) string { return inventory.Shorten(policy.Sentence(d), maxReason) }

// quarantine fences the node of a decision.
func (l *Leader) quarantine(ctx context.Context, d state.Decision) error {
	record := access.Record{Action: "nodes.quarantine", Targets: []string{d.Node}, Reason: d.Case}

	return access.Audited(ctx, l.Audit, principal(d.Policy), record, func(*access.Record) error {
		return state.RetryConflict(ctx, l.State, func(v *state.View) error {
			n, err := v.Node(d.Node)

			switch {
			case err != nil:
				return err
			case n.Status == inventory.Quarantined && !n.Presence.Handled.Before(d.Time):
				return nil // an earlier attempt did it
			case !n.Presence.Back.Foreign:
				return inventory.Errorf(inventory.KindRefused, "its ssh host key was trusted meanwhile")
			}

			if err := n.CheckQuarantine(); err != nil {
				return err
			}

			fenced, entry := n.Quarantine(inventory.Trigger{
				Actor: state.PolicyPrincipal(
					d.Policy,
				),
				Reason: inventory.Shorten(d.Case+": "+n.Presence.Back.Reason, maxReason),
				Time:   d.Time,
			})

			return node.PutNodes(ctx, l.Store, []state.NodeWrite{
				{Node: fenced, Entries: []inventory.HistoryEntry{entry}},
			})
		})
	})
}
