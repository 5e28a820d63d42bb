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

// The main job, from hosts that have nothing to a cluster that serves, and back.
func TestMainJob(t *testing.T) {
	w := newWorld(t, setup{bare: true, serf: "host4"})

	j := w.do("discover", addr("host2"), addr("host3"))
	if len(j.Addrs) != 2 || j.Status != "Complete" {
		t.Errorf("the discover is %+v", j)
	}

	w.giveSerfKey("host4", w.gossipKey())
	w.awaitState(inventory.Discovered, "host1", "host2", "host3", "host4")

	for _, h := range w.hosts {
		w.is(h, inventory.Unallocated, "")
	}

	if n := w.node("host2"); len(n.HostKeys) == 0 {
		t.Error("the ssh host key that discover met was not recorded")
	}

	w.ctl("global", "set", "-e", `{"etcd_heartbeat_interval": 150}`)
	before := map[string][]string{"host2": w.files("host2"), "host4": w.files("host4")}

	w.commission(master, "host2")
	w.commission(worker, "host3", "host4")
	w.is("host2", inventory.Allocated, master)
	w.is("host3", inventory.Allocated, worker)
	w.is("host4", inventory.Allocated, worker)

	if env := w.sh(
		"host2",
		"cat /etc/clusterm/etcd.env",
	).stdout; !strings.Contains(
		env,
		"ETCD_HEARTBEAT_INTERVAL=150",
	) {
		t.Errorf("the global variable did not reach the host: %s", env)
	}

	w.put("host2", "greeting", "hello")
	w.gets("host3", "greeting", "hello")
	w.gets("host4", "greeting", "hello")

	t.Run("a second run changes nothing", func(t *testing.T) {
		recap := w.runAgain(
			t,
			map[string]string{"host2": master, "host3": worker, "host4": worker},
			"etcd_heartbeat_interval: 150",
		)

		hosts := regexp.MustCompile(`(?m)^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)`).
			FindAllStringSubmatch(recap, -1)
		if len(hosts) != 3 {
			t.Errorf("the recap is of %d hosts: %s", len(hosts), recap)
		}

		for _, m := range hosts {
			if m[2] != "0" || m[3] != "0" || m[4] != "0" {
				t.Errorf("%s", m[0])
			}
		}
	})

	w.do("nodes", "maintenance", w.name("host3"))
	w.is("host3", inventory.Allocated, worker)
	w.gets("host3", "greeting", "hello")

	w.do("nodes", "decommission", w.name("host4"))
	w.is("host4", inventory.Decommissioned, "")
	w.leftNothing("host4", before["host4"])
	w.gets("host3", "greeting", "hello")

	w.do("nodes", "decommission", w.name("host3"), w.name("host2"))
	w.leftNothing("host2", before["host2"])
	w.awaitState(inventory.Discovered, w.hosts...)
}

// put writes a key into the cluster's etcd through the member or the gateway
// that runs on a host; gets reads one.
func (w *world) put(host, key, value string) {
	w.t.Helper()
	w.sh(host, fmt.Sprintf("ETCDCTL_API=3 etcdctl --endpoints http://127.0.0.1:2379 put %s %s", key, value))
}

func (w *world) gets(host, key, value string) {
	w.t.Helper()

	out := w.sh(host, "ETCDCTL_API=3 etcdctl --endpoints http://127.0.0.1:2379 get --print-value-only "+key).stdout
	if strings.TrimSpace(out) != value {
		w.t.Errorf("%s reads %q for %s, want %q", host, strings.TrimSpace(out), key, value)
	}
}

// members are the names on the member list of the etcd on a host, sorted.
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

// consists fails the test unless the etcd cluster on a host has exactly these
// members, and is healthy.
func (w *world) consists(host string, of ...string) {
	w.t.Helper()
	want := w.nodeNames(of...)
	slices.Sort(want)

	if got := w.members(host); !slices.Equal(got, want) {
		w.t.Errorf("the members are %v, want %v", got, want)
	}

	w.sh(host, "ETCDCTL_API=3 etcdctl --endpoints http://127.0.0.1:2379 endpoint health")
}

// files lists what is on a host's disk: paths with sizes, for /etc with
// checksums; and its units with their states. Left out is what changes by itself.
func (w *world) files(host string) []string {
	w.t.Helper()
	out := w.sh(
		host,
		`find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/tmp \
		-o -path /var/log -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/lib/systemd \
		-o -path /var/lib/serf -o -path /var/lib/clusterm-agent -o -path /root/.ansible -o -name __pycache__ \) -prune \
		-o -type d -printf '%p/\n' -o -type f -printf '%p %s\n' -o -printf '%p -> %l\n'
		find /etc -type f -exec sha256sum {} +
		systemctl list-unit-files --no-legend --plain | awk '{print "unit", $1, $2}'
		systemctl list-units --all --no-legend --plain --type=service | awk '$1 ~ /etcd|clusterm/ {print "service", $1, $2, $3}'`,
	).stdout
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)

	return lines
}

// leftNothing fails the test where a host's disk and units are not as they were.
func (w *world) leftNothing(host string, before []string) {
	w.t.Helper()

	after := w.files(host)
	for _, line := range after {
		if _, was := slices.BinarySearch(before, line); !was {
			w.t.Errorf("%s: left behind, or changed: %s", host, line)
		}
	}

	for _, line := range before {
		if _, is := slices.BinarySearch(after, line); !is {
			w.t.Errorf("%s: gone, or changed: %s", host, line)
		}
	}
}

// runAgain runs the playbooks that came with the last job once more, by hand,
// over the hosts in their groups, and returns what ansible-playbook printed.
func (w *world) runAgain(t *testing.T, groups map[string]string, vars string) string {
	t.Helper()
	var inv strings.Builder
	members := map[string][]string{}
	inv.WriteString("all:\n  vars:\n    " + vars + "\n  hosts:\n")

	for host, group := range groups {
		fmt.Fprintf(
			&inv,
			"    %s: {ansible_host: %s, node_name: %[1]s, node_addr: %[2]s, node_label: %s, node_serial: %q, node_group: %s, node_commissioned: true}\n",
			w.name(host),
			addr(host),
			host,
			w.serial(host),
			group,
		)
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

	return w.sh(
		"host1",
		"cd "+playbooks+" && ANSIBLE_HOST_KEY_CHECKING=False ANSIBLE_PIPELINING=True ansible-playbook -i /root/again.yml site.yml",
	).stdout
}
