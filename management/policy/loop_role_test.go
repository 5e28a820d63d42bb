// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// roleSite is a site with three masters of different racks and new nodes, with a rule for
// three masters and then workers.
func roleSite(t *testing.T, masters, fresh int) *site {
	s := newSite(t, masters+fresh)
	s.settings.Brake.Minimum = 100
	s.settings.Commission = []Rule{{
		Name: "site", Match: func(n *inventory.Node) bool { return n.Label == "n" }, Selector: "label=n",
		Roles: []Role{
			{Group: inventory.GroupMaster, Count: 3, Spread: "rack", ReplaceAfter: 30 * time.Minute},
			{Group: inventory.GroupWorker, Rest: true},
		},
		Rate: 10, Quiet: 5 * time.Minute, Failures: 3,
	}}

	if fresh > 0 {
		all := upTo(masters + fresh)
		s.refresh(all[masters:]...)
	}

	s.publish(func(v *state.View) {
		for i := range v.Nodes() {
			n := v.Nodes()[i].Clone()
			n.Labels = map[string]string{"rack": string(rune('a' + i%3))}
			n.Revision = v.Revision

			if i < masters {
				n.Group = inventory.GroupMaster
			}

			v.PutNode(&n)
		}
	})

	return s
}

// groups returns the nodes in service of a group.
func (s *site) inGroup(group string) string {
	var names []string

	for _, n := range s.View().Nodes() {
		if n.Status == inventory.Allocated && n.Group == group {
			names = append(names, n.Name)
		}
	}

	return strings.Join(names, " ")
}

// TestDynamicRoles: the masters are filled over the racks, then the workers; a master that
// stays away is replaced by a new node, and its return is reported and changes nothing.
func TestDynamicRoles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := roleSite(t, 0, 6)
		l := s.leader()

		if _, err := l.Enable(t.Context(), ann, "site", false, ""); err != nil {
			t.Fatal(err)
		}

		s.run(l, 20*time.Minute)

		if m, w := s.inGroup(inventory.GroupMaster), s.inGroup(inventory.GroupWorker); m != "n-000 n-001 n-002" ||
			w != "n-003 n-004 n-005" {
			t.Fatalf("masters %s, workers %s", m, w)
		}

		// A worker is not moved.
		s.boots[name(1)] = ""
		s.see(false, 1)
		s.run(l, 2*time.Hour)

		if m := s.inGroup(inventory.GroupMaster); m != "n-000 n-001 n-002" {
			t.Fatalf("masters %s", m)
		}

		s.publish(func(v *state.View) {
			n, _ := inventory.NewNode(inventory.Observation{
				Observer: inventory.ObserverGossip, Label: "n", Serial: "006", Addr: "192.0.2.1", Alive: true,
			}, nil, time.Now())
			n.Revision = v.Revision
			v.PutNode(&n)
		})
		s.run(l, time.Hour)

		if m := s.inGroup(inventory.GroupMaster); m != "n-000 n-001 n-002 n-006" {
			t.Fatalf("masters %s; %s", m, s.jobs())
		}

		d := state.AutomationOf(s.View()).Of("n-006")
		if len(d) != 1 || d[0].Replaces != name(1) || d[0].Phase != state.PhaseDone {
			t.Errorf("%+v", d)
		}

		s.boots[name(1)] = bootA
		s.see(true, 1)
		before := len(s.View().Jobs())
		s.run(l, time.Hour)

		role := l.Status().Policies[1].Roles[0]
		if role.Surplus != 1 || len(role.Warnings) != 1 || !strings.Contains(role.Warnings[0], "n-001 returned") {
			t.Errorf("%+v", role)
		}

		if text := strings.Join(l.Warnings(), "\n"); !strings.Contains(text, "policy site, service-master: 1 more") {
			t.Error(text)
		}

		// The return is verified, as that of every node.
		if jobs := s.View().Jobs()[before:]; len(jobs) != 1 || jobs[0].Verb != inventory.VerbVerify {
			t.Errorf("%s", s.jobs())
		}
	})
}

