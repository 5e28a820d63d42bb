// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory/errtest"
)

func TestBudgetCheck(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"{}":                                     "",
		"{min_available: 2}":                     "",
		"{max_unavailable: 1}":                   "",
		`{max_unavailable: "25%", per: rack}`:    "",
		"{min_available: -1}":                    "min_available is -1",
		"{max_unavailable: 0}":                   "with 0, no node could ever",
		`{max_unavailable: "0%"}`:                "max_unavailable is",
		`{max_unavailable: "101%"}`:              "max_unavailable is",
		`{max_unavailable: "1.5"}`:               "max_unavailable is",
		"{max_unavailable: -3}":                  "max_unavailable is",
		"{per: rack}":                            "without max_unavailable",
		`{max_unavailable: 1, per: "two words"}`: "two words",
		`{max_unavailable: 1, per: status}`:      "status",
	} {
		var b Budget
		errtest.None(t, yaml.Unmarshal([]byte(text), &b))

		err := Groups{{Name: "a", Budget: b}}.Check()
		if want == "" && err != nil ||
			want != "" && (KindOf(err) != KindInvalid || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}

		// A budget survives JSON.
		data, err := json.Marshal(b)
		errtest.None(t, err)

		var back Budget
		if err := json.Unmarshal(data, &back); err != nil || back != b {
			t.Errorf("%s: %+v, %v", data, back, err)
		}
	}

	var a Amount
	if err := json.Unmarshal([]byte("3"), &a); err != nil || a != "3" {
		t.Errorf("a number in JSON is %q, %v", a, err)
	}

	if err := json.Unmarshal([]byte("true"), &a); err == nil {
		t.Error("true is an amount")
	}
}

