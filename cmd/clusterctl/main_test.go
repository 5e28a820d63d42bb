// SPDX-License-Identifier: Apache-2.0

package main

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
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	runnerCommand()

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

// TestScripts runs the scripts in testdata against a fake daemon each. The fake
// holds and releases jobs, stops in the middle of a stream, and answers with fixed
// times and revisions, so that tables compare byte by byte; the real daemon offers
// none of that without slow jobs and real waiting. Scripts without these needs belong
// to TestDaemonScripts. With UPDATE_GOLDEN set, the test rewrites the golden files.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: os.Getenv("UPDATE_GOLDEN") != "",
		Setup: func(e *testscript.Env) error {
			// The path of a socket is limited to 107 bytes, and $WORK may be longer.
			dir, err := os.MkdirTemp("", "ctl")
			if err != nil {
				return err
			}

			d := newFakeDaemon(filepath.Join(dir, "s"))
			if err := d.start(); err != nil {
				return err
			}

			e.Defer(func() {
				d.stop()
				_ = os.RemoveAll(dir)

				if len(d.wrong) > 0 {
					e.T().Fatal(strings.Join(d.wrong, "\n"))
				}
			})
			e.Values["daemon"] = d
			e.Setenv("CLUSTERM_URL", "unix://"+d.socket)
			e.Setenv("SOCKET", d.socket)
			e.Setenv("TZ", "UTC")
			e.Setenv("TERM", "xterm")
			e.Setenv("GORACE", "atexit_sleep_ms=0") // without it, every program takes one second longer under -race

			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"daemon":         cmdDaemon,
			"exits":          cmdExits,
			"interrupt":      cmdInterrupt,
			"terminal":       cmdTerminal,
			"restart-during": cmdRestartDuring,
			"asked":          cmdAsked,
			"tab":            cmdTab,
			"watching":       cmdWatching,
		},
	})
}

func daemonOf(ts *testscript.TestScript) *fakeDaemon { return ts.Value("daemon").(*fakeDaemon) }

// cmdDaemon is `daemon stop|start|release|read|awaited|degrade|stale|requests`. read
// blocks until a client follows the output of a job, awaited until a client waits for
// the next change of a job. requests writes the requests since the last call, except
// GET, to $WORK/requests.
func cmdDaemon(ts *testscript.TestScript, _ bool, args []string) {
	d := daemonOf(ts)
	switch args[0] {
	case "stop":
		d.stop()
	case "start":
		ts.Check(d.start())
	case "release":
		d.release()
	case "read":
		ts.Check(d.await("no client follows a log", func() bool { return d.readers > 0 }))
	case "awaited":
		ts.Check(poll(func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.waiters > 0 }))
	case "degrade":
		d.mu.Lock()
		d.degraded = true
		d.mu.Unlock()
	case "stale":
		d.mu.Lock()
		d.stale = true
		d.mu.Unlock()
	case "requests":
		d.mu.Lock()

		var b strings.Builder
		for _, r := range d.requests {
			if !strings.HasPrefix(r, "GET ") {
				b.WriteString(r + "\n")
			}
		}

		d.requests = nil
		d.mu.Unlock()
		ts.Check(os.WriteFile(ts.MkAbs("requests"), []byte(b.String()), 0o644))
	default:
		ts.Fatalf("daemon: unknown action %q", args[0])
	}
}

// cmdExits is `exits CODE PROGRAM ARG…`: exec with an expected exit code.
func cmdExits(ts *testscript.TestScript, _ bool, args []string) {
	checkCode(ts, args[0], ts.Exec(args[1], args[2:]...))
}

func checkCode(ts *testscript.TestScript, want string, err error) {
	code := 0
	if err != nil {
		e, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}

		code = e.ExitCode()
	}

	if strconv.Itoa(code) != want {
		ts.Fatalf("exit code %d, want %s", code, want)
	}
}

// command returns a process with the environment of the script.
func command(ts *testscript.TestScript, args []string) *exec.Cmd {
	path := args[0]
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p := filepath.Join(dir, args[0]); !strings.Contains(path, "/") && isFile(p) {
			path = p
		}
	}

	c := exec.Command(path, args[1:]...)

	c.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "CLUSTERM_URL", "TZ", "TERM", "NO_COLOR", "HOME", "GORACE"} {
		if v := ts.Getenv(name); v != "" {
			c.Env = append(c.Env, name+"="+v)
		}
	}

	return c
}

func isFile(path string) bool {
	i, err := os.Stat(path)
	return err == nil && i.Mode().IsRegular()
}

