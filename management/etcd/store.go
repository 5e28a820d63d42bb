// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Store keeps the records of the manager in etcd and a view of them in memory. All
// methods may be called at once; those with a context may block until it ends. Every
// write returns once the view shows it. Close the Store after use.
type Store struct {
	client    *etcd.Client
	secrets   *Secrets
	view      view
	group     group
	conflicts conflicts
	token     atomic.Int64 // the fencing token of the session; 0: none yet
	stop      context.CancelFunc
	done      sync.WaitGroup
}

// Open reads all records of the view and keeps the view current until Close. The view
// is stale after staleAfter, usually StaleAfter, without a confirmation by etcd. ctx
// bounds the first read only. kinds are the kinds of record of the callers; those that the view depends on
// may be left out. secrets encrypts and decrypts the secret variables.
func Open(
	ctx context.Context, client *etcd.Client, kinds []record.Any, secrets *Secrets, log logrus.FieldLogger,
	staleAfter time.Duration,
) (*Store, error) {
	s := &Store{client: client, secrets: secrets}
	s.view.secrets = secrets
	s.view.init(client, withOwn(kinds), log, staleAfter)
	s.conflicts.begin(withOwn(kinds))

	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// withOwn returns the kinds with those that the view reads itself: the jobs that commit reservations, and
// the kinds of package state.
func withOwn(kinds []record.Any) []record.Any {
	all := slices.Clone(kinds)

	for _, own := range append([]record.Any{&job.Kind}, state.Kinds...) {
		if !slices.ContainsFunc(all, func(k record.Any) bool { return k.KindName() == own.KindName() }) {
			all = append(all, own)
		}
	}

	return all
}

// start fills the view and starts its loops.
func (s *Store) start(ctx context.Context) error {
	revision, err := s.view.load(ctx)
	if err != nil {
		return err
	}

	// The loops outlive ctx, which may have the deadline of the start.
	var loops context.Context
	loops, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.done.Go(func() { s.view.watchLoop(loops, revision) })
	s.done.Go(func() { s.view.probeLoop(loops) })

	return nil
}

// Close ends the watch and the probes. The view remains readable.
func (s *Store) Close() {
	s.stop()
	s.done.Wait()
	s.group.close()
}

// OnProbe sets the function that receives the duration and the error of each probe of
// etcd, about one a second. f must not block.
func (s *Store) OnProbe(f func(took time.Duration, err error)) {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	s.view.onProbe = f
}

// Staleness returns the time since etcd last confirmed that the view is current.
func (s *Store) Staleness() time.Duration {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	return time.Since(s.view.confirmed)
}

// View returns the newest view, never nil.
func (s *Store) View() *state.View { return s.view.current() }

// Changed returns a channel that is closed when a newer view exists.
func (s *Store) Changed() <-chan struct{} {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	return s.view.changed
}

// Changes returns the changes of the view after the revision, about limit at most. It
// is KindExpired if some of them are no longer kept.
func (s *Store) Changes(revision int64, limit int) (state.Changes, error) {
	return s.view.feed.Since(revision, limit)
}

// Wait blocks until the view has reached the revision.
func (s *Store) Wait(ctx context.Context, revision int64) error { return s.view.wait(ctx, revision) }

// Sync reads the newest revision from etcd, by quorum, and blocks until the view has
// reached it.
func (s *Store) Sync(ctx context.Context) error {
	bounded, cancel := s.bounded(ctx)
	defer cancel()

	head, err := s.view.head(bounded)
	if err == nil {
		err = s.view.wait(bounded, head)
	}
	return s.explained(bounded, err)
}
