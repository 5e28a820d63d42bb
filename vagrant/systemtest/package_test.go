// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// makePackage builds a package of the programs under test with that version.
func makePackage(t *testing.T, packager, version string) string {
	t.Helper()

	dist := t.TempDir()
	cmd := exec.CommandContext(suite.ctx, repoFile("cmd/clusterm/package/build"), packager)
	cmd.Env = append(os.Environ(), "BIN="+suite.bin, "DIST="+dist, "PKGVERSION="+version)

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v (is there bin/nfpm? try make bin/nfpm)\n%s", err, out)
	}

	files, err := filepath.Glob(dist + "/*")
	if err != nil || len(files) != 1 {
		t.Fatalf("want one package: %v, %v", files, err)
	}
	return files[0]
}

// output runs a command of this machine and returns its output.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()

	out, err := exec.CommandContext(suite.ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestPackageContent inspects both packages with the tools of their distributions.
func TestPackageContent(t *testing.T) {
	skipWithoutLab(t)
	t.Parallel()

	deb, rpm := makePackage(t, "deb", "1.2.3"), makePackage(t, "rpm", "1.2.3")
	checkFiles(t, "deb", output(t, "dpkg-deb", "-c", deb), "/usr/share/zsh/vendor-completions/_clusterctl")
	checkFiles(t, "rpm", output(t, "rpm", "-qlvp", rpm), "/usr/share/zsh/site-functions/_clusterctl")

	got := output(t, "dpkg-deb", "-f", deb, "Package", "Version", "Depends", "Recommends")
	if got != "Package: clusterm\nVersion: 1.2.3-1\n"+
		"Depends: ansible-core (>= 2.14), systemd\nRecommends: openssh-client\n" {
		t.Errorf("control fields: %s", got)
	}

	format := "%{NAME} %{VERSION} %{LICENSE}\n[%{REQUIRENAME} %{REQUIREVERSION}\n]"

	got = output(t, "rpm", "-qp", "--qf", format, rpm)
	if !strings.HasPrefix(got, "clusterm 1.2.3 Apache-2.0\n") || !strings.Contains(got, "ansible-core 2.14\n") {
		t.Errorf("tags: %s", got)
	}
	got = output(t, "rpm", "-Kv", "--nosignature", rpm)
	if !strings.Contains(got, "OK") || strings.Contains(got, "BAD") {
		t.Errorf("digests: %s", got)
	}

	checkFileFlags(t, rpm)

	// The same source makes the same bytes.
	for packager, first := range map[string]string{"deb": deb, "rpm": rpm} {
		second := makePackage(t, packager, "1.2.3")
		if strings.Fields(output(t, "sha256sum", first))[0] != strings.Fields(output(t, "sha256sum", second))[0] {
			t.Errorf("two builds of the %s package differ", packager)
		}
	}

	dir := t.TempDir()
	output(t, "dpkg-deb", "-x", deb, dir)
	checkLicenses(t, dir)
	checkManualPages(t, dir)
}

// checkFiles requires the files of a package in its listing, with the owner root.
func checkFiles(t *testing.T, packager, list, zshCompletion string) {
	t.Helper()

	for _, path := range []string{
		"/usr/bin/clusterm",
		"/usr/bin/clusterctl",
		"/usr/lib/systemd/system/clusterm.service",
		"/usr/lib/systemd/system/clusterm-agent.service",
		"/usr/lib/systemd/system/clusterm-monitor.service",
		"/usr/share/doc/clusterm/monitor.yaml",
		"/usr/share/doc/clusterm/serf-handler.sh",
		"/usr/lib/sysusers.d/clusterm.conf",
		"/etc/clusterm/clusterm.yaml",
		"/usr/share/bash-completion/completions/clusterctl",
		"/usr/share/fish/vendor_completions.d/clusterctl.fish",
		"/usr/share/man/man1/clusterctl.1.gz",
		"/usr/share/man/man5/clusterm.yaml.5.gz",
		"/usr/share/man/man8/clusterm.8.gz",
		"/usr/share/ansible/collections/ansible_collections/contiv/clusterm/plugins/inventory/nodes.py",
		"/usr/share/clusterm/playbooks/site.yml",
		"/usr/share/clusterm/playbooks/roles/etcd/tasks/main.yml",
		"/usr/share/doc/clusterm/README.md",
		"/usr/share/doc/clusterm/docs/operating/README.md",
		"/usr/share/doc/clusterm/copyright",
		zshCompletion,
	} {
		if !strings.Contains(list, path+"\n") {
			t.Errorf("%s: no %s in\n%s", packager, path, list)
		}
	}

	for _, line := range strings.Split(strings.TrimSpace(list), "\n") {
		mode := strings.Fields(line)[0]
		if !strings.Contains(line, "root") || strings.HasPrefix(mode, "d") && mode != "drwxr-xr-x" {
			t.Errorf("%s: wrong owner or mode: %s", packager, line)
		}
	}
}

// checkFileFlags requires of an RPM package configuration that is not replaced,
// documents that a host may omit, a license that it may not, and no directory of
// the distribution.
func checkFileFlags(t *testing.T, rpm string) {
	t.Helper()

	flags := output(t, "rpm", "-qp", "--qf", "[%{FILEFLAGS:fflags} %{FILEMODES:perms} %{FILENAMES}\n]", rpm)
	for _, want := range []string{
		"cn -rw------- /etc/clusterm/clusterm.yaml",
		"l -rw-r--r-- /usr/share/doc/clusterm/copyright",
		"l -rw-r--r-- /usr/share/doc/clusterm/licenses.gz",
		"d -rw-r--r-- /usr/share/doc/clusterm/README.md",
		"d -rw-r--r-- /usr/share/man/man1/clusterctl.1.gz",
		"d -rw-r--r-- /usr/share/man/man5/clusterm.yaml.5.gz",
		"d -rw-r--r-- /usr/share/man/man8/clusterm.8.gz",
		" -rw-r--r-- /usr/share/clusterm/playbooks/site.yml",
		" -rwxr-xr-x /usr/share/doc/clusterm/serf-handler.sh",
	} {
		if !strings.Contains("\n"+flags, "\n"+want+"\n") {
			t.Errorf("no %q in\n%s", want, flags)
		}
	}

	for _, line := range strings.Split(strings.TrimSpace(flags), "\n") {
		if strings.HasPrefix(line, " d") && !strings.Contains(line, "/clusterm") && !strings.Contains(line, "/contiv") {
			t.Errorf("a directory of the distribution: %s", line)
		}
	}
}

// checkLicenses requires the license of every module in the programs. dir is the
// extracted package.
func checkLicenses(t *testing.T, dir string) {
	t.Helper()

	licenses := output(t, "zcat", dir+"/usr/share/doc/clusterm/licenses.gz")

	modules := output(t, "go", "version", "-m", dir+"/usr/bin/clusterm", dir+"/usr/bin/clusterctl")
	for _, line := range strings.Split(modules, "\n") {
		f := strings.Fields(line)
		if len(f) > 2 && f[0] == "dep" && !strings.Contains(licenses, "===== "+f[1]+" "+f[2]+" =====\n") {
			t.Errorf("no license of %s", f[1])
		}
	}

	for _, text := range []string{
		"Mozilla Public License", "The Go Authors", "This is free and unencumbered software",
	} {
		if !strings.Contains(licenses, text) {
			t.Errorf("the licenses lack %q", text)
		}
	}
}

// checkManualPages requires that man prints every page without a warning, and that
// each names its command.
func checkManualPages(t *testing.T, dir string) {
	t.Helper()

	pages, err := filepath.Glob(filepath.Join(dir, "usr/share/man/man*/*.gz"))
	if err != nil || len(pages) < 10 {
		t.Errorf("manual pages: %v, %v", pages, err)
	}

	for _, page := range pages {
		var warnings strings.Builder

		cmd := exec.CommandContext(suite.ctx, "man", "--warnings", "-l", page)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANPAGER=cat", "MANWIDTH=120")
		cmd.Stderr = &warnings

		out, err := cmd.Output()
		if err != nil || warnings.Len() > 0 {
			t.Errorf("%s: %v\n%s", page, err, &warnings)
		}

		// clusterctl-nodes-get.1.gz: "clusterctl nodes get". man may break hyphens.
		command, _, _ := strings.Cut(filepath.Base(page), ".")

		spaced := strings.NewReplacer("-", " ")
		if !strings.Contains(spaced.Replace(string(out)), spaced.Replace(command)) {
			t.Errorf("%s does not name its command:\n%s", page, out)
		}
	}
}

// packaging is an administrator's handling of one kind of package.
type packaging struct {
	packager string
	// Command lines. The file of the package follows the first two.
	install, upgrade, withdraw string
}

// TestPackage takes both packages through their whole life on two hosts: installed,
// used, upgraded during a job, and removed without unexpected remains.
func TestPackage(t *testing.T) {
	skipWithoutLab(t)
	t.Parallel()

	t.Run("deb", func(t *testing.T) {
		w := newWorld(t, setup{hosts: 2, noManager: true})
		for _, h := range w.hosts {
			// The lab's image leaves out manual pages and documents.
			w.sh(h, "rm /etc/dpkg/dpkg.cfg.d/lab")
		}

		deb := packaging{packager: "deb", install: "dpkg -i", upgrade: "dpkg -i", withdraw: "dpkg -r clusterm"}
		w.usePackage(deb, map[string]string{})
		w.refusedPurge()

		for _, h := range w.hosts {
			w.sh(h, "CLUSTERM_PURGE=yes dpkg -P clusterm")

			if left := w.packageFiles(h); left != "" {
				t.Errorf("left on %s: %s", h, left)
			}
		}
	})
	t.Run("rpm", func(t *testing.T) {
		w := newWorld(t, setup{hosts: 2, noManager: true})
		w.provideDependencies(makePackage(t, "rpm", "1.0.0"))
		// With a site's preset, the package enables the unit.
		w.write("host2", "/etc/systemd/system-preset/00-a-site.preset", "enable clusterm-agent.service\n")
		rpm := packaging{packager: "rpm", install: "rpm -i", upgrade: "rpm -U", withdraw: "rpm -e clusterm"}
		w.usePackage(rpm, map[string]string{"host2": "clusterm-agent"})

		got := strings.TrimSpace(w.try("host1", "rpm -V clusterm").stdout)
		if got != "S.5....T.  c /etc/clusterm/clusterm.yaml" {
			t.Errorf("changed since the installation: %q", got)
		}

		// The removal of an RPM leaves data, and changed configuration under another name.
		for h, want := range map[string]string{
			"host1": "/etc/clusterm/clusterm.yaml.rpmsave\n/var/lib/clusterm\n",
			"host2": "/etc/clusterm/agent.yaml\n/etc/clusterm/gossip.key\n/var/lib/clusterm-agent\n",
		} {
			w.sh(h, rpm.withdraw)
			w.sh(
				h,
				"mkdir /tmp/left && mv $(ls -d /etc/clusterm/* /var/lib/clusterm*) /tmp/left/ && rmdir /etc/clusterm",
			)

			got := w.sh(h, "cd /tmp/left && ls -d *").stdout
			for _, path := range strings.Fields(want) {
				got = strings.Replace(got, filepath.Base(path)+"\n", "", 1)
			}

			if left := got + w.packageFiles(h); left != "" {
				t.Errorf("left on %s, besides %s: %s", h, strings.Fields(want), left)
			}
		}

		got = w.sh(
			"host1",
			"cd /tmp/left && grep ^log_level clusterm.yaml.rpmsave; stat -c %a clusterm.yaml.rpmsave",
		).stdout
		if got != "log_level: debug\n600\n" {
			t.Errorf("the saved configuration: %s", got)
		}
	})
}

// refusedPurge requires that a purge with a node in service changes nothing, and goes back by
// what it prints.
func (w *world) refusedPurge() {
	w.t.Helper()

	name := w.name("host2")
	refused := w.try("host1", "dpkg -P clusterm")

	for _, want := range []string{name, "CLUSTERM_PURGE=yes", "/var/lib/clusterm/clusterm.yaml.removed"} {
		if refused.code == 0 || !strings.Contains(refused.stderr, want) {
			w.t.Errorf("exit %d, no %q in %s", refused.code, want, refused.stderr)
		}
	}

	w.sh(
		"host1",
		"dpkg -i /root/newer.deb && cp /var/lib/clusterm/clusterm.yaml.removed /etc/clusterm/clusterm.yaml && "+
			"systemctl enable --quiet --now clusterm && systemctl restart clusterm",
	)
	w.awaitHealthy()

	if n := w.node("host2"); n.Name != name || n.Status != inventory.Allocated {
		w.t.Errorf("after going back: %+v", n)
	}
}

// provideDependencies installs a stand-in for the dependencies of the RPM package,
// which Debian's own packages provide in fact, and requires that RPM refuses the
// package where ansible-core is too old.
func (w *world) provideDependencies(pkg string) {
	w.t.Helper()
	provide := func(core string) string {
		dir := w.t.TempDir()

		description := filepath.Join(dir, "nfpm.yaml")
		content := fmt.Sprintf("{name: distribution, arch: all, version: %s, maintainer: lab, description: lab,"+
			" provides: [ansible-core = %[1]s, systemd = 252]}", core)

		errtest.None(w.t, os.WriteFile(description, []byte(content), 0o600))

		target := dir + "/distribution.rpm"
		output(w.t, repoFile("bin/nfpm"), "package", "--config", description, "--packager", "rpm", "--target", target)

		return target
	}

	w.labDo("cp", pkg, "host1:/root/older.rpm")
	w.labDo("cp", provide("2.13.9"), "host1:/root/distribution.rpm")
	w.sh("host1", "rpm -i /root/distribution.rpm")

	r := w.try("host1", "rpm -i /root/older.rpm")
	if r.code == 0 || !strings.Contains(r.stderr, "ansible-core >= 2.14 is needed") ||
		strings.Contains(r.stderr, "systemd is needed") {
		w.t.Errorf("with an ansible-core that is too old: %s", r)
	}

	distribution := provide("2.14.18")
	for _, h := range w.hosts {
		w.labDo("cp", distribution, h+":/root/distribution.rpm")
		w.sh(h, "rpm -U /root/distribution.rpm")
	}
}

// packageFiles lists files and processes on a host with clusterm in their name, except
// logs and the files of the test.
func (w *world) packageFiles(host string) string {
	w.t.Helper()

	return w.sh(
		host,
		`find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /root -o -path /var/lib/dpkg \
		-o -path /var/log -o -path /var/lib/.clusterm-fence \) -prune -o -iname '*clusterm*' -print
		find /run -maxdepth 1 -iname '*clusterm*'; pgrep -a clusterm || true`,
	).stdout
}

// usePackage installs, uses and upgrades a package, withdraws it from host1 and
// installs it there again. enabled are the units that the installation enables, by
// host.
func (w *world) usePackage(p packaging, enabled map[string]string) {
	w.t.Helper()

	t := w.t
	older, newer := "/root/older."+p.packager, "/root/newer."+p.packager

	first, second := makePackage(t, p.packager, "1.0.0"), makePackage(t, p.packager, "1.0.1")
	for _, h := range w.hosts {
		w.labDo("cp", first, h+":"+older)
		w.labDo("cp", second, h+":"+newer)
		w.sh(h, p.install+" "+older)

		for _, unit := range []string{"clusterm", "clusterm-agent", "clusterm-monitor"} {
			want := "disabled\ninactive\n"
			if enabled[h] == unit {
				want = "enabled\ninactive\n"
			}
			if got := w.try(h, "systemctl is-enabled "+unit+"; systemctl is-active "+unit).stdout; got != want {
				t.Errorf("%s on %s after the installation: %s", unit, h, got)
			}
		}
	}

	w.labDo("cp", w.keyFile(), "host1:/root/.ssh/id_ed25519")
	w.labDo("cp", "testdata/playbooks", "host1:"+testPlaybooks)

	// The manager, by its unit, with the configuration of the package.
	w.sh("host1", "clusterm check && systemctl enable --quiet --now clusterm")
	w.awaitHealthy()
	w.setName("host1", 12)
	w.setName("host2", 12)
	w.awaitState(inventory.Discovered, "host1")

	if got := w.ctl("status").stdout; !strings.Contains(got, "ansible") && !strings.Contains(got, "Ansible") {
		t.Errorf("status: %s", got)
	}

	w.sh("host1", `. /usr/share/bash-completion/completions/clusterctl && complete -p clusterctl`)

	for _, page := range []string{"man1/clusterctl.1.gz", "man8/clusterm.8.gz"} {
		w.sh("host1", "zcat /usr/share/man/"+page+" | grep -q '^.TH CLUSTER'")
	}

	// The agent, as an unprivileged user.
	w.write("host2", "/etc/clusterm/gossip.key", w.gossipKey()+"\n")
	w.sh("host2", "chown clusterm: /etc/clusterm/gossip.key")
	w.write("host2", "/etc/clusterm/agent.yaml",
		fmt.Sprintf("node: {label: host2, serial: %q, addr: %q}\ngossip: {join: ['%s:7946']}\n",
			w.serial("host2"), addr("host2"), addr("host1")))
	w.sh("host2", "chmod 0644 /etc/clusterm/agent.yaml; systemctl enable --quiet --now clusterm-agent")
	w.awaitState(inventory.Discovered, "host2")

	users := strings.Fields(w.sh("host2",
		`ps -o user= -p "$(systemctl show -P MainPID clusterm-agent)"; stat -c %U /var/lib/clusterm-agent`).stdout)
	if !slices.Equal(users, []string{"clusterm", "clusterm"}) {
		t.Errorf("the agent's user and the owner of its directory: %v", users)
	}

	if got := w.sh("host2", "journalctl -o cat -u clusterm-agent").stdout; strings.Contains(got, "level=warning") {
		t.Errorf("the agent logs warnings: %s", got)
	}

	// An upgrade during a job.
	w.sh("host1", "sed -i 's/^log_level: .*/log_level: debug/' /etc/clusterm/clusterm.yaml")
	w.ctl("config", "set", "playbooks="+testPlaybooks)
	id := w.submit("nodes", "commission", "-g", master, "-e", "hold: go", w.name("host2"))
	w.awaitLog(id, "Wait to be released")
	runner := w.sh("host1", "pgrep -f 'clusterm runner'").stdout
	before := map[string]string{}

	units := map[string]string{"host1": "clusterm", "host2": "clusterm-agent"}
	for h, unit := range units {
		before[h] = w.sh(h, "systemctl show -P MainPID "+unit).stdout
		w.sh(h, p.upgrade+" "+newer)

		if after := w.sh(h, "systemctl show -P MainPID "+unit).stdout; after == before[h] || after == "0\n" {
			t.Errorf("%s was not restarted on %s", unit, h)
		}
	}

	w.awaitHealthy()

	if got := w.sh("host1", "grep ^log_level /etc/clusterm/clusterm.yaml").stdout; got != "log_level: debug\n" {
		t.Errorf("the configuration after the upgrade: %s", got)
	}

	if now := w.sh("host1", "pgrep -f 'clusterm runner'").stdout; now != runner {
		t.Errorf("the runner is process %q, want %q", now, runner)
	}

	w.release("go", "host2")

	if j := w.awaitJob(id); j.Status != api.Complete || len(j.Runs) != 1 {
		t.Errorf("%+v", j)
	}

	w.wantNode("host2", inventory.Allocated, master)

	// The state survives a removal and another installation.
	w.sh("host1", p.withdraw)

	if r := w.try("host1", "pgrep -x clusterm || test -e /usr/bin/clusterm || test -e /run/clusterm"); r.code == 0 {
		t.Errorf("after the removal: %s", r)
	}

	dangling := w.try("host1", "find /etc/systemd/system -xtype l -name 'clusterm*'").stdout
	if p.packager == "rpm" && dangling != "" {
		t.Errorf("the removal leaves units enabled: %s", dangling)
	}

	w.sh("host1", p.install+" "+newer)
	w.sh("host1", "cd /etc/clusterm && { [ ! -e clusterm.yaml.rpmsave ] || mv clusterm.yaml.rpmsave clusterm.yaml; }; "+
		"systemctl start clusterm")
	w.awaitHealthy()
	w.wantNode("host2", inventory.Allocated, master)
}
