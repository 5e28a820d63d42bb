// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	labTool = "../lab/lab"
	// commandTime bounds every single command, jobs that are waited for included.
	commandTime = 5 * time.Minute
	// lastWords is kept free before `go test` runs out of time, so that the lab
	// is taken down in any case.
	lastWords = 90 * time.Second
)

// suite is what all tests share.
var suite struct {
	skip string // why nothing can run here
	bin  string // folder of the built clusterm and clusterctl
	// ctx ends when the run is interrupted, or when its time is nearly over.
	ctx context.Context
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	if limit, err := time.ParseDuration(flag.Lookup("test.timeout").Value.String()); err == nil && limit > 2*lastWords {
		var cancel func()

		ctx, cancel = context.WithTimeout(ctx, limit-lastWords)
		defer cancel()
	}

	suite.ctx = ctx
	if suite.skip = unavailable(); suite.skip != "" {
		return m.Run()
	}

	if os.Getenv("LAB") == "" {
		_ = os.Setenv("LAB", "system")
	}

	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "systemtest:", err)
		return 1
	}

	dir, err := os.MkdirTemp("", "systemtest")
	if err != nil {
		return fail(err)
	}

	defer func() { _ = os.RemoveAll(dir) }()

	suite.bin = dir
	if err := build(ctx, dir); err != nil {
		return fail(err)
	}

	if os.Getenv("CLUSTERM_LAB_KEEP") != "1" {
		defer func() {
			down, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()

			if r := labRun(down, nil, "down"); r.code != 0 {
				fmt.Fprintln(os.Stderr, "systemtest:", r)
			}
		}()
	}

	code := m.Run()

	if ctx.Err() != nil {
		return 130
	}

	return code
}

// unavailable says why the tests cannot run on this machine, or "".
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
	cmd := exec.CommandContext(
		ctx,
		"go",
		"build",
		"-trimpath",
		"-ldflags",
		"-s -w",
		"-o",
		dir,
		"./cmd/clusterm",
		"./cmd/clusterctl",
	)
	cmd.Dir = "../.."

	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}

	return nil
}

// result is how a command ended.
type result struct {
	cmd    string
	stdout string
	stderr string
	code   int // -1: it did not run, or was ended
	took   time.Duration
}

func (r result) String() string {
	return fmt.Sprintf(
		"%s: exit %d after %s\nstdout: %s\nstderr: %s",
		r.cmd,
		r.code,
		r.took.Round(time.Millisecond),
		r.stdout,
		r.stderr,
	)
}

// labRun runs the lab's tool.
func labRun(ctx context.Context, stdin io.Reader, args ...string) result {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, labTool, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	// A host outlives `lab up`, and may have kept its output open.
	cmd.WaitDelay = 5 * time.Second
	// A Ctrl-C is for this process, which then ends its commands.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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

// await polls until done says so, and fails the test with what it said last
// when that takes too long.
func await(t *testing.T, limit time.Duration, what string, done func() (ok bool, now string)) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()

	for {
		ok, now := done()
		if ok {
			return
		}

		select {
		case <-tick.C:
		case <-suite.ctx.Done():
			t.Fatalf("interrupted while waiting until %s", what)
		case <-ctx.Done():
			t.Fatalf("waited %s in vain until %s; last: %s", limit, what, now)
		}
	}
}

func repoFile(path string) string { return filepath.Join("../..", path) }
