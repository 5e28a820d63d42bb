// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// A batch that fails on one node is cleaned off all of them, says why, and can
// be repeated once the cause is corrected.
func TestFailedCommission(t *testing.T) {
	w := newWorld(t, setup{})
	w.lab("cp", repoFile("ansible"), "host1:/root/site")
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

	j, said := w.fails(request...)
	for _, word := range []string{w.name("host4"), "Mount the storage", "the storage does not answer"} {
		if !strings.Contains(said, word) {
			t.Errorf("clusterctl does not say %q: %s", word, said)
		}

		if !strings.Contains(j.Message, word) {
			t.Errorf("the job's reason does not say %q: %s", word, j.Message)
		}
	}

	if j.Status != "Errored" || j.Cause != "failed" {
		t.Errorf("the job is %s (%s)", j.Status, j.Cause)
	}

	for _, h := range []string{"host3", "host4"} {
		w.is(h, inventory.Unallocated, "")
		w.leftNothing(h, before[h])

		if n := w.node(h); n.LastError == "" {
			t.Errorf("%s has no last error", n.Name)
		}
	}

	if n := w.node("host4"); !strings.Contains(n.LastError, "the storage does not answer") {
		t.Errorf("the last error of %s is %q", n.Name, n.LastError)
	}

	w.is("host2", inventory.Allocated, master)
	w.consists("host2", "host2")

	w.lab("cp", repoFile("ansible/site.yml"), "host1:/root/site/site.yml")
	w.do(request...)

	for _, h := range []string{"host3", "host4"} {
		w.is(h, inventory.Allocated, worker)

		if n := w.node(h); n.LastError != "" {
			t.Errorf("%s still has the error %q", n.Name, n.LastError)
		}
	}
}

// What is cleaned after a failure can be narrowed to what failed, and what
// cannot be cleaned is fenced until somebody clears it.
func TestFailedCleanup(t *testing.T) {
	w := newWorld(t, setup{small: true})

	w.fails(
		"nodes",
		"commission",
		"-g",
		master,
		"--on-failure",
		"failed",
		"-e",
		"fail_on: host3",
		w.name("host2"),
		w.name("host3"),
	)
	w.is("host2", inventory.Allocated, master)
	w.is("host3", inventory.Unallocated, "")

	if !w.has("host2", "/etc/systemtest") || w.has("host3", "/etc/systemtest") {
		t.Error("host2 should have its configuration, and host3 should not")
	}

	w.fails(
		"nodes",
		"commission",
		"-g",
		worker,
		"-e",
		"{fail_on: host3, fail_cleanup_on: host4}",
		w.name("host3"),
		w.name("host4"),
	)
	w.is("host3", inventory.Unallocated, "")
	w.is("host4", inventory.Quarantined, worker)

	if n := w.node("host4"); !strings.Contains(n.LastError, "told to fail the cleanup") {
		t.Errorf("the last error of %s does not say why it is Quarantined: %q", n.Name, n.LastError)
	}

	w.refused(
		5,
		[]string{w.name("host4"), "Quarantined", "clear"},
		"nodes",
		"commission",
		"-g",
		worker,
		w.name("host4"),
	)

	j, _ := w.fails("nodes", "clear", w.name("host4"), "-e", "fail_cleanup_on: host4")
	if j.Cause != "failed" {
		t.Errorf("the clear failed by %q", j.Cause)
	}

	w.is("host4", inventory.Quarantined, worker)
	w.do("nodes", "clear", w.name("host4"))
	w.is("host4", inventory.Unallocated, "")

	if w.has("host4", "/etc/systemtest") {
		t.Error("the clear did not clean host4")
	}
}

