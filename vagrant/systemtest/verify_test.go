// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestVerify: verify.yml of the bundled playbooks finds each defect that it looks for. A node without one is clean; a
// file changed by hand, a stopped service and a lost program are drift with their differences, which an apply mends.
func TestVerify(t *testing.T) {
	w := newWorld(t, setup{hosts: 3})
	w.commission(master, "host2")
	w.commission(worker, "host3")
	w.wantChecks()

	both := []string{w.name("host2"), w.name("host3")}
	before := w.node("host2")

	// Check mode judges every task of the bundled playbooks on a node that is clean again.
	j := w.do(append([]string{"nodes", "verify", "--strict"}, both...)...)
	if j.Message != "2 nodes verified clean" || len(j.Runs) != 2 {
		t.Errorf("%q, %d runs, note %q", j.Message, len(j.Runs), j.Note)
	}

	w.wantVerdict("host2", inventory.Clean)
	w.wantVerdict("host3", inventory.Clean)

	if n := w.node("host2"); n.Applied != before.Applied || n.Status != before.Status || n.Group != before.Group {
		t.Errorf("the verification left %+v, before %+v", n, before)
	}

	type damage struct {
		name, host, do string
		words          []string // in the answer of nodes diff
		still          string   // holds as long as nothing mends the host
	}

	file := damage{
		"a file changed by hand", "host3", "echo GATEWAY_RETRY_DELAY=99s >> /etc/clusterm/etcd-gateway.env",
		[]string{"Configure the service", "-GATEWAY_RETRY_DELAY=99s", "roles/etcd/tasks/configure.yml:"},
		"grep -q 99s /etc/clusterm/etcd-gateway.env",
	}
	service := damage{
		"a stopped service", "host2", "systemctl stop clusterm-etcd.service",
		[]string{"Run the member", "clusterm-etcd.service is inactive"},
		"! systemctl is-active --quiet clusterm-etcd.service",
	}
	program := damage{
		"a lost program of a package", "host3", "rm /usr/bin/etcdctl",
		[]string{"Install the packages again if a program is missing"}, "! test -e /usr/bin/etcdctl",
	}
	removed := damage{
		"a removed package", "host3", "dpkg --remove --force-depends etcd-client",
		[]string{"Install the packages (", "roles/etcd/tasks/install.yml:"}, "! test -e /usr/bin/etcdctl",
	}
	second := damage{
		"the second service of a node", "host3", "systemctl stop clusterm-dns.service",
		[]string{"Run the resolver", "clusterm-dns.service does not run"},
		"systemctl is-active -q clusterm-etcd-gateway.service; ! systemctl is-active -q clusterm-dns.service",
	}

	// A job with the bundled playbooks takes half a minute, so a verification finds all damages of a round.
	for _, round := range [][]damage{{file, service, program}, {removed, second}} {
		var names []string // of the damaged nodes

		for _, d := range round {
			w.sh(d.host, d.do)
			names = append(names, w.name(d.host))
		}

		slices.Sort(names)
		names = slices.Compact(names)

		j, stderr := w.doFails(append([]string{"nodes", "verify"}, both...)...)
		for _, name := range names {
			if j.Cause != api.CauseDrifted || !strings.Contains(j.Message, name) ||
				!strings.Contains(stderr, "nodes diff "+name) {
				t.Errorf("%s: %s (%s), %q", round[0].name, j.Message, j.Cause, stderr)
			}
		}

		for _, d := range round {
			w.wantVerdict(d.host, inventory.Drifted)
			w.sh(d.host, d.still)

			text := w.ctl("nodes", "diff", w.name(d.host)).stdout
			for _, word := range d.words {
				if !strings.Contains(text, word) {
					t.Errorf("%s: %q is not in\n%s", d.name, word, text)
				}
			}

			// A task that check mode cannot carry out hides the ones behind it.
			if strings.Contains(text, "undefined variable") {
				t.Errorf("%s: a task broke off in\n%s", d.name, text)
			}
		}

		w.do(append([]string{"nodes", "apply"}, names...)...)

		for _, d := range round {
			w.sh(d.host, "! ( "+d.still+" )")

			if n := w.node(d.host); n.Verification != nil {
				t.Errorf("%s: after apply the verdict is %+v", d.name, n.Verification)
			}
		}
	}

	if j := w.do(append([]string{"nodes", "verify"}, both...)...); j.Status != api.Complete {
		t.Errorf("after the repairs %s: %s", j.Status, j.Message)
	}

	var e api.NodeExplanation
	if err := json.Unmarshal([]byte(w.ctl("nodes", "explain", w.name("host2"), "-o", "json").stdout), &e); err != nil ||
		!strings.HasPrefix(e.Summary, "it is in service; up to date; verified clean ") {
		t.Errorf("%q, %v", e.Summary, err)
	}
}

