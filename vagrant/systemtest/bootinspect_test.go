// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/api"
)

// kernelPackage returns a kernel of Debian for machines of qemu.
func kernelPackage(t *testing.T) string {
	t.Helper()

	const path = "../../bin/linux-image.deb"
	if _, err := os.Stat(path); err != nil {
		out, err := exec.CommandContext(t.Context(), "../deps", path).CombinedOutput()
		if err != nil {
			t.Fatalf("cannot download a kernel: %v\n%s", err, out)
		}
	}

	content, err := os.ReadFile(path)
	errtest.None(t, err)

	return string(content)
}

// wantFacts requires that the facts of a node are those of its machine.
func (m *machine) wantFacts() {
	m.w.t.Helper()

	f := decode[api.NodeFacts](m.w, m.w.ctl("nodes", "facts", m.name, "-o", "json")).Facts
	mac, disk := "", facts.Disk{}
	for _, p := range f.Interfaces {
		mac += p.MAC
	}
	if len(f.Disks) == 1 {
		disk = f.Disks[0]
	}

	if f.Arch != "x86_64" || f.System.UUID != m.uuid() || mac != m.mac || disk.Serial != "disk-"+m.name ||
		disk.SizeBytes != 1<<30 || f.CPU.Threads != 2 || !slices.Equal(f.Sources, []string{facts.Network}) {
		m.w.t.Errorf("the facts of %s are %+v", m.name, f)
	}

	mode := facts.BIOS
	if m.firmware != bios {
		mode = facts.UEFI
	}
	if f.Firmware.BootMode != mode {
		m.w.t.Errorf("%s has booted by %s, want %s", m.name, f.Firmware.BootMode, mode)
	}
}

// TestBootInspect: machines without a system are switched on by their BMCs, boot over the network, tell their facts,
// and are off again, as they were: one by the iPXE on its card, and one by the PXE of its firmware. One that no job
// boots goes on to its disk, before and after that.
func TestBootInspect(t *testing.T) {
	w := newWorld(t, setup{hosts: 1, noAgents: true, testPlaybooks: true, config: bootConfig})

	vm := w.newMachine(machine{name: "vm1", mac: "52:54:00:77:02:01", firmware: bios, bmcPort: 6241})
	modern := w.newMachine(machine{name: "vm2", mac: "52:54:00:77:02:02", firmware: bareUEFI, bmcPort: 6242})
	other := w.newMachine(machine{name: "vm3", mac: "52:54:00:77:02:03", firmware: bios, bmcPort: 6243})

	w.ctl("nodes", "import", w.list(vm.registered(), modern.registered(), other.registered()))
	w.wantRefused(5, []string{"no image has a kernel"}, "nodes", "inspect", "vm1", "--boot", "network")

	w.write("host1", "/root/kernel.deb", kernelPackage(t))
	w.ctl("image", "add", "environment", "/root/kernel.deb")

	// Nobody asked this one.
	other.nextBoot("pxe")
	other.powerOn()

	begun := time.Now()
	w.ctl("nodes", "inspect", "vm1", "vm2", "--boot", "network")
	t.Logf("two machines were inspected in %.0f s", time.Since(begun).Seconds())

	for _, m := range []*machine{vm, modern} {
		m.wantFacts()

		await(t, time.Minute, m.name+" is off again", func() (bool, string) { return !m.isOn(), m.console() })

		b := decode[api.NodeBoots](w, w.ctl("nodes", "boots", m.name, "-o", "json")).Boots
		if len(b) != 1 || b[0].Ended == nil {
			t.Fatalf("the boots of %s are %+v", m.name, b)
		}
		for _, e := range b[0].Events {
			t.Logf("%s %5.1f s %s: %s", m.name, e.At.Sub(b[0].Begun).Seconds(), e.From, e.Text)
		}
	}

	other.awaitNothing()
	if text := other.console(); strings.Contains(text, "clusterm") || !configured.MatchString(text) {
		t.Errorf("a machine that nobody asked to boot did: %s", text)
	}
	if b := decode[api.NodeBoots](w, w.ctl("nodes", "boots", "vm3", "-o", "json")).Boots; len(b) > 0 {
		t.Errorf("it has boots: %+v", b)
	}

	// The same machine once more, without a job.
	vm.nextBoot("pxe")
	vm.powerOn()
	vm.awaitNothing()
}
