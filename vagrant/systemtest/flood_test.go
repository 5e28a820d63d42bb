// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// floodSize is the length of the line of a hostile host, in bytes.
const floodSize = 100 << 20

// floodPlaybook shows the line of a host in the output of Ansible, in a failure, and in a
// difference, and then waits for the file /root/go on that host.
const floodPlaybook = `
- name: The host says a lot
  hosts: service-master:service-worker:&job_targets
  gather_facts: false
  tasks:
    - name: Read what the host says
      ansible.builtin.command: cat /root/says
      register: said
      changed_when: false
      ignore_errors: true
    - name: Show what the host says
      ansible.builtin.debug: {msg: "{{ said.stdout | default('') }}"}
    - name: Wait
      ansible.builtin.command: sh -c 'until test -e /root/go; do sleep 0.2; done'
      changed_when: false
`

// peaks returns the greatest memory of each process of the manager on host1, by its
// command, in MiB.
func (w *world) peaks() map[string]int {
	w.t.Helper()

	out := w.sh("host1", `for p in $(pgrep -x clusterm); do echo `+
		`"$(awk '/VmHWM/ {print $2}' /proc/$p/status) $(tr '\0' ' ' < /proc/$p/cmdline | cut -d' ' -f2)"; `+
		`done`).stdout
	peaks := map[string]int{}

	for line := range strings.Lines(out) {
		fields := append(strings.Fields(line), "daemon")

		size, err := strconv.Atoi(fields[0])
		if err != nil {
			w.t.Fatalf("%q: %v", line, err)
		}
		peaks[fields[1]] = max(peaks[fields[1]], size>>10)
	}

	return peaks
}

// peakOf returns the greatest memory of a command on host1, in MiB, and its output's size.
func (w *world) peakOf(command string) (peak, size int) {
	w.t.Helper()

	out := w.sh("host1", "python3 -c '\n"+
		"import resource, subprocess, sys\n"+
		"run = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True)\n"+
		"print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10, len(run.stdout))' "+command).stdout

	if _, err := fmt.Sscan(out, &peak, &size); err != nil {
		w.t.Fatalf("%s: %q: %v", command, out, err)
	}

	return peak, size
}

// TestHostileFlood: a host writes one line of 100 MB. The manager, its runner and
// clusterctl keep a bounded part of it, the job ends as it would without, and the job of
// another node beside it does not suffer.
func TestHostileFlood(t *testing.T) {
	w := newWorld(t, setup{hosts: 3})
	w.labDo("cp", repoFile("ansible"), "host1:/root/site")
	w.ctl("config", "set", "playbooks=/root/site")
	w.commission(master, "host2")

	w.write("host1", "/root/site/site.yml", floodPlaybook)
	w.sh("host3", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x > /root/says", floodSize))

	before := w.peaks()
	id := w.submit("nodes", "commission", w.name("host3"), "-g", worker)

	// The output has arrived once the last task runs.
	await(t, 8*time.Minute, "the last task runs", func() (bool, string) {
		r := w.try("host3", "pgrep -f 'until test -e /root/go'")
		return r.code == 0, fmt.Sprint(w.job(id).Status)
	})

	// Another node's job runs beside it, and answers are quick.
	w.do("nodes", "maintenance", w.name("host2"))

	begun := time.Now()
	w.ctl("nodes", "get")

	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("a list takes %s", took)
	}

	for name, peak := range w.peaks() {
		t.Logf("clusterm %s: at most %d MiB, before %d", name, peak, before[name])

		if peak > before[name]+250 {
			t.Errorf("clusterm %s needs %d MiB, before %d", name, peak, before[name])
		}
	}

	w.sh("host3", "touch /root/go")

	j := w.awaitJob(id)
	if j.Status != api.Complete {
		t.Errorf("the job ends %s: %s", j.Status, j.Message)
	}

	w.wantNode("host3", inventory.Allocated, worker)

	for _, command := range []string{
		"clusterctl job logs " + id, "clusterctl job logs --events " + id, "clusterctl job get -o json " + id,
		"clusterctl job why " + id, "script -qec \"clusterctl job logs " + id + "\" /dev/null",
	} {
		peak, size := w.peakOf(command)
		t.Logf("%s: %d MiB, %d bytes", command, peak, size)

		if peak > 250 || size == 0 || size > 40<<20 {
			t.Errorf("%s needs %d MiB, and prints %d bytes", command, peak, size)
		}
	}

	if out := w.ctl("job", "logs", id).stdout; !strings.Contains(out, "left out here") {
		t.Error("the log does not say that a part is missing")
	}

	w.awaitHealthy()
}
