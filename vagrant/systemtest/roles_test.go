// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// dynamicRoles is three masters of different racks, then workers, for the hosts that an
// operator has put into a rack.
const dynamicRoles = `policies:
  settle: 5s
  commission:
    site:
      match: rack
      quiet: 5s
      roles:
        - {group: service-master, count: 3, spread: rack, replace_after: 1m}
        - {group: service-worker}
`

// TestDynamicRoles: of four fresh hosts in three racks, one of each rack becomes a master
// and the other one a worker. A master that stays away is replaced by a new host, and not by
// the worker, while the manager is killed. When it returns, that is reported, and both stay
// in service.
func TestDynamicRoles(t *testing.T) {
	w := newWorld(t, setup{hosts: 6, testPlaybooks: true, config: dynamicRoles})
	racks := map[string]string{"host2": "r1", "host3": "r1", "host4": "r2", "host5": "r3"}

	for host, rack := range racks {
		w.ctl("nodes", "label", w.name(host), "rack="+rack)
	}

	w.awaitState(inventory.Discovered, "host2", "host3", "host4", "host5")
	w.ctl("policy", "enable", "site", "--reason", "the racks are wired")
	w.awaitInService("host2", "host3", "host4", "host5")

	masters := map[string]int{}

	for host, rack := range racks {
		if w.node(host).Group == master {
			masters[rack]++
		}
	}

	if masters["r1"] != 1 || masters["r2"] != 1 || masters["r3"] != 1 {
		t.Fatalf("masters by rack: %v", masters)
	}

	// The rack of the lost master gets the new one. No host is left over before that.
	w.labDo("cut", "host4")
	w.awaitState(inventory.Disappeared, "host4")
	w.ctl("nodes", "label", w.name("host6"), "rack=r2")
	w.sh("host1", "systemctl kill -s KILL clusterm")
	w.awaitHealthy()
	w.awaitInService("host6")

	for _, host := range []string{"host4", "host6"} {
		if n := w.node(host); n.Group != master || n.Status != inventory.Allocated {
			t.Errorf("%s is %s in %s", host, n.Status, n.Group)
		}
	}

	w.awaitReplacement("host6", "host4")
	w.labDo("heal")
	w.awaitState(inventory.Discovered, "host4")
	w.awaitFinding("host4", "it returned after "+w.name("host6")+" took its place in service-master")

	shown := decode[api.Policy](w, w.ctl("policy", "show", "site", "-o", "json"))
	if r := shown.Roles; len(r) != 2 || r[0].InService != 4 || r[0].Surplus != 1 || r[1].InService != 1 {
		t.Errorf("%+v", r)
	}

	if health := w.tryCtl("status").String(); !strings.Contains(health, "none is removed automatically") {
		t.Errorf("health says nothing about the surplus: %s", health)
	}

	commissions := map[string]int{}

	for _, j := range w.jobs() {
		if j.Verb != inventory.VerbCommission {
			continue
		}

		if j.Actor != "policy:site" || j.Status != api.Complete || len(j.Nodes) != 1 {
			t.Errorf("job %s by %s of %v is %s: %s", j.ID, j.Actor, j.Nodes, j.Status, j.Message)
		}

		commissions[j.Nodes[0]]++
	}

	for _, host := range []string{"host2", "host3", "host4", "host5", "host6"} {
		if n := commissions[w.name(host)]; n != 1 {
			t.Errorf("%d commissions of %s", n, host)
		}
	}

	w.wantNode("host1", inventory.Unallocated, "")
}

// threeMasters is three masters, and no workers. Two hosts may vanish without the brake.
const threeMasters = `policies:
  settle: 5s
  brake: {minimum: 10}
  commission:
    site:
      match: rack
      quiet: 5s
      roles:
        - {group: service-master, count: 3, replace_after: 1m}
`

