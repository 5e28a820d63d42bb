// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	labTool = "../lab/lab"
	// commandTimeout bounds every single command, including a wait for a job.
	commandTimeout = 5 * time.Minute
	// teardownTime is kept free before the deadline of `go test`, so that the labs
	// are taken down in any case.
	teardownTime = 90 * time.Second
)

// suite is shared by all tests.
var suite struct {
	skip string // the reason why this machine cannot run the tests; "" if it can
	bin  string // directory of the built clusterm and clusterctl
	labs chan *lab
	// ctx ends on an interrupt, and teardownTime before the deadline.
	ctx context.Context
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == redfishHelper {
		serveRedfish()
	}

	if len(os.Args) > 1 && os.Args[1] == chaosHelper {
		serveChaos()
		return
	}

	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	limit, err := time.ParseDuration(flag.Lookup("test.timeout").Value.String())
	if err == nil && limit > 2*teardownTime {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, limit-teardownTime)
		defer cancel()
	}

	suite.ctx = ctx
	if suite.skip = unavailable(); suite.skip != "" {
		return m.Run()
	}

	dir, err := os.MkdirTemp("", "systemtest")
	if err != nil {
		fmt.Fprintln(os.Stderr, "systemtest:", err)
		return 1
	}

	defer func() { _ = os.RemoveAll(dir) }()

	suite.bin = dir
	if err := build(ctx, dir); err != nil {
		fmt.Fprintln(os.Stderr, "systemtest:", err)
		return 1
	}

	labs, err := makeLabs()
	if err != nil {
		fmt.Fprintln(os.Stderr, "systemtest:", err)
		return 1
	}

	if os.Getenv("CLUSTERM_LAB_KEEP") != "1" {
		defer takeDown(labs)
	}

	code := m.Run()

	if ctx.Err() != nil {
		return 130
	}

	return code
}

// unavailable returns the reason why this machine cannot run the tests, or "".
func unavailable() string {
	if os.Getenv("CLUSTERM_LAB") != "1" {
		return "needs real hosts: run `make system`, or set CLUSTERM_LAB=1 (as root)"
	}

	if os.Geteuid() != 0 {
		return "the lab needs root"
	}

	for _, tool := range []string{"systemd-nspawn", "ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Sprintf("the lab needs %s: run vagrant/lab/lab install", tool)
		}
	}

	return ""
}

func build(ctx context.Context, dir string) error {
	args := []string{"build", "-ldflags", "-s -w", "-o", dir}

	overlay, err := shorterLease(dir, os.Getenv("CLUSTERM_OVERLAY"))
	if err != nil {
		return err
	}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}

	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/clusterm", "./cmd/clusterctl")...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")

	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// instanceLease is how long an instance of the built programs counts as alive without renewing its lease.
var instanceLease = 15 * time.Second

// shorterLease adds to an overlay the lease of CHAOS_LEASE, such as 5s. It returns the path of the new one.
func shorterLease(dir, overlay string) (string, error) {
	text := os.Getenv("CHAOS_LEASE")
	if text == "" {
		return overlay, nil
	}

	lease, err := time.ParseDuration(text)
	if err != nil || lease <= 0 {
		return "", fmt.Errorf("CHAOS_LEASE=%s is no time", text)
	}

	var o struct{ Replace map[string]string }
	if overlay != "" {
		content, err := os.ReadFile(overlay)
		if err == nil {
			err = json.Unmarshal(content, &o)
		}
		if err != nil {
			return "", err
		}
	}

	path, err := filepath.Abs("../../management/etcd/session.go")
	if err != nil {
		return "", err
	}

	source, err := os.ReadFile(cmp.Or(o.Replace[path], path))
	if err != nil {
		return "", err
	}

	const is = "const SessionTTL = 15 * time.Second"
	if !bytes.Contains(source, []byte(is)) {
		return "", fmt.Errorf("%s does not have %q", path, is)
	}

	instanceLease = lease
	becomes := fmt.Sprintf("const SessionTTL = %d * time.Millisecond", lease.Milliseconds())
	copied, file := filepath.Join(dir, "session.go"), filepath.Join(dir, "overlay.json")

	if o.Replace == nil {
		o.Replace = map[string]string{}
	}
	o.Replace[path] = copied

	content, err := json.Marshal(o)

	return file, errors.Join(
		err,
		os.WriteFile(copied, bytes.Replace(source, []byte(is), []byte(becomes), 1), 0o600),
		os.WriteFile(file, content, 0o600),
	)
}

