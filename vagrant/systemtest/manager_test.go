// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
)

// TestManagerRole makes two nodes instances of the manager by a commission with manager=true, and ends one of them by a
// decommission.
func TestManagerRole(t *testing.T) {
	w := newWorld(t, setup{hosts: 3, config: "listen: 10.77.0.11:9443\n"})
	others := []string{"host2", "host3"}

	w.do(append([]string{"nodes", "commission", "-g", master, "-e", "manager=true"}, w.nodeNames(others...)...)...)
	w.awaitVoters(3)
	w.awaitState(inventory.Discovered, w.hosts...)

	for _, host := range others {
		if r := w.try(host, "systemctl is-active clusterm-agent"); r.code == 0 {
			t.Errorf("%s has an agent beside its instance", host)
		}
		if got := w.sh(host, "grep ^listen "+configFile).stdout; !strings.Contains(got, `"`+addr(host)+`:9443"`) {
			t.Errorf("%s has %s", host, got)
		}
	}

	// A repetition changes nothing, and a job runs on any of the three.
	before := w.sh("host2", "cat "+dataDir+"/instance.id").stdout
	w.do("nodes", "apply", "-e", "manager=true", w.name("host2"), w.name("host3"))

	if after := w.sh("host2", "cat "+dataDir+"/instance.id").stdout; after != before {
		t.Errorf("the instance is %s, and was %s", after, before)
	}

	w.at("host2").do("nodes", "decommission", w.name("host3"))

	if all := w.instances(); len(all) != 2 || all["host3"].ID != "" {
		t.Errorf("the instances: %+v", all)
	}
	if r := w.try("host3", "ls "+dataDir+"/etcd "+configFile); r.code == 0 {
		t.Errorf("left on host3: %s", r.stdout)
	}

	await(t, time.Minute, "host3 has an agent again", func() (bool, string) {
		n := w.node("host3")
		return n.State == inventory.Discovered && n.Status == inventory.Decommissioned, string(n.State)
	})
	w.sh("host3", "systemctl is-active clusterm-agent")
}
