// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestProvide: a node is offered once nothing of the manager's playbooks is on it. One that is not clean is Quarantined
// with what is left, and keeps no other back. A host that ssh does not reach stays as it was.
func TestProvide(t *testing.T) {
	w := newWorld(t, setup{hosts: 4})
	before := w.files("host2")
	w.commission(master, "host2")

	// Somebody has lost the record of it, but not the configuration.
	w.sh("host2", "cp -a /etc/clusterm /tmp/kept")
	w.do("nodes", "decommission", w.name("host2"))
	w.sh("host2", "cp -a /tmp/kept/. /etc/clusterm && rm -r /tmp/kept")

	w.sh("host3", "mkdir -p /var/lib/etcd/clusterm && touch /var/lib/etcd/clusterm/lost")

	w.do("nodes", "manage", w.name("host2"), w.name("host3"), w.name("host4"))
	w.labDo("kill", "host4")

	if !w.hasFile("host2", "/etc/clusterm/node.json") {
		t.Fatal("the test leaves nothing to clean")
	}

	w.doFails("nodes", "provide", w.name("host2"), w.name("host3"), w.name("host4"))

	w.wantNode("host2", inventory.Unallocated, "")
	w.wantFiles("host2", before)
	w.awaitState(inventory.Discovered, "host2")

	w.wantNode("host3", inventory.Quarantined, "")
	if got := w.node("host3").LastError; !strings.Contains(got, "Still there: /var/lib/etcd/clusterm.") {
		t.Errorf("host3 says %q, and not what is left", got)
	}

	w.wantNode("host4", inventory.Manageable, "")
	if got := w.node("host4").LastError; !strings.HasPrefix(got, "not cleaned: unreachable: ") {
		t.Errorf("host4 says %q", got)
	}

	w.sh("host3", "rm -r /var/lib/etcd/clusterm")
	w.do("nodes", "clear", w.name("host3"))
	w.wantNode("host3", inventory.Unallocated, "")
}
