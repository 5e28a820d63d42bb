// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestVagrant does on hosts of the lab what the Vagrantfile has done on virtual
// machines: uploads, provision, and the main job from within host1.
func TestVagrant(t *testing.T) {
	w := newWorld(t, setup{empty: true})
	deb, keys := makePackage(t, "deb", "1.0.0"), t.TempDir()
	key := filepath.Join(keys, "id_ed25519")
	output(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	provision := func(host string) {
		t.Helper()
		w.lab("cp", key+".pub", host+":/tmp/clusterm/id_ed25519.pub")
		if host == "host1" {
			w.lab("cp", key, host+":/tmp/clusterm/id_ed25519")
			w.lab("cp", deb, host+":/tmp/clusterm/clusterm.deb")
		}
		w.lab("cp", "../provision", host+":/tmp/vagrant-shell")
		w.sh(host, "bash /tmp/vagrant-shell "+host+" 4")
	}
	for _, h := range w.hosts {
		w.sh(h, "mkdir -p /tmp/clusterm; echo '127.0.1.1 "+h+"' >>/etc/hosts; rm -f /root/.ssh/authorized_keys")
		provision(h)
		before := w.sh(h, "cat /etc/hosts; cat /root/.ssh/authorized_keys || true; systemctl show -P MainPID clusterm || true").stdout
		provision(h) // again
		if after := w.sh(h, "cat /etc/hosts; cat /root/.ssh/authorized_keys || true; systemctl show -P MainPID clusterm || true").stdout; after != before {
			t.Errorf("%s: a second run has changed something:\n%s\n%s", h, before, after)
		}
		w.names[h] = h + "-" + w.sh(h, "cat /etc/machine-id").stdout[:12]
	}
	if got := w.sh("host1", "getent hosts host1; ls /tmp/clusterm").stdout; strings.Contains(got, "127.0.1.1") || strings.Contains(got, "id_ed25519\n") {
		t.Errorf("on host1: %s", got)
	}
	if n := w.node("host1"); n.Addr != addr("host1") {
		t.Errorf("host1 is known at %s", n.Addr)
	}
	w.lab("cp", "../flow", "host1:/tmp/vagrant-shell")
	out := w.sh("host1", "bash /tmp/vagrant-shell").stdout
	if !strings.Contains(out, "hello from the master") {
		t.Errorf("%s", out)
	}
	w.is("host2", inventory.Allocated, master)
	w.is("host3", inventory.Allocated, worker)
	w.is("host4", inventory.Decommissioned, "")
	if r := w.try("host2", "bash /tmp/vagrant-shell host2 x"); r.code != 2 || !strings.Contains(r.stderr, "usage") {
		t.Errorf("%s", r)
	}
	if r := w.try("host2", "bash /tmp/vagrant-shell host3 4"); r.code != 1 || !strings.Contains(r.stderr, "10.77.0.13") {
		t.Errorf("%s", r)
	}
}

// TestVagrantfile: Ruby can read it.
func TestVagrantfile(t *testing.T) {
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Skip("needs ruby, which nothing else does")
	}
	if out, err := exec.Command("ruby", "-c", "../Vagrantfile").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
