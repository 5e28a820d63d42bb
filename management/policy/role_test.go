// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/state"
)

// siteRule is three masters, spread over racks, then workers.
func siteRule() policy.Rule {
	return policy.Rule{
		Name: "site", Match: func(*inventory.Node) bool { return true }, Selector: "rack",
		Roles: []policy.Role{
			{Group: "service-master", Count: 3, Spread: "rack", ReplaceAfter: 30 * time.Minute},
			{Group: "service-worker", Rest: true},
		},
		Rate: 20, Quiet: time.Minute, Failures: 3,
	}
}

// inRack is a new node of a rack; "-" is none.
func inRack(name, rack string, at time.Time) *inventory.Node {
	n := newcomer(name, at)
	if rack != "-" {
		n.Labels = map[string]string{"rack": rack}
	}
	return n
}

// master is a master in service.
func master(name, rack string) *inventory.Node {
	n := inRack(name, rack, noon.Add(-2*time.Hour))
	n.Status, n.Group, n.PrevStatus = inventory.Allocated, "service-master", inventory.Provisioning
	return n
}

// lose makes a node silent for the time, and ssh not reach it a minute ago.
func lose(w policy.World, n *inventory.Node, since time.Duration) {
	seen(n, false, w.Now.Add(-since))
	*n = n.Contacted(inventory.Contact{Time: w.Now.Add(-time.Minute), Silent: true, Reason: "no route"})
}

// siteWorld is a world with the rule on, and none of the usual limits.
func siteWorld(r policy.Rule, nodes ...*inventory.Node) policy.World {
	w := world(nodes...)
	w.Settings.Commission, w.Settings.Jobs, w.Settings.Rate = []policy.Rule{r}, 100, 100
	setMemory(w.View, state.AutomationOf(w.View).Turn(r.Name, state.Switch{On: true, Since: noon.Add(-time.Hour)}))
	return w
}

// joins returns the decisions of the plan as NODE GROUP.
func joins(p policy.Plan) string {
	var out []string
	for _, d := range p.Decisions {
		out = append(out, d.Node+" "+strings.TrimPrefix(d.Group, "service-"))
	}

	return strings.Join(out, ", ")
}

// TestRolesFill: the masters of a new site, spread over racks, before the workers.
func TestRolesFill(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name  string
		racks string // of the new nodes, the oldest first
		there string // racks of masters in service
		want  string
	}{
		{"three racks", "a a b c", "", "n-0 master, n-2 master, n-3 master"},
		{"two racks", "a a a b", "", "n-0 master, n-3 master, n-1 master"},
		{"one rack", "a a a a", "", "n-0 master, n-1 master, n-2 master"},
		{"no label is the last choice", "- - a b", "", "n-2 master, n-3 master, n-0 master"},
		{"no label at all", "- - - -", "", "n-0 master, n-1 master, n-2 master"},
		{"too few", "a", "", "n-0 master"},
		{"one is there", "a a b c", "a", "n-2 master, n-3 master, n-0 worker, n-1 worker"},
		{"one without a label is there", "a b c a", "-", "n-0 master, n-1 master, n-2 worker, n-3 worker"},
		{"all are there", "a b", "a b c", "n-0 worker, n-1 worker"},
		{"more than wanted are there", "a b", "a b c d", "n-0 worker, n-1 worker"},
	} {
		var nodes []*inventory.Node
		for i, rack := range strings.Fields(c.racks) {
			nodes = append(nodes, inRack(fmt.Sprintf("n-%d", i), rack, noon.Add(time.Duration(i)*time.Second)))
		}

		for i, rack := range strings.Fields(c.there) {
			nodes = append(nodes, master(fmt.Sprintf("m-%d", i), rack))
		}

		w := siteWorld(siteRule(), nodes...)
		p := policy.Decide(policy.Commission{Rule: siteRule()}, w)

		if got := joins(p); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}

		confirmAll(t, c.name, w, p)
	}
}

