// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/optiontest"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// TestBadInput: each is a clear refusal.
func TestBadInput(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 4)
	one := -1
	hour := -time.Hour

	for want, change := range map[string]func(*Request){
		"a rollout cannot carry out \"forget\"":         func(r *Request) { r.Action = inventory.VerbForget },
		"no node is named":                              func(r *Request) { r.Nodes = nil },
		"no such node: w-9999":                          func(r *Request) { r.Nodes = []string{"w-9999"} },
		"named more than once":                          func(r *Request) { r.Nodes = []string{"w-0001", "w-0001"} },
		"max_unavailable is \"0\"":                      func(r *Request) { r.MaxUnavailable = "0" },
		"max_unavailable is \"101%\"":                   func(r *Request) { r.MaxUnavailable = "101%" },
		"max_unavailable is \"many\"":                   func(r *Request) { r.MaxUnavailable = "many" },
		"max_failures is -1":                            func(r *Request) { r.MaxFailures = -1 },
		"the canary has 5 nodes, and the rollout has 4": func(r *Request) { r.Canary = 5 },
		"the canary has -1 nodes":                       func(r *Request) { r.Canary = -1 },
		"is to be promoted after its canary":            func(r *Request) { r.Promote = true },
		"the soak time is -1s":                          func(r *Request) { r.Soak = -time.Second },
		"nodes cannot be ordered by \"age\"":            func(r *Request) { r.Order.By = "age" },
		"a label is named":                              func(r *Request) { r.Order.Label = "rack" },
		"label":                                         func(r *Request) { r.Order = Order{By: ByLabel} },
		"names no group":                                func(r *Request) { r.Action = inventory.VerbCommission },
		"apply takes no group":                          func(r *Request) { r.Group = inventory.GroupWorker },
		"no group \"nobody\"": func(r *Request) {
			r.Strategies = map[string]Strategy{"nobody": {}}
		},
		"max_failures of group service-worker is -1": func(r *Request) {
			r.Strategies = map[string]Strategy{inventory.GroupWorker: {MaxFailures: &one}}
		},
		"the soak time of group service-worker is -1h": func(r *Request) {
			r.Strategies = map[string]Strategy{inventory.GroupWorker: {Soak: &hour}}
		},
		`service-worker skips the tag "slow`: func(r *Request) { r.Tags = []string{"slow"} },
		"the timeout is negative":            func(r *Request) { r.Timeout = -1 },
		"to begin outside of a maintenance":  func(r *Request) { r.OverrideWindow = true },
		"the reason has 2000 bytes":          func(r *Request) { r.Reason = strings.Repeat("x", 2000) },
		"the port of the HTTP check is 0":    func(r *Request) { r.Gate.HTTP = &HTTPCheck{} },
		"the path of the HTTP check is \"ht": func(r *Request) { r.Gate.HTTP = &HTTPCheck{Port: 1, Path: "http://x/"} },
		"the status of the HTTP check is 7":  func(r *Request) { r.Gate.HTTP = &HTTPCheck{Port: 1, Status: 7} },
		"the timeout of the HTTP check": func(r *Request) {
			r.Gate.HTTP = &HTTPCheck{Port: 1, Timeout: 2 * time.Hour}
		},
		"the name of a command is \"\"":       func(r *Request) { r.Gate.Command = &CommandCheck{Timeout: 9} },
		"the name of a command is \"rm -rf\"": func(r *Request) { r.Gate.Command = &CommandCheck{Name: "rm -rf"} },
		"the timeout of the command a": func(r *Request) {
			r.Gate.Command = &CommandCheck{Name: "a", Timeout: 2 * time.Hour}
		},
	} {
		req := Request{Spec: Spec{Action: inventory.VerbApply}, Nodes: f.names}
		change(&req)

		groups := inventory.DefaultGroups()
		groups[1].SkipTags = []string{"slow"}

		_, err := Make(f.snapshot(), groups, nil, req, epoch)
		if err == nil || !strings.Contains(err.Error(), want) || inventory.KindOf(err) == inventory.KindInternal {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestOverlap: a node belongs to one rollout at a time, and there are not too many.
func TestOverlap(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 4)
	req := Request{Spec: Spec{Action: inventory.VerbApply}, Nodes: f.names[2:]}

	open := []*Record{{ID: "r00000001", Status: Paused, Nodes: []Node{
		{Name: "w-0001", State: Waiting}, {Name: "w-0002", State: Succeeded},
	}}}
	if _, err := Make(f.snapshot(), inventory.DefaultGroups(), open, req, epoch); err != nil {
		t.Errorf("its part is over: %v", err)
	}
	open[0].Nodes[1].State = Soaking
	if _, err := Make(f.snapshot(), inventory.DefaultGroups(), open, req, epoch); err == nil ||
		!strings.Contains(err.Error(), "w-0002 is to be changed by rollout r00000001") {
		t.Errorf("%v", err)
	}

	open = slices.Repeat([]*Record{{Status: Running}}, MaxOpen)
	if _, err := Make(f.snapshot(), inventory.DefaultGroups(), open, req, epoch); err == nil ||
		!strings.Contains(err.Error(), "20 rollouts have not ended") {
		t.Errorf("%v", err)
	}
}

// TestOrder: the nodes are fixed in the order of the specification.
func TestOrder(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 9)
	f.nodes["w-0007"].Group = inventory.GroupMaster

	for order, want := range map[Order]string{
		{}:                            "0 1 2 3 4 5 6 7 8",
		{By: ByGroup}:                 "7 0 1 2 3 4 5 6 8",
		{By: ByLabel, Label: "rack"}:  "0 7 1 8 2 3 4 5 6",
		{By: ByLabel, Label: "shelf"}: "0 1 2 3 4 5 6 7 8",
	} {
		r, err := Make(f.snapshot(), inventory.DefaultGroups(), nil,
			Request{Spec: Spec{Action: inventory.VerbApply, Order: order}, Nodes: f.names}, epoch)
		errtest.None(t, err)

		var got []string
		for _, n := range r.Nodes {
			got = append(got, strings.TrimLeft(n.Name, "w-0")+map[bool]string{true: "0"}[n.Name == "w-0000"])
		}

		if strings.Join(got, " ") != want {
			t.Errorf("%+v: %s, want %s", order, strings.Join(got, " "), want)
		}
	}
}

