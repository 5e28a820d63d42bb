// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
)

// machine is one of qemu, without acceleration: no operating system, an empty disk, and one network port, which is at
// the bridge of the lab. Its BMC is Debian's ipmi_sim, at labAddr. See newMachine.
type machine struct {
	w        *world
	name     string // also of its network device in the lab: at most 15 letters and digits
	mac      string // lower case, with colons
	firmware firmware
	bmcPort  int   // unique in a test
	memory   int   // MiB; 0: 512
	size     int64 // of its disk, in bytes; 0: 1 GiB

	// dir has its files: disk; console, since it was switched on; pid, while it is on; boot, what the next boot is from
	// as IPMI has it; log, of its BMC.
	dir string
}

// firmware is how a machine boots.
type firmware struct {
	args    string // of qemu
	network string // also of qemu, for a boot from the network; else it boots from its disk
	ends    string // what it says when nothing boots
	card    string // also of qemu, for the network card
}

var (
	// bios is SeaBIOS, with the iPXE of qemu on the network card. A restart boots from the disk.
	bios = firmware{
		args: "-machine pc,graphics=off -boot order=c", network: "-boot once=n", ends: "No bootable device",
	}
	// uefi is OVMF, with the same on the card. A restart boots from the network again.
	uefi = firmware{
		args: "-machine q35 -drive if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd" +
			" -drive if=pflash,format=raw,file=vars -set device.blk.bootindex=2",
		network: "-set device.port.bootindex=1", ends: "No bootable option",
	}
	// bareUEFI is OVMF alone: its own PXE loads iPXE by TFTP.
	bareUEFI = firmware{args: uefi.args, network: uefi.network, ends: uefi.ends, card: ",romfile="}
)

// bmcPassword is that of the BMCs of machines.
const bmcPassword = "secret"

// bootLimit bounds each step of a boot: many times what it takes on a machine that does nothing else.
const bootLimit = 4 * time.Minute

// chassis is how a BMC switches a machine. qemu has a file with its pid while it runs, and removes that when the system
// switches itself off.
const chassis = `#!/bin/sh
cd "$(dirname "$0")" && shift
export LAB=%[1]s
off() { %[2]s unplug %[3]s && rm -f pid; }
restart() { off && on; }
on() {
	[ -e pid ] && return
	network=
	[ "$(cat boot)" = pxe ] && network='%[6]s'
	echo default >boot
	%[2]s plug %[3]s qemu-system-x86_64 -accel tcg -m %[9]d -smp 2 -nodefaults -display none \
		-name %[3]s -uuid %[4]s \
		-netdev tap,id=net,ifname=%[3]s,script=no,downscript=no \
		-device virtio-net-pci,id=port,netdev=net,mac=%[7]s%[8]s \
		-drive if=none,id=disk,format=raw,file=disk \
		-device virtio-blk-pci,id=blk,drive=disk,serial=disk-%[3]s \
		-serial file:console -pidfile pid -daemonize %[5]s $network </dev/null 9>&-
}
# One after the other, while the BMC answers: it would be silent until the end of the command.
later() { { flock 9; "$@"; } 9>lock & }
case "$1 $2 $3" in
"get power "*) if [ -e pid ]; then echo power:1; else echo power:0; fi; exit ;;
"get boot "*) echo "boot:$(cat boot)"; exit ;;
esac
exec >>log 2>&1
echo "$*"
case "$1 $2 $3" in
"set power 1") later on ;;
"set power 0") later off ;;
"set reset "*) later restart ;;
"set boot "*) echo "$3" >boot ;;
esac
`

// newMachine makes a machine that is off, with its BMC.
func (w *world) newMachine(m machine) *machine {
	w.t.Helper()

	tool, err := filepath.Abs(labTool)
	errtest.None(w.t, err)

	m.w, m.dir = w, w.t.TempDir()
	write(w.t, m.dir, "boot", "default\n")
	write(w.t, m.dir, "disk", "")
	errtest.None(w.t, os.Truncate(m.disk(), cmp.Or(m.size, 1<<30)))

	if strings.Contains(m.firmware.args, "file=vars") {
		vars, err := os.ReadFile("/usr/share/OVMF/OVMF_VARS_4M.fd")
		errtest.None(w.t, err)
		write(w.t, m.dir, "vars", string(vars))
	}

	script := write(w.t, m.dir, "chassis", fmt.Sprintf(chassis,
		w.lab.name, tool, m.name, m.uuid(), m.firmware.args, m.firmware.network, m.mac, m.firmware.card,
		cmp.Or(m.memory, 512)))

	w.t.Cleanup(func() {
		if w.t.Failed() {
			log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
			w.t.Logf("--- %s: the BMC\n%s--- %s: the console\n%s", m.name, log, m.name, m.console())
		}

		// What the BMC still begins cannot run without a disk. Also when the test was interrupted.
		_ = os.Remove(m.disk())
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()

		if r := w.lab.run(ctx, nil, "unplug", m.name); r.code != 0 {
			w.t.Error(r)
		}
	})
	w.ipmiSim("", labAddr, m.bmcPort, bmcPassword, script)

	return &m
}

