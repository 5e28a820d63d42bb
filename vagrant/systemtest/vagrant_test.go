// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestVagrant runs the provisioning of the Vagrantfile on hosts of the lab: uploads,
// provision, and the main job from within host1.
func TestVagrant(t *testing.T) {
	w := newWorld(t, setup{noManager: true})
	deb, keys := makePackage(t, "deb", "1.0.0"), t.TempDir()
	key := filepath.Join(keys, "id_ed25519")
	output(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)

	provision := func(host string) {
		t.Helper()
		w.labDo("cp", key+".pub", host+":/tmp/clusterm/id_ed25519.pub")

		if host == "host1" {
			w.labDo("cp", key, host+":/tmp/clusterm/id_ed25519")
			w.labDo("cp", deb, host+":/tmp/clusterm/clusterm.deb")
		}

		w.labDo("cp", "../provision", host+":/tmp/vagrant-shell")
		w.sh(host, "bash /tmp/vagrant-shell "+host+" 4")
	}
	for _, h := range w.hosts {
		// A box has neither Ansible nor Python, and Vagrant adds its names to /etc/hosts.
		if h == "host1" || h == "host2" {
			w.sh(h, "apt-get purge -qq -y --auto-remove ansible-core 'python3*' >/dev/null && ! command -v python3")
		}

		w.sh(h, "mkdir -p /tmp/clusterm; rm -f /root/.ssh/authorized_keys")
		w.sh(h, "printf '127.0.1.1 bookworm\\n127.0.2.1 "+h+" "+h+"\\n' >>/etc/hosts")

		state := func() string {
			return w.sh(h, "cat /etc/hosts; cat /root/.ssh/authorized_keys || true; "+
				"systemctl show -P MainPID clusterm || true").stdout
		}

		provision(h)

		before := state()

		provision(h)

		if after := state(); after != before {
			t.Errorf("%s: a second run changed something:\n%s\n%s", h, before, after)
		}

		w.setName(h, 12)
	}

	got := w.sh("host1", "getent hosts host1; ls /tmp/clusterm").stdout
	if strings.Contains(got, "127.0.") || strings.Contains(got, "id_ed25519\n") {
		t.Errorf("host1 resolves its name to a loopback address, or its key is left: %s", got)
	}

	if n := w.node("host1"); n.Addr != addr("host1") {
		t.Errorf("the address of host1 is %s", n.Addr)
	}

	w.labDo("cp", "../flow", "host1:/tmp/vagrant-shell")

	out := w.sh("host1", "bash /tmp/vagrant-shell").stdout
	if !strings.Contains(out, "hello from the master") {
		t.Errorf("the output of flow lacks the greeting: %s", out)
	}

	w.wantNode("host2", inventory.Allocated, master)
	w.wantNode("host3", inventory.Allocated, worker)
	w.wantNode("host4", inventory.Decommissioned, "")

	if r := w.try("host2", "bash /tmp/vagrant-shell host2 x"); r.code != 2 || !strings.Contains(r.stderr, "usage") {
		t.Errorf("provision with a wrong count: %s", r)
	}

	r := w.try("host2", "bash /tmp/vagrant-shell host3 4")
	if r.code != 1 || !strings.Contains(r.stderr, addr("host3")) {
		t.Errorf("provision of another host: %s", r)
	}
}

// vagrantMachine is a machine as testdata/vagrant.rb prints it.
type vagrantMachine struct {
	Name, Box, Hostname string
	Primary             bool
	Networks            []struct{ Type, IP, VirtualBox, Libvirt string }
	Folders             []struct{ Disabled bool }
	Providers           map[string]struct{ Memory int }
	Provisioners        []struct {
		Name, Type, Run, Source, Destination, Path string
		Args                                       []string
	}
}