// TestDownNodesUseTheWindow: a node that is out of service already uses its place, and the
// record names it. It is itself skipped at its turn.
func TestDownNodesUseTheWindow(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 4)
	f.nodes["w-0002"].State = inventory.Disappeared
	f.start(Spec{Action: inventory.VerbApply, Gate: Gate{SkipVerify: true}})
	f.run(time.Hour, nil)

	if r := f.record; r.Status != Running || r.Count().Waiting != 3 ||
		!strings.Contains(r.Waits, "1 node is out of service already, such as w-0002, and max_unavailable is 1") {
		t.Errorf("%s, %+v, %q", r.Status, r.Count(), r.Waits)
	}

	back := f.nodes["w-0002"].Clone()
	back.State = inventory.Discovered
	f.nodes["w-0002"] = &back
	f.run(time.Hour, nil)

	if r := f.record; r.Status != Done || r.Count().Succeeded != 3 || r.Count().Skipped != 1 {
		t.Errorf("%s, %+v", r.Status, r.Count())
	}
}

// TestCleanedNodesUseTheWindow: a node that was cleaned, and not configured since, is out of
// service, and is itself begun at its turn.
func TestCleanedNodesUseTheWindow(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 4)
	f.nodes["w-0002"].Cleaned = true
	f.start(Spec{Action: inventory.VerbReapply, Gate: Gate{SkipVerify: true}})
	f.run(time.Hour, nil)

	first := slices.MinFunc(f.record.Nodes, func(a, b Node) int { return a.Begun.Compare(b.Begun) })
	if r := f.record; r.Status != Done || r.Count().Succeeded != 4 || first.Name != "w-0002" {
		t.Errorf("%s, %+v, %s was begun first", r.Status, r.Count(), first.Name)
	}
}

// TestHeldNodesWait: a node that another job holds is passed over until the job ends.
func TestHeldNodesWait(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 3)
	held := f.nodes["w-0000"].Clone()
	held.Status, held.Verb, held.Job = inventory.Maintenance, inventory.VerbApply, "77"
	f.nodes["w-0000"] = &held
	f.start(Spec{Action: inventory.VerbApply, Gate: Gate{SkipVerify: true}})
	f.run(time.Hour, nil)

	if r := f.record; r.Count().Succeeded != 2 || !strings.Contains(r.Waits, "job 77 holds w-0000") {
		t.Errorf("%+v, %q", r.Count(), r.Waits)
	}

	free := held.Clone()
	free.Status, free.Verb, free.Job = inventory.Allocated, "", ""
	f.nodes["w-0000"] = &free
	f.run(time.Hour, nil)

	if r := f.record; r.Status != Done || r.Count().Succeeded != 3 {
		t.Errorf("%s, %+v", r.Status, r.Count())
	}
}

// TestForesee: a preview says which nodes would be skipped, or would wait for a job.
func TestForesee(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 3)
	f.nodes["w-0001"].State = inventory.Disappeared
	f.nodes["w-0002"].Status, f.nodes["w-0002"].Job = inventory.Maintenance, "7"
	f.start(Spec{Action: inventory.VerbApply})

	for i, want := range []string{"", "it would be skipped now: w-0001 is Disappeared", "job 7 holds it"} {
		n := f.record.Foresee(f.snapshot()).Nodes[i]
		if n.State != Waiting || !strings.Contains(n.Reason, want) || (want == "") != (n.Reason == "") {
			t.Errorf("%+v, want %q", n, want)
		}
	}

	if f.record.Nodes[1].Reason != "" {
		t.Error("the record itself was changed")
	}
}

