// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// makePackage builds a package of the programs under test, of that version.
func makePackage(t *testing.T, packager, version string) string {
	t.Helper()
	dist := t.TempDir()
	cmd := exec.CommandContext(suite.ctx, repoFile("cmd/clusterm/package/build"), packager)

	cmd.Env = append(os.Environ(), "BIN="+suite.bin, "DIST="+dist, "PKGVERSION="+version)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v (make bin/nfpm comes first)\n%s", err, out)
	}

	files, err := filepath.Glob(dist + "/*")
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}

	return files[0]
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()

	out, err := exec.CommandContext(suite.ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}

	return string(out)
}

// TestPackageContent looks into both packages with the tools of their
// distributions, and builds one twice.
func TestPackageContent(t *testing.T) {
	if suite.skip != "" {
		t.Skip(suite.skip)
	}

	deb, rpm := makePackage(t, "deb", "1.2.3"), makePackage(t, "rpm", "1.2.3")

	both := []string{
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
		"/usr/share/man/man8/clusterm.8.gz",
		"/usr/share/doc/clusterm/README.md",
		"/usr/share/doc/clusterm/docs/operating/README.md",
		"/usr/share/doc/clusterm/copyright",
	}
	for packager, list := range map[string]string{"deb": output(t, "dpkg-deb", "-c", deb), "rpm": output(t, "rpm", "-qlvp", rpm)} {
		zsh := map[string]string{"deb": "/usr/share/zsh/vendor-completions/_clusterctl", "rpm": "/usr/share/zsh/site-functions/_clusterctl"}[packager]
		for _, path := range append(both, zsh) {
			if !strings.Contains(list, path+"\n") {
				t.Errorf("%s: no %s in\n%s", packager, path, list)
			}
		}

		for _, line := range strings.Split(strings.TrimSpace(list), "\n") {
			if f := strings.Fields(
				line,
			); !strings.Contains(line, "root") ||
				strings.HasPrefix(f[0], "d") && f[0] != "drwxr-xr-x" {
				t.Errorf("%s: %s", packager, line)
			}
		}
	}

	if got := output(t, "dpkg-deb", "-f", deb, "Package", "Version", "Depends", "Recommends"); got !=
		"Package: clusterm\nVersion: 1.2.3-1\nDepends: ansible-core (>= 2.14), systemd\nRecommends: openssh-client\n" {
		t.Errorf("%s", got)
	}

	if got := output(
		t,
		"rpm",
		"-qp",
		"--qf",
		"%{NAME} %{VERSION} %{LICENSE}\n[%{REQUIRENAME} %{REQUIREVERSION}\n]",
		rpm,
	); !strings.HasPrefix(
		got,
		"clusterm 1.2.3 Apache-2.0\n",
	) ||
		!strings.Contains(got, "ansible-core 2.14\n") {
		t.Errorf("%s", got)
	}

	// Configuration that is not replaced, documents that a host may leave out, a
	// license that it may not, and no directory that is the distribution's.
	marks := output(t, "rpm", "-qp", "--qf", "[%{FILEFLAGS:fflags} %{FILEMODES:perms} %{FILENAMES}\n]", rpm)
	for _, want := range []string{
		"cn -rw------- /etc/clusterm/clusterm.yaml", "l -rw-r--r-- /usr/share/doc/clusterm/copyright", "l -rw-r--r-- /usr/share/doc/clusterm/licenses.gz", "d -rw-r--r-- /usr/share/doc/clusterm/README.md",
		"d -rw-r--r-- /usr/share/man/man1/clusterctl.1.gz", "d -rw-r--r-- /usr/share/man/man8/clusterm.8.gz", " -rwxr-xr-x /usr/share/doc/clusterm/serf-handler.sh",
	} {
		if !strings.Contains("\n"+marks, "\n"+want+"\n") {
			t.Errorf("no %q in\n%s", want, marks)
		}
	}

	for _, line := range strings.Split(strings.TrimSpace(marks), "\n") {
		if strings.HasPrefix(line, " d") && !strings.Contains(line, "/clusterm") {
			t.Errorf("a directory of others: %s", line)
		}
	}

	if got := output(
		t,
		"rpm",
		"-Kv",
		"--nosignature",
		rpm,
	); !strings.Contains(got, "OK") ||
		strings.Contains(got, "BAD") {
		t.Errorf("%s", got)
	}

	for _, packager := range []string{"deb", "rpm"} {
		a, b := map[string]string{"deb": deb, "rpm": rpm}[packager], makePackage(t, packager, "1.2.3")
		if x, y := strings.Fields(output(t, "sha256sum", a))[0], strings.Fields(output(t, "sha256sum", b))[0]; x != y {
			t.Errorf("two %s packages of the same are not the same", packager)
		}
	}

	dir := t.TempDir()
	output(t, "dpkg-deb", "-x", deb, dir)

	licenses := output(t, "zcat", dir+"/usr/share/doc/clusterm/licenses.gz")
	for _, module := range strings.Split(output(t, "go", "version", "-m", dir+"/usr/bin/clusterm", dir+"/usr/bin/clusterctl"), "\n") {
		if f := strings.Fields(
			module,
		); len(f) > 2 && f[0] == "dep" &&
			!strings.Contains(licenses, "===== "+f[1]+" "+f[2]+" =====\n") {
			t.Errorf("no license of %s", f[1])
		}
	}

	for _, words := range []string{"Mozilla Public License", "The Go Authors", "This is free and unencumbered software"} {
		if !strings.Contains(licenses, words) {
			t.Errorf("the licenses do not say %q", words)
		}
	}

	// Manual pages that man has no complaint about.
	pages, err := filepath.Glob(filepath.Join(dir, "usr/share/man/man*/*.gz"))
	if err != nil || len(pages) < 10 {
		t.Errorf("manual pages: %v, %v", pages, err)
	}

	for _, page := range pages {
		cmd := exec.CommandContext(suite.ctx, "man", "--warnings", "-l", page)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANPAGER=cat", "MANWIDTH=120")
		var complaints strings.Builder
		cmd.Stderr = &complaints
		text, err := cmd.Output()
		// clusterctl-nodes-get.1.gz: "clusterctl nodes get"
		command, _, _ := strings.Cut(filepath.Base(page), ".")
		if err != nil || complaints.Len() > 0 ||
			!strings.Contains(strings.ReplaceAll(string(text), "-", " "), strings.ReplaceAll(command, "-", " ")) {
			t.Errorf("%s: %v\n%s\n%s", page, err, &complaints, text)
		}
	}
}

