// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/state"
)

// site is a simulated fleet under one rule. Its hosts come, go and return by chance, its
// jobs take some time and may fail, and decisions may have to wait.
type site struct {
	*testing.T

	rule   policy.Rule
	random *rand.Rand
	world  policy.World
	made   int
	ends   map[string]time.Time // of jobs
	gone   map[string]time.Time // silent nodes
	taken  map[string]bool      // lost nodes with a successor
	count  map[string]int       // of events
}

func newSite(t *testing.T, seed uint64) *site {
	r := siteRule()
	f := &site{
		T: t, rule: r, random: rand.New(rand.NewPCG(seed, 1)), ends: map[string]time.Time{},
		gone: map[string]time.Time{}, taken: map[string]bool{}, count: map[string]int{},
	}

	f.rule.Rate = 1 + f.random.IntN(4)
	f.rule.Failures = 1000
	f.rule.Roles[0].Count = []int{3, 4, 5}[f.random.IntN(3)]
	f.world = siteWorld(f.rule)

	return f
}

// chance reports true in one of n cases.
func (f *site) chance(n int) bool { return f.random.IntN(n) == 0 }

// some returns a random node that fits, or nil.
func (f *site) some(fits func(*inventory.Node) bool) *inventory.Node {
	nodes := slices.DeleteFunc(slices.Clone(f.world.View.Nodes()), func(n *inventory.Node) bool { return !fits(n) })
	if len(nodes) == 0 {
		return nil
	}
	return nodes[f.random.IntN(len(nodes))]
}

// step lets half a minute pass, with its events.
func (f *site) step() {
	f.world.Now = f.world.Now.Add(30 * time.Second)

	if f.chance(6) && len(f.world.View.Nodes()) < 40 {
		f.made++
		rack := strings.Fields("a b c d -")[f.random.IntN(5)]
		nodes := append(f.world.View.Nodes(), inRack(fmt.Sprintf("n-%03d", f.made), rack, f.world.Now))
		f.world.View.SetNodes(nodes...)
	}

	present := func(n *inventory.Node) bool { return n.State == inventory.Discovered }
	if n := f.some(present); n != nil && f.chance(15) {
		seen(n, false, f.world.Now)
		f.gone[n.Name] = f.world.Now
	}

	// Some silent hosts answer ssh, others do not.
	for _, n := range f.world.View.Nodes() {
		if n.State == inventory.Disappeared && f.chance(4) {
			reached := f.chance(8)
			*n = n.Contacted(inventory.Contact{Time: f.world.Now, Reached: reached, Silent: !reached})
		}
	}

	if n := f.some(func(n *inventory.Node) bool { return !present(n) }); n != nil && f.chance(40) {
		f.returns(n)
	}

	f.operator()
	f.work()
}

func (f *site) returns(n *inventory.Node) {
	seen(n, true, f.world.Now)

	if n.Status != inventory.Quarantined {
		delete(f.gone, n.Name)
	}

	if f.taken[n.Name] {
		f.count["returned"]++
	}
}

// operator sometimes forgets a silent node, fences one, or decommissions one.
func (f *site) operator() {
	if n := f.some(func(n *inventory.Node) bool { return n.State == inventory.Disappeared }); n != nil &&
		n.Status != inventory.Provisioning && f.chance(60) {
		others := slices.DeleteFunc(slices.Clone(f.world.View.Nodes()), func(o *inventory.Node) bool { return o == n })
		f.world.View.SetNodes(others...)
	}

	if n := f.some(func(n *inventory.Node) bool { return n.Status == inventory.Allocated }); n != nil && f.chance(150) {
		n.PrevStatus, n.Status, n.Updated = n.Status, inventory.Quarantined, f.world.Now
		f.gone[n.Name] = f.world.Now
	}
}

// work begins and ends jobs, and carries decisions out that still hold.
func (f *site) work() {
	a := state.AutomationOf(f.world.View)

	for _, d := range a.Decisions {
		// A decision may wait, as that of a manager which is killed.
		if d.Phase != state.PhaseDecided || f.chance(3) {
			continue
		}

		if why := policy.Confirm(policy.Commission{Rule: f.rule}, f.world, d); why != "" {
			f.count["withdrawn"]++
			d.Phase, d.Result = state.PhaseWithdrawn, why
			delete(f.taken, d.Replaces)
			a = a.Replace(d)
			setMemory(f.world.View, a)

			continue
		}

		f.begin(d)
		d.Phase = state.PhaseDone
		a = a.Replace(d)
		setMemory(f.world.View, a)
	}

	for _, j := range f.world.View.Jobs() {
		if !j.Status.Ended() && !f.world.Now.Before(f.ends[j.ID]) {
			f.end(j)
		}
	}
}

