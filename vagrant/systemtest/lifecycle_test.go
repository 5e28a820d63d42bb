// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// An update moves a node to another group, and its services with it.
func TestUpdateToAnotherGroup(t *testing.T) {
	w := newWorld(t, setup{hosts: 3})
	before := w.files("host2")
	w.commission(master, "host2")
	w.commission(worker, "host3")
	w.put("host2", "kept", "yes")

	services := func(host string) string {
		return w.sh(host, "systemctl list-units --no-legend --plain 'clusterm-etcd*' | awk '{print $1, $3}'").stdout
	}
	if got := services("host3"); got != "clusterm-etcd-gateway.service active\n" {
		t.Errorf("a worker runs %q", got)
	}

	w.do("nodes", "update", "-g", master, w.name("host3"))
	w.is("host3", inventory.Allocated, master)

	if got := services("host3"); got != "clusterm-etcd.service active\n" {
		t.Errorf("what was a worker and is a master runs %q", got)
	}

	if w.has("host3", "/etc/clusterm/etcd-gateway.env") {
		t.Error("the gateway's settings are left on host3")
	}

	w.consists("host2", "host2", "host3")
	w.gets("host3", "kept", "yes")

	// The first master can go now that there is another.
	w.do("nodes", "decommission", w.name("host2"))
	w.is("host2", inventory.Decommissioned, "")
	w.leftNothing("host2", before)
	w.consists("host3", "host3")
	w.gets("host3", "kept", "yes")
}

// The host that the manager runs on is a node like any other.
func TestManagersOwnHost(t *testing.T) {
	w := newWorld(t, setup{hosts: 2})
	before := w.files("host1")
	w.commission(master, "host1")
	w.commission(worker, "host2")
	w.is("host1", inventory.Allocated, master)
	w.put("host2", "home", "sweet")
	w.gets("host1", "home", "sweet")
	w.do("nodes", "maintenance", w.name("host1"), w.name("host2"))

	w.sh("host1", "systemctl restart clusterm")
	w.awaitServing()
	w.gets("host2", "home", "sweet")

	w.do("nodes", "decommission", w.name("host1"), w.name("host2"))
	w.is("host1", inventory.Decommissioned, "")
	w.ctl("health")

	var changed []string
	for _, line := range w.files("host1") {
		// The manager goes on writing.
		if !strings.HasPrefix(line, dataDir) && !strings.HasPrefix(line, "/root/.ssh") {
			changed = append(changed, line)
		}
	}

	var was []string
	for _, line := range before {
		if !strings.HasPrefix(line, dataDir) && !strings.HasPrefix(line, "/root/.ssh") {
			was = append(was, line)
		}
	}

	if d := difference(strings.Join(was, "\n"), strings.Join(changed, "\n")); d != "" {
		t.Errorf("host1 is not as it was:\n%s", d)
	}
}

// A host that is dead can be decommissioned: the others forget it at once, and
// what is left on it is cleaned when it is used again.
func TestDecommissionOfADeadHost(t *testing.T) {
	w := newWorld(t, setup{})
	w.commission(master, "host2", "host3", "host4")
	w.put("host2", "kept", "yes")
	w.lab("kill", "host4")
	w.awaitState(inventory.Disappeared, "host4")
	w.is("host4", inventory.Allocated, master)

	j := w.do("nodes", "decommission", w.name("host4"))
	if !strings.Contains(j.Message, w.name("host4")) {
		t.Errorf("the job does not say what could not be cleaned: %q", j.Message)
	}

	n := w.node("host4")
	if n.Status != inventory.Decommissioned || n.State != inventory.Disappeared || len(n.Residue) != 1 ||
		n.Residue[0] != master ||
		n.LastError == "" {
		t.Errorf("the dead host is %s, %s, with residue %v and the error %q", n.Status, n.State, n.Residue, n.LastError)
	}

	w.consists("host2", "host2", "host3")
	w.gets("host3", "kept", "yes")

	w.lab("boot", "host4")
	w.awaitState(inventory.Discovered, "host4")

	j = w.commission(worker, "host4")
	if len(j.Runs) != 2 || j.Runs[0].Phase != "residue" || j.Runs[1].Phase != "configure" {
		t.Errorf("the job ran %+v", j.Runs)
	}

	w.is("host4", inventory.Allocated, worker)

	if n := w.node("host4"); len(n.Residue) != 0 {
		t.Errorf("%s still has residue: %v", n.Name, n.Residue)
	}

	if w.has("host4", "/etc/clusterm/etcd.env") || w.has("host4", "/var/lib/etcd/clusterm/member") {
		t.Error("the residue of the master is still on host4")
	}

	w.consists("host2", "host2", "host3")
	w.gets("host4", "kept", "yes")
}