// uuid is that of the system, which ends as its MAC.
func (m *machine) uuid() string {
	return "5b1c2c5e-3c1f-4a26-9c44-" + strings.ReplaceAll(m.mac, ":", "")
}

// disk is the file of its disk, which has the serial disk-NAME.
func (m *machine) disk() string { return filepath.Join(m.dir, "disk") }

// registered is the machine as an entry of a list.
func (m *machine) registered() registered {
	entry := byBMC(m.name, "ipmi", m.bmcPort, bmcPassword)
	entry["pm_addr"] = labAddr
	entry["ports"] = []map[string]string{{"address": m.mac}}

	return entry
}

// control has the machine switched as its BMC would: set power 1, set boot pxe. It does not wait for the power.
func (m *machine) control(args ...string) {
	m.w.t.Helper()

	cmd := exec.CommandContext(suite.ctx, filepath.Join(m.dir, "chassis"), append([]string{"0x20"}, args...)...)
	cmd.WaitDelay = 5 * time.Second

	if out, err := cmd.CombinedOutput(); err != nil {
		m.w.t.Fatalf("%s: %q: %v\n%s", m.name, args, err, out)
	}
}

// powerOn turns it on, from its device of the next boot.
func (m *machine) powerOn() { m.power(true) }

// powerOff turns it off, as if the plug was pulled.
func (m *machine) powerOff() { m.power(false) }

func (m *machine) power(on bool) {
	m.w.t.Helper()
	m.control("set", "power", map[bool]string{true: "1", false: "0"}[on])
	await(m.w.t, time.Minute, m.name+" is switched", func() (bool, string) { return m.isOn() == on, "" })
}

// nextBoot sets the device of the next boot: pxe, or default for the disk.
func (m *machine) nextBoot(device string) { m.control("set", "boot", device) }

// isOn reports whether it is on.
func (m *machine) isOn() bool {
	_, err := os.Stat(filepath.Join(m.dir, "pid"))
	return err == nil
}

// controls are what a terminal does not show.
var controls = regexp.MustCompile("\x1b\\[[0-9;=?]*[A-Za-z]|\x1b.|[\b\r\x00]")

// console is what it has said at its serial port since it was switched on.
func (m *machine) console() string {
	text, _ := os.ReadFile(filepath.Join(m.dir, "console"))
	return string(controls.ReplaceAll(text, nil))
}

// await waits until the console has what the expression matches, and returns the match with its groups.
func (m *machine) await(want *regexp.Regexp) []string {
	m.w.t.Helper()

	var found []string

	await(m.w.t, bootLimit, m.name+" says "+want.String(), func() (bool, string) {
		text := m.console()
		found = want.FindStringSubmatch(text)

		return found != nil, text
	})

	if on, err := os.Stat(filepath.Join(m.dir, "pid")); err == nil {
		m.w.t.Logf("%s: %q is there %.1f s after power on", m.name, found[0], time.Since(on.ModTime()).Seconds())
	}

	return found
}

// awaitNothing waits until the firmware says that nothing boots.
func (m *machine) awaitNothing() {
	m.w.t.Helper()
	m.await(regexp.MustCompile(m.firmware.ends))
}

// dhcpClient is Debian's udhcpc on a host, with a network port of its own there.
type dhcpClient struct {
	w    *world
	host string
}

// startDHCP starts a client with a MAC. The port is in a network of its own, so that the host keeps its addresses.
func (w *world) startDHCP(host, mac string) *dhcpClient {
	w.t.Helper()

	w.write(host, "/root/udhcpc.sh", `#!/bin/sh
case "$1" in
deconfig) ip addr flush dev "$interface"; ip link set "$interface" up ;;
bound | renew) ip addr replace "$ip/$mask" dev "$interface" ;;
esac
echo "$1 $ip" >>/run/udhcpc.said
`)
	w.sh(host, "chmod 700 /root/udhcpc.sh && ip netns add dhcp && ip link add dhcp0 link eth0 netns dhcp address "+mac+
		" type macvlan mode bridge && ip -n dhcp link set dhcp0 up")
	w.start(host, "nsenter", "--net=/run/netns/dhcp", "busybox", "udhcpc", "-f", "-i", "dhcp0", "-s", "/root/udhcpc.sh",
		"-p", "/run/udhcpc.pid", "-t", "5", "-T", "2", "-A", "2")

	return &dhcpClient{w, host}
}

// said is what it has got so far: lines as bound 10.77.0.200, and renew, nak, and deconfig without an address.
func (c *dhcpClient) said() string {
	c.w.t.Helper()
	return c.w.sh(c.host, "cat /run/udhcpc.said 2>/dev/null || true").stdout
}

// await waits until it says a line.
func (c *dhcpClient) await(line string) {
	c.w.t.Helper()

	begun := time.Now()
	await(c.w.t, time.Minute, "the client says "+line, func() (bool, string) {
		said := c.said()
		return strings.Contains(said, line+"\n"), said
	})
	c.w.t.Logf("the client says %q after %.1f s", line, time.Since(begun).Seconds())
}

// renew has it ask for its address again, before its time.
func (c *dhcpClient) renew() {
	c.w.t.Helper()
	c.w.sh(c.host, `kill -USR1 "$(cat /run/udhcpc.pid)"`)
}