func (f *site) begin(d state.Decision) {
	id := fmt.Sprint(len(f.ends) + 1)
	f.ends[id] = f.world.Now.Add(time.Duration(1+f.random.IntN(5)) * time.Minute)
	f.world.View.PutJob(&job.Job{
		ID: id, Verb: inventory.VerbCommission, Actor: state.PolicyPrincipal(d.Policy), Status: job.Running,
		Group: d.Group, Targets: []job.Target{{Name: d.Node}}, Accepted: f.world.Now,
	})

	n := f.world.View.Find(d.Node)
	if n.Status != inventory.Unallocated {
		f.Fatalf("%s is %s and is commissioned", n.Name, n.Status)
	}
	n.PrevStatus, n.Status, n.Group, n.Job = n.Status, inventory.Provisioning, d.Group, id
}

func (f *site) end(j *job.Job) {
	j.Status, j.Ended = job.Complete, f.world.Now

	n := f.world.View.Find(j.Targets[0].Name)
	if n == nil {
		return
	}
	n.PrevStatus, n.Status, n.Job = n.Status, inventory.Allocated, ""

	// A host that went away fails its commission.
	if n.State != inventory.Discovered || f.chance(10) {
		j.Status, n.Status, n.Group, n.LastError = job.Errored, inventory.Unallocated, "", "it failed"
	}
}

// members are the nodes of the masters, in four parts, as a reader of the documentation
// counts them.
type members struct{ all, healthy, coming, here int }

func (f *site) masters() members {
	var m members

	decided := map[string]bool{}

	for _, d := range state.AutomationOf(f.world.View).Decisions {
		if d.Phase == state.PhaseDecided && d.Group == "service-master" {
			decided[d.Node] = true
		}
	}

	for _, n := range f.world.View.Nodes() {
		of := n.Group == "service-master"

		switch {
		case decided[n.Name], of && n.Status == inventory.Provisioning:
			m.all++
			m.coming++
			m.here++
		case of && n.Status == inventory.Allocated && n.State == inventory.Discovered:
			m.all++
			m.healthy++
			m.here++
		case of && n.Status != inventory.Unallocated:
			m.all++
		}
	}

	return m
}

// decide takes the decisions of one round, and checks each of them.
func (f *site) decide() {
	p := policy.Decide(policy.Commission{Rule: f.rule}, f.world)

	for _, d := range p.Decisions {
		f.check(d)

		setMemory(f.world.View, state.AutomationOf(f.world.View).With(d))
		f.count[d.Group]++

		if d.Replaces != "" {
			f.count["replaced"]++
			f.taken[d.Replaces] = true
		}
	}

	f.checkFleet()
}

func (f *site) check(d state.Decision) {
	f.Helper()

	n := f.world.View.Find(d.Node)
	if d.Action != state.ActionCommission || n == nil || n.Status != inventory.Unallocated || n.PrevStatus != "" {
		f.Fatalf("%s on %+v, which is not new", d.Action, n)
	}

	for _, o := range state.AutomationOf(f.world.View).Decisions {
		if o.Node == d.Node && o.Phase != state.PhaseWithdrawn {
			f.Fatalf("a second decision on %s: %s and %s", d.Node, o.ID, d.ID)
		}
	}

	if d.Group == "service-master" {
		f.checkMaster(d, n)
	}
}

