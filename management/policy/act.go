// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// acts returns the acts of the decisions that are not carried out yet, also those of an earlier process.
// Neither the brake nor a pause holds back a cancel for a person. Cancels have a lane of their own, because a
// slow job engine must not hold up the jobs of people, and are retried within half a minute.
func (l *Loop) acts(settings Settings, a state.Automation) (acts []control.Act) {
	for _, d := range a.Decisions {
		if d.Phase != state.PhaseDecided || withheld(settings, a, d) != "" {
			continue
		}

		act := control.Act{
			Key:  d.ID,
			Lane: "decisions",
			Do:   func(ctx context.Context) error { return l.work(ctx, d.ID) },
		}
		if d.Action == state.ActionYield {
			act.Lane, act.Longest = "room for people", stepTime
		}
		acts = append(acts, act)
	}

	return acts
}

// withheld returns why a decision is not carried out now, or "". One of a policy that was removed
// is refused.
func withheld(settings Settings, a state.Automation, d state.Decision) string {
	p := Named(settings, d.Policy)
	if p == nil || d.Action == state.ActionYield {
		return ""
	}
	return Halted(a, p)
}

// work carries out a decision, unless something holds it back since.
func (l *Loop) work(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()

	settings, a := l.Settings(), state.AutomationOf(l.State.View())

	d := a.Find(id)
	if d == nil || d.Phase != state.PhaseDecided || !l.Leads() || withheld(settings, a, *d) != "" {
		return nil
	}
	return l.act(ctx, settings, *d)
}

// act carries out one decision and records its result. An error is worth a retry.
func (l *Loop) act(ctx context.Context, settings Settings, d state.Decision) error {
	d, err := l.perform(ctx, settings, d)

	switch kind := inventory.KindOf(err); {
	case err == nil:
		d.Phase = state.PhaseDone
	case kind == inventory.KindUnavailable || kind == inventory.KindConflict || kind == inventory.KindInternal:
		return err
	case kind == kindWithdrawn && d.Action != state.ActionYield:
		d.Phase, d.Result = state.PhaseWithdrawn, inventory.Shorten(job.Message(err), maxResult)
		l.Logger.WithField("id", d.ID).Info("a decision was withdrawn: " + d.Result)
	default:
		d.Phase, d.Result = state.PhaseRefused, inventory.Shorten(job.Message(err), maxResult)
		l.Logger.WithError(err).WithField("id", d.ID).Warn("a decision was refused")
	}

	// A withdrawn decision leaves its node undecided.
	returned := d.Action == state.ActionVerify || d.Action == state.ActionRepair
	if returned && d.Node != "" && d.Phase != state.PhaseWithdrawn {
		if err := l.noteDecision(ctx, d); err != nil {
			return err
		}
	}

	return l.change(ctx, access.Caller{}, func(_ *state.View, a state.Automation) (*state.Automation, error) {
		a = a.Replace(d)
		return &a, nil
	})
}

const (
	maxResult = 500 // bytes of the result of a decision
	maxReason = 900 // bytes of the reason in a history and of a job
)

// perform carries out a decision, and returns it with the job or the rollout that does it.
func (l *Loop) perform(ctx context.Context, settings Settings, d state.Decision) (state.Decision, error) {
	if l.age(d) > forget {
		return d, inventory.Errorf(kindWithdrawn, "it could not be carried out within %s", forget)
	}

	caller := principal(d.Policy)
	caller.Key, caller.Precondition = keyOf(d), l.confirms(settings, d)

	// A lost node that returns, or is turned on again, comes before the action on its place.
	if d.Action == state.ActionPowerOff || d.Replaces != "" {
		caller.Depends = []record.Any{&job.Nodes, &state.Powers}
	}

	switch d.Action {
	case state.ActionYield:
		caller.Precondition = stillYields(d.Cancel)
		d.Job = d.Cancel
		_, err := l.Jobs.Cancel(ctx, caller, d.Cancel)
		return d, err
	case state.ActionQuarantine:
		return d, l.quarantine(ctx, caller, d)
	case state.ActionRecord:
		return d, l.noteDecision(ctx, d)
	case state.ActionVerify, state.ActionRepair, state.ActionCommission, state.ActionPowerOff:
		j, err := l.Jobs.Submit(ctx, caller, request(l.State.View(), settings, d))
		d.Job = j.ID

		// A rule forbids it for now. A run of a schedule has a next one in any case.
		if d.Node != "" && inventory.KindOf(err) == inventory.KindRefused {
			err = inventory.Errorf(kindWithdrawn, "%s", job.Message(err))
		}
		return d, err
	case state.ActionUpgrade, state.ActionSupersede:
		return l.upgrade(ctx, settings, caller, d)
	}

	return d, inventory.Errorf(inventory.KindRefused, "this version cannot carry out %q", d.Action)
}

// age returns how long ago a decision was taken, on a clock that does not jump. For a time from a
// clock that was ahead before the start, the age counts from the start.
func (l *Loop) age(d state.Decision) time.Duration {
	now, start := l.start()
	w := World{Now: now, Start: start}

	if age, known := w.Age(d.Time); known {
		return age
	}
	return now.Sub(start.Epoch)
}

// kindWithdrawn is the kind of the error for a decision that no longer holds.
const kindWithdrawn = inventory.KindPrecondition

// confirms is the precondition of an action: the policy would still take the decision, and
// nothing holds it back. It is evaluated after the idempotency key, so it does not concern
// an action that was accepted already.
func (l *Loop) confirms(settings Settings, d state.Decision) access.Precondition {
	return func(v *state.View) error {
		p := Named(settings, d.Policy)
		if p == nil {
			return inventory.Errorf(inventory.KindNotFound, "there is no policy %q any more", d.Policy)
		}
		if why := Halted(state.AutomationOf(v), p); why != "" {
			return inventory.Errorf(inventory.KindUnavailable, "%s", why)
		}

		w := l.world(v, settings)
		if why := Confirm(p, w, d); why != "" {
			return inventory.Errorf(kindWithdrawn, "judged again before it was carried out: %s", why)
		}

		return nil
	}
}

