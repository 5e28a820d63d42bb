// SPDX-License-Identifier: Apache-2.0

package processtest

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// patience bounds every wait for a process.
const patience = time.Minute

var scratch string

// program is clusterm, built for the first test that needs it.
var program = sync.OnceValue(func() string {
	path, err := Build(scratch)
	if err != nil {
		panic(err)
	}
	return path
})

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "cm"); err != nil {
			panic(err)
		}

		defer os.RemoveAll(scratch)
		// More tests wait at a time than there are processors, unless the command
		// line says otherwise.
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}

		return m.Run()
	}())
}

// clusterm runs a command and returns its exit status and output.
func clusterm(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	path := program() // the first call builds it, outside the timeout

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()

	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}

	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func dir(t *testing.T) string {
	t.Helper()

	d, err := os.MkdirTemp("", "cm")
	errtest.None(t, err)
	t.Cleanup(func() { os.RemoveAll(d) })
	return d
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	errtest.None(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestCommands(t *testing.T) {
	t.Parallel()
	d := dir(t)
	good := write(t, filepath.Join(d, "good.yaml"), "gossip: off\n")
	bad := write(t, filepath.Join(d, "bad.yaml"), "gossip: off\nnonsense: 1\n")

	example, watch := "../../../management/setting/clusterm.yaml", "../../../monitor/report/monitor.yaml"
	for _, tt := range []struct {
		args   string
		status int
		stdout string
		stderr string
	}{
		{"version", 0, "clusterm devel", ""},
		{"example", 0, "data_dir: /var/lib/clusterm", ""},
		{"--help", 0, "clusterm agent [--config FILE]", ""},
		{"check --help", 0, "check a configuration file", ""},
		{"check --config " + good, 0, "", "ok: " + good},
		{"check -c " + bad, 1, "", "line 2: key nonsense not found\n  'clusterm example' prints"},
		{"check -c /nope", 1, "", "cannot be read"},
		{"check " + good, 2, "", "takes no argument"},
		{"--config " + bad, 78, "", "line 2: key nonsense not found"},
		{"reload --help", 0, "clusterm reload [--config FILE] [--socket PATH]", ""},
		{"reload --socket " + d + "/none", 1, "", "systemctl kill -s HUP clusterm; for another socket: systemctl"},
		{"reload extra", 2, "", "takes no argument"},
		{"agent --config /nope", 1, "", "/nope"},
		{"agent extra", 2, "", "takes no argument"},
		{"playbooks", 2, "", "needs a command: export or check"},
		{"playbooks nope", 2, "", `no command "playbooks nope"`},
		{"playbooks export", 2, "", "takes one folder"},
		{"playbooks export " + d, 1, "", d + " is not empty; nothing was written\n  give an empty or a new folder"},
		{"playbooks export " + d + "/new", 0, "", "clusterm playbooks check " + d + "/new"},
		{"playbooks check -o yaml", 2, "", "text or json"},
		{"playbooks check -c " + bad, 1, "", "key nonsense not found"},
		{"monitor --help", 0, "clusterm ca issue --role monitor", ""},
		{"ca issue --role viewer --scope-group= ann f", 2, "", "the scope is empty and would be every node"},
		{"ca issue --role viewer --scope-selector= ann f", 2, "", "the scope is empty and would be every node"},
		{"monitor --example", 0, "report_to:", ""},
		{"monitor --check -c " + watch, 0, "", "ok: " + watch},
		{"monitor --check -c " + bad, 1, "", "line 2: key nonsense not found"},
		{"monitor --config /nope", 1, "", "cannot be read"},
		{"monitor extra", 2, "", "takes no argument"},
		{"explode", 2, "", `no command "explode"`},
		{"explode --help", 2, "", `no command "explode"`},
		{"stor --help", 2, "", `no command "stor"; did you mean "store"?`},
		{"-c " + bad + " store chek --help", 2, "", `no command "store chek"; did you mean "store check"?`},
		{"--config " + bad + " help stor", 2, "", `no command "stor"; did you mean "store"?`},
		{"help store", 0, "clusterm store - ", ""},
		{"store help", 0, "clusterm store - ", ""},
		{"--nope", 2, "", "nope"},
		{"check --nope", 2, "", "nope"},
		{"check --config", 2, "", "config"},
	} {
		status, stdout, stderr := clusterm(t, strings.Fields(tt.args)...)
		if status != tt.status || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) ||
			tt.status != 0 && stdout != "" {
			t.Errorf("clusterm %s: %d\n%s\n%s", tt.args, status, stdout, stderr)
		}

		// The error is one line, and its remedy the next.
		text, remedy, more := strings.Cut(strings.TrimSuffix(stderr, "\n"), "\n")

		oneRemedy := strings.HasPrefix(remedy, "  ") && !strings.Contains(remedy, "\n")
		if tt.status != 0 && (!strings.HasPrefix(text, "clusterm: ") || more && !oneRemedy) {
			t.Errorf("clusterm %s: malformed error: %s", tt.args, stderr)
		}

		if tt.status == 2 && !strings.Contains(stderr, "see clusterm --help") {
			t.Errorf("clusterm %s: no hint at --help: %s", tt.args, stderr)
		}
	}

	text, err := os.ReadFile(example)
	errtest.None(t, err)
	if _, stdout, _ := clusterm(t, "example"); stdout != string(text) {
		t.Error("the printed example differs from the file")
	}
}

// process is a running clusterm.
type process struct {
	t   *testing.T
	cmd *exec.Cmd

	mu   sync.Mutex
	text string
	more chan struct{}
	over chan struct{}
	err  error
}

func launch(t *testing.T, args ...string) *process {
	t.Helper()
	return launchWith(t, nil, args...)
}

func launchWith(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program(), args...), more: make(chan struct{}, 1), over: make(chan struct{})}

	r, err := p.cmd.StderrPipe()
	errtest.None(t, err)

	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	p.cmd.Env = append(os.Environ(), env...)

	errtest.None(t, p.cmd.Start())

	go func() {
		defer close(p.over)

		for lines := bufio.NewScanner(r); lines.Scan(); {
			p.mu.Lock()
			p.text += lines.Text() + "\n"
			p.mu.Unlock()

			select {
			case p.more <- struct{}{}:
			default:
			}
		}

		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.over
	})

	return p
}

