// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory/errtest"
)

// isNotBegun reports whether the error is a NotBegunError with that field.
func isNotBegun(err error, interrupted bool) bool {
	e, ok := errors.AsType[*NotBegunError](err)
	return ok && e.Interrupted == interrupted
}

// shellRunner is a runner that a shell starts: $0 is this program, $1 the
// directory of the run.
func shellRunner(script string) Runner {
	return Runner{Self: []string{"/bin/sh", "-c", script, os.Args[0]}}
}

// waitUntil polls a condition that another process makes true.
func waitUntil(t *testing.T, what string, condition func() bool) {
	t.Helper()

	for ctx := within(t, patience); !condition(); {
		select {
		case <-ctx.Done():
			t.Fatal("waited in vain until ", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func hasOutput(s Spec, text string) func() bool {
	return func() bool {
		b, err := os.ReadFile(filepath.Join(s.Dir, fileOutput))
		return err == nil && strings.Contains(string(b), text)
	}
}

func makeFIFO(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "fifo")
	errtest.None(t, unix.Mkfifo(path, 0o600))
	return path
}

// expectUntouched checks that the run never executed ansible-playbook, and never
// will.
func expectUntouched(t *testing.T, s Spec, err error) {
	t.Helper()

	if !isNotBegun(err, true) {
		t.Errorf("the start failed with %v, want an interrupted run that did not begin", err)
	}

	if left := marked(s.Dir, ""); len(left) > 0 {
		t.Errorf("processes %v of the run are left", left)
	}

	if out := read(t, filepath.Join(s.Dir, fileOutput)); out != "" {
		t.Errorf("ansible-playbook was executed:\n%s", out)
	}
}

// TestRunnerStoppedBeforeItBegins: a runner that stands still is given up. That
// is a run that did not begin, because it is killed.
func TestRunnerStoppedBeforeItBegins(t *testing.T) {
	t.Parallel()
	s := fakeSpec(t, "ignores-everything")
	_, err := shellRunner(`kill -STOP $$; exec "$0" runner "$1"`).Start(within(t, 300*time.Millisecond), s)
	expectUntouched(t, s, err)
}

// TestGivenUpRunnerGoesOn: a runner that Start could not kill goes on later. The
// fence keeps it from executing ansible-playbook.
func TestGivenUpRunnerGoesOn(t *testing.T) {
	t.Parallel()

	s := fakeSpec(t, "ignores-everything")
	gate, leader := makeFIFO(t), makeFIFO(t)

	// Outside of the leader's process group, the runner survives SIGKILL to it. It
	// reports that it is there.
	escapes := fmt.Sprintf(`exec 9>%s
setsid sh -c 'echo up >&9; exec 9>&-; read go <%s; exec "$0" runner "$1"' "$0" "$1" &
wait`, leader, gate)

	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	reports := make(chan *bufio.Reader, 1)

	go func() {
		_, err := shellRunner(escapes).Start(ctx, s)
		ended <- err
	}()
	go func() {
		f, err := os.Open(leader) // waits for the leader
		if err != nil {
			t.Error(err)
		}
		t.Cleanup(func() { _ = f.Close() })

		reports <- bufio.NewReader(f)
	}()

	select {
	case err := <-ended:
		t.Fatal("the runner did not start:", err)
	case report := <-reports:
		if line, err := report.ReadString('\n'); line != "up\n" {
			t.Fatalf("%q, %v", line, err)
		}

		giveUp()

		// The FIFO ends with the leader, which Start kills when it gives the run up.
		if _, err := report.ReadString('\n'); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}

	errtest.None(t, os.WriteFile(gate, []byte("go\n"), 0))

	expectUntouched(t, s, <-ended)

	run, err := Attach(s.Dir)
	errtest.None(t, err)
	if e := wait(t, run); e.Reason != GivenUp || !e.Reason.NotExecuted() {
		t.Errorf("exit %+v", e)
	}
}

// TestRunnerStoppedAfterThePermit: a runner that stands still right after it
// executed ansible-playbook may have touched hosts. Its run ends as one that
// vanished.
func TestRunnerStoppedAfterThePermit(t *testing.T) {
	t.Parallel()
	s := fakeSpec(t, "ignores-everything")

	ctx, giveUp := context.WithCancel(t.Context())

	go func() {
		waitUntil(t, "the playbook runs", hasOutput(s, "started"))
		giveUp()
	}()

	// The reply that ansible-playbook was executed never arrives.
	run, err := shellRunner(`"$0" runner "$1" 5>&1 1>&2 | head -c 6 >&5; kill -STOP $$`).Start(ctx, s)
	errtest.None(t, err)
	if e := wait(t, run); e.Reason != Vanished || e.Reason.NotExecuted() || !strings.Contains(e.Error, "stood still") {
		t.Errorf("exit %+v", e)
	}

	if left := marked(s.Dir, ""); len(left) > 0 {
		t.Errorf("processes %v of the run are left", left)
	}
}

func TestLeaseExpiredBeforeTheBeginning(t *testing.T) {
	t.Parallel()
	s := fakeSpec(t, "ignores-everything")
	s.Lease = time.Now().Add(-time.Second)

	_, err := self.Start(within(t, patience), s)
	expectUntouched(t, s, err)
}

// stopRunner stops the runner of a run whose playbook runs.
func stopRunner(t *testing.T, run *Run) {
	waitForOutput(t, run, "started")
	info, err := run.runnerInfo()
	errtest.None(t, err)
	errtest.None(t, info.signal(unix.SIGSTOP))
}

func TestCancelOfAStoppedRunner(t *testing.T) {
	t.Parallel()
	run := start(t, fakeSpec(t, "waits-until-interrupted"))
	stopRunner(t, run)

	errtest.None(t, run.Cancel(t.Context()))

	if e := wait(t, run); e.Reason != Cancelled {
		t.Errorf("exit %+v", e)
	}
}

// TestRunnerStoppedPastItsDeadline: nobody waits for ever for a runner that cannot
// keep its own deadline.
func TestRunnerStoppedPastItsDeadline(t *testing.T) {
	t.Parallel()
	s := fakeSpec(t, "ignores-everything")
	run := start(t, s)
	stopRunner(t, run)

	info, err := run.runnerInfo()
	errtest.None(t, err)
	info.Deadline = sinceBoot() - s.GraceInt - s.GraceTerm - overdueAfter
	errtest.None(t, writeJSON(filepath.Join(s.Dir, fileRunner), info))

	if e := wait(t, run); e.Reason != Vanished {
		t.Errorf("exit %+v", e)
	}
}

// TestLostFiles: whatever is lost of an active run, it is not called one that did
// not begin.
func TestLostFiles(t *testing.T) {
	for name, lose := range map[string]func(dir string) error{
		"spec":      func(dir string) error { return os.Remove(filepath.Join(dir, fileSpec)) },
		"runner":    func(dir string) error { return os.Remove(filepath.Join(dir, fileRunner)) },
		"damaged":   func(dir string) error { return os.WriteFile(filepath.Join(dir, fileSpec), []byte("{"), 0o600) },
		"directory": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fakeSpec(t, "ignores-everything")

			run, err := self.Start(within(t, patience), s)
			errtest.None(t, err)
			waitForOutput(t, run, "started")

			errtest.None(t, lose(s.Dir))

			_, err = self.Start(within(t, patience), s)
			if _, ok := errors.AsType[*NotBegunError](err); err == nil || ok {
				t.Errorf("a second start: %v", err)
			}

			again, err := Attach(s.Dir)
			if name == "directory" {
				waitUntil(t, "its processes have ended", func() bool { return len(marked(s.Dir, "")) == 0 })
				return
			}

			errtest.None(t, err)

			errtest.None(t, killMarked(t.Context(), s.Dir, ""))

			if e := wait(t, again); e.Reason != Vanished {
				t.Errorf("exit %+v", e)
			}
		})
	}
}

func TestDamagedExitRecord(t *testing.T) {
	t.Parallel()

	for _, record := range []string{"", "{", "{}"} {
		dir := t.TempDir()
		errtest.None(t, os.WriteFile(filepath.Join(dir, fileExit), []byte(record), 0o600))
		run, err := Attach(dir)
		errtest.None(t, err)
		if e, err := run.exit(); err != nil || e.Reason != Vanished || !strings.Contains(e.Error, "damaged") {
			t.Errorf("%q: %+v, %v", record, e, err)
		}
	}
}

// TestSweepSockets: directories for sockets of dead runs go, those of active runs, of
// other managers and of others stay.
func TestSweepSockets(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long-", 20))
	runs, others := filepath.Join(long, "runs"), filepath.Join(long, "others")

	sockets := map[string]string{}

	for _, dir := range []string{
		filepath.Join(runs, "dead"), filepath.Join(runs, "gone"), filepath.Join(runs, "active"),
		filepath.Join(others, "dead"),
	} {
		errtest.None(t, os.MkdirAll(dir, 0o700))

		s := socketDir(dir)
		errtest.None(t, makeSockets(dir, s))
		t.Cleanup(func() { os.RemoveAll(s) })

		sockets[strings.TrimPrefix(dir, long+"/")] = s
	}

	held, err := lock(filepath.Join(runs, "active"))
	errtest.None(t, err)
	defer held.Close()

	errtest.None(t, os.RemoveAll(filepath.Join(runs, "gone")))

	errtest.None(t, SweepSockets(runs))

	for name, s := range sockets {
		_, err := os.Lstat(s)
		if left, stays := err == nil, name == "runs/active" || name == "others/dead"; left != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSocketDir: sockets are below the run's directory, unless their paths would
// be too long for ssh.
func TestSocketDir(t *testing.T) {
	if got := socketDir("/var/lib/clusterm/runs/1234567-2"); got != "/var/lib/clusterm/runs/1234567-2/ssh" {
		t.Error(got)
	}

	long := "/var/lib/clusterm" + strings.Repeat("/folder", 5)
	if got := socketDir(long); len(got) > maxSocketDir || got != socketDir(long) || got == socketDir(long+"/x") {
		t.Error(got)
	}

	taken := filepath.Join(t.TempDir(), "taken")
	errtest.None(t, os.Mkdir(taken, 0o755))
	if err := makePrivate(taken); err == nil {
		t.Error("a directory that others can read was accepted")
	}
}
