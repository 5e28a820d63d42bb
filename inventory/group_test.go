// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"
	"testing"
)

// fleet reads "name group status state [verb]" lines.
func fleet(t *testing.T, lines ...string) []*Node {
	var nodes []*Node
	for _, l := range lines {
		f := strings.Fields(l)
		n := Node{Name: f[0], Group: map[string]string{"m": GroupMaster, "w": GroupWorker, "-": ""}[f[1]]}
		var err, err2 error
		n.Status, err = ParseStatus(f[2])

		n.State, err2 = ParseState(f[3])
		if err != nil || err2 != nil {
			t.Fatal(l, err, err2)
		}

		if len(f) > 4 {
			n.Verb = Verb(f[4])
		}

		nodes = append(nodes, &n)
	}

	return nodes
}

func TestGroupsCheck(t *testing.T) {
	t.Parallel()

	if err := DefaultGroups().Check(); err != nil {
		t.Error(err)
	}

	for _, tt := range []struct {
		groups Groups
		says   string
	}{
		{Groups{}, "no group"},
		{Groups{{Name: ""}}, "empty"},
		{Groups{{Name: "a b"}}, "a b"},
		{Groups{{Name: "a"}, {Name: "a"}}, "twice"},
		{Groups{{Name: "a", Needs: "a"}}, "itself"},
		{Groups{{Name: "a", Needs: "b"}}, "not configured"},
		{Groups{{Name: GroupPrepare}}, "reserved"},
		{Groups{{Name: "all"}}, "reserved"},
		{Groups{{Name: "ungrouped"}}, "reserved"},
		{Groups{{Name: "job_targets"}}, "reserved"},
		{Groups{{Name: "job_helpers"}}, "reserved"},
	} {
		if err := tt.groups.Check(); KindOf(err) != KindInvalid || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v: %v", tt.groups, err)
		}
	}

	if _, err := DefaultGroups().Get("nope"); KindOf(err) != KindNotFound ||
		!strings.Contains(err.Error(), "service-master, service-worker") {
		t.Errorf("%v", err)
	}

	if g, err := DefaultGroups().Get(GroupWorker); err != nil || g.Needs != GroupMaster {
		t.Errorf("%v, %v", g, err)
	}
}