// TestForgottenNode: a node that is gone is skipped.
func TestForgottenNode(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 3)
	f.start(Spec{Action: inventory.VerbApply})
	delete(f.nodes, "w-0001")
	f.run(time.Hour, nil)

	if r := f.record; r.Status != Done || r.Nodes[1].State != Skipped || r.Reason != "2 done, 0 failed, 1 skipped" {
		t.Errorf("%s, %q, %+v", r.Status, r.Reason, r.Nodes[1])
	}
}

// TestBudgets: nodes that the budgets do not permit wait, with their reason.
func TestBudgets(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 3)
	f.start(Spec{Action: inventory.VerbApply, MaxUnavailable: "3"})

	w := f.world()
	counted := 0
	w.Permits = func(working []string) Permits {
		counted++
		taken := len(working)

		return func(n *inventory.Node) (bool, string) {
			ok := taken < 1 && n.Name != "w-0000"
			if ok {
				taken++
			}
			return ok, "budget: at most one, and never w-0000"
		}
	}

	s := Next(f.record, w, f.now)
	if len(s.Begin) != 1 || s.Begin[0].Node != "w-0001" || counted != 1 {
		t.Errorf("%+v, counted %d times", s.Begin, counted)
	}

	// The one in progress counts in the next decision.
	begun := f.record.Begun(s.Begin[0], job.Job{ID: "1"}, f.now)
	if again := Next(begun, w, f.now); len(again.Begin) > 0 {
		t.Errorf("%+v", again.Begin)
	}

	w.Permits = func([]string) Permits {
		return func(*inventory.Node) (bool, string) { return false, "budget: none" }
	}
	if s = Next(f.record, w, f.now); len(s.Begin) > 0 || s.Record.Waits != "budget: none" {
		t.Errorf("%+v, %q", s.Begin, s.Record.Waits)
	}

	// A full queue is left to people.
	w = f.world()
	w.Room = 0

	if s = Next(f.record, w, f.now); len(s.Begin) > 0 || s.Record.Waits != "the queue of jobs is full" {
		t.Errorf("%+v, %q", s.Begin, s.Record.Waits)
	}
}

// TestStrategies: a group has a window and a limit of its own.
func TestStrategies(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 10)
	for i := range 4 {
		f.nodes[f.names[i]].Group = inventory.GroupMaster
	}

	none := 0
	f.fails = func(node string, _ int, _ bool) bool { return node == "w-0002" }
	f.start(Spec{
		Action: inventory.VerbApply, MaxUnavailable: "5", MaxFailures: 5, Gate: Gate{SkipVerify: true},
		Strategies: map[string]Strategy{inventory.GroupMaster: {MaxUnavailable: "25%", MaxFailures: &none}},
	})

	masters := 0

	f.run(time.Hour, func() {
		busy := 0
		for _, n := range f.record.Nodes {
			if n.Group == inventory.GroupMaster && n.State.InProgress() {
				busy++
			}
		}

		masters = max(masters, busy)
	})

	if r := f.record; masters != 1 || r.Status != Stopped || !strings.Contains(r.Reason, "its max_failures is 0") {
		t.Errorf("%d masters at once, %s, %q", masters, r.Status, r.Reason)
	}
}

// TestStrategiesOfGroups: a rollout has the strategies that the groups of its nodes are
// configured with. Each bound of the request replaces that of the configuration.
func TestStrategiesOfGroups(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 4)
	none, two, hour := 0, 2, time.Hour
	minutes := 5 * time.Minute

	groups := inventory.Groups{
		{Name: inventory.GroupMaster, Strategy: inventory.Strategy{MaxFailures: &none}},
		{
			Name:     inventory.GroupWorker,
			Strategy: inventory.Strategy{MaxUnavailable: "25%", MaxFailures: &none, Soak: "5m"},
		},
	}

	for name, tt := range map[string]struct {
		groups    inventory.Groups
		asks, has map[string]Strategy
	}{
		"nothing is asked for": {groups, nil, map[string]Strategy{
			inventory.GroupWorker: {MaxUnavailable: "25%", MaxFailures: &none, Soak: &minutes},
		}},
		"some bounds are replaced": {
			groups,
			map[string]Strategy{inventory.GroupWorker: {MaxFailures: &two, Soak: &hour}},
			map[string]Strategy{inventory.GroupWorker: {MaxUnavailable: "25%", MaxFailures: &two, Soak: &hour}},
		},
		"nothing is configured": {
			inventory.DefaultGroups(),
			map[string]Strategy{inventory.GroupWorker: {MaxUnavailable: "1"}},
			map[string]Strategy{inventory.GroupWorker: {MaxUnavailable: "1"}},
		},
		"neither": {inventory.DefaultGroups(), nil, nil},
	} {
		spec := Spec{Action: inventory.VerbApply, Strategies: tt.asks}

		r, err := Make(f.snapshot(), tt.groups, nil, Request{Spec: spec, Nodes: f.names}, epoch)
		if err != nil || !reflect.DeepEqual(r.Spec.Strategies, tt.has) {
			t.Errorf("%s: %+v, want %+v (%v)", name, r.Spec.Strategies, tt.has, err)
		}
	}
}