// wantChecks makes each defect that verify.yml of the bundled playbooks looks for, expects its name among the
// differences, and repairs it.
func (w *world) wantChecks() {
	t := w.t
	t.Helper()

	const (
		member  = "clusterm-etcd"
		gateway = "clusterm-etcd-gateway"
	)

	type defect struct{ host, damage, reason, repair string }

	// Each round is one verification.
	for _, round := range [][]defect{
		{
			{"host2", "echo x >>/etc/clusterm/node.json",
				"/etc/clusterm/node.json is missing, or is not as",
				"sed -i '$d' /etc/clusterm/node.json"},
			{"host2", "cp /etc/hosts /root/; echo '10.77.0.9 x' | sed -i '/BEGIN clusterm/r /dev/stdin' /etc/hosts",
				"The lines of clusterm in /etc/hosts are", "cat /root/hosts >/etc/hosts"},
			{"host2", "systemctl disable -q clusterm-agent",
				"clusterm-agent.service does not run, or will not after a reboot",
				"systemctl enable -q clusterm-agent"},
			{"host2", "systemctl disable -q " + member, member + ".service is not enabled",
				"systemctl enable -q " + member},
			{"host3", "mv /etc/update-motd.d/80-clusterm /root/", "/etc/update-motd.d/80-clusterm is missing",
				"mv /root/80-clusterm /etc/update-motd.d/"},
			{"host3", "sysctl -q -w net.ipv4.tcp_keepalive_time=601", "net.ipv4.tcp_keepalive_time is 601",
				"sysctl -q -w net.ipv4.tcp_keepalive_time=600"},
			{"host3", "systemctl stop " + gateway, gateway + ".service is inactive", "systemctl start " + gateway},
		}, {
			{"host2", "sed -i s/ETCD_HEARTBEAT_INTERVAL=100/ETCD_HEARTBEAT_INTERVAL=101/ /etc/clusterm/etcd.env",
				"/etc/clusterm/etcd.env is missing, or is not as",
				"sed -i s/ETCD_HEARTBEAT_INTERVAL=101/ETCD_HEARTBEAT_INTERVAL=100/ /etc/clusterm/etcd.env"},
			// The resolver keeps what it has read, other than its file.
			{"host2", "cd /etc/clusterm-dns; cp -p hosts /root/dns; " +
				"echo 10.77.0.9 service-master.cluster.internal >>hosts; " +
				"systemctl restart clusterm-dns; timeout 20 sh -c 'until journalctl -u clusterm-dns -o cat -n 1 | " +
				"grep -q read; do sleep 0.1; done'; cp -p /root/dns hosts",
				"has 10.77.0.12, 10.77.0.9 for service-master.cluster.internal", "systemctl restart clusterm-dns"},
			{"host3", "echo '# x' >>/etc/sysctl.d/60-clusterm.conf",
				"/etc/sysctl.d/60-clusterm.conf is missing, or is not as",
				"sed -i '$d' /etc/sysctl.d/60-clusterm.conf"},
			// The service keeps other settings than the file has.
			{"host3", "cd /etc/clusterm; cp -p etcd-gateway.env /root/; " +
				"sed -i s/DELAY=.*/DELAY=9s/ etcd-gateway.env; systemctl restart " + gateway +
				"; cp -p /root/etcd-gateway.env .",
				gateway + ".service runs without the current GATEWAY_RETRY_DELAY", "systemctl restart " + gateway},
			{"host3", "systemctl stop clusterm-dns", "clusterm-dns.service does not run",
				"systemctl start clusterm-dns"},
		}, {
			{"host2", "systemd-run -q --unit=" + gateway + " sleep 1000",
				gateway + ".service is active, but a " + master, "systemctl stop " + gateway},
			{"host2", "iptables -A INPUT -p tcp --dport 2380 -j REJECT",
				"does not accept connections on " + addr("host2") + ", port 2380",
				"iptables -D INPUT -p tcp --dport 2380 -j REJECT"},
			{"host3", "echo '# x' >>/etc/systemd/system/" + gateway + ".service",
				gateway + ".service is missing, or is not as",
				"sed -i '$d' /etc/systemd/system/" + gateway + ".service; systemctl daemon-reload"},
			{"host3", "iptables -A OUTPUT -p tcp -d " + addr("host2") + " --dport 2379 -j REJECT",
				"the etcd cluster does not answer through it",
				"iptables -D OUTPUT -p tcp -d " + addr("host2") + " --dport 2379 -j REJECT"},
		},
	} {
		for _, d := range round {
			w.sh(d.host, d.damage)
		}

		w.doFails("nodes", "verify", w.name("host2"), w.name("host3"))

		for _, d := range round {
			w.wantVerdict(d.host, inventory.Drifted)

			if text := w.ctl("nodes", "diff", w.name(d.host)).stdout; !strings.Contains(text, d.reason) {
				t.Errorf("%s, %s: %q is not in\n%s", d.host, d.damage, d.reason, text)
			}

			w.sh(d.host, d.repair)
		}
	}
}

func (w *world) wantVerdict(host string, want inventory.VerdictResult) {
	w.t.Helper()

	if v := w.node(host).Verification; v == nil || v.Result != want {
		w.t.Errorf("the verdict on %s is %+v, want %s", host, v, want)
	}
}
