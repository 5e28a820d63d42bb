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

// TestVerify: a node that the bundled playbooks configured is clean; a file changed by
// hand, a stopped service and a lost program are drift with their differences, which an
// apply mends.
func TestVerify(t *testing.T) {
	w := newWorld(t, setup{hosts: 3})
	w.commission(master, "host2")
	w.commission(worker, "host3")

	both := []string{w.name("host2"), w.name("host3")}
	before := w.node("host2")

	// Check mode judges every task of the bundled playbooks on a clean node.
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
	for _, round := range [][]damage{{file, service}, {program}, {removed, second}} {
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

// TestVerifyChecks: verify.yml of the bundled playbooks finds each defect that it looks
// for, and names it.
func TestVerifyChecks(t *testing.T) {
	w := newWorld(t, setup{hosts: 3})
	w.commission(master, "host2")
	w.commission(worker, "host3")

	const (
		member  = "clusterm-etcd"
		gateway = "clusterm-etcd-gateway"
	)

	type defect struct{ damage, reason, repair string }

	// Each pair is one verification: of the master, and of the worker.
	for _, c := range []struct{ master, worker defect }{
		{
			defect{"sed -i s/" + master + "/other/ /etc/clusterm/node.json",
				"/etc/clusterm/node.json is missing, or is not as",
				"sed -i s/other/" + master + "/ /etc/clusterm/node.json"},
			defect{"mv /etc/update-motd.d/80-clusterm /root/", "/etc/update-motd.d/80-clusterm is missing",
				"mv /root/80-clusterm /etc/update-motd.d/"},
		}, {
			defect{"cp /etc/hosts /root/; echo '10.77.0.9 x' | sed -i '/BEGIN clusterm/r /dev/stdin' /etc/hosts",
				"The lines of clusterm in /etc/hosts are", "cat /root/hosts >/etc/hosts"},
			defect{"sysctl -q -w net.ipv4.tcp_keepalive_time=601", "net.ipv4.tcp_keepalive_time is 601",
				"sysctl -q -w net.ipv4.tcp_keepalive_time=600"},
		}, {
			defect{"systemctl disable -q clusterm-agent",
				"clusterm-agent.service does not run, or will not after a reboot",
				"systemctl enable -q clusterm-agent"},
			defect{"echo '# x' >>/etc/sysctl.d/60-clusterm.conf",
				"/etc/sysctl.d/60-clusterm.conf is missing, or is not as",
				"sed -i '$d' /etc/sysctl.d/60-clusterm.conf"},
		}, {
			defect{"systemctl disable -q " + member,
				member + ".service is not enabled", "systemctl enable -q " + member},
			defect{"systemctl stop " + gateway, gateway + ".service is inactive", "systemctl start " + gateway},
		}, {
			defect{"sed -i s/ETCD_HEARTBEAT_INTERVAL=100/ETCD_HEARTBEAT_INTERVAL=101/ /etc/clusterm/etcd.env",
				"/etc/clusterm/etcd.env is missing, or is not as",
				"sed -i s/ETCD_HEARTBEAT_INTERVAL=101/ETCD_HEARTBEAT_INTERVAL=100/ /etc/clusterm/etcd.env"},
			// The service keeps other settings than the file has.
			defect{"cd /etc/clusterm; cp -p etcd-gateway.env /root/; sed -i s/DELAY=.*/DELAY=9s/ etcd-gateway.env; " +
				"systemctl restart " + gateway + "; cp -p /root/etcd-gateway.env .",
				gateway + ".service runs without the current GATEWAY_RETRY_DELAY", "systemctl restart " + gateway},
		}, {
			defect{"systemd-run -q --unit=" + gateway + " sleep 1000", gateway + ".service is active, but a " + master,
				"systemctl stop " + gateway},
			defect{"echo '# x' >>/etc/systemd/system/" + gateway + ".service",
				gateway + ".service is missing, or is not as",
				"sed -i '$d' /etc/systemd/system/" + gateway + ".service; systemctl daemon-reload"},
		}, {
			defect{"iptables -A INPUT -p tcp --dport 2380 -j REJECT",
				"does not accept connections on " + addr("host2") + ", port 2380",
				"iptables -D INPUT -p tcp --dport 2380 -j REJECT"},
			defect{"iptables -A OUTPUT -p tcp -d " + addr("host2") + " --dport 2379 -j REJECT",
				"the etcd cluster does not answer through it",
				"iptables -D OUTPUT -p tcp -d " + addr("host2") + " --dport 2379 -j REJECT"},
		}, {
			// The resolver keeps what it has read, other than its file.
			defect{"cd /etc/clusterm-dns; cp -p hosts /root/; " +
				"echo 10.77.0.9 service-master.cluster.internal >>hosts; " +
				"systemctl restart clusterm-dns; timeout 20 sh -c 'until journalctl -u clusterm-dns -o cat -n 1 | " +
				"grep -q read; do sleep 0.1; done'; cp -p /root/hosts .",
				"has 10.77.0.12, 10.77.0.9 for service-master.cluster.internal", "systemctl restart clusterm-dns"},
			defect{"systemctl stop clusterm-dns", "clusterm-dns.service does not run", "systemctl start clusterm-dns"},
		},
	} {
		w.sh("host2", c.master.damage)
		w.sh("host3", c.worker.damage)
		w.doFails("nodes", "verify", w.name("host2"), w.name("host3"))

		for host, d := range map[string]defect{"host2": c.master, "host3": c.worker} {
			v := w.node(host).Verification
			if v == nil || v.Result != inventory.Drifted || !strings.Contains(v.Reason, "verify.yml: task ") ||
				!strings.Contains(v.Reason, d.reason) {
				t.Errorf("%s, %s: %+v", host, d.damage, v)
			}

			w.sh(host, d.repair)
		}
	}

	w.do("nodes", "verify", "--strict", w.name("host2"), w.name("host3"))
}

// verifiedPlaybooks configure a node with a package of their own, a file and a service.
// The task with check_mode: false waits on a node for /run/go while /run/hold exists.
var verifiedPlaybooks = map[string]string{
	"site.yml": `
- name: Nodes get a package
  hosts: service-master:service-worker:&job_targets
  gather_facts: false
  tasks:
    - name: Count the runs
      ansible.builtin.command:
        cmd: touch /run/counted
        creates: /run/counted
      check_mode: false
    - name: Wait to be released
      ansible.builtin.shell: test ! -e /run/hold || { touch /run/held; while test ! -e /run/go; do sleep 0.1; done; }
      check_mode: false
      changed_when: false
    - name: Install the package
      ansible.builtin.apt:
        deb: /root/stub.deb
    - name: Write the file
      ansible.builtin.copy:
        dest: /etc/stub.conf
        content: "port: 1\npassword: {{ stub_password }}\n"
        mode: "0600"
    - name: Run the service
      ansible.builtin.systemd:
        name: stub.service
        state: started
        enabled: true
`,
	"cleanup.yml": `
- name: Nodes are cleaned
  hosts: service-master:service-worker:&job_targets
  gather_facts: false
  tasks:
    - name: Remove the file
      ansible.builtin.file:
        path: /etc/stub.conf
        state: absent
`,
	"verify.yml": `
- name: Nodes run the service
  hosts: service-master:service-worker:&job_targets
  gather_facts: false
  tasks:
    - name: The service runs
      ansible.builtin.command: systemctl is-active stub.service
      changed_when: false
`,
}

// installStub gives the manager verifiedPlaybooks, and the host the package that they
// install.
func (w *world) installStub(host string) {
	w.t.Helper()

	for name, text := range verifiedPlaybooks {
		w.write("host1", testPlaybooks+"/"+name, text)
	}

	w.write(host, "/root/stub/DEBIAN/control",
		"Package: stub\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: a stub\n")
	w.write(host, "/root/stub/usr/lib/systemd/system/stub.service",
		"[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n")
	w.sh(host, "chmod -R a+rX /root/stub && dpkg-deb --build --root-owner-group /root/stub /root/stub.deb")
}

// TestVerifyDrift: a difference on a host with playbooks of its own is reported as drift
// with its difference, without a secret, and mended by an apply; a task that runs in spite
// of check mode is named before the run.
func TestVerifyDrift(t *testing.T) {
	w := newWorld(t, setup{hosts: 2, config: "playbooks: " + testPlaybooks})
	w.installStub("host2")
	w.ctl("vars", "set", "--global", "--secret", "stub_password=hunter2")
	w.commission(master, "host2")

	w.sh("host2", "touch /run/hold; rm -f /run/held /run/counted")

	id := w.submit("nodes", "verify", w.name("host2"))
	if warnings := strings.Join(w.job(id).Warnings, "\n"); !strings.Contains(warnings,
		"executed in spite of check mode, because of check_mode: false: Count the runs (site.yml:") ||
		strings.Contains(warnings, "cannot be known") {
		t.Errorf("the warnings are %q", warnings)
	}

	if note := w.job(id).Note; !strings.Contains(note, "Wait to be released (site.yml:") {
		t.Errorf("the note is %q", note)
	}

	w.release("go", "host2")

	// The task has changed the node, so nothing is claimed about it.
	if j := w.awaitJob(id); j.Status != api.Errored || !strings.Contains(j.Message, "1 task executed for real") {
		t.Errorf("%s: %s", j.Status, j.Message)
	}

	w.wantVerdict("host2", inventory.Unverified)

	if n := w.node("host2"); n.Applied != "" || n.Status != inventory.Allocated || n.Group != master {
		t.Errorf("after a task was executed: %+v", n)
	}

	if text := w.ctl("nodes", "explain", w.name("host2")).stdout; !strings.Contains(text, "in spite of check mode") {
		t.Errorf("the explanation is\n%s", text)
	}

	w.do("nodes", "apply", w.name("host2"))
	w.do("nodes", "verify", w.name("host2"))

	for _, c := range []struct{ name, damage, still, words string }{
		{"a changed file", "sed -i s/1/2/ /etc/stub.conf", "grep -q 2 /etc/stub.conf",
			"would change: Write the file (site.yml:|-port: 2|+port: 1"},
		{"a changed secret", "sed -i s/hunter2/swordfish/ /etc/stub.conf", "grep -q swordfish /etc/stub.conf",
			"would change: Write the file (site.yml:|(hidden)"},
		{"a removed package", "dpkg --remove stub", "! dpkg -s stub 2>&1 | grep -q 'install ok'",
			"would change: Install the package (site.yml:"},
		{"a stopped service", "systemctl stop stub", "! systemctl is-active -q stub",
			"would change: Run the service (site.yml:|failed: The service runs"},
	} {
		w.sh("host2", c.damage)

		if j, _ := w.doFails("nodes", "verify", w.name("host2")); j.Cause != api.CauseDrifted {
			t.Errorf("%s: %s (%s)", c.name, j.Message, j.Cause)
		}

		w.sh("host2", c.still)
		w.wantVerdict("host2", inventory.Drifted)

		text := w.ctl("nodes", "diff", w.name("host2")).stdout
		for word := range strings.SplitSeq(c.words, "|") {
			if !strings.Contains(text, word) {
				t.Errorf("%s: %q is not in\n%s", c.name, word, text)
			}
		}

		if strings.Contains(text, "hunter2") || strings.Contains(text, "swordfish") {
			t.Errorf("%s: a secret is in\n%s", c.name, text)
		}

		w.do("nodes", "apply", w.name("host2"))
		w.do("nodes", "verify", w.name("host2"))
	}
}

func (w *world) wantVerdict(host string, want inventory.VerdictResult) {
	w.t.Helper()

	if v := w.node(host).Verification; v == nil || v.Result != want {
		w.t.Errorf("the verdict on %s is %+v, want %s", host, v, want)
	}
}
