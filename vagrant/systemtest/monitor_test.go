// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestOutsideTheGossip: a manager whose nodes Debian's serf on its host sees, and
// one on another host that a monitor reports to through an ssh tunnel.
func TestOutsideTheGossip(t *testing.T) {
	w := newWorld(t, setup{hosts: 3, empty: true, serf: "host1"})
	const key = "qVZXdEFpQ2hBcmFjdGVyc0FyZTMyQnl0ZXNMb25nISE="
	w.giveSerfKey("host1", key)

	for _, h := range []string{"host1", "host3"} {
		for _, program := range []string{"clusterm", "clusterctl"} {
			w.lab("cp", filepath.Join(suite.bin, program), h+":/usr/local/bin/"+program)
		}

		w.lab("cp", repoFile("cmd/clusterm/clusterm.service"), h+":/etc/systemd/system/clusterm.service")
	}

	w.lab("cp", strings.TrimSpace(w.lab("key").stdout), "host1:/root/.ssh/id_ed25519")
	w.write("host1", configFile, "gossip: {rpc: \"127.0.0.1:7373\"}\n")
	w.sh("host1", "systemctl enable --quiet --now clusterm")
	w.awaitServing()
	w.names["host1"] = "host1-" + w.sh("host1", "cat /etc/machine-id").stdout[:8]
	w.names["host2"] = "host2-" + w.sh("host2", "cat /etc/machine-id").stdout[:12]
	w.awaitState(inventory.Discovered, "host1")

	// Hosts are prepared for the gossip of that agent, once its key is known.
	w.refused(5, []string{"gossip.key_file"}, "discover", addr("host2"))
	w.write("host1", "/etc/clusterm/gossip.key", key+"\n")
	w.write("host1", configFile, "gossip: {rpc: \"127.0.0.1:7373\", key_file: /etc/clusterm/gossip.key}\n")
	w.sh("host1", "systemctl restart clusterm")
	w.awaitServing()
	w.do("discover", addr("host2"))
	w.awaitState(inventory.Discovered, "host1", "host2")
	w.refused(5, []string{"own host"}, "nodes", "forget", w.name("host1"), "--force")

	// Its restart is noticed and is no event.
	before := w.node("host2").Entries
	w.sh("host1", "systemctl stop serf")
	await(t, time.Minute, "health says so", func() (bool, string) {
		r := w.tryCtl("health")
		return r.code == 1 && strings.Contains(r.stdout, "is not connected since"), r.String()
	})
	w.sh("host1", "systemctl start serf")
	w.awaitServing()
	w.awaitState(inventory.Discovered, "host1", "host2")

	if n := w.node("host2"); n.Entries != before {
		t.Errorf("a restart of serf was an event: %+v", n)
	}

	// The manager on host3 is in no gossip. The monitor is on host1.
	w.write("host3", configFile, "gossip: off\nplain_http: 127.0.0.1:9007\n")
	w.sh("host3", "systemctl enable --quiet --now clusterm")
	w.lab("cp", repoFile("cmd/clusterm/clusterm-monitor.service"), "host1:/etc/systemd/system/clusterm-monitor.service")
	w.write(
		"host1",
		"/etc/clusterm/monitor.yaml",
		"report_to: [\"http://127.0.0.1:9107\"]\ngossip: {rpc: \"127.0.0.1:7373\"}\n",
	)
	w.sh("host1", "clusterm monitor --check && systemctl enable --quiet --now clusterm-monitor")
	tunnel := fmt.Sprintf("systemd-run --quiet --unit tunnel -p Restart=always -p RestartSec=1 "+
		"ssh -N -o StrictHostKeyChecking=no -o ExitOnForwardFailure=yes -L 127.0.0.1:9107:127.0.0.1:9007 root@%s", addr("host3"))
	w.sh("host1", tunnel)
	sees := func(what string, want map[string]inventory.State) {
		t.Helper()
		await(t, 90*time.Second, what, func() (bool, string) {
			r := w.try("host3", "clusterctl nodes get -o json")

			var list api.List[api.Node]
			if err := json.Unmarshal([]byte(r.stdout), &list); err != nil {
				return false, r.String()
			}

			got := map[string]inventory.State{}
			for _, n := range list.Items {
				got[n.Name] = n.State
			}

			for host, state := range want {
				if got[w.name(host)] != state {
					return false, fmt.Sprint(got)
				}
			}

			return true, ""
		})
	}
	sees(
		"the monitor reports",
		map[string]inventory.State{"host1": inventory.Discovered, "host2": inventory.Discovered},
	)
	w.sh("host3", "systemctl stop clusterm")
	w.sh("host2", "systemctl stop clusterm-agent")
	w.awaitState(inventory.Disappeared, "host2")
	w.sh("host3", "systemctl start clusterm")
	sees("what it missed", map[string]inventory.State{"host1": inventory.Discovered, "host2": inventory.Disappeared})
	w.sh("host1", "systemctl stop clusterm-monitor")
	w.sh("host2", "systemctl start clusterm-agent")
	w.awaitState(inventory.Discovered, "host2")
	w.sh("host1", "systemctl start clusterm-monitor")
	sees("what happened while the monitor was away", map[string]inventory.State{"host2": inventory.Discovered})
}
