// SPDX-License-Identifier: Apache-2.0

package bmc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/bmc/bmctest"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/machine"
)

// lab skips the test without the programs of others that it needs.
func lab(t *testing.T) {
	t.Helper()

	if os.Getenv("CLUSTERM_LAB") != "1" {
		t.Skip("needs programs of others: set CLUSTERM_LAB=1, see vagrant/deps")
	}
	t.Parallel()
}

// simulated is a machine with Debian's ipmi_sim as its BMC.
type simulated struct {
	t   *testing.T
	dir string
	machine.BMC
}

// simulate starts a BMC. It calls the chassis, a program, with get power, set power 1, set boot pxe and the like.
func simulate(t *testing.T, chassis string) *simulated {
	t.Helper()

	s := &simulated{t: t, dir: t.TempDir(), BMC: machine.BMC{
		Driver: machine.IPMI, Address: "127.0.0.1", Port: freePort(t), User: bmctest.User, Password: bmctest.Password,
	}}
	s.write("chassis", "#!/bin/sh\ncd "+s.dir+"\nshift\n"+chassis)

	config := s.write("lan.conf", fmt.Sprintf(`name "sim"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 %d
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "%s/chassis 0x20"
  user 2 true "%s" "%s" admin 10 none md2 md5 straight
`, s.Port, s.dir, s.User, s.Password))
	commands := s.write("sim.emu", `mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable 0x20
`)

	sim := exec.CommandContext(t.Context(), "ipmi_sim", "-n", "-c", config, "-f", commands, "-s", s.dir)
	sim.Dir = s.dir
	errtest.None(t, sim.Start())
	t.Cleanup(func() { sim.Wait() }) // the end of the test kills it

	s.await("an answer of the BMC", func() bool {
		_, err := bmc.New().Power(t.Context(), s.BMC)
		if err != nil && inventory.KindOf(err) != inventory.KindUnavailable {
			t.Fatal(err)
		}

		return err == nil
	})

	return s
}

func (s *simulated) write(name, text string) string {
	s.t.Helper()

	path := filepath.Join(s.dir, name)
	errtest.None(s.t, os.WriteFile(path, []byte(text), 0o700))

	return path
}

// read returns a file, or "" if there is none.
func (s *simulated) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(s.dir, name))
	return string(text)
}

