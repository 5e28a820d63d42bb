// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"os"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
)

// TestOwnAnsible: a stock Ansible of the operator reaches the nodes by script and by
// plugin, with the recorded host keys, and refuses a host with another key. A killed
// manager is a clear error, and no host is taken for another one.
func TestOwnAnsible(t *testing.T) { testOwnAnsible(t, "") }

// TestOwnAnsibleDebian13 has a newer Ansible, with other rules about templates.
func TestOwnAnsibleDebian13(t *testing.T) { testOwnAnsible(t, "trixie") }

func testOwnAnsible(t *testing.T, suite string) {
	w := newWorld(t, setup{testPlaybooks: true, hosts: 3, suite: suite})
	w.commission(master, "host2")
	w.ctl("vars", "set", "--global", "motd={{ lookup('pipe', 'touch /root/evaluated') }}")

	plugin, err := os.ReadFile(repoFile("ansible/collection/plugins/inventory/nodes.py"))
	errtest.None(t, err)
	w.write("host1", "/root/.ansible/collections/ansible_collections/contiv/clusterm/plugins/inventory/nodes.py",
		string(plugin))
	w.write("host1", "/root/own/clusterm_inventory.yml", "plugin: contiv.clusterm.nodes\n")
	w.sh("host1", "cd /root/own && clusterctl inventory --script >nodes.sh && chmod +x nodes.sh")

	const failing = "cd /root/own && ANSIBLE_INVENTORY_UNPARSED_FAILED=true ANSIBLE_FORCE_VALID_GROUP_NAMES=ignore "

	host2, host3 := w.name("host2"), w.name("host3")

	for _, source := range []string{"./nodes.sh", "clusterm_inventory.yml"} {
		graph := w.sh("host1", failing+"ansible-inventory -i "+source+" --graph "+master).stdout
		if !strings.Contains(graph, host2) || strings.Contains(graph, host3) {
			t.Errorf("%s: the group %s is\n%s", source, master, graph)
		}

		// host3 has no recorded key: the first contact is accepted.
		out := w.sh("host1", failing+"ansible -i "+source+" "+host2+":"+host3+" -o -m ping").stdout
		if strings.Count(out, "SUCCESS") != 2 || !strings.Contains(out, "pong") {
			t.Errorf("%s: %s", source, out)
		}
		out = w.sh("host1", failing+"ansible -i "+source+" "+host2+" -m debug -a var=motd").stdout
		if !strings.Contains(out, "{{ lookup") || w.hasFile("host1", "/root/evaluated") {
			t.Errorf("%s: the template was evaluated: %s", source, out)
		}
	}

	known := w.sh("host1", "cat /root/own/.clusterm_known_hosts").stdout
	for _, key := range w.node("host2").HostKeys {
		if !strings.Contains(known, host2+" "+key+"\n") {
			t.Errorf("the file lacks the recorded key %s:\n%s", key, known)
		}
	}

	w.sh("host2", "rm /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key")
	w.sh("host2", "systemctl restart ssh")
	w.sh("host1", "rm -rf /root/.ansible/cp") // the shared connections

	for _, source := range []string{"./nodes.sh", "clusterm_inventory.yml"} {
		r := w.try("host1", failing+"ansible -i "+source+" "+host2+" -m ping")
		if r.code == 0 || !strings.Contains(r.stdout, "Host key verification failed") {
			t.Errorf("%s: another host key: %s", source, r)
		}
	}

	w.wantKilledManager(failing)
	w.sh("host1", failing+"ansible -i ./nodes.sh "+host3+" -m ping")
}

// wantKilledManager kills the manager for good, requires a clear error of both
// inventories, and starts it again.
func (w *world) wantKilledManager(command string) {
	w.t.Helper()

	// Stopped at once after the kill, systemd does not start it again.
	w.sh("host1", killDaemon+"; systemctl stop clusterm")

	for source, reason := range map[string]string{
		"./nodes.sh": "clusterm is not running", "clusterm_inventory.yml": "cannot reach clusterm",
	} {
		r := w.try("host1", command+"ansible-inventory -i "+source+" --list")
		// Ansible folds its warnings.
		text := strings.Join(strings.Fields(r.stderr), " ")
		if r.code == 0 || r.stdout != "" || !strings.Contains(text, reason) || strings.Contains(text, "Traceback") {
			w.t.Errorf("%s without a manager: want %q: %s", source, reason, r)
		}
	}

	w.sh("host1", "systemctl start clusterm")
	w.awaitHealthy()
}
