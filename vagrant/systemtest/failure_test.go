// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestFailedCommission: a batch that fails on one node is cleaned up on all of its
// nodes, reports the reason, and succeeds after the cause is corrected.
func TestFailedCommission(t *testing.T) {
	w := newWorld(t, setup{})
	w.labDo("cp", repoFile("ansible"), "host1:/root/site")
	w.ctl("config", "set", "playbooks=/root/site")
	w.commission(master, "host2")
	before := map[string][]string{"host3": w.files("host3"), "host4": w.files("host4")}

	w.sh("host1", `cat >>/root/site/site.yml <<'END'

- name: The site's own last step
  hosts: service-worker:&job_targets
  gather_facts: false
  tasks:
    - name: Mount the storage
      ansible.builtin.fail:
        msg: the storage does not answer
      when: inventory_hostname == '`+w.name("host4")+`'
END`)
	request := append([]string{"nodes", "commission", "-g", worker}, w.nodeNames("host3", "host4")...)

	j, stderr := w.doFails(request...)
	for _, word := range []string{w.name("host4"), "Mount the storage", "the storage does not answer"} {
		if !strings.Contains(stderr, word) {
			t.Errorf("clusterctl's message lacks %q: %s", word, stderr)
		}

		if !strings.Contains(j.Message, word) {
			t.Errorf("the job's message lacks %q: %s", word, j.Message)
		}
	}

	if j.Status != "Errored" || j.Cause != "failed" {
		t.Errorf("the job is %s (%s)", j.Status, j.Cause)
	}

	for _, h := range []string{"host3", "host4"} {
		w.wantNode(h, inventory.Unallocated, "")
		w.wantFiles(h, before[h])

		if n := w.node(h); n.LastError == "" {
			t.Errorf("%s has no last error", n.Name)
		}
	}

	if n := w.node("host4"); !strings.Contains(n.LastError, "the storage does not answer") {
		t.Errorf("the last error of %s is %q", n.Name, n.LastError)
	}

	w.wantNode("host2", inventory.Allocated, master)
	w.wantMembers("host2", "host2")

	w.labDo("cp", repoFile("ansible/site.yml"), "host1:/root/site/site.yml")
	w.do(request...)

	for _, h := range []string{"host3", "host4"} {
		w.wantNode(h, inventory.Allocated, worker)

		if n := w.node(h); n.LastError != "" {
			t.Errorf("%s still has the error %q", n.Name, n.LastError)
		}
	}
}

// TestFailedUpgradeOfMasters: a failed upgrade takes no master out of service.
func TestFailedUpgradeOfMasters(t *testing.T) {
	w := newWorld(t, setup{})
	masters := []string{"host2", "host3", "host4"}
	w.commission(master, masters...)
	w.wantMembers("host2", masters...)
	w.putKey("host2", "precious", "value")

	upgrade := append([]string{"nodes", "maintenance"}, w.nodeNames(masters...)...)
	badSetting := `{"etcd_settings": {"ETCD_SNAPSHOT_COUNT": "many"}}`

	j, stderr := w.doFails(append(slices.Clone(upgrade), "-e", badSetting)...)
	if !strings.Contains(stderr, "ETCD_SNAPSHOT_COUNT") ||
		!strings.Contains(w.node("host2").LastError, "ETCD_SNAPSHOT_COUNT") {
		t.Errorf("the message lacks the setting that etcd refused: %s", stderr)
	}

	if len(j.Runs) != 1 {
		t.Errorf("want the run of the upgrade only: %+v", j.Runs)
	}

	for _, h := range masters {
		w.wantNode(h, inventory.Allocated, master)

		n := w.node(h)
		if n.LastError == "" {
			t.Errorf("%s has no last error", n.Name)
		}
		if n.Applied != "" {
			t.Errorf("%s has the applied configuration of job %s; a failed upgrade makes it unknown", n.Name, n.Applied)
		}

		if s := w.sh(h, "systemctl is-active clusterm-etcd").stdout; s != "active\n" {
			t.Errorf("etcd on %s is %s", h, s)
		}

		w.wantKey(h, "precious", "value")
	}

	// Masters are upgraded one after the other, so the first failure is the only one.
	failed := 0
	for _, r := range j.Runs[0].Results {
		failed += r.Failed
	}

	if failed != 1 {
		t.Errorf("the upgrade failed on %d masters, want 1: %+v", failed, j.Runs[0].Results)
	}

	w.wantMembers("host3", masters...)

	w.do(upgrade...)

	for _, h := range masters {
		if n := w.node(h); n.LastError != "" || n.Applied == "" {
			t.Errorf("after a good upgrade %s has the error %q and the applied configuration of job %q",
				n.Name, n.LastError, n.Applied)
		}
	}

	w.wantMembers("host4", masters...)
}

// difference lists the lines that only one of the texts has.
func difference(before, after string) string {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")

	var out []string
	for _, line := range a {
		if !slices.Contains(b, line) {
			out = append(out, "- "+line)
		}
	}

	for _, line := range b {
		if !slices.Contains(a, line) {
			out = append(out, "+ "+line)
		}
	}

	return strings.Join(out, "\n")
}