// packaging is how an administrator handles one kind of package.
type packaging struct {
	packager                   string
	install, upgrade, withdraw string // command lines; the package's file follows the first two
}

// TestPackage: both packages in their whole life on two hosts: installed, used,
// upgraded in the middle of a job, removed; what is left is what should be.
func TestPackage(t *testing.T) {
	t.Run("deb", func(t *testing.T) {
		w := newWorld(t, setup{hosts: 2, empty: true})
		for _, h := range w.hosts {
			// The lab's image leaves out manual pages and documents.
			w.sh(h, "rm /etc/dpkg/dpkg.cfg.d/lab")
		}

		deb := packaging{packager: "deb", install: "dpkg -i", upgrade: "dpkg -i", withdraw: "dpkg -r clusterm"}
		w.livePackaged(deb, map[string]string{})

		for _, h := range w.hosts {
			w.sh(h, "dpkg -P clusterm")

			if left := w.leftOfPackage(h); left != "" {
				t.Errorf("left on %s: %s", h, left)
			}
		}
	})
	t.Run("rpm", func(t *testing.T) {
		w := newWorld(t, setup{hosts: 2, empty: true})
		w.playRedHat(makePackage(t, "rpm", "1.0.0"))
		// A site's preset, and the administrator has nothing to enable.
		w.write("host2", "/etc/systemd/system-preset/00-a-site.preset", "enable clusterm-agent.service\n")
		rpm := packaging{packager: "rpm", install: "rpm -i", upgrade: "rpm -U", withdraw: "rpm -e clusterm"}
		w.livePackaged(rpm, map[string]string{"host2": "clusterm-agent"})

		if got := w.try(
			"host1",
			"rpm -V clusterm",
		).stdout; strings.TrimSpace(
			got,
		) != "S.5....T.  c /etc/clusterm/clusterm.yaml" {
			t.Errorf("changed since the installation: %q", got)
		}

		// An RPM leaves data, and the configuration that was changed under another name.
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

			if left := got + w.leftOfPackage(h); left != "" {
				t.Errorf("left on %s, beside %s: %s", h, strings.Fields(want), left)
			}
		}

		if got := w.sh(
			"host1",
			"grep ^log_level /tmp/left/clusterm.yaml.rpmsave; stat -c %a /tmp/left/clusterm.yaml.rpmsave",
		).stdout; got != "log_level: debug\n600\n" {
			t.Errorf("the configuration that was kept: %s", got)
		}
	})
}

