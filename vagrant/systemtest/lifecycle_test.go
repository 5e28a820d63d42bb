// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestUpdateChangesGroup: an update moves a node to another group and replaces its
// services.
func TestUpdateChangesGroup(t *testing.T) {
	w := newWorld(t, setup{hosts: 3})
	before := w.files("host2")
	w.commission(master, "host2")
	w.commission(worker, "host3")
	w.putKey("host2", "kept", "yes")

	services := func(host string) string {
		return w.sh(host, "systemctl list-units --no-legend --plain 'clusterm-etcd*' | awk '{print $1, $3}'").stdout
	}
	if got := services("host3"); got != "clusterm-etcd-gateway.service active\n" {
		t.Errorf("the worker runs %q", got)
	}

	for _, host := range []string{"host2", "host3"} {
		got := w.sh(
			host,
			"echo nameserver 127.0.0.77 >/etc/resolv.conf; getent ahostsv4 service-master.cluster.internal "+
				"| awk '{print $1; exit}'; : >/etc/resolv.conf",
		).stdout
		if got != addr("host2")+"\n" {
			t.Errorf("the resolver of %s has %q for the masters", host, got)
		}
	}

	w.do("nodes", "update", "-g", master, w.name("host3"))
	w.wantNode("host3", inventory.Allocated, master)

	if got := services("host3"); got != "clusterm-etcd.service active\n" {
		t.Errorf("the former worker runs %q as a master", got)
	}

	if w.hasFile("host3", "/etc/clusterm/etcd-gateway.env") {
		t.Error("the gateway's settings are left on host3")
	}

	w.wantMembers("host2", "host2", "host3")
	w.wantKey("host3", "kept", "yes")

	// With a second master, the first one can be decommissioned.
	w.do("nodes", "decommission", w.name("host2"))
	w.wantNode("host2", inventory.Decommissioned, "")
	w.wantFiles("host2", before)
	w.wantMembers("host3", "host3")
	w.wantKey("host3", "kept", "yes")
}

// TestManagerHostAsNode: the manager's own host goes through the same life as any node.
func TestManagerHostAsNode(t *testing.T) {
	w := newWorld(t, setup{hosts: 2})
	before := w.files("host1")
	w.commission(master, "host1")
	w.commission(worker, "host2")
	w.wantNode("host1", inventory.Allocated, master)
	w.putKey("host2", "home", "sweet")
	w.wantKey("host1", "home", "sweet")
	w.do("nodes", "maintenance", w.name("host1"), w.name("host2"))

	w.sh("host1", "systemctl restart clusterm")
	w.awaitHealthy()
	w.wantKey("host2", "home", "sweet")

	w.do("nodes", "decommission", w.name("host1"), w.name("host2"))
	w.wantNode("host1", inventory.Decommissioned, "")
	w.ctl("status")

	// The manager goes on writing in these.
	without := func(lines []string) string {
		return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, dataDir) || strings.HasPrefix(line, "/root/.ssh")
		}), "\n")
	}
	if d := difference(without(before), without(w.files("host1"))); d != "" {
		t.Errorf("files of host1 differ:\n%s", d)
	}
}

