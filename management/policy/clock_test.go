// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// jumps are the errors that the clock of the manager may have: none, or that of a dead battery,
// of a wrong time zone, and of a wrong year.
var jumps = []time.Duration{
	0, 0, -56 * 365 * 24 * time.Hour, time.Hour, -time.Hour, 30 * time.Hour, -30 * time.Hour, 400 * 24 * time.Hour,
	-400 * 24 * time.Hour, 20 * time.Second,
}

// clocked is a simulated fleet of a manager with a clock that jumps. True times come from a clock that
// nobody changes.
type clocked struct {
	*testing.T

	random *rand.Rand
	world  policy.World
	rule   policy.Rule
	verify policy.Verify

	now     time.Time // true
	wrong   time.Duration
	clock   policy.Clock
	epoch   time.Time
	started time.Time // true, of the process

	lost, seen map[string]time.Time   // true, of the newest change of a node
	begun      []time.Time            // true, of commissions
	verified   map[string][]time.Time // true, by node
	jumped     int                    // times
	replaced   map[string]bool        // nodes with a successor
	count      map[string]int         // of events
}

const clockStep = 30 * time.Second

func newClocked(t *testing.T, seed uint64) *clocked {
	rule := siteRule()
	rule.Quiet, rule.Rate = 5*time.Minute, 3

	c := &clocked{
		T: t, rule: rule, random: rand.New(rand.NewPCG(seed, 2)), now: noon, started: noon,
		lost: map[string]time.Time{}, seen: map[string]time.Time{}, verified: map[string][]time.Time{},
		replaced: map[string]bool{}, count: map[string]int{},
	}

	nodes := []*inventory.Node{master("m-0", "a"), master("m-1", "b"), master("m-2", "c")}
	for i := range 20 {
		nodes = append(nodes, inRack(fmt.Sprintf("n-%02d", i), "a", noon))
	}

	c.world = siteWorld(rule, nodes...)
	c.world.Settings.Brake.Minimum = 1000
	// Spare nodes are left for the places of lost masters.
	c.world.Settings.Commission[0].Roles = rule.Roles[:1]
	c.rule = c.world.Settings.Commission[0]

	times, err := window.ParseTimes("0 * * * *", "UTC")
	errtest.None(t, err)

	c.verify = policy.Verify{Rule: policy.VerifyRule{
		Name: "hourly", Match: func(*inventory.Node) bool { return true }, All: true, Times: times,
		Spread: new(10 * time.Minute), Batch: 5, Jobs: 2,
	}}
	c.world.Settings.Verify = []policy.VerifyRule{c.verify.Rule}
	setMemory(c.world.View, state.AutomationOf(c.world.View).Turn("hourly", policy.Scoped(
		state.Switch{On: true, Since: noon.Add(-time.Hour)}, c.verify)))

	for _, n := range nodes {
		c.seen[n.Name] = noon
	}

	c.start()

	return c
}

func (c *clocked) wall() time.Time { return c.now.Add(c.wrong) }

// start begins a process of the manager.
func (c *clocked) start() {
	c.clock, c.started = policy.Clock{}, c.now
	c.epoch = time.Time{}
	c.world.Start = policy.Start{Began: c.wall(), Observed: c.wall()}
}

// read gives the policies the time.
func (c *clocked) read() {
	c.world.Now = c.wall()

	stepped := c.world.Start.Stepped()

	c.world.Start.Jumps = c.clock.Read(c.wall(), c.now.Sub(noon))
	if c.epoch.IsZero() || !stepped.Equal(c.world.Start.Stepped()) {
		c.epoch = c.wall()
	}

	c.world.Start.Epoch = c.epoch
}

// step lets time pass.
func (c *clocked) step(calm bool) {
	c.now = c.now.Add(clockStep)

	if !calm {
		c.happen()
	}

	c.read()

	// The work of the leader.
	for _, n := range policy.Ahead(c.world) {
		*c.world.View.Find(n.Name) = n
		c.count["mended"]++
	}

	if schedules, changed := policy.Scheduled(c.world); changed {
		c.world.View.View = record.Change(
			c.world.View.View,
			&state.Memory,
			func(a *state.Automation) { a.Schedules = schedules },
		)
	}

	for _, p := range []policy.Policy{policy.Returns{}, policy.Commission{Rule: c.rule}, c.verify} {
		plan := policy.Decide(p, c.world)

		for _, name := range plan.Ask {
			n := c.world.View.Find(name)
			if up := n.State == inventory.Discovered; !n.Presence.Since.After(c.wall()) {
				*n = n.Contacted(inventory.Contact{Time: c.wall(), Reached: up, Silent: !up, Boot: bootA})
			}
		}

		for name, text := range plan.Notes {
			n := c.world.View.Find(name)
			*n, _ = n.Decided(inventory.Trigger{Time: c.wall(), Reason: text})
		}

		for _, d := range plan.Decisions {
			c.decided(d)
		}
	}
}

