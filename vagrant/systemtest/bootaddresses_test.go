// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/management/api"
)

// bootConfig is a manager that gives addresses on the network of the lab, where no host has one of the pool.
const bootConfig = `
boot:
  interfaces: [eth0]
  pool: [10.77.0.200-10.77.0.209]
  lease: 2m
`

// reservation is the address for a MAC, once there is one.
func (w *world) reservation(mac string) string {
	w.t.Helper()

	var addr string

	await(w.t, time.Minute, "an address for "+mac, func() (bool, string) {
		r := w.ctl("boot", "addresses", "-o", "json")
		for _, a := range decode[api.List[api.Address]](w, r).Items {
			if a.MAC == mac {
				addr = a.Addr
			}
		}

		return addr != "", r.String()
	})

	return addr
}

// query is the newest one of a MAC, as the manager has it; zero: there was none.
func (w *world) query(mac string) api.BootQuery {
	w.t.Helper()

	for _, q := range decode[api.BootStatus](w, w.ctl("boot", "status", "-o", "json")).Queries {
		if q.MAC == mac {
			return q
		}
	}

	return api.BootQuery{}
}

// What iPXE prints, in lines of 80 columns.
var (
	configured = regexp.MustCompile(`net0: ([0-9.]+)/([0-9.]+)`)
	noAddress  = regexp.MustCompile(`No configuration methods\s+succeeded`)
)

// wantAddr waits until the iPXE of the machine has got an address, which has to be that one.
func (m *machine) wantAddr(want string) {
	m.w.t.Helper()

	if got := m.await(configured); got[1] != want || got[2] != "255.255.255.0" {
		m.w.t.Errorf("%s has the address %s/%s, want %s", m.name, got[1], got[2], want)
	}
}

// TestBootAddresses has machines ask for their addresses: firmware that boots, and a client of Debian.
func TestBootAddresses(t *testing.T) {
	w := newWorld(t, setup{hosts: 2, noAgents: true, testPlaybooks: true, config: bootConfig})

	const clientMAC, newAddr = "52:54:00:77:01:0c", "10.77.0.150"

	vm := w.newMachine(machine{name: "vm1", mac: "52:54:00:77:01:01", firmware: bios, bmcPort: 6241})
	stranger := w.newMachine(machine{name: "vm2", mac: "52:54:00:77:01:02", firmware: bios, bmcPort: 6242})
	modern := w.newMachine(machine{name: "vm3", mac: "52:54:00:77:01:03", firmware: uefi, bmcPort: 6243})
	ownPort := func() string { return w.sh("host2", "ip -o addr show dev eth0").stdout }
	own, ownMAC := ownPort(), strings.TrimSpace(w.sh("host2", "cat /sys/class/net/eth0/address").stdout)

	host := bySSH("host2")
	host["ports"] = []map[string]string{{"address": ownMAC}}
	client := registered{
		"name": "client", "pm_type": "manual-management", "ports": []map[string]string{{"address": clientMAC}},
	}

	w.ctl("nodes", "import", w.list(client), "--no-manage")
	w.ctl("nodes", "import", w.list(vm.registered(), modern.registered(), host))

	vmAddr, clientAddr := w.reservation(vm.mac), w.reservation(clientMAC)
	if pool := netip.MustParsePrefix("10.77.0.200/28"); vmAddr == clientAddr ||
		!pool.Contains(netip.MustParseAddr(vmAddr)) || !pool.Contains(netip.MustParseAddr(clientAddr)) {
		t.Fatalf("the addresses %s and %s are not two of the pool", vmAddr, clientAddr)
	}

	w.ctl("power", "boot", "pxe", "vm1", "vm3", "--yes")
	w.ctl("power", "on", "vm1", "vm3", "--yes")
	stranger.nextBoot("pxe")
	stranger.powerOn()

	// While the firmware starts.
	c := w.startDHCP("host2", clientMAC)
	c.await("bound " + clientAddr)
	c.renew()
	c.await("renew " + clientAddr)

	w.sh("host1", "ping -c1 -W5 "+clientAddr)

	w.ctl("boot", "reserve", "client", newAddr)
	c.renew()
	c.await("nak 0.0.0.0")
	c.await("bound " + newAddr)

	if got, want := strings.ReplaceAll(c.said(), "deconfig \n", ""), "bound "+clientAddr+"\nrenew "+clientAddr+
		"\nnak 0.0.0.0\nbound "+newAddr+"\n"; got != want {
		t.Errorf("the client says\n%swant\n%s", got, want)
	}

	vm.wantAddr(vmAddr)
	vm.awaitNothing()
	stranger.awaitNothing()

	if got := stranger.console(); configured.MatchString(got) || !noAddress.MatchString(got) {
		t.Errorf("a machine that is not registered has got an address:\n%s", got)
	}
	modern.wantAddr(w.reservation(modern.mac))

	if q := w.query(vm.mac); q.Node != "vm1" || q.Answer != "ack" || q.Addr != vmAddr {
		t.Errorf("the manager says of the machine: %+v", q)
	}
	if q := w.query(stranger.mac); q.Count == 0 || q.Answer != "" || q.Node != "" {
		t.Errorf("the manager says of the machine that is not registered: %+v", q)
	}

	// A host that does not ask keeps what it has.
	if now := ownPort(); now != own {
		t.Errorf("the port of host2 was\n%sand is\n%s", own, now)
	}
	if q := w.query(ownMAC); q.Count > 0 {
		t.Errorf("host2 has asked: %+v", q)
	}
	w.ctl("nodes", "inspect", "host2")

	w.ctl("power", "off", "vm1")
	if vm.isOn() || !stranger.isOn() {
		t.Errorf("after power off: on is %t, and the other one %t", vm.isOn(), stranger.isOn())
	}
}