// cmdInterrupt is `interrupt CODE WHEN PROGRAM ARG…`: it runs the program, sends
// SIGINT at a moment, and leaves the output in $WORK/out and $WORK/err. WHEN is follow
// (the program follows the events of a job), request (the program has sent a POST) or
// stdin (the program reads a stdin that never ends).
func cmdInterrupt(ts *testscript.TestScript, _ bool, args []string) {
	d := daemonOf(ts)
	var out, errs bytes.Buffer
	c := command(ts, args[2:])
	c.Stdout, c.Stderr = &out, &errs
	d.mu.Lock()
	before := d.followers
	d.requests = nil
	d.mu.Unlock()
	stdin, keep, err := os.Pipe()
	ts.Check(err)

	defer keep.Close()
	defer stdin.Close()
	_, err = keep.WriteString("{")
	ts.Check(err)
	c.Stdin = stdin
	ts.Check(c.Start())

	switch args[1] {
	case "follow":
		err = d.await("no client follows events", func() bool { return d.followers > before })
	case "request":
		err = poll(func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()

			return slices.ContainsFunc(d.requests, func(r string) bool { return strings.HasPrefix(r, "POST ") })
		})
	case "stdin":
		err = poll(func() bool {
			left, err := unix.IoctlGetInt(int(stdin.Fd()), unix.TIOCINQ)
			return err == nil && left == 0
		})
	}

	if err != nil {
		_ = c.Process.Kill()
		_ = c.Wait()
		ts.Fatalf("%v\n%s", err, errs.String())
	}

	ts.Check(c.Process.Signal(os.Interrupt))
	checkCode(ts, args[0], waitFor(c))
	ts.Check(os.WriteFile(ts.MkAbs("out"), out.Bytes(), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs("err"), errs.Bytes(), 0o644))
}

// patience bounds every wait for a program. A wait ends as soon as its condition
// holds.
const patience = time.Minute

// poll waits until cond holds, for a bounded time.
func poll(cond func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the condition did not hold within %s", patience)
		}
	}

	return nil
}

// waitFor waits for a process, and kills it after patience.
func waitFor(c *exec.Cmd) error {
	t := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
	defer t.Stop()

	return c.Wait()
}

// cmdRestartDuring is `restart-during CODE PROGRAM ARG…`: it stops the daemon while
// the program follows a job, starts it again once the program has reported the outage,
// and then releases the job.
func cmdRestartDuring(ts *testscript.TestScript, _ bool, args []string) {
	d := daemonOf(ts)
	var out bytes.Buffer
	errs := &syncBuffer{}
	c := command(ts, args[1:])
	c.Stdout, c.Stderr = &out, errs
	d.mu.Lock()
	before := d.followers
	d.mu.Unlock()
	ts.Check(c.Start())
	err := d.await("no client follows events", func() bool { return d.followers > before })
	d.stop()

	if err == nil {
		err = poll(func() bool { return strings.Contains(errs.String(), "retrying for") })
	}

	if err == nil {
		err = d.start()
	}

	if err == nil {
		err = poll(func() bool { return strings.Contains(errs.String(), "reconnected") })
	}

	if err != nil {
		_ = c.Process.Kill()
		_ = c.Wait()
		ts.Fatalf("%v\n%s", err, errs.String())
	}

	d.release()
	checkCode(ts, args[0], waitFor(c))
	ts.Check(os.WriteFile(ts.MkAbs("out"), out.Bytes(), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs("err"), []byte(errs.String()), 0o644))
}

// syncBuffer is a buffer for one writer and concurrent readers.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *syncBuffer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.buf.Write(b)
}

func (w *syncBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.buf.String()
}

// terminal is a program on a terminal of 24 rows and 80 columns.
type terminal struct {
	ts     *testscript.TestScript
	cmd    *exec.Cmd
	master *os.File
	shown  syncBuffer
	over   chan struct{} // closed at the end of the output
}

// onTerminal starts the program with the terminal as stdout and stderr and, for
// typing, as stdin.
func onTerminal(ts *testscript.TestScript, c *exec.Cmd, typing bool) *terminal {
	size := unix.Winsize{Row: 24, Col: 80}
	if ts.Getenv("TERMINAL_SIZE") == "unknown" {
		size = unix.Winsize{}
	}

	master, slave, err := openTerminal(size)
	if err != nil {
		ts.Fatalf("no terminal: %v", err)
	}

	ts.Defer(func() { _ = master.Close() })
	t := &terminal{ts: ts, cmd: c, master: master, over: make(chan struct{})}

	c.Stdout, c.Stderr = slave, slave
	if typing {
		c.Stdin = slave
	}

	err = c.Start()
	_ = slave.Close()
	ts.Check(err)

	go func() {
		defer close(t.over)
		_, _ = io.Copy(&t.shown, master) // ends with EIO at the end of the program
	}()

	return t
}

