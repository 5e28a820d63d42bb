// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// The groups of the default configuration.
const (
	master = "service-master"
	worker = "service-worker"
)

// Places on the hosts.
const (
	dataDir    = "/var/lib/clusterm"
	ownFolder  = "/root/playbooks" // testdata/playbooks
	configFile = "/etc/clusterm/clusterm.yaml"
)

// setup says what a test finds. The zero value is four hosts, clusterm with its
// own playbooks and no configuration file on the first, an agent on the others,
// and every one of them Discovered.
type setup struct {
	hosts    int
	empty    bool   // no manager either: nothing but the hosts
	bare     bool   // no agents: the others are just Debian with ssh
	serf     string // hosts that run Debian's serf, comma-separated; they do not have our agent
	small    bool   // clusterm uses testdata/playbooks
	settings string // YAML: the rest of the configuration file
}

// world is a lab made anew for one test, with a manager on host1.
type world struct {
	t     *testing.T
	hosts []string
	names map[string]string // node names by host
}

// newWorld makes it. What went before is gone: hosts, disks, keys, the
// manager's store.
func newWorld(t *testing.T, s setup) *world {
	t.Helper()

	if suite.skip != "" {
		t.Skip(suite.skip)
	}

	if suite.ctx.Err() != nil {
		t.Fatal("interrupted, or too little time is left")
	}

	begun := time.Now()

	if s.hosts == 0 {
		s.hosts = 4
	}

	w := &world{t: t, names: map[string]string{}}
	t.Cleanup(func() {
		if t.Failed() {
			w.dump()
		}

		t.Logf("took %s", time.Since(begun).Round(time.Second/10))
	})
	w.lab("down")

	up := []string{"up", fmt.Sprint(s.hosts)}
	if s.serf != "" {
		up = append(up, "--serf-hosts", s.serf)
	}

	w.lab(up...)

	for i := range s.hosts {
		w.hosts = append(w.hosts, fmt.Sprintf("host%d", i+1))
	}

	if s.empty {
		return w
	}

	w.lab("cp", filepath.Join(suite.bin, "clusterm"), "host1:/usr/local/bin/clusterm")
	w.lab("cp", filepath.Join(suite.bin, "clusterctl"), "host1:/usr/local/bin/clusterctl")
	w.lab("cp", repoFile("cmd/clusterm/clusterm.service"), "host1:/etc/systemd/system/clusterm.service")
	w.lab("cp", strings.TrimSpace(w.lab("key").stdout), "host1:/root/.ssh/id_ed25519")

	config := s.settings
	if s.small {
		w.lab("cp", "testdata/playbooks", "host1:"+ownFolder)
		config += "\nplaybooks: " + ownFolder + "\n"
	}

	if config != "" {
		w.write("host1", configFile, config)
	}

	w.sh("host1", "systemctl enable --quiet --now clusterm")

	for _, host := range w.hosts {
		serial := 12
		if slices.Contains(strings.Split(s.serf, ","), host) {
			serial = 8
		}

		w.names[host] = host + "-" + w.sh(host, "cat /etc/machine-id").stdout[:serial]
	}

	if s.bare {
		return w
	}

	key := w.gossipKey()
	for _, host := range w.hosts[1:] {
		if slices.Contains(strings.Split(s.serf, ","), host) {
			w.giveSerfKey(host, key)
			continue
		}

		w.installAgent(host, host, w.serial(host), key)
	}

	w.awaitState(inventory.Discovered, w.hosts...)

	return w
}

func (w *world) gossipKey() string {
	return strings.TrimSpace(w.sh("host1", "cat "+dataDir+"/gossip.key").stdout)
}

// giveSerfKey has Debian's serf on the host encrypt as the manager does.
func (w *world) giveSerfKey(host, key string) {
	w.t.Helper()
	w.write(host, "/etc/serf/key.json", `{"encrypt_key": "`+key+`"}`)
	w.sh(host, "systemctl restart serf")
}

// installAgent puts an agent onto a host by hand, as one would into an image:
// quicker than discover, which has tests of its own.
func (w *world) installAgent(host, label, serial, key string) {
	w.t.Helper()
	w.lab("cp", filepath.Join(suite.bin, "clusterm"), host+":/usr/local/bin/clusterm")
	w.lab(
		"cp",
		repoFile("ansible/roles/agent/files/clusterm-agent.service"),
		host+":/etc/systemd/system/clusterm-agent.service",
	)
	w.write(host, "/etc/clusterm/gossip.key", key+"\n")
	w.write(host, "/etc/clusterm/agent.yaml", fmt.Sprintf(
		"node: {label: %q, serial: %q, addr: %q}\ndata_dir: /var/lib/clusterm-agent\n"+
			"gossip: {bind: '0.0.0.0:7946', key_file: /etc/clusterm/gossip.key, join: ['%s:7946']}\n",
		label, serial, addr(host), addr("host1")))
	w.sh(host, "systemctl enable --quiet --now clusterm-agent")
}

