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

// makeRoom carries out the decisions to cancel a job for a person. The brake and pauses do
// not hold them back.
func (l *Leader) makeRoom(ctx context.Context, settings Settings) error {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()

	var failures []error

	for _, d := range state.AutomationOf(l.State.View()).Decisions {
		if d.Phase == state.PhaseDecided && d.Action == state.ActionYield && l.Leads() {
			failures = append(failures, l.act(ctx, settings, d))
		}
	}

	return errors.Join(failures...)
}

// startWork carries out the other decisions, those of an earlier process as well, unless
// that is being done. It does not block: a job engine that is slow must hold up neither
// the brake nor the jobs of people. It returns when the next attempt is due; zero: none.
func (l *Leader) startWork(ctx context.Context) time.Time {
	due, next := l.dueNow(l.Settings(), time.Now())
	if len(due) == 0 || !l.working.CompareAndSwap(false, true) {
		return next
	}

	l.tasks.Go(func() {
		// The flag falls first, or the round that is woken would find the work still going on.
		defer l.Kick()
		defer l.working.Store(false)

		for _, d := range due {
			l.work(ctx, d)
		}
	})

	return next
}

// dueNow returns the decisions to carry out at the time, and when the next attempt at
// another one is due.
func (l *Leader) dueNow(settings Settings, now time.Time) (due []state.Decision, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()

	a := state.AutomationOf(l.State.View())
	kept := map[string]attempt{}

	for _, d := range a.Decisions {
		if d.Phase != state.PhaseDecided || d.Action == state.ActionYield {
			continue
		}

		last := l.attempts[d.ID]
		kept[d.ID] = last

		switch {
		case withheld(settings, a, d) != "":
		case !now.Before(last.again):
			due = append(due, d)
		case next.IsZero() || last.again.Before(next):
			next = last.again
		}
	}

	l.attempts = kept

	return due, next
}

// withheld returns why a decision is not carried out now, or "". One of a policy that was removed
// is refused.
func withheld(settings Settings, a state.Automation, d state.Decision) string {
	p := policy.Named(settings.Settings, d.Policy)
	if p == nil {
		return ""
	}

	return policy.Halted(a, p)
}

// attempt is the newest attempt at a decision that failed.
type attempt struct {
	again time.Time // the next one is due
	delay time.Duration
}

// work makes one attempt at a decision. After a failure the next one is delayed.
func (l *Leader) work(ctx context.Context, d state.Decision) {
	// The brake and a pause hold it back.
	settings := l.Settings()
	if ctx.Err() != nil || !l.Leads() || withheld(settings, state.AutomationOf(l.State.View()), d) != "" {
		return
	}

	bounded, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()

	err := l.act(bounded, settings, d)
	// The end of the process is no failure of the decision.
	if err == nil || ctx.Err() != nil {
		return
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	delay := min(max(2*l.attempts[d.ID].delay, firstDelay), lastDelay)
	l.attempts[d.ID] = attempt{again: time.Now().Add(delay), delay: delay}

	l.Logger.WithError(err).WithField("id", d.ID).Warnf("a decision could not be carried out; retrying in %s", delay)
}

// act carries out one decision and records its result. An error is worth a retry.
func (l *Leader) act(ctx context.Context, settings Settings, d state.Decision) error {
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
		if err := l.note(ctx, d); err != nil {
			return err
		}
	}

	return state.RetryConflict(ctx, l.State, func(v *state.View) error {
		return l.remember(ctx, state.AutomationOf(v).Replace(d))
	})
}

const (
	maxResult = 500 // bytes of the result of a decision
	maxReason = 900 // bytes of the reason in a history and of a job
)

// perform carries out a decision, and returns it with the job or the rollout that does it.
func (l *Leader) perform(ctx context.Context, settings Settings, d state.Decision) (state.Decision, error) {
	if l.age(d) > forget {
		return d, inventory.Errorf(kindWithdrawn, "it could not be carried out within %s", forget)
	}

	caller := principal(d.Policy)
	caller.Key, caller.Precondition = keyOf(d), l.confirms(settings, d)

	switch d.Action {
	case state.ActionYield:
		caller.Precondition = stillYields(d.Cancel)
		d.Job = d.Cancel
		_, err := l.Jobs.Cancel(ctx, caller, d.Cancel)

		return d, err
	case state.ActionQuarantine:
		return d, l.quarantine(ctx, caller, d)
	case state.ActionRecord:
		return d, l.note(ctx, d)
	case state.ActionVerify, state.ActionRepair, state.ActionCommission:
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
func (l *Leader) age(d state.Decision) time.Duration {
	now, start := l.start()
	w := policy.World{Now: now, Start: start}

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
func (l *Leader) confirms(settings Settings, d state.Decision) access.Precondition {
	return func(v *state.View) error {
		p := policy.Named(settings.Settings, d.Policy)
		if p == nil {
			return inventory.Errorf(inventory.KindNotFound, "there is no policy %q any more", d.Policy)
		}

		if why := policy.Halted(state.AutomationOf(v), p); why != "" {
			return inventory.Errorf(inventory.KindUnavailable, "%s", why)
		}

		w := l.world(v, settings)
		if why := p.Confirm(w, d); why != "" {
			return inventory.Errorf(kindWithdrawn, "judged again before it was carried out: %s", why)
		}

		return nil
	}
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

	if d.Case == policy.CaseMasters {
		r.Reason = d.Case
	}

	switch d.Action {
	case state.ActionRepair:
		r.Verb = repairVerb(v, settings.Groups, d.Node)
	case state.ActionCommission:
		r.Verb, r.Group, r.Reason = inventory.VerbCommission, d.Group, inventory.Shorten(d.Case, maxReason)
	}

	return r
}

// repairVerb returns the verb that repairs a node that was verified: in place, because a cleanup
// takes away what serves. It cleans first where the configuration is unknown, or the group asks so.
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
func (l *Leader) quarantine(ctx context.Context, c access.Caller, d state.Decision) error {
	record := access.Record{Action: "nodes.quarantine", Targets: []string{d.Node}, Reason: d.Case}

	return access.Audited(ctx, l.Audit, c, record, func(*access.Record) error {
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