// TestSoak: a node that disappears while it soaks fails.
func TestSoak(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 2)
	f.start(Spec{Action: inventory.VerbApply, Soak: 10 * time.Minute})
	f.run(24*time.Hour, func() {
		if f.record.Nodes[1].State == Soaking {
			gone := f.nodes["w-0001"].Clone()
			gone.State = inventory.Disappeared
			f.nodes["w-0001"] = &gone
		}
	})

	r := f.record
	if r.Nodes[0].Since.Sub(r.Nodes[0].Begun) != 12*time.Minute || !strings.Contains(r.Nodes[1].Reason, "Disappeared") {
		t.Errorf("%+v", r.Nodes)
	}
}

// TestSoakAfterTheClockWasSetBack: the soak begins anew, instead of lasting until the old time.
func TestSoakAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 1)
	f.start(Spec{Action: inventory.VerbApply, Soak: 10 * time.Minute})
	back := false

	f.run(24*time.Hour, func() {
		if f.record.Nodes[0].State == Soaking && !back {
			f.now, back = epoch.Add(-10*time.Hour), true
		}
	})

	if r := f.record; r.Status != Done || f.now.After(epoch.Add(-9*time.Hour)) {
		t.Errorf("%s at %s: %+v", r.Status, f.now, r.Nodes)
	}
}

// TestDriftIsAFinding: a rollout of verify goes on, as a single verification does.
func TestDriftIsAFinding(t *testing.T) {
	t.Parallel()

	n := Node{Name: "w-0000", State: Working, Attempt: 1, Job: "1"}
	r := Record{Status: Running, Spec: Spec{Action: inventory.VerbVerify}, Nodes: []Node{n}}

	f := newFleet(t, 1, 1)
	f.jobs["1"] = &simJob{Job: job.Job{
		ID: "1", Status: job.Errored, Cause: job.CauseDrifted, Message: "w-0000 differs: 2 tasks would change",
	}}

	s := Next(r, f.world(), f.now)
	if s.Record.Status != Done || s.Record.Nodes[0].State != Succeeded ||
		!strings.Contains(s.Record.Nodes[0].Reason, "2 tasks would change") {
		t.Errorf("%+v", s.Record)
	}

	// Without its job, nobody knows.
	delete(f.jobs, "1")

	if s = Next(r, f.world(), f.now); s.Record.Nodes[0].State != Failed {
		t.Errorf("%+v", s.Record.Nodes)
	}
}

// TestActs walks every act of a person over every status.
func TestActs(t *testing.T) {
	t.Parallel()

	bob := Mark{By: "bob", At: epoch}
	acts := map[string]func(Record) (Record, error){
		"approve": func(r Record) (Record, error) { return r.Approve(bob) },
		"promote": func(r Record) (Record, error) { return r.Promote(bob) },
		"pause":   func(r Record) (Record, error) { return r.Pause(bob) },
		"resume":  func(r Record) (Record, error) { return r.Resume(bob) },
		"abort":   func(r Record) (Record, error) { return r.Abort(bob, false) },
		"retry":   func(r Record) (Record, error) { return r.Retry(bob, nil) },
	}
	legal := map[Status]string{
		Planned:           "",
		AwaitingApproval:  "abort>Aborting approve>Running",
		Running:           "abort>Aborting pause>Paused resume>Running retry>Running",
		Paused:            "abort>Aborting pause>Paused resume>Running retry>Paused",
		AwaitingPromotion: "abort>Aborting pause>Paused promote>Running retry>AwaitingPromotion",
		Stopped:           "abort>Aborting resume>Running retry>Running",
		Aborting:          "abort>Aborting",
		Aborted:           "",
		Done:              "retry>Running",
	}

	for status, want := range legal {
		var got []string

		for name, act := range acts {
			r := Record{ID: "r00000001", Status: status, Actor: "ann", Nodes: []Node{{Name: "a", State: Failed}}}

			after, err := act(r)
			if err == nil {
				got = append(got, name+">"+string(after.Status))
			} else if inventory.KindOf(err) != inventory.KindRefused {
				t.Errorf("%s of %s: %v", name, status, err)
			}

			if r.Nodes[0].State != Failed || len(r.Events) > 0 {
				t.Errorf("%s of %s changed the former record", name, status)
			}
		}

		slices.Sort(got)

		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", status, strings.Join(got, " "), want)
		}
	}
}