// Hosts that are powered off, come back or reboot change their state, and never
// their status.
func TestPowerOffReturnReboot(t *testing.T) {
	w := newWorld(t, setup{small: true, serf: "host4"})
	w.commission(master, "host2")
	w.commission(worker, "host3", "host4")
	unmoved := func() {
		t.Helper()
		w.is("host2", inventory.Allocated, master)
		w.is("host3", inventory.Allocated, worker)
		w.is("host4", inventory.Allocated, worker)
	}

	w.lab("kill", "host3", "host4")
	w.awaitState(inventory.Disappeared, "host3", "host4")
	w.awaitState(inventory.Discovered, "host2")
	unmoved()
	w.lab("boot", "host3", "host4")
	w.awaitState(inventory.Discovered, "host3", "host4")
	unmoved()

	w.lab("reboot", "host3")
	w.awaitState(inventory.Discovered, "host3")
	unmoved()
	// A reboot says goodbye, so it is never missed.
	await(t, time.Minute, "both absences are in the history", func() (bool, string) {
		var states []string
		for _, e := range w.history("host3") {
			if e.Verb == inventory.VerbDisappeared || e.Verb == inventory.VerbDiscovered {
				if e.From != e.To && e.From != "" {
					t.Fatalf("an observation changed the status from %s to %s", e.From, e.To)
				}

				states = append(states, string(e.State))
			}
		}

		all := strings.Join(states, " ")

		return all == "Discovered Disappeared Discovered Disappeared Discovered", all
	})
	unmoved()
	w.do("nodes", "maintenance", w.name("host3"), w.name("host4"))

	// The manager's own host: it is back by itself, and knows everything.
	w.lab("reboot", "host1")
	w.awaitServing()
	w.awaitState(inventory.Discovered, w.hosts...)
	unmoved()
}

func (w *world) history(host string) []api.HistoryEntry {
	w.t.Helper()
	return decode[api.List[api.HistoryEntry]](w, w.ctl("nodes", "history", w.name(host), "-o", "json")).Items
}

// A host whose power fails in the middle of a job does not hold the job up for
// long, nor the others of its batch back.
func TestPowerFailsInTheMiddleOfAJob(t *testing.T) {
	w := newWorld(t, setup{small: true})
	w.commission(master, "host2")
	id := w.submit("nodes", "commission", "-g", worker, "-e", "hold: go", w.name("host3"), w.name("host4"))
	w.awaitLog(id, waiting)
	w.lab("kill", "host3")
	w.awaitState(inventory.Disappeared, "host3")
	w.release("go", "host4")

	j := w.awaitJob(id)
	if j.Status != api.Errored || !strings.Contains(j.Message, w.name("host3")) {
		t.Errorf("the job is %s: %q", j.Status, j.Message)
	}

	if took := j.Ended.Sub(*j.Started); took > 3*time.Minute {
		t.Errorf("it took %s to notice", took)
	}

	w.is("host3", inventory.Quarantined, worker)
	w.is("host4", inventory.Unallocated, "")

	if w.has("host4", "/etc/systemtest") {
		t.Error("host4 was not cleaned")
	}

	w.lab("boot", "host3")
	w.awaitState(inventory.Discovered, "host3")
	w.do("nodes", "clear", w.name("host3"))
	w.commission(worker, "host3", "host4")
}

// A network cut is an absence; what fails because of it is fenced, and comes
// back when it has healed.
func TestNetworkCut(t *testing.T) {
	w := newWorld(t, setup{small: true})
	w.commission(master, "host2")
	w.lab("cut", "host3")
	// Nobody has noticed yet: the job finds out.
	j, said := w.fails("nodes", "commission", "-g", worker, w.name("host3"), w.name("host4"))
	if !strings.Contains(j.Message, w.name("host3")) || !strings.Contains(said, "unreachable") {
		t.Errorf("the job does not name the host that was cut off: %q; %s", j.Message, said)
	}

	w.is("host3", inventory.Quarantined, worker)
	w.is("host4", inventory.Unallocated, "")
	w.awaitState(inventory.Disappeared, "host3")
	w.awaitState(inventory.Discovered, "host1", "host2", "host4")

	w.lab("heal")
	w.awaitState(inventory.Discovered, "host3")
	w.is("host3", inventory.Quarantined, worker)
	w.do("nodes", "clear", w.name("host3"))
	w.commission(worker, "host3")

	// The manager itself is cut off: all the others disappear, and nothing else happens.
	w.lab("cut", "host1")
	w.awaitState(inventory.Disappeared, "host2", "host3", "host4")
	w.is("host2", inventory.Allocated, master)
	w.is("host3", inventory.Allocated, worker)
	w.lab("heal")
	w.awaitState(inventory.Discovered, w.hosts...)
	w.do("nodes", "maintenance", w.name("host3"))
}

