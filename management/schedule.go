// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
)

// schedule claims jobs and runs them, until ctx ends. Jobs found Running belong
// to an earlier process, or the answer to their claim was lost; they are
// continued first.
func (s *Service) schedule(ctx context.Context) {
	retry := time.NewTicker(5 * time.Second)
	defer retry.Stop()

	for {
		changed := s.Store.Changed()
		if s.Authority == nil || s.Authority() {
			for _, j := range s.View().Jobs {
				if j.Status == Running && s.launch(ctx, j) {
					s.Logger.WithFields(logrus.Fields{"job": j.ID, "phase": j.Phase()}).
						Info("found a running job; going on with it")
				}
			}

			if s.advance(ctx) {
				continue // something was claimed or ended: look again
			}
		}

		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-retry.C:
		}
	}
}

// advance takes the first queued job whose turn it is one step on.
func (s *Service) advance(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}

	v := s.View()

	settings := s.Settings()
	for _, j := range v.Jobs {
		if j.Status != Queued {
			continue
		}

		t := turn(v, settings.Groups, settings.JobLimit, j)

		var err error
		switch {
		case t.Err != nil:
			err = s.end(ctx, t.Job, Errored, CausePrecondition, t.Err.Error())
		case t.Claim:
			err = s.claim(ctx, v, t.Job)
		default:
			continue
		}

		if ctx.Err() != nil {
			return false
		}

		switch log := s.Logger.WithError(err).WithField("job", j.ID); inventory.KindOf(err) {
		case "":
			return true
		case inventory.KindConflict:
			return s.Store.Sync(ctx) == nil && s.View().Revision > v.Revision
		case inventory.KindUnavailable: // so it would be for the others
			log.Warn("the job could not be taken on; trying again")
			return false
		case inventory.KindInternal: // whatever it is, the jobs behind it that wait for none of its nodes go on
			log.Error("the job could not be taken on; trying again")
		default: // it is not going to be another time
			log.Warn("the job could not be taken on")

			if s.end(ctx, t.Job, Errored, CausePrecondition, err.Error()) == nil {
				return true
			}
		}
	}

	return false
}

// end ends a job that holds no nodes.
func (s *Service) end(ctx context.Context, j Job, status JobStatus, cause Cause, reason string) error {
	j.Status, j.Cause, j.Message, j.Ended = status, cause, reason, s.now()
	if err := s.say(ctx, j.ID, fmt.Sprintf("# job %s ended %s: %s", j.ID, status, reason)); err != nil {
		return err
	}

	_, err := s.Store.Finish(ctx, j, nil)

	return err
}

// claim takes all nodes of the job into the in-progress status, or none.
func (s *Service) claim(ctx context.Context, v *View, j Job) error {
	now := s.now()
	j.Status, j.Instance, j.Started, j.Deadline = Running, s.Instance, now, now.Add(j.Timeout)

	var writes []NodeWrite
	if t, ok := inventory.TransitionOf(j.Verb); ok {
		for _, target := range j.Targets {
			n, ok := v.node(target.Name)
			if !ok {
				return inventory.Errorf(inventory.KindConflict, "%s is gone", target.Name)
			}

			group := ""
			if j.Verb == inventory.VerbCommission {
				group = target.Group
			}

			held, entry, err := n.Hold(t, group, inventory.Trigger{Actor: j.Actor, Job: j.ID, Reason: j.Reason, Time: now})
			if err != nil {
				return err
			}

			writes = append(writes, NodeWrite{Node: held, Entries: []inventory.HistoryEntry{entry}})
		}
	}

	claimed, err := s.Store.Claim(ctx, v.Generation, j, writes)
	if err != nil {
		return err
	}

	s.Logger.WithFields(logrus.Fields{"job": j.ID, "verb": j.Verb, "nodes": j.Names()}).Info("job started")
	s.launch(ctx, claimed)

	return nil
}

// launch runs a job in a goroutine of its own, unless one does already.
func (s *Service) launch(ctx context.Context, j Job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.running[j.ID] {
		return false
	}

	s.running[j.ID] = true
	s.tasks.Go(func() {
		defer func() {
			s.mu.Lock()
			delete(s.running, j.ID)
			s.mu.Unlock()
		}()
		log := s.Logger.WithField("job", j.ID)

		wait := s.retryJob
		for {
			err := s.guarded(ctx, j.ID)
			if err == nil || ctx.Err() != nil {
				return
			}

			log.WithError(err).Error("the job could not be taken further; trying again")

			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}

			wait = min(2*wait, 30*time.Second)
		}
	})

	return true
}

// guarded is execute, with a panic made an error: a fault in one job must not
// take the daemon, and with it all others, down.
func (s *Service) guarded(ctx context.Context, id string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a fault of clusterm: %v\n%s", p, debug.Stack())
		}
	}()

	return s.execute(ctx, id)
}