func TestCheckBudgets(t *testing.T) {
	t.Parallel()

	nodes := []string{
		"a m Allocated Discovered",
		"b m Allocated Discovered",
		"c m Allocated Discovered",
		"d w Allocated Discovered",
	}

	for _, tt := range []struct {
		name   string
		nodes  []string
		racks  string // of the nodes, in order
		budget Budget
		take   string
		want   string // parts of the refusal, separated by |; empty: allowed
	}{
		{"no budget", nodes, "", Budget{}, "a b c", ""},
		{"enough stay", nodes, "", Budget{MinAvailable: 2}, "a", ""},
		{"too few stay", nodes, "", Budget{MinAvailable: 2}, "a b",
			"take a, b now: service-master must keep 2 nodes available|and 1 of 3 would be|take 1 node at a time"},
		{"another group", nodes, "", Budget{MinAvailable: 3}, "d", ""},
		{"it can never be met", nodes, "", Budget{MinAvailable: 3}, "a",
			"with 3 nodes, min_available 3 never allows it: add a node to the group, or lower min_available"},
		{"it can never be met, and a node is lost", append([]string{"x m Allocated Disappeared"}, nodes...), "",
			Budget{MinAvailable: 4}, "a", "with 4 nodes, min_available 4 never allows it"},
		{"few enough", nodes, "", Budget{MaxUnavailable: "1"}, "c", ""},
		{"too many", nodes,
			"", Budget{MaxUnavailable: "1"}, "b c", "at most 1 node of service-master may be unavailable"},
		{"a share is rounded down", nodes,
			"", Budget{MaxUnavailable: "66%"}, "b c", "may be unavailable (max_unavailable 66%), and 2 of 3"},
		{"a share is at least one node", nodes, "", Budget{MaxUnavailable: "1%"}, "b", ""},
		{"a lost node counts", append([]string{"x m Allocated Disappeared"}, nodes...),
			"", Budget{MaxUnavailable: "1"}, "a",
			"x (Disappeared)|or bring it back; if a host is gone for good, take it out of service"},
		{"a cleaned node counts", append([]string{"x m Allocated Discovered cleaned"}, nodes...),
			"", Budget{MaxUnavailable: "1"}, "a",
			"x (cleaned, and not configured since)|wait until x is available again, or bring it back"},
		{"a cleaned node may be taken", append([]string{"x m Allocated Discovered cleaned"}, nodes...), "",
			Budget{MaxUnavailable: "1", MinAvailable: 3}, "x", ""},
		{"a held node counts", append([]string{"x m Maintenance Discovered apply"}, nodes...),
			"", Budget{MaxUnavailable: "1"}, "a",
			"x (Maintenance)"},
		{"a verified node serves", append([]string{"x m Maintenance Discovered verify"}, nodes...), "",
			Budget{MaxUnavailable: "1", MinAvailable: 3}, "a", ""},
		{"a lost node may be taken", append([]string{"x m Allocated Disappeared"}, nodes...), "",
			Budget{MaxUnavailable: "1", MinAvailable: 3}, "x", ""},
		{"a new node does not count", append([]string{"x m Provisioning Discovered"}, nodes...),
			"", Budget{MaxUnavailable: "1"}, "a", ""},
		{"one of each rack", nodes, "r1 r1 r2 r2", Budget{MaxUnavailable: "1", Per: "rack"}, "a c", ""},
		{"two of a rack", nodes, "r1 r1 r2 r2", Budget{MaxUnavailable: "1", Per: "rack"}, "a b c",
			`service-master with rack "r1"|take a, b now`},
		{"two without a rack", nodes, "- - r2 r2", Budget{MaxUnavailable: "1", Per: "rack"}, "a b", `rack ""`},
		{"both limits", nodes,
			"r1 r2 r3 r3", Budget{MinAvailable: 2, MaxUnavailable: "1", Per: "rack"}, "a b", "min_available"},
	} {
		all := parseNodes(t, tt.nodes...)
		for i, rack := range strings.Fields(tt.racks) {
			if rack != "-" {
				all[i].Labels = map[string]string{"rack": rack}
			}
		}

		groups := Groups{{Name: GroupMaster, Budget: tt.budget}, {Name: GroupWorker}}
		err := groups.CheckBudgets(all, strings.Fields(tt.take))

		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}

			continue
		}

		if KindOf(err) != KindRefused {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}

		for part := range strings.SplitSeq(tt.want, "|") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v lacks %q", tt.name, err, part)
			}
		}
	}
}

// TestBudgetProblems: a budget that keeps every node of its group in service is a problem, and
// one of a group without nodes is none.
func TestBudgetProblems(t *testing.T) {
	t.Parallel()

	nodes := parseNodes(t, "a m Allocated Discovered", "b m Allocated Disappeared", "n - Unallocated Discovered")

	for minimum, want := range map[int]string{
		0: "[]", 1: "[]",
		2: "[no job can take a node of group service-master out of service: " +
			"with 2 nodes, min_available 2 never allows it]",
		3: "[no job can take a node of group service-master out of service: " +
			"with 2 nodes, min_available 3 never allows it]",
	} {
		gs := Groups{
			{Name: GroupMaster, Budget: Budget{MinAvailable: minimum}},
			{Name: GroupWorker, Budget: Budget{MinAvailable: minimum}},
		}
		if got := fmt.Sprint(gs.BudgetProblems(nodes)); got != want {
			t.Errorf("min_available %d: %s, want %s", minimum, got, want)
		}
	}
}

func TestBudgetUse(t *testing.T) {
	t.Parallel()

	nodes := parseNodes(t, "a m Allocated Discovered", "b m Maintenance Discovered apply", "d w Allocated Disappeared")
	g := Group{Name: GroupMaster, Budget: Budget{MinAvailable: 1, MaxUnavailable: "1", Per: "rack"}}

	want := "min_available 1, max_unavailable 1 per rack, and 1 of 2 nodes are unavailable: b (Maintenance)"
	if got := g.BudgetUse(nodes); got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	if got := (Group{Name: GroupWorker}).BudgetUse(nodes); got != "" {
		t.Errorf("without a budget: %q", got)
	}
}