// checkMaster checks a decision for a master against the count, the majority and the racks.
func (f *site) checkMaster(d state.Decision, n *inventory.Node) {
	f.Helper()

	// A vacancy is filled at any time, and a lost master replaced by the rules only.
	role, m := f.rule.Roles[0], f.masters()
	if d.Replaces == "" && m.all >= role.Count {
		f.Fatalf("%s becomes one more than %d masters: %+v", d.Node, role.Count, m)
	}

	if d.Replaces != "" {
		since, gone := f.gone[d.Replaces]
		if !gone || f.world.Now.Sub(since) < role.ReplaceAfter {
			f.Fatalf("%s is replaced, and was lost at %s (%t)", d.Replaces, since, gone)
		}

		if m.healthy <= role.Count/2 {
			f.Fatalf("%s is replaced while %d of %d are healthy", d.Replaces, m.healthy, role.Count)
		}

		if m.coming > 0 || m.here >= role.Count {
			f.Fatalf("%s is replaced, and the masters are %+v", d.Replaces, m)
		}
	}

	f.checkRack(d, n)
}

// checkRack: no rack with fewer masters has a node that could have been taken, and a node
// without a rack is taken only if no other one is there.
func (f *site) checkRack(d state.Decision, n *inventory.Node) {
	f.Helper()

	racks := map[string]int{}
	free := map[string]string{}

	decided := map[string]string{}
	for _, o := range state.AutomationOf(f.world.View).Decisions {
		if o.Phase != state.PhaseWithdrawn {
			decided[o.Node] = o.Group
		}
	}

	for _, o := range f.world.View.Nodes() {
		group := o.Group
		if o.Status == inventory.Unallocated {
			group = decided[o.Name]
		}

		_, absent := f.gone[o.Name]
		quiet := f.world.Now.Before(o.Presence.Since.Add(f.rule.Quiet))

		switch rack := o.Labels["rack"]; {
		case group == "service-master" && o.PrevStatus != "" && o.Status == inventory.Unallocated:
		case group == "service-master" && !absent:
			racks[rack]++
		case group == "" && o.Status == inventory.Unallocated && o.PrevStatus == "" && o.LastError == "" &&
			o.State == inventory.Discovered && !quiet:
			free[rack] = o.Name
		}
	}

	rack := n.Labels["rack"]

	for other, name := range free {
		if other != "" && rack == "" {
			f.Fatalf("%s without a rack is taken, and %s of %s is there", n.Name, name, other)
		}

		// A silent master counts in its rack until its place is taken, so one more is no fault.
		if other != "" && racks[other]+f.silentIn(other) < racks[rack] {
			f.Fatalf("%s of %s is taken, which has %d masters, and %s of %s is there, which has %d",
				n.Name, rack, racks[rack], name, other, racks[other])
		}
	}
}

// silentIn returns the number of masters of the rack that are out of service.
func (f *site) silentIn(rack string) int {
	silent := 0

	for _, n := range f.world.View.Nodes() {
		if _, absent := f.gone[n.Name]; absent && n.Group == "service-master" && n.Labels["rack"] == rack {
			silent++
		}
	}

	return silent
}

// checkFleet: there are no more masters than wanted, but for those that were replaced and
// returned, and no more commissions began within ten minutes than the rate.
func (f *site) checkFleet() {
	f.Helper()

	back := 0

	for _, n := range f.world.View.Nodes() {
		if f.taken[n.Name] && n.Status == inventory.Allocated && n.State == inventory.Discovered {
			back++
		}
	}

	if m := f.masters(); m.here > f.rule.Roles[0].Count+back {
		f.Fatalf("%+v masters, of which %d returned; %d are wanted", m, back, f.rule.Roles[0].Count)
	}

	began := 0

	for _, d := range state.AutomationOf(f.world.View).Decisions {
		if d.Phase != state.PhaseWithdrawn && d.Time.After(f.world.Now.Add(-policy.RateWindow)) {
			began++
		}
	}

	if began > f.rule.Rate {
		f.Fatalf("%d commissions within %s, and the rate is %d", began, policy.RateWindow, f.rule.Rate)
	}
}

const seeds = 28

// TestRolesOfFleets runs simulated fleets for four hours each.
func TestRolesOfFleets(t *testing.T) {
	t.Parallel()

	happened := map[string]int{}

	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			f := newSite(t, seed)
			for range 500 {
				f.step()
				f.decide()
			}

			for what, n := range f.count {
				happened[what] += n
			}
		})
	}

	// A simulation in which nothing happens would prove nothing.
	for _, what := range []string{"service-master", "service-worker", "replaced", "returned", "withdrawn"} {
		if happened[what] < 5 {
			t.Errorf("%s: %d times", what, happened[what])
		}
	}

	t.Logf("seeds 0 to %d: %v", seeds-1, happened)
}
