// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// TestExpectOfAddresses: a condition that cannot be checked is refused, not ignored.
func TestExpectOfAddresses(t *testing.T) {
	t.Parallel()

	s := jobtest.Snapshot(t, "free - Unallocated Discovered")
	_, err := Accept(*s, inventory.DefaultGroups(), Request{
		Verb: inventory.VerbDiscover, Addrs: []string{"10.0.0.9"},
		Expect: map[string]Expected{"free-1": {Status: inventory.Unallocated}},
	})

	if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), "discover takes addresses") {
		t.Errorf("%v", err)
	}
}

func TestExpected(t *testing.T) {
	t.Parallel()

	worker := Expected{Status: inventory.Allocated, Group: inventory.GroupWorker}
	free := Expected{Status: inventory.Unallocated}
	nodes := []string{"master m Allocated Discovered", "other m Allocated Discovered", "worker w Allocated Discovered",
		"second w Allocated Discovered", "free - Unallocated Discovered"}

	for _, tt := range []struct {
		name   string
		ahead  []Request
		expect map[string]Expected
		kind   inventory.Kind
		says   []string
	}{
		{"as it is", nil, map[string]Expected{"worker-1": worker, "second-1": worker}, "", nil},
		{"another group", nil, map[string]Expected{
			"worker-1": {Status: inventory.Allocated, Group: inventory.GroupMaster}},
			inventory.KindPrecondition,
			[]string{"worker-1 is Allocated in service-worker, and was expected to be Allocated in service-master"}},
		{"several", nil, map[string]Expected{"worker-1": free, "second-1": free}, inventory.KindPrecondition,
			[]string{"second-1 is Allocated in service-worker, and was expected to be Unallocated; so are 1 more"}},
		{"a job ahead moves it", []Request{request(inventory.VerbUpdate, "worker", inventory.GroupMaster)},
			map[string]Expected{"worker-1": worker}, inventory.KindPrecondition,
			[]string{"worker-1 is Allocated in service-master", "as it will be after job 1"}},
		{"a job ahead leaves it", []Request{request(inventory.VerbApply, "worker", "")},
			map[string]Expected{"worker-1": worker}, "", nil},
		{"a node outside the request", nil, map[string]Expected{"free-1": free}, inventory.KindInvalid,
			[]string{"free-1 is no node of the request"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			v := jobtest.Snapshot(t, nodes...)
			for _, r := range tt.ahead {
				queue(t, v, r)
			}

			r := request(inventory.VerbUpdate, "worker second", inventory.GroupMaster)
			r.Expect = tt.expect

			_, err := Accept(*v, inventory.DefaultGroups(), r)
			if inventory.KindOf(err) != tt.kind {
				t.Fatalf("kind %q (%v), want %q", inventory.KindOf(err), err, tt.kind)
			}

			for _, text := range tt.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q lacks %q", err, text)
				}
			}
		})
	}
}