// happen changes the fleet, the clock and the process by chance.
func (c *clocked) happen() {
	one := func(n int) bool { return c.random.IntN(n) == 0 }

	if one(60) {
		c.wrong = jumps[c.random.IntN(len(jumps))]
		c.jumped++

		if one(3) {
			c.start()
			c.count["jumps between processes"]++
		}
	}

	if one(400) {
		c.start()
	}

	silent := 0

	for _, n := range c.world.View.Nodes() {
		switch {
		case n.State == inventory.Disappeared:
			if one(150) {
				seen(n, true, c.wall())
				c.seen[n.Name] = c.now
				delete(c.lost, n.Name)
			}
		case one(600) && n.Group == "service-master" && silent == 0:
			seen(n, false, c.wall())
			c.lost[n.Name] = c.now
		}

		if n.State == inventory.Disappeared && n.Group == "service-master" && !c.replaced[n.Name] {
			silent++
		}
	}
}

// decided carries a decision out, which must not rest on a time that has not passed.
func (c *clocked) decided(d state.Decision) {
	c.check(d)
	c.count[string(d.Action)]++

	d.Phase, d.Job = state.PhaseDone, fmt.Sprintf("j%d", state.AutomationOf(c.world.View).Count)

	names := d.Nodes
	if d.Node != "" {
		names = []string{d.Node}
	}

	j := job.Job{
		ID: d.Job, Verb: inventory.VerbVerify, Status: job.Complete, Actor: state.PolicyPrincipal(d.Policy),
		Accepted: c.wall(), Started: c.wall(), Ended: c.wall(),
	}

	for _, name := range names {
		n := c.world.View.Find(name)
		if d.Node != "" && d.Action == state.ActionVerify {
			*n, _ = n.Decided(inventory.Trigger{Time: c.wall()})
		}

		if d.Action == state.ActionCommission {
			j.Verb, j.Group = inventory.VerbCommission, d.Group
			n.Status, n.Group, n.PrevStatus = inventory.Allocated, d.Group, inventory.Provisioning
		} else {
			n.Verification = &inventory.Verdict{Time: c.wall(), Job: d.Job, Result: inventory.Clean}
		}

		j.Targets = append(j.Targets, job.Target{Name: name})
	}

	jobs := append(c.world.View.Jobs(), &j)
	c.world.View.SetJobs(jobs[max(0, len(jobs)-50):]...)
	setMemory(c.world.View, policy.Remember(c.world, state.AutomationOf(c.world.View).With(d)))
}

// check compares a decision with the true times.
func (c *clocked) check(d state.Decision) {
	c.Helper()

	fresh := func(name string) bool { return c.seen[name].After(c.started) }

	switch {
	case d.Replaces != "":
		away := c.now.Sub(c.lost[d.Replaces])
		if gone := c.lost[d.Replaces]; gone.IsZero() || away < c.rule.Roles[0].ReplaceAfter {
			c.Fatalf("%s takes the place of %s, which was lost %s ago: %s", d.Node, d.Replaces, away, d.Evidence)
		}

		c.replaced[d.Replaces] = true
	case d.Action == state.ActionCommission && fresh(d.Node) && c.now.Sub(c.seen[d.Node]) < c.rule.Quiet:
		c.Fatalf("%s was commissioned %s after its discovery", d.Node, c.now.Sub(c.seen[d.Node]))
	case d.Action == state.ActionVerify && d.Node != "" && fresh(d.Node) &&
		c.now.Sub(c.seen[d.Node]) < c.world.Settings.Settle:
		c.Fatalf("%s was verified %s after its return", d.Node, c.now.Sub(c.seen[d.Node]))
	}

	if d.Action == state.ActionCommission {
		c.begun = append(c.begun, c.now)

		recent := 0
		for _, t := range c.begun {
			if t.After(c.now.Add(-policy.RateWindow)) && t.After(c.started) {
				recent++
			}
		}

		if recent > c.rule.Rate {
			c.Fatalf("%d commissions within %s", recent, policy.RateWindow)
		}
	}

	for _, name := range d.Nodes {
		c.verified[name] = append(c.verified[name], c.now)
	}
}

