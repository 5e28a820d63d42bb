// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
)

// TestProperties simulates rollouts of many shapes over fleets of up to 1 000 nodes. fleet.check
// asserts the window, the failure limit, the bounds of the group, the racks, the canary and the
// visits after every operation, and fleet.checkBudget the budget at every begin, while nodes
// disappear and come back. The decider is killed after some operations, and another one goes on.
func TestProperties(t *testing.T) {
	t.Parallel()

	begun := uint64(time.Now().UnixNano())
	t.Logf("the first seed is %d", begun)

	for k := range uint64(48) {
		seed := begun + k

		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			simulate(t, seed)
		})
	}
}

func simulate(t *testing.T, seed uint64) {
	t.Helper()

	sizes := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 25, 30, 35, 40, 50, 60, 70, 100, 150, 1000}
	f := newFleet(t, seed, sizes[int(seed%uint64(len(sizes)))])
	n := len(f.names)

	actions := []inventory.Verb{inventory.VerbApply, inventory.VerbUpdate, inventory.VerbReapply}
	spec := Spec{
		Action:         actions[f.rand.IntN(3)],
		MaxUnavailable: []string{"", "1", "3", "10", "10%", "100%"}[f.rand.IntN(6)],
		MaxFailures:    f.rand.IntN(4),
		Canary:         f.rand.IntN(min(n, 4)),
		Soak:           time.Duration(f.rand.IntN(2)) * 30 * time.Second,
		Gate:           Gate{SkipVerify: f.rand.IntN(2) == 0},
	}
	spec.Promote = spec.Canary > 0 && f.rand.IntN(3) == 0
	spec.Order = []Order{{}, {By: ByGroup}, {By: ByLabel, Label: "rack"}}[f.rand.IntN(3)]

	rate, kills := []float64{0, 0.001, 0.02, 0.3}[f.rand.IntN(4)], []float64{0, 0.05, 0.5}[f.rand.IntN(3)]
	f.fails = func(string, int, bool) bool { return f.rand.Float64() < rate }
	f.kill = func() bool { return f.rand.Float64() < kills }
	f.takes = func() time.Duration { return time.Duration(1+f.rand.IntN(300)) * time.Second }

	if two := 2; f.rand.IntN(3) == 0 {
		spec.Strategies = map[string]Strategy{inventory.GroupWorker: {MaxUnavailable: "2", MaxFailures: &two}}
	}

	budgets := []inventory.Budget{
		{}, {MinAvailable: n / 2}, {MinAvailable: n - 1}, {MaxUnavailable: "2"}, {MaxUnavailable: "1", Per: "rack"},
	}
	f.groups = inventory.Groups{{Name: inventory.GroupWorker, Budget: budgets[f.rand.IntN(len(budgets))]}}
	f.churns = f.groups.Budgeted() && f.rand.IntN(2) == 0

	f.start(spec)
	f.steer()

	t.Logf("%d nodes, %+v, budget %q: %s, %+v, %d kills, %d held by the budget",
		n, spec, f.groups[0].Budget, f.record.Status, f.record.Count(), f.killed, f.pressed)
}

// steer runs the rollout as a person would: it pauses and resumes, retries failed nodes, and
// at last lets it finish or aborts it.
func (f *fleet) steer() {
	f.t.Helper()

	mark := func() Mark { return Mark{By: "bob", At: f.now} }
	pauses, abortAt := 3, -1

	// A third of the rollouts is aborted somewhere.
	if f.rand.IntN(3) == 0 {
		abortAt = f.rand.IntN(len(f.names))
	}

	for round := 0; ; round++ {
		f.run(1000*24*time.Hour, func() {
			if f.churns {
				f.churn()
			}

			if c := f.record.Count(); abortAt >= 0 && c.Succeeded+c.Failed >= abortAt && !f.record.Status.Ended() {
				f.act(f.record.Abort(mark(), f.rand.IntN(2) == 0))
				abortAt = -1
			}

			if f.record.Status == Running && pauses > 0 && f.rand.IntN(10) == 0 {
				pauses--
				f.act(f.record.Pause(mark()))
			}
		})

		switch {
		case f.record.Status.Ended():
			f.holdsNothing()
			return
		case f.record.Status == Paused:
			f.act(f.record.Resume(mark()))
		case f.record.Status == AwaitingPromotion:
			f.act(f.record.Promote(mark()))
		case f.record.Status == Running && round < 10:
			// It waits for nodes that are down, which come back.
			f.repair()
		case round < 20 && f.rand.IntN(2) == 0 && f.record.Count().Failed > 0:
			// Somebody repairs the nodes, and they are begun again.
			f.repair()
			f.act(f.record.Retry(mark(), nil))
		case f.record.Status == Stopped && round < 40:
			f.repair()
			f.act(f.record.Resume(mark()))
		default:
			f.act(f.record.Abort(mark(), true))
		}
	}
}

func (f *fleet) act(r Record, err error) {
	f.t.Helper()

	if err != nil {
		f.t.Fatalf("seed %d: %v", f.seed, err)
	}

	f.record = r
}

// repair brings every node that serves no more back into service.
func (f *fleet) repair() {
	for name, n := range f.nodes {
		if !n.Status.InProgress() {
			m := n.Clone()
			m.Status, m.State, m.Group = inventory.Allocated, inventory.Discovered, "service-worker"
			f.nodes[name] = &m
		}
	}
}

// TestKilledAnywhere kills the decider after each operation in turn. The rollout ends the same.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()

	want := ""

	for at := 0; ; at++ {
		f := newFleet(t, 7, 12)
		f.kill = func() bool { return f.stored == at }
		f.fails = func(node string, attempt int, gate bool) bool { return node == "w-0005" && attempt == 1 && gate }
		f.start(Spec{
			Action: inventory.VerbUpdate, MaxUnavailable: "3", MaxFailures: 1, Canary: 2, Soak: time.Minute,
		})
		f.run(24*time.Hour, nil)
		f.holdsNothing()

		got := fmt.Sprintf("%s %+v %s after %s", f.record.Status, f.record.Count(), f.record.Reason, f.now.Sub(epoch))
		if want == "" {
			want = got
		}

		if got != want {
			t.Errorf("killed after operation %d: %s, want %s", at, got, want)
		}

		if at > 0 && f.killed == 0 {
			t.Logf("%d operations, each ends with: %s", at, want)
			return
		}
	}
}

// TestSchedule compares the duration with the ideal one: the engine keeps every place busy.
func TestSchedule(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 1000)
	f.start(Spec{Action: inventory.VerbApply, MaxUnavailable: "10", Gate: Gate{SkipVerify: true}})
	f.run(24*time.Hour, nil)

	if took, ideal := f.now.Sub(epoch), 100*time.Minute; took != ideal || f.maxDown != 10 {
		t.Errorf("it took %s with up to %d nodes at once, the ideal schedule takes %s", took, f.maxDown, ideal)
	}
}
