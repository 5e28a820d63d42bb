// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// setSchema stores the version of the data.
func setSchema(t *testing.T, s *Store, version string) {
	t.Helper()

	if _, err := s.client.Put(within(t, patience), s.key("/schema"), version); err != nil {
		t.Fatal(err)
	}
}

func schema(t *testing.T, s *Store) string {
	t.Helper()

	resp, err := s.client.Get(within(t, patience), s.key("/schema"))
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("%v, %v", resp, err)
	}
	return string(resp.Kvs[0].Value)
}

// former makes an instance one of the former version.
func former(o *SessionOptions) { o.Self.Schema = "" }

// TestEnterRaisesSchema: the data of the former version belong to it as long as an instance of it belongs to the
// manager. Instances of this build work beside it, and the leader among them raises the version once they are alone.
func TestEnterRaisesSchema(t *testing.T) {
	t.Parallel()

	s := store(t)
	setSchema(t, s, "2")

	if a, err := enter(t, s, instance("a"), time.Hour); err != nil || schema(t, s) != etcd.Schema {
		t.Fatalf("alone: version %s, %v", schema(t, s), err)
	} else {
		a.Close()
	}

	old, err := enter(t, s, instance("old"), time.Hour, former)
	must(t, err)
	setSchema(t, s, "2") // as the former version has it

	var members atomic.Value
	members.Store([]string{"b", "old"})

	ticks := make(chan time.Time)
	upgraded := func(o *SessionOptions) {
		o.ticks, o.Members = ticks, func() []string { return members.Load().([]string) }
	}

	b, err := enter(t, open(t, s.client), instance("b"), time.Hour, upgraded)
	must(t, err)

	wantSchema := func(when, want string) {
		t.Helper()

		// The second tick is taken when the first one has been worked off.
		ticks <- time.Now()
		ticks <- time.Now()

		if is := schema(t, s); is != want {
			t.Errorf("%s: version %s, want %s", when, is, want)
		}
	}

	wantSchema("behind a leader of the former version", "2")

	old.Close()
	wantSchema("an instance of the former version leads no more, and may come back", "2")

	if !b.Leads() {
		t.Error("it does not lead")
	}

	old, err = enter(t, open(t, s.client), instance("old"), time.Hour, former)
	must(t, err)
	wantSchema("beside one of the former version", "2")
	old.Close()

	members.Store([]string{"b", "c", "old"})

	_, err = enter(t, open(t, s.client), instance("old"), time.Hour) // it is upgraded
	must(t, err)
	wantSchema("an instance is not alive", "2")

	members.Store([]string{"b", "old"}) // that one is removed
	wantSchema("all have this version", etcd.Schema)
}

// TestEnterBesideFormerSettings: an instance of this build does not begin beside one to which settings mean something
// else.
func TestEnterBesideFormerSettings(t *testing.T) {
	t.Parallel()

	s := store(t)
	_, err := enter(t, s, instance("old"), time.Hour, former)
	must(t, err)
	setSchema(t, s, "2")

	must(t, second(s.client.Put(within(t, patience), s.overlayKey(), `{"keys":{"policies.verify":{"v":{"batch":0}}}}`)))

	n := &Session{store: s, self: instance("b")}
	f, err := n.look(within(t, patience))
	must(t, err)

	_, err = n.mayEnter(within(t, patience), f)
	if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), "policies.verify.v.batch") ||
		schema(t, s) != "2" {
		t.Errorf("version %s, %v", schema(t, s), err)
	}
}

// TestEnterNewerSchema: a newer build has raised the version since this one connected.
func TestEnterNewerSchema(t *testing.T) {
	t.Parallel()

	s := store(t)
	setSchema(t, s, "4")

	if _, err := enter(t, s, instance("a"), 2*time.Second); inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "the stored data has version 4") {
		t.Errorf("got %v", err)
	}

	if v := s.View(); len(record.List(v, &state.Instances)) != 0 || schema(t, s) != "4" {
		t.Errorf("it has stored %v, version %s", record.List(v, &state.Instances), schema(t, s))
	}
}

// TestEnterUpgradesSettings: zeros of the former version that meant the default are left out, and
// everything else stays, also what cannot be read.
func TestEnterUpgradesSettings(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ name, before, after string }{
		{
			"zeros",
			`{"keys":{"policies.commission":{"a":{"group":"g","rate":0,"quiet":"0s","failures":2,` +
				`"roles":[{"group":"m","replace_after":"0"},{"group":"w","count":0}]},` +
				`"b":{"rate":12345678901234567890}},` +
				`"policies.upgrade":{"u":{"settle":"0h0m","canary":0,"gate":{"http":{"port":80,"timeout":"0s"}}}},` +
				`"policies.verify":{"v":{"cron":"0 3 * * *","batch":0,"jobs":0.0,"spread":"1s"}},` +
				`"jobs.keep":0,"vars":{"rate":0,"password":{"$sealed":"v1.x"}}}}`,
			`{"keys":{"jobs.keep":0,"policies.commission":{"a":{"failures":2,"group":"g",` +
				`"roles":[{"group":"m"},{"count":0,"group":"w"}]},"b":{"rate":12345678901234567890}},` +
				`"policies.upgrade":{"u":{"canary":0,"gate":{"http":{"port":80}}}},` +
				`"policies.verify":{"v":{"cron":"0 3 * * *","spread":"1s"}},` +
				`"vars":{"rate":0,"password":{"$sealed":"v1.x"}}}}`,
		},
		{
			"nothing to do",
			`{"keys": {"policies.verify":{"v":{"batch":1}}} }`,
			`{"keys": {"policies.verify":{"v":{"batch":1}}} }`,
		},
		{
			"another form",
			`{"keys":{"policies.verify":[0],"policies.upgrade":{"u":7,"w":null}}}`,
			`{"keys":{"policies.verify":[0],"policies.upgrade":{"u":7,"w":null}}}`,
		},
		{"unreadable", `{nonsense`, `{nonsense`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			s := store(t)
			setSchema(t, s, "2")

			if _, err := s.client.Put(within(t, patience), s.overlayKey(), c.before); err != nil {
				t.Fatal(err)
			}

			// A second entry of this version changes nothing.
			for range 2 {
				if _, err := enter(t, s, instance("a"), 2*time.Second); err != nil {
					t.Fatal(err)
				}

				resp, err := s.client.Get(within(t, patience), s.overlayKey())
				if err != nil || string(resp.Kvs[0].Value) != c.after || schema(t, s) != etcd.Schema {
					t.Fatalf("%v, version %s\n got %s\nwant %s", err, schema(t, s), resp.Kvs[0].Value, c.after)
				}
			}
		})
	}
}
