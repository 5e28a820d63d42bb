// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestSSHKeyRotate: the manager's ssh key is replaced while a node is away, another
// cannot change its file, and the manager is killed in the middle. Jobs work meanwhile
// and afterwards, and the old key logs in nowhere in the end.
func TestSSHKeyRotate(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, hosts: 4})
	fixed, away := "host3", "host4"

	const (
		authorized = "/root/.ssh/authorized_keys"
		oldKey     = "/root/.ssh/id_ed25519"
		foreign    = "# mine\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV other"
	)

	// Only verified hosts can confirm. One file has foreign lines, and no last line end.
	w.ctl("nodes", "trust", "--yes", w.name("host1"), w.name("host2"), w.name(fixed), w.name(away))
	w.sh("host2", "printf '%s' '"+foreign+"' >>"+authorized+" && chmod 640 "+authorized)
	w.sh(fixed, "mount --bind /root/.ssh /root/.ssh && mount -o remount,bind,ro /root/.ssh")
	w.sh(away, "systemctl stop clusterm-agent ssh.socket ssh 2>/dev/null || systemctl stop clusterm-agent ssh")
	w.awaitState(inventory.Disappeared, away)

	status := func() api.SSHKey { return decode[api.SSHKey](w, w.ctl("key", "status", "ssh", "-o", "json")) }
	if now := status(); now.Phase != api.SSHKeyNever || now.Key == nil || now.Key.Path != oldKey {
		t.Fatalf("before: %+v", now)
	}

	logsIn := func(host, key string) bool {
		return w.try("host1", "ssh -F none -o BatchMode=yes -o IdentitiesOnly=yes -o IdentityAgent=none "+
			"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i "+key+" root@"+addr(host)+" true").code == 0
	}

	// The manager is killed as soon as it has accepted, and again after the switch.
	w.ctl("key", "rotate", "ssh", "--no-wait")
	w.sh("host1", "systemctl kill --signal=KILL clusterm")
	w.awaitHealthy()

	newKey := status().Key.Path
	if newKey == oldKey || !w.hasFile("host1", newKey) {
		t.Fatalf("the new key is %s", newKey)
	}

	await(t, time.Minute, "the manager uses the new key", func() (bool, string) {
		now := status()
		return now.Phase == "remove", fmt.Sprintf("%s: %v", now.Phase, now.Laggards)
	})
	w.sh("host1", "systemctl kill --signal=KILL clusterm")
	w.awaitHealthy()

	await(t, 2*time.Minute, "the rotation waits for two nodes", func() (bool, string) {
		now := status()
		waits := now.Removed == 2 && len(now.Laggards) == 2

		return waits && strings.Contains(now.Laggards[0].Reason, "Read-only"),
			fmt.Sprintf("%s: %d, %v", now.Phase, now.Removed, now.Laggards)
	})

	for host, want := range map[string][2]bool{"host1": {false, true}, "host2": {false, true}, fixed: {true, false}} {
		if got := [2]bool{logsIn(host, oldKey), logsIn(host, newKey)}; got != want {
			t.Errorf("%s accepts old and new key: %v, want %v", host, got, want)
		}
	}

	if out := w.ctl("nodes", "explain", w.name(away)).stdout; !strings.Contains(
		out,
		"rotation of the manager's ssh key",
	) {
		t.Errorf("the explanation of a laggard: %s", out)
	}

	if r := w.ctl("status"); !strings.Contains(r.stderr, "rotation of the ssh key waits for 2 nodes") {
		t.Errorf("the health: %s", r)
	}

	// Connections offer the new key, then the old one.
	w.wantRefused(5, []string{"is running since", "key cancel ssh"}, "key", "rotate", "ssh")
	w.ctl("nodes", "ping", w.name("host2"), w.name(fixed))
	w.commission(master, "host2", fixed)

	w.sh(fixed, "umount /root/.ssh")
	w.sh(away, "systemctl start ssh clusterm-agent")
	w.awaitState(inventory.Discovered, away)
	await(t, 2*time.Minute, "the rotation is done", func() (bool, string) {
		now := status()
		return now.Phase == "done", fmt.Sprintf("%s: %v", now.Phase, now.Laggards)
	})

	for _, host := range []string{"host1", "host2", fixed, away} {
		if logsIn(host, oldKey) || !logsIn(host, newKey) {
			t.Errorf("%s accepts the old key, or not the new one", host)
		}
	}

	// The next one replaces a key that the manager has made, and is not interrupted.
	w.ctl("key", "rotate", "ssh")

	if next := status(); next.Phase != "done" || w.hasFile("host1", newKey) || !logsIn(away, next.Key.Path) {
		t.Errorf("the second rotation: %+v", next)
	}

	if !w.hasFile("host1", oldKey) {
		t.Error("the operator's own key was removed")
	}

	file := w.sh("host2", "stat -c %a "+authorized+" && cat "+authorized).stdout
	if !strings.HasPrefix(file, "640\n") || !strings.HasSuffix(strings.TrimSuffix(file, "\n"), foreign) ||
		strings.Count(file, "ssh-ed25519") != 2 {
		t.Errorf("the file of host2:\n%s", file)
	}

	w.commission(master, away)
	w.do("nodes", "decommission", w.name(away))
}
