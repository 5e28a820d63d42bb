// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// several are groups of which one requires several others.
var several = Groups{
	{Name: "etcd"},
	{Name: "m"},
	{Name: "w", Requires: Requirements{"m": 2, "etcd": 1}},
}

// member returns a node in service.
func member(name, group string, state State) *Node {
	return &Node{Name: name, Group: group, Status: Allocated, State: state}
}

// TestFailedChecksAreNotHealthy: a node that failed a check of its verification counts for no requirement, and uses up
// the budget of its group. One that only differs counts as ever.
func TestFailedChecksAreNotHealthy(t *testing.T) {
	t.Parallel()

	groups := Groups{
		{Name: "db", Budget: Budget{MaxUnavailable: "1"}},
		{Name: "web", Requires: Requirements{"db": 2}},
	}

	fleet := func(v *Verdict) []*Node {
		return []*Node{
			{Name: "a", Group: "db", Status: Allocated, State: Discovered, Verification: v},
			{Name: "b", Group: "db", Status: Allocated, State: Discovered},
			{Name: "c", Status: Unallocated, State: Discovered},
		}
	}

	for _, tt := range []struct {
		name  string
		v     *Verdict
		fails bool
	}{
		{"never verified", nil, false},
		{"differs", &Verdict{Result: Drifted, Differences: 3}, false},
		{"failed", &Verdict{Result: Drifted, Failed: true, Reason: "verify.yml: no answer"}, true},
	} {
		nodes := fleet(tt.v)
		if err := groups.CheckJoin(nodes, []string{"c"}, "web"); (err != nil) != tt.fails {
			t.Errorf("%s: joining web: %v", tt.name, err)
		}
		if err := groups.CheckBudgets(nodes, []string{"b"}); (err != nil) != tt.fails {
			t.Errorf("%s: taking another one: %v", tt.name, err)
		}

		// It can always be repaired.
		if err := groups.CheckBudgets(nodes, []string{"a"}); err != nil {
			t.Errorf("%s: taking it: %v", tt.name, err)
		}
	}
}

// TestRequirements checks that a refusal names each requirement that is not met, how many
// nodes are healthy, and which are not.
func TestRequirements(t *testing.T) {
	t.Parallel()

	nodes := []*Node{
		member("m-1", "m", Discovered),
		member("m-2", "m", Disappeared),
		member("m-3", "m", Discovered),
		member("e-1", "etcd", Discovered),
		member("w-1", "w", Discovered),
	}
	nodes[4].Job = "7"

	join := func(of []*Node, batch ...string) error { return several.CheckJoin(of, batch, "w") }
	leave := func(of []*Node, batch ...string) error { return several.CheckLeave(of, batch) }

	for _, tt := range []struct {
		name  string
		err   error
		says  string // "": allowed
		about string
	}{
		{"all are met", join(nodes, "x-1"), "", ""},
		{
			"too few healthy ones", join(nodes[1:], "x-1"),
			"x-1 cannot join w: it requires 2 healthy nodes of m outside this request, and there is 1: m-3; " +
				"not healthy: m-2 (Disappeared); commission 1 more of m first",
			"x-1 m-3 m-2",
		},
		{
			"none of both", join(nodes[4:], "x-1"),
			"x-1 cannot join w: it requires 1 healthy node of etcd outside this request, and there is none; and " +
				"2 healthy nodes of m outside this request, and there is none; " +
				"commission 1 more of etcd, 2 more of m first",
			"x-1",
		},
		{
			"one of the request does not count", join(nodes, "x-1", "e-1"),
			"it requires 1 healthy node of etcd outside this request, and there is none", "x-1 e-1",
		},
		{
			"fewer would stay than are required", leave(nodes, "m-1"),
			"without m-1, w-1 of group w would not have what it requires: 2 healthy nodes of m, and there is 1: m-3; " +
				"not healthy: m-2 (Disappeared); commission another m first, or decommission w-1 with it",
			"m-1 w-1 m-3 m-2",
		},
		{"enough stay", leave(append(nodes, member("m-4", "m", Discovered)), "m-1"), "", ""},
		{"the unhealthy one leaves", leave(nodes, "m-2"), "", ""},
		{"the dependent leaves as well", leave(nodes, "m-1", "m-3", "w-1"), "", ""},
		{"the second requirement", leave(nodes, "e-1"), "without e-1, w-1 of group w would not have", "e-1 w-1"},
		{"too few already", leave(nodes[1:], "m-2"), "and there is 1: m-3", "m-2 w-1 m-3"},
	} {
		if tt.says == "" {
			if tt.err != nil {
				t.Errorf("%s: %v", tt.name, tt.err)
			}

			continue
		}

		e, ok := tt.err.(*Error) //nolint:errorlint // The error itself is of this type.
		if !ok || e.Kind != KindRefused || !strings.Contains(e.Error(), tt.says) {
			t.Errorf("%s: got %v, want %q", tt.name, tt.err, tt.says)
			continue
		}

		if got := strings.Join(e.Nodes, " "); got != tt.about {
			t.Errorf("%s: it is about %s, want %s", tt.name, got, tt.about)
		}
	}
}

