// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
)

// bmcOf is an entry with a BMC that is reached by IPMI, and more fields.
func bmcOf(name, addr, more string) string {
	return fmt.Sprintf(`{"name":%q,"pm_type":"ipmi","pm_addr":%q%s}`, name, addr, more)
}

// TestExamples has a case for each row of the table of examples that the other tests do not show through a whole
// import: what is answered for the list, and how many nodes and entries of their history there are then.
func TestExamples(t *testing.T) {
	t.Parallel()

	const (
		host = `{"name":"s","pm_type":"redfish","pm_addr":%q,"pm_system_id":%q,"pm_user":"u"}`
		full = `{"pm_type":"ipmi","pm_addr":"10.9.0.5","pm_user":"root","name":"r1",` +
			`"ports":[{"address":"52:54:00:AA:00:01"}]}`
	)

	redfish := func(addr, system string) string { return fmt.Sprintf(host, addr, system) }

	for _, row := range []struct {
		name     string
		before   string // what is imported first
		lists    []string
		want     string // the answer for each of lists
		warnings int
		nodes    int // after all
		history  int // entries of all nodes
	}{
		{
			name: "every form is the same node", before: "[" + full + "]", want: "r1 same", nodes: 1, history: 1,
			lists: []string{
				"[" + full + "]",
				"nodes:\n- " + full,
				"- " + full,
				"ipmi,10.9.0.5,root,,52:54:00:AA:00:01",
				"ipmi,10.9.0.5,root,,52:54:00:AA:00:01,623",
				"mac,pm_type,pm_user,pm_addr\n52:54:00:aa:00:01,ipmi,root,10.9.0.5",
			},
		},
		{
			name: "mac is an old form of ports", before: "[" + full + "]",
			want: "r1 same", nodes: 1, history: 1, warnings: 1,
			lists: []string{"[" + bmcOf("r1", "10.9.0.5", `,"pm_user":"root","mac":["52:54:00:AA:00:01"]`) + "]"},
		},
		{
			name: "an address of Redfish in three forms", before: "[" + redfish("https://h/", "1") + "]",
			want: "s same", nodes: 1, history: 1,
			lists: []string{
				"[" + redfish("h", "1") + "]",
				"[" + redfish("https://H:443/", "/redfish/v1/Systems/1") + "]",
				"[" + redfish("h", "/redfish/v1/Systems/1/") + "]",
			},
		},
		{
			name: "idrac without the system that its only node has", nodes: 1, history: 1, want: "d same",
			before: `[{"name":"d","pm_type":"idrac","pm_addr":"h","pm_system_id":"1","pm_user":"u"}]`,
			lists: []string{
				`[{"name":"d","pm_type":"idrac","pm_addr":"h","pm_user":"u"}]`,
				`[{"pm_type":"idrac","pm_addr":"h","pm_user":"u"}]`,
				"idrac,h,u,,",
			},
		},
		{
			name: "http is the same BMC, without TLS", before: "[" + redfish("https://h/", "1") + "]",
			want: "s changed: bmc.plain none → true", nodes: 1, history: 2,
			lists: []string{"[" + redfish("http://h/", "1") + "]"},
		},
		{
			name: "an IPv6 address in two forms", before: "[" + bmcOf("v6", "fd00::1", "") + "]", want: "v6 same",
			nodes: 1, history: 1,
			lists: []string{"[" + bmcOf("v6", "FD00:0::1", "") + "]"},
		},
		{
			name: "fields that are null are left out", before: "[" + full + "]",
			want: "bmc-10.9.0.7 created", nodes: 2, history: 2,
			lists: []string{"- {name: null, pm_type: ipmi, pm_addr: 10.9.0.7, ports: null, arch: null}"},
		},
		{
			name: "a machine that has its name alone", before: `[{"name":"m","pm_type":"manual-management"}]`,
			want: "m same", nodes: 1, history: 1,
			lists: []string{`[{"name":"m","pm_type":"manual-management"}]`},
		},
		{
			name:   "a machine that has its name alone gets a MAC",
			before: `[{"name":"m","pm_type":"manual-management"}]`, nodes: 1, history: 2,
			want:  `m changed: ports none → [{"mac":"52:54:00:aa:00:01"}]`,
			lists: []string{`[{"name":"m","pm_type":"manual-management","ports":["52:54:00:aa:00:01"]}]`},
		},
		{
			name: "the map of Bifrost gives the name", want: "r1 same", nodes: 1, history: 1,
			before: `{"key":{"name":"r1","driver":"ipmi","driver_info":{"ipmi_address":"10.9.0.5",` +
				`"ipmi_username":"root"},"nics":"52:54:00:aa:00:01"}}`,
			lists: []string{"[" + full + "]"},
		},
		{
			name: "what is left out stays", before: "[" + full + "]", want: "r1 same", nodes: 1, history: 1,
			lists: []string{"[" + bmcOf("r1", "10.9.0.5", "") + "]"},
		},
		{
			name: "two ports are two nodes", before: "[" + full + "]",
			want: "p1 created\np2 created", nodes: 3, history: 3,
			lists: []string{"[" + bmcOf("p1", "10.9.0.6", `,"pm_port":6230`) + "," +
				bmcOf("p2", "10.9.0.6", `,"pm_port":6231`) + "]"},
		},
		{
			name: "fields that are kept", before: "[" + full + "]", want: `r1 changed: extra none → ` +
				`{"bios_interface":"x","conductor_group":"g","kernel_id":"k"}`, nodes: 1, history: 2, warnings: 2,
			lists: []string{"[" + bmcOf("r1", "10.9.0.5", `,"pm_user":"root","_comment":{"any":["thing"]},`+
				`"kernel_id":"k","bios_interface":"x","conductor_group":"g"`) + "]"},
		},
	} {
		w := newWorld(t)
		s := w.run()
		w.imported(s, api.Import{File: row.before})

		for _, list := range row.lists {
			done, err := w.request(s, api.Import{File: list, DryRun: true})
			if err != nil {
				t.Errorf("%s: %s: %v", row.name, list, err)
				continue
			}

			if len(done.Warnings) != row.warnings {
				t.Errorf("%s: %d warnings, want %d: %q", row.name, len(done.Warnings), row.warnings, done.Warnings)
			}

			w.expect(s, api.Import{File: list}, row.want)
		}

		if nodes, history := w.counts(); nodes != row.nodes || history != row.history {
			t.Errorf("%s: %d nodes with %d entries in their history, want %d and %d", row.name, nodes, history,
				row.nodes, row.history)
		}
	}
}

