// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// operatorView is everything that an operator set or has seen, by the command that
// prints it.
func (w *world) operatorView() map[string]string {
	w.t.Helper()
	all := map[string]string{}

	see := func(args ...string) { all[strings.Join(args, " ")] = w.ctl(args...).stdout }
	for _, args := range [][]string{
		{"job", "list", "--limit", "0", "-o", "json"},
		{"global", "get", "-o", "json"},
		{"vars", "get", "--group", master, "-o", "json"},
		{"vars", "get", "--node", w.name("host2"), "--merged", "-o", "json"},
		{"config", "get", "-o", "json"},
		{"nodes", "get", "-o", "json"},
	} {
		see(args...)
	}

	for name := range w.nodes() {
		see("nodes", "history", name, "-o", "json")
	}

	for _, j := range w.jobs() {
		see("job", "get", j.ID, "-o", "json")
		see("job", "logs", j.ID)
		see("job", "logs", "--events", j.ID)
	}

	for k, out := range all {
		// The revision of a list is that of the whole store; only the items count.
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		if json.Unmarshal([]byte(out), &list) == nil && list.Items != nil {
			items := make([]string, len(list.Items))
			for i, item := range list.Items {
				items[i] = string(item)
			}

			all[k] = strings.Join(items, "\n")
		}
	}

	return all
}

// wantView requires that the operator's view is the same as before.
func (w *world) wantView(before map[string]string) {
	w.t.Helper()

	now := w.operatorView()
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if now[k] != before[k] {
			w.t.Errorf("the output of clusterctl %s differs:\n%s", k, difference(before[k], now[k]))
		}
	}

	if len(now) != len(before) {
		w.t.Errorf("the view has %d outputs, want %d", len(now), len(before))
	}
}

// pid is the oldest process on host1 with a command line that matches the pattern, or "".
func (w *world) pid(pattern string) string {
	w.t.Helper()
	return strings.TrimSpace(w.sh("host1", "pgrep -o -f '^"+pattern+"' || true").stdout)
}

const (
	daemonProcess = "/usr/local/bin/clusterm$"
	etcdProcess   = "/usr/local/bin/clusterm etcd"
	runnerProcess = "/usr/local/bin/clusterm runner"
)

// replaceProcess runs a script on host1, and waits until another process matches the
// pattern and the manager is healthy.
func (w *world) replaceProcess(pattern, script string) {
	w.t.Helper()

	old := w.pid(pattern)
	if old == "" {
		w.t.Fatalf("no process matches %s", pattern)
	}

	w.sh("host1", script)
	await(w.t, time.Minute, "there is a new "+pattern, func() (bool, string) {
		now := w.pid(pattern)
		return now != "" && now != old, now
	})
	w.awaitHealthy()
}

const (
	restartDaemon = "systemctl restart clusterm"
	killDaemon    = "systemctl kill --signal KILL --kill-who main clusterm"
	killEtcd      = "pkill -KILL -o -f '^" + etcdProcess + "'"
)

// TestRestartWhileIdle: the operator's view survives every way in which a process of
// the manager can end.
func TestRestartWhileIdle(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true})
	w.ctl("global", "set", "-e", `{"fleet": "test"}`)
	w.ctl("vars", "set", "--group", master, "note=of-the-group")
	w.ctl("vars", "set", "--node", w.name("host2"), "-e", `{"list": [1, "two"]}`)
	w.ctl("config", "set", "jobs.forks=7")
	w.commission(master, "host2")
	w.doFails("nodes", "commission", "-g", worker, "-e", "fail_on: host3\nfail_cleanup_on: host3", w.name("host3"))
	// The view includes a Disappeared node.
	w.labDo("kill", "host4")
	w.awaitState(inventory.Disappeared, "host4")

	before := w.operatorView()
	for _, end := range []struct{ process, script string }{
		{daemonProcess, restartDaemon},
		{daemonProcess, killDaemon},
		{etcdProcess, killEtcd},
		{daemonProcess, killEtcd + "; " + killDaemon},
	} {
		w.replaceProcess(end.process, end.script)
		w.awaitState(inventory.Discovered, "host1", "host2", "host3")
		w.wantView(before)

		if t.Failed() {
			t.Fatalf("after %s", end.script)
		}
	}

	// A host that dies while the manager is down disappears after its start.
	w.sh("host1", "systemctl stop clusterm")

	if r := w.tryCtl("nodes", "get"); r.code != 6 || !strings.Contains(r.stderr, "systemctl") {
		t.Errorf("without a manager: %s", r)
	}

	w.labDo("kill", "host3")
	w.sh("host1", "systemctl start clusterm")
	w.awaitHealthy()
	w.awaitState(inventory.Disappeared, "host3", "host4")
	w.labDo("boot", "host3")
	w.awaitState(inventory.Discovered, "host1", "host2", "host3")

	w.labDo("kill", "host1")
	w.labDo("boot", "host1")
	w.awaitHealthy()
	w.awaitState(inventory.Discovered, "host1", "host2", "host3")

	now := w.operatorView()
	for _, k := range slices.Sorted(maps.Keys(before)) {
		// The gossip may have reported hosts as failed meanwhile.
		if now[k] != before[k] && !strings.HasPrefix(k, "nodes ") {
			t.Errorf("after a power cut, the output of clusterctl %s differs:\n%s", k, difference(before[k], now[k]))
		}
	}

	w.wantNode("host2", inventory.Allocated, master)
	w.wantNode("host3", inventory.Quarantined, worker)
	w.wantNode("host4", inventory.Unallocated, "")
}