// TestDynamicRolesStart: a manager that starts after a long time replaces no master that its
// own observers see a moment later.
func TestDynamicRolesStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := roleSite(t, 3, 1)
		if _, err := s.leader().Enable(t.Context(), ann, "site", false, ""); err != nil {
			t.Fatal(err)
		}
		s.boots[name(0)] = ""
		s.see(false, 0)
		s.run(s.leader(), 28*time.Minute)
		time.Sleep(20 * time.Minute)

		var observed atomic.Pointer[time.Time]

		observed.Store(&time.Time{})

		l := s.leader()
		l.Observed = func() time.Time { return *observed.Load() }

		s.run(l, 31*time.Minute)

		if text := strings.Join(l.Status().Policies[1].Roles[0].Notes, ""); !strings.Contains(text, "full report") {
			t.Error(text)
		}

		s.see(true, 0)

		now := time.Now()
		observed.Store(&now)
		s.run(l, time.Hour)

		for _, j := range s.View().Jobs() {
			if j.Group == inventory.GroupMaster {
				t.Errorf("%+v", j)
			}
		}
	})
}

// TestDynamicRolesKilled at each of its operations: a lost master is replaced once.
func TestDynamicRolesKilled(t *testing.T) {
	t.Parallel()

	killedAnywhere(t, 2, func(t *testing.T, crash int, late bool) bool {
		s := roleSite(t, 3, 3)
		if _, err := s.leader().Enable(t.Context(), ann, "site", false, ""); err != nil {
			t.Fatal(err)
		}
		s.boots[name(0)] = ""
		s.see(false, 0)

		s.crash, s.late = crash, late
		s.run(s.leader(), 80*time.Minute)

		reached := s.revive()
		s.run(s.leader(), 2*time.Hour)

		begun := slices.DeleteFunc(slices.Clone(s.View().Jobs()), func(j *job.Job) bool {
			return j.Verb != inventory.VerbCommission || j.Group != inventory.GroupMaster
		})

		if len(begun) != 1 || s.inGroup(inventory.GroupMaster) != "n-000 n-001 n-002 n-003" ||
			s.inGroup(inventory.GroupWorker) != "n-004 n-005" {
			t.Errorf("jobs %s", s.jobs())
		}

		return reached
	})
}

// fencedSite is roleSite with BMCs, where a lost master is turned off first.
func fencedSite(t *testing.T, masters, fresh int) *site {
	s := roleSite(t, masters, fresh)
	s.settings.Commission[0].Roles[0].Fence = FencePower

	s.publish(func(v *state.View) {
		for _, n := range v.Nodes() {
			m := &state.Machine{Machine: machine.Machine{
				Node: n.Name, BMC: &machine.BMC{Driver: machine.IPMI, Address: "127.9.0.1"},
			}}
			v.View = record.SetAt(v.View, &state.Machines, n.Name, m, v.Revision)
			on := &inventory.Power{Node: n.Name, Power: "on"}
			v.View = record.SetAt(v.View, &state.Powers, n.Name, on, v.Revision)
		}
	})

	return s
}

// TestFencedKilled at each of its operations: a lost master is turned off once, and replaced once, after that.
func TestFencedKilled(t *testing.T) {
	t.Parallel()

	killedAnywhere(t, 2, func(t *testing.T, crash int, late bool) bool {
		s := fencedSite(t, 3, 3)
		if _, err := s.leader().Enable(t.Context(), ann, "site", false, ""); err != nil {
			t.Fatal(err)
		}
		s.boots[name(0)] = ""
		s.see(false, 0)

		s.crash, s.late = crash, late
		s.run(s.leader(), 80*time.Minute)

		reached := s.revive()
		s.run(s.leader(), 2*time.Hour)

		if got := strings.Join(s.log, ", "); got != "off n-000, replaces by n-003" {
			t.Errorf("%s; jobs %s", got, s.jobs())
		}

		return reached
	})
}

// TestFencedNot: a master that does not go off is not replaced, and its BMC is not told again, for a day.
func TestFencedNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fencedSite(t, 3, 1)
		l := s.leader()

		if _, err := l.Enable(t.Context(), ann, "site", false, ""); err != nil {
			t.Fatal(err)
		}

		s.stays, s.boots[name(0)] = true, ""
		s.see(false, 0)
		s.run(l, 24*time.Hour)

		text := strings.Join(l.Warnings(), "\n")
		if got := strings.Join(s.log, ", "); got != "off n-000" || !strings.Contains(text, "the machine is still on") {
			t.Errorf("%s; %s", got, text)
		}

		// A power that somebody sees off is worth another attempt.
		s.mu.Lock()
		s.stays = false
		s.publish(func(v *state.View) {
			off := &inventory.Power{Node: name(0), Power: "off"}
			v.View = record.SetAt(v.View, &state.Powers, name(0), off, v.Revision)
		})
		s.mu.Unlock()
		s.run(l, time.Hour)

		if got := strings.Join(s.log, ", "); got != "off n-000, off n-000, replaces by n-003" {
			t.Errorf("%s; %s", got, l.Warnings())
		}
	})
}

