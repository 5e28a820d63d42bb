// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/bmc/bmctest"
	"github.com/contiv/cluster/inventory/errtest"
)

// BMCs of registrations run in the network of host1, where the manager is, at bmcAddr: nobody else reaches them. Those
// of machines of qemu run on the lab's side of the network, at labAddr, and outlive a reboot of host1.
const (
	bmcAddr = "127.0.0.1"
	labAddr = "10.77.0.1"
)

// redfishHelper is the argument with which the program of these tests is a BMC that speaks Redfish.
const redfishHelper = "serve-redfish"

// inHost1 prepares a program of this machine in the network of host1. It ends with the test.
func (w *world) inHost1(name string, args ...string) *exec.Cmd {
	return w.inside(".host1", name, args...)
}

// inside is the same for the network of a host, such as .host1, or of the lab's side: "".
func (w *world) inside(host, name string, args ...string) *exec.Cmd {
	network := "--net=/run/netns/clab." + w.lab.name + host
	cmd := exec.CommandContext(suite.ctx, "nsenter", append([]string{network, name}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second

	return cmd
}

// endWith kills a program at the end of the test.
func (w *world) endWith(cmd *exec.Cmd) {
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// ipmi starts Debian's ipmi_sim, with a machine that is off. Its password can be changed there and nowhere else.
func (w *world) ipmi(port int, password string) {
	w.t.Helper()

	dir := w.t.TempDir()
	write(w.t, dir, "state", "0\n")
	script := write(w.t, dir, "chassis", `#!/bin/sh
cd "$(dirname "$0")" && shift
case "$1 $2" in
"get power") echo "power:$(cat state)" ;;
"set power") echo "$3" >state ;;
esac
`)
	w.ipmiSim(".host1", bmcAddr, port, password, script)
}

// write writes a program or another file into a folder, and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()

	path := filepath.Join(dir, name)
	errtest.None(t, os.WriteFile(path, []byte(text), 0o700))

	return path
}

// ipmiSim starts Debian's ipmi_sim in a network; see inside. The script gets and sets the power of its machine, and
// what that boots from.
func (w *world) ipmiSim(network, addr string, port int, password, script string) {
	w.t.Helper()

	dir := w.t.TempDir()
	config := write(w.t, dir, "lan.conf", fmt.Sprintf(`name "sim"
set_working_mc 0x20
  startlan 1
    addr %s %d
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "%s 0x20"
  user 2 true "%s" "%s" admin 10 none md2 md5 straight
`, addr, port, script, bmctest.User, password))
	commands := write(w.t, dir, "sim.emu", `mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable 0x20
`)

	sim := w.inside(network, "ipmi_sim", "-n", "-c", config, "-f", commands, "-s", dir)
	sim.Dir = dir
	errtest.None(w.t, sim.Start())
	w.endWith(sim)

	await(w.t, time.Minute, "ipmi_sim listens", func() (bool, string) {
		out, err := w.inside(network, "ss", "-Hlnu", fmt.Sprintf("sport = :%d", port)).CombinedOutput()
		return err == nil && len(out) > 0, fmt.Sprintf("%s (%v)", out, err)
	})
}

// redfish starts a BMC that speaks Redfish, with one machine, and returns its port.
func (w *world) redfish() (port int) {
	w.t.Helper()

	self, err := os.Executable()
	errtest.None(w.t, err)

	cmd := w.inHost1(self, redfishHelper)
	out, err := cmd.StdoutPipe()
	errtest.None(w.t, err)
	errtest.None(w.t, cmd.Start())
	w.endWith(cmd)

	line, err := bufio.NewReader(out).ReadString('\n')
	errtest.None(w.t, err)

	if _, err := fmt.Sscan(strings.TrimSpace(line), &port); err != nil {
		w.t.Fatalf("the Redfish BMC says %q", line)
	}

	return port
}

// serveRedfish is the process of such a BMC. Its parent ends it.
func serveRedfish() {
	fmt.Println(bmctest.NewRedfish(forever{}, 1).BMC.Port)
	select {}
}

// forever has a simulated BMC run until its process ends.
type forever struct{ testing.TB }

func (forever) Helper()           {}
func (forever) Cleanup(func())    {}
func (forever) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