// TestDecommissionDeadHost: a dead host can be decommissioned. The remaining members
// drop it at once, and its residue is removed before its next commission.
func TestDecommissionDeadHost(t *testing.T) {
	w := newWorld(t, setup{})
	w.commission(master, "host2", "host3", "host4")
	w.putKey("host2", "kept", "yes")
	w.labDo("kill", "host4")
	w.awaitState(inventory.Disappeared, "host4")
	w.wantNode("host4", inventory.Allocated, master)

	j := w.doLeaves("nodes", "decommission", w.name("host4"))
	if !strings.Contains(j.Message, w.name("host4")) {
		t.Errorf("the job's message lacks the node that was not cleaned: %q", j.Message)
	}

	n := w.node("host4")
	if n.Status != inventory.Decommissioned || n.State != inventory.Disappeared || n.LastError == "" ||
		!slices.Equal(n.Residue, []string{master}) {
		t.Errorf("the dead host is %s, %s, with residue %v and the error %q", n.Status, n.State, n.Residue, n.LastError)
	}

	w.wantMembers("host2", "host2", "host3")
	w.wantKey("host3", "kept", "yes")

	w.labDo("boot", "host4")
	w.awaitState(inventory.Discovered, "host4")

	j = w.commission(worker, "host4")
	if len(j.Runs) != 2 || j.Runs[0].Phase != "residue" || j.Runs[1].Phase != "configure" {
		t.Errorf("the job ran %+v", j.Runs)
	}

	w.wantNode("host4", inventory.Allocated, worker)

	if n := w.node("host4"); len(n.Residue) != 0 {
		t.Errorf("%s still has residue: %v", n.Name, n.Residue)
	}

	if w.hasFile("host4", "/etc/clusterm/etcd.env") || w.hasFile("host4", "/var/lib/etcd/clusterm/member") {
		t.Error("the residue of the master is still on host4")
	}

	w.wantMembers("host2", "host2", "host3")
	w.wantKey("host4", "kept", "yes")
}

func (w *world) history(host string) []inventory.HistoryEntry {
	w.t.Helper()
	return decode[api.List[inventory.HistoryEntry]](w, w.ctl("nodes", "history", w.name(host), "-o", "json")).Items
}

// TestPowerFailureDuringJob: a host whose power fails delays its job only briefly, and
// the other nodes of the batch are cleaned up.
func TestPowerFailureDuringJob(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true})
	w.commission(master, "host2")
	id := w.submit("nodes", "commission", "-g", worker, "-e", "hold: go", w.name("host3"), w.name("host4"))
	w.awaitLog(id, holdTask)
	w.labDo("kill", "host3")
	w.awaitState(inventory.Disappeared, "host3")
	w.release("go", "host4")

	j := w.awaitJob(id)
	if j.Status != api.Errored || !strings.Contains(j.Message, w.name("host3")) {
		t.Errorf("the job is %s: %q", j.Status, j.Message)
	}
	if took := j.Ended.Sub(*j.Started); took > 3*time.Minute {
		t.Errorf("the job took %s, want at most 3 min", took)
	}

	w.wantNode("host3", inventory.Quarantined, worker)
	w.wantNode("host4", inventory.Unallocated, "")

	if w.hasFile("host4", "/etc/systemtest") {
		t.Error("host4 was not cleaned")
	}

	w.labDo("boot", "host3")
	w.awaitState(inventory.Discovered, "host3")
	w.do("nodes", "clear", w.name("host3"))
	w.commission(worker, "host3", "host4")
}

// TestNetworkCut: a host that is cut off disappears, a commission that never reached it leaves
// it as it was, and the same request succeeds after the network has healed.
func TestNetworkCut(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true})
	w.commission(master, "host2")
	w.labDo("cut", "host3")
	// The monitor has not noticed yet, so the job is accepted.
	j, stderr := w.doFails("nodes", "commission", "-g", worker, w.name("host3"), w.name("host4"))
	if !strings.Contains(j.Message, w.name("host3")) || !strings.Contains(stderr, "unreachable") {
		t.Errorf("the job does not name the host that was cut off: %q; %s", j.Message, stderr)
	}

	w.wantNode("host3", inventory.Unallocated, "")
	w.wantNode("host4", inventory.Unallocated, "")
	w.awaitState(inventory.Disappeared, "host3")
	w.awaitState(inventory.Discovered, "host1", "host2", "host4")

	w.labDo("heal")
	w.awaitState(inventory.Discovered, "host3")
	w.wantNode("host3", inventory.Unallocated, "")
	w.commission(worker, "host3")
}

