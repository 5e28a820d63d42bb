// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// smallQuota gives the embedded etcd a quota that the output of some jobs fills.
const smallQuota = "[Service]\nEnvironment=CLUSTERM_TEST_ETCD_QUOTA=8388608\n"

// printingPlay has much output that cannot be compressed well.
const printingPlay = `
- name: Much is printed
  hosts: service-master:&job_targets
  gather_facts: false
  tasks:
    - name: Print
      ansible.builtin.debug: {msg: "{{ lookup('file', '/root/random') }}"}
`

// TestFullStore: jobs fill the store; reads go on, also after a restart, changes are
// refused in time, and the printed remedies work. Then the store is missing.
func TestFullStore(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, noAgents: true, hosts: 1})
	w.write("host1", "/etc/systemd/system/clusterm.service.d/quota.conf", smallQuota)
	w.sh("host1", "systemctl daemon-reload; systemctl restart clusterm")
	w.awaitState(inventory.Discovered, "host1")
	w.sh("host1", "head -c 1500000 /dev/urandom | od -A n -t x1 -v | tr -d ' \\n' >/root/random")
	w.write("host1", testPlaybooks+"/site.yml", printingPlay)
	w.commission(master, "host1")

	// The last job can neither store its output nor end.
	var last string

	for isFull := false; !isFull; {
		last = w.submit("nodes", "apply", w.name("host1"))
		await(t, time.Minute, "job "+last+" ends, or the store is full", func() (bool, string) {
			isFull = strings.Contains(w.tryCtl("status").stdout, "NOSPACE")
			j := w.job(last)
			return isFull || j.Status.Ended(), string(j.Status)
		})
	}

	wantReadsOnly := func() {
		t.Helper()

		if n := w.node("host1"); n.Job != last || n.Status != inventory.Maintenance {
			t.Errorf("%s is %s, held by job %q; want job %s", n.Name, n.Status, n.Job, last)
		}

		r := w.wantRefused(6, []string{"the store is full", "clusterctl status"}, "vars", "set", "--global", "a=1")
		if r.took > 2*time.Second {
			t.Errorf("the refusal took %s", r.took)
		}
		if r := w.tryCtl("status"); r.code == 0 || !strings.Contains(r.stdout+r.stderr, "systemctl reload clusterm") {
			t.Errorf("the health lacks the remedy: %s", r)
		}
	}
	wantReadsOnly()
	w.sh("host1", "systemctl restart clusterm")
	w.awaitState(inventory.Discovered, "host1")
	wantReadsOnly()

	if r := w.try("host1", "clusterm store check"); r.code != 1 || !strings.Contains(r.stdout+r.stderr, "NOSPACE") {
		t.Errorf("the check: %s", r)
	}

	w.write("host1", configFile, "playbooks: "+testPlaybooks+"\njobs: {keep: 1}\n")
	w.sh("host1", "systemctl reload clusterm")
	await(t, 2*time.Minute, "changes are accepted again", func() (bool, string) {
		r := w.tryCtl("vars", "set", "--global", "a=1")
		return r.code == 0, r.String()
	})
	w.awaitHealthy()

	if j := w.awaitJob(last); j.Status != api.Complete {
		t.Errorf("the job that waited for room is %s: %s", j.Status, j.Message)
	}

	w.sh("host1", "clusterm store check")

	// The store is missing. Its return is the first remedy, an empty one the second.
	w.sh("host1", "systemctl stop clusterm; mv "+dataDir+"/etcd/data/member /root/member")
	w.sh("host1", "systemctl start --no-block clusterm")

	missing := "the store is missing: " + dataDir + "/etcd/data"

	await(t, 20*time.Second, "systemctl status shows the cause", func() (bool, string) {
		out := w.try("host1", "systemctl status clusterm").stdout
		return strings.Contains(out, missing), out
	})
	w.wantRefused(6, []string{missing, "--accept-empty-store"}, "nodes", "get")
	w.sh("host1", "systemctl stop clusterm; rm -rf "+dataDir+"/etcd/data/member; "+
		"mv /root/member "+dataDir+"/etcd/data/member; systemctl start clusterm")
	w.wantNode("host1", inventory.Allocated, master)

	w.sh("host1", "systemctl stop clusterm; rm -r "+dataDir+"/etcd/data/member")

	p := w.start("host1", "clusterm", "--accept-empty-store")
	w.awaitHealthy()
	w.sh("host1", "pkill -INT -o -f '^clusterm --accept-empty-store'")
	p.awaitEnd(t, 30*time.Second)
	w.sh("host1", "systemctl start clusterm")
	w.awaitState(inventory.Discovered, "host1")

	if jobs := w.jobs(); len(jobs) != 0 {
		t.Errorf("the empty store has %d jobs", len(jobs))
	}
}
