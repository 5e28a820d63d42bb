// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc/bmctest"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// registered is an entry of a list of machines.
type registered map[string]any

// byBMC is a machine of which only the BMC is known.
func byBMC(name, driver string, port int, password string) registered {
	m := registered{
		"name": name, "pm_type": driver, "pm_addr": bmcAddr, "pm_port": port,
		"pm_user": bmctest.User, "pm_password": password,
	}
	if driver == "redfish" {
		m["pm_system_id"] = "/redfish/v1/Systems/1"
	}

	return m
}

// bySSH is a machine of which only the address for ssh is known. Its name is that of the host.
func bySSH(host string) registered { return registered{"name": host, "addr": addr(host)} }

// list writes a list of machines on host1, and returns its path.
func (w *world) list(machines ...registered) string {
	w.t.Helper()

	text, err := json.Marshal(map[string]any{"nodes": machines})
	errtest.None(w.t, err)
	w.write("host1", "/root/machines.json", string(text))

	return "/root/machines.json"
}

// wantMachine requires the status of a registered node, and that its last error has all of the words; none: there is
// no error.
func (w *world) wantMachine(name string, status inventory.Status, words ...string) {
	w.t.Helper()

	n := w.nodes()[name]
	if n.Status != status || n.Job != "" || (n.LastError == "") != (len(words) == 0) {
		w.t.Errorf("%s is %s, held by job %q, with the error %q; want %s", name, n.Status, n.Job, n.LastError, status)
	}

	for _, word := range words {
		if !strings.Contains(n.LastError, word) {
			w.t.Errorf("%s says %q, without %q", name, n.LastError, word)
		}
	}
}

// revisions are those of the records of all nodes in the store, by name.
func (w *world) revisions() map[string]int64 {
	w.t.Helper()

	all := map[string]int64{}
	for name, n := range w.nodes() {
		all[name] = n.Revision
	}

	return all
}

// logins returns how often somebody has logged in on a host by ssh, as the host itself has it.
func (w *world) logins(host string) int {
	w.t.Helper()

	count := 0
	text := w.sh(host, "journalctl -q -u ssh | grep -c 'Accepted publickey' || true").stdout
	_, err := fmt.Sscan(text, &count)
	errtest.None(w.t, err)

	return count
}

// statuses are the verbs and statuses of the history of a node, the oldest first.
func (w *world) statuses(name string) (all []string) {
	w.t.Helper()

	type entry struct {
		To   string `json:"to"`
		Verb string `json:"verb"`
	}
	for _, e := range decode[api.List[entry]](w, w.ctl("nodes", "history", name, "-o", "json")).Items {
		all = append(all, e.Verb+":"+e.To)
	}

	return all
}

// awaitStatus waits until a node has the status.
func (w *world) awaitStatus(name string, status inventory.Status) {
	w.t.Helper()
	await(w.t, time.Minute, name+" is "+string(status), func() (bool, string) {
		n := w.nodes()[name]
		return n.Status == status, string(n.Status) + " " + n.LastError
	})
}

// interruptible is a job of which the test kills the manager in its middle.
type interruptible struct {
	verb   string
	nodes  []string
	status inventory.Status // while it runs
	cut    string           // the host of that name has no network until the manager is killed; "": all have
}

// interrupt begins a job with a clusterctl that waits for it, detaches that by Ctrl-C, kills the manager while the
// first node has the status of the verb, and requires that the next manager takes the job to its end.
func (w *world) interrupt(i interruptible) {
	w.t.Helper()

	if i.cut != "" {
		w.labDo("cut", i.cut)
	}

	last := i.nodes[len(i.nodes)-1]
	begun := len(w.jobs())
	waits := w.start("host1", append([]string{"clusterctl", "nodes", i.verb, "--yes"}, i.nodes...)...)
	w.awaitStatus(last, i.status)
	w.sh("host1", "pkill -INT -o -f '^clusterctl nodes "+i.verb+"'")
	waits.awaitEnd(w.t, time.Minute)

	if code := waits.cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(waits.stderr.String(), "detached") {
		w.t.Errorf("after Ctrl-C: exit %d, want 130: %s", code, &waits.stderr)
	}
	w.awaitStatus(last, i.status)

	w.sh("host1", killDaemon)

	if i.cut != "" {
		w.labDo("heal", i.cut)
	}

	w.awaitHealthy()

	jobs := w.jobs()[begun:]
	if len(jobs) != 1 {
		w.t.Fatalf("the command and the restart made %d jobs", len(jobs))
	}
	if j := w.awaitJob(jobs[0].ID); j.Status != api.Complete {
		w.t.Errorf("job %s is %s: %s", j.ID, j.Status, j.Message)
	}
}

