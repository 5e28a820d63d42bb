// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"strings"
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

// TestEnterRaisesSchema: data of the former version belong to it until an instance of this
// build may write.
func TestEnterRaisesSchema(t *testing.T) {
	t.Parallel()

	s := store(t)
	setSchema(t, s, "2")

	other, err := enter(t, s, instance("a"), 2*time.Second)
	if err != nil || schema(t, s) != etcd.Schema {
		t.Fatalf("version %s, %v", schema(t, s), err)
	}

	setSchema(t, s, "2") // as if a had the former version

	if _, err := enter(t, s, instance("b"), 2*time.Second); inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "another clusterm uses this etcd prefix and is alive: host-a") {
		t.Errorf("beside another instance: %v", err)
	}

	if v := schema(t, s); v != "2" {
		t.Errorf("an instance that is refused has stored version %s", v)
	}

	other.Close()

	if _, err := enter(t, s, instance("b"), 2*time.Second); err != nil || schema(t, s) != etcd.Schema {
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
