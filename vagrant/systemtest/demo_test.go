// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestMainJobDebian12 and TestMainJobDebian13 take plain hosts to a working cluster and
// back, with the ansible-core, Python, systemd and etcd of that release on the
// manager's host and on the others.
func TestMainJobDebian12(t *testing.T) { testMainJob(t, "bookworm") }

func TestMainJobDebian13(t *testing.T) { testMainJob(t, "trixie") }

func testMainJob(t *testing.T, suite string) {
	t.Helper()

	w := newWorld(t, setup{suite: suite, noAgents: true, serf: "host4"})

	j := w.do("discover", addr("host2"), addr("host3"))
	if len(j.Addrs) != 2 || j.Status != "Complete" {
		t.Errorf("the discover is %+v", j)
	}

	w.configureSerfKey("host4", w.gossipKey())
	w.awaitState(inventory.Discovered, "host1", "host2", "host3", "host4")

	for _, h := range w.hosts {
		w.wantNode(h, inventory.Unallocated, "")
	}

	if n := w.node("host2"); len(n.HostKeys) == 0 {
		t.Error("discover did not record the ssh host key")
	}

	w.ctl("global", "set", "-e", `{"etcd_heartbeat_interval": 150}`)
	before := map[string][]string{"host2": w.files("host2"), "host4": w.files("host4")}

	w.commission(master, "host2")
	w.commission(worker, "host3", "host4")
	w.wantNode("host2", inventory.Allocated, master)
	w.wantNode("host3", inventory.Allocated, worker)
	w.wantNode("host4", inventory.Allocated, worker)

	env := w.sh("host2", "cat /etc/clusterm/etcd.env").stdout
	if !strings.Contains(env, "ETCD_HEARTBEAT_INTERVAL=150") {
		t.Errorf("the global variable did not reach the host: %s", env)
	}

	w.putKey("host2", "greeting", "hello")
	w.wantKey("host3", "greeting", "hello")
	w.wantKey("host4", "greeting", "hello")

	// On the lab's own release, TestVerify expects check mode to find nothing to change.
	if suite == "trixie" {
		w.wantNoChange()
	}

	w.do("nodes", "maintenance", w.name("host3"))
	w.wantNode("host3", inventory.Allocated, worker)
	w.wantKey("host3", "greeting", "hello")

	w.do("nodes", "decommission", w.name("host4"))
	w.wantNode("host4", inventory.Decommissioned, "")
	w.wantFiles("host4", before["host4"])
	w.wantKey("host3", "greeting", "hello")

	w.do("nodes", "decommission", w.name("host3"), w.name("host2"))
	w.wantFiles("host2", before["host2"])
	w.awaitState(inventory.Discovered, w.hosts...)
}

// wantNoChange expects a second run of site.yml to change nothing.
func (w *world) wantNoChange() {
	t := w.t
	t.Helper()

	groups := map[string]string{"host2": master, "host3": worker, "host4": worker}
	out := w.runAgain(groups, "etcd_heartbeat_interval: 150")

	hosts := regexp.MustCompile(`(?m)^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)`).
		FindAllStringSubmatch(out, -1)
	if len(hosts) != 3 {
		t.Errorf("the recap has %d hosts, want 3: %s", len(hosts), out)
	}

	for _, m := range hosts {
		if m[2] != "0" || m[3] != "0" || m[4] != "0" {
			t.Errorf("%s: %q; the whole run:\n%s", m[0], changedTasks(out, m[1]), out)
		}
	}
}

// changedTasks returns the tasks that changed something on a host, from the output of
// ansible-playbook.
func changedTasks(out, host string) []string {
	var task string

	var tasks []string

	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "TASK [") || strings.HasPrefix(line, "RUNNING HANDLER [") {
			task = strings.TrimRight(line, " *\n")
		}

		if strings.HasPrefix(line, "changed: ["+host+"]") {
			tasks = append(tasks, task)
		}
	}

	return tasks
}

// putKey writes a key of the cluster's etcd through the member or the gateway on a
// host.
func (w *world) putKey(host, key, value string) {
	w.t.Helper()
	w.sh(host, fmt.Sprintf("ETCDCTL_API=3 etcdctl --endpoints http://127.0.0.1:2379 put %s %s", key, value))
}