// TestDynamicRolesTest: a given inventory has no answers of ssh, and a node that it says is
// gone counts as gone.
func TestDynamicRolesTest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := roleSite(t, 3, 1)
		l := s.leader()

		node := func(name, group string, status inventory.Status, state inventory.State) inventory.Node {
			return inventory.Node{Name: name, Label: "n", Group: group, Status: status, State: state}
		}

		given := []inventory.Node{
			node("n-0", inventory.GroupMaster, inventory.Allocated, inventory.Disappeared),
			node("n-1", inventory.GroupMaster, inventory.Allocated, inventory.Discovered),
			node("n-2", inventory.GroupMaster, inventory.Allocated, inventory.Discovered),
			node("n-3", "", inventory.Unallocated, inventory.Discovered),
		}

		tested, err := l.Test("site", given)
		if err != nil || len(tested.Outlooks) != 1 || !tested.Outlooks[0].Now ||
			!strings.Contains(tested.Outlooks[0].Message, "service-master now, in the place of n-0") ||
			len(tested.Roles) != 2 || tested.Roles[0].Healthy != 2 {
			t.Errorf("%v, %+v", err, tested)
		}

		given[0].Updated = time.Now().Add(-time.Minute)

		tested, err = l.Test("site", given)
		if err != nil || len(tested.Outlooks) != 1 || tested.Outlooks[0].Now ||
			!strings.Contains(tested.Outlooks[0].Message, "kept for service-master: n-0 is silent") {
			t.Errorf("%v, %+v", err, tested)
		}
	})
}

// TestDynamicRolesFail: while no new node can become a master, three of them are used up for a lost one, and
// no other one before the cause is removed and the policy enabled anew, as the health advises. A policy that has
// turned itself off is enabled, and one that is on is disabled first.
func TestDynamicRolesFail(t *testing.T) {
	t.Parallel()

	for kind, advice := range map[string]string{
		"in a row":     "policy site turned itself off",
		"not in a row": "remove the cause, then disable and enable the policy",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := roleSite(t, 3, 0)
				l := s.leader()

				enable := func() {
					if _, err := l.Enable(t.Context(), ann, "site", false, ""); err != nil {
						t.Fatal(err)
					}
				}

				enable()

				s.failsIn = inventory.GroupMaster
				s.boots[name(0)] = ""
				s.see(false, 0)

				// Every second new node becomes a worker.
				nodes := 1
				if kind == "not in a row" {
					nodes = 2
				}

				for i := range 6 {
					s.discover(3+i*nodes, nodes)
					s.run(l, time.Hour)
				}

				used := func() (failed int) {
					for _, j := range s.View().Jobs() {
						if j.Group == inventory.GroupMaster && j.Status == job.Errored {
							failed++
						}
					}

					return failed
				}

				text := strings.Join(l.Warnings(), "\n")
				if used() != 3 || !strings.Contains(text, advice) || !strings.Contains(text, "n-000 is ") ||
					!strings.Contains(text, "3 attempts to replace it failed") {
					t.Errorf("%d nodes used up: %s; %s", used(), text, s.jobs())
				}

				s.failsIn = ""

				if nodes == 2 {
					if _, err := l.Disable(t.Context(), ann, "site", ""); err != nil {
						t.Fatal(err)
					}
				}

				enable()
				s.run(l, 2*time.Hour)

				if m := strings.Fields(s.inGroup(inventory.GroupMaster)); len(m) != 4 || len(l.Warnings()) > 0 {
					t.Errorf("masters %s; %s", m, l.Warnings())
				}
			})
		})
	}
}

// discover adds new nodes.
func (s *site) discover(first, count int) {
	s.publish(func(v *state.View) {
		for i := range count {
			n, _ := inventory.NewNode(inventory.Observation{
				Observer: inventory.ObserverGossip, Label: "n", Serial: fmt.Sprintf("%03d", first+i),
				Addr: fmt.Sprint("192.0.2.", 100+first+i), Alive: true,
			}, nil, time.Now())
			n.Revision = v.Revision
			v.PutNode(&n)
		}
	})
}
