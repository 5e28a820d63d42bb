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

// known is everything that an operator set or saw, by the command that shows it.
func (w *world) known() map[string]string {
	w.t.Helper()
	all := map[string]string{}

	see := func(args ...string) string {
		out := w.ctl(args...).stdout
		all[strings.Join(args, " ")] = out

		return out
	}
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
		// A list says how recent the whole store is, which is no news of its items.
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

// stillKnows fails the test where anything differs from what was known before.
func (w *world) stillKnows(before map[string]string) {
	w.t.Helper()

	now := w.known()
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if now[k] != before[k] {
			w.t.Errorf("clusterctl %s has changed:\n%s", k, difference(before[k], now[k]))
		}
	}

	if len(now) != len(before) {
		w.t.Errorf("%d things are known, %d were before", len(now), len(before))
	}
}

// pid is the process of a command line on host1 that matches; "" where there is none.
func (w *world) pid(pattern string) string {
	w.t.Helper()
	return strings.TrimSpace(w.sh("host1", "pgrep -o -f '^"+pattern+"' || true").stdout)
}

const (
	daemonProcess = "/usr/local/bin/clusterm$"
	etcdProcess   = "/usr/local/bin/clusterm etcd"
	runnerProcess = "/usr/local/bin/clusterm runner"
)

// restarted runs the command line on host1, waits until another process
// matches, and the manager is well again.
func (w *world) restarted(process, how string) {
	w.t.Helper()

	old := w.pid(process)
	if old == "" {
		w.t.Fatalf("no process matches %s", process)
	}

	w.sh("host1", how)
	await(w.t, time.Minute, "there is a new "+process, func() (bool, string) {
		now := w.pid(process)
		return now != "" && now != old, now
	})
	w.awaitServing()
}

const (
	terminate = "systemctl restart clusterm"
	killed    = "systemctl kill --signal KILL --kill-who main clusterm"
	killEtcd  = "pkill -KILL -o -f '^" + etcdProcess + "'"
)

// Nothing that was set or seen is lost, whichever process ends in whichever way.
func TestRestartWhileIdle(t *testing.T) {
	w := newWorld(t, setup{small: true})
	w.ctl("global", "set", "-e", `{"fleet": "test"}`)
	w.ctl("vars", "set", "--group", master, "note=of-the-group")
	w.ctl("vars", "set", "--node", w.name("host2"), "-e", `{"list": [1, "two"]}`)
	w.ctl("config", "set", "jobs.forks=7")
	w.commission(master, "host2")
	w.fails("nodes", "commission", "-g", worker, "-e", "{fail_on: host3, fail_cleanup_on: host3}", w.name("host3"))
	// One is not seen, and must be known all the same.
	w.lab("kill", "host4")
	w.awaitState(inventory.Disappeared, "host4")

	before := w.known()
	for _, how := range []struct{ process, how string }{
		{daemonProcess, terminate}, {daemonProcess, killed}, {etcdProcess, killEtcd}, {daemonProcess, killEtcd + "; " + killed},
	} {
		w.restarted(how.process, how.how)
		w.awaitState(inventory.Discovered, "host1", "host2", "host3")
		w.stillKnows(before)

		if t.Failed() {
			t.Fatalf("after %s", how.how)
		}
	}

	// Who goes while the manager is not there is missed when it is back.
	w.sh("host1", "systemctl stop clusterm")

	if r := w.tryCtl("nodes", "get"); r.code != 6 || !strings.Contains(r.stderr, "systemctl") {
		t.Errorf("without a manager: %s", r)
	}

	w.lab("kill", "host3")
	w.sh("host1", "systemctl start clusterm")
	w.awaitServing()
	w.awaitState(inventory.Disappeared, "host3", "host4")
	w.lab("boot", "host3")
	w.awaitState(inventory.Discovered, "host1", "host2", "host3")

	w.lab("kill", "host1")
	w.lab("boot", "host1")
	w.awaitServing()
	w.awaitState(inventory.Discovered, "host1", "host2", "host3")

	now := w.known()
	for _, k := range slices.Sorted(maps.Keys(before)) {
		// The others may have lost sight of it meanwhile, or it of them.
		if now[k] != before[k] && !strings.HasPrefix(k, "nodes ") {
			t.Errorf("after a power cut, clusterctl %s has changed:\n%s", k, difference(before[k], now[k]))
		}
	}

	w.is("host2", inventory.Allocated, master)
	w.is("host3", inventory.Quarantined, worker)
	w.is("host4", inventory.Unallocated, "")
}

