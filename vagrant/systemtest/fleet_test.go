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

// TestFleetFile: a fleet file commissions nodes, moves one between groups, and changes a
// variable and a label. A killed manager does not end the apply, a node that somebody else
// moved meanwhile is refused by name, and a repeat finishes after a killed clusterctl.
func TestFleetFile(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true})
	host2, host3, host4 := w.name("host2"), w.name("host3"), w.name("host4")

	w.write("host1", "/root/first.yaml", fmt.Sprintf(`fleet: 1
groups:
  service-worker:
    selector: rack=r4
    vars: {note: one}
nodes:
  %s: {group: service-master}
  %s: {group: service-master}
  %s: {labels: {rack: r4}}
`, host2, host3, host4))

	w.wantDifference("/root/first.yaml", 7)
	w.ctl("fleet", "apply", "-f", "/root/first.yaml", "--yes")
	w.wantNode("host3", inventory.Allocated, master)
	w.wantNode("host4", inventory.Allocated, worker)
	w.wantFile("host4", "service-worker one\n")
	w.wantDifference("/root/first.yaml", 0)

	// The export is no difference either.
	w.sh("host1", "clusterctl fleet export >/root/all.yaml && clusterctl fleet diff -f /root/all.yaml --prune")

	// A node changes its group, while the manager is killed and somebody else is at work.
	w.write("host1", "/root/second.yaml", fmt.Sprintf(`fleet: 1
groups:
  service-worker: {vars: {note: two}}
nodes:
  %s: {group: service-worker, labels: {rack: r3}, vars: {hold: go}}
  %s: {group: none}
`, host3, host4))

	first := w.start("host1", "clusterctl", "fleet", "apply", "-f", "/root/second.yaml", "--yes")
	w.awaitLog(w.awaitMove(inventory.VerbUpdate), holdTask)
	w.replaceProcess(daemonProcess, killEtcd+"; "+killDaemon)
	w.do("nodes", "decommission", host4)
	w.release("go", "host3")
	first.awaitEnd(t, 2*time.Minute)

	refusal := host4 + " is Decommissioned, and was expected to be Allocated in service-worker"
	if code := first.cmd.ProcessState.ExitCode(); code != 5 || !strings.Contains(first.stderr.String(), refusal) {
		t.Errorf("exit %d, want 5 with %q: %s%s", code, refusal, first.stdout.String(), first.stderr.String())
	}

	w.wantNode("host3", inventory.Allocated, worker)
	w.wantFile("host3", "service-worker two\n")

	if n := w.node("host3"); n.Labels["rack"] != "r3" {
		t.Errorf("labels %v, want rack=r3", n.Labels)
	}

	w.wantDifference("/root/second.yaml", 0)

	// Another apply is killed together with the manager. A repeat awaits its job.
	w.write("host1", "/root/third.yaml", fmt.Sprintf(`fleet: 1
vars: {site: north}
nodes:
  %s: {group: service-master, vars: {hold: again}}
  %s: {group: service-worker}
`, host3, host4))
	w.start("host1", "clusterctl", "fleet", "apply", "-f", "/root/third.yaml", "--yes")

	id := w.awaitMove(inventory.VerbUpdate)
	w.awaitLog(id, holdTask)
	w.sh("host1", "pkill -KILL -f '^clusterctl fleet apply'")
	w.replaceProcess(daemonProcess, killDaemon)

	repeat := w.start("host1", "clusterctl", "fleet", "apply", "-f", "/root/third.yaml", "--yes")
	await(t, time.Minute, "the repeat waits for job "+id, func() (bool, string) {
		return strings.Contains(repeat.stderr.String(), "waiting for job "+id), repeat.stderr.String()
	})
	w.release("again", "host3")
	repeat.awaitEnd(t, 2*time.Minute)

	if code := repeat.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit %d: %s%s", code, repeat.stdout.String(), repeat.stderr.String())
	}

	w.wantNode("host3", inventory.Allocated, master)
	w.wantNode("host4", inventory.Allocated, worker)
	w.wantDifference("/root/third.yaml", 0)
	w.wantNoJobProcesses()
}

// wantDifference requires the exit code of fleet diff.
func (w *world) wantDifference(file string, code int) {
	w.t.Helper()

	if r := w.tryCtl("fleet", "diff", "-f", file); r.code != code {
		w.t.Errorf("exit %d, want %d: %s", r.code, code, r)
	}
}

// wantFile requires the content of the file that the test playbooks write.
func (w *world) wantFile(host, content string) {
	w.t.Helper()

	if got := w.sh(host, "cat /etc/systemtest").stdout; got != content {
		w.t.Errorf("%s has %q, want %q", host, got, content)
	}
}

// awaitMove waits until a job of the verb runs, and returns its id.
func (w *world) awaitMove(verb inventory.Verb) string {
	w.t.Helper()

	id := ""

	await(w.t, time.Minute, fmt.Sprintf("a job of %s runs", verb), func() (bool, string) {
		for _, j := range w.jobs() {
			if j.Verb == verb && j.Status == api.Running {
				id = j.ID
			}
		}

		return id != "", fmt.Sprint(len(w.jobs()))
	})

	return id
}