func TestDefaultGroup(t *testing.T) {
	t.Parallel()

	three := Groups{{Name: "store"}, {Name: "db"}, {Name: "app", Needs: "db"}}
	for _, tt := range []struct {
		name   string
		groups Groups
		nodes  []string
		want   string
	}{
		{"nobody", DefaultGroups(), nil, GroupMaster},
		{"a master", DefaultGroups(), []string{"a m Allocated Discovered"}, GroupWorker},
		{"a master that is not seen still is one", DefaultGroups(), []string{"a m Allocated Disappeared"}, GroupWorker},
		{"a master being upgraded", DefaultGroups(), []string{"a m Maintenance Discovered maintenance"}, GroupWorker},
		{"a master being updated", DefaultGroups(), []string{"a m Maintenance Discovered update"}, GroupMaster},
		{"a master on its way out", DefaultGroups(), []string{"a m Decommissioning Discovered"}, GroupMaster},
		{"only a worker", DefaultGroups(), []string{"a w Allocated Discovered"}, GroupMaster},
		{"a quarantined master", DefaultGroups(), []string{"a m Quarantined Discovered"}, GroupMaster},
		{"no rules", Groups{{Name: "b"}, {Name: "a"}}, nil, "b"},
		{"the needed group first", three, nil, "db"},
		{"no groups", nil, nil, ""},
	} {
		if got := tt.groups.Default(fleet(t, tt.nodes...)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestJoinGrid: a worker needs a master that is commissioned, Discovered and
// outside the request, whatever status and state that is to be tried.
func TestJoinGrid(t *testing.T) {
	t.Parallel()

	for _, s := range Statuses {
		for _, st := range States {
			for _, verb := range []Verb{VerbCommission, VerbUpdate, VerbMaintenance, VerbDecommission} {
				for _, inside := range []bool{false, true} {
					master := &Node{Name: "m-1", Group: GroupMaster, Status: s.Status, State: st.State, Verb: verb}

					batch := []string{"w-1"}
					if inside {
						batch = append(batch, "m-1")
					}

					err := DefaultGroups().CheckJoin([]*Node{master}, batch, GroupWorker)
					if want := master.Commissioned() && st.State == Discovered && !inside; (err == nil) != want {
						t.Errorf("master %s %s %s, inside %v: %v", s.Status, st.State, verb, inside, err)
					} else if err != nil && (KindOf(err) != KindRefused || !strings.Contains(err.Error(), "w-1") || !strings.Contains(err.Error(), GroupMaster)) {
						t.Errorf("the refusal does not name both: %v", err)
					}
				}
			}
		}
	}

	if err := DefaultGroups().CheckJoin(nil, []string{"m-1"}, GroupMaster); err != nil {
		t.Errorf("a master needs nobody: %v", err)
	}

	if err := DefaultGroups().CheckJoin(nil, []string{"m-1"}, "nope"); KindOf(err) != KindNotFound {
		t.Errorf("%v", err)
	}
}

func TestLeave(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name  string
		nodes []string
		batch string
		says  string // "": allowed
	}{
		{"the last master with a worker left", []string{"a m Allocated Discovered", "b w Allocated Discovered"}, "a", "without a no commissioned, Discovered service-master is left for b of group service-worker"},
		{"with the worker", []string{"a m Allocated Discovered", "b w Allocated Discovered"}, "a b", ""},
		{"the worker", []string{"a m Allocated Discovered", "b w Allocated Discovered"}, "b", ""},
		{"one of two masters", []string{"a m Allocated Discovered", "b w Allocated Discovered", "c m Allocated Discovered"}, "a", ""},
		{"both masters", []string{"a m Allocated Discovered", "b w Allocated Discovered", "c m Allocated Discovered"}, "a c", "without a, c"},
		{"the other master is not seen", []string{"a m Allocated Discovered", "b w Allocated Discovered", "c m Allocated Disappeared"}, "a", "without a"},
		{"the other master is being updated", []string{"a m Allocated Discovered", "b w Allocated Discovered", "c m Maintenance Discovered update"}, "a", "without a"},
		{"the other master is being upgraded", []string{"a m Allocated Discovered", "b w Allocated Discovered", "c m Maintenance Discovered maintenance"}, "a", ""},
		{"the worker is being provisioned", []string{"a m Allocated Discovered", "b w Provisioning Discovered commission"}, "a", "without a"},
		{"the worker is being decommissioned", []string{"a m Allocated Discovered", "b w Decommissioning Discovered decommission"}, "a", ""},
		{"the worker is quarantined", []string{"a m Allocated Discovered", "b w Quarantined Discovered"}, "a", ""},
		{"the worker is gone but Allocated", []string{"a m Allocated Discovered", "b w Allocated Disappeared"}, "a", "without a"},
		{"a quarantined master serves nobody", []string{"a m Quarantined Discovered", "b w Allocated Discovered"}, "a", ""},
		{"a master that does not serve yet", []string{"a m Provisioning Discovered commission", "b w Allocated Discovered"}, "a", ""},
		{"a dead last master", []string{"a m Allocated Disappeared", "b w Allocated Discovered"}, "a", "without a"},
		{"nobody depends", []string{"a m Allocated Discovered", "b - Unallocated Discovered"}, "a", ""},
		{"many depend", []string{"a m Allocated Discovered", "w1 w Allocated Discovered", "w2 w Allocated Discovered", "w3 w Allocated Discovered",
			"w4 w Allocated Discovered", "w5 w Allocated Discovered", "w6 w Allocated Discovered"}, "a", "w1, w2, w3, w4, w5 and 1 more"},
	} {
		err := DefaultGroups().CheckLeave(fleet(t, tt.nodes...), strings.Fields(tt.batch))
		switch {
		case tt.says == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.says != "" && (KindOf(err) != KindRefused || !strings.Contains(err.Error(), tt.says)):
			t.Errorf("%s: %v", tt.name, err)
		}
	}

	err := DefaultGroups().CheckLeave(fleet(t, "a m Allocated Discovered", "b w Allocated Discovered"), []string{"a"})
	if e := err.(*Error); !slices.Equal(e.Nodes, []string{"a", "b"}) || e.Remedy == "" {
		t.Errorf("%+v", e)
	}
}
