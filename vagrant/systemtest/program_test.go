// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// formerVersion is what the programs before the upgrade show as their version.
const formerVersion = "0.0.1"

// formerPrograms is the folder of the programs before the upgrade: those of CLUSTERM_FORMER, a folder with clusterm and
// clusterctl. Without it they are built of the last tag before this commit, of the commit in testdata/former, or, where
// the checkout has neither, of this tree as it would be with the former version of the stored data and without a field:
// then these are known to differ.
func formerPrograms(t *testing.T) (dir string, differs bool) {
	t.Helper()
	skipWithoutLab(t)

	if dir := os.Getenv("CLUSTERM_FORMER"); dir != "" {
		t.Logf("the former programs are those in %s", dir)
		return dir, false
	}

	tree, overlay := formerTree(t), ""
	if tree == "" {
		tree, overlay = repoFile(""), formerOverlay(t)
		t.Log("the former programs are built of this tree with an overlay")
	}

	dir = t.TempDir()

	args := []string{"build", "-ldflags", "-s -w -X main.version=" + formerVersion, "-o", dir}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}

	cmd := exec.CommandContext(suite.ctx, "go", append(args, "./cmd/clusterm", "./cmd/clusterctl")...)
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	return dir, overlay != ""
}

// formerTree is the source of the version before; empty: the checkout does not have it.
func formerTree(t *testing.T) string {
	t.Helper()

	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(suite.ctx, "git", args...)
		cmd.Dir = repoFile("")
		out, err := cmd.Output()

		return strings.TrimSpace(string(out)), err
	}

	commit, err := git("describe", "--tags", "--abbrev=0", "HEAD^")
	if err != nil {
		named, _, _ := strings.Cut(string(readFile(t, "testdata/former")), "\n")
		if commit, err = git("rev-parse", "--verify", "--quiet", named+"^{commit}"); err != nil {
			return ""
		}
	}

	dir := t.TempDir()
	archive := filepath.Join(dir, "former.tar")
	facts := "inventory/facts/program/built"

	if _, err := git("archive", "--output", archive, commit); err != nil {
		t.Fatal(err)
	}

	for _, cmd := range []*exec.Cmd{
		exec.CommandContext(suite.ctx, "tar", "-xf", archive, "-C", dir),
		exec.CommandContext(suite.ctx, "cp", "-r", repoFile(facts), filepath.Dir(filepath.Join(dir, facts))),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}

	t.Logf("the former programs are built of %s", commit)

	return dir
}

// formerOverlay makes this tree one that knows the former versions of the stored data only, and has no names of extra
// variables in the records of rollouts.
func formerOverlay(t *testing.T) string {
	t.Helper()

	dir, replace := t.TempDir(), map[string]string{}

	for path, changes := range map[string][][2]string{
		"inventory/etcd/client.go": {
			{`const Schema = "3"`, `const Schema = "2"`}, {`const formerSchema = "2"`, `const formerSchema = "1"`},
		},
		"management/rollout/record.go": {{`json:"extra_names,omitempty"`, `json:"-"`}},
	} {
		text := string(readFile(t, repoFile(path)))

		for _, c := range changes {
			if strings.Count(text, c[0]) != 1 {
				t.Fatalf("%s does not have once: %s", path, c[0])
			}
			text = strings.Replace(text, c[0], c[1], 1)
		}

		from, err := filepath.Abs(repoFile(path))
		if err != nil {
			t.Fatal(err)
		}

		to := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		replace[from] = to
		writeFile(t, to, []byte(text))
	}

	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}

	overlay := filepath.Join(dir, "overlay.json")
	writeFile(t, overlay, text)

	return overlay
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return text
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()

	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// replacePrograms installs other programs on host1 and restarts the manager, as an upgrade
// does, and waits until it is healthy.
func (w *world) replacePrograms(dir, restart string) {
	w.t.Helper()

	if r := w.install("host1", w.programs(dir), "true"); r.code != 0 {
		w.t.Fatal(r)
	}

	w.replaceProcess(daemonProcess, restart)
	w.awaitState(inventory.Discovered, w.hosts...)
}

// fleetView is what an operator set or saw and no job changes, by the command that prints it.
func (w *world) fleetView() map[string]string {
	w.t.Helper()

	all := map[string]string{}

	for _, line := range []string{
		"nodes get", "groups", "global get", "vars get --group " + worker,
		"vars get --node " + w.name("host3") + " --merged", "vars history --global", "config get groups",
		"config get policies.verify", "token list", "plan list", "rollout list", "policy list",
		"nodes history " + w.name("host3"),
	} {
		all[line] = withoutTimes(w.ctl(append(strings.Fields(line), "-o", "json")...).stdout)
	}

	all["nodes get -l outdated=true"] = w.tryCtl("nodes", "get", "-l", "outdated=true", "-o", "name").stdout
	all["job logs 1"] = w.ctl("job", "logs", "1").stdout

	return all
}

// passing matches the lines of JSON with a value that a restart or the time changes.
var passing = regexp.MustCompile(`(?m)^.*"(revision|generation|etag|started|version|used|remaining|updated)":.*\n`)

// withoutTimes returns the JSON without them. A comma could then be the last one.
func withoutTimes(text string) string {
	return strings.ReplaceAll(passing.ReplaceAllString(text, ""), ",\n", "\n")
}