// A host whose ssh key has changed is not talked to before an operator says so.
func TestChangedHostKey(t *testing.T) {
	w := newWorld(t, setup{small: true, hosts: 3})
	w.commission(master, "host2")

	old := w.node("host2").HostKeys
	if len(old) == 0 {
		t.Fatal("no host key was recorded")
	}

	newKey := func(host string) {
		w.sh(
			host,
			"rm /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key; systemctl restart ssh",
		)
	}
	newKey("host2")
	remedy := "clusterctl nodes set " + w.name("host2") + " --forget-host-key"

	j, said := w.fails("nodes", "maintenance", w.name("host2"))
	if !strings.Contains(said, remedy) || !strings.Contains(j.Message, "host key") {
		t.Errorf("the remedy is not named (%s): %q; %s", remedy, j.Message, said)
	}

	w.is("host2", inventory.Allocated, master)

	if n := w.node("host2"); !strings.Contains(n.LastError, remedy) {
		t.Errorf("the last error is %q", n.LastError)
	}

	w.ctl(strings.Fields(remedy)[1:]...)
	w.do("nodes", "maintenance", w.name("host2"))

	now := w.node("host2").HostKeys
	if len(now) == 0 || now[0] == old[0] {
		t.Errorf("the new key was not recorded: %v, before %v", now, old)
	}

	// It is checked from now on.
	newKey("host2")
	w.fails("nodes", "maintenance", w.name("host2"))
}

// What an operator forgot does not come back as new, and a host that has lost its
// agent gets it again under its old name.
func TestForgetAndDiscoverAgain(t *testing.T) {
	w := newWorld(t, setup{small: true})
	w.lab("kill", "host4")
	w.awaitState(inventory.Disappeared, "host4")
	w.refused(5, []string{w.name("host3"), "Discovered"}, "nodes", "forget", w.name("host3"))
	w.ctl("nodes", "forget", w.name("host4"))

	if _, known := w.nodes()[w.name("host4")]; known {
		t.Error("the node is still known")
	}

	w.refused(4, []string{w.name("host4")}, "nodes", "commission", "-g", master, w.name("host4"))
	w.lab("boot", "host4")
	w.awaitState(inventory.Discovered, "host4")
	w.is("host4", inventory.Quarantined, "")
	w.refused(5, []string{"Quarantined"}, "nodes", "commission", "-g", master, w.name("host4"))
	w.refused(2, []string{"--reason"}, "nodes", "clear", "--force", w.name("host4"))
	w.do("nodes", "clear", "--force", "--reason", "checked by hand", w.name("host4"))
	w.is("host4", inventory.Unallocated, "")

	entries := w.history("host4")
	if last := entries[len(entries)-1]; !strings.Contains(last.Reason, "checked by hand") {
		t.Errorf("the history does not hold the reason: %+v", last)
	}

	// host3 loses its agent, disk and all, and is known by another address.
	w.sh(
		"host3",
		"systemctl disable --quiet --now clusterm-agent; rm -r /etc/clusterm /var/lib/clusterm-agent /etc/systemd/system/clusterm-agent.service /usr/local/bin/clusterm",
	)
	w.awaitState(inventory.Disappeared, "host3")
	w.refused(5, []string{w.name("host2"), "Discovered"}, "discover", addr("host2"), addr("host3"))
	w.sh("host3", "hostname elsewhere")
	w.do("discover", addr("host3"))

	n := w.node("host3")
	if n.State != inventory.Discovered {
		t.Errorf("%s is %s", n.Name, n.State)
	}

	if all := w.nodes(); len(all) != 4 {
		t.Errorf("there are %d nodes, want 4: the host came back under another name", len(all))
	}
}