// TestLostMaster: with the bundled playbooks, a master that lost its power is replaced, in etcd as
// well. When two of three are lost at once, nothing is replaced, no new node is used up, and the reason
// is told, until one of them is back: then the other one is replaced.
func TestLostMaster(t *testing.T) {
	w := newWorld(t, setup{hosts: 6, config: threeMasters})
	first := []string{"host2", "host3", "host4"}

	for _, host := range first {
		w.ctl("nodes", "label", w.name(host), "rack=r1")
	}

	w.awaitState(inventory.Discovered, first...)
	w.commission(master, first...)
	w.ctl("policy", "enable", "site")
	w.wantMembers("host2", first...)
	w.putKey("host2", "k", "before")

	w.labDo("kill", "host3")
	w.ctl("nodes", "label", w.name("host5"), "rack=r1")
	w.awaitInService("host5")
	w.awaitReplacement("host5", "host3")

	second := []string{"host2", "host4", "host5"}
	for _, host := range second {
		w.wantMembers(host, second...)
		w.wantKey(host, "k", "before")
	}

	w.labDo("kill", "host2", "host4")
	w.ctl("nodes", "label", w.name("host6"), "rack=r1")

	const reason = "1 of 3 nodes of service-master are healthy, fewer than the majority of 2: nothing is replaced"

	await(t, 3*time.Minute, "both masters are lost", func() (bool, string) {
		shown := w.ctl("policy", "show", "site").stdout

		return strings.Contains(shown, w.name("host2")+" is lost since") &&
			strings.Contains(shown, w.name("host4")+" is lost since"), shown
	})
	w.awaitFinding("host6", reason)

	for _, args := range [][]string{{"health"}, {"policy", "show", "site"}} {
		if text := w.tryCtl(args...).String(); !strings.Contains(text, reason) {
			t.Errorf("%v does not give the reason: %s", args, text)
		}
	}

	if n := w.node("host6"); n.Status != inventory.Unallocated || n.LastError != "" || n.Job != "" {
		t.Errorf("host6 was used up: %+v", n)
	}

	w.labDo("boot", "host4")
	w.awaitInService("host6")
	w.awaitReplacement("host6", "host2")

	third := []string{"host4", "host5", "host6"}
	for _, host := range third {
		w.wantMembers(host, third...)
		w.wantKey(host, "k", "before")
	}

	// One that was removed is made a member again as the documents say.
	w.labDo("boot", "host3")
	w.awaitState(inventory.Discovered, "host3")
	w.do("nodes", "apply", w.name("host3"))
	w.wantMembers("host3", append(third, "host3")...)
}

// awaitInService waits until the hosts are in service.
func (w *world) awaitInService(hosts ...string) {
	w.t.Helper()
	await(w.t, 5*time.Minute, strings.Join(hosts, ", ")+" in service", func() (bool, string) {
		all, text := true, ""

		for _, host := range hosts {
			n := w.node(host)
			all = all && n.Status == inventory.Allocated
			text += fmt.Sprintf("%s is %s (%s)\n", host, n.Status, n.Group)
		}

		return all, text + w.tryCtl("policy", "show", "site").String()
	})
}

// awaitReplacement waits until the decision on the new host is carried out, and requires its
// evidence on the lost one.
func (w *world) awaitReplacement(host, lost string) {
	w.t.Helper()
	await(w.t, time.Minute, host+" replaces "+lost, func() (bool, string) {
		shown := decode[api.Policy](w, w.ctl("policy", "show", "site", "-o", "json"))

		for _, d := range shown.Decisions {
			if d.Node != w.name(host) || d.Phase != "done" {
				continue
			}

			evidence := strings.Join(d.Evidence, "\n")

			return d.Replaces == w.name(lost) && strings.Contains(evidence, "ssh did not reach it") &&
				strings.Contains(evidence, "the majority is 2"), fmt.Sprintf("%+v", d)
		}

		return false, fmt.Sprintf("%+v", shown.Decisions)
	})
}
