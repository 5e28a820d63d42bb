// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestRotationKeepsTheKeyOfDamagedRecords rotates the key while a record cannot be
// decoded, which may need the former key: that key stays until the record is gone.
func TestRotationKeepsTheKeyOfDamagedRecords(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.setSecret("pin", "1234")

	former := s.ring().Active()
	damaged := "x/inputs/77"
	_, err := s.etcd.Put(s.ctx(), s.etcd.Prefix+"/"+damaged, "{damaged")
	s.must(err)

	for range 3 {
		_, err := s.Client.RotateSecrets(s.ctx(), false)
		checkError(t, err, inventory.KindUnavailable, damaged)

		if ids := s.ring().IDs(); len(ids) != 2 || ids[1] != former {
			t.Fatalf("the key file has the keys %v, want a new one and %s", ids, former)
		}
	}

	status, err := s.Client.Secrets(s.ctx())
	s.must(err)

	if !status.Rotating || !slices.Contains(status.Locked, damaged) {
		t.Errorf("%+v", status)
	}

	_, err = s.etcd.Delete(s.ctx(), s.etcd.Prefix+"/"+damaged)
	s.must(err)

	now := s.ring().Active()
	status, err = s.Client.RotateSecrets(s.ctx(), false)
	s.must(err)

	if ids := s.ring().IDs(); !slices.Equal(ids, []string{now}) || status.Rotating || s.value("pin") != "1234" {
		t.Errorf("at the end: keys %v, %+v", ids, status)
	}
}

// TestRotationInAFullStore repeats a rotation that the store does not accept: it never
// makes another key, and ends with the first once there is room.
func TestRotationInAFullStore(t *testing.T) {
	t.Parallel()

	s := prepare(t)
	s.tune = func(o *Options) { o.Quota, o.UpkeepEvery = testQuota, -1 }
	s.up()
	t.Cleanup(s.down)
	s.setSecret("pin", "1234")
	s.fill()

	var begun string

	for range 20 {
		_, err := s.Client.RotateSecrets(s.ctx(), false)
		checkError(t, err, inventory.KindUnavailable, "the store is full")

		ids := s.ring().IDs()
		if begun == "" {
			begun = ids[0]
		}
		if len(ids) != 2 || ids[0] != begun {
			t.Fatalf("the key file has the keys %v", ids)
		}
	}

	tool := s.tool()
	s.must(tool.Compact(s.ctx()))
	s.must(tool.Defragment(s.ctx()))
	s.must(second(tool.Disarm(s.ctx())))
	s.must(tool.Close())

	_, err := s.Client.RotateSecrets(s.ctx(), false)
	s.must(err)
	s.encrypted()

	if s.value("pin") != "1234" || s.ring().Active() != begun {
		t.Errorf("at the end it is %v; key %s, begun with %s", s.value("pin"), s.ring().Active(), begun)
	}
}