// TestVagrantfile evaluates the Vagrantfile as Vagrant would, and checks the hosts:
// addresses, uploads and provisioning.
func TestVagrantfile(t *testing.T) {
	if _, err := exec.LookPath("ruby"); err != nil {
		if suite.skip == "" {
			t.Fatal("ruby is not installed: run make deps")
		}

		t.Skip("needs ruby: make deps")
	}

	stub, err := filepath.Abs("testdata/vagrant.rb")
	errtest.None(t, err)

	root := t.TempDir()

	dir, dist := filepath.Join(root, "vagrant"), filepath.Join(root, "dist")
	state := filepath.Join(dir, ".vagrant/clusterm")

	for _, d := range []string{dir, dist} {
		errtest.None(t, os.Mkdir(d, 0o755))
	}

	output(t, "cp", "../Vagrantfile", "../provision", "../flow", dir)

	// evaluate returns the machines of a command, or its error message.
	evaluate := func(command string, env ...string) ([]vagrantMachine, string) {
		t.Helper()

		var stderr strings.Builder

		cmd := exec.Command("ruby", "-r", stub, "Vagrantfile", command)
		cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), &stderr

		out, err := cmd.Output()
		if err != nil {
			return nil, stderr.String()
		}

		var machines []vagrantMachine
		if err := json.Unmarshal(out, &machines); err != nil || stderr.Len() > 0 {
			t.Fatalf("%v\n%s\n%s", err, out, &stderr)
		}

		return machines, ""
	}

	// A status needs no package and writes nothing; up needs a package.
	if machines, message := evaluate("status"); len(machines) != 4 || machines[3].Box != "debian/bookworm64" {
		t.Errorf("%+v %s", machines, message)
	}

	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("status made a key: %v", err)
	}

	if machines, message := evaluate("up"); machines != nil || !strings.Contains(message, "make deb") {
		t.Errorf("up without a package: %+v %s", machines, message)
	}

	for _, count := range []string{"0", "65", "many", ""} {
		machines, message := evaluate("status", "HOSTS="+count)
		if machines != nil || !strings.Contains(message, "HOSTS is "+count+"; set it to 1 to 64") {
			t.Errorf("HOSTS=%s: %+v %s", count, machines, message)
		}
	}

	older, newer := filepath.Join(dist, "clusterm_1.0.1-1_amd64.deb"), filepath.Join(dist, "clusterm_1.0.0-1_amd64.deb")
	for file, age := range map[string]time.Duration{older: time.Hour, newer: 0} {
		errtest.None(t, os.WriteFile(file, nil, 0o600))
		errtest.None(t, os.Chtimes(file, time.Now().Add(-age), time.Now().Add(-age)))
	}

	machines, message := evaluate("up", "HOSTS=3", "BOX=generic/debian12")
	if len(machines) != 3 {
		t.Fatalf("%+v %s", machines, message)
	}

	key, err := os.ReadFile(filepath.Join(state, "id_ed25519"))
	errtest.None(t, err)

	for i, m := range machines {
		name, memory := fmt.Sprintf("host%d", i+1), 512
		if i == 0 {
			memory = 1024
		}
		if m.Name != name || m.Hostname != name || m.Primary != (i == 0) || m.Box != "generic/debian12" {
			t.Errorf("%+v", m)
		}

		if len(m.Folders) != 1 || !m.Folders[0].Disabled {
			t.Errorf("%s: the synced folder is not disabled: %+v", name, m.Folders)
		}

		if m.Providers["virtualbox"].Memory != memory || m.Providers["libvirt"].Memory != memory {
			t.Errorf("%s: want %d MB: %+v", name, memory, m.Providers)
		}

		n := m.Networks
		if len(n) != 1 || n[0].Type != "private_network" || n[0].IP != addr(name) ||
			n[0].VirtualBox != "clusterm" || n[0].Libvirt != "none" {
			t.Errorf("%s: %+v", name, n)
		}

		uploads, steps := map[string]string{}, []string{}

		for _, p := range m.Provisioners {
			if p.Type == "file" && p.Run == "once" {
				if _, err := os.Stat(p.Source); err != nil {
					t.Error(err)
				}

				uploads[p.Destination] = filepath.Base(p.Source)
				continue
			}

			if _, err := os.Stat(filepath.Join(dir, p.Path)); err != nil {
				t.Error(err)
			}

			steps = append(steps, fmt.Sprint(p.Name, p.Type, p.Run, p.Path, p.Args))
		}

		wantUploads := map[string]string{"/tmp/clusterm/id_ed25519.pub": "id_ed25519.pub"}
		wantSteps := []string{fmt.Sprint("shell", "shell", "once", "provision", []string{name, "3"})}

		if i == 0 {
			wantUploads["/tmp/clusterm/id_ed25519"] = "id_ed25519"
			wantUploads["/tmp/clusterm/clusterm.deb"] = filepath.Base(newer)
			wantSteps = append(wantSteps, fmt.Sprint("demo", "shell", "never", "flow", []string{}))
		}

		if !maps.Equal(uploads, wantUploads) || !slices.Equal(steps, wantSteps) {
			t.Errorf("%s gets %v and runs %q, want %v and %q", name, uploads, steps, wantUploads, wantSteps)
		}
	}

	evaluate("provision")

	if again, err := os.ReadFile(filepath.Join(state, "id_ed25519")); err != nil || string(again) != string(key) {
		t.Errorf("a second run replaced the key (%v)", err)
	}

	if info, err := os.Stat(filepath.Join(state, "id_ed25519")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	// Vagrant itself validates its file, if it is installed.
	if _, err := exec.LookPath("vagrant"); err == nil && suite.skip == "" {
		cmd := exec.CommandContext(suite.ctx, "vagrant", "validate", "--ignore-provider")

		cmd.Dir, cmd.Env = dir, append(os.Environ(), "VAGRANT_HOME="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("vagrant validate: %v\n%s", err, out)
		}
	}
}
