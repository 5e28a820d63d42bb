// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/notify"
)

// follow sends what FollowChanges emits after the revision, until the test ends. The
// channel is closed at its end, with the error in ended.
func follow(t *testing.T, s *Store, after int64) (emitted <-chan notify.Change, stop func() error) {
	t.Helper()

	ctx, cancel := context.WithCancel(within(t, patience))
	out, ended := make(chan notify.Change, 100), make(chan error, 1)

	go func() {
		ended <- s.FollowChanges(ctx, after, func(revision int64, list []notify.Change) error {
			out <- notify.Change{Revision: revision}

			for _, c := range list {
				out <- c
			}

			return nil
		})
	}()

	return out, func() error { cancel(); return <-ended }
}

// TestPositionSurvivesCompaction: without any event, the stored position follows the
// store, so that a compaction while the manager is away loses nothing.
func TestPositionSurvivesCompaction(t *testing.T) {
	t.Parallel()

	s := open(t, dial(t, own(t), "/p"))
	ctx := within(t, patience)

	begin, err := s.Head(ctx)
	must(t, err)

	emitted, stop := follow(t, s, begin)

	// Writes that are no changes of nodes and jobs, as the output of a job.
	for range 10 {
		must(t, second(s.client.Put(ctx, s.key("/x/something"), "")))
	}

	// The position becomes that of its own last write, as in the sweep of a notifier.
	at := notify.Position{Revision: begin}

	for range 2 {
		must(t, s.Enqueue(ctx, at, nil))

		select {
		case c := <-emitted:
			at.Revision = c.Revision
		case <-ctx.Done():
			t.Fatal("the write of the position is not reported")
		}
	}

	must(t, s.Enqueue(ctx, at, nil))

	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}

	head, err := s.Head(ctx)
	must(t, err)
	must(t, second(s.client.Compact(ctx, head, clientv3.WithCompactPhysical())))

	stored, err := s.Position(ctx)
	must(t, err)

	emitted, stop = follow(t, s, stored.Revision)
	name := seen(t, s, 1)[0]

	for {
		select {
		case c := <-emitted:
			if c.Node == nil {
				continue
			}

			if c.Node.Name != name || c.WasNode != nil {
				t.Errorf("the change is %+v", c)
			}

			_ = stop()

			return
		case <-ctx.Done():
			t.Fatal(stop())
		}
	}
}

// TestForgottenChanges: a position that the store has compacted away is expired.
func TestForgottenChanges(t *testing.T) {
	t.Parallel()

	s := open(t, dial(t, own(t), "/p"))
	ctx := within(t, patience)

	begin, err := s.Head(ctx)
	must(t, err)
	changeAddr(t, s, seen(t, s, 1)[0])

	head, err := s.Head(ctx)
	must(t, err)
	must(t, second(s.client.Compact(ctx, head, clientv3.WithCompactPhysical())))

	err = s.FollowChanges(ctx, begin, func(int64, []notify.Change) error { return nil })
	if inventory.KindOf(err) != inventory.KindExpired {
		t.Errorf("the error is %v", err)
	}
}