// TestRegistration follows machines from a list to service: hosts of which the address for ssh is known, and machines
// of which a BMC is known, Debian's ipmi_sim and one that speaks Redfish.
func TestRegistration(t *testing.T) {
	w := newWorld(t, setup{hosts: 7, noAgents: true, testPlaybooks: true})
	w.ipmi(6230, "right")
	w.ipmi(6231, "other")

	hosts := []string{"host2", "host3", "host4", "host5"}
	good := []registered{
		byBMC("by-ipmi", "ipmi", 6230, "right"), byBMC("by-redfish", "redfish", w.redfish(), bmctest.Password),
	}

	for _, h := range hosts {
		good = append(good, bySSH(h))
	}

	bad := []registered{
		byBMC("refused", "ipmi", 6231, "wrong"), byBMC("dead", "ipmi", 6239, "x"), bySSH("host6"),
	}
	run := func(name string, f func(t *testing.T, w *world)) {
		if !t.Failed() {
			t.Run(name, func(t *testing.T) { f(t, w.forSubtest(t)) })
		}
	}

	// One that fails keeps none of the others back, and says why and what helps.
	run("import", func(t *testing.T, w *world) {
		w.sh("host6", "mv /root/.ssh/authorized_keys /root/.ssh/kept")

		r := w.tryCtl("nodes", "import", w.list(slices.Concat(good, bad)...))
		if r.code != 3 {
			t.Errorf("exit %d, want 3: %s", r.code, r)
		}

		for _, m := range good {
			w.wantMachine(fmt.Sprint(m["name"]), inventory.Manageable)
		}

		w.wantMachine("refused", inventory.Enrolled, "refused the login", "clusterctl power login")
		w.wantMachine("dead", inventory.Enrolled, bmcAddr+":6239 cannot be reached", "check its address")
		w.wantMachine("host6", inventory.Enrolled, "was denied", "the public key is authorized")

		log := w.ctl("job", "logs", "last").stdout
		for _, want := range []string{
			"host2: ssh to " + addr("host2") + " works", "by-ipmi: the BMC at " + bmcAddr + " takes the login",
			"by-redfish: the BMC at " + bmcAddr + " takes the login",
		} {
			if !strings.Contains(log, want) {
				t.Errorf("the output lacks %q:\n%s", want, log)
			}
		}
	})

	run("remedies", func(t *testing.T, w *world) {
		w.sh("host6", "mv /root/.ssh/kept /root/.ssh/authorized_keys")
		bad[0]["pm_password"] = "other"
		w.ctl("nodes", "import", w.list(slices.Concat(good, bad[:1])...))
		w.awaitStatus("refused", inventory.Manageable)

		w.ipmi(6239, "x")
		w.interrupt(interruptible{
			verb: "manage", nodes: []string{"dead", "host6"}, status: inventory.Verifying, cut: "host6",
		})

		for _, name := range []string{"refused", "dead", "host6"} {
			w.wantMachine(name, inventory.Manageable)
		}
	})

	run("import again", func(t *testing.T, w *world) {
		before, jobs := w.revisions(), len(w.jobs())
		w.ctl("nodes", "import", w.list(slices.Concat(good, bad)...))

		if after := w.revisions(); !maps.Equal(before, after) {
			t.Errorf("a second import changed %v to %v", before, after)
		}
		if n := len(w.jobs()); n != jobs {
			t.Errorf("a second import made %d jobs", n-jobs)
		}
	})

	run("inspect", func(t *testing.T, w *world) {
		w.interrupt(interruptible{verb: "inspect", nodes: hosts, status: inventory.Inspecting, cut: "host5"})

		for _, h := range hosts {
			w.wantMachine(h, inventory.Manageable)
			if n := w.nodes()[h]; n.Hardware == nil || n.Hardware.MemoryMB == 0 {
				t.Errorf("%s has no facts: %+v", h, n.Hardware)
			}
		}
	})

	run("a new disk", func(t *testing.T, w *world) {
		// Hosts of the lab share a kernel, so this one is told of a disk by what the kernel would say.
		w.sh("host2", `mkdir -p /run/disk/device /run/disk/queue /run/blocks && cd /run/disk &&
echo 1953525168 >size && echo 252:64 >dev && echo 0 >removable && echo 1 >queue/rotational &&
echo ST1000 >device/model && echo Z1D0 >device/serial &&
for disk in /sys/block/*; do ln -s "$(realpath "$disk")" /run/blocks/; done &&
ln -s /run/disk /run/blocks/sdx && mount --bind /run/blocks /sys/block`)
		w.do("nodes", "inspect", "host2", "host3")

		for host, want := range map[string]string{
			"host2": "disk sdx of 1.0 TB (serial Z1D0) was added\n", "host3": "",
		} {
			if got := w.ctl("nodes", "facts", "diff", host).stdout; got != want {
				t.Errorf("the difference of %s is %q, want %q", host, got, want)
			}
		}

		w.sh("host2", "umount /sys/block")
	})

	run("a root device", func(t *testing.T, w *world) {
		r := w.tryCtl("nodes", "configure", "host2", "--root-device", "serial=Z1D1")
		if r.code != 5 || !strings.Contains(r.stderr, "host2: no disk fits the hint serial=Z1D1: it has ") ||
			!strings.Contains(r.stderr, "sdx 1.0 TB") {
			t.Errorf("a hint that no disk fits: %s", r)
		}

		w.ctl("nodes", "configure", "host2", "--root-device", "serial=Z1D0")
	})

	offered := append([]string{"by-ipmi", "by-redfish"}, hosts...)

	run("provide", func(t *testing.T, w *world) {
		w.interrupt(interruptible{verb: "provide", nodes: offered, status: inventory.Cleaning})

		for _, name := range offered {
			w.wantMachine(name, inventory.Unallocated)

			all, want := w.statuses(name), []string{"provide:Cleaning", "provide:Unallocated"}
			if last := all[max(len(all)-2, 0):]; !slices.Equal(last, want) {
				t.Errorf("the history of %s ends with %q", name, all)
			}
		}
	})

	// The agent of a registered host is that node, and none beside it.
	run("commission", func(t *testing.T, w *world) {
		before := len(w.nodes())
		key := w.gossipKey()

		for _, h := range []string{"host2", "host3"} {
			w.setName(h, 12)
			w.installAgent(h, h, w.serial(h), key)
			w.names[h] = h
		}
		w.awaitState(inventory.Discovered, "host2", "host3")

		if n := len(w.nodes()); n != before {
			t.Errorf("the agents of two registered hosts made %d nodes", n-before)
		}

		w.commission(master, "host2")
		w.wantNode("host2", inventory.Allocated, master)
	})

	// It needs no address for that.
	run("an agent with a registered MAC", func(t *testing.T, w *world) {
		machine := byBMC("by-mac", "ipmi", 6240, "x")
		machine["ports"] = []map[string]string{{
			"address": strings.TrimSpace(w.sh("host7", "cat /sys/class/net/eth0/address").stdout),
		}}
		w.ctl("nodes", "import", w.list(machine), "--no-manage")

		before := len(w.nodes())

		w.setName("host7", 12)
		w.installAgent("host7", "host7", w.serial("host7"), w.gossipKey())
		w.names["host7"] = "by-mac"
		w.awaitState(inventory.Discovered, "host7")

		if n := w.node("host7"); n.Addr != addr("host7") || len(w.nodes()) != before {
			t.Errorf("the agent made %d nodes; that of its MAC has the address %q", len(w.nodes())-before, n.Addr)
		}
	})

	run("the others are left alone", func(t *testing.T, w *world) {
		type mark struct {
			revision int64
			history  int
			logins   int
		}
		marks := func() map[string]mark {
			all := map[string]mark{}
			for name, revision := range w.revisions() {
				if !slices.Contains(offered, name) {
					continue
				}

				m := mark{revision: revision, history: len(w.statuses(name))}
				if slices.Contains(hosts, name) {
					m.logins = w.logins(name)
				}
				all[name] = m
			}

			return all
		}

		w.ctl("nodes", "forget", "refused", "dead", "host6", "--force")
		before := marks()

		shown := w.ctl("nodes", "import", w.list(append(good, bad[2])...), "--introspect", "--provide").stdout
		w.wantMachine("host6", inventory.Unallocated)

		// All the way is one command, whose answer has every node that was taken.
		for _, h := range offered {
			if strings.Contains(shown[strings.LastIndex(shown, "NODE"):], h) {
				t.Errorf("%s was taken:\n%s", h, shown)
			}
		}
		if n := w.nodes()["host6"]; n.Hardware == nil {
			t.Error("host6 has no facts")
		}

		// Nothing is left that these may take.
		for _, verb := range []string{"manage", "inspect", "provide"} {
			if r := w.tryCtl("nodes", verb, "--all"); r.code != 4 {
				t.Errorf("%s --all: exit %d: %s", verb, r.code, r)
			}
		}

		if after := marks(); !maps.Equal(before, after) || len(after) != len(offered) {
			t.Errorf("nodes in service or on offer were touched: %+v, before %+v", after, before)
		}
		if w.logins("host6") == 0 {
			t.Error("the ledger misses logins")
		}
	})

	run("move", func(t *testing.T, w *world) {
		w.ctl("nodes", "forget", "host6", "--force")
		w.ctl("nodes", "import", w.list(bad[2]), "--no-manage")
		w.ctl("nodes", "move", "host6", "--to", "Unallocated", "--yes")
		w.wantMachine("host6", inventory.Unallocated)
	})
}
