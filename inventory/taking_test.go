// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// fleetOf returns nodes of two groups in some racks, some of them unavailable.
func fleetOf(r *rand.Rand, size int) []*Node {
	nodes := make([]*Node, size)

	for i := range nodes {
		n := &Node{
			Name: fmt.Sprintf("n-%05d", i), Group: GroupWorker, Status: Allocated, State: Discovered,
			Labels: map[string]string{"rack": fmt.Sprint(r.IntN(4))},
		}

		switch r.IntN(8) {
		case 0:
			n.Group = GroupMaster
		case 1:
			n.State = Disappeared
		case 2:
			n.Status, n.Verb = Maintenance, VerbApply
		case 3:
			n.Status, n.Labels = Unallocated, nil
		}

		nodes[i] = n
	}

	return nodes
}

// TestTaking: taken one by one, the nodes are those that CheckBudgets allows together.
func TestTaking(t *testing.T) {
	t.Parallel()

	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		nodes := fleetOf(r, 1+r.IntN(30))
		groups := Groups{
			{Name: GroupMaster, Budget: Budget{MinAvailable: r.IntN(3)}},
			{Name: GroupWorker, Budget: Budget{MinAvailable: r.IntN(8), MaxUnavailable: "30%"}},
		}

		if r.IntN(2) == 0 {
			groups[1].Budget.Per = "rack"
		}

		var taken []string

		taking := groups.Taking(nodes, nil)

		for range 40 {
			n := nodes[r.IntN(len(nodes))]
			if slices.Contains(taken, n.Name) {
				continue
			}

			// What was taken before is the same as what is taken from the beginning.
			if r.IntN(4) == 0 {
				taking = groups.Taking(nodes, taken)
			}

			with := append(slices.Clone(taken), n.Name)
			want := groups.CheckBudgets(nodes, with)

			if err := taking.Take(n); KindOf(err) != KindOf(want) {
				t.Fatalf("seed %d: %s after %v: %v, want %v", seed, n.Name, taken, err, want)
			}

			if want == nil {
				taken = with
			}
		}
	}
}

// TestTakingRefuses: the refusal names the nodes, and a group without a budget has none.
func TestTakingRefuses(t *testing.T) {
	t.Parallel()

	nodes := parseNodes(t, "a m Allocated Discovered", "b m Allocated Discovered", "c w Allocated Discovered")
	groups := Groups{{Name: GroupMaster, Budget: Budget{MaxUnavailable: "1"}}, {Name: GroupWorker}}
	taking := groups.Taking(nodes, []string{"a"})

	err := taking.Take(nodes[1])
	if KindOf(err) != KindRefused || err.Error() != groups.CheckBudgets(nodes, []string{"a", "b"}).Error() {
		t.Errorf("the second master: %v", err)
	}

	if err := taking.Take(nodes[2]); err != nil {
		t.Errorf("a worker: %v", err)
	}
}

// BenchmarkTaking counts all nodes of a fleet, and asks for each of them.
func BenchmarkTaking(b *testing.B) {
	groups := Groups{{Name: GroupWorker, Budget: Budget{MinAvailable: 1, MaxUnavailable: "30%", Per: "rack"}}}

	for _, size := range []int{1000, 10_000} {
		nodes := fleetOf(rand.New(rand.NewPCG(1, 0)), size)

		b.Run(fmt.Sprintf("nodes=%d", size), func(b *testing.B) {
			for b.Loop() {
				taking := groups.Taking(nodes, nil)
				for _, n := range nodes {
					_ = taking.Take(n)
				}
			}
		})
	}
}
