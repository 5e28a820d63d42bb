// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/contracttest"
	"github.com/contiv/cluster/management/engine"
	"github.com/contiv/cluster/management/rollout"

	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/serf"
)

// The test binary is also the runner's process.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "runner" {
		os.Exit(ansible.Main(os.Args[2]))
	}

	debug.SetGCPercent(400) // the tests end before much has to be collected
	unix.Umask(0o022)       // a stricter one would have files more private than the tests want them
	waitTogether()
	keepInMemory()
	os.Exit(m.Run())
}

// waitTogether lets more tests wait at a time than there are processors, unless a
// flag sets the number.
func waitTogether() {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
}

// keepInMemory puts the folders of the tests into memory if there is room. They need
// not outlive the tests, and syncing them would take longer than the tests.
func keepInMemory() {
	wal.SegmentSizeBytes = 1 << 20 // of 64 MB, which are taken in advance
	const dir, room = "/dev/shm", 512 << 20

	var fs unix.Statfs_t
	if os.Getenv("TMPDIR") != "" || unix.Statfs(dir, &fs) != nil || fs.Type != unix.TMPFS_MAGIC ||
		fs.Flags&unix.ST_NOEXEC != 0 || unix.Access(dir, unix.W_OK) != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return
	}

	if err := os.Setenv("TMPDIR", dir); err != nil {
		panic(err)
	}
}

// writeProgram writes a file to execute next. It prevents forks meanwhile: a child
// would hold the file open for writing, and an open file cannot be executed.
func writeProgram(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o700)
}

// patience limits every wait. Debian's serf may spread a change only when members
// exchange their full state, every 15 seconds.
const patience = 2 * time.Minute

// site is a daemon with folders of its own, and a client for it.
type site struct {
	t    *testing.T
	dir  string
	file string // the configuration
	*Daemon
	*client.Client
	url        string         // of plain HTTP
	staleAfter time.Duration  // 0: as usual; that is less than a busy machine may stand still
	tune       func(*Options) // may be nil
	log        logTail

	breaksLifecycle bool // the test writes a status past the manager
}

// logTail keeps the end of a log.
type logTail struct {
	mu      sync.Mutex
	text    []byte
	longest int // bytes of a line
}

func (l *logTail) Write(p []byte) (int, error) {
	const enough = 32 << 10
	l.mu.Lock()
	defer l.mu.Unlock()

	l.longest = max(l.longest, len(p))

	if l.text = append(l.text, p...); len(l.text) > 2*enough {
		l.text = append(l.text[:0], l.text[len(l.text)-enough:]...)
	}

	return len(p), nil
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// prepare writes a configuration; yaml replaces or adds top-level keys.
func prepare(t *testing.T, yaml ...string) *site {
	t.Helper()

	dir, err := os.MkdirTemp("", "cm")
	errtest.None(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &site{t: t, dir: dir, file: filepath.Join(dir, "clusterm.yaml"), staleAfter: 30 * time.Second}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of the daemon ends:\n%s", &s.log)
		}
	})

	errtest.None(t, os.CopyFS(filepath.Join(dir, "playbooks"), os.DirFS("testdata/playbooks")))

	s.write(yaml...)

	return s
}

// write replaces the configuration file.
func (s *site) write(yaml ...string) {
	s.t.Helper()

	fake, err := filepath.Abs("testdata/fake/ansible-playbook")
	errtest.None(s.t, err)

	lines := []string{
		"data_dir: " + s.dir + "/d",
		"socket: " + s.dir + "/s",
		"plain_http: 127.0.0.1:0",
		"plain_http_role: operator",
		"gossip: off",
		"log_level: debug",
		"node: {label: manager, serial: \"1\"}",
		"playbooks: " + s.dir + "/playbooks",
		"ansible_playbook: " + fake,
	}
	for _, more := range yaml {
		key, _, _ := strings.Cut(more, ":")
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, key+":") })
		lines = append(lines, more)
	}

	errtest.None(s.t, os.WriteFile(s.file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
}

func (s *site) options() Options {
	log := logrus.New()
	log.SetOutput(&s.log)

	o := Options{
		// Under the race detector a process would linger for a second at its end.
		ConfigPath: s.file,
		Command:    []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", os.Args[0]},
		InProcess:  true,
		StaleAfter: s.staleAfter,
		Timing:     serf.Loopback(),
		Logger:     log,
		Version:    api.Version{Version: "test"},
	}
	if s.tune != nil {
		s.tune(&o)
	}
	return o
}

// try starts the daemon.
func (s *site) try(limit time.Duration) error {
	s.t.Helper()

	d, err := New(s.options())
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()

	if err := d.Start(ctx); err != nil {
		return err
	}

	s.Daemon = d
	if addrs := d.Addrs(); len(addrs) > 1 {
		s.url = "http://" + addrs[1].String()
	}

	s.Client, err = client.New(client.Options{Socket: s.dir + "/s", Patience: patience, HTTPClient: s.checked()})

	return err
}

// checked returns an HTTP client for the socket that validates every answer against
// openapi.yaml.
func (s *site) checked() *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.dir+"/s")
	}

	return &http.Client{Transport: contracttest.Transport{Base: &http.Transport{DialContext: dial}, Report: s.t.Errorf}}
}