// TestSecondPerson: nobody over plain HTTP is known to be another person, whatever the address or port.
func TestSecondPerson(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		starter, approver string
		refused           bool
	}{
		{"ann", "ann", true},
		{"token:ann", "token:bob", false},
		{"policy:follow", "token:bob", false},
		{"http:127.0.0.1:50000", "http:127.0.0.1:50001", true}, // as former versions stored it
		{"http:127.0.0.1", "http:127.0.0.2", true},
		{"token:ann", "http:127.0.0.1", true},
		{"http:127.0.0.1", "token:ann", true},
		{"policy:follow", "http:127.0.0.1", true},
	} {
		r := Record{ID: "r00000001", Status: AwaitingApproval, Actor: c.starter}

		after, err := r.Approve(Mark{By: c.approver})
		if refused(err) != c.refused || after.Status == Running == c.refused {
			t.Errorf("%s approves the rollout of %s: %s, %v", c.approver, c.starter, after.Status, err)
		}

		r = Record{ID: "r00000001", Status: Stopped, Actor: c.starter, Playbooks: "old"}
		r.Spec.RequireApproval = true

		if after, err = r.Repin(Mark{By: c.approver}, "new", ""); refused(err) != c.refused ||
			(after.Playbooks == "new") == c.refused {
			t.Errorf("%s changes the playbooks of %s: %s, %v", c.approver, c.starter, after.Playbooks, err)
		}

		// Going on with the same playbooks is nobody's second opinion.
		if _, err = r.Repin(Mark{By: c.approver}, "old", ""); err != nil {
			t.Errorf("%s keeps the playbooks of %s: %v", c.approver, c.starter, err)
		}
	}
}

// TestRepin: other playbooks need another person where an approval was needed.
func TestRepin(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		approval bool
		by, to   string
		refused  bool
	}{
		{approval: true, by: "ann", to: "new", refused: true},
		{approval: true, by: "ann", to: "old"},
		{approval: true, by: "bob", to: "new"},
		{by: "ann", to: "new"},
	} {
		r := Record{ID: "r00000001", Status: Stopped, Actor: "ann", Playbooks: "old"}
		r.Spec.RequireApproval = tt.approval

		after, err := r.Repin(Mark{By: tt.by}, tt.to, "c0ffee")
		if refused(err) != tt.refused ||
			!tt.refused && (err != nil || after.Playbooks != tt.to || after.Commit != "c0ffee") {
			t.Errorf("%+v: %+v, %v", tt, after, err)
		}

		want := !refused(err) && tt.to == "new"
		if has := len(after.Events) == 1 && after.Events[0].Kind == EventRepinned &&
			after.Events[0].Text == "the playbooks are new, and no longer old"; has != want {
			t.Errorf("%+v: %+v", tt, after.Events)
		}
	}
}

func refused(err error) bool { return inventory.KindOf(err) == inventory.KindRefused }

// TestResumeExcuses: the failures that stopped a rollout count no more, and later ones do.
func TestResumeExcuses(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 6)
	f.fails = func(node string, _ int, _ bool) bool { return node == "w-0001" || node == "w-0003" }
	f.start(Spec{Action: inventory.VerbApply, Gate: Gate{SkipVerify: true}})
	f.run(time.Hour, nil)

	for _, failed := range []int{1, 2} {
		if r := f.record; r.Status != Stopped || r.Count().Failed != failed {
			t.Fatalf("%s, %+v", r.Status, r.Count())
		}

		f.act(f.record.Resume(Mark{By: "bob", At: f.now}))
		f.run(time.Hour, nil)
	}

	if r := f.record; r.Status != Done || r.Count().Succeeded != 4 {
		t.Errorf("%s, %+v", r.Status, r.Count())
	}
}

// TestCanaryAfterAFailure: the node after a failed canary is a canary as well.
func TestCanaryAfterAFailure(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 8)
	f.fails = func(node string, _ int, _ bool) bool { return node == "w-0000" || node == "w-0001" }
	f.start(Spec{Action: inventory.VerbApply, Canary: 1, MaxUnavailable: "4", Gate: Gate{SkipVerify: true}})

	for _, failed := range []int{1, 2} {
		f.run(time.Hour, nil)

		r := f.record
		if c := r.Count(); r.Status != Stopped || c.Failed != failed || c.Succeeded != 0 {
			t.Fatalf("%s, %+v: more than the next canary was begun", r.Status, c)
		}
		f.act(r.Resume(Mark{By: "bob", At: f.now}))
	}

	f.run(time.Hour, nil)

	if r := f.record; r.Status != Done || r.Count().Succeeded != 6 || r.CanaryDone.IsZero() {
		t.Errorf("%s, %+v", r.Status, r.Count())
	}
}

