// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
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

	if v := s.View(); len(v.Instances) != 0 || schema(t, s) != "4" {
		t.Errorf("it has stored %v, version %s", v.Instances, schema(t, s))
	}
}