// TestClockJumps: however the clock jumps, no node is replaced, commissioned or verified before
// its time, and no run of the schedule is made up for more than once. Once the clock runs evenly,
// everything that is due happens.
func TestClockJumps(t *testing.T) {
	t.Parallel()

	const (
		seeds = 4
		steps = 1200
	)

	total := map[string]int{}

	for seed := range uint64(seeds) {
		ok := t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			c := newClocked(t, seed)

			for range steps {
				c.step(false)
			}

			hours := int(steps * clockStep / time.Hour)
			for name, times := range c.verified {
				// A run begins with each hour of the clock, and with each jump and start at most.
				if most := hours + c.jumped + 2; len(times) > most {
					t.Errorf("%s was verified %d times in %d hours with %d jumps", name, len(times), hours, c.jumped)
				}
			}

			c.calm()

			for what, n := range c.count {
				total[what] += n
			}
		})
		if !ok {
			t.Fatalf("seed %d", seed)
		}
	}

	for _, what := range strings.Fields("commission verify mended") {
		if total[what] == 0 {
			t.Errorf("it never happened: %s; %v", what, total)
		}
	}

	t.Log(total)
}

// calm lets the clock jump once more and then run evenly: nothing waits for a time that a clock
// showed before.
func (c *clocked) calm() {
	c.Helper()

	c.wrong = jumps[c.random.IntN(len(jumps))]
	begin := c.now

	for range int(4 * time.Hour / clockStep) {
		c.step(true)
	}

	healthy := 0

	for _, n := range c.world.View.Nodes() {
		if n.Available() && n.Group == "service-master" {
			healthy++
		}

		if n.State == inventory.Discovered && n.Presence.Pending() {
			c.Errorf("nothing was decided on the return of %s: %+v", n.Name, n.Presence)
		}

		times := c.verified[n.Name]
		if !n.Available() {
			continue
		}
		if i := slices.IndexFunc(times, begin.Before); i < 0 || len(times)-i < 2 {
			c.Errorf("%s was not verified as scheduled: %v", n.Name, times)
		}
	}

	if healthy == 2 {
		c.Errorf("%d masters are healthy, and none is replaced: %v", healthy, slices.Sorted(maps.Keys(c.lost)))
	}
}

// TestClockBrake: the brake neither engages nor is released by a jump of the clock.
func TestClockBrake(t *testing.T) {
	t.Parallel()

	var nodes []*inventory.Node
	for i := range 6 {
		nodes = append(nodes, member(fmt.Sprintf("n-%d", i), noon.Add(-24*time.Hour)))
		seen(nodes[i], false, noon.Add(time.Duration(i)*time.Hour))
		seen(nodes[i], true, noon.Add(time.Duration(i)*time.Hour+time.Minute))
	}

	w := world(nodes...)
	w.Now = noon.Add(-time.Hour)
	w.Start = policy.Start{Began: noon.Add(-48 * time.Hour), Epoch: w.Now, Jumps: []policy.Jump{{New: w.Now}}}

	if b, d := policy.Brake(w); b.On || d != nil {
		t.Errorf("absences that the clock has yet to reach: %+v", d)
	}

	w.Now = noon.Add(48 * time.Hour)
	w.Start = policy.Start{Began: noon.Add(-48 * time.Hour), Epoch: w.Now, Jumps: []policy.Jump{{New: w.Now}}}
	w.View.View = record.Change(
		w.View.View,
		&state.Memory,
		func(a *state.Automation) { a.Brake = state.Brake{On: true, Since: noon, Until: noon.Add(time.Hour)} },
	)

	if b, d := policy.Brake(w); !b.On || d != nil {
		t.Errorf("it was released by a jump: %+v", d)
	}

	w.Now = w.Now.Add(time.Hour)

	if b, d := policy.Brake(w); b.On || d == nil {
		t.Error("it was not released after its time")
	}

	// The clock was ahead as it engaged.
	w.Now = noon.Add(-400 * 24 * time.Hour)
	w.Start = policy.Start{Began: w.Now, Epoch: w.Now}
	w.Now = w.Now.Add(time.Hour)

	if b, _ := policy.Brake(w); b.On {
		t.Error("it holds for more than a year")
	}
}

