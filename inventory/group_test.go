// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// parseNodes parses lines of "name group status state [verb|cleaned]". The groups are m
// (master), w (worker) and - (none).
func parseNodes(t *testing.T, lines ...string) []*Node {
	t.Helper()

	groups := map[string]string{"m": GroupMaster, "w": GroupWorker, "-": ""}

	var nodes []*Node
	for _, line := range lines {
		fields := strings.Fields(line)

		status, err := ParseStatus(fields[2])
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}

		state, err := ParseState(fields[3])
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		n := &Node{Name: fields[0], Group: groups[fields[1]], Status: status, State: state}
		switch {
		case len(fields) > 4 && fields[4] == "cleaned":
			n.Cleaned = true
		case len(fields) > 4:
			n.Verb = Verb(fields[4])
		}

		nodes = append(nodes, n)
	}

	return nodes
}

func TestGroupsCheck(t *testing.T) {
	t.Parallel()

	if err := DefaultGroups().Check(); err != nil {
		t.Errorf("the default groups: %v", err)
	}

	for _, tt := range []struct {
		groups Groups
		want   string // part of the error
	}{
		{Groups{}, "no group"},
		{Groups{{Name: ""}}, "empty"},
		{Groups{{Name: "a b"}}, "a b"},
		{Groups{{Name: "a"}, {Name: "a"}}, "twice"},
		{Groups{{Name: "a", Requires: Requirements{"a": 1}}}, "group a requires a: no node"},
		{Groups{{Name: "a", Requires: Requirements{"b": 1}}}, "not configured"},
		{Groups{{Name: GroupPrepare}}, "reserved"},
		{Groups{{Name: "all"}}, "reserved"},
		{Groups{{Name: "ungrouped"}}, "reserved"},
		{Groups{{Name: "job_targets"}}, "reserved"},
		{Groups{{Name: "job_helpers"}}, "reserved"},
	} {
		if err := tt.groups.Check(); KindOf(err) != KindInvalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: got %v, want an invalid error with %q", tt.groups, err, tt.want)
		}
	}
}

func TestGroupsGet(t *testing.T) {
	t.Parallel()

	if g, err := DefaultGroups().Get(GroupWorker); err != nil || g.Requires[GroupMaster] != 1 {
		t.Errorf("got %v, %v", g, err)
	}

	_, err := DefaultGroups().Get("nope")
	if KindOf(err) != KindNotFound || !strings.Contains(err.Error(), "service-master, service-worker") {
		t.Errorf("an unknown group: got %v, want a not-found error that lists the groups", err)
	}
}

