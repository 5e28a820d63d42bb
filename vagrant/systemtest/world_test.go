// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// The groups of the default configuration.
const (
	master = "service-master"
	worker = "service-worker"
)

// Places on the hosts.
const (
	dataDir       = "/var/lib/clusterm"
	testPlaybooks = "/root/playbooks" // those of the setup
	configFile    = "/etc/clusterm/clusterm.yaml"
)

// setup describes the hosts that a test starts with. The zero value is four hosts
// of the lab's default suite: host1 runs clusterm with its own playbooks and no
// configuration file, the others run an agent, and all are Discovered.
type setup struct {
	hosts         int
	suite         string // of Debian; "": the lab's default
	noManager     bool   // only the hosts: no clusterm, no agents
	noAgents      bool   // the other hosts are plain Debian with ssh
	serf          string // hosts that run Debian's serf instead of an agent, comma-separated
	testPlaybooks bool   // clusterm uses testdata/playbooks
	playbooks     string // clusterm uses this folder
	disk          string // its size, as 64M: a manager's data directory is a file system of its own
	config        string // YAML: the rest of the configuration file
	programs      string // the folder of the programs on host1; "": those under test
	instances     int    // so many hosts, host1 first, run an instance of the manager; 0: host1 alone
}

// world is a lab with fresh hosts for one test.
type world struct {
	t     *testing.T
	lab   *lab
	env   []string // of the lab's tool
	hosts []string
	names map[string]string // node names by host
	seat  string            // the host where ctl runs clusterctl
}

// newWorld makes the test parallel, waits for a lab that is free, and boots the
// hosts of the setup in it. Hosts, disks, keys and store of the test before are gone.
func newWorld(t *testing.T, s setup) *world {
	t.Helper()
	skipWithoutLab(t)
	t.Parallel()

	l := <-suite.labs

	t.Cleanup(func() { suite.labs <- l })

	if suite.ctx.Err() != nil {
		t.Fatal("interrupted, or too little time is left")
	}

	if s.hosts == 0 {
		s.hosts = 4
	}

	w := &world{t: t, lab: l, names: map[string]string{}, seat: "host1"}
	if s.suite != "" {
		w.env = []string{"LAB_SUITE=" + s.suite}
	}

	begun := time.Now()

	t.Cleanup(func() {
		if t.Failed() {
			w.dump()
		}

		t.Logf("took %s in lab %s", time.Since(begun).Round(time.Second/10), l.name)
	})
	w.boot(s)

	if !s.noManager {
		w.installManager(s)
	}

	if !s.noManager && !s.noAgents {
		w.installAgents(s)
	}

	if s.instances > 1 {
		w.grow(s)
	}

	t.Logf("set up in %s", time.Since(begun).Round(time.Second/10))

	return w
}

func skipWithoutLab(t *testing.T) {
	t.Helper()

	if suite.skip != "" {
		t.Skip(suite.skip)
	}
}

// forSubtest is the same world for a subtest that does not run in parallel.
func (w *world) forSubtest(t *testing.T) *world {
	sub := *w
	sub.t = t
	return &sub
}

func (w *world) boot(s setup) {
	w.t.Helper()
	w.labDo("down")

	up := []string{"up", fmt.Sprint(s.hosts)}
	if s.serf != "" {
		up = append(up, "--serf-hosts", s.serf)
	}
	if s.disk != "" {
		up = append(up, "--disk", dataDir+":"+s.disk)
	}
	w.labDo(up...)

	for i := range s.hosts {
		w.hosts = append(w.hosts, fmt.Sprintf("host%d", i+1))
	}
}

func (s setup) runsSerf(host string) bool { return slices.Contains(strings.Split(s.serf, ","), host) }