// confirmAll checks that every decision of a plan holds beside the others, and that no
// second one follows.
func confirmAll(t *testing.T, name string, w policy.World, p policy.Plan) {
	t.Helper()

	rule := policy.Commission{Rule: w.Settings.Commission[0]}
	view := *w.View
	w.View = &view
	setMemory(w.View, state.AutomationOf(w.View).With(p.Decisions...))

	for _, d := range p.Decisions {
		if why := policy.Confirm(rule, w, d); why != "" {
			t.Errorf("%s: %s does not hold: %s", name, d.ID, why)
		}

		if len(d.Evidence) < 3 || d.Case == "" || len(d.Prevent) < 3 {
			t.Errorf("%s: %+v", name, d)
		}
	}

	for _, d := range policy.Decide(rule, w).Decisions {
		if slices.ContainsFunc(p.Decisions, func(o state.Decision) bool { return o.Node == d.Node }) {
			t.Errorf("%s: %s is decided on twice", name, d.Node)
		}
	}
}

// TestRolesWait: a worker waits for a master in service, and a second node of a rack for one
// of another rack with a quiet period that ends soon.
func TestRolesWait(t *testing.T) {
	t.Parallel()

	rule := policy.Commission{Rule: siteRule()}
	w := siteWorld(siteRule(), master("m-0", "a"), inRack("n-0", "a", noon),
		inRack("n-1", "b", noon.Add(10*time.Minute-time.Second)), inRack("n-2", "c", noon), inRack("n-3", "c", noon))

	p, due := policy.Decide(rule, w), noon.Add(11*time.Minute-time.Second)
	if got := joins(p); got != "n-2 master, n-0 worker, n-3 worker" || !p.Next.Equal(due) {
		t.Errorf("%s, next %s", got, p.Next)
	}

	// Without a master, the places of workers are not begun.
	w = siteWorld(siteRule(), inRack("n-0", "a", noon), inRack("n-1", "b", noon), inRack("n-2", "c", noon),
		inRack("n-3", "d", noon))
	if got := joins(policy.Decide(rule, w)); got != "n-0 master, n-1 master, n-2 master" {
		t.Error(got)
	}
	last := w.View.Nodes()[3]
	if f := findings(rule, w, *last); len(f) != 1 || !strings.Contains(f[0].Message,
		"cannot join service-worker: it requires 1 healthy node of service-master") {
		t.Errorf("%+v", f)
	}
}

