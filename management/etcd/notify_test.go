// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// follow sends the changes that FollowChanges emits after the revision, until the test ends. The
// channel is closed at its end, with the error in ended.
func follow(t *testing.T, s *Store, after int64) (emitted <-chan record.RawChange, stop func() error) {
	t.Helper()

	ctx, cancel := context.WithCancel(within(t, patience))
	out, ended := make(chan record.RawChange, 100), make(chan error, 1)

	go func() {
		ended <- s.FollowChanges(ctx, after, func(revision int64, list []record.RawChange) error {
			out <- record.RawChange{Revision: revision}

			for _, c := range list {
				if s.key("/v/%s", c.Path) != headKey(s.client.Prefix) {
					out <- c
				}
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
			is, was, _, err := state.Nodes.Sides(c)
			must(t, err)

			if is == nil {
				continue
			}

			if is.Name != name || was != nil {
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

	err = s.FollowChanges(ctx, begin, func(int64, []record.RawChange) error { return nil })
	if inventory.KindOf(err) != inventory.KindExpired {
		t.Errorf("the error is %v", err)
	}
}

// TestChangesWithActors: the changes of nodes, automation and rollouts come with their
// actors.
func TestChangesWithActors(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)

	begin, err := s.Head(ctx)
	must(t, err)

	name := seen(t, s, 1)[0]
	n, err := s.View().Node(name)
	must(t, err)
	must(t, second(s.Forget(ctx, s.View().Revision, nil, []state.NodeWrite{{
		Node: n, Tombstone: &inventory.Tombstone{Name: name, Time: noon, Actor: "ann"},
	}}, nil)))

	a := state.AutomationOf(s.View())
	a.Resumed = state.Pause{Since: noon, Actor: "bob"}
	must(t, second(record.Replace(ctx, s, &state.Memory, "", a.Revision, &a)))

	r := putRollout(t, s, aRollout("r0000000a", 1))
	r.Status, r.Actor = rollout.Done, "eve"
	putRollout(t, s, r)

	emitted, stop := follow(t, s, begin)

	var got []string

	for len(got) < 5 {
		select {
		case c := <-emitted:
			n, _, _, err := state.Nodes.Sides(c)
			must(t, err)

			gone, _, _, err := state.Tombstones.Sides(c)
			must(t, err)

			a, _, _, err := state.Memory.Sides(c)
			must(t, err)

			r, was, _, err := rollout.Kind.Sides(c)
			must(t, err)

			switch {
			case n != nil:
				got = append(got, n.Actor)
			case gone != nil:
				got = append(got, gone.Actor)
			case a != nil:
				got = append(got, a.Resumed.Actor)
			case r != nil && (was == nil || was.Status == rollout.Running && r.Status == rollout.Done):
				got = append(got, r.Actor)
			}
		case <-ctx.Done():
			t.Fatalf("got %q, %v", got, stop())
		}
	}

	if want := []string{"monitor:gossip", "ann", "bob", "anna", "eve"}; !slices.Equal(got, want) {
		t.Errorf("the actors are %q", got)
	}

	_ = stop()
}