// TestUpgradeOfTheProgram: the programs are replaced under a fleet in use. The running job keeps
// its runner, rollouts go on, and nothing that an operator set or saw is lost or differs.
func TestUpgradeOfTheProgram(t *testing.T) {
	former, _ := formerPrograms(t)
	w := newWorld(t, setup{hosts: 6, programs: former, config: `
repository: {url: ` + servedRepo + `, branch: main, interval: 10s}
windows: [{name: always, groups: [service-worker], cron: "0 0 * * *", duration: 24h}]
`})
	w.useFleet()

	held := w.submit("nodes", "apply", "-e", "hold: go", "-e", "steps: 50", w.name("host2"))
	w.awaitLog(held, holdTask)
	queued := w.submit("nodes", "apply", w.name("host2"))
	runner := w.pid(runnerProcess)

	w.ctl("vars", "set", "--node", w.name("host4"), "hold=gate")
	w.release("gate", "host3", "host5", "host6")

	running := w.rollout("--order", "name", "--no-verify")
	await(t, 2*time.Minute, "the rollout works on host4", func() (bool, string) {
		n := w.node("host4")
		return n.Job != "" && n.Status == inventory.Maintenance, string(n.Status)
	})

	job := w.node("host4").Job
	w.awaitLog(job, holdTask)

	before := w.fleetView()

	for _, restart := range []string{restartDaemon, killDaemon} {
		w.replacePrograms(suite.bin, restart)
		w.wantFleet(before)
	}

	if now := w.pid(runnerProcess); now != runner {
		t.Errorf("the runner was process %s, and is %q", runner, now)
	}

	w.release("go", "host2")
	w.release("gate", "host4")

	for _, id := range []string{held, job, queued} {
		if j := w.awaitJob(id); j.Status != api.Complete || j.Runs[0].Hosts == nil {
			t.Errorf("job %s is %s: %s", j.ID, j.Status, j.Message)
		}
	}

	w.wantSequence(w.ctl("job", "logs", held).stdout, "this is step ", 50)
	w.awaitRollout(running, "Done")
	w.finishFleet()
}

// useFleet commissions the hosts in three groups, and uses everything that is stored.
func (w *world) useFleet() {
	w.t.Helper()

	repo := w.newRepo()
	repo.write("site.yml", strings.ReplaceAll(readSite(w.t), "service-worker:", "service-worker:storage:"))
	repo.write("cleanup.yml", `---
- hosts: service-master:service-worker:storage:&job_targets
  gather_facts: false
  tasks: [{ansible.builtin.file: {path: /etc/systemtest, state: absent}}]
`)
	w.sync(repo.push("first"))
	w.ctl("config", "set", `groups=[{"name":"service-master","budget":{"max_unavailable":"1"}},`+
		`{"name":"service-worker","requires":{"service-master":1},"budget":{"max_unavailable":"50%"}},`+
		`{"name":"storage","strategy":{"soak":"1s"}}]`)
	w.ctl("config", "set", `policies.verify={"nightly":{"match":"group=`+worker+`","cron":"0 3 * * *"}}`)
	w.ctl("policy", "enable", "nightly", "--reason", "drift is to be found")
	w.ctl("global", "set", "-e", `{"fleet": "test", "db_password": "s3cret"}`)
	w.ctl("vars", "set", "--group", worker, "note=of-the-group")
	w.ctl("vars", "set", "--node", w.name("host3"), "-e", `{"list": [1, "two"], "api_token": "t0ken"}`)
	w.commission(master, "host2")
	w.commission(worker, "host3", "host4", "host5")
	w.commission("storage", "host6")
	w.ctl("token", "create", "--role", "operator", "--scope-group", worker, "--name", "workers", "--save", "/root/w")
	w.do("nodes", "verify", w.name("host6"))
	w.awaitRollout(w.rollout(), "Done")
	w.ctl("global", "set", "-e", `{"fleet": "renamed"}`)
	w.ctl("nodes", "apply", "--plan", w.name("host6"))
}

// wantFleet requires the same view as before, and a sound manager.
func (w *world) wantFleet(before map[string]string) {
	w.t.Helper()

	for line, now := range w.fleetView() {
		if now != before[line] {
			w.t.Errorf("the output of clusterctl %s differs:\n%s", line, difference(before[line], now))
		}
	}

	if text := w.ctl("status").stdout; strings.Contains(text, "unreadable") {
		w.t.Errorf("the health is\n%s", text)
	}

	w.sh("host1", "clusterm audit verify && clusterm store check")
	w.ctl("--token-file", "/root/w", "nodes", "get")
}

// finishFleet configures all nodes again: nothing is outdated then.
func (w *world) finishFleet() {
	w.t.Helper()
	w.ctl("vars", "unset", "--node", w.name("host4"), "hold")
	w.do("nodes", "apply", w.name("host2"))
	w.awaitRollout(w.rollout(), "Done")
	w.do("nodes", "apply", w.name("host6"))

	if out := w.tryCtl("nodes", "get", "-l", "outdated=true", "-o", "name").stdout; out != "" {
		w.t.Errorf("outdated after all:\n%s", out)
	}
}