// TestChangedHostKey: the manager does not connect to a host with a changed ssh key
// until an operator accepts it.
func TestChangedHostKey(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, hosts: 3})
	w.commission(master, "host2")

	old := w.node("host2").HostKeys
	if len(old) == 0 {
		t.Fatal("no host key was recorded")
	}

	newKey := func(host string) {
		w.sh(host, "rm /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key")
		w.sh(host, "systemctl restart ssh")
	}
	newKey("host2")
	remedy := "clusterctl nodes trust " + w.name("host2")

	w.pings(remedy)

	j, stderr := w.doFails("nodes", "maintenance", w.name("host2"))
	if !strings.Contains(stderr, "trust the new key") || !strings.Contains(j.Message, "host key") {
		t.Errorf("the message lacks the remedy: %q; %s", j.Message, stderr)
	}
	if why := w.ctl("job", "why", j.ID); !strings.Contains(why.stdout, remedy) {
		t.Errorf("the explanation lacks %s: %s", remedy, why)
	}

	w.wantNode("host2", inventory.Allocated, master)

	if n := w.node("host2"); !strings.Contains(n.LastError, "trust the new key") {
		t.Errorf("the last error is %q", n.LastError)
	}

	// Nobody has compared the keys; then the wrong one, and the right one.
	shown := w.fingerprint("host2")
	trust := strings.Fields(remedy)[1:]
	w.wantRefused(1, []string{"not compared", "--fingerprint " + shown}, trust...)
	w.wantRefused(5, []string{"does not show", shown}, append(trust, "--fingerprint", w.fingerprint("host3"))...)

	if now := w.node("host2").HostKeys; !slices.Equal(now, old) {
		t.Errorf("the recorded key changed by a refusal: %v", now)
	}

	w.ctl(append(trust, "--fingerprint", shown, "--reason", "a new board")...)

	if h := w.ctl("nodes", "history", w.name("host2"), "-o", "long").stdout; !strings.Contains(h, shown) ||
		!strings.Contains(h, "a new board") {
		t.Errorf("the history lacks the new key: %s", h)
	}

	w.do("nodes", "maintenance", w.name("host2"))

	now := w.node("host2").HostKeys
	if len(now) == 0 || now[0] == old[0] {
		t.Errorf("the new key was not recorded: %v, before %v", now, old)
	}

	// The new key is checked too.
	newKey("host2")
	w.doFails("nodes", "maintenance", w.name("host2"))
}

// fingerprint returns the fingerprint of the ssh host key, as the host itself shows it.
func (w *world) fingerprint(host string) string {
	w.t.Helper()
	return strings.Fields(w.sh(host, "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").stdout)[1]
}

// TestFirstContact: the first contact is verified by a given key, and by the CA of the
// site; a host with another key, or without a certificate, is not prepared.
func TestFirstContact(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, hosts: 4, noAgents: true})

	key := func(host string) string {
		return strings.Join(strings.Fields(w.sh(host, "cat /etc/ssh/ssh_host_ed25519_key.pub").stdout)[:2], " ")
	}

	// The keys of all hosts are one image's until they get their own.
	for _, host := range []string{"host2", "host3"} {
		w.sh(host, "rm /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key; "+
			"systemctl restart ssh")
	}

	w.doFails("discover", addr("host2"), "--host-key", addr("host2")+"="+key("host3"))

	if w.hasFile("host2", "/etc/clusterm") {
		t.Error("a host with another key was changed")
	}

	w.write("host1", "/root/known", addr("host2")+" "+key("host2")+"\n")
	w.do("discover", addr("host2"), "--known-hosts", "/root/known")

	if n := w.node("host2"); !slices.Equal(n.HostKeys, []string{key("host2")}) {
		t.Errorf("recorded: %v", n.HostKeys)
	}

	w.sh("host1", "ssh-keygen -q -t ed25519 -N '' -f /root/ca")
	ca := strings.TrimSpace(w.sh("host1", "cat /root/ca.pub").stdout)
	w.ctl("config", "set", `ssh.host_ca=["`+ca+`"]`)
	w.doFails("discover", addr("host3"))

	w.write("host1", "/root/host3.pub", w.sh("host3", "cat /etc/ssh/ssh_host_ed25519_key.pub").stdout)
	w.sh("host1", "ssh-keygen -q -s /root/ca -I host3 -h -n "+addr("host3")+" /root/host3.pub")
	w.write("host3", "/etc/ssh/ssh_host_ed25519_key-cert.pub", w.sh("host1", "cat /root/host3-cert.pub").stdout)
	w.sh("host3", "echo HostCertificate /etc/ssh/ssh_host_ed25519_key-cert.pub >>/etc/ssh/sshd_config; "+
		"systemctl restart ssh")
	w.do("discover", addr("host3"))

	if n := w.node("host3"); len(n.HostKeys) > 0 {
		t.Errorf("recorded beside the certificate: %v", n.HostKeys)
	}

	// Both go on: one by its key, the other by its certificate.
	w.commission(master, "host2")
	w.commission(worker, "host3")

	// Another key with the same certificate authority, and without a certificate.
	w.sh("host3", "rm /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key; "+
		"sed -i /HostCertificate/d /etc/ssh/sshd_config; systemctl restart ssh")
	w.doFails("nodes", "maintenance", w.name("host3"))
	w.wantNode("host3", inventory.Allocated, worker)
}