// addr is a host's IPv4 address.
func addr(host string) string {
	var i int
	_, _ = fmt.Sscanf(host, "host%d", &i)

	return fmt.Sprintf("10.77.0.%d", 10+i)
}

// name is the name of the node that a host is.
func (w *world) name(host string) string {
	w.t.Helper()

	name, ok := w.names[host]
	if !ok {
		w.t.Fatalf("there is no %s", host)
	}

	return name
}

// serial is the serial number of a host.
func (w *world) serial(host string) string {
	w.t.Helper()
	return strings.TrimPrefix(w.name(host), host+"-")
}

func (w *world) nodeNames(hosts ...string) []string {
	w.t.Helper()

	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = w.name(h)
	}

	return names
}

// lab runs the lab's tool, which has to succeed.
func (w *world) lab(args ...string) result {
	w.t.Helper()

	r := w.run(nil, args...)
	if r.code != 0 {
		w.t.Fatal(r)
	}

	return r
}

// run runs the lab's tool, and notes what takes long.
func (w *world) run(stdin io.Reader, args ...string) result {
	w.t.Helper()

	r := labRun(suite.ctx, stdin, args...)
	if r.took > 2*time.Second {
		w.t.Logf("%.1f s: %.150q", r.took.Seconds(), r.cmd)
	}

	return r
}

// try runs a shell's command line on a host.
func (w *world) try(host, script string) result {
	w.t.Helper()
	return w.run(nil, "exec", host, "bash", "-c", script)
}

// sh runs a shell's command line on a host, which has to succeed.
func (w *world) sh(host, script string) result {
	w.t.Helper()

	r := w.try(host, script)
	if r.code != 0 {
		w.t.Fatal(r)
	}

	return r
}

// write writes a file on a host, for root only.
func (w *world) write(host, path, content string) {
	w.t.Helper()

	r := w.run(strings.NewReader(content), "exec", host, "sh", "-c",
		`umask 077; mkdir -p "$(dirname "$0")" && cat >"$0"`, path)
	if r.code != 0 {
		w.t.Fatal(r)
	}
}

// tryCtl runs clusterctl on host1.
func (w *world) tryCtl(args ...string) result {
	w.t.Helper()
	return w.run(nil, append([]string{"exec", "host1", "clusterctl"}, args...)...)
}

// ctl runs clusterctl on host1, which has to succeed.
func (w *world) ctl(args ...string) result {
	w.t.Helper()

	r := w.tryCtl(args...)
	if r.code != 0 {
		w.t.Fatal(r)
	}

	return r
}

// refused runs clusterctl, which has to end with the exit code, and to say
// every one of the words on stderr.
func (w *world) refused(code int, words []string, args ...string) result {
	w.t.Helper()

	r := w.tryCtl(args...)
	if r.code != code {
		w.t.Errorf("exit %d, want %d: %s", r.code, code, r)
	}

	for _, word := range words {
		if !strings.Contains(strings.ToLower(r.stderr), strings.ToLower(word)) {
			w.t.Errorf("it does not say %q: %s", word, r)
		}
	}

	return r
}

func decode[T any](w *world, r result) T {
	w.t.Helper()

	var v T
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
		w.t.Fatalf("%v: %s", err, r)
	}

	return v
}

// nodes are all nodes by name.
func (w *world) nodes() map[string]api.Node {
	w.t.Helper()

	all := map[string]api.Node{}
	for _, n := range decode[api.List[api.Node]](w, w.ctl("nodes", "get", "-o", "json")).Items {
		all[n.Name] = n
	}

	return all
}

// node is the node that a host is.
func (w *world) node(host string) api.Node {
	w.t.Helper()

	n, ok := w.nodes()[w.name(host)]
	if !ok {
		w.t.Fatalf("%s is not known", w.name(host))
	}

	return n
}

// jobs are all jobs in order.
func (w *world) jobs() []api.Job {
	w.t.Helper()
	return decode[api.List[api.Job]](w, w.ctl("job", "list", "--limit", "0", "-o", "json")).Items
}

func (w *world) job(id string) api.Job {
	w.t.Helper()
	return decode[api.Job](w, w.ctl("job", "get", id, "-o", "json"))
}

// do runs a verb and waits for its job, which has to be Complete.
func (w *world) do(args ...string) api.Job {
	w.t.Helper()
	return decode[api.Job](w, w.ctl(append(args, "-o", "json")...))
}

// fails runs a verb and waits for its job, which has to fail. What clusterctl
// says on stderr is returned too.
func (w *world) fails(args ...string) (api.Job, string) {
	w.t.Helper()

	r := w.tryCtl(append(args, "-o", "json")...)
	if r.code != 3 {
		w.t.Fatalf("exit %d, want 3 (the job failed): %s", r.code, r)
	}

	return decode[api.Job](w, r), r.stderr
}

// submit asks for a job and does not wait for it.
func (w *world) submit(args ...string) string {
	w.t.Helper()
	return decode[api.Job](w, w.ctl(append(args, "--no-wait", "-o", "json")...)).ID
}