func (s *site) up() {
	s.t.Helper()
	errtest.None(s.t, s.try(patience))
}

func (s *site) down() {
	s.t.Helper()

	if s.Daemon == nil {
		return
	}

	if err := s.Daemon.Stop(context.WithoutCancel(s.t.Context())); err != nil {
		s.t.Error(err)
	}

	if s.judge != nil && s.judge.Violations() > 0 && !s.breaksLifecycle {
		s.t.Error(s.judge.Warning())
	}

	s.Daemon = nil
}

func (s *site) restart() { s.t.Helper(); s.down(); s.up() }

// begin starts a daemon and stops it at the end of the test.
func begin(t *testing.T, yaml ...string) *site {
	t.Helper()
	s := prepare(t, yaml...)
	s.up()
	t.Cleanup(s.down)
	return s
}

func (s *site) ctx() context.Context {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *site) must(err error) {
	s.t.Helper()
	errtest.None(s.t, err)
}

// post and get send a request over plain HTTP, and return status and text.
func (s *site) post(path, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.ctx(), http.MethodPost, s.url+path, strings.NewReader(body))
	s.must(err)
	req.Header.Set("Content-Type", "application/json")
	return s.do(req)
}

func (s *site) get(path string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.ctx(), http.MethodGet, s.url+path, nil)
	s.must(err)
	return s.do(req)
}

func (s *site) do(req *http.Request) (int, string) {
	s.t.Helper()
	resp, err := (&http.Client{Transport: contracttest.Transport{Report: s.t.Errorf}}).Do(req)
	s.must(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	s.must(err)

	return resp.StatusCode, string(body)
}

// report posts nodes as discovered: a-1 at 10.0.0.1 and so on.
func (s *site) report(labels string) {
	s.t.Helper()

	var nodes []string
	for _, l := range strings.Fields(labels) {
		nodes = append(nodes, fmt.Sprintf(`{"label":%q,"serial":"1","addr":"10.0.0.%d"}`, l, l[0]-'a'+1))
	}

	if status, text := s.post(
		api.LegacyMonitorEvent,
		`{"monitor_event":{"name":"discovered","nodes":[`+strings.Join(nodes, ",")+`]}}`,
	); status != http.StatusOK {
		s.t.Fatalf("%d: %s", status, text)
	}
}

// runJob submits a job and waits for its end.
func (s *site) runJob(r api.JobRequest) api.Job {
	s.t.Helper()
	j, err := s.Client.Submit(s.ctx(), r)
	s.must(err)
	j, err = s.Client.WaitJob(s.ctx(), j.ID)
	s.must(err)
	return j
}

func (s *site) status(name string) string {
	s.t.Helper()
	n, err := s.Client.Node(s.ctx(), name)
	s.must(err)
	return strings.TrimSpace(string(n.Status) + " " + n.Group)
}

// checkError checks the kind of an error, and that its text contains all parts.
func checkError(t *testing.T, err error, want inventory.Kind, words ...string) {
	t.Helper()

	if inventory.KindOf(err) != want {
		t.Errorf("%v is %q, want %q", err, inventory.KindOf(err), want)
		return
	}

	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in: %v", w, err)
		}
	}
}