// TestRolesReplace: a lost master is replaced once, while a majority is healthy, and a new
// node is kept for it until then.
func TestRolesReplace(t *testing.T) {
	t.Parallel()

	masters := func() []*inventory.Node {
		return []*inventory.Node{master("m-0", "a"), master("m-1", "b"), master("m-2", "c")}
	}

	for _, c := range []struct {
		name   string
		change func(w *policy.World, m []*inventory.Node)
		want   string
		text   string // of the explanation of the new node n-0
	}{
		{"none is lost", func(*policy.World, []*inventory.Node) {}, "n-0 worker, n-1 worker", "service-worker now"},
		{"not for long enough", func(w *policy.World, m []*inventory.Node) { lose(*w, m[0], 29*time.Minute) },
			"n-1 worker", "it is kept for service-master: m-0 is silent since 2026-03-01 11:41:00 UTC; " +
				"its place is not given away before 2026-03-01 12:11:00 UTC"},
		{"lost", func(w *policy.World, m []*inventory.Node) { lose(*w, m[0], 30*time.Minute) },
			"n-0 master, n-1 worker", "commissioned to service-master now, in the place of m-0"},
		{"ssh was not asked", func(w *policy.World, m []*inventory.Node) {
			seen(m[0], false, w.Now.Add(-time.Hour))
		}, "n-1 worker", "ssh is asked whether its host is up"},
		{"the answer is old", func(w *policy.World, m []*inventory.Node) {
			lose(*w, m[0], 2*time.Hour)
			m[0].Presence.Away.Time = w.Now.Add(-31 * time.Minute)
		}, "n-1 worker", "ssh is asked whether its host is up"},
		{"only its agent stopped", func(w *policy.World, m []*inventory.Node) {
			lose(*w, m[0], time.Hour)
			m[0].Presence.Away.Reached = true
		}, "n-1 worker", "m-0 is silent since 2026-03-01 11:10:00 UTC, and keeps its place: ssh reached it"},
		{"its host answers", func(w *policy.World, m []*inventory.Node) {
			lose(*w, m[0], time.Hour)
			m[0].Presence.Away.Silent, m[0].Presence.Away.Reason = false, "access as root was denied (publickey)"
		}, "n-1 worker", "and keeps its place: ssh could not log in at 2026-03-01 12:09:00 UTC: access as root was " +
			"denied (publickey); that does not prove its host gone"},
		{"Quarantined", func(w *policy.World, m []*inventory.Node) {
			m[0].Status, m[0].Updated = inventory.Quarantined, w.Now.Add(-time.Hour)
		}, "n-0 master, n-1 worker", "in the place of m-0"},
		{"Quarantined just now", func(w *policy.World, m []*inventory.Node) {
			m[0].Status, m[0].Updated = inventory.Quarantined, w.Now
		}, "n-1 worker", "m-0 is Quarantined since"},
		{"two of three are lost", func(w *policy.World, m []*inventory.Node) {
			lose(*w, m[0], time.Hour)
			lose(*w, m[1], time.Hour)
		}, "", "1 of 3 nodes of service-master are healthy, fewer than the majority of 2: nothing is replaced, and " +
			"an operator decides"},
		{"one is lost, and one works", func(w *policy.World, m []*inventory.Node) {
			lose(*w, m[0], time.Hour)
			m[1].Status, m[1].Verb = inventory.Maintenance, inventory.VerbUpdate
		}, "n-1 worker", "1 of 3 nodes of service-master are healthy"},
		{"an operator forgot it", func(w *policy.World, _ []*inventory.Node) {
			w.View.SetNodes(w.View.Nodes()[1:]...)
		}, "n-0 master, n-1 worker", "commissioned to service-master now"},
		{"another one is on its way", func(w *policy.World, m []*inventory.Node) {
			lose(*w, m[0], time.Hour)
			coming := master("m-3", "a")
			coming.Status = inventory.Provisioning
			w.View.PutNode(coming)
		}, "n-0 worker, n-1 worker", "service-worker now"},
		{"the brake is on", func(w *policy.World, m []*inventory.Node) {
			lose(*w, m[0], time.Hour)
			setBrake(w.View, state.Brake{On: true})
		}, "", "nothing is done: the brake holds"},
		{"paused", func(w *policy.World, m []*inventory.Node) {
			lose(*w, m[0], time.Hour)
			setPaused(w.View, map[string]state.Pause{"all": {Actor: "ann"}})
		}, "", "nothing is done: ann paused it"},
	} {
		m := masters()
		w := siteWorld(siteRule(), append(slices.Clone(m), inRack("n-0", "a", noon), inRack("n-1", "b", noon))...)
		c.change(&w, m)

		rule := policy.Commission{Rule: siteRule()}
		p := policy.Decide(rule, w)

		if got := joins(p); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}

		confirmAll(t, c.name, w, p)

		f := findings(rule, w, *w.View.Find("n-0"))
		if len(f) != 1 || !strings.Contains(f[0].Message, c.text) {
			t.Errorf("%s: explained %+v, want %q", c.name, f, c.text)
		}

		if asks := strings.Contains(c.text, "ssh"); asks != slices.Equal(p.Ask, []string{"m-0"}) {
			t.Errorf("%s: asks %v", c.name, p.Ask)
		}
	}
}

