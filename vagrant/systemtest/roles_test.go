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
