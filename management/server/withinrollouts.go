// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"
	"time"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/rollout/leader"
	"github.com/contiv/cluster/management/state"
)

// confinedRollouts knows the rollouts of which all nodes are within the bounds.
type confinedRollouts struct{ *confined }

// shown returns a rollout without the names of nodes outside the bounds.
func (s confinedRollouts) shown(r rollout.Record, err error) (rollout.Record, error) {
	if err != nil {
		return rollout.Record{}, s.hide(err)
	}

	return r.Within(s.part()), nil
}

// mayStart refuses nodes outside the bounds, and a group in which they would leave them.
func (s confinedRollouts) mayStart(r rollout.Request) func(*state.Part) error {
	return func(p *state.Part) error {
		if err := s.allowGroup(r.Group); err != nil {
			return err
		}

		return s.mayJoin(r.Nodes, r.Group)(p)
	}
}

func (s confinedRollouts) Preview(ctx context.Context, c access.Caller, r rollout.Request) (rollout.Record, error) {
	if err := s.mayStart(r)(s.part()); err != nil {
		return rollout.Record{}, err
	}

	return s.shown(s.whole.Rollouts.Preview(ctx, c, r))
}

func (s confinedRollouts) Start(ctx context.Context, c access.Caller, r rollout.Request) (rollout.Record, error) {
	// The playbooks are parsed before the condition of the caller is looked at.
	if err := s.mayStart(r)(s.part()); err != nil {
		return rollout.Record{}, err
	}

	return s.shown(s.whole.Rollouts.Start(ctx, s.require(c, s.mayStart(r)), r))
}

func (s confinedRollouts) Undo(ctx context.Context, c access.Caller, id, reason string) (rollout.Record, error) {
	mayUndo := func(p *state.Part) error {
		r, err := leader.Get(p.View, id)
		if err != nil {
			return err
		}

		// A node goes back to its group before.
		for _, n := range r.Nodes {
			if err := s.mayJoin([]string{n.Name}, n.Group)(p); err != nil {
				return err
			}
		}

		return nil
	}

	if err := mayUndo(s.part()); err != nil {
		return rollout.Record{}, err
	}

	return s.shown(s.whole.Rollouts.Undo(ctx, s.require(c, mayUndo), id, reason))
}

func (s confinedRollouts) Remaining(r rollout.Record) (time.Duration, bool) {
	return s.whole.Rollouts.Remaining(r)
}

func (s confinedRollouts) Held(_ *state.View, r rollout.Record, node string) string {
	p := s.part()
	return p.Text(s.whole.Rollouts.Held(p.Whole(), r, node))
}

// owner returns the caller of an act on a rollout: all nodes of that have to be within the
// bounds.
func (s confinedRollouts) owner(c access.Caller, id string) access.Caller {
	return s.require(c, func(p *state.Part) error {
		_, err := leader.Get(p.View, id)
		return err
	})
}

// beginner returns the caller of an act that lets nodes be begun: the group that they enter
// is checked as at a start, and none of them has left the bounds since.
func (s confinedRollouts) beginner(c access.Caller, id string, again func(rollout.Node) bool) access.Caller {
	return s.require(c, func(p *state.Part) error {
		r, err := leader.Get(p.View, id)
		if err != nil {
			return err
		}

		if err := s.allowGroup(r.Spec.Group); err != nil {
			return err
		}

		for _, n := range r.Nodes {
			if n.State != rollout.Waiting && !again(n) {
				continue
			}

			if err := s.mayJoin([]string{n.Name}, r.Spec.Group)(p); err != nil {
				return err
			}
		}

		return nil
	})
}

func noneAgain(rollout.Node) bool { return false }

func (s confinedRollouts) Approve(ctx context.Context, c access.Caller, id, reason string) (rollout.Record, error) {
	return s.shown(s.whole.Rollouts.Approve(ctx, s.beginner(c, id, noneAgain), id, reason))
}

func (s confinedRollouts) Promote(ctx context.Context, c access.Caller, id, reason string) (rollout.Record, error) {
	return s.shown(s.whole.Rollouts.Promote(ctx, s.beginner(c, id, noneAgain), id, reason))
}

func (s confinedRollouts) Pause(ctx context.Context, c access.Caller, id, reason string) (rollout.Record, error) {
	return s.shown(s.whole.Rollouts.Pause(ctx, s.owner(c, id), id, reason))
}

func (s confinedRollouts) Resume(
	ctx context.Context, c access.Caller, id string, o rollout.ResumeOptions,
) (rollout.Record, error) {
	return s.shown(s.whole.Rollouts.Resume(ctx, s.beginner(c, id, noneAgain), id, o))
}

func (s confinedRollouts) Abort(
	ctx context.Context, c access.Caller, id string, o rollout.AbortOptions,
) (rollout.Record, error) {
	return s.shown(s.whole.Rollouts.Abort(ctx, s.owner(c, id), id, o))
}

func (s confinedRollouts) Retry(
	ctx context.Context, c access.Caller, id string, o rollout.RetryOptions,
) (rollout.Record, error) {
	again := func(n rollout.Node) bool {
		return len(o.Nodes) == 0 && n.State == rollout.Failed || slices.Contains(o.Nodes, n.Name)
	}

	return s.shown(s.whole.Rollouts.Retry(ctx, s.beginner(c, id, again), id, o))
}
