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

// jobProcesses lists the processes of jobs on the manager's host.
func (w *world) jobProcesses() []string {
	w.t.Helper()
	// Brackets keep the pattern from matching the grep itself.
	pattern := `[a]nsible-playbook|[c]lusterm runner|[ /]ssh[: ]|[s]ftp|/var/lib/clusterm/[r]uns/`
	out := w.sh("host1", `ps -eo pid,args | grep -E '`+pattern+`' || true`).stdout
	return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' })
}

// wantNoJobProcesses requires that no process of a job is left.
func (w *world) wantNoJobProcesses() {
	w.t.Helper()

	if left := w.jobProcesses(); len(left) > 0 {
		w.t.Errorf("processes of an ended job are left: %s", strings.Join(left, "\n"))
	}
}

// holdTask is the output of a play that waits for release.
const holdTask = "TASK [Wait to be released]"

// TestCancel: a cancel ends every process of the job and cleans up, a second one
// skips the cleanup, and a deadline acts like the first.
func TestCancel(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, hosts: 3})
	both := w.nodeNames("host2", "host3")
	commission := append([]string{"nodes", "commission", "-g", master}, both...)
	command := append([]string{"clusterctl"}, commission...)
	operator := w.start("host1", append(command, "--yes", "-e", "hold: go")...)

	await(t, time.Minute, "the job runs", func() (bool, string) {
		jobs := w.jobs()
		return len(jobs) == 1 && jobs[0].Status == api.Running, fmt.Sprint(len(jobs))
	})
	id := w.jobs()[0].ID
	w.awaitLog(id, holdTask)

	if len(w.jobProcesses()) == 0 {
		t.Fatal("the test does not find the job's processes")
	}

	w.wantHeld("host2", inventory.Provisioning, id)

	w.ctl("job", "cancel", id)
	j := w.awaitJob(id)
	w.wantNoJobProcesses()

	if j.Status != api.Cancelled || j.CancelBy != "root" || !strings.Contains(j.Message, "root") {
		t.Errorf("the job is %s, cancelled by %q: %q", j.Status, j.CancelBy, j.Message)
	}

	operator.awaitEnd(t, 10*time.Second)

	if code := operator.cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("the waiting clusterctl has exit code %d, want 3: %s", code, operator.stderr.String())
	}

	for _, h := range []string{"host2", "host3"} {
		w.wantNode(h, inventory.Unallocated, "")

		if w.hasFile(h, "/etc/systemtest") {
			t.Errorf("%s was not cleaned", h)
		}
	}

	id = w.submit(append(commission, "-e", "hold: go\nhold_cleanup: go")...)
	w.awaitLog(id, holdTask)
	w.ctl("job", "cancel", id)
	w.awaitPhase(id, "undo")
	w.awaitLogs(id, holdTask, 2)
	w.ctl("job", "cancel", id)
	j = w.awaitJob(id)
	w.wantNoJobProcesses()

	if j.Status != api.Cancelled || j.Cancel != 2 {
		t.Errorf("the job is %s after %d cancels", j.Status, j.Cancel)
	}

	for _, h := range []string{"host2", "host3"} {
		w.wantNode(h, inventory.Quarantined, master)

		if !w.hasFile(h, "/etc/systemtest") {
			t.Errorf("%s was cleaned", h)
		}
	}

	w.do(append([]string{"nodes", "clear"}, both...)...)
	w.wantNode("host2", inventory.Unallocated, "")

	if w.hasFile("host2", "/etc/systemtest") {
		t.Error("the clear did not clean")
	}

	j, _ = w.doFails(append(commission, "--timeout", "6s", "-e", "hold: go")...)
	w.wantNoJobProcesses()

	if j.Status != api.Errored || j.Cause != "deadline" {
		t.Errorf("a job after its deadline is %s (%s): %q", j.Status, j.Cause, j.Message)
	}

	w.wantNode("host2", inventory.Unallocated, "")
}

// wantHeld requires that a job holds the host's node in that status.
func (w *world) wantHeld(host string, status inventory.Status, job string) {
	w.t.Helper()

	if n := w.node(host); n.Status != status || n.Job != job {
		w.t.Errorf("%s is %s, held by job %q; want %s, by job %s", n.Name, n.Status, n.Job, status, job)
	}
}

// commonPrefix is the number of leading bytes that a and b share.
func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}

	return n
}