// A host that moves to another address is reached there.
func TestChangedAddress(t *testing.T) {
	w := newWorld(t, setup{small: true, hosts: 3})
	w.commission(master, "host2")
	w.sh(
		"host2",
		"ip addr add 10.77.0.112/24 dev eth0; sed -i 's/addr: \"10.77.0.12\"/addr: \"10.77.0.112\"/' /etc/clusterm/agent.yaml",
	)
	w.sh("host2", "systemctl restart clusterm-agent; iptables -A INPUT -d 10.77.0.12 -p tcp --dport 22 -j REJECT")
	await(t, time.Minute, "the new address is known", func() (bool, string) {
		n := w.node("host2")
		return n.Addr == "10.77.0.112" && n.State == inventory.Discovered, n.Addr
	})
	w.is("host2", inventory.Allocated, master)
	w.do("nodes", "maintenance", w.name("host2"))
	w.do("nodes", "decommission", w.name("host2"))

	if w.has("host2", "/etc/systemtest") {
		t.Error("it was not cleaned at its new address")
	}
}

// Discover is complete only when every address has appeared, and names those
// that have not.
func TestDiscover(t *testing.T) {
	w := newWorld(t, setup{bare: true, settings: "jobs: {appear: 15s}"})

	j, said := w.fails("discover", addr("host2"), "10.77.0.99")
	if !strings.Contains(said, "10.77.0.99") || !strings.Contains(j.Message, "10.77.0.99") {
		t.Errorf("the address that does not answer is not named: %q; %s", j.Message, said)
	}

	if strings.Contains(j.Message, addr("host2")) {
		t.Errorf("the address that does answer is blamed: %q", j.Message)
	}

	// Over IPv6, and all the way back.
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
		t.Error("host3 is still known")
	}

	w.leftNothing("host3", before)

	if w.has("host3", "/var/lib/clusterm-agent") {
		t.Error("the agent's data is left on host3")
	}

	// Its gossip is cut off, its ssh is not: the host is prepared, and never seen.
	w.sh("host4", "iptables -A INPUT -p tcp --dport 7946 -j DROP; iptables -A INPUT -p udp --dport 7946 -j DROP; "+
		"iptables -A OUTPUT -p tcp --dport 7946 -j DROP; iptables -A OUTPUT -p udp --dport 7946 -j DROP")

	j, said = w.fails("discover", addr("host4"))
	if j.Cause != "absent" || !strings.Contains(said, addr("host4")) {
		t.Errorf("the job failed by %q: %s", j.Cause, said)
	}

	w.sh("host4", "iptables -F")
	w.awaitState(inventory.Discovered, "host4")
}

// Two hosts that claim one identity are reported, harm nobody's agent, and
// cannot be commissioned.
func TestDuplicateIdentity(t *testing.T) {
	w := newWorld(t, setup{small: true, hosts: 4})
	// host4 becomes a copy of host3.
	w.sh("host4", "systemctl stop clusterm-agent; rm -rf /var/lib/clusterm-agent/*")
	w.awaitState(inventory.Disappeared, "host4")
	w.installAgent("host4", "host3", w.serial("host3"), w.gossipKey())
	await(t, time.Minute, "the duplicate is reported", func() (bool, string) {
		n := w.node("host3")
		return len(n.Duplicates) == 1 && n.Duplicates[0] == addr("host4") &&
				n.Addr == addr("host3"), strings.Join(
				n.Duplicates,
				" ",
			)
	})

	if out := w.ctl("nodes", "get").stdout; !strings.Contains(out, "also claimed by "+addr("host4")) {
		t.Errorf("it is not shown: %s", out)
	}

	w.unchanged(func() {
		w.refused(
			5,
			[]string{w.name("host3"), addr("host3"), addr("host4")},
			"nodes",
			"commission",
			"-g",
			master,
			w.name("host3"),
		)
	})

	for _, h := range []string{"host3", "host4"} {
		if s := w.sh(
			h,
			"systemctl show clusterm-agent -p ActiveState,NRestarts",
		).stdout; s != "NRestarts=0\nActiveState=active\n" {
			t.Errorf("the agent of %s: %s", h, s)
		}
	}

	w.sh("host4", "systemctl stop clusterm-agent")
	await(t, time.Minute, "the duplicate is gone", func() (bool, string) {
		n := w.node("host3")
		return len(n.Duplicates) == 0 && n.State == inventory.Discovered, string(n.State)
	})
	w.commission(master, "host3")
}