func TestDefaultGroup(t *testing.T) {
	t.Parallel()

	three := Groups{{Name: "store"}, {Name: "db"}, {Name: "app", Requires: Requirements{"db": 1}}}
	for _, tt := range []struct {
		name   string
		groups Groups
		nodes  []string
		want   string
	}{
		{"no nodes", DefaultGroups(), nil, GroupMaster},
		{"a master", DefaultGroups(), []string{"a m Allocated Discovered"}, GroupWorker},
		{"a disappeared master", DefaultGroups(), []string{"a m Allocated Disappeared"}, GroupWorker},
		{"a master in upgrade", DefaultGroups(), []string{"a m Maintenance Discovered maintenance"}, GroupWorker},
		{"a master in update", DefaultGroups(), []string{"a m Maintenance Discovered update"}, GroupMaster},
		{"a master on its way out", DefaultGroups(), []string{"a m Decommissioning Discovered"}, GroupMaster},
		{"only a worker", DefaultGroups(), []string{"a w Allocated Discovered"}, GroupMaster},
		{"a quarantined master", DefaultGroups(), []string{"a m Quarantined Discovered"}, GroupMaster},
		{"no rules", Groups{{Name: "b"}, {Name: "a"}}, nil, "b"},
		{"a needed group that is not the first", three, nil, "db"},
		{"no groups", nil, nil, ""},
	} {
		if got := tt.groups.Default(parseNodes(t, tt.nodes...)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestCheckJoin tries a master in every status, state and verb, in the request and
// outside: a worker may join only if the master is commissioned, Discovered and
// outside.
func TestCheckJoin(t *testing.T) {
	t.Parallel()

	for _, s := range Statuses {
		for _, st := range States {
			for _, verb := range []Verb{VerbCommission, VerbUpdate, VerbMaintenance, VerbDecommission} {
				for _, inBatch := range []bool{false, true} {
					master := Node{Name: "m-1", Group: GroupMaster, Status: s.Status, State: st.State, Verb: verb}
					checkJoin(t, &master, inBatch)
				}
			}
		}
	}

	if err := DefaultGroups().CheckJoin(nil, []string{"m-1"}, GroupMaster); err != nil {
		t.Errorf("a master needs no other group: got %v", err)
	}

	if err := DefaultGroups().CheckJoin(nil, []string{"m-1"}, "nope"); KindOf(err) != KindNotFound {
		t.Errorf("an unknown group: got %v, want a not-found error", err)
	}
}

func checkJoin(t *testing.T, master *Node, inBatch bool) {
	t.Helper()

	batch := []string{"w-1"}
	if inBatch {
		batch = append(batch, master.Name)
	}
	err := DefaultGroups().CheckJoin([]*Node{master}, batch, GroupWorker)
	legal := master.Commissioned() && master.State == Discovered && !inBatch

	switch {
	case (err == nil) != legal:
		t.Errorf("master %s %s %s, in the batch %v: got %v, want legal %v",
			master.Status, master.State, master.Verb, inBatch, err, legal)
	case err == nil:
	case KindOf(err) != KindRefused:
		t.Errorf("got %v, want a refused error", err)
	case !strings.Contains(err.Error(), "w-1"), !strings.Contains(err.Error(), GroupMaster):
		t.Errorf("%q does not name the worker and the group that it needs", err)
	}
}

func TestCheckLeave(t *testing.T) {
	t.Parallel()

	const (
		masterA = "a m Allocated Discovered"
		workerB = "b w Allocated Discovered"
		masterC = "c m Allocated Discovered"
	)
	for _, tt := range []struct {
		name  string
		nodes []string
		batch string
		want  string // part of the error; empty: allowed
	}{
		{"the last master before a worker", []string{masterA, workerB}, "a",
			"without a, b of group service-worker would not have what it requires: 1 healthy node of service-master, " +
				"and there is none"},
		{"the last master with the worker", []string{masterA, workerB}, "a b", ""},
		{"the worker", []string{masterA, workerB}, "b", ""},
		{"one of two masters", []string{masterA, workerB, masterC}, "a", ""},
		{"both masters", []string{masterA, workerB, masterC}, "a c", "without a, c"},
		{"the other master disappeared", []string{masterA, workerB, "c m Allocated Disappeared"}, "a", "without a"},
		{"the other master is in update",
			[]string{masterA, workerB, "c m Maintenance Discovered update"}, "a", "without a"},
		{"the other master is in upgrade",
			[]string{masterA, workerB, "c m Maintenance Discovered maintenance"}, "a", ""},
		{"the worker is being commissioned",
			[]string{masterA, "b w Provisioning Discovered commission"}, "a", "without a"},
		{"the worker is being decommissioned",
			[]string{masterA, "b w Decommissioning Discovered decommission"}, "a", ""},
		{"the worker is quarantined", []string{masterA, "b w Quarantined Discovered"}, "a", ""},
		{"the worker disappeared", []string{masterA, "b w Allocated Disappeared"}, "a", "without a"},
		{"a quarantined master does not serve", []string{"a m Quarantined Discovered", workerB}, "a", ""},
		{"a master in commission does not serve", []string{"a m Provisioning Discovered commission", workerB}, "a", ""},
		{"the last master disappeared", []string{"a m Allocated Disappeared", workerB}, "a", "without a"},
		{"no dependents", []string{masterA, "b - Unallocated Discovered"}, "a", ""},
		{"many dependents", []string{masterA, "w1 w Allocated Discovered", "w2 w Allocated Discovered",
			"w3 w Allocated Discovered", "w4 w Allocated Discovered", "w5 w Allocated Discovered",
			"w6 w Allocated Discovered"}, "a", "w1, w2, w3, w4, w5 and 1 more"},
	} {
		err := DefaultGroups().CheckLeave(parseNodes(t, tt.nodes...), strings.Fields(tt.batch))
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: got %v, want no error", tt.name, err)
		case tt.want != "" && (KindOf(err) != KindRefused || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got %v, want a refused error with %q", tt.name, err, tt.want)
		}
	}

	err := DefaultGroups().CheckLeave(parseNodes(t, masterA, workerB), []string{"a"})

	e, ok := errors.AsType[*Error](err)
	if !ok || !slices.Equal(e.Nodes, []string{"a", "b"}) || e.Remedy == "" {
		t.Errorf("got %+v, want an error with both nodes and a remedy", err)
	}
}