// pings pings host1, which answers, host2, which has another host key, and host3
// without its sshd. Nothing changes.
func (w *world) pings(remedy string) {
	w.t.Helper()
	w.sh("host3", "systemctl stop ssh.socket ssh 2>/dev/null || systemctl stop ssh")

	before := w.nodes()
	r := w.wantRefused(
		1,
		[]string{"2 of 3 nodes did not answer", "not the one recorded", remedy, "refuses connections"},
		"nodes",
		"ping",
		w.name("host1"),
		w.name("host2"),
		w.name("host3"),
	)

	for host, result := range map[string]string{"host1": "answered", "host2": "no answer", "host3": "no answer"} {
		row := regexp.MustCompile("(?m)^" + w.name(host) + " .* " + result)
		if !row.MatchString(r.stdout) {
			w.t.Errorf("the row of %s lacks %q: %s", host, result, r)
		}
	}

	w.sh("host3", "systemctl start ssh")
	w.ctl("nodes", "ping", w.name("host3"))

	for name, n := range w.nodes() {
		if n.Revision != before[name].Revision {
			w.t.Errorf("the ping changed %s: %+v", name, n)
		}
	}
}

// TestForgetAndDiscoverAgain: a forgotten node that reappears is Quarantined, and a
// discover of a host without its agent restores the same node.
func TestForgetAndDiscoverAgain(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true})
	w.labDo("kill", "host4")
	w.awaitState(inventory.Disappeared, "host4")
	w.wantRefused(5, []string{w.name("host3"), "Discovered"}, "nodes", "forget", w.name("host3"))
	w.ctl("nodes", "forget", w.name("host4"))

	if _, known := w.nodes()[w.name("host4")]; known {
		t.Error("the forgotten node is still in the inventory")
	}

	w.wantRefused(4, []string{w.name("host4")}, "nodes", "commission", "-g", master, w.name("host4"))
	w.labDo("boot", "host4")
	w.awaitState(inventory.Discovered, "host4")
	w.wantNode("host4", inventory.Quarantined, "")
	w.wantRefused(5, []string{"Quarantined"}, "nodes", "commission", "-g", master, w.name("host4"))
	w.wantRefused(2, []string{"--reason"}, "nodes", "clear", "--force", w.name("host4"))
	w.do("nodes", "clear", "--force", "--reason", "checked by hand", w.name("host4"))
	w.wantNode("host4", inventory.Unallocated, "")

	entries := w.history("host4")
	if last := entries[len(entries)-1]; !strings.Contains(last.Reason, "checked by hand") {
		t.Errorf("the history lacks the reason: %+v", last)
	}

	// host3 loses its agent with all data, and its name.
	w.sh("host3", "systemctl disable --quiet --now clusterm-agent; rm -r /etc/clusterm /var/lib/clusterm-agent "+
		"/etc/systemd/system/clusterm-agent.service /usr/local/bin/clusterm")
	w.awaitState(inventory.Disappeared, "host3")
	w.wantRefused(5, []string{w.name("host2"), "Discovered"}, "discover", addr("host2"), addr("host3"))
	w.sh("host3", "hostname elsewhere")
	w.do("discover", addr("host3"))

	n := w.node("host3")
	if n.State != inventory.Discovered {
		t.Errorf("%s is %s", n.Name, n.State)
	}

	if all := w.nodes(); len(all) != 4 {
		t.Errorf("the inventory has %d nodes, want 4: the host returned under another name", len(all))
	}
}