// TestFruitless: a rollout is not done if no node is.
func TestFruitless(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 1)
	broken := true
	f.fails = func(string, int, bool) bool { return broken }
	f.start(Spec{Action: inventory.VerbApply, Gate: Gate{SkipVerify: true}})
	f.run(time.Hour, nil)

	if r := f.record; r.Status != Fruitless || !r.Status.Ended() || r.Count().Failed == 0 {
		t.Fatalf("%s, %+v", r.Status, r.Count())
	}

	broken = false

	f.act(f.record.Retry(Mark{By: "bob", At: f.now}, nil))
	f.run(time.Hour, nil)

	if r := f.record; r.Status != Done || r.Count().Failed != 0 {
		t.Errorf("%s, %+v", r.Status, r.Count())
	}
}

// TestPromotion: a pause does not replace the promotion.
func TestPromotion(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 3)
	f.start(Spec{Action: inventory.VerbApply, Canary: 1, Promote: true})
	f.run(time.Hour, nil)

	mark := Mark{By: "bob", At: f.now}

	if f.record.Status != AwaitingPromotion || f.record.Count().Succeeded != 1 {
		t.Fatalf("%s, %+v", f.record.Status, f.record.Count())
	}

	f.act(f.record.Pause(mark))
	f.act(f.record.Resume(mark))
	f.run(time.Hour, nil)

	if f.record.Status != AwaitingPromotion {
		t.Fatalf("%s", f.record.Status)
	}

	// Only the promotion itself lets it go on, and a resume names it.
	_, err := f.record.Resume(mark)
	if e, ok := errors.AsType[*inventory.Error](err); !ok || len(e.Actions) != 1 ||
		e.Actions[0].Name != inventory.ActionPromote || e.Actions[0].Rollout != f.record.ID {
		t.Errorf("%+v", err)
	}

	f.act(f.record.Promote(mark))
	f.run(time.Hour, nil)

	if f.record.Status != Done {
		t.Errorf("%s", f.record.Status)
	}
}

// TestUndo: each node that can go back does, and the rest is skipped with the reason.
func TestUndo(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 6)
	f.nodes["w-0004"].Playbooks = nil
	f.fails = func(node string, _ int, _ bool) bool { return node == "w-0001" }
	f.start(Spec{Action: inventory.VerbUpdate, MaxFailures: 1, MaxUnavailable: "2", Gate: Gate{SkipVerify: true}})

	_, err := f.record.Undo(f.snapshot(), nil, nil, "", f.now)
	if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), "abort it first") {
		t.Errorf("%v", err)
	}

	f.run(time.Hour, nil)

	if f.record.Status != Done {
		t.Fatalf("%s, %q", f.record.Status, f.record.Waits)
	}

	// The events on nodes between the rollout and its undo.
	delete(f.nodes, "w-0002")
	f.nodes["w-0003"].Applied = "999"

	kept := func(digest string) (bool, error) { return digest == "former", nil }

	u, err := f.record.Undo(f.snapshot(), nil, kept, "too slow", f.now)
	errtest.None(t, err)

	var got []string
	for _, n := range u.Nodes {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", n.Name, n.State, n.Playbooks, n.Reason)))
	}

	want := []string{
		"w-0000 waiting former",
		"w-0001 waiting former",
		"w-0002 skipped former it was forgotten",
		"w-0003 skipped former job 999 has configured it since",
		"w-0004 skipped  it is not known which playbooks had configured it before",
		"w-0005 waiting former",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	u.ID = NewID()
	if req := u.RequestOf(Begin{Node: "w-0000"}, nil); req.Verb != inventory.VerbUpdate ||
		req.Group != inventory.GroupWorker || u.PlaybooksOf("w-0000") != "former" {
		t.Errorf("%+v", req)
	}

	gone := func(string) (bool, error) { return false, nil }
	if _, err := f.record.Undo(f.snapshot(), nil, gone, "", f.now); inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "no longer kept") {
		t.Errorf("%v", err)
	}

	verify := Record{Status: Done, Spec: Spec{Action: inventory.VerbVerify}}
	if _, err := verify.Undo(f.snapshot(), nil, kept, "", f.now); !strings.Contains(err.Error(), "changed nothing") {
		t.Errorf("%v", err)
	}
}