// TestRequirementsCheck checks that rules that nobody could follow are refused.
func TestRequirementsCheck(t *testing.T) {
	t.Parallel()

	group := func(name string, requires ...string) Group {
		g := Group{Name: name, Requires: Requirements{}}
		for _, r := range requires {
			g.Requires[r] = 1
		}

		return g
	}

	for _, tt := range []struct {
		groups Groups
		says   string // "": valid
	}{
		{several, ""},
		{Groups{group("a", "b", "c"), group("b", "c"), group("c")}, ""},
		{Groups{group("a", "b"), group("b", "a")}, "group a requires b, group b requires a: no node could ever join"},
		{
			Groups{group("x", "a"), group("a", "b"), group("b", "c"), group("c", "a")},
			"group a requires b, group b requires c, group c requires a: no node could ever join",
		},
		{Groups{{Name: "a"}, {Name: "b", Requires: Requirements{"a": 0}}}, "group b requires 0 nodes of a"},
		{Groups{{Name: "a"}, {Name: "b", Requires: Requirements{"a": -1}}}, "group b requires -1 nodes of a"},
		{Groups{{Name: "a"}, {Name: "b", Requires: Requirements{"x": 1}}}, "group x, which is not configured"},
	} {
		err := tt.groups.Check()
		if tt.says == "" && err != nil || tt.says != "" && (KindOf(err) != KindInvalid ||
			!strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%v: got %v, want %q", tt.groups, err, tt.says)
		}
	}
}

// TestDefaultGroupOfSeveral follows the commissions that name no group.
func TestDefaultGroupOfSeveral(t *testing.T) {
	t.Parallel()

	layers := Groups{
		{Name: "w", Requires: Requirements{"m": 2, "etcd": 1}},
		{Name: "m", Requires: Requirements{"etcd": 3}},
		{Name: "etcd"},
	}

	for groups, want := range map[*Groups]string{&several: "etcd m m w w", &layers: "etcd etcd etcd m m w w"} {
		var (
			nodes []*Node
			got   []string
		)

		for i := range strings.Fields(want) {
			group := groups.Default(nodes)
			got = append(got, group)
			nodes = append(nodes, member(fmt.Sprintf("n-%d", i), group, Discovered))
		}

		if strings.Join(got, " ") != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}

// randomGroups returns groups with random requirements. A group requires only those
// before it in the order of their names, unless circles is set.
func randomGroups(r *rand.Rand, circles bool) Groups {
	gs := make(Groups, 1+r.IntN(5))
	for i := range gs {
		gs[i] = Group{Name: fmt.Sprintf("g%d", i), Requires: Requirements{}}

		limit := i
		if circles {
			limit = len(gs)
		}

		for j := range limit {
			if r.IntN(3) == 0 {
				gs[i].Requires[fmt.Sprintf("g%d", j)] = 1 + r.IntN(3)
			}
		}
	}

	r.Shuffle(len(gs), func(i, j int) { gs[i], gs[j] = gs[j], gs[i] })

	return gs
}

// startable reports whether a node can join every group, one after the other.
func startable(gs Groups) bool {
	var nodes []*Node

	for range gs {
		for _, g := range gs {
			if gs.CheckJoin(nodes, nil, g.Name) == nil {
				for range 3 {
					nodes = append(nodes, member("n", g.Name, Discovered))
				}
			}
		}
	}

	return !slices.ContainsFunc(gs, func(g Group) bool { return gs.CheckJoin(nodes, nil, g.Name) != nil })
}

// TestRequirementsHold proves with random groups and nodes: valid groups are those that
// can be started, and as long as every step is one that the rules allow, every node in
// service has what its group requires. The default group can be joined if every node is
// healthy.
func TestRequirementsHold(t *testing.T) {
	t.Parallel()

	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))

		if gs := randomGroups(r, true); (gs.Check() == nil) != startable(gs) {
			t.Fatalf("seed %d: %v: got %v, and they can be started: %v", seed, gs, gs.Check(), startable(gs))
		}

		gs := randomGroups(r, false)

		var nodes []*Node
		for step := range 60 {
			if err := gs.CheckJoin(nodes, []string{"new"}, gs.Default(nodes)); err != nil {
				t.Fatalf("seed %d, step %d: the default group: %v", seed, step, err)
			}

			nodes = randomStep(r, gs, nodes, step)

			for _, g := range gs {
				used := slices.ContainsFunc(nodes, func(n *Node) bool { return n.Group == g.Name })
				if lack := gs.Unmet(nodes, nil, g.Name); used && len(lack) > 0 {
					t.Fatalf("seed %d, step %d: %s lacks %v", seed, step, g.Name, lack)
				}
			}
		}
	}
}

// randomStep adds or removes a few nodes, if the rules allow it.
func randomStep(r *rand.Rand, gs Groups, nodes []*Node, step int) []*Node {
	if r.IntN(3) > 0 {
		group := gs[r.IntN(len(gs))].Name
		if gs.CheckJoin(nodes, []string{"new"}, group) != nil {
			return nodes
		}
		return append(nodes, member(fmt.Sprintf("n-%d", step), group, Discovered))
	}

	var batch []string
	for _, n := range nodes {
		if r.IntN(4) == 0 {
			batch = append(batch, n.Name)
		}
	}

	if gs.CheckLeave(nodes, batch) != nil {
		return nodes
	}

	return slices.DeleteFunc(nodes, func(n *Node) bool { return slices.Contains(batch, n.Name) })
}
