// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
)

// TestProperties simulates rollouts of many shapes over fleets of up to 300 nodes. fleet.check
// asserts the window, the failure limit, the bounds of the group, the racks, the canary and the
// visits after every operation, fleet.checkBudget the budget at every begin, while nodes
// disappear and come back, and evidence.audit all that the record says after every decision. The
// decider is killed after some operations, and another one goes on.
func TestProperties(t *testing.T) {
	t.Parallel()
	randomly(t, 24, simulate)
}

// randomly runs a test with as many seeds, which differ from run to run.
func randomly(t *testing.T, seeds uint64, test func(*testing.T, uint64)) {
	t.Helper()

	begun := uint64(time.Now().UnixNano())
	t.Logf("the first seed is %d", begun)

	for k := range seeds {
		seed := begun + k

		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			test(t, seed)
		})
	}
}

func simulate(t *testing.T, seed uint64) {
	t.Helper()

	sizes := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 25, 30, 35, 40, 50, 60, 70, 100, 150, 300}
	f := newFleet(t, seed, sizes[int(seed%uint64(len(sizes)))])
	n := len(f.names)

	f.shake([]float64{0, 0.001, 0.02, 0.3}[f.rand.IntN(4)])
	spec := f.spec()

	budgets := []inventory.Budget{
		{}, {MinAvailable: n / 2}, {MinAvailable: n - 1}, {MaxUnavailable: "2"}, {MaxUnavailable: "1", Per: "rack"},
	}
	f.groups = inventory.Groups{{Name: inventory.GroupWorker, Budget: budgets[f.rand.IntN(len(budgets))]}}
	f.churns = f.groups.Budgeted() && f.rand.IntN(2) == 0

	f.watch()
	f.start(spec)
	f.steer()
	f.checkUndo()

	t.Logf("%d nodes, %+v, budget %q: %s, %+v, %d kills, %d held by the budget, up to %d decisions at once",
		n, spec, f.groups[0].Budget, f.record.Status, f.record.Count(), f.killed, f.pressed, f.most)
}

// shake makes the world an uneven one: jobs wait, fail in many ways at that rate and are reported
// late, and the decider is killed.
func (f *fleet) shake(rate float64) {
	kills := []float64{0, 0.05, 0.5}[f.rand.IntN(3)]
	seconds := func(n int) func() time.Duration {
		return func() time.Duration { return time.Duration(1+f.rand.IntN(n)) * time.Second }
	}

	f.fails = func(string, int, bool) bool { return f.rand.Float64() < rate }
	f.kill = func() bool { return f.rand.Float64() < kills }
	f.takes = seconds(300)

	f.ends = func(gate bool) end {
		if gate {
			return []end{endsFailed, endsDrifted, endsUnjudged, endsRefused}[f.rand.IntN(4)]
		}
		return []end{endsFailed, endsUntouched, endsRefused, endsForbidden}[f.rand.IntN(4)]
	}

	if f.rand.IntN(2) == 0 {
		f.queues, f.lags = seconds(60), seconds(20)
	}

	if f.rand.IntN(2) == 0 {
		f.accepts = func() answer {
			return []answer{postpones, refuses, accepts}[min(f.rand.IntN(50), 2)]
		}
	}

	f.checks = func() time.Duration {
		if f.rand.Float64() < rate {
			return -1
		}
		return seconds(90)()
	}
}

// spec returns a random specification.
func (f *fleet) spec() Spec {
	actions := []inventory.Verb{inventory.VerbApply, inventory.VerbUpdate, inventory.VerbReapply}
	spec := Spec{
		Action:         actions[f.rand.IntN(3)],
		MaxUnavailable: []string{"", "1", "3", "10", "10%", "100%"}[f.rand.IntN(6)],
		MaxFailures:    f.rand.IntN(4),
		Canary:         f.rand.IntN(min(len(f.names), 4)),
		Soak:           time.Duration(f.rand.IntN(2)) * 30 * time.Second,
		Gate:           Gate{SkipVerify: f.rand.IntN(2) == 0},
	}
	spec.Promote = spec.Canary > 0 && f.rand.IntN(3) == 0
	spec.Order = []Order{{}, {By: ByGroup}, {By: ByLabel, Label: "rack"}}[f.rand.IntN(3)]

	if f.rand.IntN(3) == 0 {
		spec.Gate.HTTP = &HTTPCheck{Port: 80, Timeout: time.Minute}
	}

	if two := 2; f.rand.IntN(3) == 0 {
		spec.Strategies = map[string]Strategy{inventory.GroupWorker: {MaxUnavailable: "2", MaxFailures: &two}}
	}

	return spec
}