// wantKey requires the value of a key that is read through a host.
func (w *world) wantKey(host, key, value string) {
	w.t.Helper()

	out := w.sh(host, "ETCDCTL_API=3 etcdctl --endpoints http://127.0.0.1:2379 get --print-value-only "+key).stdout
	if strings.TrimSpace(out) != value {
		w.t.Errorf("%s reads %q for %s, want %q", host, strings.TrimSpace(out), key, value)
	}
}

// members returns the sorted member names of the etcd cluster on a host.
func (w *world) members(host string) []string {
	w.t.Helper()
	var names []string

	out := w.sh(host, "ETCDCTL_API=3 etcdctl --endpoints http://127.0.0.1:2379 member list").stdout
	for line := range strings.Lines(out) {
		names = append(names, strings.TrimSpace(strings.Split(line, ",")[2]))
	}

	slices.Sort(names)

	return names
}

// wantMembers requires that the etcd cluster on a host is healthy and has exactly
// these members.
func (w *world) wantMembers(host string, of ...string) {
	w.t.Helper()
	want := w.nodeNames(of...)
	slices.Sort(want)

	if got := w.members(host); !slices.Equal(got, want) {
		w.t.Errorf("the members are %v, want %v", got, want)
	}

	w.sh(host, "ETCDCTL_API=3 etcdctl --endpoints http://127.0.0.1:2379 endpoint health")
}

// files lists a host's files with sizes, those in /etc with checksums, and its
// units with their states. Paths that change by themselves are left out.
func (w *world) files(host string) []string {
	w.t.Helper()
	out := w.sh(
		host,
		`find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/tmp \
		-o -path /var/log -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/lib/systemd \
		-o -path /var/lib/serf -o -path /var/lib/clusterm-agent \
		-o -path /var/lib/.clusterm-fence -o -path /root/.ansible -o -name __pycache__ \) -prune \
		-o -type d -printf '%p/\n' -o -type f -printf '%p %s\n' -o -printf '%p -> %l\n'
		find /etc -type f -exec sha256sum {} +
		systemctl list-unit-files --no-legend --plain | awk '{print "unit", $1, $2}'
		systemctl list-units --all --no-legend --plain --type=service |
			awk '$1 ~ /etcd|clusterm/ {print "service", $1, $2, $3}'`,
	).stdout
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)

	return lines
}

// wantFiles requires that a host has the same files and units as before.
func (w *world) wantFiles(host string, before []string) {
	w.t.Helper()

	after := w.files(host)
	for _, line := range after {
		if _, was := slices.BinarySearch(before, line); !was {
			w.t.Errorf("%s: new or changed: %s", host, line)
		}
	}

	for _, line := range before {
		if _, is := slices.BinarySearch(after, line); !is {
			w.t.Errorf("%s: missing or changed: %s", host, line)
		}
	}
}

// runAgain runs the playbooks of the last job once more, by hand, and returns the
// output of ansible-playbook. groups maps hosts to their groups.
func (w *world) runAgain(groups map[string]string, vars string) string {
	w.t.Helper()

	var inv strings.Builder

	members := map[string][]string{}

	inv.WriteString("all:\n  vars:\n    " + vars + "\n  hosts:\n")

	for host, group := range groups {
		fmt.Fprintf(&inv, "    %s: {ansible_host: %s, node_name: %[1]s, node_addr: %[2]s, node_label: %s,"+
			" node_serial: %q, node_group: %s, node_commissioned: true}\n",
			w.name(host), addr(host), host, w.serial(host), group)

		members[group] = append(members[group], w.name(host))
		members["job_targets"] = append(members["job_targets"], w.name(host))
	}

	inv.WriteString("  children:\n")

	for group, names := range members {
		fmt.Fprintf(&inv, "    %s:\n      hosts:\n", group)

		for _, n := range names {
			fmt.Fprintf(&inv, "        %s:\n", n)
		}
	}

	w.write("host1", "/root/again.yml", inv.String())
	playbooks := dataDir + "/playbooks/" + w.job("last").PlaybookDigest

	return w.sh("host1", "cd "+playbooks+" && ANSIBLE_HOST_KEY_CHECKING=False ANSIBLE_PIPELINING=True "+
		"ANSIBLE_DIFF_ALWAYS=True ansible-playbook -i /root/again.yml site.yml").stdout
}
