// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestRecover loses two of three members. The third is made whole with everything that was acknowledged, others join it
// anew, and a lost one that comes back with its data takes part no more.
func TestRecover(t *testing.T) {
	t.Parallel()

	c := newThree(t, false)
	leader, others := c.leader(t)
	survivor, lost := others[0], []*instance{leader, others[1]}

	for _, key := range []string{"a", "b", "c"} {
		leader.put(t, key)
		survivor.holds(t, key)
	}
	leader.put(t, "last") // tells the others that the one before was committed

	// As after the loss of its power: the database lacks the newest records, and the log has them.
	data := survivor.opts.dataDir()
	errtest.None(t, os.CopyFS(data+".crashed", os.DirFS(data)))

	none := func(*Client) error { t.Error("the store was changed"); return nil }
	refused := func(what string, finish func(*Client) error) {
		t.Helper()

		err := Recover(within(t, testTimeout), survivor.opts, finish)
		if inventory.KindOf(err) != inventory.KindRefused {
			t.Errorf("%s: got %v", what, err)
		}
	}

	errtest.None(t, lost[0].server.Close())
	errtest.None(t, survivor.server.Close())
	errtest.None(t, os.RemoveAll(data))
	errtest.None(t, os.Rename(data+".crashed", data))
	refused("while another member answers", none)
	errtest.None(t, lost[1].server.Close())

	// The others got their votes a moment ago, which its description does not say yet.
	described, err := ReadMember(survivor.opts.Dir)
	errtest.None(t, err)

	described.Endpoints, described.Learners = nil, described.Endpoints
	errtest.None(t, WriteMember(survivor.opts.Dir, described))

	// It is repeated after an error, and nothing starts before that.
	broken := errors.New("broken")
	err = Recover(within(t, testTimeout), survivor.opts, func(*Client) error { return broken })
	if !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}

	if s, err := StartServer(t.Context(), survivor.opts); err == nil {
		s.Close()
		t.Error("a server started in the middle of a recovery")
	} else if !strings.Contains(err.Error(), "recover did not come to its end") {
		t.Errorf("got %v", err)
	}

	err = Recover(within(t, testTimeout), survivor.opts, func(client *Client) error {
		_, err := client.Put(within(t, testTimeout), "/t/epoch", "2")
		return err
	})
	errtest.None(t, err)

	survivor.start(t)
	survivor.holds(t, "a", "b", "c", "epoch")
	survivor.put(t, "alone")

	if members := c.members(t, survivor); len(members) != 1 || members[0].Learner || members[0].Name != survivor.Name ||
		members[0].PeerURLs[0] != survivor.PeerURL() {
		t.Fatalf("the members are %+v", members)
	}

	c.instances[0] = survivor
	joined := c.join(t)

	known, err := Others(lost[0].opts.Dir)
	errtest.None(t, err)

	// One that is lost comes back. It learns what happened, and takes part no more.
	back := start(t, lost[0].opts)

	eventually(t, "the lost one is told", func() bool {
		answers, err := Ask(within(t, testTimeout), lost[0].opts.Dir, "/t/epoch", known)
		errtest.None(t, err)

		return slices.ContainsFunc(answers, func(a Answer) bool { return string(a.Value) == "2" })
	})

	eventually(
		t,
		"the new one has all",
		func() bool { return CaughtUp(c.named(t, survivor, joined.Name), c.members(t, survivor)) },
	)

	if members := c.members(t, survivor); len(members) != 2 {
		t.Errorf("the members are %+v", members)
	}

	errtest.None(t, back.Close())
	errtest.None(t, survivor.server.Close())
	errtest.None(t, joined.server.Close())

	// What a lost one had is read without starting it.
	err = lost[0].opts.WithCopy(within(t, testTimeout), func(client *Client) error {
		for _, key := range []string{"a", "b", "c", "epoch"} {
			resp, err := client.Get(within(t, testTimeout), "/t/"+key)
			if err != nil || len(resp.Kvs) != 1 != (key == "epoch") {
				t.Errorf("the copy has %v, %v for %s", resp, err, key)
			}
		}

		return nil
	})
	errtest.None(t, err)

	if left, _ := filepath.Glob(lost[0].opts.Dir + ".copy*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestRecoverLearner makes the only voter of a member that had no vote.
func TestRecoverLearner(t *testing.T) {
	t.Parallel()

	c := newCluster(t, false)
	c.open(t)
	learner := c.join(t)
	voter := c.instances[0]
	voter.put(t, "a")

	eventually(t, "the learner has all", func() bool {
		return CaughtUp(c.named(t, voter, learner.Name), c.members(t, voter))
	})
	errtest.None(t, learner.server.Close())
	errtest.None(t, voter.server.Close())

	// Without the learner, the voter is a majority.
	described, err := ReadMember(voter.opts.Dir)
	errtest.None(t, err)

	described.Learners = []string{learner.ClientURL()}
	errtest.None(t, WriteMember(voter.opts.Dir, described))

	err = Recover(within(t, testTimeout), voter.opts, func(*Client) error { t.Error("it was changed"); return nil })
	if inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("the only voter: got %v", err)
	}

	errtest.None(t, Recover(within(t, testTimeout), learner.opts, func(*Client) error { return nil }))

	learner.start(t)
	learner.holds(t, "a")
	learner.put(t, "alone")

	if members := c.members(t, learner); len(members) != 1 || members[0].Learner ||
		members[0].PeerURLs[0] != learner.PeerURL() {
		t.Errorf("the members are %+v", members)
	}
}

// TestRecoverAlone refuses a server that never had others.
func TestRecoverAlone(t *testing.T) {
	t.Parallel()

	c := newCluster(t, false)
	c.open(t)
	only := c.instances[0]
	only.put(t, "a")
	errtest.None(t, only.server.Close())

	err := Recover(within(t, testTimeout), only.opts, func(*Client) error { t.Error("it was changed"); return nil })
	if inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("got %v", err)
	}

	only.start(t)
	only.holds(t, "a")
}