// TestDiscover: discover is Complete when every address has appeared, and names the
// addresses that have not.
func TestDiscover(t *testing.T) {
	w := newWorld(t, setup{noAgents: true, config: "jobs: {appear: 15s}"})

	j, stderr := w.doFails("discover", addr("host2"), "10.77.0.99")
	if !strings.Contains(stderr, "10.77.0.99") || !strings.Contains(j.Message, "10.77.0.99") {
		t.Errorf("the message lacks the address that does not answer: %q; %s", j.Message, stderr)
	}
	if strings.Contains(j.Message, addr("host2")) {
		t.Errorf("the message blames the address that answers: %q", j.Message)
	}

	// Over IPv6, and removed again.
	before := w.files("host3")
	j = w.do("discover", "fd77::13")
	w.awaitState(inventory.Discovered, "host3")

	if n := w.node("host3"); n.Addr != "fd77::13" {
		t.Errorf("the address of %s is %s", n.Name, n.Addr)
	}

	if len(j.Runs) < 2 || j.Runs[len(j.Runs)-1].Phase != "appear" {
		t.Errorf("the job ran %+v", j.Runs)
	}

	w.do("nodes", "forget", w.name("host3"), "--remove-agent")

	if _, known := w.nodes()[w.name("host3")]; known {
		t.Error("host3 is still in the inventory")
	}

	w.wantFiles("host3", before)

	if w.hasFile("host3", "/var/lib/clusterm-agent") {
		t.Error("the agent's data is left on host3")
	}

	// With gossip blocked and ssh open, the host is prepared but does not appear. It
	// is restored.
	before = w.files("host4")
	w.sh("host4", blockGossip)

	j, stderr = w.doFails("discover", addr("host4"))
	if j.Cause != "absent" || !strings.Contains(stderr, addr("host4")) {
		t.Errorf("the cause of the failure is %q: %s", j.Cause, stderr)
	}

	w.wantFiles("host4", before)
	w.sh("host4", "iptables -F")

	// The host of another manager is refused and left alone.
	w.write("host4", "/etc/clusterm/manager.json", `{"id":"00000000000000bb","name":"other-1","addr":"10.77.0.200"}`)
	before = w.files("host4")

	j, _ = w.doFails("discover", addr("host4"))
	if !strings.Contains(j.Message, "other-1 at 10.77.0.200") || !strings.Contains(j.Message, "--take-over") {
		t.Errorf("the message does not name the other manager: %q", j.Message)
	}

	w.wantFiles("host4", before)
	// Silent addresses of a range are skipped.
	w.do("discover", "10.77.0.14-10.77.0.16", "--take-over", "--reason", "its manager is gone")
	w.awaitState(inventory.Discovered, "host4")
}

const blockGossip = "iptables -A INPUT -p tcp --dport 7946 -j DROP; iptables -A INPUT -p udp --dport 7946 -j DROP; " +
	"iptables -A OUTPUT -p tcp --dport 7946 -j DROP; iptables -A OUTPUT -p udp --dport 7946 -j DROP"

