// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/state"
)

// joinRetry is the time between two attempts to enter a full store.
const joinRetry = 2 * time.Second

// Membership is the authority of this instance. If the store is full at the start, it
// begins once there is room; until then this instance serves reads only.
type Membership struct {
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu      sync.Mutex
	session *Session // nil: not yet
}

var _ cluster.Membership = (*Membership)(nil)

// Join makes this one of the instances that run jobs, as Enter does. If the store is full, it returns at once,
// and enters when there is room; o.Lost is also called if it cannot enter then.
func (s *Store) Join(ctx context.Context, o SessionOptions) (*Membership, error) {
	m := &Membership{stop: func() {}}

	var err error
	if m.session, err = s.Enter(ctx, o); !etcd.IsFull(err) {
		return m, err
	}

	o.Log.WithError(err).Error("the store is full: only reads are served until there is room")

	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.ended.Go(func() { m.enter(ctx, s, o) })

	return m, nil
}

// enter enters once the store has room.
func (m *Membership) enter(ctx context.Context, s *Store, o SessionOptions) {
	warn := func(error) {} // the health has the reason

	err := state.RetryUnavailable(ctx, joinRetry, warn, func() error {
		session, err := s.Enter(ctx, o)
		if err != nil {
			return err
		}

		m.mu.Lock()
		defer m.mu.Unlock()

		m.session = session

		return nil
	})

	switch {
	case ctx.Err() != nil:
	case err != nil:
		o.Lost(err)
	default:
		o.Log.Info("the store has room again: this instance runs the jobs")
	}
}

func (m *Membership) current() *Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.session
}

// Leads reports whether this instance does the singleton duties now.
func (m *Membership) Leads() bool {
	session := m.current()
	return session != nil && session.Leads()
}

// Own makes this instance the owner of the job.
func (m *Membership) Own(ctx context.Context, job string, assigned int64) (context.Context, func(), error) {
	session := m.current()
	if session == nil {
		return nil, nil, errReadOnly()
	}
	return session.Own(ctx, job, assigned)
}

// Close ends the membership.
func (m *Membership) Close() {
	m.stop()
	m.ended.Wait()

	if session := m.current(); session != nil {
		session.Close()
	}
}

func errReadOnly() error {
	return inventory.Errorf(inventory.KindUnavailable,
		"the store was full when this instance started, so it serves reads only and runs no job").
		Do("see the check \"space\" of the health; it continues by itself when there is room").
		With(inventory.ShowHealth())
}

// Problem returns the reason why no job starts now, or nil.
func (m *Membership) Problem() error {
	switch session := m.current(); {
	case session == nil:
		return errReadOnly()
	case session.Alive():
		return nil
	}

	return inventory.Errorf(inventory.KindUnavailable,
		"the lease of this instance has expired, so it starts no job").
		Do("it continues by itself when the store answers")
}
