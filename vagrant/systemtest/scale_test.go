// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestTenNodes commissions ten nodes as one batch.
func TestTenNodes(t *testing.T) {
	w := newWorld(t, setup{hosts: 12})
	w.commission(master, "host2")
	w.putKey("host2", "many", "hands")
	ten := w.hosts[2:]

	j := w.commission(worker, ten...)
	if len(j.Runs) != 1 || len(j.Hosts) != len(ten) {
		t.Errorf("the job made %d runs over %d hosts", len(j.Runs), len(j.Hosts))
	}

	for _, h := range ten {
		w.wantNode(h, inventory.Allocated, worker)
		w.wantKey(h, "many", "hands")
	}

	t.Logf("ten nodes took %s", j.Ended.Sub(*j.Started))
}