// TestHostOfAnotherManager: the host of another manager is refused, survives a reboot
// with an agent beside the manager, is restored after a failed take-over, and taken over
// after all.
func TestHostOfAnotherManager(t *testing.T) {
	w := newWorld(t, setup{noAgents: true, testPlaybooks: true, hosts: 2, config: "jobs: {appear: 5s}"})

	files := []file{
		w.read("/usr/local/bin/clusterm", 0o755, filepath.Join(suite.bin, "clusterm")),
		w.read("/etc/systemd/system/clusterm.service", 0o644, repoFile("cmd/clusterm/clusterm.service")),
	}
	if r := w.install("host2", files, "systemctl enable --quiet --now clusterm"); r.code != 0 {
		t.Fatal(r)
	}

	wantManager := func(when string) {
		t.Helper()

		const script = "systemctl is-active clusterm; systemctl is-enabled clusterm; systemctl is-active clusterm-agent"
		await(t, time.Minute, "the manager of host2 runs without an agent "+when, func() (bool, string) {
			out := w.try("host2", script).stdout
			return out == "active\nenabled\ninactive\n", out
		})
	}
	wantManager("at first")

	key := w.sh("host2", "cat "+dataDir+"/gossip.key").stdout

	j, _ := w.doFails("discover", addr("host2"))
	if !strings.Contains(j.Message, w.name("host2")) || !strings.Contains(j.Message, "clusterm.service runs") {
		t.Errorf("the message does not name the other manager: %q", j.Message)
	}

	wantManager("after the refusal")

	// An agent beside the manager does not take its port, also after a reboot.
	w.installAgent("host2", "host2", w.serial("host2"), strings.TrimSpace(key))
	wantManager("beside an agent")
	w.labDo("reboot", "host2")
	wantManager("after a reboot")
	w.sh("host2", "systemctl disable --quiet clusterm-agent; rm -r /etc/clusterm "+
		"/etc/systemd/system/clusterm-agent.service; systemctl daemon-reload")

	takeOver := []string{"discover", addr("host2"), "--take-over", "--reason", "its manager is gone"}

	w.sh("host2", blockGossip)
	// It must not run: the undo is that of the program.
	cleanup := w.sh("host1", "cat "+testPlaybooks+"/cleanup.yml").stdout
	w.write("host1", testPlaybooks+"/cleanup.yml",
		"- {hosts: all, gather_facts: false, tasks: [{name: Clean all, command: touch /etc/cleaned}]}\n")

	if j, _ = w.doFails(takeOver...); j.Cause != "absent" {
		t.Errorf("the take-over failed for another reason: %s: %s", j.Cause, j.Message)
	}

	wantManager("after a failed take-over")

	if now := w.sh("host2", "cat "+dataDir+"/gossip.key").stdout; now != key || w.hasFile("host2", "/etc/clusterm") {
		t.Error("the failed take-over left files or changed the key")
	}

	if w.hasFile("host2", "/etc/cleaned") {
		t.Error("the failed take-over ran cleanup.yml of the site")
	}

	w.write("host1", testPlaybooks+"/cleanup.yml", cleanup)
	w.sh("host2", "iptables -F")
	w.do(takeOver...)
	w.awaitState(inventory.Discovered, "host2")

	if out := w.try(
		"host2",
		"systemctl is-active clusterm clusterm-agent; systemctl is-enabled clusterm",
	).stdout; out != "inactive\nactive\ndisabled\n" {
		t.Errorf("after the take-over the units are %q", out)
	}

	if last := w.history("host2"); !strings.Contains(last[len(last)-1].Reason, "its manager is gone") {
		t.Errorf("the history lacks the reason: %+v", last)
	}

	w.do("nodes", "forget", w.name("host2"), "--remove-agent")

	if w.hasFile("host2", "/etc/clusterm/manager.json") {
		t.Error("the identity file is left on host2")
	}
}