// commission brings hosts into service.
func (w *world) commission(group string, hosts ...string) api.Job {
	w.t.Helper()
	return w.do(append([]string{"nodes", "commission", "-g", group}, w.nodeNames(hosts...)...)...)
}

// awaitJob waits until a job has ended, however it does.
func (w *world) awaitJob(id string) api.Job {
	w.t.Helper()

	r := w.tryCtl("job", "wait", id, "-o", "json")
	if r.code != 0 && r.code != 3 {
		w.t.Fatal(r)
	}

	return decode[api.Job](w, r)
}

// awaitPhase waits until a job runs the phase.
func (w *world) awaitPhase(id, phase string) {
	w.t.Helper()
	await(w.t, time.Minute, "job "+id+" is at "+phase, func() (bool, string) {
		j := w.job(id)
		if j.Status.Ended() {
			w.t.Fatalf("job %s ended %s before %s: %s", id, j.Status, phase, j.Message)
		}

		return j.Phase == phase, string(j.Status) + " " + j.Phase
	})
}

// awaitLog waits until a job's output holds the text.
func (w *world) awaitLog(id, text string) {
	w.t.Helper()
	await(w.t, time.Minute, fmt.Sprintf("job %s prints %q", id, text), func() (bool, string) {
		out := w.ctl("job", "logs", id).stdout
		return strings.Contains(out, text), out
	})
}

// awaitState waits until the hosts' nodes are known and have that state.
func (w *world) awaitState(state inventory.State, hosts ...string) {
	w.t.Helper()
	await(w.t, 90*time.Second, fmt.Sprintf("%v are %s", hosts, state), func() (bool, string) {
		r := w.tryCtl("nodes", "get", "--state", string(state), "-o", "name")

		have := strings.Fields(r.stdout)
		for _, h := range hosts {
			if !slices.Contains(have, w.name(h)) {
				return false, r.String()
			}
		}

		return true, ""
	})
}

// awaitServing waits until the manager answers and is well.
func (w *world) awaitServing() {
	w.t.Helper()
	await(w.t, time.Minute, "the manager is well", func() (bool, string) {
		r := w.tryCtl("health")
		return r.code == 0, r.String()
	})
}

// is fails the test where a host's node has another status or group. An empty
// group is one that is not set.
func (w *world) is(host string, status inventory.Status, group string) {
	w.t.Helper()

	n := w.node(host)
	if n.Status != status || n.Group != group || n.Job != "" {
		w.t.Errorf(
			"%s is %s in group %q, held by job %q, with the error %q; want %s in %q",
			n.Name,
			n.Status,
			n.Group,
			n.Job,
			n.LastError,
			status,
			group,
		)
	}
}

// has tells whether a file is on a host.
func (w *world) has(host, path string) bool {
	w.t.Helper()

	r := w.try(host, "test -e "+path)
	if r.code != 0 && r.code != 1 {
		w.t.Fatal(r)
	}

	return r.code == 0
}

// release lets those go on that wait for the file (the variable hold).
func (w *world) release(name string, hosts ...string) {
	w.t.Helper()

	for _, h := range hosts {
		w.sh(h, "touch /run/"+name)
	}
}

// dump says what can be said of a failure.
func (w *world) dump() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	for _, args := range [][]string{
		{"status"},
		{"exec", "host1", "clusterctl", "nodes", "get"},
		{"exec", "host1", "clusterctl", "job", "list"},
		{"exec", "host1", "clusterctl", "job", "get", "last", "-o", "long"},
		{"exec", "host1", "sh", "-c", "clusterctl job logs last | cut -c1-2000 | tail -n 120"},
		{"exec", "host1", "journalctl", "--no-pager", "-o", "cat", "-u", "clusterm", "-n", "80"},
		{"exec", "host1", "ps", "axf", "-o", "pid,stat,etime,args"},
	} {
		r := labRun(ctx, nil, args...)
		w.t.Logf("--- %s (exit %d)\n%s%s", r.cmd, r.code, r.stdout, r.stderr)
	}
}

// process is a command on a host that a test does not wait for at once.
type process struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
	done   chan struct{} // closed when it has ended
}

// start starts a command on a host. Its standard output goes to stdout where
// that is given, else into the process's buffer. It ends with the test.
func (w *world) start(host string, stdout io.Writer, args ...string) *process {
	w.t.Helper()
	p := &process{done: make(chan struct{})}
	p.cmd = exec.CommandContext(suite.ctx, labTool, append([]string{"exec", host}, args...)...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = 5 * time.Second

	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if stdout != nil {
		p.cmd.Stdout = stdout
	}

	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}

	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Signal(os.Kill)
		<-p.done
	})

	return p
}

// ended waits until the process has ended.
func (p *process) ended(t *testing.T, limit time.Duration) {
	t.Helper()

	timer := time.NewTimer(limit)
	defer timer.Stop()

	select {
	case <-p.done:
	case <-timer.C:
		t.Fatalf("%s has not ended within %s", strings.Join(p.cmd.Args, " "), limit)
	}
}