// managerFiles puts the playbooks of the setup on a host, and returns the other files of a manager there.
func (w *world) managerFiles(s setup, host string) []file {
	w.t.Helper()

	config, playbooks := s.config, s.playbooks
	if s.testPlaybooks {
		playbooks = "testdata/playbooks"
	}

	if playbooks != "" {
		w.labDo("cp", playbooks, host+":"+testPlaybooks)
		config += "\nplaybooks: " + testPlaybooks + "\n"
	}

	files := append(w.programs(cmp.Or(s.programs, suite.bin)),
		w.read("/etc/systemd/system/clusterm.service", 0o644, repoFile("cmd/clusterm/clusterm.service")),
	)
	if config != "" {
		files = append(files, file{path: "/etc/clusterm/", mode: 0o700}, file{configFile, 0o600, []byte(config)})
	}

	return files
}

// installManager starts clusterm on host1 and fills in the names of the nodes.
func (w *world) installManager(s setup) {
	w.t.Helper()

	files := append(w.managerFiles(s, "host1"), w.read("/root/.ssh/id_ed25519", 0o600, w.keyFile()))
	r := w.install("host1", files, "systemctl enable --quiet --now clusterm")
	if r.code != 0 {
		w.t.Fatal(r)
	}

	for _, host := range w.hosts {
		serial := 12
		if s.runsSerf(host) {
			serial = 8
		}
		w.setName(host, serial)
	}
}

// programs are the programs of a folder, as files on a host.
func (w *world) programs(dir string) []file {
	w.t.Helper()

	return w.programsAt("/usr/local/bin", dir)
}

func (w *world) programsAt(at, dir string) []file {
	w.t.Helper()

	return []file{
		w.read(at+"/clusterm", 0o755, filepath.Join(dir, "clusterm")),
		w.read(at+"/clusterctl", 0o755, filepath.Join(dir, "clusterctl")),
	}
}

// setName derives the name of a host's node: its serial is the beginning of the
// machine-id, 12 digits long with clusterm's agent and 8 with the lab's serf.
func (w *world) setName(host string, digits int) {
	w.t.Helper()
	w.names[host] = host + "-" + w.sh(host, "cat /etc/machine-id").stdout[:digits]
}

// keyFile is the ssh key that every host of the lab accepts.
func (w *world) keyFile() string {
	w.t.Helper()
	return strings.TrimSpace(w.labDo("key").stdout)
}

// installAgents gives every host but the first an agent, or the key of the gossip
// to its serf, and waits until all nodes are Discovered.
func (w *world) installAgents(s setup) {
	w.t.Helper()

	key := w.gossipKey()
	results := make([]result, len(w.hosts))

	var all sync.WaitGroup

	for i, host := range w.hosts[1:] {
		if s.runsSerf(host) {
			w.configureSerfKey(host, key)
			continue
		}

		files := w.agentFiles(host, host, w.serial(host), key)

		all.Go(func() { results[i] = w.install(host, files, startAgent) })
	}

	all.Wait()

	for _, r := range results {
		if r.code != 0 {
			w.t.Fatal(r)
		}
	}

	w.awaitState(inventory.Discovered, w.hosts...)
}

func (w *world) gossipKey() string {
	w.t.Helper()
	return strings.TrimSpace(w.sh("host1", "cat "+dataDir+"/gossip.key").stdout)
}

// configureSerfKey makes Debian's serf on the host encrypt with the manager's key.
func (w *world) configureSerfKey(host, key string) {
	w.t.Helper()
	w.write(host, "/etc/serf/key.json", `{"encrypt_key": "`+key+`"}`)
	w.sh(host, "systemctl restart serf")
}

const startAgent = "systemctl enable --quiet --now clusterm-agent"

// installAgent installs an agent by hand, as one would in an image. It is faster
// than discover, which has tests of its own.
func (w *world) installAgent(host, label, serial, key string) {
	w.t.Helper()

	if r := w.install(host, w.agentFiles(host, label, serial, key), startAgent); r.code != 0 {
		w.t.Fatal(r)
	}
}

