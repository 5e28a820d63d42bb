// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
)

const (
	knownWithin = 5 * time.Second
	// exchange is longer than the time in which each member exchanges states with another.
	exchange = 35 * time.Second
)

// crashTwice kills the manager two times, five seconds apart: it forgets who has left.
func (w *world) crashTwice() {
	w.t.Helper()
	w.sh("host1", killDaemon+"; sleep 5; "+killDaemon)
	w.awaitHealthy()
}

// wantKnown requires that the manager and the agents of the other hosts know all
// hosts of the world within a time after began.
func (w *world) wantKnown(began time.Time) {
	w.t.Helper()

	w.awaitState(inventory.Discovered, w.hosts...)

	for _, h := range w.hosts[1:] {
		await(w.t, time.Minute, h+" knows all other hosts", func() (bool, string) {
			var kept struct {
				Peers []string `json:"peers"`
			}
			r := w.try(h, "cat /var/lib/clusterm-agent/gossip.json")
			_ = json.Unmarshal([]byte(r.stdout), &kept)

			for _, other := range w.hosts {
				if other != h && !slices.Contains(kept.Peers, addr(other)+":7946") {
					return false, other + " is missing: " + r.stdout
				}
			}

			return true, ""
		})
	}

	if took := time.Since(began); took > knownWithin {
		w.t.Errorf("all hosts knew each other again after %s, want %s", took, knownWithin)
	}
}

// losses counts the disappearances of a host's node.
func (w *world) losses(host string) (n int) {
	w.t.Helper()

	for _, e := range w.history(host) {
		if e.Verb == inventory.VerbDisappeared {
			n++
		}
	}

	return n
}

// wantStays requires that the hosts' nodes stay Discovered through an exchange of
// states among all members, and were lost once more than before.
func (w *world) wantStays(hosts []string, before map[string]int) {
	w.t.Helper()

	began := time.Now()
	await(w.t, 2*exchange, "all members have exchanged states", func() (bool, string) {
		nodes := w.nodes()
		for _, h := range hosts {
			if n := nodes[w.name(h)]; n.State != inventory.Discovered {
				w.t.Fatalf("%s is %s", n.Name, n.State)
			}
		}

		return time.Since(began) > exchange, ""
	})

	for _, h := range hosts {
		if n := w.losses(h) - before[h]; n != 1 {
			w.t.Errorf("%s was lost %d times, want once", h, n)
		}
	}
}

// comeBack stops hosts, crashes the manager while they are away, brings them back, and
// requires that they stay.
func (w *world) comeBack(hosts []string, stop, back func()) {
	w.t.Helper()

	before := map[string]int{}
	for _, h := range hosts {
		before[h] = w.losses(h)
	}

	stop()
	w.awaitState(inventory.Disappeared, hosts...)
	w.crashTwice()

	back()
	w.wantKnown(time.Now())
	w.wantStays(hosts, before)
}

// TestComeBack: a host that returns after its manager has crashed, while others
// remember its end, stays. An agent that was stopped and a rebooted host are the same.
func TestComeBack(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true})

	w.comeBack([]string{"host3"},
		func() { w.sh("host3", "systemctl stop clusterm-agent") },
		func() { w.sh("host3", "systemctl start clusterm-agent") })
	w.comeBack([]string{"host4"}, func() { w.try("host4", "systemctl poweroff") }, func() { w.labDo("boot", "host4") })
}
