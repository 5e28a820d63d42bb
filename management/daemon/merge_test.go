// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// all returns each node with its status, and whether it is registered.
func (s *site) all() string {
	s.t.Helper()

	nodes, err := s.Nodes(s.ctx(), client.NodeFilter{})
	s.must(err)

	machines, err := s.Machines(s.ctx())
	s.must(err)

	var out []string

	for _, n := range nodes.Items {
		text := fmt.Sprintf("%s %s", n.Name, n.Status)
		for _, m := range machines.Items {
			if m.Node == n.Name {
				text += " registered"
			}
		}

		out = append(out, text)
	}

	return strings.Join(out, ", ")
}

// alerts returns the reasons of the alerts on a node.
func (s *site) alerts(name string) (reasons []string) {
	s.t.Helper()

	n, err := s.Node(s.ctx(), name)
	s.must(err)

	for _, a := range n.Alerts {
		reasons = append(reasons, a.Reason)
	}

	return reasons
}

// TestMergeAndSplit: a registration joins the node of an agent with its labels, variables, password and history, and is
// taken from it again, in a real store and across restarts. Reports of the agent go on.
func TestMergeAndSplit(t *testing.T) {
	t.Parallel()

	s := begin(t)

	const password = "bmc-pa55w0rd"

	list := `[{"name":"r1","pm_type":"ipmi","pm_addr":"127.9.0.5","pm_user":"root","pm_password":"` + password + `",
"mac":["52:54:00:aa:00:01"],"vars":{"zone":"z1","db_password":"x"},"labels":{"rack":"a"},"connection":{"port":2222}}]`

	_, err := s.Import(s.ctx(), api.Import{File: list})
	s.must(err)

	s.report("web")

	for _, r := range []api.Merge{
		{Machine: "web-1", Node: "r1"}, {Machine: "r1", Node: "nope"}, {Machine: "r1", Node: "r1"},
	} {
		if _, err := s.Merge(s.ctx(), r); err == nil {
			t.Errorf("%+v is done", r)
		}
	}

	// Both have one of the alerts, and only the machine the other one. It has the limit of them.
	alert := func(reason string, nodes ...string) string {
		t.Helper()

		added, err := s.AddAlert(s.ctx(), api.AlertRequest{
			Nodes: nodes, Reason: reason, Source: "smartd", Effects: []inventory.Effect{inventory.BlocksCommission},
		})
		s.must(err)

		return added.Items[0].ID
	}
	alert("a disk fails", "r1", "web-1")
	alert("a fan fails", "r1")

	var further []string
	for i := range inventory.MaxAlerts - 1 {
		further = append(further, alert(fmt.Sprint("further ", i), "web-1"))
	}

	merge := api.Merge{Machine: "r1", Node: "web-1", Reason: "it has another address"}
	if _, err := s.Merge(s.ctx(), merge); inventory.KindOf(err) != inventory.KindRefused || len(s.alerts("r1")) != 2 {
		t.Errorf("merged beyond the limit of alerts: %v; %q", err, s.alerts("r1"))
	}

	for _, id := range further {
		_, err := s.EndAlert(s.ctx(), api.AlertEnd{ID: id})
		s.must(err)
	}

	_, err = s.Merge(s.ctx(), merge)
	s.must(err)

	s.restart()

	if got := s.all(); got != "web-1 Unallocated registered" {
		t.Errorf("after the merge: %s", got)
	}

	if got := s.alerts("web-1"); !slices.Equal(got, []string{"a disk fails", "a fan fails"}) {
		t.Errorf("after the merge there are the alerts %q", got)
	}

	n, err := s.Node(s.ctx(), "web-1")
	s.must(err)

	if n.Labels["rack"] != "a" || n.Connection == nil || n.Connection.Port != 2222 {
		t.Errorf("the node has the labels %v and the connection %+v", n.Labels, n.Connection)
	}

	history, err := s.History(s.ctx(), "web-1", 0)
	s.must(err)

	has := func(text string) bool {
		return slices.ContainsFunc(
			history.Items,
			func(e inventory.HistoryEntry) bool { return strings.Contains(e.Reason, text) },
		)
	}
	if !has("as r1: imported") || !has("merged with r1") || !has("it has another address") {
		t.Errorf("the history is %+v", history.Items)
	}

	// The password and the variables came with it, so the same list changes nothing.
	again, err := s.Import(s.ctx(), api.Import{File: list})
	s.must(err)

	if m := again.Machines[0]; m.Node != "web-1" || m.Action != api.ImportSame {
		t.Errorf("the list again: %+v", m)
	}

	_, err = s.Split(s.ctx(), api.Split{Node: "web-1", As: "r2"})
	s.must(err)

	s.restart()
	s.report("web")

	if got := s.all(); got != "r2 Enrolled registered, web-1 Unallocated" {
		t.Errorf("after the split: %s", got)
	}

	for _, r := range []api.Split{{Node: "web-1", As: "r3"}, {Node: "r2", As: "r3"}, {Node: "nope", As: "r3"}} {
		if _, err := s.Split(s.ctx(), r); err == nil {
			t.Errorf("%+v is done", r)
		}
	}

	// An agent that was taken for the wrong machine keeps its node, under the name of the registration.
	_, err = s.Import(s.ctx(), api.Import{File: `[{"name":"r4","addr":"10.0.7.4","mac":["52:54:00:aa:00:04"]}]`})
	s.must(err)

	report := api.Report{Observer: "rack", Observations: []api.Observation{
		{Label: "db", Serial: "CD34", Addr: "10.0.7.4", Alive: true},
	}}
	_, err = s.Observe(s.ctx(), report)
	s.must(err)

	_, err = s.Split(s.ctx(), api.Split{Node: "r4", As: "r5"})
	s.must(err)

	_, err = s.Observe(s.ctx(), report)
	s.must(err)

	if got := s.all(); got != "r2 Enrolled registered, r4 Unallocated, r5 Enrolled registered, web-1 Unallocated" {
		t.Errorf("after the second split: %s", got)
	}
}