func (w *world) agentFiles(host, label, serial, key string) []file {
	w.t.Helper()

	unit := repoFile("ansible/roles/agent/files/clusterm-agent.service")
	config := fmt.Sprintf("node: {label: %q, serial: %q, addr: %q}\n"+
		"data_dir: /var/lib/clusterm-agent\n"+
		"gossip: {bind: '0.0.0.0:7946', key_file: /etc/clusterm/gossip.key, join: ['%s:7946']}\n",
		label, serial, addr(host), addr("host1"))

	return []file{
		w.read("/usr/local/bin/clusterm", 0o755, filepath.Join(suite.bin, "clusterm")),
		w.read("/etc/systemd/system/clusterm-agent.service", 0o644, unit),
		{"/etc/clusterm/", 0o700, nil},
		{"/etc/clusterm/gossip.key", 0o600, []byte(key + "\n")},
		{"/etc/clusterm/agent.yaml", 0o600, []byte(config)},
	}
}

// file is a file on a host, or a directory if the path ends in a slash.
type file struct {
	path    string
	mode    int64
	content []byte
}

// read is a file on a host with the content of one of this machine.
func (w *world) read(path string, mode int64, source string) file {
	w.t.Helper()
	content, err := os.ReadFile(source)
	errtest.None(w.t, err)
	return file{path, mode, content}
}

// install writes files on a host and runs a command line there, all in one
// command. It may be called by several goroutines at a time.
func (w *world) install(host string, files []file, script string) result {
	var archive bytes.Buffer

	out := tar.NewWriter(&archive)

	for _, f := range files {
		header := &tar.Header{Name: "." + f.path, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.path, "/") {
			header.Typeflag = tar.TypeDir
		}

		// A buffer takes everything; only a wrong header can fail.
		if err := out.WriteHeader(header); err != nil {
			return result{cmd: "tar " + f.path, code: -1, stderr: err.Error()}
		}

		_, _ = out.Write(f.content)
	}

	_ = out.Close()

	return w.run(&archive, "exec", host, "sh", "-c", "tar -xf - -C / && "+script)
}

// addr is a host's IPv4 address.
func addr(host string) string {
	var i int
	_, _ = fmt.Sscanf(host, "host%d", &i)
	return fmt.Sprintf("10.77.0.%d", 10+i)
}