// An upgrade that fails takes no master out of service.
func TestFailedUpgradeOfMasters(t *testing.T) {
	w := newWorld(t, setup{})
	masters := []string{"host2", "host3", "host4"}
	w.commission(master, masters...)
	w.consists("host2", masters...)
	w.put("host2", "precious", "value")

	j, said := w.fails(
		append(
			[]string{"nodes", "maintenance", "-e", `{"etcd_settings": {"ETCD_SNAPSHOT_COUNT": "many"}}`},
			w.nodeNames(masters...)...)...)
	if !strings.Contains(said, "ETCD_SNAPSHOT_COUNT") ||
		!strings.Contains(w.node("host2").LastError, "ETCD_SNAPSHOT_COUNT") {
		t.Errorf("it is not said what etcd did not like: %s", said)
	}

	if len(j.Runs) != 1 {
		t.Errorf("something ran besides the upgrade: %+v", j.Runs)
	}

	failed := 0

	for _, h := range masters {
		w.is(h, inventory.Allocated, master)

		n := w.node(h)
		if n.LastError == "" {
			t.Errorf("%s has no last error", n.Name)
		}

		if n.Applied != "" {
			t.Errorf(
				"%s is said to carry what job %s applied; it is not known how far the upgrade came",
				n.Name,
				n.Applied,
			)
		}

		if s := w.sh(h, "systemctl is-active clusterm-etcd").stdout; s != "active\n" {
			t.Errorf("etcd on %s is %s", h, s)
		}

		w.gets(h, "precious", "value")
	}

	for _, r := range j.Runs[0].Results {
		failed += r.Failed
	}

	if failed != 1 {
		t.Errorf(
			"the upgrade was tried on %d masters; they are upgraded one after the other: %+v",
			failed,
			j.Runs[0].Results,
		)
	}

	w.consists("host3", masters...)

	w.do(append([]string{"nodes", "maintenance"}, w.nodeNames(masters...)...)...)

	for _, h := range masters {
		if n := w.node(h); n.LastError != "" || n.Applied == "" {
			t.Errorf(
				"after an upgrade that went well, %s has the error %q and carries what job %q applied",
				n.Name,
				n.LastError,
				n.Applied,
			)
		}
	}

	w.consists("host4", masters...)
}

// Nodes that are not seen, and groups whose rule forbids it, are refused before
// anything happens.
func TestRefusedByStateAndRule(t *testing.T) {
	w := newWorld(t, setup{small: true, serf: "host4"})
	refuse := func(words []string, args ...string) {
		t.Helper()
		w.unchanged(func() { w.refused(5, words, args...) })
	}

	refuse([]string{worker, master}, "nodes", "commission", "-g", worker, w.name("host2"))

	w.sh("host3", "systemctl stop clusterm-agent")
	w.sh("host4", "serf leave")
	w.awaitState(inventory.Disappeared, "host3", "host4")
	w.sh("host4", "systemctl stop serf")
	refuse([]string{w.name("host3"), "Disappeared"}, "nodes", "commission", "-g", master, w.name("host3"))
	refuse(
		[]string{w.name("host3"), w.name("host4"), "Disappeared"},
		"nodes",
		"commission",
		"-g",
		master,
		w.name("host2"),
		w.name("host3"),
		w.name("host4"),
	)
	w.sh("host3", "systemctl start clusterm-agent")
	w.sh("host4", "systemctl start serf")
	w.awaitState(inventory.Discovered, "host3", "host4")

	w.commission(master, "host2")
	w.commission(worker, "host3")
	both := []string{w.name("host2"), w.name("host3")}
	refuse(both, "nodes", "decommission", w.name("host2"))
	refuse(both, "nodes", "update", "-g", worker, w.name("host2"))
	refuse([]string{w.name("host2")}, "nodes", "forget", "--force", "--reason", "test", w.name("host2"))

	// A master that is not seen is none that a worker could lean on.
	w.sh("host2", "systemctl stop clusterm-agent")
	w.awaitState(inventory.Disappeared, "host2")
	refuse([]string{worker, master}, "nodes", "commission", "-g", worker, w.name("host4"))
	refuse([]string{w.name("host2"), w.name("host3")}, "nodes", "forget", w.name("host2"))
	w.sh("host2", "systemctl start clusterm-agent")
	w.awaitState(inventory.Discovered, "host2")

	// Together they can go.
	w.do("nodes", "decommission", w.name("host2"), w.name("host3"))
}

// unchanged fails the test where f changes a node or a job.
func (w *world) unchanged(f func()) {
	w.t.Helper()
	nodes, jobs := w.ctl("nodes", "get", "-o", "json").stdout, w.ctl("job", "list", "-o", "json").stdout
	f()

	if now := w.ctl("nodes", "get", "-o", "json").stdout; now != nodes {
		w.t.Errorf("nodes were changed: %s", difference(nodes, now))
	}

	if now := w.ctl("job", "list", "-o", "json").stdout; now != jobs {
		w.t.Errorf("jobs were changed: %s", difference(jobs, now))
	}
}

// difference are the lines that only one of the texts has.
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
