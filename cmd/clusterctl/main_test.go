// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

func TestMain(m *testing.M) {
	runnerCommand()
	unix.Umask(0o022) // the manager refuses playbooks that a group can write

	// A background job of a shell ignores SIGINT, and its children inherit that. A
	// caught signal is reset in children, so catch it here.
	if signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}

	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "ctl")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)

		if err := install(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}

		// The daemons of the tests reach no host.
		ssh, err := filepath.Abs("testdata/ssh")
		if err != nil {
			panic(err)
		}
		if err := os.Symlink(ssh, filepath.Join(dir, "ssh")); err != nil {
			panic(err)
		}

		// Scripts mostly wait: run more of them than there are processors.
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}

		if err := os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
			panic(err)
		}

		return m.Run()
	}())
}

// install builds the program into dir. The test binary could serve as the program,
// but it takes twice as long to start, hundreds of times. `go run -exec cp` keeps
// the linked binary in the build cache; `go build` does not. Completion gets more
// time than in a release, for busy machines.
func install(dir string) error {
	args := []string{"run", "-exec", "cp", "-ldflags", "-X github.com/contiv/cluster/clusterctl.completeTime=1m"}
	if info, ok := debug.ReadBuildInfo(); ok &&
		slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}

	if out, err := exec.Command("go", append(args, ".", filepath.Join(dir, "clusterctl"))...).
		CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build clusterctl: %w\n%s", err, out)
	}

	return nil
}

// TestScripts runs each script in testdata against a real daemon of its own, through
// a proxy that checks every exchange against openapi.yaml. With UPDATE_GOLDEN set, the
// test rewrites the golden files.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: os.Getenv("UPDATE_GOLDEN") != "",
		Setup:         setUpScript,
		Condition: func(name string) (bool, error) {
			if name != "lab" {
				return false, fmt.Errorf("unknown condition %s", name)
			}
			return os.Getenv("CLUSTERM_LAB") == "1", nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"discover":  cmdDiscover,
			"disappear": cmdDisappear,
			"hold":      cmdHold,
			"release":   cmdRelease,
			"outage":    cmdOutage,
			"answer":    cmdAnswer,
			"requests":  cmdRequests,
			"requested": cmdRequested,
			"exits":     cmdExits,
			"mask":      cmdMask,
			"start":     cmdStart,
			"shows":     cmdShows,
			"reads":     cmdReads,
			"interrupt": cmdInterrupt,
			"ends":      cmdEnds,
			"terminal":  cmdTerminal,
			"asked":     cmdAsked,
			"tab":       cmdTab,
			"remedy":    cmdRemedy,
		},
	})
}

func setUpScript(e *testscript.Env) error {
	d, err := startDaemon(context.Background())
	if err != nil {
		return err
	}
	p := newProxy(d)
	e.Defer(func() {
		p.stop()

		if err := d.stop(); err != nil {
			e.T().Fatal(err)
		}

		p.mu.Lock()
		defer p.mu.Unlock()

		if len(p.wrong) > 0 {
			e.T().Fatal(strings.Join(p.wrong, "\n"))
		}
	})

	if err := p.start(); err != nil {
		return err
	}

	e.Values["proxy"] = p
	e.Values["program"] = &program{}
	e.Setenv("CLUSTERM_URL", "unix://"+p.socket())
	e.Setenv("SOCKET", p.socket())
	e.Setenv("LEDGER", d.ledger())
	e.Setenv("DAEMON", d.socket()) // without the proxy, during an outage

	collection, err := filepath.Abs("../../ansible/collection")
	if err != nil {
		return err
	}
	e.Setenv("COLLECTION", collection)
	e.Setenv("TZ", "UTC")
	e.Setenv("TERM", "xterm")
	e.Setenv("GORACE", "atexit_sleep_ms=0") // without it, every program takes one second longer under -race

	return nil
}

// TestLogsControlCharacters: what a host printed cannot act on the terminal at which the output is
// read, also from a pipe or a file. --raw prints it as it is.
func TestLogsControlCharacters(t *testing.T) {
	t.Parallel()

	const text = "ok \x1b[31mred\x1b[0m\n\x1b]0;owned\x07\x1b[2J\ttail\n"

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(api.HeaderJob, "7")
		_, _ = io.WriteString(w, text)
	}))
	defer server.Close()

	path, err := exec.LookPath("clusterctl")
	errtest.None(t, err)

	for _, raw := range []bool{false, true} {
		args := []string{"job", "logs", "7"}
		if raw {
			args = append(args, "--raw")
		}
		c := exec.Command(path, args...)
		c.Env = append(os.Environ(), "CLUSTERM_URL="+server.URL)

		out, err := c.Output()
		errtest.None(t, err)

		switch {
		case raw && string(out) != text:
			t.Errorf("--raw: %q", out)
		case !raw && (strings.ContainsAny(string(out), "\x1b\x07") || !strings.HasPrefix(string(out), "ok red\n")):
			t.Errorf("%q", out)
		}
	}
}

// TestSecondInterrupt ends a program that cannot act on the first SIGINT, because its
// write to stdout blocks.
func TestSecondInterrupt(t *testing.T) {
	t.Parallel()

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(api.HeaderJob, "7")
		_, _ = w.Write(bytes.Repeat([]byte("a line\n"), 1<<20))
	}))
	defer server.Close()

	path, err := exec.LookPath("clusterctl")
	errtest.None(t, err)
	c := exec.Command(path, "job", "logs", "7")
	c.Env = append(os.Environ(), "CLUSTERM_URL="+server.URL)

	out, err := c.StdoutPipe()
	errtest.None(t, err)

	errtest.None(t, c.Start())

	if _, err := out.Read(make([]byte, 1)); err != nil { // from here on its writes block
		t.Fatal(err)
	}

	ended := make(chan int, 1)
	go func() {
		code := -1
		if state, err := c.Process.Wait(); err == nil {
			code = state.ExitCode()
		}
		ended <- code
	}()

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	timeout := time.NewTimer(patience)
	defer timeout.Stop()

	for n := 0; ; {
		select {
		case <-tick.C:
			n++
			_ = c.Process.Signal(os.Interrupt)
		case code := <-ended:
			if n < 2 || code != 130 {
				t.Fatalf("exit code %d after %d signals, want 130 after 2 or more", code, n)
			}
			return
		case <-timeout.C:
			_ = c.Process.Kill()
			t.Fatal("the program did not end")
		}
	}
}