// TestEstimate: earlier jobs count first, and then the rollout's own nodes.
func TestEstimate(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 30)
	f.takes = func() time.Duration { return 2 * time.Minute }

	s := f.snapshot()
	s.SetJobs([]*job.Job{{
		Verb: inventory.VerbApply, Status: job.Complete, Started: epoch, Ended: epoch.Add(4 * time.Minute),
		Targets: []job.Target{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}},
	}}...)

	r, err := Make(s, inventory.DefaultGroups(), nil, Request{
		Spec: Spec{Action: inventory.VerbApply, MaxUnavailable: "10", Gate: Gate{SkipVerify: true}}, Nodes: f.names,
	}, epoch)
	errtest.None(t, err)
	f.begun(r)

	if left, known := f.record.Remaining(100, epoch); !known || left != 3*time.Minute {
		t.Errorf("%s, %t", left, known)
	}

	// Fewer jobs may run at a time.
	if left, _ := f.record.Remaining(5, epoch); left != 6*time.Minute {
		t.Errorf("%s", left)
	}

	f.run(time.Hour, func() {
		if f.now.Equal(epoch.Add(2*time.Minute)) && f.record.Count().Succeeded == 10 {
			if left, _ := f.record.Remaining(100, f.now); left != 4*time.Minute {
				t.Errorf("%s are left", left)
			}
		}
	})

	if left, known := f.record.Remaining(100, f.now); left != 0 || !known {
		t.Errorf("%s, %t", left, known)
	}

	waiting := r.Begin("ann", epoch)
	waiting.Waits = "its window opens tomorrow"

	if left, known := waiting.Remaining(100, epoch); known {
		t.Errorf("%s are left, though it waits until tomorrow", left)
	}

	if _, known := (Record{Status: Running}).Remaining(4, epoch); known {
		t.Error("nothing is known of it")
	}
}

// TestCheckURL: the host of a check is always the node.
func TestCheckURL(t *testing.T) {
	t.Parallel()

	c := HTTPCheck{Port: 8443, Path: "/health?full=1", TLS: true}
	for addr, want := range map[string]string{
		"10.0.0.1":     "https://10.0.0.1:8443/health?full=1",
		"fd00::1":      "https://[fd00::1]:8443/health?full=1",
		"host.example": "https://host.example:8443/health?full=1",
	} {
		if got := c.URL(addr); got != want {
			t.Errorf("%s: %q", addr, got)
		}
	}

	if got := (&HTTPCheck{Port: 80}).URL("10.0.0.1"); got != "http://10.0.0.1:80/" {
		t.Error(got)
	}

	if !(&HTTPCheck{}).Passes(204) || (&HTTPCheck{}).Passes(302) || !(&HTTPCheck{Status: 302}).Passes(302) {
		t.Error("the status is judged wrong")
	}
}

// TestRequests: a job has the choices of the rollout, and its verification has none of them.
func TestRequests(t *testing.T) {
	t.Parallel()

	r := Record{ID: "r00000001", Actor: "ann", Spec: Spec{
		Action:        inventory.VerbUpdate,
		Group:         "g",
		Timeout:       time.Minute,
		SharedOptions: inventory.SharedOptions{Reason: strings.Repeat("x", 1000)},
	}, Nodes: []Node{{Name: "a", Group: "old"}}}
	extra := configuration.Vars{"k": "v"}

	req := r.RequestOf(Begin{Node: "a"}, extra)
	if req.Verb != inventory.VerbUpdate || req.Group != "g" || req.Extra["k"] != "v" || req.Timeout != time.Minute ||
		len(req.Reason) > maxJobReason+3 || !strings.HasPrefix(req.Reason, "rollout r00000001 of ann: x") {
		t.Errorf("%+v", req)
	}

	if req = r.RequestOf(Begin{Node: "a", Gate: true}, extra); req.Verb != inventory.VerbVerify || req.Extra != nil ||
		req.Group != "" {
		t.Errorf("%+v", req)
	}
}

// TestOptionsAreHandedOn: a job has every option of the rollout, and its verification those that it takes.
func TestOptionsAreHandedOn(t *testing.T) {
	t.Parallel()

	r := Record{Spec: Spec{Action: inventory.VerbApply, SharedOptions: optiontest.All().SharedOptions}}
	r.Nodes = []Node{{Name: "a"}}

	for _, gate := range []bool{false, true} {
		req := r.RequestOf(Begin{Node: "a", Gate: gate}, nil)
		row, _ := inventory.TransitionOf(req.Verb)

		for _, o := range inventory.Options {
			if want := o.Shared && row.Accepts(o.Field); o.IsSet(req.JobOptions) != want {
				t.Errorf("%s: %s is set: %t", req.Verb, o.Field, !want)
			}
		}
	}
}

// TestEventsAreBounded: the oldest events are dropped.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()

	var r Record
	for i := range MaxEvents + 10 {
		r.note(Event{Text: fmt.Sprint(i)})
	}

	if len(r.Events) != MaxEvents || r.Events[0].Text != "10" {
		t.Errorf("%d events from %q", len(r.Events), r.Events[0].Text)
	}
}