// output is the standard error so far.
func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text
}

// awaitOutput waits until the output contains the words that many times.
func (p *process) awaitOutput(words string, times int) {
	p.t.Helper()

	deadline := time.After(patience)
	for strings.Count(p.output(), words) < times {
		select {
		case <-p.more:
		case <-p.over:
			if strings.Count(p.output(), words) < times {
				p.t.Fatalf("it ended without %q in its output:\n%s", words, p.output())
			}
		case <-deadline:
			p.t.Fatalf("no %q in its output:\n%s", words, p.output())
		}
	}
}

// end sends the signal and waits for the end of the process.
func (p *process) end(signal syscall.Signal) error {
	p.t.Helper()

	errtest.None(p.t, p.cmd.Process.Signal(signal))

	select {
	case <-p.over:
		return p.err
	case <-time.After(patience):
		p.t.Fatalf("it does not end:\n%s", p.output())
		return nil
	}
}

// TestDaemon runs the process as systemd does: start, reload, a clean stop, and a
// kill that loses no data and leaves no process behind.
func TestDaemon(t *testing.T) {
	t.Parallel()
	d := dir(t)
	config := func(more string) string {
		return write(
			t,
			d+"/clusterm.yaml",
			fmt.Sprintf(
				"data_dir: %s/d\nsocket: %s/s\ngossip: off\nansible_playbook: /nope\n"+
					"node: {label: m, serial: \"1\"}\n%s\n",
				d,
				d,
				more,
			),
		)
	}
	begin := func() *process {
		t.Helper()
		p := launch(t, "--config", config(""))
		p.awaitOutput("the API is served", 1)
		return p
	}

	c, err := client.New(client.Options{Socket: d + "/s"})
	errtest.None(t, err)

	p := begin()

	if _, err := c.SetVars(t.Context(), client.ScopeGlobal, api.Vars{"a": "b"}); err != nil {
		t.Fatal(err)
	}

	config("jobs: {limit: 9}")
	reload := func() {
		t.Helper()
		errtest.None(t, p.cmd.Process.Signal(syscall.SIGHUP))
	}
	reload()
	p.awaitOutput("the configuration was reloaded", 1)

	if got, err := c.Config(t.Context()); err != nil || fmt.Sprint(got["jobs.limit"].Value) != "9" {
		t.Errorf("%+v, %v", got["jobs.limit"], err)
	}

	config("jobs: {limit: 0}")
	reload()
	p.awaitOutput("the configuration was not reloaded", 1)

	// The command behind systemctl reload fails with the reason.
	if status, _, stderr := clusterm(t, "reload", "-c", d+"/clusterm.yaml"); status != 1 ||
		!strings.Contains(stderr, "jobs.limit: 0 is not within") {
		t.Errorf("reload of a broken file: %d %s", status, stderr)
	}

	config("jobs: {limit: 8}")

	// Another file, or a changed one, may name another socket.
	if status, _, stderr := clusterm(t, "reload", "-c", "/nope", "--socket", d+"/s"); status != 0 ||
		stderr != "ok: the configuration was reloaded\n" {
		t.Errorf("reload: %d %s", status, stderr)
	}

	if got, err := c.Config(t.Context()); err != nil || fmt.Sprint(got["jobs.limit"].Value) != "8" {
		t.Errorf("%+v, %v", got["jobs.limit"], err)
	}

	config("jobs: {limit: 0}")

	// A second daemon is refused, and does not disturb the first.
	status, _, stderr := clusterm(t, "--config", d+"/clusterm.yaml")
	if status != 78 || !strings.Contains(stderr, "jobs.limit") {
		t.Errorf("%d %s", status, stderr)
	}

	config("")

	status, _, stderr = clusterm(t, "--config", d+"/clusterm.yaml")
	if status != 1 || !strings.Contains(stderr, "another process listens on "+d+"/s") ||
		!strings.Contains(stderr, "\n  stop it first") {
		t.Errorf("%d %s", status, stderr)
	}

	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, p.output())
	}

	if _, err := os.Stat(d + "/s"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}

	if strings.Contains(p.output(), "level=error msg=\"error") {
		t.Errorf("the stop logged errors:\n%s", p.output())
	}

	p = begin()
	_ = p.end(syscall.SIGKILL)
	p = begin() // the etcd of the killed daemon releases its lock

	vars, err := c.Vars(t.Context(), client.ScopeGlobal)
	if err != nil || vars["a"] != "b" {
		t.Errorf("%v, %v", vars, err)
	}

	if err := p.end(syscall.SIGINT); err != nil {
		t.Errorf("SIGINT: %v\n%s", err, p.output())
	}
}