// name is the name of a host's node.
func (w *world) name(host string) string {
	w.t.Helper()

	name, ok := w.names[host]
	if !ok {
		w.t.Fatalf("the test has no %s", host)
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

// labDo runs the lab's tool and requires success.
func (w *world) labDo(args ...string) result {
	w.t.Helper()

	r := w.run(nil, args...)
	if r.code != 0 {
		w.t.Fatal(r)
	}
	return r
}

// run runs the lab's tool, and logs a command that takes long.
func (w *world) run(stdin io.Reader, args ...string) result {
	w.t.Helper()

	r := w.lab.runIn(suite.ctx, w.env, stdin, args...)
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

// sh runs a shell's command line on a host and requires success.
func (w *world) sh(host, script string) result {
	w.t.Helper()

	r := w.try(host, script)
	if r.code != 0 {
		w.t.Fatal(r)
	}
	return r
}

// write writes a file on a host, readable by root only.
func (w *world) write(host, path, content string) {
	w.t.Helper()

	r := w.run(strings.NewReader(content), "exec", host, "sh", "-c",
		`umask 077; mkdir -p "$(dirname "$0")" && cat >"$0"`, path)
	if r.code != 0 {
		w.t.Fatal(r)
	}
}

// at is the same world for an operator on another host.
func (w *world) at(host string) *world {
	there := *w
	there.seat = host
	return &there
}

// tryCtl runs clusterctl on host1, or where at says. It confirms changes of several nodes
// with --yes, as every script has to.
func (w *world) tryCtl(args ...string) result {
	w.t.Helper()
	return w.run(nil, append([]string{"exec", w.seat, "clusterctl"}, confirmed(args)...)...)
}

// confirmed inserts --yes into a command that changes nodes.
func confirmed(args []string) []string {
	if len(args) < 2 || args[0] != "nodes" {
		return args
	}

	_, isVerb := inventory.TransitionOf(inventory.Verb(args[1]))
	if isVerb || args[1] == "set" || args[1] == "label" {
		return slices.Insert(slices.Clone(args), 2, "--yes")
	}

	return args
}

// ctl runs clusterctl on host1 and requires success.
func (w *world) ctl(args ...string) result {
	w.t.Helper()

	r := w.tryCtl(args...)
	if r.code != 0 {
		w.t.Fatal(r)
	}
	return r
}

// wantRefused runs clusterctl and requires the exit code, and each of the words
// on stderr in any case of letters.
func (w *world) wantRefused(code int, words []string, args ...string) result {
	w.t.Helper()

	r := w.tryCtl(args...)
	if r.code != code {
		w.t.Errorf("exit %d, want %d: %s", r.code, code, r)
	}

	for _, word := range words {
		if !strings.Contains(strings.ToLower(r.stderr), strings.ToLower(word)) {
			w.t.Errorf("stderr lacks %q: %s", word, r)
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

// node is a host's node.
func (w *world) node(host string) api.Node {
	w.t.Helper()

	n, ok := w.nodes()[w.name(host)]
	if !ok {
		w.t.Fatalf("the inventory lacks %s", w.name(host))
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

// do runs a verb, waits for its job and requires it to be Complete.
func (w *world) do(args ...string) api.Job {
	w.t.Helper()
	return decode[api.Job](w, w.ctl(append(args, "-o", "json")...))
}

// doFails runs a verb, waits for its job and requires it to fail. It also returns
// clusterctl's standard error.
func (w *world) doFails(args ...string) (api.Job, string) {
	w.t.Helper()

	r := w.tryCtl(append(args, "-o", "json")...)
	if r.code != 3 {
		w.t.Fatalf("exit %d, want 3 (the job failed): %s", r.code, r)
	}
	return decode[api.Job](w, r), r.stderr
}

// doLeaves runs a job that completes and leaves residue.
func (w *world) doLeaves(args ...string) api.Job {
	w.t.Helper()

	r := w.tryCtl(append(args, "-o", "json")...)
	if r.code != 8 {
		w.t.Fatalf("exit %d, want 8 (residue is left): %s", r.code, r)
	}
	return decode[api.Job](w, r)
}

// submit submits a job, does not wait for it, and returns its id.
func (w *world) submit(args ...string) string {
	w.t.Helper()
	return decode[api.Job](w, w.ctl(append(args, "--no-wait", "-o", "json")...)).ID
}

// commission commissions hosts into a group.
func (w *world) commission(group string, hosts ...string) api.Job {
	w.t.Helper()
	return w.do(append([]string{"nodes", "commission", "-g", group}, w.nodeNames(hosts...)...)...)
}

// awaitJob waits until a job has ended, with any result.
func (w *world) awaitJob(id string) api.Job {
	w.t.Helper()

	r := w.tryCtl("job", "wait", id, "-o", "json")
	if r.code != 0 && r.code != 3 {
		w.t.Fatal(r)
	}
	return decode[api.Job](w, r)
}

// awaitPhase waits until a job is in the phase.
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

// awaitLog waits until the text is in a job's output.
func (w *world) awaitLog(id, text string) {
	w.t.Helper()
	w.awaitLogs(id, text, 1)
}

// awaitLogs waits until the text is that many times in a job's output.
func (w *world) awaitLogs(id, text string, times int) {
	w.t.Helper()
	await(w.t, time.Minute, fmt.Sprintf("job %s prints %q %d times", id, text, times), func() (bool, string) {
		out := w.ctl("job", "logs", id).stdout
		return strings.Count(out, text) >= times, out
	})
}

// awaitState waits until the hosts' nodes have that state.
func (w *world) awaitState(state inventory.State, hosts ...string) {
	w.t.Helper()

	// Dozens of agents that start at once get ready one after the other.
	limit := 90*time.Second + time.Duration(len(hosts))*4*time.Second

	await(w.t, limit, fmt.Sprintf("%v are %s", hosts, state), func() (bool, string) {
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

// awaitHealthy waits until the manager answers and is healthy. CLUSTERM_FORMER may have the command health instead of
// status.
func (w *world) awaitHealthy() {
	w.t.Helper()
	await(w.t, time.Minute, "the manager is healthy", func() (bool, string) {
		r := w.try(w.seat, "clusterctl status || clusterctl health")
		return r.code == 0, r.String()
	})
}

// wantNode requires the status and the group of a host's node, and that no job
// holds it. An empty group means none.
func (w *world) wantNode(host string, status inventory.Status, group string) {
	w.t.Helper()

	n := w.node(host)
	if n.Status != status || n.Group != group || n.Job != "" {
		w.t.Errorf("%s is %s in group %q, held by job %q, with the error %q; want %s in %q",
			n.Name, n.Status, n.Group, n.Job, n.LastError, status, group)
	}
}

// hasFile reports whether a file exists on a host.
func (w *world) hasFile(host, path string) bool {
	w.t.Helper()

	r := w.try(host, "test -e "+path)
	if r.code != 0 && r.code != 1 {
		w.t.Fatal(r)
	}
	return r.code == 0
}

// release ends the waiting of plays with the variable hold (or hold_cleanup) of
// that name.
func (w *world) release(name string, hosts ...string) {
	w.t.Helper()

	for _, h := range hosts {
		w.sh(h, "touch /run/"+name)
	}
}

// dump logs the state of the lab after a failure.
func (w *world) dump() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	for _, args := range [][]string{
		{"status"},
		{"exec", w.seat, "clusterctl", "instance", "list"},
		{"exec", "host1", "clusterctl", "nodes", "get"},
		{"exec", "host1", "clusterctl", "job", "list"},
		{"exec", "host1", "clusterctl", "job", "get", "last", "-o", "long"},
		{"exec", "host1", "sh", "-c", "clusterctl job logs last | cut -c1-2000 | tail -n 120"},
		{"exec", w.seat, "ps", "axf", "-o", "pid,stat,etime,args"},
		// The end of the output is what is seen first.
		{"exec", w.seat, "sh", "-c", "journalctl --no-pager -o short -u clusterm -n 400 | grep -v prober | tail -n 80"},
	} {
		r := w.lab.run(ctx, nil, args...)
		w.t.Logf("--- %s (exit %d)\n%s%s", r.cmd, r.code, r.stdout, r.stderr)
	}
}

// process is a command that runs on a host while the test goes on.
type process struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
	done   chan struct{} // closed when it has ended
}

// start starts a command on a host. It is killed at the end of the test.
func (w *world) start(host string, args ...string) *process {
	w.t.Helper()
	return w.startLab(append([]string{"exec", host}, args...)...)
}

// startLab starts the lab's tool, as start does.
func (w *world) startLab(args ...string) *process {
	w.t.Helper()
	p := &process{done: make(chan struct{})}
	p.cmd = w.lab.command(suite.ctx, args...)

	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr

	errtest.None(w.t, p.cmd.Start())

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

// awaitEnd waits until the process has ended.
func (p *process) awaitEnd(t *testing.T, limit time.Duration) {
	t.Helper()

	timer := time.NewTimer(limit)
	defer timer.Stop()

	select {
	case <-p.done:
	case <-timer.C:
		t.Fatalf("%s has not ended within %s", strings.Join(p.cmd.Args, " "), limit)
	}
}
