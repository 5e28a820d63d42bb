// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
)

// errAway is the cause with which the context of a request ends because etcd does not
// answer the probes.
var errAway = errors.New("etcd does not answer")

// outage is a time without answers to the probes. Requests to etcd do not wait for its
// end: after a grace period, they fail with the reason.
type outage struct {
	ctx     context.Context // ends when the first probe fails
	begin   context.CancelFunc
	since   time.Time                   // of the last answer
	explain func(since time.Time) error // returns the reason, or nil; may be nil
}

func newOutage() outage {
	o := outage{since: time.Now()}
	o.ctx, o.begin = context.WithCancel(context.Background())
	return o
}

// note records the result of a probe that began at the time.
func (o *outage) note(begun time.Time, answered bool) {
	if !answered {
		o.begin()
		return
	}

	if o.since = begun; o.ctx.Err() != nil {
		o.ctx, o.begin = context.WithCancel(context.Background())
	}
}

// outage returns the present state.
func (s *Store) outage() outage {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	return s.view.outage
}

// ExplainOutage sets the function that returns the reason why etcd has not answered
// since a time, or nil. f must not block.
func (s *Store) ExplainOutage(f func(since time.Time) error) {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	s.view.outage.explain = f
}

// bounded returns a context for one request to etcd. It ends early while etcd does not
// answer the probes.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := etcd.Bounded(ctx)
	ctx, away := context.WithCancelCause(ctx)

	giveUp := func() {
		if s.outage().ctx.Err() != nil {
			away(errAway)
		}
	}
	stop := context.AfterFunc(s.outage().ctx, func() { time.AfterFunc(s.view.probeGrace, giveUp) })

	return ctx, func() { stop(); away(nil); cancel() }
}

// failure wraps the error of a request under a context of bounded.
func (s *Store) failure(ctx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), errAway) {
		return etcd.Error(err)
	}

	o := s.outage()
	silence := time.Since(o.since).Round(time.Second)

	if o.explain != nil {
		if reason := o.explain(o.since); reason != nil {
			return inventory.Errorf(inventory.KindUnavailable,
				"the store does not answer, for %s now: %w", silence, reason).
				Do("see the log of clusterm; if the disk is full, free some space")
		}
	}

	return inventory.Errorf(inventory.KindUnavailable, "the store does not answer, for %s now: %w", silence, errAway).
		Do("see the log of clusterm and the state of etcd")
}

// explained replaces the error of a request that ended because of an outage.
func (s *Store) explained(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errAway) {
		return s.failure(ctx, err)
	}
	return err
}
