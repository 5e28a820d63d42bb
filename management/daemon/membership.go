// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/cluster"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/management/state"
)

// enterRetry is the time between two attempts to enter a full store.
const enterRetry = 2 * time.Second

// membership is the authority of this instance. If the store is full at the start, it
// begins once there is room; until then this instance serves reads only.
type membership struct {
	mu      sync.Mutex
	session *store.Session // nil: not yet
}

var _ cluster.Membership = (*membership)(nil)

func (m *membership) current() *store.Session {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.session
}

// Leads reports whether this instance does the singleton duties now.
func (m *membership) Leads() bool {
	session := m.current()
	return session != nil && session.Leads()
}

// Own makes this instance the owner of the job.
func (m *membership) Own(ctx context.Context, job string) (context.Context, func(), error) {
	session := m.current()
	if session == nil {
		return nil, nil, errReadOnly()
	}

	return session.Own(ctx, job)
}

func (m *membership) close() {
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

// enter makes this the instance that runs the jobs. It returns at once if the store is
// full, and enters when there is room.
func (d *Daemon) enter(ctx context.Context, c setting.Config) error {
	id, err := instanceID(c.DataDir)
	if err != nil {
		return err
	}

	d.identity = cluster.Identity{ID: id, Node: d.node.Name()}

	self := state.Instance{
		Identity: d.identity, Addr: d.node.Addr, API: []string{"unix://" + c.Socket},
		Version: d.opts.Version.Version, Started: time.Now().UTC(),
	}
	for _, addr := range d.addrs {
		if addr.Network() == "tcp" {
			self.API = append(self.API, "http://"+addr.String())
		}
	}

	options := store.SessionOptions{Self: self, TTL: store.SessionTTL, Log: d.opts.Logger, Lost: func(err error) {
		d.failed <- fmt.Errorf("another instance runs the jobs: %w", err)
	}}
	d.member = &membership{}

	// Before a late entry: its wait must have ended when the session is closed.
	d.onStop("instance", func(context.Context) error { d.member.close(); return nil })

	d.member.session, err = d.store.Enter(ctx, options)
	if etcd.IsFull(err) {
		d.opts.Logger.WithError(err).Error("the store is full: only reads are served until there is room")
		d.enterLater(ctx, options)

		err = nil
	}

	return err
}

// enterLater enters once the store has room.
func (d *Daemon) enterLater(ctx context.Context, options store.SessionOptions) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})

	go func() {
		defer close(ended)

		warn := func(error) {} // the health has the reason

		err := state.RetryUnavailable(ctx, enterRetry, warn, func() error {
			session, err := d.store.Enter(ctx, options)
			if err != nil {
				return err
			}

			d.member.mu.Lock()
			defer d.member.mu.Unlock()

			d.member.session = session

			return nil
		})

		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.failed <- err
		default:
			d.opts.Logger.Info("the store has room again: this instance runs the jobs")
		}
	}()
	d.onStop("wait for room in the store", func(context.Context) error { cancel(); <-ended; return nil })
}

// alive returns the reason why no job starts now, or nil.
func (d *Daemon) alive() error {
	switch {
	case d.member.Leads():
		return nil
	case d.member.current() == nil:
		return errReadOnly()
	}

	return inventory.Errorf(inventory.KindUnavailable,
		"the lease of this instance has expired, so it starts no job").
		Do("it continues by itself when the store answers")
}