// TestRolesReplaceOneAtATime: of five masters two are lost. The second one is replaced once
// the first replacement is in service.
func TestRolesReplaceOneAtATime(t *testing.T) {
	t.Parallel()

	r := siteRule()
	r.Roles[0].Count = 5

	var m []*inventory.Node
	for i := range 5 {
		m = append(m, master(fmt.Sprintf("m-%d", i), fmt.Sprint(i)))
	}

	w := siteWorld(r, append(slices.Clone(m), inRack("n-0", "a", noon), inRack("n-1", "b", noon))...)
	lose(w, m[0], time.Hour)
	lose(w, m[1], 2*time.Hour)

	rule := policy.Commission{Rule: r}
	p := policy.Decide(rule, w)

	if got := joins(p); got != "n-0 master" || p.Decisions[0].Replaces != "m-1" {
		t.Fatalf("%s: %+v", got, p.Decisions)
	}

	d := p.Decisions[0]
	setMemory(w.View, state.AutomationOf(w.View).With(d))

	kept := findings(rule, w, *w.View.Find("n-1"))
	if got := joins(policy.Decide(rule, w)); got != "" || len(kept) != 1 ||
		!strings.Contains(kept[0].Message, "one node is replaced at a time") {
		t.Errorf("%s, %+v", got, kept)
	}

	n := w.View.Find("n-0")
	n.Status, n.PrevStatus, n.Group = inventory.Allocated, inventory.Provisioning, "service-master"
	d.Phase = state.PhaseDone
	setMemory(w.View, state.AutomationOf(w.View).Replace(d))

	p = policy.Decide(rule, w)
	if got := joins(p); got != "n-1 master" || p.Decisions[0].Replaces != "m-0" {
		t.Errorf("%s: %+v", got, p.Decisions)
	}
}

// TestRolesReplaced: a replacement names the lost node with its evidence, is withdrawn if
// that returns before, and is not repeated while it stays away. After its return there is
// one too many, which is said and not removed.
func TestRolesReplaced(t *testing.T) {
	t.Parallel()

	m := []*inventory.Node{master("m-0", "a"), master("m-1", "b"), master("m-2", "c")}
	n := inRack("n-0", "c", noon)
	w := siteWorld(siteRule(), append(slices.Clone(m), n, inRack("n-1", "a", noon.Add(time.Second)))...)
	lose(w, m[0], time.Hour)

	rule := policy.Commission{Rule: siteRule()}
	p := policy.Decide(rule, w)

	// The rack of the lost master has none now.
	if got := joins(p); got != "n-1 master, n-0 worker" {
		t.Fatal(got)
	}

	d := p.Decisions[0]
	text := strings.Join(d.Evidence, "\n")

	if d.Replaces != "m-0" || !strings.Contains(d.Case, "in the place of m-0") ||
		!strings.Contains(text, "m-0 is lost since 2026-03-01 11:10:00 UTC; ssh did not reach it") ||
		!strings.Contains(text, "2 of 3 nodes of service-master are healthy; the majority is 2") ||
		!strings.Contains(text, "its rack is a; b has 1, c has 1") {
		t.Errorf("%+v", d)
	}

	back := *m[0]
	setMemory(w.View, state.AutomationOf(w.View).With(p.Decisions...))

	seen(m[0], true, w.Now)

	if why := policy.Confirm(rule, w, d); why == "" {
		t.Error("it returned, and the decision holds")
	}

	*m[0] = back

	// The replacement is in service, and an answer of ssh from before it is old by now.
	fourth := w.View.Nodes()[4]
	fourth.Status, fourth.PrevStatus, fourth.Group = inventory.Allocated, inventory.Provisioning, "service-master"
	d.Phase = state.PhaseDone
	setMemory(w.View, state.AutomationOf(w.View).Replace(d))
	w.Now = w.Now.Add(24 * time.Hour)

	if p := policy.Decide(rule, w); strings.Contains(joins(p), "master") || len(p.Ask) > 0 {
		t.Errorf("replaced again: %s; asks %v", joins(p), p.Ask)
	}

	if f := findings(rule, w, *m[0]); len(f) != 1 || !strings.Contains(f[0].Message, "n-1 takes its place") {
		t.Errorf("%+v", f)
	}

	if s := rule.Roles(w)[0]; s.InService != 4 || s.Healthy != 3 || s.Surplus != 0 || len(s.Warnings) > 0 ||
		!slices.Equal(s.Silent, []string{"m-0"}) {
		t.Errorf("%+v", s)
	}

	seen(m[0], true, w.Now)

	s := rule.Roles(w)[0]
	if s.Surplus != 1 || len(s.Warnings) != 1 ||
		!strings.Contains(s.Warnings[0], "1 more than the 3 wanted of service-master are in service, or on their way "+
			"(m-0 returned after n-1 took its place): none is removed automatically") {
		t.Errorf("%+v", s)
	}

	f := findings(rule, w, *m[0])
	if len(f) != 1 || !strings.Contains(f[0].Message, "returned after n-1 took its place") {
		t.Errorf("%+v", f)
	}

	if warnings := policy.Warnings(w); len(warnings) != 1 ||
		!strings.HasPrefix(warnings[0], "policy site, service-master: 1 more than") {
		t.Errorf("%q", warnings)
	}

	// The surplus makes up for the next loss.
	lose(w, m[1], time.Hour)

	if p := policy.Decide(rule, w); strings.Contains(joins(p), "master") {
		t.Errorf("the surplus does not count: %s", joins(p))
	}
}