// TestRestartDuringJob: a job goes on while the daemon restarts or is killed. Its output
// has no gap, and commands that wait for it or follow it do not fail.
func TestRestartDuringJob(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, hosts: 3})
	operator := w.start("host1",
		"clusterctl", "nodes", "commission", "-g", master, "-e", "steps: 400\nlines: 100\nhold: go", w.name("host2"))
	await(t, time.Minute, "the job runs", func() (bool, string) {
		jobs := w.jobs()
		return len(jobs) == 1 && jobs[0].Status == api.Running, fmt.Sprint(len(jobs))
	})
	id := w.jobs()[0].ID
	follower := w.start("host1", "clusterctl", "job", "logs", "-f", id)
	w.awaitLog(id, "this is step 3")
	runner := w.pid(runnerProcess)
	w.replaceProcess(daemonProcess, restartDaemon)
	w.replaceProcess(daemonProcess, killDaemon)
	w.awaitLog(id, "this is step 200")
	w.replaceProcess(daemonProcess, killEtcd+"; "+killDaemon)
	w.awaitLog(id, holdTask)
	w.replaceProcess(daemonProcess, restartDaemon)

	if now := w.pid(runnerProcess); now != runner {
		t.Errorf("the runner was process %s, and is %q", runner, now)
	}

	w.wantHeld("host2", inventory.Provisioning, id)
	w.release("go", "host2")

	j := w.awaitJob(id)
	if j.Status != api.Complete || len(j.Runs) != 1 {
		t.Errorf("the job is %s after %d runs: %s", j.Status, len(j.Runs), j.Message)
	}

	w.wantNode("host2", inventory.Allocated, master)
	w.wantNoJobProcesses()

	log := w.ctl("job", "logs", id).stdout
	w.wantSequence(log, "this is step ", 400)
	w.wantSequence(log, "this is line ", 200)
	follower.awaitEnd(t, 30*time.Second)

	if got := follower.stdout.String(); got != log {
		t.Errorf("the follower has %d bytes of %d: they differ from byte %d on; stderr: %s",
			len(got), len(log), commonPrefix(got, log), follower.stderr.String())
	}

	operator.awaitEnd(t, 30*time.Second)

	if code := operator.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the waiting clusterctl has exit code %d, want 0: %s", code, operator.stderr.String())
	}

	// The node is free again.
	w.do("nodes", "maintenance", w.name("host2"))
}

// TestRunnerKilled: a job whose runner is lost by a power cut ends as interrupted, and its failure
// path runs.
func TestRunnerKilled(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, hosts: 3})

	id := w.submit("nodes", "commission", "-g", master, "-e", "hold: go", w.name("host2"), w.name("host3"))
	w.awaitLog(id, holdTask)
	w.labDo("kill", "host1")
	w.labDo("boot", "host1")
	w.awaitHealthy()

	j := w.awaitJob(id)
	if j.Status != api.Errored || j.Cause != "interrupted" || j.Message == "" ||
		len(j.Runs) != 2 || j.Runs[1].Phase != "undo" {
		t.Errorf("the job is %s (%s): %q, and ran %+v", j.Status, j.Cause, j.Message, j.Runs)
	}

	if log := w.ctl("job", "logs", id).stdout; !strings.Contains(log, holdTask) {
		t.Errorf("the output before the end is lost: %s", log)
	}

	w.wantNoJobProcesses()

	for _, h := range []string{"host2", "host3"} {
		w.wantNode(h, inventory.Unallocated, "")

		if w.hasFile(h, "/etc/systemtest") {
			t.Errorf("%s was not cleaned", h)
		}
	}
}
