// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// autoCommission are two policies for every host but the manager's: one master, then
// workers.
const autoCommission = `policies:
  commission:
    masters: {match: label!=host1, group: service-master, maximum: 1, priority: 10, quiet: 5s}
    workers: {match: label!=host1, group: service-worker, maximum: 5, quiet: 5s}
`

// TestAutoCommission: three fresh hosts are discovered and commissioned by two policies,
// while the manager is killed. The host of the manager stays as it is.
func TestAutoCommission(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, config: autoCommission})
	fresh := []string{"host2", "host3", "host4"}

	tested := decode[api.PolicyTested](w, w.ctl("policy", "test", "masters", "-o", "json"))
	if tested.On || len(tested.Outlooks) != 1 || tested.Outlooks[0].Group != master {
		t.Errorf("%+v", tested)
	}

	for _, host := range fresh {
		w.wantNode(host, inventory.Unallocated, "")
	}

	w.ctl("policy", "enable", "masters", "--reason", "the rack is wired")
	w.ctl("policy", "enable", "workers", "--reason", "the rack is wired")
	w.sh("host1", "systemctl kill -s KILL clusterm")
	w.awaitHealthy()

	await(t, 4*time.Minute, "three hosts are in service", func() (bool, string) {
		inService, text := 0, ""

		for _, host := range fresh {
			n := w.node(host)
			if n.Status == inventory.Allocated {
				inService++
			}
			text += fmt.Sprintf("%s is %s (%s)\n", host, n.Status, n.Group)
		}

		return inService == len(fresh), text + w.tryCtl("policy", "list").String()
	})

	groups := map[string]int{}
	for _, host := range fresh {
		groups[w.node(host).Group]++
	}

	if groups[master] != 1 || groups[worker] != 2 {
		t.Errorf("the groups are %v", groups)
	}

	w.wantNode("host1", inventory.Unallocated, "")

	commissions := map[string]int{}

	for _, j := range w.jobs() {
		if j.Verb != inventory.VerbCommission {
			continue
		}

		if !strings.HasPrefix(j.Actor, "policy:") || j.Status != api.Complete || len(j.Nodes) != 1 {
			t.Errorf("job %s by %s of %v is %s: %s", j.ID, j.Actor, j.Nodes, j.Status, j.Message)
		}

		commissions[j.Nodes[0]]++
	}

	for _, host := range fresh {
		if n := commissions[w.name(host)]; n != 1 {
			t.Errorf("%d commissions of %s", n, host)
		}
	}

	done := 0

	for _, d := range decode[api.Policy](w, w.ctl("policy", "show", "workers", "-o", "json")).Decisions {
		// A host that was out of sight for a moment is decided on twice.
		if d.Phase == "withdrawn" {
			continue
		}

		done++

		if d.Phase != "done" || d.Group != worker ||
			!strings.Contains(strings.Join(d.Evidence, "\n"), "it matches label!=host1") {
			t.Errorf("%+v", d)
		}
	}

	if done != 2 {
		t.Errorf("%d decisions were carried out", done)
	}
}