// types writes text to the terminal, as a keyboard does.
func (t *terminal) types(text string) {
	_, err := t.master.WriteString(text)
	t.ts.Check(err)
}

// shows waits until the output matches, or ends.
func (t *terminal) shows(pattern *regexp.Regexp) error {
	over := false
	_ = poll(func() bool {
		select {
		case <-t.over:
			over = true
		default:
		}

		return over || pattern.MatchString(t.shown.String())
	})

	if !pattern.MatchString(t.shown.String()) {
		return fmt.Errorf("the terminal never showed %s:\n%q", pattern, t.shown.String())
	}

	return nil
}

// ends waits for the end of the program, and leaves the output in $WORK/tty.
func (t *terminal) ends(code string) {
	err := waitFor(t.cmd)
	<-t.over
	t.ts.Check(os.WriteFile(t.ts.MkAbs("tty"), []byte(t.shown.String()), 0o644))
	checkCode(t.ts, code, err)
}

// cmdTerminal is `terminal CODE PATTERN PROGRAM ARG…`: it runs the program with a
// terminal as stdout and stderr, and releases all held jobs once the output matches
// the pattern. The output is left in $WORK/tty.
func cmdTerminal(ts *testscript.TestScript, _ bool, args []string) {
	t := onTerminal(ts, command(ts, args[2:]), false)
	err := t.shows(regexp.MustCompile(args[1]))
	daemonOf(ts).release()
	t.ends(args[0])
	ts.Check(err)
}

var question = regexp.MustCompile(`\[y/N\]`)

// cmdAsked is `asked CODE ANSWER PROGRAM ARG…`: it runs the program with a terminal as
// stdin, stdout and stderr, and answers its question. An empty ANSWER expects no
// question. The output is left in $WORK/tty.
func cmdAsked(ts *testscript.TestScript, _ bool, args []string) {
	t := onTerminal(ts, command(ts, args[2:]), true)

	var err error
	if args[1] != "" {
		if err = t.shows(question); err == nil {
			t.types(args[1] + "\n")
		}
	}

	t.ends(args[0])
	ts.Check(err)
}

// cmdTab is `tab SETUP TYPED PATTERN SHELL ARG…`: it starts a shell on a terminal, runs
// SETUP, types TYPED, in which \t is the tab key, and waits until the output matches.
func cmdTab(ts *testscript.TestScript, _ bool, args []string) {
	c := command(ts, args[3:])
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}

	t := onTerminal(ts, c, true)
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		<-t.over
	}()
	t.types(args[0] + "; PS1='rea''dy> '\n") // the echo of this line must not match the prompt
	ts.Check(t.shows(regexp.MustCompile("ready> ")))
	t.types(strings.ReplaceAll(args[1], `\t`, "\t"))
	ts.Check(t.shows(regexp.MustCompile(args[2])))
}

func openTerminal(size unix.Winsize) (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}

	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size)
	}

	var n uint32
	if err == nil {
		n, err = unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	}

	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}

	if err != nil {
		_ = master.Close()
		return nil, nil, err
	}

	return master, slave, nil
}

// TestSecondInterrupt ends a program that cannot act on the first SIGINT, because its
// write to stdout blocks.
func TestSecondInterrupt(t *testing.T) {
	t.Parallel()

	dir, err := os.MkdirTemp("", "ctl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	d := newFakeDaemon(filepath.Join(dir, "s"))
	d.jobs = append(d.jobs, &fakeJob{})
	d.jobs[0].ID, d.jobs[0].Status = "7", "Complete"
	d.jobs[0].text.Write(bytes.Repeat([]byte("a line\n"), 1<<20))

	if err := d.start(); err != nil {
		t.Fatal(err)
	}

	defer d.stop()

	path, err := exec.LookPath("clusterctl")
	if err != nil {
		t.Fatal(err)
	}

	c := exec.Command(path, "job", "logs", "7")
	c.Env = append(os.Environ(), "CLUSTERM_URL=unix://"+d.socket)

	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := c.Start(); err != nil {
		t.Fatal(err)
	}

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
