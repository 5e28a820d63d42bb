// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// upgrade starts the rollout of a decision, or aborts the one that it supersedes. The key of
// the caller makes both happen once.
func (l *Leader) upgrade(
	ctx context.Context, settings Settings, c access.Caller, d state.Decision,
) (state.Decision, error) {
	if d.Action == state.ActionSupersede {
		_, err := l.Rollouts.Abort(ctx, c, d.Rollout, rollout.AbortOptions{
			Reason: inventory.Shorten(d.Case, maxReason),
		})

		return d, l.refusal(settings, d, err)
	}

	u, ok := policy.Named(settings.Settings, d.Policy).(policy.Upgrade)
	if !ok {
		return d, inventory.Errorf(inventory.KindRefused, "there is no policy %q for upgrades any more", d.Policy)
	}

	w := policy.World{View: l.State.View(), Settings: settings.Settings, Now: time.Now()}

	r, err := l.Rollouts.Start(ctx, c, u.Request(w, d))
	if err == nil {
		// Several commits may have these playbooks.
		d.Rollout, d.Commit = r.ID, cmp.Or(r.Commit, d.Commit)
	}

	return d, l.refusal(settings, d, err)
}

// refusal returns the error of a rollout. A refusal for a reason that the policy would have
// waited for, such as a rollout of a person that came first, withdraws the decision: only the
// others are due to the commit.
func (l *Leader) refusal(settings Settings, d state.Decision, err error) error {
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