// lab is a lab that is given out to one test at a time.
type lab struct {
	name string
}

// makeLabs fills suite.labs. CLUSTERM_LABS is their number, and with it the number
// of tests that run at a time; by default one more than there are processors,
// since tests wait for timeouts about half of their time.
func makeLabs() ([]*lab, error) {
	count := runtime.NumCPU() + 1

	if s := os.Getenv("CLUSTERM_LABS"); s != "" {
		var err error
		if count, err = strconv.Atoi(s); err != nil || count < 1 {
			return nil, fmt.Errorf("CLUSTERM_LABS=%s is not a number of labs", s)
		}
	}

	prefix := os.Getenv("LAB")
	if prefix == "" {
		prefix = "system"
	}

	suite.labs = make(chan *lab, count)
	labs := make([]*lab, count)

	for i := range labs {
		labs[i] = &lab{name: fmt.Sprintf("%s-%d", prefix, i+1)}
		suite.labs <- labs[i]
	}

	return labs, flag.Set("test.parallel", strconv.Itoa(count))
}

func takeDown(labs []*lab) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	var all sync.WaitGroup
	for _, l := range labs {
		all.Go(func() {
			if r := l.run(ctx, nil, "down"); r.code != 0 {
				fmt.Fprintln(os.Stderr, "systemtest:", r)
			}
		})
	}

	all.Wait()
}

// result is the outcome of a command.
type result struct {
	cmd    string
	stdout string
	stderr string
	code   int // -1: the command did not run, or was killed
	took   time.Duration
}

func (r result) String() string {
	return fmt.Sprintf("%s: exit %d after %s\nstdout: %s\nstderr: %s",
		r.cmd, r.code, r.took.Round(time.Millisecond), r.stdout, r.stderr)
}

// command prepares a run of the lab's tool.
func (l *lab) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, labTool, args...)
	cmd.Env = append(os.Environ(), "LAB="+l.name)
	// A Ctrl-C reaches this process only, which then ends its commands.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A host outlives `lab up` and may have kept its output open.
	cmd.WaitDelay = 5 * time.Second

	return cmd
}

// run runs the lab's tool to its end.
func (l *lab) run(ctx context.Context, stdin io.Reader, args ...string) result {
	return l.runIn(ctx, nil, stdin, args...)
}

// runIn is run with additions to the environment.
func (l *lab) runIn(ctx context.Context, env []string, stdin io.Reader, args ...string) result {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()

	var stdout, stderr bytes.Buffer

	cmd := l.command(ctx, args...)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	begun := time.Now()
	err := cmd.Run()

	r := result{
		cmd: "lab " + strings.Join(args, " "), stdout: stdout.String(), stderr: stderr.String(),
		code: cmd.ProcessState.ExitCode(), took: time.Since(begun),
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		r.code, r.stderr = -1, r.stderr+"\n"+err.Error()
	}
	if ctx.Err() != nil {
		r.stderr += fmt.Sprintf("\n(ended: %v)", context.Cause(ctx))
	}

	return r
}

// await polls done until it returns true. After limit it fails the test with the
// last description that done returned.
func await(t *testing.T, limit time.Duration, what string, done func() (ok bool, last string)) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()

	for {
		ok, last := done()
		if ok {
			return
		}

		select {
		case <-tick.C:
		case <-suite.ctx.Done():
			t.Fatalf("interrupted while waiting until %s", what)
		case <-ctx.Done():
			t.Fatalf("waited %s in vain until %s; last: %s", limit, what, last)
		}
	}
}

func repoFile(path string) string { return filepath.Join("../..", path) }
