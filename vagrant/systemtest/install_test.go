// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// debianImage returns a disk image of Debian, as clusterctl makes it.
func debianImage(t *testing.T) string {
	t.Helper()

	file := os.Getenv("CLUSTERM_DEBIAN")
	if file == "" {
		file = filepath.Join(t.TempDir(), "debian.raw.zst")

		out, err := exec.CommandContext(t.Context(), "../../bin/clusterctl", "image", "build", "--no-agent",
			"--save", file).CombinedOutput()
		if err != nil {
			t.Fatalf("cannot make the image: %v\n%s", err, out)
		}
	}

	content, err := os.ReadFile(file)
	errtest.None(t, err)

	return string(content)
}

// TestInstall: empty machines of a list are switched on by their BMCs, get an image of Debian over the network, run it,
// and speak by their agents; then they are provided and commissioned. One boots by its BIOS, and one by UEFI.
func TestInstall(t *testing.T) {
	if os.Getenv("CLUSTERM_IMAGES") == "" {
		t.Skip("it takes 10 minutes: make images runs it")
	}

	w := newWorld(t, setup{hosts: 1, noAgents: true, config: bootConfig})

	machines := []*machine{
		w.newMachine(machine{
			name: "vm1", mac: "52:54:00:77:03:01", firmware: bios, bmcPort: 6251, memory: 1024, size: 5 << 30,
		}),
		w.newMachine(machine{
			name: "vm2", mac: "52:54:00:77:03:02", firmware: bareUEFI, bmcPort: 6252, memory: 1024, size: 5 << 30,
		}),
	}

	w.ctl("nodes", "import", w.list(machines[0].registered(), machines[1].registered()))
	w.write("host1", "/root/kernel.deb", kernelPackage(t))
	w.ctl("image", "add", "environment", "/root/kernel.deb")
	w.write("host1", "/root/debian.raw.zst", debianImage(t))
	w.ctl("image", "add", "debian", "/root/debian.raw.zst", "--boot", "both", "--min-disk", "2G")
	w.ctl("vars", "set", "--node", "vm1", `cloud_config={"write_files": [{"path": "/etc/motd", "content": "hello"}]}`)

	begun := time.Now()
	w.ctl("nodes", "install", "vm1", "vm2", "--image", "debian", "--no-wait")

	var r result
	for range 6 { // a command ends after 5 minutes
		if r = w.tryCtl("job", "wait", "last", "--wait-timeout", "4m"); r.code != 1 {
			break
		}
	}
	t.Logf("two machines were installed in %.0f s: %v", time.Since(begun).Seconds(), r)

	for _, m := range machines {
		b := decode[api.NodeBoots](w, w.ctl("nodes", "boots", m.name, "-o", "json")).Boots
		if len(b) == 0 {
			t.Fatal(m.name + " was not booted")
		}
		for _, e := range b[len(b)-1].Events {
			t.Logf("%s %5.1f s %s: %s", m.name, e.At.Sub(b[len(b)-1].Begun).Seconds(), e.From, e.Text)
		}

		n := decode[api.List[api.Node]](w, w.ctl("nodes", "get", m.name, "-o", "json")).Items[0]
		if n.Status != inventory.Manageable || n.State != inventory.Discovered || n.Installed == nil ||
			n.Installed.Image != "debian" || len(n.HostKeys) == 0 || !strings.HasPrefix(n.Addr, "10.77.0.2") {
			t.Errorf("%s is %+v", m.name, n)
		}
	}
	if r.code != 0 {
		t.Fatal(r)
	}

	// What the system says of itself.
	facts := w.sh(
		"host1",
		"clusterctl nodes inspect --yes vm1 vm2 && clusterctl nodes facts vm1 && clusterctl nodes facts vm2",
	)
	t.Log(facts.stdout)

	w.ctl("nodes", "provide", "vm1", "vm2")
	w.ctl("nodes", "commission", "vm1", "vm2", "-g", "service-master")

	for _, m := range machines {
		n := decode[api.List[api.Node]](w, w.ctl("nodes", "get", m.name, "-o", "json")).Items[0]
		if n.Status != inventory.Allocated {
			t.Errorf("%s is %s: %s", m.name, n.Status, n.LastError)
		}
	}
}