// TestRolesWarn: counts that are unwise, and a majority that is lost.
func TestRolesWarn(t *testing.T) {
	t.Parallel()

	for count, want := range map[int]string{1: "nothing is ever replaced", 2: "nothing is ever replaced", 3: "",
		4: "no more losses than that of 3", 5: ""} {
		r := siteRule()
		r.Roles[0].Count = count

		text := strings.Join(policy.Warnings(siteWorld(r)), "\n")
		if !strings.Contains(text, want) || want == "" && text != "" {
			t.Errorf("a count of %d: %q", count, text)
		}

		r.Roles[0].ReplaceAfter = 0
		if text := policy.Warnings(siteWorld(r)); len(text) > 0 {
			t.Errorf("a count of %d without replacement: %q", count, text)
		}
	}

	m := []*inventory.Node{master("m-0", "a"), master("m-1", "b"), master("m-2", "c")}
	w := siteWorld(siteRule(), slices.Clone(m)...)
	lose(w, m[0], time.Hour)
	lose(w, m[1], time.Minute)

	text := strings.Join(policy.Warnings(w), "\n")
	if !strings.Contains(text, "an operator decides: bring a lost node back") {
		t.Error(text)
	}
}

// TestRolesMaximum limits all roles together. A lost node does not count.
func TestRolesMaximum(t *testing.T) {
	t.Parallel()

	r := siteRule()
	r.Maximum = 4

	m := []*inventory.Node{master("m-0", "a"), master("m-1", "b"), master("m-2", "c")}
	fresh := []*inventory.Node{inRack("n-0", "a", noon), inRack("n-1", "b", noon), inRack("n-2", "b", noon)}
	w := siteWorld(r, append(slices.Clone(m), fresh...)...)

	if got := joins(policy.Decide(policy.Commission{Rule: r}, w)); got != "n-0 worker" {
		t.Error(got)
	}

	lose(w, m[0], time.Hour)

	if got := joins(policy.Decide(policy.Commission{Rule: r}, w)); got != "n-0 master, n-1 worker" {
		t.Error(got)
	}
}