// A job goes on while the daemon restarts or is killed, and its output has no
// gap; who waits for it or follows it is not bothered.
func TestRestartInTheMiddleOfAJob(t *testing.T) {
	w := newWorld(t, setup{small: true, hosts: 3})
	operator := w.start(
		"host1",
		nil,
		"clusterctl",
		"nodes",
		"commission",
		"-g",
		master,
		"-e",
		"{steps: 400, lines: 100, hold: go}",
		w.name("host2"),
	)
	await(t, time.Minute, "the job runs", func() (bool, string) {
		jobs := w.jobs()
		return len(jobs) == 1 && jobs[0].Status == api.Running, fmt.Sprint(len(jobs))
	})
	id := w.jobs()[0].ID
	follower := w.start("host1", nil, "clusterctl", "job", "logs", "-f", id)
	w.awaitLog(id, "this is step 3")
	runner := w.pid(runnerProcess)
	w.restarted(daemonProcess, terminate)
	w.restarted(daemonProcess, killed)
	w.awaitLog(id, "this is step 200")
	w.restarted(daemonProcess, killEtcd+"; "+killed)
	w.awaitLog(id, waiting)
	w.restarted(daemonProcess, terminate)

	if now := w.pid(runnerProcess); now != runner {
		t.Errorf("the runner was process %s, and is %q", runner, now)
	}

	w.isHeld("host2", inventory.Provisioning, id)
	w.release("go", "host2")

	j := w.awaitJob(id)
	if j.Status != api.Complete || len(j.Runs) != 1 {
		t.Errorf("the job is %s after %d runs: %s", j.Status, len(j.Runs), j.Message)
	}

	w.is("host2", inventory.Allocated, master)
	w.nothingRuns()

	log := w.ctl("job", "logs", id).stdout
	w.inOrder(log, "this is step ", 400)
	w.inOrder(log, "this is line ", 200)
	follower.ended(t, 30*time.Second)

	if got := follower.stdout.String(); got != log {
		t.Errorf(
			"the follower has %d bytes of %d: they differ from byte %d on; it says %s",
			len(got),
			len(log),
			common(got, log),
			follower.stderr.String(),
		)
	}

	operator.ended(t, 30*time.Second)

	if code := operator.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the operator who waited for it got exit code %d: %s", code, operator.stderr.String())
	}

	// The same job's time is not spent again.
	w.do("nodes", "maintenance", w.name("host2"))
}

// Where the runner itself is gone, the job ends as interrupted, and its failure
// path is run.
func TestRunnerIsKilled(t *testing.T) {
	w := newWorld(t, setup{small: true, hosts: 3})

	killRunner := "kill -KILL $(pgrep -o -f '^" + runnerProcess + "')"
	for _, how := range []struct{ name, script string }{
		{"alone", killRunner},
		{"together with the daemon", killRunner + "; " + killed},
		{"by a power cut", ""},
	} {
		id := w.submit("nodes", "commission", "-g", master, "-e", "hold: go", w.name("host2"), w.name("host3"))
		w.awaitLog(id, waiting)

		switch how.script {
		case "":
			w.lab("kill", "host1")
			w.lab("boot", "host1")
		default:
			w.sh("host1", how.script)
		}

		w.awaitServing()

		j := w.awaitJob(id)
		if j.Status != api.Errored || j.Cause != "interrupted" || j.Message == "" {
			t.Errorf("%s: the job is %s (%s): %q", how.name, j.Status, j.Cause, j.Message)
		}

		if len(j.Runs) != 2 || j.Runs[1].Phase != "undo" {
			t.Errorf("%s: the job ran %+v", how.name, j.Runs)
		}

		if log := w.ctl("job", "logs", id).stdout; !strings.Contains(log, waiting) {
			t.Errorf("%s: what it had printed before is lost: %s", how.name, log)
		}

		w.nothingRuns()

		for _, h := range []string{"host2", "host3"} {
			w.is(h, inventory.Unallocated, "")

			if w.has(h, "/etc/systemtest") {
				t.Errorf("%s: %s was not cleaned", how.name, h)
			}
		}

		if t.Failed() {
			t.Fatal(how.name)
		}

		w.awaitState(inventory.Discovered, "host2", "host3")
	}

	w.commission(master, "host2")
}
