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

// TestIPMISim: Debian's ipmi_sim is a BMC that nobody here wrote.
func TestIPMISim(t *testing.T) {
	lab(t)

	dir := t.TempDir()
	port := freePort(t)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		errtest.None(t, os.WriteFile(path, []byte(text), 0o700))

		return path
	}

	state, calls := write("state", "0\n"), write("calls", "")
	script := write("chassis", fmt.Sprintf(`#!/bin/sh
shift
case "$1 $2" in
"get power") echo "power:$(cat %[1]s)" ;;
"set power") echo "$*" >>%[2]s; echo "$3" >%[1]s ;;
*) echo "$*" >>%[2]s ;;
esac
`, state, calls))
	config := write("lan.conf", fmt.Sprintf(`name "sim"
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
  chassis_control "%s 0x20"
  user 2 true "%s" "%s" admin 10 none md2 md5 straight
`, port, script, bmctest.User, bmctest.Password))
	commands := write("sim.emu", `mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable 0x20
`)

	sim := exec.CommandContext(t.Context(), "ipmi_sim", "-n", "-c", config, "-f", commands, "-s", dir)
	sim.Dir = dir
	errtest.None(t, sim.Start())
	t.Cleanup(func() { sim.Wait() }) // the end of the test kills it

	p := bmc.New()
	b := machine.BMC{
		Driver: machine.IPMI, Address: "127.0.0.1", Port: port, User: bmctest.User, Password: bmctest.Password,
	}

	up, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	for {
		_, err := p.Power(up, b)
		if err == nil {
			break
		}
		if inventory.KindOf(err) != inventory.KindUnavailable || up.Err() != nil {
			t.Fatal(err)
		}

		select {
		case <-up.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}

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

	said, err := os.ReadFile(calls)
	errtest.None(t, err)

	if want := "set power 1\nset power 0\nset power 1\nset boot pxe\n"; string(said) != want {
		t.Errorf("ipmi_sim was told\n%s want\n%s", said, want)
	}

	next := b
	next.Next = "another-password"
	errtest.None(t, p.SetPassword(t.Context(), next))

	b.Password = next.Next
	_, err = bmc.New().Power(t.Context(), b)
	errtest.None(t, err)

	wrong := b
	wrong.Password = bmctest.Password

	if _, err := bmc.New().Power(t.Context(), wrong); !errors.Is(err, bmc.ErrLogin) {
		t.Errorf("a wrong password: %v", err)
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

// freePort returns a UDP port that nobody has.
func freePort(t *testing.T) int {
	t.Helper()

	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	errtest.None(t, err)
	defer conn.Close()

	addr, _ := conn.LocalAddr().(*net.UDPAddr)

	return addr.Port
}