// TestNodeOfAnotherRollout: the refusal has the status of the other rollout and the way to its
// end.
func TestNodeOfAnotherRollout(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 2)
	f.start(Spec{Action: inventory.VerbApply})

	for status, want := range map[Status]string{
		Running: "has not ended; wait for it, or abort it [show-rollout abort-rollout]",
		Paused: "is Paused and does not end by itself; " +
			"resume it, or abort it [resume-rollout abort-rollout]",
		Stopped: "is Stopped and does not end by itself; " +
			"resume it, or abort it [resume-rollout abort-rollout]",
		AwaitingPromotion: "does not end by itself; promote it, or abort it [promote-rollout abort-rollout]",
		AwaitingApproval:  "let another person approve it, or abort it [approve-rollout abort-rollout]",
	} {
		other := f.record
		other.ID, other.Status = "r1", status

		e, ok := errors.AsType[*inventory.Error](f.record.CheckFree([]*Record{&other}))
		if !ok {
			t.Fatalf("%s: it is not refused", status)
		}

		var names []inventory.ActionName
		for _, a := range e.Actions {
			names = append(names, a.Name)

			if a.Rollout != "r1" {
				t.Errorf("%s: %s", status, a)
			}
		}

		if got := fmt.Sprint(e.Error(), " ", names); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", status, got, want)
		}
	}
}

// TestVerdictOfAGate: a node passes its verification with a verdict that it is clean, and by nothing else.
func TestVerdictOfAGate(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		verdict *inventory.Verdict
		want    Status
		words   string
	}{
		{&inventory.Verdict{Result: inventory.Clean}, Done, ""},
		{&inventory.Verdict{Result: inventory.Drifted}, Fruitless, "its verification failed"},
		{&inventory.Verdict{Result: "unknown"}, Fruitless, "its verification failed"},
		{&inventory.Verdict{}, Fruitless, "its verification failed"},
		{nil, Fruitless, "has no verdict"},
	} {
		f := newFleet(t, 1, 1)
		f.verdict = c.verdict
		f.start(Spec{Action: inventory.VerbApply})
		f.run(time.Hour, nil)

		if r := f.record; r.Status != c.want || !strings.Contains(r.Nodes[0].Reason, c.words) {
			t.Errorf("%+v: %s, %q", c.verdict, r.Status, r.Nodes[0].Reason)
		}
	}
}

// TestRemedyOfAStop: a bad commit stops a rollout at its canary, and its first remedy brings it to its end, also
// once the playbooks were corrected.
func TestRemedyOfAStop(t *testing.T) {
	t.Parallel()

	for inUse, want := range map[state.Playbooks]string{
		{}:                 "[retry-rollout rollout=r1 retry-rollout rollout=r1 playbooks=current]",
		{Digest: "broken"}: "[retry-rollout rollout=r1 retry-rollout rollout=r1 playbooks=current]",
		{Digest: "broken", Commit: "c"}: "[retry-rollout rollout=r1 sync-repository " +
			"retry-rollout rollout=r1 playbooks=current]",
		{Digest: "corrected"}: "[retry-rollout rollout=r1 playbooks=current retry-rollout rollout=r1]",
	} {
		f := newFleet(t, 1, 3)
		f.fails = func(string, int, bool) bool { return f.record.Playbooks != "corrected" }
		f.start(Spec{Action: inventory.VerbApply, Canary: 1, Gate: Gate{SkipVerify: true}})
		f.record.ID, f.record.Playbooks = "r1", "broken"

		if text, actions := f.record.Remedy(inUse); text != "" || actions != nil {
			t.Errorf("it goes on: %q, %s", text, actions)
		}

		f.run(time.Hour, nil)

		text, actions := f.record.Remedy(inUse)
		if f.record.Status != Stopped || text == "" || fmt.Sprint(actions) != want {
			t.Fatalf("%s, %q: %s, want %s", f.record.Status, text, actions, want)
		}

		// The first one is followed to the letter.
		if actions[0].Playbooks == inventory.PlaybooksCurrent {
			f.act(f.record.Repin(f.mark(), inUse.Digest, ""))
		}

		f.act(f.record.Retry(f.mark(), nil))
		f.run(time.Hour, nil)

		if done := f.record.Status == Done; done != (inUse.Digest == "corrected") {
			t.Errorf("%v: %s, %s", inUse, f.record.Status, f.record.Reason)
		}

		f.record.Status, f.record.UndoOf = Fruitless, "r0"
		f.record.Nodes[0].State = Failed

		// A node of an undo goes back to playbooks of its own.
		if _, actions := f.record.Remedy(inUse); fmt.Sprint(actions) != "[retry-rollout rollout=r1]" {
			t.Errorf("undo: %s", actions)
		}
	}
}