// playRedHat has the hosts' RPM believe that what Debian's own packages brought is
// there, and looks whether it minds where that is missing or too old.
func (w *world) playRedHat(pkg string) {
	w.t.Helper()
	provide := func(core string) string {
		dir := w.t.TempDir()

		description := filepath.Join(dir, "nfpm.yaml")
		if err := os.WriteFile(description, []byte(fmt.Sprintf(
			"{name: distribution, arch: all, version: %s, maintainer: lab, description: lab, provides: [ansible-core = %[1]s, systemd = 252]}",
			core,
		)), 0o600); err != nil {
			w.t.Fatal(err)
		}

		output(
			w.t,
			repoFile("bin/nfpm"),
			"package",
			"--config",
			description,
			"--packager",
			"rpm",
			"--target",
			dir+"/distribution.rpm",
		)

		return dir + "/distribution.rpm"
	}
	w.lab("cp", pkg, "host1:/root/older.rpm")
	w.lab("cp", provide("2.13.9"), "host1:/root/distribution.rpm")
	w.sh("host1", "rpm -i /root/distribution.rpm")

	if r := w.try(
		"host1",
		"rpm -i /root/older.rpm",
	); r.code == 0 || !strings.Contains(r.stderr, "ansible-core >= 2.14 is needed") ||
		strings.Contains(r.stderr, "systemd is needed") {
		w.t.Errorf("where ansible-core is too old: %s", r)
	}

	distribution := provide("2.14.18")
	for _, h := range w.hosts {
		w.lab("cp", distribution, h+":/root/distribution.rpm")
		w.sh(h, "rpm -U /root/distribution.rpm")
	}
}

// leftOfPackage lists what is on a host that bears clusterm's name, but for logs
// and what the test brought.
func (w *world) leftOfPackage(host string) string {
	w.t.Helper()

	return w.sh(
		host,
		`find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /root -o -path /var/lib/dpkg -o -path /var/log \) -prune -o -iname '*clusterm*' -print
		find /run -maxdepth 1 -iname '*clusterm*'; pgrep -a clusterm || true`,
	).stdout
}

