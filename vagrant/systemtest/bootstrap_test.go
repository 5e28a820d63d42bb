// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// laptop runs clusterctl outside of all hosts, in their network, with a home of its own.
type laptop struct {
	*world
	home string
}

func (l laptop) command(args ...string) []string {
	return append([]string{
		"run", "env", "HOME=" + l.home, "XDG_CONFIG_HOME=", filepath.Join(suite.bin, "clusterctl"),
	}, args...)
}

func (l laptop) ctl(args ...string) result { return l.labDo(l.command(args...)...) }

// over are the options with which its ssh reaches the hosts of the lab.
func (l laptop) over(args ...string) []string {
	return append(args, "--ssh-option", "-i"+l.keyFile(), "--ssh-option", "-oStrictHostKeyChecking=no",
		"--ssh-option", "-oUserKnownHostsFile="+filepath.Join(l.home, "known_hosts"))
}

// TestBootstrap makes three instances of three plain hosts from a laptop: the first over an account with sudo, and
// the second of a host that is a node with an agent. A host of a manager is not made a manager of its own. Then the
// first is switched off, and the laptop's commands go on.
func TestBootstrap(t *testing.T) {
	w := newWorld(t, setup{hosts: 3, noManager: true})
	l := laptop{w, t.TempDir()}
	pkg := makePackage(t, "deb", "1.2.3")

	w.sh("host1", `useradd -m -s /bin/sh op && install -d -m 700 -o op /home/op/.ssh &&
		install -m 600 -o op /root/.ssh/authorized_keys /home/op/.ssh/ &&
		echo 'op ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/op`)

	first := l.ctl(l.over("bootstrap", "op@10.77.0.11", "--package", pkg)...)

	_, key, _ := strings.Cut(first.stderr, "ssh-ed25519 ")
	for _, host := range []string{"host2", "host3"} {
		w.sh(host, "echo 'ssh-ed25519 "+strings.TrimSpace(key)+"' >>/root/.ssh/authorized_keys")
	}

	l.ctl("discover", "10.77.0.12")

	another := l.over("bootstrap", "root@10.77.0.12", "--package", pkg, "--context", "other")
	refused := w.run(nil, l.command(another...)...)
	if refused.code == 0 || !strings.Contains(refused.stderr, "this host is a node of a manager") {
		t.Errorf("exit code %d: %s", refused.code, refused.stderr)
	}
	if r := w.try("host2", "systemctl is-active clusterm-agent; test ! -e /usr/bin/clusterctl"); r.code != 0 {
		t.Errorf("the refused bootstrap changed host2: %s%s", r.stdout, r.stderr)
	}

	for _, addr := range []string{"10.77.0.12", "10.77.0.13", "10.77.0.13"} { // a repetition changes nothing
		l.ctl(l.over("instance", "add", "root@"+addr, "--package", pkg)...)
	}

	var members api.List[api.Member]
	await(t, time.Minute, "three voters", func() (bool, string) {
		text := l.ctl("instance", "list", "-o", "json").stdout
		errtest.None(t, json.Unmarshal([]byte(text), &members))

		return strings.Count(text, `"voter"`) == 3 && strings.Count(text, `"alive": true`) == 3, text
	})
	if len(members.Items) != 3 {
		t.Errorf("there are %d instances", len(members.Items))
	}

	w.labDo("kill", "host1")

	var nodes api.List[api.Node]
	errtest.None(t, json.Unmarshal([]byte(l.ctl("nodes", "get", "-o", "json").stdout), &nodes))

	for _, n := range nodes.Items {
		if n.Status != inventory.Unallocated {
			t.Errorf("%s is %s", n.Name, n.Status)
		}
	}
	if len(nodes.Items) != 3 {
		t.Errorf("there are %d nodes", len(nodes.Items))
	}

	w.labDo("kill", "host2")
	w.sh("host3", "systemctl stop clusterm && clusterm recover --yes && systemctl start clusterm")
	l.ctl("vars", "set", "--global", "recovered=true")

	errtest.None(t, json.Unmarshal([]byte(l.ctl("instance", "list", "-o", "json").stdout), &members))

	if len(members.Items) != 1 || !members.Items[0].Leads {
		t.Errorf("after the recovery there are the instances %+v", members.Items)
	}

	w.labDo("boot", "host1")
	await(t, time.Minute, "host1 says that the manager went on without it", func() (bool, string) {
		said := w.try("host1", "systemctl status clusterm").stdout
		return strings.Contains(said, "the manager went on without this instance"), said
	})
	w.sh("host1", "systemctl stop clusterm && mv /var/lib/clusterm /root/lost")
	l.ctl(l.over("instance", "add", "root@10.77.0.11", "--package", pkg)...)

	left, _ := filepath.Glob(filepath.Join(os.TempDir(), "clusterctl-*", "s"))
	if len(left) > 0 {
		t.Errorf("connections are left: %v", left)
	}
}
