// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/state"
)

var ann = access.Caller{Principal: "ann"}

// newcomers is a site of which the first nodes are new, with a rule for them.
func newcomers(t *testing.T, nodes, fresh int) *site {
	s := newSite(t, nodes)
	s.settings.Groups = inventory.Groups{{Name: "service-worker"}}
	s.settings.Commission = []Rule{{
		Name: "workers", Match: func(n *inventory.Node) bool { return n.Label == "n" }, Selector: "label=n",
		Group: "service-worker", Maximum: nodes, Rate: 5, Quiet: 5 * time.Minute, Failures: 2,
	}}
	s.refresh(upTo(fresh)...)

	return s
}

// TestAutoCommission: nothing while the policy is off; once it is on, each new node is
// commissioned once, after the quiet period.
func TestAutoCommission(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newcomers(t, 8, 3)
		l := s.leader()
		s.run(l, time.Hour)

		if s.jobs() != "" {
			t.Fatalf("it is off, and %s", s.jobs())
		}

		s.refresh(0, 1, 2)

		status, err := l.Enable(t.Context(), ann, "workers", false, "the racks are wired")
		if err != nil || !status.Policies[1].On || status.Policies[1].Turned.Actor != "ann" ||
			status.Policies[1].Pending != 3 || status.Policies[1].Halted != "" {
			t.Fatalf("%v, %+v", err, status)
		}

		s.run(l, 4*time.Minute)

		if s.jobs() != "" {
			t.Errorf("in the quiet period: %s", s.jobs())
		}

		s.run(l, 5*time.Minute)

		want := "commission " + name(0) + ", commission " + name(1) + ", commission " + name(2)
		if s.jobs() != want || s.busiest > s.settings.Jobs {
			t.Errorf("jobs %s, want %s; %d at a time", s.jobs(), want, s.busiest)
		}

		for _, d := range state.AutomationOf(s.View()).Decisions {
			if d.Phase != state.PhaseDone || d.Job == "" || len(d.Evidence) == 0 {
				t.Errorf("%+v", d)
			}
		}

		if j := s.View().Jobs()[0]; j.Actor != "policy:workers" || j.Group != "service-worker" {
			t.Errorf("%+v", j)
		}

		recorded := func(action, by string) bool {
			return slices.ContainsFunc(
				s.trail,
				func(r access.Record) bool { return r.Action == action && r.Principal == by },
			)
		}
		if !recorded("policies.enable", "ann") || !recorded("policies.decide.commission", "policy:workers") {
			t.Errorf("%+v", s.trail)
		}

		s.run(l, time.Hour)

		if s.jobs() != want {
			t.Errorf("commissioned again: %s", s.jobs())
		}
	})
}

// TestAutoCommissionStops after two failures, and goes on when it is turned on again.
func TestAutoCommissionStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newcomers(t, 8, 5)
		s.settings.Jobs, s.fails = 1, true
		l := s.leader()

		if _, err := l.Enable(t.Context(), ann, "workers", false, ""); err != nil {
			t.Fatal(err)
		}

		s.run(l, time.Hour)

		status := l.Status().Policies[1]
		if n := len(s.View().Jobs()); n != 2 || status.On || status.Turned.Actor != "policy:workers" ||
			!strings.Contains(status.Halted, "2 commissions failed in a row") {
			t.Fatalf("%d jobs, %+v", n, status)
		}

		// Another leader keeps it off.
		s.run(s.leader(), time.Hour)

		s.fails = false

		if _, err := l.Enable(t.Context(), ann, "workers", false, "repaired"); err != nil {
			t.Fatal(err)
		}

		s.run(l, time.Hour)

		if n := len(s.View().Jobs()); n != 5 {
			t.Errorf("%d jobs, want one for each of 5 nodes: %s", n, s.jobs())
		}
	})
}

// TestAutoCommissionKilled at each of its operations: no node is commissioned twice.
func TestAutoCommissionKilled(t *testing.T) {
	t.Parallel()

	killedAnywhere(t, 2, func(t *testing.T, crash int, late bool) bool {
		s := newcomers(t, 5, 2)
		if _, err := s.leader().Enable(t.Context(), ann, "workers", false, ""); err != nil {
			t.Fatal(err)
		}
		s.crash, s.late = crash, late
		s.run(s.leader(), 20*time.Minute)

		reached := s.revive()
		s.run(s.leader(), time.Hour)

		if want := "commission " + name(0) + ", commission " + name(1); s.jobs() != want {
			t.Errorf("jobs %q, want %q", s.jobs(), want)
		}

		return reached
	})
}