// livePackaged lives with a package: until it was withdrawn from host1, and is there
// again. enabled are the units that the installation enables, by host.
func (w *world) livePackaged(p packaging, enabled map[string]string) {
	w.t.Helper()
	t, older, newer := w.t, "/root/older."+p.packager, "/root/newer."+p.packager

	first, second := makePackage(t, p.packager, "1.0.0"), makePackage(t, p.packager, "1.0.1")
	for _, h := range w.hosts {
		w.lab("cp", first, h+":"+older)
		w.lab("cp", second, h+":"+newer)
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

	w.lab("cp", strings.TrimSpace(w.lab("key").stdout), "host1:/root/.ssh/id_ed25519")
	w.lab("cp", "testdata/playbooks", "host1:"+ownFolder)

	// The manager, by its unit, with the configuration that came.
	w.sh("host1", "clusterm check && systemctl enable --quiet --now clusterm")
	w.awaitServing()
	w.names["host1"] = "host1-" + w.sh("host1", "cat /etc/machine-id").stdout[:12]
	w.names["host2"] = "host2-" + w.sh("host2", "cat /etc/machine-id").stdout[:12]
	w.awaitState(inventory.Discovered, "host1")

	if got := w.ctl("version").stdout; !strings.Contains(got, "ansible") && !strings.Contains(got, "Ansible") {
		t.Errorf("version: %s", got)
	}

	w.sh("host1", `. /usr/share/bash-completion/completions/clusterctl && complete -p clusterctl`)

	for _, page := range []string{"man1/clusterctl.1.gz", "man8/clusterm.8.gz"} {
		w.sh("host1", "zcat /usr/share/man/"+page+" | grep -q '^.TH CLUSTER'")
	}

	// The agent, as a user without rights.
	w.write("host2", "/etc/clusterm/gossip.key", w.gossipKey()+"\n")
	w.sh("host2", "chown clusterm: /etc/clusterm/gossip.key")
	w.write(
		"host2",
		"/etc/clusterm/agent.yaml",
		fmt.Sprintf(
			"node: {label: host2, serial: %q, addr: %q}\ngossip: {join: ['%s:7946']}\n",
			w.serial("host2"),
			addr("host2"),
			addr("host1"),
		),
	)
	w.sh("host2", "chmod 0644 /etc/clusterm/agent.yaml; systemctl enable --quiet --now clusterm-agent")
	w.awaitState(inventory.Discovered, "host2")

	if got := strings.Fields(
		w.sh(
			"host2",
			`ps -o user= -p "$(systemctl show -P MainPID clusterm-agent)"; stat -c %U /var/lib/clusterm-agent`,
		).stdout,
	); strings.Join(
		got,
		" ",
	) != "clusterm clusterm" {
		t.Errorf("the agent's user and the owner of its folder: %v", got)
	}

	if got := w.sh("host2", "journalctl -o cat -u clusterm-agent").stdout; strings.Contains(got, "level=warning") {
		t.Errorf("the agent complains: %s", got)
	}

	// An upgrade in the middle of a job.
	w.sh("host1", "sed -i 's/^log_level: .*/log_level: debug/' /etc/clusterm/clusterm.yaml")
	w.ctl("config", "set", "playbooks="+ownFolder)
	id := w.submit("nodes", "commission", "-g", master, "-e", "hold: go", w.name("host2"))
	w.awaitLog(id, "Wait to be told")
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

	w.awaitServing()

	if got := w.sh("host1", "grep ^log_level /etc/clusterm/clusterm.yaml").stdout; got != "log_level: debug\n" {
		t.Errorf("the configuration after the upgrade: %s", got)
	}

	if now := w.sh("host1", "pgrep -f 'clusterm runner'").stdout; now != runner {
		t.Errorf("the runner is %q, it was %q", now, runner)
	}

	w.release("go", "host2")

	if j := w.awaitJob(id); j.Status != api.Complete || len(j.Runs) != 1 {
		t.Errorf("%+v", j)
	}

	w.is("host2", inventory.Allocated, master)

	// Removed and installed again: it knows what it knew.
	w.sh("host1", p.withdraw)

	if r := w.try("host1", "pgrep -x clusterm || test -e /usr/bin/clusterm || test -e /run/clusterm"); r.code == 0 {
		t.Errorf("after the removal: %s", r)
	}

	if got := w.try(
		"host1",
		"find /etc/systemd/system -xtype l -name 'clusterm*'",
	).stdout; p.packager == "rpm" &&
		got != "" {
		t.Errorf("the removal leaves enabled what is not there: %s", got)
	}

	w.sh("host1", p.install+" "+newer)
	w.sh(
		"host1",
		"[ ! -e /etc/clusterm/clusterm.yaml.rpmsave ] || mv /etc/clusterm/clusterm.yaml.rpmsave /etc/clusterm/clusterm.yaml; systemctl start clusterm",
	)
	w.awaitServing()
	w.is("host2", inventory.Allocated, master)
}