// stillYields is the precondition of a cancel: a repair may have begun since the
// decision, and that goes on.
func stillYields(id string) access.Precondition {
	return func(v *state.View) error {
		if j, err := v.Job(id); err == nil && !Yields(j) {
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
func request(v *state.View, settings Settings, d state.Decision) job.Request {
	r := job.Request{
		Verb:  inventory.VerbVerify,
		Nodes: []string{d.Node},
		JobOptions: inventory.JobOptions{
			SharedOptions: inventory.SharedOptions{Reason: inventory.Shorten("it returned: "+d.Case, maxReason)},
		},
	}

	if len(d.Nodes) > 0 {
		r.Nodes, r.Reason = d.Nodes, inventory.Shorten(d.Case, maxReason)
	}

	if d.Case == CaseMasters {
		r.Reason = d.Case
	}

	switch d.Action {
	case state.ActionPowerOff:
		return job.PowerOff(d.Node, inventory.Shorten(d.Case, maxReason))
	case state.ActionRepair:
		r.Verb = repairVerb(v, settings.Groups, d.Node)
	case state.ActionCommission:
		r.Verb, r.Group, r.Reason = inventory.VerbCommission, d.Group, inventory.Shorten(d.Case, maxReason)
	}

	return r
}

// repairVerb returns the verb that repairs a verified node. It repairs in place, because a cleanup interrupts
// the service. It cleans first if the applied configuration is unknown, or the group asks for it.
func repairVerb(v *state.View, groups inventory.Groups, name string) inventory.Verb {
	n, err := v.Node(name)
	if err == nil && (n.Applied == "" || groups.Reaction(n.Group) == inventory.ReactionRepair) {
		return inventory.VerbReapply
	}
	return inventory.VerbApply
}

// keyOf returns the idempotency key of a decision.
func keyOf(d state.Decision) *access.Key {
	sum := sha256.Sum256([]byte("decision\x00" + d.ID))
	id := hex.EncodeToString(sum[:])
	return &access.Key{ID: id, Request: id}
}

// noteDecision writes a decision into the history of its node, once.
func (l *Loop) noteDecision(ctx context.Context, d state.Decision) error {
	return l.note(ctx, d.Policy, map[string]string{d.Node: Sentence(d)}, d.Time)
}

// quarantine fences the node of a decision.
func (l *Loop) quarantine(ctx context.Context, c access.Caller, d state.Decision) error {
	record := access.Record{Action: "nodes.quarantine", Targets: []string{d.Node}, Reason: d.Case}

	return access.Audited(ctx, l.Audit, c, record, func(_ context.Context, _ *access.Record) error {
		return state.RetryConflict(ctx, l.State, func(v *state.View) error {
			n, err := v.Node(d.Node)

			switch {
			case err != nil:
				return err
			case n.Status == inventory.Quarantined && !n.Presence.Handled.Before(d.Time):
				return nil // an earlier attempt did it
			case !n.Presence.Back.Foreign:
				return inventory.Errorf(kindWithdrawn, "its ssh host key was trusted meanwhile")
			}

			if err := c.Precondition(v); err != nil {
				return err
			}

			if err := n.CheckQuarantine(); err != nil {
				return err
			}

			fenced, entry := n.Quarantine(inventory.Trigger{
				Actor: c.Principal, Time: d.Time,
				Reason: inventory.Shorten(d.Case+": "+n.Presence.Back.Reason, maxReason),
			})

			return node.PutNodes(ctx, l.Store, []state.NodeWrite{
				{Node: fenced, Entries: []inventory.HistoryEntry{entry}},
			})
		})
	})
}

// upgrade starts the rollout of a decision, or aborts the superseded one. The key of the caller makes both
// idempotent.
func (l *Loop) upgrade(
	ctx context.Context, settings Settings, c access.Caller, d state.Decision,
) (state.Decision, error) {
	if d.Action == state.ActionSupersede {
		_, err := l.Rollouts.Control(ctx, c, d.Rollout, rollout.ActAbort, rollout.ActOptions{
			Reason: inventory.Shorten(d.Case, maxReason),
		})

		return d, l.refusal(settings, d, err)
	}

	u, ok := Named(settings, d.Policy).(Upgrade)
	if !ok {
		return d, inventory.Errorf(inventory.KindRefused, "there is no policy %q for upgrades any more", d.Policy)
	}
	r, err := l.Rollouts.Start(ctx, c, u.Request(l.world(l.State.View(), settings), d))
	if err == nil {
		// Several commits may have these playbooks.
		d.Rollout, d.Commit = r.ID, cmp.Or(r.Commit, d.Commit)
	}

	return d, l.refusal(settings, d, err)
}

// refusal returns the error of a rollout. A refusal for a reason that the policy would have
// waited for, such as a rollout of a person that came first, withdraws the decision: only the
// others are due to the commit.
func (l *Loop) refusal(settings Settings, d state.Decision, err error) error {
	switch inventory.KindOf(err) {
	case inventory.KindRefused, inventory.KindInvalid, inventory.KindNotFound:
	default:
		return err
	}

	if why := l.confirms(settings, d)(l.State.View()); why != nil {
		return why
	}

	// A job may have ended since the start, so that the policy sees no reason to wait.
	if _, notNow := errors.AsType[*rollout.NotNowError](err); notNow {
		return inventory.Errorf(kindWithdrawn, "no node could begin: %s", job.Message(err))
	}

	return err
}