func (s *simulated) await(what string, holds func() bool) {
	s.t.Helper()

	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()

	for !holds() {
		select {
		case <-ctx.Done():
			s.t.Fatalf("%s did not come", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// TestIPMISim: Debian's ipmi_sim is a BMC that nobody here wrote.
func TestIPMISim(t *testing.T) {
	lab(t)

	s := simulate(t, `
case "$1 $2" in
"get power") echo "power:$(cat state || echo 0)" ;;
"set power") echo "$*" >>calls; echo "$3" >state ;;
*) echo "$*" >>calls ;;
esac
`)
	p, b := bmc.New(), s.BMC

	for _, step := range []struct {
		action bmc.Action
		power  bmc.Power
	}{{bmc.TurnOn, bmc.On}, {bmc.TurnOff, bmc.Off}, {bmc.Cycle, bmc.On}} {
		errtest.None(t, p.Act(t.Context(), b, step.action))

		got, err := p.Power(t.Context(), b)
		if errtest.None(t, err); got != step.power {
			t.Errorf("after %s the machine is %s", step.action, got)
		}
	}

	errtest.None(t, p.Boot(t.Context(), b, bmc.Boot{Device: bmc.PXE, Mode: bmc.UEFI}))

	if want := "set power 1\nset power 0\nset power 1\nset boot pxe\n"; s.read("calls") != want {
		t.Errorf("ipmi_sim was told\n%s want\n%s", s.read("calls"), want)
	}

	next := b
	next.Next = "another-password"
	errtest.None(t, p.SetPassword(t.Context(), next))

	b.Password = next.Next
	_, err := bmc.New().Power(t.Context(), b)
	errtest.None(t, err)

	wrong := b
	wrong.Password = bmctest.Password

	if _, err := bmc.New().Power(t.Context(), wrong); !errors.Is(err, bmc.ErrLogin) {
		t.Errorf("a wrong password: %v", err)
	}
}

// bootSector is what a disk has to boot: a program of the 8086 that says so at the port for debugging.
const bootSector = "\x31\xc0\x8e\xd8" + // ds = 0
	"\xba\x02\x04\xbe\x15\x7c" + // dx = 0x402, si = the text
	"\xac\x84\xc0\x74\x03\xee\xeb\xf8" + // each byte to the port, up to a zero
	"\xf4\xeb\xfd" + // halt
	"the machine has booted\n\x00"

// TestPowerBoots: behind the BMC is a machine of qemu, which the actions of this package really boot and stop.
func TestPowerBoots(t *testing.T) {
	lab(t)

	s := simulate(t, `
case "$1 $2" in
"get power") if [ -e pid ] && kill -0 "$(cat pid)" 2>/dev/null; then echo power:1; else echo power:0; fi ;;
"set power")
  if [ "$3" = 0 ]; then kill "$(cat pid)"; while [ -e pid ]; do sleep 0.05; done; exit; fi
  case "$(cat boot)" in pxe) order=n ;; *) order=c ;; esac
  qemu-system-x86_64 -daemonize -pidfile "$PWD/pid" -display none -vga none -m 32 -nodefaults -boot order=$order \
    -debugcon "file:$PWD/said" -global isa-debugcon.iobase=0x402 -drive "file=$PWD/disk,format=raw,if=ide" \
    -netdev hubport,id=n,hubid=0 -device virtio-net-pci,netdev=n >>qemu 2>&1 ;;
"set boot") echo "$3" >boot ;;
esac
`)

	disk := make([]byte, 1<<20)
	copy(disk, bootSector)
	disk[510], disk[511] = 0x55, 0xaa
	s.write("disk", string(disk))

	p := bmc.New()

	t.Cleanup(func() {
		if pid, err := strconv.Atoi(strings.TrimSpace(s.read("pid"))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})

	is := func(want bmc.Power) {
		t.Helper()

		if got, err := p.Power(t.Context(), s.BMC); err != nil || got != want {
			t.Errorf("the machine is %s, want %s (%v): %s", got, want, err, s.read("qemu"))
		}
	}

	is(bmc.Off)
	errtest.None(t, p.Act(t.Context(), s.BMC, bmc.TurnOn))
	s.await("the boot", func() bool { return strings.Contains(s.read("said"), "the machine has booted") })
	is(bmc.On)

	// Its machine stops by itself, as one without power: the observed power is that of the machine.
	pid, err := strconv.Atoi(strings.TrimSpace(s.read("pid")))
	errtest.None(t, err)
	errtest.None(t, syscall.Kill(pid, syscall.SIGTERM))
	s.await("the end", func() bool { return s.read("pid") == "" })
	is(bmc.Off)

	errtest.None(t, p.Boot(t.Context(), s.BMC, bmc.Boot{Device: bmc.PXE, Mode: bmc.BIOS}))
	errtest.None(t, p.Act(t.Context(), s.BMC, bmc.Cycle))
	s.await("the boot from the network", func() bool { return strings.Contains(s.read("said"), "Booting from ROM") })

	errtest.None(t, p.Act(t.Context(), s.BMC, bmc.TurnOff))
	is(bmc.Off)

	if strings.Contains(s.read("said"), "the machine has booted") {
		t.Errorf("it has booted from its disk: %s", s.read("said"))
	}
}

// TestRedfishClients: clients that nobody here wrote understand the Redfish server of the tests.
func TestRedfishClients(t *testing.T) {
	lab(t)

	service := bmctest.NewRedfish(t, 1)
	m, at := service.System(1), fmt.Sprintf("127.0.0.1:%d", service.BMC.Port)

	run := func(name string, args ...string) string {
		t.Helper()

		c := exec.CommandContext(t.Context(), name, args...)
		// A bundle of CAs in the environment would have sushy verify the certificate all the same.
		c.Env = append(os.Environ(), "REQUESTS_CA_BUNDLE=", "CURL_CA_BUNDLE=")

		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}

		return string(out)
	}
	tool := func(args ...string) string {
		t.Helper()

		common := []string{"-r", at, "-S", "Always", "-A", "Session", "-u", bmctest.User, "-p", bmctest.Password}
		return run("redfishtool", append(append(common, "Systems", "-I", "1"), args...)...)
	}

	tool("reset", "On")
	tool("setBootOverride", "Once", "Pxe")

	if !m.On() || m.Boot().Device != bmc.PXE || m.Boot().Lasting {
		t.Errorf("after redfishtool the machine is on: %t, and boots from %+v", m.On(), m.Boot())
	}

	out := run("/usr/bin/python3", "-W", "ignore", "-c", fmt.Sprintf(`
import sushy
root = sushy.Sushy("https://%s", username="%s", password="%s", verify=False)
system = root.get_system()
print(system.power_state)
system.set_system_boot_options(target=sushy.BOOT_SOURCE_TARGET_HDD, enabled=sushy.BOOT_SOURCE_ENABLED_CONTINUOUS,
	mode=sushy.BOOT_SOURCE_MODE_BIOS)
system.reset_system(sushy.RESET_FORCE_OFF)
system.refresh(force=True)
print(system.power_state, system.boot["target"])
`, at, bmctest.User, bmctest.Password))

	want := bmc.Boot{Device: bmc.Disk, Mode: bmc.BIOS, Lasting: true}
	if m.On() || m.Boot() != want {
		t.Errorf("after sushy the machine is on: %t, and boots from %+v: %s", m.On(), m.Boot(), out)
	}
}

// TestRedfishHardware: the same clients read the hardware from that server, which inspections are tested with.
func TestRedfishHardware(t *testing.T) {
	lab(t)

	service := bmctest.NewRedfish(t, 1)

	c := exec.CommandContext(t.Context(), "/usr/bin/python3", "-W", "ignore", "-c", fmt.Sprintf(`
import sushy
root = sushy.Sushy("https://127.0.0.1:%d", username="%s", password="%s", verify=False)
system = root.get_system()
cpus = [p for p in system.processors.get_members() if p.processor_type == sushy.PROCESSOR_TYPE_CPU]
drives = {d.identity: d for s in system.storage.get_members() for d in s.drives}
print(system.manufacturer, "|", system.uuid, "|", len(cpus), sum(p.total_cores for p in cpus), "|",
	system.memory_summary.size_gib, "|", *sorted(d.capacity_bytes for d in drives.values()), "|",
	len(system.ethernet_interfaces.summary))
`, service.BMC.Port, bmctest.User, bmctest.Password))
	c.Env = append(os.Environ(), "REQUESTS_CA_BUNDLE=", "CURL_CA_BUNDLE=")

	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	found, err := bmc.New().Facts(t.Context(), service.BMC)
	errtest.None(t, err)

	var sizes []int
	for _, d := range found.Disks {
		sizes = append(sizes, d.SizeBytes)
	}

	slices.Sort(sizes)

	// sushy names the present MACs, and inspections keep the permanent ones.
	want := fmt.Sprintf("%s | %s | %d %d | %d | %s | %d\n", found.System.Vendor, found.System.UUID, found.CPU.Sockets,
		found.CPU.Cores, found.Memory.TotalMB/1024, strings.Trim(fmt.Sprint(sizes), "[]"), len(found.Interfaces))
	if string(out) != want || len(sizes) != 2 {
		t.Errorf("sushy reads\n%s and an inspection\n%s", out, want)
	}
}

// freePort returns a UDP port that nobody has.
func freePort(t *testing.T) int {
	t.Helper()

	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	errtest.None(t, err)
	defer conn.Close()

	addr, _ := conn.LocalAddr().(*net.UDPAddr)

	return addr.Port
}