// goroutines counts the goroutines of the daemon and its libraries, and returns their
// stacks.
func goroutines() (int, string) {
	buf := make([]byte, 4<<20)
	stacks := string(buf[:runtime.Stack(buf, true)])
	count := 0

	var out []string
	for _, g := range strings.Split(stacks, "\n\n") {
		if strings.Contains(g, "testing.") && !strings.Contains(g, "created by github.com") ||
			strings.Contains(g, "runtime.Stack") ||
			// Idle connections of net/http, and goroutines that end without help.
			strings.Contains(g, "net/http.(*persistConn)") ||
			strings.Contains(g, "os/signal") {
			continue
		}

		count++
		out = append(out, g)
	}

	return count, strings.Join(out, "\n\n")
}

// TestStopLeavesNothing checks that a stop leaves no goroutines and no socket.
func TestStopLeavesNothing(t *testing.T) {
	s := prepare(t, "gossip: {bind: 127.0.0.1:0}", `node: {label: manager, serial: "1", addr: 127.0.0.1}`)
	s.up() // a first time, so that files made at the first start exist
	s.down()
	http.DefaultClient.CloseIdleConnections()
	before, _ := goroutines()

	for range 2 {
		begun := time.Now()
		s.up()
		t.Logf("started in %s", time.Since(begun).Round(time.Millisecond))
		s.report("a b")
		_, err := s.Nodes(s.ctx(), client.NodeFilter{})
		s.must(err)
		begun = time.Now()
		s.down()
		t.Logf("stopped in %s", time.Since(begun).Round(time.Millisecond))
	}

	http.DefaultClient.CloseIdleConnections()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	deadline := time.After(patience)
	for {
		after, stacks := goroutines()
		if after <= before {
			break
		}

		select {
		case <-tick.C:
			continue
		case <-deadline:
			t.Fatalf("%d goroutines, %d before:\n%s", after, before, stacks)
		}
	}

	if _, err := os.Stat(s.dir + "/s"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestFirstGenerationTakenPort: a taken port hung the daemon. It is an ordinary
// error, at once, and leaves nothing.
func TestFirstGenerationTakenPort(t *testing.T) {
	t.Parallel()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.None(t, err)
	defer l.Close()
	s := prepare(t, "plain_http: "+l.Addr().String())
	checkError(t, s.try(patience), inventory.KindRefused, "another process listens on "+l.Addr().String())

	if _, err := os.Stat(s.dir + "/s"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}

	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	errtest.None(t, err)
	defer u.Close()
	s.write("gossip: {bind: \""+u.LocalAddr().String()+"\"}", `node: {label: manager, serial: "1", addr: 127.0.0.1}`)

	if err := s.try(patience); err == nil || !strings.Contains(err.Error(), u.LocalAddr().String()) {
		t.Errorf("the gossip's port is taken: %v", err)
	}

	s.write() // and nothing is in the way of a good one
	s.up()
	s.down()
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()

	s := begin(t)
	for name, tt := range map[string]struct {
		yaml    []string
		kind    inventory.Kind
		message string
	}{
		"a data directory in use": {
			[]string{"data_dir: " + s.dir + "/d"}, inventory.KindUnavailable, "in use by another clusterm",
		},
		"a socket in use": {[]string{"socket: " + s.dir + "/s"}, inventory.KindRefused, "another process listens on"},
		"a data directory below a file": {
			[]string{"data_dir: " + s.file + "/d"}, inventory.KindUnavailable, "cannot be made",
		},
		"a data directory of another one": {
			[]string{"data_dir: /proc/nope"}, inventory.KindUnavailable, "cannot be made",
		},
		"a socket that is a file": {[]string{"socket: " + s.file}, inventory.KindRefused, "is not a socket"},
		"a key file that is missing": {[]string{
			"gossip: {bind: 127.0.0.1:0, key_file: /nope}", `node: {label: m, serial: "1", addr: 127.0.0.1}`,
		},
			inventory.KindInvalid, "gossip.key_file"},
		"a path that is too long": {
			[]string{"data_dir: " + s.dir + "/" + strings.Repeat("x", 100)}, inventory.KindInvalid,
			"configure a shorter data_dir",
		},
	} {
		other := prepare(t, tt.yaml...)

		limit := patience
		if name == "a data directory in use" {
			limit = time.Second // a daemon that is just ending would be waited for
		}
		err := other.try(limit)
		checkError(t, err, tt.kind, tt.message)

		if err == nil {
			t.Errorf("%s: started", name)
			other.down()
		}
	}

	if _, err := s.Health(s.ctx()); err != nil {
		t.Errorf("the first one is disturbed: %v", err)
	}
}

func TestHealthVersionMetrics(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a b")
	h, err := s.Health(s.ctx())
	s.must(err)

	if h.Status != api.HealthOK || h.Checks["gossip"] != "off" || h.Checks["store"] != "ok" ||
		h.Checks["ansible"] != "ok" ||
		h.Nodes != 2 ||
		h.Instance != "manager-1" ||
		h.Stale {
		t.Errorf("%+v", h)
	}

	v, err := s.Version(s.ctx())
	s.must(err)

	if v.Version != "test" || v.Ansible != "2.16.3" || v.Etcd == "" || v.Go == "" {
		t.Errorf("%+v", v)
	}

	_, text := s.get(api.PathMetrics)
	for _, want := range []string{
		`clusterm_nodes{state="Discovered",status="Unallocated"} 2`, "clusterm_view_stale 0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}

	if strings.Contains(text, "clusterm_gossip_") {
		t.Error("metrics of a gossip that is off")
	}

	if h.Checks["disk"] != "ok" {
		t.Errorf("%+v", h)
	}

	// So does a folder of playbooks that is gone since it was named.
	folder := t.TempDir()
	s.must(os.CopyFS(folder, os.DirFS(filepath.Join(s.dir, "playbooks"))))
	_, err = s.Client.PatchConfig(s.ctx(), map[string]any{"playbooks": folder})
	s.must(err)
	s.must(os.RemoveAll(folder))

	h, err = s.Health(s.ctx())
	if err != nil || h.Status != api.HealthDegraded ||
		!strings.Contains(h.Checks["configuration"], "there is no site.yml in "+folder) {
		t.Errorf("%+v, %v", h, err)
	}

	_, err = s.Client.PatchConfig(s.ctx(), map[string]any{"playbooks": nil})
	s.must(err)
}

// TestConfigDryRun checks that a change of the settings is judged as if it were made, shows
// what it would lead to, and leaves settings, revision and audit trail as they were.
func TestConfigDryRun(t *testing.T) {
	t.Parallel()
	s := begin(t)

	state := func() string {
		config, tag, err := s.TaggedConfig(s.ctx())
		s.must(err)
		trail, err := s.Client.Audit(s.ctx(), client.AuditFilter{Verb: "settings.patch"}, 0)
		s.must(err)
		return fmt.Sprint(tag, config, trail)
	}
	before := state()

	for name, patch := range map[string]map[string]any{
		"a key of the file":  {"data_dir": "/srv"},
		"an unknown key":     {"jobs.limit": 5, "nope": 1},
		"a value":            {"jobs.limit": -1},
		"a folder":           {"playbooks": "/nowhere"},
		"no key":             {},
		"a group of no node": {"groups": []any{}},
	} {
		_, previewed := s.PreviewConfig(s.ctx(), patch)
		if inventory.KindOf(previewed) != inventory.KindInvalid &&
			inventory.KindOf(previewed) != inventory.KindRefused {
			t.Errorf("%s: %v", name, previewed)
		}
	}

	would, err := s.PreviewConfig(s.ctx(), map[string]any{"jobs.limit": 7, "jobs.forks": nil})
	s.must(err)

	if now := state(); now != before {
		t.Errorf("a dry run changed something:\n%s\n%s", before, now)
	}

	is, err := s.Client.PatchConfig(s.ctx(), map[string]any{"jobs.limit": 7, "jobs.forks": nil})
	s.must(err)

	if !reflect.DeepEqual(would, is) || is["jobs.limit"].Value != int64(7) {
		t.Errorf("previewed %+v, then %+v", would["jobs.limit"], is["jobs.limit"])
	}

	if state() == before {
		t.Error("the change left no trace")
	}
}

// TestFirstGenerationLife: a restart lost groups, globals, jobs, logs and nodes.
// Here it is the whole daemon.
func TestFirstGenerationLife(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a b")
	s.must(errors.Join(
		second(s.Client.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"env": "prod"})),
		second(s.Client.SetVars(s.ctx(), client.ScopeGroup(inventory.GroupMaster), api.Vars{"x": "y"})),
		second(s.Client.PatchConfig(s.ctx(), map[string]any{"jobs.limit": 7})),
	))

	j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	if j.Status != api.Complete || j.Group != inventory.GroupMaster || s.status("a-1") != "Allocated service-master" {
		t.Fatalf("%+v", j)
	}

	if code, text := s.post(
		api.LegacyMonitorEvent,
		`{"monitor_event":{"name":"Disappeared","nodes":[{"label":"b","serial":"1","addr":"10.0.0.2"}]}}`,
	); code != 200 || text != "" {
		t.Fatalf("%d %s", code, text)
	}

	all := func() string {
		nodes, err := s.Nodes(s.ctx(), client.NodeFilter{})
		s.must(err)
		job, err := s.Job(s.ctx(), "last")
		s.must(err)
		globals, err := s.Client.Vars(s.ctx(), client.ScopeGlobal)
		s.must(err)
		group, err := s.Client.Vars(s.ctx(), client.ScopeGroup(inventory.GroupMaster))
		s.must(err)
		history, err := s.Client.History(s.ctx(), "a-1", 0)
		s.must(err)
		config, err := s.Client.Config(s.ctx())
		s.must(err)
		_, log := s.get("/info/logs/" + job.ID)
		job.Revision = 0

		// A pointer has another value after the restart.
		shown, err := json.Marshal(nodes.Items)
		s.must(err)

		return fmt.Sprintf(
			"%s\n%+v\n%v %v\n%+v\n%v\n%s",
			shown,
			job.Runs,
			globals,
			group,
			history.Items,
			config["jobs.limit"],
			log,
		)
	}

	before := all()
	if !strings.Contains(before, "changed: [a-1]") || !strings.Contains(before, "env:prod") {
		t.Errorf("%s", before)
	}

	s.restart()

	if after := all(); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
}

func second[T any](_ T, err error) error { return err }

// TestRestartDuringAJob checks that a runner continues without a daemon, and that the
// next daemon adopts it.
func TestRestartDuringAJob(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")
	j, fifo := s.submitWaiting(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	s.restart()

	if got, err := s.Job(s.ctx(), j.ID); err != nil || got.Status != api.Running || len(got.Runs) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}

	s.release(fifo)
	j, err := s.Client.WaitJob(s.ctx(), j.ID)
	s.must(err)

	if j.Status != api.Complete || len(j.Runs) != 1 || s.status("a-1") != "Allocated service-master" {
		t.Errorf("%+v", j)
	}

	_, log := s.get("/info/logs/" + j.ID)
	if strings.Count(log, "PLAY [site.yml]\n") != 1 || strings.Count(log, "PLAY RECAP\n") != 1 {
		t.Errorf("%s", log)
	}
}

// TestCancelWithARunner checks that a cancel ends a real process and cleans up.
func TestCancelWithARunner(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")
	j, fifo := s.submitWaiting(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	_, err := s.Client.Cancel(s.ctx(), "active")
	s.must(err)
	s.until(j.ID, "the cleanup waits", func(j api.Job) bool { return j.Phase == "undo" })
	s.release(fifo) // of the cleanup
	j, err = s.Client.WaitJob(s.ctx(), j.ID)
	s.must(err)

	if j.Status != api.Cancelled || s.status("a-1") != "Unallocated" {
		t.Errorf("%+v", j)
	}

	families := s.scrape()
	for _, cause := range []string{"cancelled", "done"} {
		if got := value(families, "clusterm_runner_ends_total", "cause="+cause); got != 1 {
			t.Errorf("%v runs ended: %s", got, cause)
		}
	}

	if got := value(families, "clusterm_runner_cancellations_total"); got != 1 {
		t.Errorf("%v cancellations", got)
	}
}

// fifo makes a FIFO for a fake playbook to wait at.
func (s *site) fifo(name string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	s.must(unix.Mkfifo(path, 0o600))
	return path
}

// submitWaiting submits a job whose playbooks wait at a fifo, and returns when the first one does.
func (s *site) submitWaiting(r api.JobRequest) (j api.Job, fifo string) {
	s.t.Helper()

	fifo = s.fifo("gate")
	r.ExtraVars = []byte(`{"waits_at":"` + fifo + `"}`)
	j, err := s.Client.Submit(s.ctx(), r)
	s.must(err)
	s.waitOutput(j.ID, "waiting\n")

	return j, fifo
}

// release lets the playbook continue that waits at the FIFO now or later.
func (s *site) release(fifo string) {
	s.t.Helper()

	opened := make(chan error, 1)
	go func() { // blocks until somebody waits
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err == nil {
			err = f.Close()
		}

		opened <- err
	}()

	select {
	case err := <-opened:
		s.must(err)
	case <-s.ctx().Done():
		s.t.Fatal("nobody waits at the FIFO")
	}
}

// waitOutput follows the output of a job until it contains the text.
func (s *site) waitOutput(id, words string) {
	s.t.Helper()
	found := errors.New("found")
	var text string

	err := s.Engine().Log(s.ctx(), id, "text", 0, true, func(_ int64, data []byte) error {
		if text += string(data); strings.Contains(text, words) {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		s.t.Fatalf("%q does not come, but %q: %v", words, text, err)
	}
}

func (s *site) until(id, what string, is func(api.Job) bool) {
	s.t.Helper()

	ctx, cancel := context.WithCancel(s.ctx())
	defer cancel()
	reached := false

	_, err := s.Client.WaitJob(ctx, id, func(j api.Job) {
		if is(j) {
			reached = true
			cancel()
		}
	})
	if !reached {
		s.t.Fatalf("%s: not so: %v", what, err)
	}
}

// TestFirstGenerationGracefulLeave: a graceful leave was ignored. Now the daemon's own
// host and its peers are nodes, and a member that leaves is Disappeared.
func TestFirstGenerationGracefulLeave(t *testing.T) {
	t.Parallel()
	s := begin(t, "gossip: {bind: 127.0.0.1:0}", `node: {label: manager, serial: "1", addr: 127.0.0.1}`)
	s.state("manager-1", inventory.Discovered)
	log := logrus.New()
	log.SetOutput(io.Discard)
	agent, err := serf.Start(s.ctx(), serf.Options{
		Node:    monitor.Identity{Label: "a", Serial: "1", Addr: "127.0.0.1"},
		Bind:    "127.0.0.1:0",
		KeyFile: s.dir + "/d/gossip.key",
		Join:    []string{s.agentVars()["clusterm_gossip_join"].([]any)[0].(string)},
		Timing:  serf.Loopback(),
		Log:     log,
	})
	s.must(err)
	t.Cleanup(func() { agent.Close() })
	s.state("a-1", inventory.Discovered)
	s.must(agent.Leave(s.ctx()))
	s.state("a-1", inventory.Disappeared)

	if got := s.status("a-1"); got != "Unallocated" {
		t.Errorf("the status is %s", got)
	}

	if info, err := os.Stat(s.dir + "/d/gossip.key"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	key := s.agentVars()["clusterm_gossip_key"]
	s.restart()

	if s.agentVars()["clusterm_gossip_key"] != key {
		t.Error("the gossip key has changed")
	}

	s.state("manager-1", inventory.Discovered)
}

// agentVars returns what hosts get to join the gossip.
func (s *site) agentVars() map[string]any {
	s.t.Helper()
	vars, err := s.gossip.AgentVars()
	s.must(err)
	return vars
}

// state waits until the node has that state.
func (s *site) state(name string, want inventory.State) {
	s.t.Helper()

	for {
		changed := s.store.Changed()

		n, err := s.store.View().Node(name)
		if err == nil && n.State == want {
			return
		}

		select {
		case <-changed:
		case <-s.ctx().Done():
			s.t.Fatalf("%s is not %s: %+v, %v", name, want, n, err)
		}
	}
}

// TestRun runs the daemon as main does.
func TestRun(t *testing.T) {
	t.Parallel()
	s := prepare(t)
	options := s.options()
	ready := make(chan struct{})
	options.Ready = func() { close(ready) }
	d, err := New(options)
	s.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	reload := make(chan os.Signal)

	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx, reload) }()

	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}

	s.write("jobs: {limit: 9}")
	reload <- unix.SIGHUP
	reload <- unix.SIGHUP // the one before has been taken in by now
	s.write("nonsense: {")
	reload <- unix.SIGHUP // refused
	reload <- unix.SIGHUP

	if got := d.settings.Config()["jobs.limit"]; fmt.Sprint(got.Value) != "9" || got.Origin != "file" {
		t.Errorf("%+v", got)
	}

	cancel()

	if err := <-ended; err != nil {
		t.Error(err)
	}

	if _, err := New(options); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("a corrupt file: %v", err)
	}
}

// TestStopWithoutStore checks that a stop without etcd does not wait for requests that
// wait for etcd.
func TestStopWithoutStore(t *testing.T) {
	t.Parallel()
	s := prepare(t)
	s.staleAfter = 600 * time.Millisecond
	s.up()
	t.Cleanup(s.down)

	closed := make(chan error, 1)
	go func() { closed <- s.etcd.Embedded.Close() }() // it takes its time, and serves nobody meanwhile
	s.eventually("stale", func() bool { return s.store.View().Stale })

	answered := make(chan error, 1)
	go func() {
		for { // each request fails soon
			_, err := s.SetVars(context.WithoutCancel(t.Context()), client.ScopeGlobal, api.Vars{"a": "b"})
			if err == nil || !strings.Contains(err.Error(), "the store does not answer") {
				answered <- err
				return
			}
		}
	}()
	s.eventually("a request waits", func() bool {
		families, err := s.metrics.Gather()
		s.must(err)
		i := slices.IndexFunc(
			families,
			func(f *dto.MetricFamily) bool { return f.GetName() == "clusterm_http_requests_in_flight" },
		)

		return families[i].GetMetric()[0].GetGauge().GetValue() == 1
	})
	s.down()
	// The stop ended the request, or the next one met no manager.
	checkError(t, <-answered, inventory.KindUnavailable)
	s.must(<-closed)
}

// TestPlaybooks checks that a defect of the folder is reported before a job is accepted.
func TestPlaybooks(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")
	site := filepath.Join(s.dir, "playbooks", "site.yml")
	ask := func() error {
		_, err := s.Client.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
		return err
	}
	good, err := os.ReadFile(site)
	s.must(err)
	s.must(os.WriteFile(site, append(good, "# broken\n"...), 0o600))
	checkError(t, ask(), inventory.KindInvalid, "site.yml does not parse", "is broken")

	s.must(os.Remove(site))
	checkError(t, ask(), inventory.KindInvalid, "site.yml")
	s.must(os.WriteFile(site, good, 0o600))

	// Variables that a run could not load.
	vars := filepath.Join(s.dir, "playbooks", "host_vars")
	s.must(os.Mkdir(vars, 0o700))
	s.must(os.WriteFile(filepath.Join(vars, "a-1.yml"), []byte("broken"), 0o600))
	checkError(t, ask(), inventory.KindInvalid, "variables of the playbook folder cannot be loaded", "are broken")
	s.must(os.RemoveAll(vars))
	s.must(ask())

	if jobs, err := s.Jobs(s.ctx(), client.JobFilter{}); err != nil || len(jobs.Items) != 1 {
		t.Errorf("%+v, %v", jobs, err)
	}

	_, err = s.Client.WaitJob(s.ctx(), "1")
	s.must(err)
}

// onWarning calls the function for every logged warning.
type onWarning func()

func (onWarning) Levels() []logrus.Level     { return []logrus.Level{logrus.WarnLevel} }
func (f onWarning) Fire(*logrus.Entry) error { f(); return nil }

// TestStopWhileItStarts stops a daemon that waits for an earlier one. That is no
// failure, and leaves nothing behind.
func TestStopWhileItStarts(t *testing.T) {
	t.Parallel()
	s := prepare(t)
	held, err := etcd.LockDir(s.ctx(), filepath.Join(s.dir, "d", "etcd"), logrus.New())
	s.must(err)
	ctx, cancel := context.WithCancel(s.ctx())
	options := s.options()
	options.Logger.AddHook(onWarning(cancel)) // that it waits
	d, err := New(options)
	s.must(err)

	if err := d.Run(ctx, nil); err != nil || ctx.Err() == nil {
		t.Errorf("%v", err)
	}

	s.must(held.Close())
	s.up()
	s.down()
}

// Engine returns the daemon's job engine.
func (d *Daemon) Engine() *engine.Engine { return d.engine }

// Rollouts returns the daemon's rollouts.
func (d *Daemon) Rollouts() *rollout.Loop { return d.rollouts }

// View returns the daemon's newest view.
func (d *Daemon) View() *state.View { return d.store.View() }