// TestClockBrakeSplit: a loss of many nodes pulls the brake also if the clock jumps between them.
// Neither older absences nor those from before a release count because of a jump.
func TestClockBrakeSplit(t *testing.T) {
	t.Parallel()

	const (
		step = 5 * time.Second
		loss = 3 * time.Hour // after which 16 nodes vanish, one with each step
	)

	for _, c := range []struct {
		name  string
		jumps map[time.Duration]time.Duration // how wrong the clock is from when on
	}{
		{"none", nil},
		{"ahead", map[time.Duration]time.Duration{loss + 40*time.Second: 3 * time.Hour}},
		{"a little ahead", map[time.Duration]time.Duration{loss + 40*time.Second: 20 * time.Second}},
		{"back", map[time.Duration]time.Duration{loss + 40*time.Second: -2 * time.Hour}},
		{"back to an older loss", map[time.Duration]time.Duration{loss + 40*time.Second: -2*time.Hour + time.Minute}},
		{"a little back", map[time.Duration]time.Duration{loss + 40*time.Second: -20 * time.Second}},
		{"by years", map[time.Duration]time.Duration{loss + 40*time.Second: -56 * 365 * 24 * time.Hour}},
		{"away and back", map[time.Duration]time.Duration{
			loss + 20*time.Second: -time.Hour, loss + 40*time.Second: 30 * time.Hour, loss + 50*time.Second: 0,
		}},
		{"before", map[time.Duration]time.Duration{loss - step: 400 * 24 * time.Hour}},
		{"after", map[time.Duration]time.Duration{loss + 65*time.Second: -time.Hour}},
	} {
		nodes := fleet(40)

		var clock policy.Clock

		w := world(nodes...)
		w.Start = policy.Start{Began: noon, Observed: noon, Epoch: noon}
		wrong, lost := time.Duration(0), 0

		var pulled []int

		for at := time.Duration(0); at < loss+20*time.Minute; at += step {
			if jump, ok := c.jumps[at]; ok {
				wrong = jump
			}

			w.Now = noon.Add(at + wrong)

			switch i := int((at - loss) / step); {
			case at == time.Hour-10*time.Minute || at == time.Hour:
				// Too few at a time.
				for k := range 8 {
					seen(nodes[20+k+int(at/time.Hour)*8], false, w.Now.Add(-step/2))
					seen(nodes[20+k+int(at/time.Hour)*8], true, w.Now)
				}
			case at >= loss && i < 16:
				seen(nodes[i], false, w.Now)
				lost++
			case at == loss+10*time.Minute:
				released, _ := policy.Release(state.AutomationOf(w.View).Brake, w.Now, "ann", "")
				setBrake(w.View, released)
			}

			w.Start.Jumps = clock.Read(w.Now, at)
			if stepped := w.Start.Stepped(); !stepped.IsZero() {
				w.Start.Epoch = stepped
			}

			b, d := policy.Brake(w)
			setBrake(w.View, b)

			if d != nil {
				pulled = append(pulled, lost)
			}
		}

		if !slices.Equal(pulled, []int{12}) {
			t.Errorf("%s: it was pulled after losses of %d nodes", c.name, pulled)
		}
	}
}

// TestClockBrakeAfterBattery: a release that is stored from before the start does not hold the brake
// back after a clock that began far behind was set.
func TestClockBrakeAfterBattery(t *testing.T) {
	t.Parallel()

	nodes := fleet(10)
	for i := range 5 {
		seen(nodes[i], false, noon.Add(time.Minute))
	}

	w := world(nodes...)
	began := noon.AddDate(-56, 0, 0)
	w.Now = noon.Add(2 * time.Minute)
	w.Start = policy.Start{Began: began, Epoch: noon, Jumps: []policy.Jump{{Old: began.Add(time.Minute), New: noon}}}
	setBrake(w.View, state.Brake{Released: noon.Add(-24 * time.Hour)})

	if b, _ := policy.Brake(w); !b.On {
		t.Errorf("%+v", b)
	}
}