// TestEnable refuses names that are none, and a policy for every node without all.
func TestEnable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newcomers(t, 3, 1)
		every := s.settings.Commission[0]
		every.Name, every.All, every.Selector = "every", true, ""
		s.settings.Commission = append(s.settings.Commission, every)
		l := s.leader()

		for _, c := range []struct {
			name string
			all  bool
			want inventory.Kind
		}{
			{"nightly", false, inventory.KindNotFound},
			{"all", false, inventory.KindNotFound},
			{"brake", false, inventory.KindNotFound},
			{"every", false, inventory.KindRefused},
			{"workers", true, inventory.KindInvalid},
			{"every", true, ""},
		} {
			before := s.View().Revision

			_, err := l.Enable(t.Context(), ann, c.name, c.all, "")
			if inventory.KindOf(err) != c.want || (s.View().Revision == before) != (c.want != "") {
				t.Errorf("enable %s, all %t: %v", c.name, c.all, err)
			}

			e, ok := errors.AsType[*inventory.Error](err)
			want := []inventory.Action{inventory.TestPolicy("every"), inventory.EnableForAll("every")}

			if c.want == inventory.KindRefused && (!ok || !slices.EqualFunc(e.Actions, want, inventory.Action.Equal)) {
				t.Errorf("enable %s advises %v", c.name, e)
			}
		}

		if _, err := l.Disable(t.Context(), ann, "nightly", ""); inventory.KindOf(err) != inventory.KindNotFound {
			t.Error(err)
		}

		status, err := l.Disable(t.Context(), ann, "returns", "by hand")
		if err != nil || status.Policies[0].On || !strings.Contains(status.Policies[0].Halted, "ann turned it off") {
			t.Errorf("%v, %+v", err, status.Policies[0])
		}
	})
}

// TestTest: a policy that is off and held is tested as if it were on; nothing changes.
func TestTest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newcomers(t, 3, 2)
		l := s.leader()
		before := s.View()

		tested, err := l.Test("workers", nil)
		if err != nil || tested.On || tested.Halted == "" || tested.Nodes != 3 || len(tested.Outlooks) != 2 ||
			tested.Outlooks[0].Now || tested.Outlooks[0].Until.IsZero() {
			t.Errorf("%v, %+v", err, tested)
		}

		given := []inventory.Node{
			{Name: "x-2", Label: "x", Status: inventory.Unallocated, State: inventory.Discovered},
			{Name: "n-1", Label: "n", Status: inventory.Unallocated, State: inventory.Discovered},
		}

		tested, err = l.Test("workers", given)
		if err != nil || tested.Nodes != 2 || len(tested.Outlooks) != 1 || !tested.Outlooks[0].Now ||
			tested.Outlooks[0].Node != "n-1" {
			t.Errorf("%v, %+v", err, tested)
		}

		if tested, err = l.Test("workers", []inventory.Node{}); err != nil || tested.Nodes != 0 {
			t.Errorf("an empty inventory: %v, %+v", err, tested)
		}

		if _, err := l.Test("workers", append(given, given[0])); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("a node twice: %v", err)
		}

		if _, err := l.Test("nightly", nil); inventory.KindOf(err) != inventory.KindNotFound {
			t.Error(err)
		}

		if s.View() != before {
			t.Error("a test changed something")
		}
	})
}

// TestEnableAgain: once a policy is for other nodes, it is off. An operator turns it on again, or
// off for good.
func TestEnableAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := followers(t, 2)
		l := s.leader()

		wide := func(all bool, selector string) {
			s.mu.Lock()
			defer s.mu.Unlock()

			r := s.settings.Upgrade[0]
			r.All, r.Selector = all, selector
			s.settings.Upgrade = []UpgradeRule{r}
		}

		of := func(status api.Policies, err error) api.Policy {
			t.Helper()
			errtest.None(t, err)
			return status.Policies[1]
		}

		p := of(l.Enable(t.Context(), ann, "follow", false, ""))
		if !p.On || p.Halted != "" || state.AutomationOf(s.View()).Switches["follow"].Kind != "upgrade" {
			t.Errorf("on: %+v", p)
		}

		wide(true, "")

		if p := of(l.Status(), nil); p.On || !strings.Contains(p.Halted, "an operator turns it on again") {
			t.Errorf("for every node: %+v", p)
		}

		p = of(l.Enable(t.Context(), ann, "follow", true, ""))
		if !p.On || !state.AutomationOf(s.View()).Switches["follow"].All {
			t.Errorf("on for every node: %+v", p)
		}

		wide(false, "label=n")

		if p := of(l.Disable(t.Context(), ann, "follow", "enough")); p.On {
			t.Errorf("off: %+v", p)
		}

		wide(true, "")

		if p := of(l.Status(), nil); p.On || !strings.Contains(p.Halted, "turned it off") {
			t.Errorf("for every node, after it was turned off: %+v", p)
		}
	})
}