// counts returns the number of nodes, and that of the entries in their history.
func (w *world) counts() (nodes, entries int) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, h := range w.history {
		entries += len(h)
	}

	return len(w.nodes), entries
}

// TestRefusedExamples has the rows whose list is refused: each error is there once, with its entry, line and field,
// and nothing changes.
func TestRefusedExamples(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	s := w.run()

	const mac = `,"mac":["52:54:00:00:00:01"]`

	w.imported(s, api.Import{File: "[" + bmcOf("a", "10.0.0.1", mac) + "," + bmcOf("b", "10.0.0.2", "") + `,
{"name":"d1","pm_type":"idrac","pm_addr":"d","pm_system_id":"1","pm_user":"u"},
{"name":"d2","pm_type":"idrac","pm_addr":"d","pm_system_id":"2","pm_user":"u"}]`})

	nodes, history := w.counts()

	for _, row := range []struct {
		list string
		want []string
	}{
		{
			"[\n" + bmcOf("x", "10.0.0.2", mac) + ",\n" + bmcOf("good", "10.0.0.3", "") + "\n]",
			[]string{
				"entry 1 (x): line 2: it fits several nodes: b by its bmc 10.0.0.2, a by its mac 52:54:00:00:00:01",
			},
		},
		// What is wrong in the list, and what does not fit the nodes, at once.
		{
			"[\n" + bmcOf("x", "10.0.0.2", mac) + ",\n" + bmcOf("good", "10.0.0.3", "") + ",\n" +
				bmcOf("bad", "10.0.0.4", `,"pm_foobar":1`) + ",\n" + bmcOf("a", "10.0.0.5", "") + "\n]",
			[]string{
				"entry 1 (x): line 2: it fits several nodes: b by", "entry 3 (bad): line 4: pm_foobar: ",
				"entry 4 (a): line 5: name: the name is that of a registered machine",
			},
		},
		{
			`[{"name":"d3","pm_type":"idrac","pm_addr":"d","pm_user":"u"}]`,
			[]string{"entry 1 (d3): line 1: pm_system_id: the BMC has several nodes; say which one: /redfish/"},
		},
		// The line is that of the field.
		{
			"- name: x\n  pm_type: ipmi\n  pm_addr: 10.0.0.3\n  mac: [52:54:00:00:00:03]\n" +
				"- name: x\n  pm_type: ipmi\n  pm_addr: 10.0.0.3\n  ports:\n  - address: 52:54:00:00:00:03\n",
			[]string{
				"entry 2 (x): line 5: name: the name x is that of entry 1 (x, line 1) already",
				"entry 2 (x): line 7: pm_addr: the BMC 10.0.0.3 is that of entry 1",
				"entry 2 (x): line 9: ports: the MAC 52:54:00:00:00:03 is that of entry 1",
			},
		},
		{
			`[{"name":"s1","pm_type":"redfish","pm_addr":"h","pm_system_id":"1","pm_user":"u"},` + "\n" +
				`{"name":"s2","pm_type":"redfish","pm_addr":"http://h/","pm_system_id":"1","pm_user":"u"},` + "\n" +
				`{"name":"s3","pm_type":"redfish","pm_addr":"https://h/","pm_system_id":"1","pm_user":"u"}]`,
			[]string{"entry 2 (s2): line 2: pm_addr: the BMC h", "entry 3 (s3): line 3: pm_addr: the BMC h"},
		},
		{
			`[{"name":"n1","pm_type":null,"pm_addr":"10.0.0.7"},{"name":"n2","pm_type":"ipmi","pm_addr":null},` + "\n" +
				`{"name":"n3","pm_type":"ipmi","pm_addr":"10.0.0.8","arch":null,"platform":"SNB"}]`,
			[]string{
				"entry 1 (n1): line 1: pm_type: it is missing", "entry 2 (n2): line 1: pm_addr: ipmi needs it",
				"entry 3 (n3): line 2: platform: platform needs arch",
			},
		},
		{
			"pm_type,pm_addr,pm_user,pm_addr\nipmi,10.0.0.3,u,10.0.0.4\n",
			[]string{`line 1: the header has the column "pm_addr" twice`},
		},
		{
			`[{"name":"v1","addr":"fd00::1"},` + "\n" + `{"name":"v2","addr":"FD00:0::1"}]`,
			[]string{"entry 2 (v2): line 2: addr: the address fd00::1 is that of entry 1"},
		},
		{
			"[web]\nweb1 ansible_host=10.0.0.9\nnodes:\n- name: x\n",
			[]string{
				"line 4: ", "entry 2 (nodes:): line 3: ansible_host: it is missing",
				"entry 2 (nodes:): line 3: name: ",
			},
		},
		{"all:\n  hosts:\n    w: {ansible_host: 10.0.0.9}\nr9:\n  driver: ipmi\n", []string{"line 5: "}},
		{
			`[{"name":"o","pm_type":"` + strings.Repeat("o", 1000) + `_ucs","pm_addr":"10.0.0.3"}]`,
			[]string{"entry 1 (o): line 1: pm_type: ooo"},
		},
	} {
		_, err := s.Import(t.Context(), access.Caller{Principal: "anna"}, nil, api.Import{File: row.list})

		text := fmt.Sprint(err)
		for _, want := range row.want {
			if strings.Count(text, want) != 1 {
				t.Errorf("%s: %q is not there once in\n%s", row.list, want, text)
			}
		}

		// The first line says that nothing was changed.
		lines := strings.Count(text, "\n")
		if inventory.KindOf(err) != inventory.KindInvalid || lines != len(row.want) || len(text) > 1000 {
			t.Errorf("%s: %d bytes in %d lines, want %d: %v", row.list, len(text), lines, len(row.want), err)
		}

		if n, h := w.counts(); n != nodes || h != history {
			t.Errorf("%s: %d nodes with %d entries, want %d and %d", row.list, n, h, nodes, history)
		}
	}
}