// steer runs the rollout as a person would: it pauses and resumes, retries failed nodes, and
// at last lets it finish or aborts it.
func (f *fleet) steer() {
	f.t.Helper()

	pauses, abortAt := 3, -1

	// A third of the rollouts is aborted somewhere.
	if f.rand.IntN(3) == 0 {
		abortAt = f.rand.IntN(len(f.names))
	}

	for round := 0; round < 100; round++ {
		f.run(1000*24*time.Hour, func() {
			if f.churns {
				f.churn()
			}

			if c := f.record.Count(); abortAt >= 0 && c.Succeeded+c.Failed >= abortAt && !f.record.Status.Ended() {
				f.abort(f.rand.IntN(2) == 0)
				abortAt = -1
			}

			if f.record.Status == Running && pauses > 0 && f.rand.IntN(10) == 0 {
				pauses--
				f.pause()
			}
		})

		switch {
		case f.record.Status.Ended():
			f.holdsNothing()
			return
		case f.record.Status == Paused:
			f.resume()
		case f.record.Status == AwaitingPromotion:
			f.promote()
		case f.record.Status == Running && round < 10:
			// It waits for nodes that are down, which come back.
			f.repair()
		case round < 20 && f.rand.IntN(2) == 0 && f.record.Count().Failed > 0:
			// Somebody repairs the nodes, and they are begun again.
			f.repair()
			f.retry(nil)
		case f.record.Status == Stopped && round < 40:
			f.repair()
			f.resume()
		default:
			f.abort(true)
		}
	}

	f.t.Fatalf("seed %d: people act in vain: %s", f.seed, f.waitsFor())
}

func (f *fleet) act(r Record, err error) {
	f.t.Helper()

	if err != nil {
		f.t.Fatalf("seed %d: %v", f.seed, err)
	}

	f.record = r
}

// repair brings every node that serves no more back into service.
func (s *site) repair() {
	for name, n := range s.nodes {
		if !n.Status.InProgress() {
			m := n.Clone()
			m.Status, m.State, m.Group = inventory.Allocated, inventory.Discovered, "service-worker"
			s.nodes[name] = &m
		}
	}
}

// TestTogether simulates several rollouts and their undos over nodes that they share, while people
// act on them, also two at once.
func TestTogether(t *testing.T) {
	t.Parallel()
	randomly(t, 16, together)
}

func together(t *testing.T, seed uint64) {
	t.Helper()

	f := newFleet(t, seed, 4+int(seed%12))
	f.shake(f.rand.Float64() / 2)
	f.watch()
	f.start(f.spec())

	s := f.site

	for range 60 {
		s.live(time.Duration(1+s.rand.IntN(600))*time.Second, nil)

		if s.rand.IntN(3) == 0 {
			s.repair()
		}

		s.atOnce()
	}

	// At last people let each one come to its end.
	for range 200 {
		if s.live(1000*24*time.Hour, nil); s.settle() {
			break
		}
	}

	for _, f := range s.fleets {
		f.holdsNothing()

		if f.record.UndoOf == "" {
			f.checkUndo()
		} else {
			f.checkUndone()
		}
	}

	for _, f := range s.fleets {
		t.Logf("%s %d %s %s: %+v", f.record.ID, len(f.names), f.record.Spec.Action, f.record.Status, f.record.Count())
	}
}

// settle lets people act on each rollout that does not go on by itself, and reports whether all
// have ended.
func (s *site) settle() bool {
	s.t.Helper()
	s.repair()

	ended := true

	for _, f := range s.fleets {
		switch f.record.Status {
		case Done, Fruitless, Aborted:
			continue
		case Paused, Stopped:
			f.resume()
		case AwaitingPromotion:
			f.promote()
		case Running:
			// All nodes were fit, and none was held by another one.
			nodes := fmt.Sprintf("%+v", f.record.Nodes)
			if f.repaired == nodes {
				f.evidence.fail("it does not go on")
			}
			f.repaired = nodes
		}

		ended = false
	}

	return ended
}

// act is an act of a person that takes nodes.
type act struct {
	f      *fleet
	decide func(list []*Record) (Record, error)
	done   func(Record)
}

// atOnce carries out one act of a person, or two that were decided on the same view.
func (s *site) atOnce() {
	var acts []act

	for range 1 + s.rand.IntN(2) {
		if a, ok := s.anyAct(); ok {
			acts = append(acts, a)
		}
	}

	view := s.records()

	for i, a := range acts {
		r, err := a.decide(view)

		// Its condition is that nothing has changed since, if it takes nodes.
		if takes := a.f.record.ID == "" || r.TakesNodes(a.f.record); err == nil && i > 0 && takes {
			r, err = a.decide(s.records())
		}

		if err == nil {
			a.done(r)
		} else if inventory.KindOf(err) != inventory.KindRefused {
			s.t.Fatalf("seed %d: %v", s.seed, err)
		}
	}
}

func (s *site) records() []*Record {
	var list []*Record
	for _, f := range s.fleets {
		r := f.record
		list = append(list, &r)
	}

	return list
}

