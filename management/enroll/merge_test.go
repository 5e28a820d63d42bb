// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// TestMergeKeepsAlerts: what was found about the machine holds for the node that its agent made, what was configured of
// that node stays, and a machine that may not be clean does not become free by a merge.
func TestMergeKeepsAlerts(t *testing.T) {
	t.Parallel()

	w := newWorld(t, nodeOf("web-1", inventory.Manageable, inventory.Discovered))
	s := w.run()

	w.expect(s, api.Import{File: `[{"name":"r1","addr":"10.0.7.9","image":"old","kernel_args":"quiet"}]`}, "r1 created")

	if _, err := w.configure(s, api.Configure{Nodes: []string{"web-1"}, Image: "new", BootMode: "uefi"}); err != nil {
		t.Fatal(err)
	}

	anna := access.Caller{Principal: "anna"}
	refused := func(what, words string, err error) {
		t.Helper()

		if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", what, err)
		}
	}
	merge := func() error {
		_, err := s.Merge(t.Context(), anna, nil, api.Merge{Machine: "r1", Node: "web-1"})
		return err
	}
	with := func(name string, change func(n *inventory.Node)) {
		w.mu.Lock()
		defer w.mu.Unlock()

		n := w.nodes[name].Clone()
		change(&n)
		w.nodes[name] = n
	}

	_, err := s.Split(t.Context(), anna, api.Split{Node: "web-1", As: "r9"})
	refused("the split of what no list names", "no registration", err)

	with("r1", func(n *inventory.Node) { n.Status = inventory.Quarantined })
	refused("one that is Quarantined", "may not be clean", merge())

	with("r1", func(n *inventory.Node) { n.Status, n.Uncleaned = inventory.Decommissioned, true })
	refused("one that is not clean", "a cleaning failed on r1", merge())
	with("r1", func(n *inventory.Node) { n.Uncleaned = false })

	var many []inventory.Alert
	for _, id := range strings.Fields("a b c d e f g h") {
		many = append(many, inventory.Alert{ID: id, Reason: "reason " + id})
	}

	with("r1", func(n *inventory.Node) { n.Status, n.Alerts, n.Residue = inventory.Enrolled, many, []string{"db"} })
	with("web-1", func(n *inventory.Node) { n.Alerts, n.Residue = []inventory.Alert{{ID: "z"}}, []string{"web", "db"} })
	refused("too many alerts", "8 alerts, which is the limit", merge())

	with("r1", func(n *inventory.Node) { n.Alerts = []inventory.Alert{{ID: "a"}, {ID: "z"}} })

	if err := merge(); err != nil {
		t.Fatal(err)
	}

	n, _ := w.View().Lookup("web-1")
	ids := []string{}

	for _, a := range n.Alerts {
		ids = append(ids, a.ID)
	}

	if !slices.Equal(ids, []string{"z", "a"}) || !slices.Equal(n.Residue, []string{"web", "db"}) {
		t.Errorf("the alerts are %v, the residue %v", ids, n.Residue)
	}

	m := record.Get(w.View(), &state.Machines, "web-1")
	if m.Image != "new" || m.KernelArgs != "quiet" || m.Capabilities["boot_mode"] != "uefi" || m.Registered.IsZero() {
		t.Errorf("the machine is %+v", m)
	}
}