// TestReady: the daemon notifies systemd once it serves, and of the reason why it
// does not.
func TestReady(t *testing.T) {
	t.Parallel()
	d := dir(t)

	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: d + "/notify", Net: "unixgram"})
	errtest.None(t, err)
	defer socket.Close()
	good := fmt.Sprintf(
		"data_dir: %s/d\nsocket: %s/s\ngossip: off\nansible_playbook: /nope\nnode: {label: m, serial: \"1\"}\n", d, d)
	begin := func(config string) *process {
		t.Helper()
		env := []string{"NOTIFY_SOCKET=" + d + "/notify", "JOURNAL_STREAM=8:1"}
		return launchWith(t, env, "--config", write(t, d+"/clusterm.yaml", config))
	}
	notified := func(p *process, want string) {
		t.Helper()

		errtest.None(t, socket.SetReadDeadline(time.Now().Add(patience)))

		buf := make([]byte, 1024)

		n, err := socket.Read(buf)
		if err != nil || !strings.Contains(string(buf[:n]), want) {
			t.Fatalf("%q, %v, want %s\n%s", buf[:n], err, want, p.output())
		}
	}

	// A start that fails shows its cause: to systemd, in the last line of the journal,
	// and to clients.
	const cause = "line 6: key nonsense not found"
	p := begin(good + "nonsense: 1\n")
	notified(p, "STATUS=the configuration "+d+"/clusterm.yaml is wrong: "+cause+"; 'clusterm example'")
	<-p.over

	if status := p.cmd.ProcessState.ExitCode(); status != 78 {
		t.Errorf("it ended with %d", status)
	}

	if lines := strings.Split(strings.TrimSpace(p.output()), "\n"); !strings.Contains(lines[len(lines)-1], cause) {
		t.Errorf("the log ends with %s", lines[len(lines)-1])
	}

	down, err := client.New(client.Options{Socket: d + "/s"})
	if err == nil {
		_, err = down.Version(t.Context())
	}

	if err == nil || !strings.Contains(err.Error(), "clusterm is not running; it failed at ") ||
		!strings.Contains(err.Error(), cause) {
		t.Errorf("a client got %v", err)
	}

	p = begin(good)
	notified(p, "STATUS=starting; the last start failed: the configuration ")
	notified(p, "READY=1")
	notified(p, "STATUS=serving")

	if _, err := os.Stat(api.FailurePath(d + "/s")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cause is still there: %v", err)
	}

	c, err := client.New(client.Options{Socket: d + "/s"})
	if err == nil {
		_, err = c.Version(t.Context())
	}

	if err != nil {
		t.Errorf("no answer after READY=1: %v", err)
	}

	write(t, d+"/clusterm.yaml", good+"jobs: {limit: 0}\n")

	if status, _, stderr := clusterm(t, "reload", "-c", d+"/clusterm.yaml"); status != 1 {
		t.Errorf("reload of a broken file: %d %s", status, stderr)
	}

	notified(p, "STATUS=serving with the former configuration; the reload was refused: ")

	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}

	notified(p, "STOPPING=1")

	_, err = down.Version(t.Context())
	if err == nil || !strings.Contains(err.Error(), "its socket "+d+"/s does not exist") {
		t.Errorf("a client of a stopped daemon got %v", err)
	}
}

