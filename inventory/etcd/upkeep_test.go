// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

const mib = 1 << 20

// TestSpaces requests the state of an endpoint that answers and one that does not.
func TestSpaces(t *testing.T) {
	t.Parallel()

	s := start(t, ServerOptions{Dir: shortDir(t), NoSync: true})
	c := dial(t, s, "/t")

	const unreachable = "unix:///nonexistent/client.sock"
	c.SetEndpoints(unreachable, s.Endpoint())

	// One that never answers leaves time for what comes after, such as further checks of the health.
	ctx := within(t, testTimeout)

	spaces := c.Spaces(ctx)
	if len(spaces) != 2 || spaces[0].Endpoint != unreachable || spaces[0].Err == nil || ctx.Err() != nil {
		t.Errorf("got %+v, %v, want an error of %s", spaces, ctx.Err(), unreachable)
	}

	c.SetEndpoints(s.Endpoint())

	got := c.Spaces(within(t, testTimeout))[0]
	if got.Err != nil || got.InUse <= 0 || got.File < got.InUse || got.Quota != DefaultQuota || len(got.Alarms) > 0 {
		t.Errorf("got %+v", got)
	}
}

func TestCompactRevision(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name         string
		file, before int64
		want         int64
	}{
		{"enough room", 59, 100, 0},
		{"scarce room", 60, 100, 100},
		{"no look before", 60, 0, 0},
		{"no change since", 60, 200, 0},
	} {
		s := Space{File: tt.file, Quota: 100, Revision: 200}
		if got := compactRevision(s, look{revision: tt.before}); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestDefragments(t *testing.T) {
	t.Parallel()

	full := []Alarm{AlarmNoSpace}
	data := Space{File: 1000 * mib, InUse: 999 * mib, Quota: 1000 * mib, Alarms: full}

	for _, tt := range []struct {
		name  string
		space Space
		since time.Duration
		want  bool
	}{
		{"much is free", Space{File: 100 * mib, InUse: 40 * mib, Quota: 1000 * mib}, time.Hour, true},
		{"little is free", Space{File: 100 * mib, InUse: 60 * mib, Quota: 1000 * mib}, time.Hour, false},
		{"a small file", Space{File: 60 * mib, InUse: 1 * mib, Quota: 1000 * mib}, time.Hour, false},
		{"just done", Space{File: 100 * mib, InUse: 40 * mib, Quota: 1000 * mib}, time.Minute, false},
		{"crowded", Space{File: 600 * mib, InUse: 400 * mib, Quota: 1000 * mib}, time.Hour, true},
		{"crowded with data", Space{File: 600 * mib, InUse: 500 * mib, Quota: 1000 * mib}, time.Hour, false},
		{"full", Space{File: 1000 * mib, InUse: 900 * mib, Quota: 1000 * mib, Alarms: full}, time.Second, true},
		{"full with data", data, time.Minute, false},
		{"long full with data", data, time.Hour, true},
	} {
		if got := defragments(tt.space, tt.since); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestIsIdle(t *testing.T) {
	t.Parallel()

	now := time.Now()
	for _, tt := range []struct {
		before  look
		changes int64
		want    bool
	}{
		{look{}, 0, false},
		{look{now.Add(-time.Minute), 100}, 60, true},
		{look{now.Add(-time.Minute), 100}, 6000, false},
	} {
		if got := isIdle(tt.before, look{now, tt.before.revision + tt.changes}); got != tt.want {
			t.Errorf("%d changes since %v: got %t, want %t", tt.changes, tt.before, got, tt.want)
		}
	}
}

// filled counts the keys of fill.
var filled atomic.Int64

// fill writes until the store is full: new keys, or new revisions of a few.
func fill(t *testing.T, c *Client, overwrite bool) {
	t.Helper()

	value := strings.Repeat("x", mib/8)
	for i := range 1000 {
		key := fmt.Sprintf("/t/%d", i%3)
		if !overwrite {
			key = fmt.Sprintf("/t/%d", filled.Add(1))
		}
		_, err := c.Put(within(t, testTimeout), key, value)
		if IsFull(err) {
			return
		}

		errtest.None(t, err)
	}

	t.Fatal("the store is not full")
}

// TestUpkeepOfAFullStore expects room by compaction and defragmentation, and by
// deletions where the records themselves fill the store.
func TestUpkeepOfAFullStore(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		overwrite, deletes, want bool
		fails                    error
	}{
		"old revisions":                   {true, false, true, nil},
		"old revisions, deletions failed": {true, false, true, errors.New("a file is in use")},
		"records to delete":               {false, true, true, nil},
		"records that must stay":          {false, false, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := start(t, ServerOptions{Dir: shortDir(t), NoSync: true, Quota: 8 * mib})
			c := dial(t, s, "/t")
			ctx := within(t, testTimeout)

			fill(t, c, tt.overwrite)

			// A file that is full has free pages, so it takes several turns.
			for !tt.overwrite {
				errtest.None(t, c.DefragmentAll(ctx))

				if c.Spaces(ctx)[0].Share() > 0.95 {
					break
				}

				errtest.None(t, c.Disarm(ctx, AlarmNoSpace))

				fill(t, c, false)
			}

			var done []UpkeepAction

			u := &Upkeep{
				Client: c, Log: discardLog(),
				Idle: func() bool { return false },
				Done: func(a UpkeepAction) { done = append(done, a) },
				MakeRoom: func(ctx context.Context) error {
					if !tt.deletes {
						return tt.fails
					}

					_, err := c.Delete(ctx, "/t/", clientv3.WithPrefix())
					return err
				},
			}
			errtest.None(t, u.work(ctx))

			_, err := c.Put(ctx, "/t/more", "x")
			if got := err == nil; got != tt.want {
				t.Errorf("after %v the store accepts changes: %t (%v), want %t", done, got, err, tt.want)
			}

			if slices.Contains(done, UpkeepDisarm) != tt.want || !slices.Contains(done, UpkeepCompact) {
				t.Errorf("the upkeep did %v", done)
			}
		})
	}
}

// TestUpkeepOfSeveral expects room in the database of each of three members, and another
// leader, because the first one was busy for a while. Only the leader of the service works.
func TestUpkeepOfSeveral(t *testing.T) {
	t.Parallel()

	c := newCluster(t, false)
	c.quota = 8 * mib
	errtest.None(t, c.instances[0].server.Close())
	c.instances[0].opts.Quota = c.quota
	c.instances[0].server = start(t, c.instances[0].opts)
	c.open(t)
	c.join(t)
	c.join(t)
	c.grow(t, 3)

	before, _ := c.leader(t)
	client := c.instances[1].client
	ctx := within(t, testTimeout)

	fill(t, client, true)

	var done []UpkeepAction

	leads := false
	u := &Upkeep{
		Client: client, Log: discardLog(),
		Leads:    func() bool { return leads },
		Idle:     func() bool { return false },
		Done:     func(a UpkeepAction) { done = append(done, a) },
		MakeRoom: func(context.Context) error { return nil },
	}
	errtest.None(t, u.work(ctx))

	if len(done) > 0 {
		t.Errorf("an instance that does not lead did %v", done)
	}

	leads = true
	errtest.None(t, u.work(ctx))

	if _, err := client.Put(ctx, "/t/more", "x"); err != nil {
		t.Errorf("after %v: %v", done, err)
	}

	for _, m := range c.members(t, c.instances[0]) {
		if m.Err != nil || m.Space.Share() > 0.5 {
			t.Errorf("%s has %s, %v", m.Name, m.Space, m.Err)
		}
	}

	if after, _ := c.leader(t); after == before {
		t.Errorf("%s was defragmented while it led", before.Name)
	}
}

// TestDefragmentWaits: nothing is defragmented while a member does not answer, unless
// the store is full.
func TestDefragmentWaits(t *testing.T) {
	t.Parallel()

	c := newThree(t, false)
	ctx := within(t, testTimeout)
	client := c.instances[0].client

	errtest.None(t, c.instances[2].server.Close())

	members := c.members(t, c.instances[0])
	for i := range members {
		members[i].Space = Space{
			Endpoint: c.instances[i].ClientURL(), File: 1000 * mib, InUse: mib, Quota: 1000 * mib,
		}
	}

	for _, full := range []bool{false, true} {
		n := 0
		u := &Upkeep{Client: client, Log: discardLog(), Done: func(UpkeepAction) { n++ }}

		if _, _, err := u.defragment(ctx, members, full); err != nil || (n > 0) != full {
			t.Errorf("full %t: %d were defragmented: %v", full, n, err)
		}
	}
}

// TestUpkeepOfACrowdedStore expects an early compaction and, while the store is idle, a
// defragmentation, long before an alarm.
func TestUpkeepOfACrowdedStore(t *testing.T) {
	t.Parallel()

	s := start(t, ServerOptions{Dir: shortDir(t), NoSync: true, Quota: 8 * mib})
	c := dial(t, s, "/t")
	ctx := within(t, testTimeout)

	var done []UpkeepAction

	idle := false
	u := &Upkeep{
		Client: c, Log: discardLog(),
		Idle:     func() bool { return idle },
		Done:     func(a UpkeepAction) { done = append(done, a) },
		MakeRoom: func(context.Context) error { return errors.New("the store is not full") },
	}

	work := func() Space {
		t.Helper()
		errtest.None(t, u.work(ctx))
		return c.Spaces(ctx)[0]
	}

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	// etcd counts a write at its next commit. Faster writes would pass the quota unseen.
	for s := c.Spaces(ctx)[0]; s.Share() < WarnShare; {
		if _, err := c.Put(ctx, "/t/key", strings.Repeat("x", mib/2)); err != nil {
			t.Fatal(err)
		}

		for before := s.File; s.File == before; s = c.Spaces(ctx)[0] {
			<-tick.C
		}
	}

	if work(); len(done) > 0 {
		t.Errorf("at the first look the upkeep did %v", done)
	}

	if _, err := c.Put(ctx, "/t/key", "x"); err != nil {
		t.Fatal(err)
	}

	if work(); !slices.Equal(done, []UpkeepAction{UpkeepCompact}) {
		t.Errorf("under load the upkeep did %v", done)
	}

	// etcd counts the pages as free at its next commit, which needs a write.
	for c.Spaces(ctx)[0].Free() < crowdedFree {
		<-tick.C

		if _, err := c.Put(ctx, "/t/key", "x"); err != nil {
			t.Fatal(err)
		}
	}

	// As if the last look was long ago.
	idle, u.last.at = true, time.Now().Add(-time.Hour)

	if s := work(); !slices.Contains(done, UpkeepDefragment) || s.Share() >= WarnShare {
		t.Errorf("idle, the upkeep did %v; the share is %.2f", done, s.Share())
	}
}

// TestUpkeepLeavesCorruption expects no action while etcd reports damaged data.
func TestUpkeepLeavesCorruption(t *testing.T) {
	t.Parallel()

	s := start(t, ServerOptions{Dir: shortDir(t), NoSync: true})
	c := dial(t, s, "/t")
	ctx := within(t, testTimeout)
	raise(t, c)

	if got := c.Spaces(ctx)[0]; !got.Raised(AlarmCorrupt) {
		t.Errorf("got %+v", got)
	}

	u := &Upkeep{Client: c, Log: discardLog(), Done: func(a UpkeepAction) { t.Errorf("did %s", a) }}
	errtest.None(t, u.work(ctx))

	_, err := dial(t, s, "/t").Put(ctx, "/t/key", "x")
	if err = Error(err); inventory.KindOf(err) != inventory.KindUnavailable ||
		!strings.Contains(err.Error(), string(AlarmCorrupt)) {
		t.Errorf("got %v, want the alarm", err)
	}

	errtest.None(t, c.Disarm(ctx, AlarmCorrupt))

	if _, err := c.Put(ctx, "/t/key", "x"); err != nil {
		t.Error(err)
	}
}

// TestOpeningWritesNothing dials a store twice and compares the revisions.
func TestOpeningWritesNothing(t *testing.T) {
	t.Parallel()

	s := start(t, ServerOptions{Dir: shortDir(t), NoSync: true})
	c := dial(t, s, "/t")
	ctx := within(t, testTimeout)

	if !c.Empty() {
		t.Error("a new prefix is not empty")
	}

	errtest.None(t, c.Initialize(ctx))

	before := c.Spaces(ctx)[0].Revision

	if c := dial(t, s, "/t"); c.Empty() {
		t.Error("the prefix is empty")
	}

	if after := c.Spaces(ctx)[0].Revision; after != before {
		t.Errorf("opening a store wrote %d revisions", after-before)
	}
}

// raise raises AlarmCorrupt.
func raise(t *testing.T, c *Client) {
	t.Helper()

	ctx := within(t, testTimeout)

	members, err := c.MemberList(ctx)
	errtest.None(t, err)
	_, err = pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: members.Members[0].ID, Alarm: pb.AlarmType_CORRUPT,
	})
	errtest.None(t, err)
}
