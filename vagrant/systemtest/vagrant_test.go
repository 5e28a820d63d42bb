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
		// Plainer than the lab's: these two have to be given Ansible and Python. And
		// Vagrant has set the name.
		if h == "host1" || h == "host2" {
			w.sh(h, "apt-get purge -qq -y --auto-remove ansible-core 'python3*' >/dev/null && ! command -v python3")
		}

		w.sh(
			h,
			"mkdir -p /tmp/clusterm; printf '127.0.1.1 bookworm\\n127.0.2.1 "+h+" "+h+"\\n' >>/etc/hosts; rm -f /root/.ssh/authorized_keys",
		)
		provision(h)
		before := w.sh(
			h,
			"cat /etc/hosts; cat /root/.ssh/authorized_keys || true; systemctl show -P MainPID clusterm || true",
		).stdout
		provision(h) // again

		if after := w.sh(
			h,
			"cat /etc/hosts; cat /root/.ssh/authorized_keys || true; systemctl show -P MainPID clusterm || true",
		).stdout; after != before {
			t.Errorf("%s: a second run has changed something:\n%s\n%s", h, before, after)
		}

		w.names[h] = h + "-" + w.sh(h, "cat /etc/machine-id").stdout[:12]
	}

	if got := w.sh(
		"host1",
		"getent hosts host1; ls /tmp/clusterm",
	).stdout; strings.Contains(got, "127.0.") ||
		strings.Contains(got, "id_ed25519\n") {
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

	if r := w.try(
		"host2",
		"bash /tmp/vagrant-shell host3 4",
	); r.code != 1 ||
		!strings.Contains(r.stderr, "10.77.0.13") {
		t.Errorf("%s", r)
	}
}

// machine is what of a machine testdata/vagrant.rb prints.
type machine struct {
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

// TestVagrantfile evaluates it as Vagrant would: hosts, addresses, what is put onto
// them and run there.
func TestVagrantfile(t *testing.T) {
	if _, err := exec.LookPath("ruby"); err != nil {
		if suite.skip == "" {
			t.Fatal("there is no ruby: make deps")
		}

		t.Skip("needs ruby: make deps")
	}

	stub, err := filepath.Abs("testdata/vagrant.rb")
	if err != nil {
		t.Fatal(err)
	}

	root := t.TempDir()

	dir, dist, state := filepath.Join(
		root,
		"vagrant",
	), filepath.Join(
		root,
		"dist",
	), filepath.Join(
		root,
		"vagrant/.vagrant/clusterm",
	)
	for _, d := range []string{dir, dist} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	output(t, "cp", "../Vagrantfile", "../provision", "../flow", dir)
	evaluate := func(command string, env ...string) ([]machine, string) {
		t.Helper()
		cmd := exec.Command("ruby", "-r", stub, "Vagrantfile", command)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		var complaint strings.Builder
		cmd.Stderr = &complaint

		out, err := cmd.Output()
		if err != nil {
			return nil, complaint.String()
		}

		var machines []machine
		if err := json.Unmarshal(out, &machines); err != nil || complaint.Len() > 0 {
			t.Fatalf("%v\n%s\n%s", err, out, &complaint)
		}

		return machines, ""
	}

	// To look at it needs nothing and makes nothing, to make machines needs a package.
	if machines, complaint := evaluate("status"); len(machines) != 4 || machines[3].Box != "debian/bookworm64" {
		t.Errorf("%+v %s", machines, complaint)
	}

	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("a status has made a key: %v", err)
	}

	if machines, complaint := evaluate("up"); machines != nil || !strings.Contains(complaint, "make deb") {
		t.Errorf("up without a package: %+v %s", machines, complaint)
	}

	for _, count := range []string{"0", "65", "many", ""} {
		if machines, complaint := evaluate(
			"status",
			"HOSTS="+count,
		); machines != nil ||
			!strings.Contains(complaint, "HOSTS is "+count+"; 1 to 64 make sense") {
			t.Errorf("HOSTS=%s: %+v %s", count, machines, complaint)
		}
	}

	older, newer := filepath.Join(dist, "clusterm_1.0.1-1_amd64.deb"), filepath.Join(dist, "clusterm_1.0.0-1_amd64.deb")
	for file, age := range map[string]time.Duration{older: time.Hour, newer: 0} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}

		if err := os.Chtimes(file, time.Now().Add(-age), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}

	machines, complaint := evaluate("up", "HOSTS=3", "BOX=generic/debian12")
	if len(machines) != 3 {
		t.Fatalf("%+v %s", machines, complaint)
	}

	key, err := os.ReadFile(filepath.Join(state, "id_ed25519"))
	if err != nil {
		t.Fatal(err)
	}

	for i, m := range machines {
		name, memory := fmt.Sprintf("host%d", i+1), 512
		if i == 0 {
			memory = 1024
		}

		if m.Name != name || m.Hostname != name || m.Primary != (i == 0) || m.Box != "generic/debian12" ||
			len(m.Folders) != 1 ||
			!m.Folders[0].Disabled ||
			m.Providers["virtualbox"].Memory != memory ||
			m.Providers["libvirt"].Memory != memory {
			t.Errorf("%+v", m)
		}

		if n := m.Networks; len(n) != 1 || n[0].Type != "private_network" || n[0].IP != addr(name) ||
			n[0].VirtualBox != "clusterm" ||
			n[0].Libvirt != "none" {
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

		wantUploads, wantSteps := map[string]string{
			"/tmp/clusterm/id_ed25519.pub": "id_ed25519.pub",
		}, []string{
			fmt.Sprint("shell", "shell", "once", "provision", []string{name, "3"}),
		}
		if i == 0 {
			wantUploads["/tmp/clusterm/id_ed25519"], wantUploads["/tmp/clusterm/clusterm.deb"] = "id_ed25519", filepath.Base(
				newer,
			)
			wantSteps = append(wantSteps, fmt.Sprint("demo", "shell", "never", "flow", []string{}))
		}

		if !maps.Equal(uploads, wantUploads) || !slices.Equal(steps, wantSteps) {
			t.Errorf("%s gets %v and runs %q, want %v and %q", name, uploads, steps, wantUploads, wantSteps)
		}
	}

	evaluate("provision")

	if again, err := os.ReadFile(filepath.Join(state, "id_ed25519")); err != nil || string(again) != string(key) {
		t.Errorf("the key is another after a second run (%v)", err)
	}

	if info, err := os.Stat(filepath.Join(state, "id_ed25519")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	// Vagrant itself, where there is one: its file and its own judgement.
	if _, err := exec.LookPath("vagrant"); err == nil && suite.skip == "" {
		cmd := exec.CommandContext(suite.ctx, "vagrant", "validate", "--ignore-provider")

		cmd.Dir, cmd.Env = dir, append(os.Environ(), "VAGRANT_HOME="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("vagrant validate: %v\n%s", err, out)
		}
	}
}