// TestAgent runs the process of every node.
func TestAgent(t *testing.T) {
	t.Parallel()
	d := dir(t)
	write(t, d+"/key", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")
	file := write(
		t,
		d+"/agent.yaml",
		fmt.Sprintf(
			"node: {label: a, serial: \"1\", addr: 127.0.0.1}\ndata_dir: %s/d\n"+
				"gossip: {bind: 127.0.0.1:0, key_file: %s/key}\n",
			d,
			d,
		),
	)
	p := launch(t, "agent", "--config", file)
	p.awaitOutput("127.0.0.1", 1)

	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("%v\n%s", err, p.output())
	}

	write(t, d+"/agent.yaml", "nonsense: 1\n")

	status, _, stderr := clusterm(t, "agent", "--config", file)
	if status != 1 || !strings.Contains(stderr, "nonsense") {
		t.Errorf("%d %s", status, stderr)
	}
}

// TestMonitor: the monitor starts without a serf agent and a manager, logs that, and
// stops on SIGTERM.
func TestMonitor(t *testing.T) {
	t.Parallel()
	d := dir(t)
	const unused = "127.0.0.1:1" // another process could take a free port meanwhile
	file := write(
		t,
		d+"/monitor.yaml",
		fmt.Sprintf("report_to: [\"unix://%s/s\"]\ndata_dir: %s/d\ngossip: {rpc: %q}\n", d, d, unused),
	)
	p := launch(t, "monitor", "--config", file)
	p.awaitOutput("the serf agent at "+unused, 1)

	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("%v\n%s", err, p.output())
	}
}
