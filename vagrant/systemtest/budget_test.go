// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestBudget: a budget refuses to take the second master out of service, lets batches
// pass, makes a job wait for another, and counts a host that is lost.
func TestBudget(t *testing.T) {
	w := newWorld(t, setup{hosts: 3, testPlaybooks: true})
	w.commission(master, "host2", "host3")
	w.ctl("config", "set", `groups=[{"name":"service-master","budget":{"min_available":1}},`+
		`{"name":"service-worker","requires":{"service-master":1}}]`)

	both := []string{w.name("host2"), w.name("host3")}

	for _, verb := range []string{"apply", "maintenance", "reapply", "update", "decommission"} {
		w.wantRefused(5, []string{"service-master must keep 1 node available"},
			append([]string{"nodes", verb}, both...)...)
	}

	w.do(append([]string{"nodes", "verify"}, both...)...)
	w.do(append([]string{"nodes", "apply", "--serial", "1"}, both...)...)

	held := w.submit("nodes", "maintenance", w.name("host2"), "-e", "hold: go")
	w.awaitLog(held, holdTask)

	waiting := w.submit("nodes", "maintenance", w.name("host3"))

	user := w.name("host2") + " (Maintenance, job " + held + ")"
	if why := w.ctl(
		"job",
		"why",
		waiting,
	).stdout; !strings.Contains(why, "min_available") ||
		!strings.Contains(why, user) {
		t.Errorf("why does it wait: %s", why)
	}

	w.wantNode("host3", inventory.Allocated, master)
	w.release("go", "host2")

	for _, id := range []string{held, waiting} {
		if j := w.awaitJob(id); j.Status != api.Complete {
			t.Errorf("job %s: %s: %s", id, j.Status, j.Message)
		}
	}

	w.labDo("kill", "host2")
	w.awaitState(inventory.Disappeared, "host2")
	w.wantRefused(5, []string{w.name("host2") + " (Disappeared)"}, "nodes", "maintenance", w.name("host3"))
	w.wantRefused(5, []string{"min_available"}, "nodes", "decommission", w.name("host3"))
	w.doLeaves("nodes", "decommission", w.name("host2"))
}
