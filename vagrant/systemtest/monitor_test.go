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

// TestExternalMonitor: one manager uses Debian's serf on its host as its monitor, and
// another, outside the gossip, receives reports of `clusterm monitor` through an ssh
// tunnel.
func TestExternalMonitor(t *testing.T) {
	w := newWorld(t, setup{hosts: 3, noManager: true, serf: "host1"})
	const key = "qVZXdEFpQ2hBcmFjdGVyc0FyZTMyQnl0ZXNMb25nISE="
	w.configureSerfKey("host1", key)

	for _, h := range []string{"host1", "host3"} {
		for _, program := range []string{"clusterm", "clusterctl"} {
			w.labDo("cp", filepath.Join(suite.bin, program), h+":/usr/local/bin/"+program)
		}

		w.labDo("cp", repoFile("cmd/clusterm/clusterm.service"), h+":/etc/systemd/system/clusterm.service")
	}

	w.labDo("cp", w.keyFile(), "host1:/root/.ssh/id_ed25519")
	w.write("host1", configFile, "gossip: {rpc: \"127.0.0.1:7373\"}\n")
	w.sh("host1", "systemctl enable --quiet --now clusterm")
	w.awaitHealthy()
	w.setName("host1", 8)
	w.setName("host2", 12)
	w.awaitState(inventory.Discovered, "host1")

	// discover needs the key of that agent's gossip.
	w.wantRefused(5, []string{"gossip.key_file"}, "discover", addr("host2"))
	w.write("host1", "/etc/clusterm/gossip.key", key+"\n")
	w.write("host1", configFile, "gossip: {rpc: \"127.0.0.1:7373\", key_file: /etc/clusterm/gossip.key}\n")
	w.sh("host1", "systemctl restart clusterm")
	w.awaitHealthy()
	w.do("discover", addr("host2"))
	w.awaitState(inventory.Discovered, "host1", "host2")
	w.wantRefused(5, []string{"own host"}, "nodes", "forget", w.name("host1"), "--force")

	// A restart of serf is visible in health, and is no event of a node.
	before := w.node("host2").Entries
	w.sh("host1", "systemctl stop serf")
	await(t, time.Minute, "health reports the lost connection", func() (bool, string) {
		r := w.tryCtl("status")
		return r.code == 1 && strings.Contains(r.stdout, "is not connected since"), r.String()
	})
	w.sh("host1", "systemctl start serf")
	w.awaitHealthy()
	w.awaitState(inventory.Discovered, "host1", "host2")

	if n := w.node("host2"); n.Entries != before {
		t.Errorf("a restart of serf added to the history: %+v", n)
	}

	// The manager on host3 is outside the gossip. The monitor is on host1.
	w.write("host3", configFile, "gossip: off\nplain_http: 127.0.0.1:9007\nplain_http_role: monitor\n")
	w.sh("host3", "systemctl enable --quiet --now clusterm")
	w.labDo("cp", repoFile("cmd/clusterm/clusterm-monitor.service"), "host1:/etc/systemd/system/")
	w.write("host1", "/etc/clusterm/monitor.yaml",
		"report_to: [\"http://127.0.0.1:9107\"]\ngossip: {rpc: \"127.0.0.1:7373\"}\n")
	w.sh("host1", "clusterm monitor --check && systemctl enable --quiet --now clusterm-monitor")
	w.sh("host1", "systemd-run --quiet --unit tunnel -p Restart=always -p RestartSec=1 ssh -N "+
		"-o StrictHostKeyChecking=no -o ExitOnForwardFailure=yes -L 127.0.0.1:9107:127.0.0.1:9007 root@"+addr("host3"))

	wantStates := func(what string, want map[string]inventory.State) {
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
	wantStates("the monitor reports",
		map[string]inventory.State{"host1": inventory.Discovered, "host2": inventory.Discovered})

	// The manager misses a change, and receives it after its start.
	w.sh("host3", "systemctl stop clusterm")
	w.sh("host2", "systemctl stop clusterm-agent")
	w.awaitState(inventory.Disappeared, "host2")
	w.sh("host3", "systemctl start clusterm")
	wantStates("the manager has the missed change",
		map[string]inventory.State{"host1": inventory.Discovered, "host2": inventory.Disappeared})

	// The monitor misses a change, and reports it after its start.
	w.sh("host1", "systemctl stop clusterm-monitor")
	w.sh("host2", "systemctl start clusterm-agent")
	w.awaitState(inventory.Discovered, "host2")
	w.sh("host1", "systemctl start clusterm-monitor")
	wantStates("the monitor reports the missed change", map[string]inventory.State{"host2": inventory.Discovered})
}