// anyAct returns an act that takes nodes, or carries out one that does not.
func (s *site) anyAct() (act, bool) {
	if len(s.fleets) < 12 && s.rand.IntN(4) == 0 {
		return s.begins(), true
	}

	// Half of the acts are on the newest rollout, which goes on more often than the others.
	f := s.fleets[len(s.fleets)-1]
	if s.rand.IntN(2) == 0 {
		f = s.fleets[s.rand.IntN(len(s.fleets))]
	}

	switch chance := s.rand.IntN(4); f.record.Status {
	case Running:
		switch chance {
		case 0:
			f.pause()
		case 1:
			f.abort(s.rand.IntN(2) == 0)
		case 2:
			return f.retries(), true
		}
	case Paused:
		if chance == 0 {
			f.abort(s.rand.IntN(2) == 0)
		} else {
			f.resume()
		}
	case AwaitingPromotion:
		f.promote()
	case Done, Fruitless, Aborted:
		if chance == 0 && f.record.UndoOf == "" && len(s.fleets) < 16 {
			return f.undoes(), true
		}
		return f.retries(), true
	case Stopped:
		return f.retries(), true
	}

	return act{}, false
}

// begins returns the start of a rollout over some of the nodes.
func (s *site) begins() act {
	from := s.rand.IntN(len(s.all))
	f := &fleet{site: s, names: s.all[from:min(from+1+s.rand.IntN(8), len(s.all))], visits: map[string]int{}}
	spec := f.spec()

	return act{f, func(list []*Record) (Record, error) {
		r, err := Make(s.snapshot(), inventory.DefaultGroups(), list, Request{Spec: spec, Nodes: f.names}, s.now)
		if free := !slices.ContainsFunc(f.names, s.isHeld); err != nil && free {
			s.t.Fatalf("seed %d: no rollout is to change %s, and one is refused: %v", s.seed, f.names, err)
		}
		return r, err
	}, f.joins}
}

func (s *site) isHeld(name string) bool { return s.holder(name) != nil }

// joins starts the rollout.
func (f *fleet) joins(r Record) {
	f.fleets = append(f.fleets, f)
	f.watch()
	f.begun(r)
}

// undoes returns the start of the undo.
func (f *fleet) undoes() act {
	u := &fleet{site: f.site, visits: map[string]int{}, undone: f}

	return act{u, func(list []*Record) (Record, error) {
		return f.record.Undo(f.snapshot(), list, func(string) (bool, error) { return true, nil }, "", f.now)
	}, func(r Record) {
		for i := range r.Nodes {
			u.names = append(u.names, r.Nodes[i].Name)
		}

		u.joins(r)
	}}
}

// retries returns the retry of failed nodes, or of some that were skipped.
func (f *fleet) retries() act {
	var names []string

	for i := range f.record.Nodes {
		if s := f.record.Nodes[i].State; s == Skipped || s == Failed && f.rand.IntN(2) == 0 {
			names = append(names, f.record.Nodes[i].Name)
		}
	}

	if f.rand.IntN(2) == 0 {
		names = nil
	}

	return act{f, func(list []*Record) (Record, error) {
		r, err := f.record.Retry(f.mark(), names)
		if err == nil && r.TakesNodes(f.record) {
			err = r.CheckFree(list)
		}
		return r, err
	}, func(r Record) { f.retried(r, names) }}
}

// checkUndone asserts that the nodes of the undo are as they were before.
func (f *fleet) checkUndone() {
	f.t.Helper()

	for i := range f.record.Nodes {
		n := &f.record.Nodes[i]
		if n.State != Succeeded || f.changers[n.Name].of != f {
			continue
		}
		is := f.nodes[n.Name].Playbooks["service-worker"]
		if before := f.undone.evidence.nodes[n.Name].before; !slices.Contains(before, is) {
			f.evidence.fail("%s is configured by %s, and was by %s", n.Name, is, before)
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
		f.start(Spec{Action: inventory.VerbUpdate, MaxUnavailable: "3", MaxFailures: 1, Canary: 2, Soak: time.Minute})
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

// TestAbortAnywhere aborts a rollout before each decision in turn, while its jobs wait, run, are
// verified and checked. The evidence has what may go on, and what may not.
func TestAbortAnywhere(t *testing.T) {
	t.Parallel()

	for _, cancel := range []bool{false, true} {
		for at, aborted := 0, true; aborted; at++ {
			f := newFleet(t, 7, 5)
			f.queues = func() time.Duration { return 20 * time.Second }
			f.lags = func() time.Duration { return 3 * time.Second }
			f.takes = func() time.Duration { return time.Duration(20+f.rand.IntN(60)) * time.Second }
			f.watch()
			f.start(Spec{
				Action: inventory.VerbApply, MaxUnavailable: "2", Soak: time.Minute,
				Gate: Gate{HTTP: &HTTPCheck{Port: 80, Timeout: time.Minute}},
			})

			decisions := 0
			aborted = false

			f.run(24*time.Hour, func() {
				if decisions == at && f.record.Status == Running {
					f.abort(cancel)
					aborted = true
				}

				decisions++
			})
			f.holdsNothing()
			f.checkUndo()

			want := map[bool]Status{true: Aborted, false: Done}[aborted]
			if f.record.Status != want || !aborted && at < 20 {
				t.Fatalf("aborted before decision %d: %s", at, f.record.Status)
			}
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
