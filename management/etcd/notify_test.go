// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// read returns the changes of records after the revision, and the revision of the last one.
func read(t *testing.T, s *Store, after int64) (list []record.RawChange, last int64) {
	t.Helper()

	_, err := s.ReadChanges(within(t, patience), after, func(revision int64, changes []record.RawChange) error {
		list, last = append(list, changes...), revision
		return nil
	})
	must(t, err)

	return list, last
}

// TestPositionSurvivesCompaction: without any event, the stored position follows the
// store, so that a compaction while the manager is away loses nothing.
func TestPositionSurvivesCompaction(t *testing.T) {
	t.Parallel()

	s := open(t, dial(t, own(t), "/p"))
	ctx := within(t, patience)

	begin, err := s.ReadChanges(ctx, 0, nil)
	must(t, err)

	// Writes that are no changes of records, as the output of a job.
	for range 10 {
		must(t, second(s.client.Put(ctx, s.key("/x/something"), "")))
	}

	// The position becomes that of its own last write, as in the rounds of a notifier.
	at := notify.Position{Revision: begin}

	for range 2 {
		must(t, second(record.Replace(ctx, s, &notify.PositionKind, "",
			record.Revision(s.View(), &notify.PositionKind, ""), &at)))
		_, at.Revision = read(t, s, at.Revision)
	}

	must(t, second(record.Replace(ctx, s, &notify.PositionKind, "",
		record.Revision(s.View(), &notify.PositionKind, ""), &at)))

	head, err := s.ReadChanges(ctx, 0, nil)
	must(t, err)
	must(t, second(s.client.Compact(ctx, head, clientv3.WithCompactPhysical())))

	name := seen(t, s, 1)[0]
	list, _ := read(t, s, record.One(s.View(), &notify.PositionKind).Revision)

	for _, c := range list {
		if is, was, _, err := job.Nodes.Sides(c); err != nil || is != nil && (is.Name != name || was != nil) {
			t.Errorf("the change is %+v, %v", c, err)
		} else if is != nil {
			return
		}
	}

	t.Errorf("the changes are %+v", list)
}

// TestFormerDeliveries: deliveries and the position of a former version go on.
func TestFormerDeliveries(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)

	for i := range 100 {
		must(t, second(s.client.Put(ctx, s.key("/x/deliveries/chat/%d-health", i),
			fmt.Sprintf(`{"id":"chat/%d-health","target":"chat","status":"pending"}`, i))))
	}

	must(t, second(s.client.Put(ctx, s.key("/x/notified/position"), `{"revision":7}`)))
	must(t, second(enter(t, s, instance("a"), 2*time.Second)))

	left, err := s.client.Get(ctx, s.key("/x/"), clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)

	if n := len(record.List(s.View(), &notify.DeliveryKind)); n != 100 || left.Count != 0 ||
		record.One(s.View(), &notify.PositionKind).Revision != 7 {
		t.Errorf("%d deliveries in the view, %d keys left", n, left.Count)
	}
}

// TestForgottenChanges: a position that the store has compacted away, or that was another store's, is expired.
func TestForgottenChanges(t *testing.T) {
	t.Parallel()

	s := open(t, dial(t, own(t), "/p"))
	ctx := within(t, patience)

	begin, err := s.ReadChanges(ctx, 0, nil)
	must(t, err)

	names := seen(t, s, 1)
	changeAddr(t, s, names[0])

	head, err := s.ReadChanges(ctx, 0, nil)
	must(t, err)
	must(t, second(s.client.Compact(ctx, head, clientv3.WithCompactPhysical())))

	// One that is still kept ends the range.
	changeAddr(t, s, names[0])

	for _, after := range []int64{begin, head + 1000} {
		_, err = s.ReadChanges(ctx, after, func(int64, []record.RawChange) error { return nil })
		if inventory.KindOf(err) != inventory.KindExpired {
			t.Errorf("after %d: %v", after, err)
		}
	}
}

// TestChangesWithActors: the changes of nodes, automation and rollouts come with their
// actors.
func TestChangesWithActors(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)

	begin, err := s.ReadChanges(ctx, 0, nil)
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

	var got []string

	list, _ := read(t, s, begin)
	for _, c := range list {
		n, _, _, err := job.Nodes.Sides(c)
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
	}

	if want := []string{"monitor:gossip", "ann", "bob", "anna", "eve"}; !slices.Equal(got, want) {
		t.Errorf("the actors are %q", got)
	}
}
