// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestRotateGossipKey: the key is replaced while a node is absent, another is dead, and
// the manager is killed. The old one is accepted until both have the new one.
func TestRotateGossipKey(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, hosts: 4})
	dead, absent := "host3", "host4"

	// The keys go to verified hosts only.
	w.ctl("nodes", "trust", "--yes", w.name(dead), w.name(absent))
	w.sh(dead, "systemctl stop clusterm-agent ssh.socket ssh 2>/dev/null || systemctl stop clusterm-agent ssh")
	w.sh(absent, "systemctl stop clusterm-agent")
	w.awaitState(inventory.Disappeared, dead, absent)

	old := w.gossipKey()
	w.wantRefused(1, []string{"waits for 1 member"}, "key", "rotate", "gossip", "--wait", "20s")

	status := func() api.GossipKey { return decode[api.GossipKey](w, w.ctl("key", "status", "gossip", "-o", "json")) }

	waits := status()
	if waits.Phase != "remove" || len(waits.Laggards) != 1 || waits.Laggards[0].Name != w.name(dead) {
		t.Fatalf("the rotation waits: %+v", waits)
	}

	keys := func(host, file string) []string {
		return strings.FieldsFunc(
			w.sh(host, "cat "+file).stdout,
			func(r rune) bool { return strings.ContainsRune("[]\", \n", r) },
		)
	}

	const agentRing = "/var/lib/clusterm-agent/keyring.json"

	ring := keys("host2", agentRing)
	if len(ring) != 2 || ring[0] == old || ring[1] != old {
		t.Errorf("while it waits, host2 has the keys %v", ring)
	}

	// It got the keys before the new one was in use.
	if given := keys(absent, "/etc/clusterm/gossip.key"); !slices.Equal(given, []string{old, ring[0]}) {
		t.Errorf("the absent node was given %v over ssh, want %s and %s", given, old, ring[0])
	}

	// The manager goes on where it was killed, and forcing without the name does nothing.
	w.sh("host1", "systemctl kill --signal=KILL clusterm")
	w.awaitHealthy()

	if again := status(); again.Phase != "remove" || again.Key != waits.Key {
		t.Errorf("after a kill: %+v", again)
	}

	w.awaitState(inventory.Discovered, "host2")
	w.sh(absent, "systemctl start clusterm-agent")
	w.awaitState(inventory.Discovered, absent)

	w.sh(dead, "systemctl start ssh clusterm-agent")
	await(t, 2*time.Minute, "the rotation is done", func() (bool, string) {
		now := status()
		return now.Phase == "done", fmt.Sprintf("%s: %v", now.Phase, now.Laggards)
	})
	w.awaitState(inventory.Discovered, "host2", dead, absent)

	// Nobody accepts the old key, and a restart of every part keeps the new one.
	for _, host := range []string{"host2", dead, absent} {
		if got := keys(host, agentRing); !slices.Equal(got, ring[:1]) {
			t.Errorf("%s has the keys %v, want %v", host, got, ring[:1])
		}

		w.sh(host, "systemctl restart clusterm-agent")
	}

	w.sh("host1", "systemctl restart clusterm")
	w.awaitHealthy()
	w.awaitState(inventory.Discovered, "host2", dead, absent)

	if now := w.gossipKey(); now != ring[0] {
		t.Errorf("the manager starts with another key")
	}

	for _, secret := range []string{old, ring[0]} {
		if out := w.sh(
			"host1",
			"journalctl -u clusterm --no-pager | grep -cF "+secret+" || true",
		).stdout; strings.TrimSpace(out) != "0" {
			t.Errorf("a key is in the log: %s", out)
		}
	}
}
