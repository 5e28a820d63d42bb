// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"reflect"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/sshkey"
)

// TestSSHKeyRotation: the record survives the process, and a change since the read is a
// conflict.
func TestSSHKeyRotation(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)

	none, at := s.SSHKeyRotation()
	if none.Phase != sshkey.PhaseNone {
		t.Fatalf("an empty store: %+v", none)
	}

	r := sshkey.Rotation{
		Number: 1, Phase: sshkey.PhaseInstall, Actor: "ann", Started: time.Now().UTC().Round(time.Second),
		New: sshkey.Key{Path: "/new", Public: "ssh-ed25519 AAAA", Generated: true}, Confirmed: []string{"a-1"},
	}
	if err := s.PutSSHKeyRotation(ctx, at, r); err != nil {
		t.Fatal(err)
	}

	if err := s.PutSSHKeyRotation(ctx, at, sshkey.Rotation{}); inventory.KindOf(err) != inventory.KindConflict {
		t.Errorf("a write over a newer record: %v", err)
	}

	for name, from := range map[string]*Store{"this": s, "the next": open(t, s.client)} {
		if got, _ := from.SSHKeyRotation(); !reflect.DeepEqual(got, r) {
			t.Errorf("%s process has %+v", name, got)
		}
	}
}