// TestRolesPriority: a rule with a higher priority takes its nodes first, and what it leaves
// goes to the other one. Both count the same group.
func TestRolesPriority(t *testing.T) {
	t.Parallel()

	first := siteRule()
	first.Name, first.Priority, first.Roles = "first", 10, first.Roles[:1]
	second := workers()
	second.Group, second.Maximum, second.Match = "service-master", 4, first.Match

	var nodes []*inventory.Node
	for i := range 6 {
		nodes = append(nodes, inRack(fmt.Sprintf("n-%d", i), "a", noon))
	}

	w := siteWorld(first, nodes...)
	w.Settings.Commission = append(w.Settings.Commission, second)
	setMemory(w.View, state.AutomationOf(w.View).Turn("workers", state.Switch{On: true, Since: noon}))

	p := policy.Decide(policy.Commission{Rule: first}, w)
	if got := joins(p); got != "n-0 master, n-1 master, n-2 master" {
		t.Error(got)
	}

	if got := joins(policy.Decide(policy.Commission{Rule: second}, w)); got != "n-3 master" {
		t.Error(got)
	}

	// A node that is decided on is nobody else's, even before its job exists.
	setMemory(w.View, state.AutomationOf(w.View).With(p.Decisions...))

	if got := joins(policy.Decide(policy.Commission{Rule: second}, w)); got != "n-3 master" {
		t.Error(got)
	}
}

// TestRolesAbout: the words of a rule with roles.
func TestRolesAbout(t *testing.T) {
	t.Parallel()

	const want = "commissions newly discovered nodes (rack) to 3 of service-master, spread over rack, each replaced " +
		"after 30m while 2 are healthy; then any number of service-worker, 20 within 10m, after 1m; stops after " +
		"3 failures in a row"

	if got := (policy.Commission{Rule: siteRule()}).About(policy.World{}); got != want {
		t.Error(got)
	}
}

// TestRolesNeverReplace: without replace_after no node of a role is replaced, also not a fenced
// one. A rule for one group counts that as none.
func TestRolesNeverReplace(t *testing.T) {
	t.Parallel()

	r := siteRule()
	r.Roles = r.Roles[:1]
	r.Roles[0].ReplaceAfter = 0

	m := []*inventory.Node{master("m-0", "a"), master("m-1", "b"), master("m-2", "c")}
	w := siteWorld(r, append(slices.Clone(m), inRack("n-0", "a", noon))...)
	lose(w, m[0], 48*time.Hour)

	for i := 1; i < len(m); i++ {
		m[i].Status, m[i].Updated = inventory.Quarantined, w.Now.Add(-48*time.Hour)

		if got := joins(policy.Decide(policy.Commission{Rule: r}, w)); got != "" {
			t.Errorf("%d fenced: %s", i, got)
		}
	}

	one := r
	one.Group, one.Maximum, one.Roles = r.Roles[0].Group, 3, nil
	w.Settings.Commission[0] = one

	if got := joins(policy.Decide(policy.Commission{Rule: one}, w)); got != "n-0 master" {
		t.Errorf("a rule for one group: %q", got)
	}
}

// TestRolesFencedSince: a fenced host does not keep its place by announcing other addresses.
func TestRolesFencedSince(t *testing.T) {
	t.Parallel()

	m := []*inventory.Node{master("m-0", "a"), master("m-1", "b"), master("m-2", "c")}
	w := siteWorld(siteRule(), append(slices.Clone(m), inRack("n-0", "a", noon.Add(-time.Hour)))...)
	*m[0], _ = m[0].Quarantine(inventory.Trigger{Actor: "policy:returns", Time: w.Now.Add(-30 * time.Minute)})

	for i := range 5 {
		changed := false
		*m[0], _, changed = m[0].Observe(inventory.Observation{
			Observer: inventory.ObserverGossip, Label: m[0].Label, Serial: m[0].Serial,
			Addr: fmt.Sprint("192.0.2.", 70+i), Alive: true,
		}, w.Now)

		if got := joins(policy.Decide(policy.Commission{Rule: siteRule()}, w)); !changed || got != "n-0 master" {
			t.Errorf("address %d (%t): %q", i, changed, got)
		}
	}
}