// TestClockAge: the age of a stored time is the same after each jump, and unknown for a time that
// the clock has never shown.
func TestClockAge(t *testing.T) {
	t.Parallel()

	var (
		clock  policy.Clock
		w      policy.World
		stored []time.Time // one for each minute
	)

	for i, wrong := range []time.Duration{
		0, 0, time.Hour, time.Hour, -30 * time.Hour, 0, 400 * 24 * time.Hour, 400 * 24 * time.Hour, 0, 20 * time.Second,
	} {
		at := time.Duration(i) * time.Minute
		w.Now = noon.Add(at + wrong)
		w.Start.Jumps = clock.Read(w.Now, at)
		stored = append(stored, w.Now)

		for k, old := range stored {
			if age, ok := w.Age(old); !ok || age != time.Duration(i-k)*time.Minute {
				t.Errorf("after %d minutes, that of %d: %s %t", i, k, age, ok)
			}
		}
	}

	if age, ok := w.Age(noon.AddDate(2, 0, 0)); ok {
		t.Errorf("a time in the future: %s", age)
	}

	if age, ok := w.Age(time.Time{}); !ok || age < 200*365*24*time.Hour {
		t.Errorf("no time: %s %t", age, ok)
	}

	// A clock that began with a dead battery, and was set: stored times are from before the start.
	w.Start.Jumps = []policy.Jump{{Old: noon.AddDate(-56, 0, 0), New: noon, Gap: time.Minute}}
	w.Now = noon.Add(time.Minute)

	if age, ok := w.Age(noon.Add(-time.Hour)); !ok || age != time.Hour+time.Minute {
		t.Errorf("before the start: %s %t", age, ok)
	}

	// The memory is bounded.
	for i := range 1000 {
		w.Start.Jumps = clock.Read(noon.Add(time.Duration(i%2)*time.Hour), time.Hour)
	}

	if n := len(w.Start.Jumps); n > 100 {
		t.Errorf("%d jumps", n)
	}
}

// TestClockShortWaits: quiet periods, settle times and rates begin anew at a jump, and end.
func TestClockShortWaits(t *testing.T) {
	t.Parallel()

	jump := noon.Add(30 * 24 * time.Hour)

	at := func(w policy.World, stepped time.Time, since time.Duration) policy.World {
		w.Start = policy.Start{Began: noon.Add(-time.Hour), Epoch: stepped, Jumps: []policy.Jump{{New: stepped}}}
		w.Now = stepped.Add(since)
		return w
	}

	rule := workers()
	fresh := freshWorld([]policy.Rule{rule}, newcomer("n-0", noon))
	returned := world(back("n-1", time.Minute, reached))

	// Its answer came after the jump.
	returned.View.Nodes()[0].Presence.Back.Time = jump

	busy := freshWorld([]policy.Rule{rule}, newcomer("n-0", noon.Add(-time.Hour)))
	for i := range rule.Rate {
		setMemory(busy.View, state.AutomationOf(busy.View).With(state.Decision{
			ID: fmt.Sprint(i), Time: noon, Policy: rule.Name, Node: fmt.Sprintf("x-%d", i),
			Action: state.ActionCommission, Phase: state.PhaseDone,
		}))
	}

	for _, c := range []struct {
		name  string
		world policy.World
		by    policy.Policy
		wait  time.Duration
	}{
		{"quiet", fresh, policy.Commission{Rule: rule}, rule.Quiet},
		{"settle", returned, policy.Returns{}, returned.Settings.Settle},
		{"rate", busy, policy.Commission{Rule: rule}, policy.RateWindow},
	} {
		if p := policy.Decide(c.by, at(c.world, jump, c.wait-time.Second)); len(p.Decisions) > 0 {
			t.Errorf("%s: %s", c.name, actions(p))
		}

		if p := policy.Decide(c.by, at(c.world, jump, c.wait)); len(p.Decisions) != 1 {
			t.Errorf("%s: %s, next %s", c.name, actions(p), p.Next)
		}
	}

	// A clock that was ahead makes nothing wait for it.
	back := noon.Add(-30 * 24 * time.Hour)

	for name, w := range map[string]policy.World{"quiet": fresh, "rate": busy} {
		if p := policy.Decide(policy.Commission{Rule: rule}, at(w, back, time.Hour)); len(p.Decisions) != 1 {
			t.Errorf("%s after a jump backwards: %s, next %s", name, actions(p), p.Next)
		}
	}
}

// setMemory sets the memory of the policies.
func setMemory(v *state.View, a state.Automation) { v.View = record.WithOne(v.View, &state.Memory, a) }

// setPaused sets the pauses in the memory of the policies.
func setPaused(v *state.View, paused map[string]state.Pause) {
	v.View = record.Change(v.View, &state.Memory, func(a *state.Automation) { a.Paused = paused })
}

// setBrake sets the brake in the memory of the policies.
func setBrake(v *state.View, b state.Brake) {
	v.View = record.Change(v.View, &state.Memory, func(a *state.Automation) { a.Brake = b })
}
