// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
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

// TestFailedCleanup: on_failure limits the cleanup to the failed nodes; a node whose
// cleanup fails is Quarantined until an operator clears it.
func TestFailedCleanup(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true})

	w.doFails("nodes", "commission", "-g", master, "--on-failure", "failed", "-e", "fail_on: host3",
		w.name("host2"), w.name("host3"))
	w.wantNode("host2", inventory.Allocated, master)
	w.wantNode("host3", inventory.Unallocated, "")

	if !w.hasFile("host2", "/etc/systemtest") || w.hasFile("host3", "/etc/systemtest") {
		t.Error("host2 must be configured, and host3 must not")
	}

	w.doFails("nodes", "commission", "-g", worker, "-e", "fail_on: host3\nfail_cleanup_on: host4",
		w.name("host3"), w.name("host4"))
	w.wantNode("host3", inventory.Unallocated, "")
	w.wantNode("host4", inventory.Quarantined, worker)

	if n := w.node("host4"); !strings.Contains(n.LastError, "simulated failure of the cleanup") {
		t.Errorf("the last error of %s lacks the reason of the quarantine: %q", n.Name, n.LastError)
	}

	w.wantRefused(5, []string{w.name("host4"), "Quarantined", "clear"},
		"nodes", "commission", "-g", worker, w.name("host4"))

	j, _ := w.doFails("nodes", "clear", w.name("host4"), "-e", "fail_cleanup_on: host4")
	if j.Cause != "failed" {
		t.Errorf("the cause of the failed clear is %q", j.Cause)
	}

	w.wantNode("host4", inventory.Quarantined, worker)
	w.do("nodes", "clear", w.name("host4"))
	w.wantNode("host4", inventory.Unallocated, "")

	if w.hasFile("host4", "/etc/systemtest") {
		t.Error("the clear did not clean host4")
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

// wantUnchanged requires that f changes no node and no job.
func (w *world) wantUnchanged(f func()) {
	w.t.Helper()
	nodes, jobs := w.records("nodes", "get"), w.records("job", "list")

	f()

	if now := w.records("nodes", "get"); now != nodes {
		w.t.Errorf("nodes changed: %s", difference(nodes, now))
	}

	if now := w.records("job", "list"); now != jobs {
		w.t.Errorf("jobs changed: %s", difference(jobs, now))
	}
}

// records returns a list as JSON, without the parts that follow from another record: the
// revision of the whole, and how nodes compare with the folder of playbooks.
func (w *world) records(args ...string) string {
	w.t.Helper()

	list := decode[struct{ Items []map[string]any }](w, w.ctl(append(args, "-o", "json")...))
	for _, item := range list.Items {
		for _, derived := range []string{"desired", "outdated", "differs"} {
			delete(item, derived)
		}
	}

	text, err := json.MarshalIndent(list.Items, "", "  ")
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
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
