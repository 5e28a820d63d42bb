// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// TestImport imports machines into a real store, restarts the manager, and lets an agent speak.
func TestImport(t *testing.T) {
	t.Parallel()

	s := begin(t)

	const password = "bmc-pa55w0rd"

	list := `[{"name":"r1","pm_type":"ipmi","pm_addr":"127.9.0.5","pm_user":"root","pm_password":"` + password + `",
"addr":"10.0.7.1","vars":{"zone":"z1","db_password":"` + password + `"},"labels":{"rack":"a"},
"connection":{"user":"admin","port":2222}}, {"name":"r2","addr":"10.0.7.2"}]`

	done, err := s.Import(s.ctx(), api.Import{File: list})
	s.must(err)

	if len(done.Machines) != 2 || done.Machines[0].Action != api.ImportCreated {
		t.Errorf("got %+v", done)
	}

	s.restart()

	again, err := s.Import(s.ctx(), api.Import{File: list})
	s.must(err)

	for _, m := range again.Machines {
		if m.Action != api.ImportSame {
			t.Errorf("the second import: %+v", m)
		}
	}

	changed, err := s.Import(s.ctx(), api.Import{File: strings.ReplaceAll(list, password, password+"2"), DryRun: true})
	s.must(err)

	if c := changed.Machines[0].Changes; fmt.Sprint(c) != "[{password <nil> <nil>} {vars.db_password <nil> <nil>}]" {
		t.Errorf("another password: %+v", c)
	}

	// No answer shows the password.
	for _, path := range []string{
		api.PathMachines, api.PathExport, api.PathNodes, "/v1/nodes/r1/history", "/v1/audit", "/v1/watch?once=true",
		"/info/nodes", "/v1/nodes/r1/explain",
	} {
		if _, text := s.get(path); strings.Contains(text, "pa55") {
			t.Errorf("%s shows the password", path)
		}
	}

	if _, text := s.get("/info/node/r2"); !strings.Contains(text, `"status":"Incomplete"`) {
		t.Errorf("the first generation's contract shows %s", text)
	}

	// The agent speaks: one node, under its name.
	_, err = s.Observe(s.ctx(), api.Report{Observer: "rack", Full: true, Observations: []api.Observation{
		{Label: "web", Serial: "AB12", Addr: "10.0.7.1", Alive: true},
	}})
	s.must(err)

	nodes, err := s.Nodes(s.ctx(), client.NodeFilter{})
	s.must(err)

	var got []string
	for _, n := range nodes.Items {
		got = append(got, fmt.Sprintf("%s %s %s %s %s", n.Name, n.Label, n.Serial, n.Status, n.State))
	}

	want := "r1 web AB12 Unallocated Discovered, r2   Enrolled Unknown"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}

	// A report without it is its loss, also after it has moved.
	for _, r := range []api.Report{
		{Observer: "rack", Full: true, Observations: []api.Observation{
			{Label: "web", Serial: "AB12", Addr: "10.0.7.9", Alive: true},
		}},
		{Observer: "rack", Full: true},
	} {
		_, err = s.Observe(s.ctx(), r)
		s.must(err)
	}

	n, err := s.Node(s.ctx(), "r1")
	s.must(err)

	if n.State != inventory.Disappeared || n.Addr != "10.0.7.9" {
		t.Errorf("after its loss: %+v", n)
	}

	// A node that was registered alone can be forgotten without force, and leaves nothing.
	_, err = s.Forget(s.ctx(), api.Forget{Nodes: []string{"r2"}})
	s.must(err)

	if _, text := s.get(api.PathMachines); strings.Contains(text, "r2") {
		t.Errorf("a forgotten machine is still there: %s", text)
	}
}

// TestImportWithinScope: no caller with a scope imports, as an import concerns the whole manager.
func TestImportWithinScope(t *testing.T) {
	t.Parallel()

	s := begin(t, "plain_http: 127.0.0.1:0")
	c := s.scoped(&api.Scope{Selector: "rack=a"})

	for _, r := range []api.Import{
		{File: `[{"name":"x","addr":"10.0.7.3","labels":{"rack":"a"}}]`},
		{File: `[{"name":"x","addr":"10.0.7.3"}]`, DryRun: true},
	} {
		if _, err := c.Import(s.ctx(), r); inventory.KindOf(err) != inventory.KindForbidden {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// TestTwoRegisteredAtOneAddress: a host at the address of two machines is neither.
func TestTwoRegisteredAtOneAddress(t *testing.T) {
	t.Parallel()

	s := begin(t)
	_, err := s.Import(s.ctx(), api.Import{File: `[{"name":"a","addr":"10.0.7.1"}]`})
	s.must(err)

	// The same machine in another list, found by its address.
	done, err := s.Import(s.ctx(), api.Import{File: `[{"name":"b","addr":"10.0.7.1"}]`})
	s.must(err)

	if m := done.Machines[0]; m.Node != "a" || m.Action != api.ImportSame {
		t.Errorf("got %+v", m)
	}
}

// TestImportOfManyNodes is the size of a site. Its time is measured by the benchmarks.
func TestImportOfManyNodes(t *testing.T) {
	t.Parallel()

	s := begin(t)

	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "ipmi,127.9.%d.%d,root,secret-%d,52:54:00:00:%02x:%02x\n", i>>8, i&255, i, i>>8, i&255)
	}

	done, err := s.Import(s.ctx(), api.Import{File: b.String()})
	s.must(err)

	nodes, err := s.Nodes(s.ctx(), client.NodeFilter{Status: []inventory.Status{inventory.Enrolled}})
	s.must(err)

	if len(done.Machines) != 1000 || nodes.Total != 1000 {
		t.Errorf("%d machines and %d nodes", len(done.Machines), nodes.Total)
	}
}

// TestOneMachineOneNode: a machine that a list and its agent name is one node, whichever comes first, and if both come
// at once. A second import of the list registers what the first one left to the agent.
func TestOneMachineOneNode(t *testing.T) {
	t.Parallel()

	s := begin(t)

	speak := func(i int) {
		_, err := s.Observe(s.ctx(), api.Report{Observer: "rack", Observations: []api.Observation{{
			Label: "host", Serial: fmt.Sprint(i), Addr: fmt.Sprintf("10.0.8.%d", i+1), Alive: true,
			MACs: []string{fmt.Sprintf("52:54:00:aa:00:%02x", i)},
		}}})
		if err != nil {
			t.Error(err)
		}
	}
	register := func(i int) {
		_, err := s.Import(s.ctx(), api.Import{File: fmt.Sprintf(
			`[{"name":"r%d","pm_type":"ipmi","pm_addr":"127.9.1.%d","mac":["52:54:00:aa:00:%02x"]}]`, i, i+1, i,
		)})
		if err != nil {
			t.Error(err)
		}
	}

	const machines = 12
	for i := range machines {
		var both sync.WaitGroup

		switch i % 3 {
		case 0:
			speak(i)
			register(i)
		case 1:
			register(i)
			speak(i)
		default:
			both.Go(func() { speak(i) })
			both.Go(func() { register(i) })
		}

		both.Wait()
		register(i)
	}

	nodes, err := s.Nodes(s.ctx(), client.NodeFilter{})
	s.must(err)

	listed, err := s.Machines(s.ctx())
	s.must(err)

	if len(nodes.Items) != machines || len(listed.Items) != machines {
		t.Errorf("%d machines are %d nodes, of which %d are registered", machines, len(nodes.Items), len(listed.Items))
	}

	for _, n := range nodes.Items {
		if n.Label == "" {
			t.Errorf("no agent speaks as %s", n.Name)
		}
	}
}
