// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
)

// appear adds a node whose agent has named a MAC, as somebody else would.
func (w *world) appear(name, mac string) {
	w.mu.Lock()
	n := nodeOf(name, inventory.Unallocated, inventory.Discovered)
	n.Addr = name + ".example"
	w.nodes[name] = n
	w.mu.Unlock()

	errtest.None(w.t, w.Write("agents/"+name, fmt.Appendf(nil, `{"node":%q,"macs":[%q]}`, name, mac)))
}

// names returns the names of all nodes, in their order.
func (w *world) names() string {
	var names []string
	for _, n := range w.View().Nodes() {
		names = append(names, n.Name)
	}

	return strings.Join(names, " ")
}

// TestAgentFirst: a list registers the node whose agent has spoken before, as its MAC says.
func TestAgentFirst(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	w.appear("web-1", "52:54:00:aa:00:01")
	s := w.run()

	w.expect(s, api.Import{
		File: `[{"name":"r1","pm_type":"ipmi","pm_addr":"127.9.0.5","mac":["52:54:00:AA:00:01"]},
{"name":"r2","pm_type":"ipmi","pm_addr":"127.9.0.6","mac":["52:54:00:AA:00:02"]}]`,
	}, "web-1 changed: bmc.address none → 127.9.0.5, bmc.driver none → ipmi, "+
		"ports none → [{\"mac\":\"52:54:00:aa:00:01\"}]\nr2 created")

	if got := w.names(); got != "r2 web-1" {
		t.Errorf("the nodes are %s", got)
	}
}

// TestExportedFacts: the list of an export has what was found, and an import of it changes nothing and warns of
// nothing.
func TestExportedFacts(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	s := w.run()
	w.expect(s, api.Import{File: `[{"name":"r1","addr":"10.0.0.1","labels":{"rack":"a"}}]`}, "r1 created")

	w.mu.Lock()
	n := w.nodes["r1"]
	n.Hardware = &inventory.Hardware{Vendor: "Dell\tInc.", Product: "R640: \"x\"", MemoryMB: 65536, Disks: 2}
	w.nodes["r1"] = n
	w.mu.Unlock()

	list, err := json.Marshal(Export(w.View()))
	errtest.None(t, err)

	if !strings.Contains(string(list), "65536 MiB of memory, 2 disks") {
		t.Errorf("%s", list)
	}

	done, err := w.request(s, api.Import{File: string(list)})
	errtest.None(t, err)

	if m := done.Machines[0]; m.Action != api.ImportSame || done.ID != "" || len(done.Warnings) > 0 {
		t.Errorf("%+v", done)
	}
}

// TestAgentMeanwhile: an agent that speaks after an import is accepted, and before its machine is registered, makes no
// twin. The next import registers its node.
func TestAgentMeanwhile(t *testing.T) {
	t.Parallel()

	// At the commit of the import itself, and at that of its first machines.
	for _, at := range []int{1, 2} {
		w := newWorld(t)
		commits := 0
		w.Before = func(*record.Tx) error {
			if commits++; commits == at {
				w.appear("web-1", "52:54:00:aa:00:01")
			}

			return nil
		}

		s := w.run()
		list := api.Import{File: `[{"name":"r1","pm_type":"ipmi","pm_addr":"127.9.0.5","mac":["52:54:00:AA:00:01"]}]`}

		done, err := w.request(s, list)
		errtest.None(t, err)

		if m := done.Machines[0]; m.Action != api.ImportSkipped ||
			m.Reason != "its agent has spoken meanwhile: web-1 by its mac 52:54:00:aa:00:01; import the list again" {
			t.Errorf("commit %d: %+v", at, m)
		}

		done, err = w.request(s, list)
		errtest.None(t, err)

		if m := done.Machines[0]; m.Node != "web-1" || m.Action != api.ImportChanged || w.names() != "web-1" {
			t.Errorf("commit %d: %+v, the nodes are %s", at, m, w.names())
		}
	}
}