// wantSequence requires prefix followed by 0, 1, … n-1 in the text, each once and in
// order.
func (w *world) wantSequence(text, prefix string, n int) {
	w.t.Helper()

	next := 0
	for line := range strings.Lines(text) {
		_, number, ok := strings.Cut(line, prefix)
		if !ok {
			continue
		}

		if got := strings.TrimRight(strings.TrimSpace(number), `",`); got != fmt.Sprint(next) {
			w.t.Errorf("%s%s follows %d", prefix, got, next-1)
			return
		}

		next++
	}

	if next != n {
		w.t.Errorf("the last is %s%d, want %d of them", prefix, next-1, n)
	}
}

// TestCanary: secret variables of every origin are found nowhere on the hosts, with the
// real Ansible, a runner that is killed, and a manager that crashes; only the playbook's
// own file has the one that it writes.
func TestCanary(t *testing.T) {
	w := newWorld(t, setup{
		testPlaybooks: true, hosts: 2, config: "secrets: {sources: {outside: {file: /root/canary/outside}}}",
	})
	const canary = "c4n4ry-77d1e0"
	w.write("host1", "/root/canary/pin", canary+"-pin\n")
	w.write("host1", "/root/canary/outside", canary+"-outside\n")
	w.write("host1", "/root/canary/vars.yml", "note: "+canary+"-note\nhold: go\nrequest_token: "+canary+"-request\n")
	w.ctl("vars", "set", "--global", "--secret", "pin=@/root/canary/pin", "note=@/root/canary/pin")
	watch := func(host string) *process {
		return w.start(host, "bash", "-c", `while [ ! -e /run/enough ]; do
			for f in /proc/[0-9]*/cmdline /proc/[0-9]*/environ; do
				if grep -qs `+canary[:6]+`'`+canary[6:]+`' "$f"; then echo "$f $(tr '\0' ' ' <"$f")"; fi
			done
		done 2>/dev/null`)
	}
	watchers := map[string]*process{"host1": watch("host1"), "host2": watch("host2")}
	find := func(host string) string {
		w.write(host, "/root/canary/pattern", canary+"\n")

		return w.sh(host, `grep -rlaFf /root/canary/pattern /etc /root /run /tmp /var 2>/dev/null |
			grep -v ^/root/canary/ || true`).stdout
	}

	// The runner is killed: the daemon removes the files of the run in its place.
	killed := w.submit("nodes", "commission", "-g", master, "-e", "@/root/canary/vars.yml", w.name("host2"))
	w.awaitLog(killed, holdTask)

	if found := find("host1"); !strings.Contains(found, dataDir+"/runs/") {
		t.Errorf("the test does not find the secret in the job's files, only in %q", found)
	}

	w.sh("host1", "kill -KILL $(pgrep -o -f '^"+runnerProcess+"')")

	if j := w.awaitJob(killed); j.Status != api.Errored {
		t.Errorf("the job with a killed runner is %s: %s", j.Status, j.Message)
	}

	w.release("go", "host2")

	j := w.do("nodes", "commission", "-g", master, "-e", "@/root/canary/vars.yml", w.name("host2"))
	if j.Status != api.Complete {
		t.Errorf("the job is %s: %s", j.Status, j.Message)
	}

	for host, p := range watchers {
		w.release("enough", host)
		p.awaitEnd(t, 20*time.Second)

		if out := p.stdout.String(); out != "" {
			t.Errorf("the secret is in the process list of %s: %s", host, out)
		}
	}

	// A crash prints every goroutine.
	w.ctl("key", "rotate", "secrets")
	w.sh("host1", `cd /root && clusterctl support-bundle --journal /tmp/bundle.tar.gz && mkdir /tmp/bundle &&
		tar -C /tmp/bundle -xzf /tmp/bundle.tar.gz
		clusterm audit --json >/tmp/audit.jsonl
		sync`)
	w.replaceProcess(daemonProcess, "systemctl kill --signal ABRT --kill-who main clusterm")
	w.sh("host1", `journalctl -u clusterm >/tmp/journal
		grep -q SIGABRT /tmp/journal && grep -q goroutine /tmp/journal`)

	if found := find("host1"); found != "" {
		t.Errorf("the secret is on the manager's host in:\n%s", found)
	}

	if found := strings.TrimSpace(find("host2")); found != "/etc/systemtest" {
		t.Errorf("the secret is on the other host in:\n%s", found)
	}

	for _, args := range [][]string{
		{"vars", "get", "--global"}, {"job", "logs", j.ID}, {"job", "get", j.ID, "-o", "json"},
	} {
		if out := w.ctl(args...).stdout; strings.Contains(out, canary) {
			t.Errorf("clusterctl %s shows the secret:\n%s", strings.Join(args, " "), out)
		}
	}
}
