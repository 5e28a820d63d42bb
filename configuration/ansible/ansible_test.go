// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestMain makes the test binary also the runner process, and a daemon that is
// killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case "runner":
			os.Exit(Main(os.Args[2]))
		case "killed-daemon":
			killedDaemon(os.Args[2])
		}
	}

	// The tests mostly wait, so more of them can run than there are processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}

	os.Exit(m.Run())
}

// self runs this binary as the runner. Without GORACE, the race detector delays
// the end of a process by a second.
var self = Runner{Self: []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", os.Args[0], "runner"}}

// patience bounds every wait for something that should happen.
const patience = 5 * time.Minute

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func fake(t *testing.T, name string) string {
	path, err := filepath.Abs(filepath.Join("testdata", "fake", name))
	errtest.None(t, err)
	return path
}

// fakeSpec describes a run of a fake ansible-playbook in testdata/fake.
func fakeSpec(t *testing.T, name string) Spec {
	base := t.TempDir()

	playbooks := filepath.Join(base, "playbooks")
	errtest.None(t, os.MkdirAll(playbooks, 0o755))
	errtest.None(t, os.WriteFile(filepath.Join(playbooks, "site.yml"), []byte("- hosts: all\n"), 0o644))

	return Spec{
		ID: "job-1", Dir: filepath.Join(base, "run"), Playbooks: playbooks, Playbook: "site.yml",
		Hosts:    []configuration.Host{{Name: "a-1", Addr: "127.0.0.1", Role: configuration.RoleTarget}},
		Deadline: time.Now().Add(time.Hour), GraceInt: 10 * time.Second, GraceTerm: 10 * time.Second,
		AnsiblePlaybook: fake(t, name),
	}
}

// start starts a run. At the end of the test it cancels the run and checks that
// no process is left.
func start(t *testing.T, s Spec) *Run {
	run, err := self.Start(within(t, patience), s)
	errtest.None(t, err)

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()

		if err := run.Cancel(ctx); err != nil {
			t.Error(err)
		}

		if _, err := run.Wait(ctx); err != nil {
			t.Error(err)
		}

		if left := marked(s.Dir, ""); len(left) > 0 {
			t.Errorf("processes %v of the run are left", left)
		}
	})

	return run
}

func wait(t *testing.T, run *Run) Exit {
	e, err := run.Wait(within(t, patience))
	errtest.None(t, err)
	return e
}

func read(t *testing.T, path string) string {
	b, err := os.ReadFile(path)
	errtest.None(t, err)
	return string(b)
}

func expectContains(t *testing.T, what, text string, parts ...string) {
	t.Helper()

	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", what, part, text)
		}
	}
}

var errFound = errors.New("found")

// waitForOutput follows the output until it contains text.
func waitForOutput(t *testing.T, run *Run, text string) {
	var got []byte

	_, err := run.Follow(within(t, patience), run.Output(), 0, func(_ int64, chunk []byte) error {
		if got = append(got, chunk...); bytes.Contains(got, []byte(text)) {
			return errFound
		}
		return nil
	})
	if !errors.Is(err, errFound) {
		t.Fatalf("output %q lacks %q: %v", got, text, err)
	}
}

func TestCompleteRun(t *testing.T) {
	t.Parallel()
	s := fakeSpec(t, "prints-and-fails")
	s.Hosts = append(s.Hosts, configuration.Host{Name: "h-1", Addr: "127.0.0.2", Role: configuration.RoleHelper})
	s.ExtraVars = configuration.Vars{"secret": "hunter2"}
	run := start(t, s)

	e := wait(t, run)
	if e.Reason != Done || e.Code != 2 || e.Signal != "" || e.OK() || e.Error != "" || e.Ended.Before(e.Started) {
		t.Errorf("exit %+v", e)
	}

	if run.Truncated(run.Output()) || run.Truncated(run.Events()) {
		t.Error("output or events are reported as truncated")
	}

	out := read(t, run.Output())
	expectContains(t, "the output", out,
		"to stdout\n",
		"to stderr\n",
		"--limit job_targets /",
		"@"+s.Dir+"/extra-vars.yml",
		s.Playbooks+"/site.yml",
	)

	const events = `{"event":"ok","host":"a-1"}` + "\n" + `{"event":"stats","stats":{"a-1":{"failures":1}}}` + "\n"
	if got := read(t, run.Events()); got != events {
		t.Errorf("events %q", got)
	}

	if strings.Contains(out+read(t, filepath.Join(s.Dir, fileSpec)), "hunter2") {
		t.Error("a variable's value is on the command line or in spec.json")
	}

	err := filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if info, err := d.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	// Another process gets the same result.
	again, err := Attach(s.Dir)
	errtest.None(t, err)
	if e2 := wait(t, again); e2 != e || again.Alive() {
		t.Errorf("attached: %+v", e2)
	}

	if err := again.Cancel(t.Context()); err != nil {
		t.Error(err)
	}

	if _, err := self.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "already begun") {
		t.Errorf("a second run in the same directory: %v", err)
	}
}

func TestEnvironmentOfARun(t *testing.T) {
	t.Setenv("ANSIBLE_HOST_KEY_CHECKING", "False")
	t.Setenv("SECRET_OF_THE_DAEMON", "hunter2")
	t.Setenv("https_proxy", "http://proxy.example.org")
	t.Setenv("PASSED_ON", "yes")

	listener, err := os.Create(filepath.Join(t.TempDir(), "listener-of-the-daemon"))
	errtest.None(t, err)
	defer listener.Close()
	s := fakeSpec(t, "shows-environment")
	s.Env = []string{"PASSED_ON"}
	run := start(t, s)
	wait(t, run)

	out := read(t, run.Output())
	expectContains(t, "the output", out,
		"https_proxy=",
		"PASSED_ON=yes",
		"LC_ALL=C.UTF-8",
		"ANSIBLE_CONFIG="+s.Dir+"/ansible.cfg",
	)

	// Signals 1 to 31. Those above belong to the C library, and their state comes
	// from the parent of the test.
	_, ignored, _ := strings.Cut(out, "SigIgn:\t")
	if len(ignored) < 16 {
		t.Errorf("the output lacks SigIgn:\n%s", out)
	} else if mask, err := strconv.ParseUint(ignored[:16], 16, 64); err != nil || mask&(1<<31-1) != 0 {
		t.Errorf("signals are ignored: %s, %v", ignored[:16], err)
	}

	for _, leaked := range []string{
		"HOST_KEY_CHECKING", "hunter2", inherits, "listener-of-the-daemon", "/" + fileLock, "/" + fileAlive,
	} {
		if strings.Contains(out, leaked+"\n") || strings.Contains(out, leaked+"=") {
			t.Errorf("%s reached the run:\n%s", leaked, out)
		}
	}

	s.Env = []string{"ANSIBLE_VAULT_PASSWORD_FILE"}
	if err := prepare(s); err == nil {
		t.Error("a variable ANSIBLE_… was passed on")
	}
}

func TestCancel(t *testing.T) {
	for _, tt := range []struct {
		name   string
		grace  [2]time.Duration
		output string
		code   int
		signal string
	}{
		{"waits-until-interrupted", [2]time.Duration{time.Minute, time.Minute}, "interrupted", 99, ""},
		{"ignores-interrupts", [2]time.Duration{50 * time.Millisecond, time.Minute}, "terminated", 98, ""},
		{"ignores-everything", [2]time.Duration{50 * time.Millisecond, 50 * time.Millisecond}, "", -1, "SIGKILL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := fakeSpec(t, tt.name)
			s.GraceInt, s.GraceTerm = tt.grace[0], tt.grace[1]
			run := start(t, s)
			waitForOutput(t, run, "started")

			if !run.Alive() {
				t.Error("Alive reports false for an active run")
			}

			for range 2 {
				errtest.None(t, run.Cancel(t.Context()))
			}

			e := wait(t, run)
			if e.Reason != Cancelled || e.Code != tt.code || e.Signal != tt.signal {
				t.Errorf("exit %+v", e)
			}

			if out := read(t, run.Output()); !strings.Contains(out, tt.output) {
				t.Errorf("output %q", out)
			}
		})
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()

	// On a busy machine a runner may not begin before a short deadline.
	for short := 300 * time.Millisecond; ; short *= 2 {
		s := fakeSpec(t, "waits-until-interrupted")
		s.Deadline = time.Now().Add(short)

		run, err := self.Start(within(t, patience), s)
		if isNotBegun(err, true) && short < patience {
			continue
		}

		errtest.None(t, err)

		if e := wait(t, run); e.Reason != DeadlineExceeded || e.OK() {
			t.Errorf("exit %+v", e)
		}

		return
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	s := fakeSpec(t, "waits-until-interrupted")
	s.Lease, s.Deadline = time.Now().Add(30*time.Minute), time.Now().Add(20*time.Second)
	run := start(t, s)
	waitForOutput(t, run, "started")
	// A renewal may also shorten the lease. The run must not end earlier.
	until := time.Now().Add(400 * time.Millisecond)
	errtest.None(t, run.Renew(until))
	if e := wait(t, run); e.Reason != LeaseLost || e.Ended.Before(until.Add(-100*time.Millisecond)) {
		t.Errorf("exit %+v of a run with a lease until %s", e, until)
	}
}

// TestLeaseIsGone: a run whose lease was removed, as with its whole folder, ends.
func TestLeaseIsGone(t *testing.T) {
	t.Parallel()
	s := fakeSpec(t, "waits-until-interrupted")
	s.Lease = time.Now().Add(30 * time.Minute)
	run := start(t, s)
	waitForOutput(t, run, "started")

	errtest.None(t, os.Remove(filepath.Join(run.Dir(), "lease")))

	if e := wait(t, run); e.Reason != LeaseLost {
		t.Errorf("exit %+v", e)
	}
}

func TestFirstRenewCreatesTheLease(t *testing.T) {
	t.Parallel()
	run := start(t, fakeSpec(t, "waits-until-interrupted"))
	waitForOutput(t, run, "started")

	errtest.None(t, run.Renew(time.Now()))

	if e := wait(t, run); e.Reason != LeaseLost {
		t.Errorf("exit %+v", e)
	}
}

func TestRunEndsOrphans(t *testing.T) {
	t.Parallel()
	s := fakeSpec(t, "leaves-orphans")
	run := start(t, s)

	e := wait(t, run)
	if !e.OK() {
		t.Errorf("exit %+v", e)
	}

	out := read(t, run.Output())

	n := 0
	for line := range strings.Lines(out) {
		if pid, ok := strings.CutPrefix(strings.TrimSpace(line), "orphan "); ok {
			n++

			if id, err := strconv.Atoi(pid); err != nil || unix.Kill(id, 0) == nil {
				t.Errorf("orphan %s still exists", pid)
			}
		}
	}

	if n != 2 {
		t.Errorf("output %q", out)
	}
}

func TestHugeLine(t *testing.T) {
	t.Parallel()

	run := start(t, fakeSpec(t, "one-huge-line"))
	if e := wait(t, run); !e.OK() {
		t.Errorf("exit %+v", e)
	}

	var got int64

	end, err := run.Follow(within(t, patience), run.Output(), 0, func(offset int64, chunk []byte) error {
		if offset != got || len(chunk) > TailChunk || bytes.Count(chunk, []byte("x")) != len(chunk) {
			t.Fatalf("a chunk of %d bytes at %d, want %d", len(chunk), offset, got)
		}

		got += int64(len(chunk))
		return nil
	})
	if err != nil || end != 10_000_000 || got != end {
		t.Errorf("offset %d, %d bytes delivered: %v", end, got, err)
	}
}

func TestOutputLimit(t *testing.T) {
	t.Parallel()
	s := fakeSpec(t, "floods")
	s.OutputLimit = 100 << 10

	run := start(t, s)
	if e := wait(t, run); !e.OK() {
		t.Errorf("exit %+v", e)
	}
	out := read(t, run.Output())
	if len(out) > 100<<10+keptTail+500 {
		t.Errorf("%d bytes of output", len(out))
	}

	for _, want := range []string{
		"[clusterm] the limit of 102400 bytes is reached", "bytes are left out here\n", "\nthe very end\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}

	if !run.Truncated(run.Output()) {
		t.Error("Truncated reports false for truncated output")
	}

	var events configuration.EventStream

	var sum configuration.Summary
	for _, e := range events.Write([]byte(read(t, run.Events()))) {
		sum.Add(e)
	}

	if r := sum.Results()["a-1"]; r.OK != 3000 || !r.Good() {
		t.Errorf("the end of the events is lost: %+v", r)
	}
}

func TestKilledRunner(t *testing.T) {
	t.Parallel()
	s := fakeSpec(t, "ignores-everything")
	run := start(t, s)
	waitForOutput(t, run, "started")

	info, err := run.runnerInfo()
	errtest.None(t, err)

	waiter := make(chan Exit)
	go func() {
		e, _ := run.Wait(context.Background())
		waiter <- e
	}()

	errtest.None(t, unix.Kill(info.PID, unix.SIGKILL))

	again, err := Attach(s.Dir)
	errtest.None(t, err)
	e := wait(t, again)
	if e.Reason != Vanished || e.Started.IsZero() || e.OK() {
		t.Errorf("exit %+v", e)
	}
	if e2 := <-waiter; e2 != e {
		t.Errorf("a concurrent Wait returned %+v, want %+v", e2, e)
	}

	if _, err := os.Stat(info.Sockets); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket directory still exists: %v", err)
	}
}

// TestPlaybookDiesWithItsRunner: ansible-playbook dies with a runner that is
// killed, without a daemon that waits for it.
func TestPlaybookDiesWithItsRunner(t *testing.T) {
	t.Parallel()
	run := start(t, fakeSpec(t, "ignores-everything"))
	waitForOutput(t, run, "started")

	info, err := run.runnerInfo()
	errtest.None(t, err)
	playbook := descendants(info.PID)[0]

	gone, err := unix.PidfdOpen(playbook, 0)
	errtest.None(t, err)
	defer unix.Close(gone)

	errtest.None(t, unix.Kill(info.PID, unix.SIGKILL))

	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(gone), Events: unix.POLLIN}}, int(patience/time.Millisecond))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			t.Errorf("ansible-playbook survives its runner: %v", err)
		}
		return
	}
}

func TestPreparedButNeverStarted(t *testing.T) {
	t.Parallel()

	s := fakeSpec(t, "prints-and-fails")
	errtest.None(t, prepare(s))
	run, err := Attach(s.Dir)
	errtest.None(t, err)
	if e := wait(t, run); e.Reason != GivenUp || !e.Started.IsZero() {
		t.Errorf("exit %+v", e)
	}

	if _, err := Attach(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty directory: %v", err)
	}
}

// TestRunSurvivesTheDaemon: a run continues after SIGKILL of the daemon, and
// the next daemon finds and cancels it.
func TestRunSurvivesTheDaemon(t *testing.T) {
	t.Parallel()
	s := fakeSpec(t, "waits-until-interrupted")

	spec, err := json.Marshal(s)
	errtest.None(t, err)
	daemon := exec.Command(os.Args[0], "killed-daemon", string(spec))

	out, err := daemon.StdoutPipe()
	errtest.None(t, err)

	daemon.Stderr = os.Stderr
	errtest.None(t, daemon.Start())

	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Fatalf("the daemon printed %q, %v", line, err)
	}

	errtest.None(t, daemon.Process.Kill())

	if err := daemon.Wait(); err == nil {
		t.Fatal("the daemon was not killed")
	}

	run, err := Attach(s.Dir)
	errtest.None(t, err)
	waitForOutput(t, run, "started")

	if !run.Alive() {
		t.Fatal("the run ended with the daemon")
	}

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	if _, err := run.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait with an expired context returned %v", err)
	}

	errtest.None(t, run.Cancel(t.Context()))

	if e := wait(t, run); e.Reason != Cancelled || e.Code != 99 {
		t.Errorf("exit %+v", e)
	}
}

func killedDaemon(spec string) {
	var s Spec

	err := json.Unmarshal([]byte(spec), &s)
	runner := self

	if script := os.Getenv("TEST_RUNNER"); script != "" {
		runner = shellRunner(script)
	}

	if err == nil {
		_, err = runner.Start(context.Background(), s)
	}

	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}

	fmt.Println("started")

	select {}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	missing := fakeSpec(t, "prints-and-fails")

	missing.AnsiblePlaybook = "/nonexistent/ansible-playbook"

	_, err := self.Start(t.Context(), missing)
	if inventory.KindOf(err) != inventory.KindUnavailable || !strings.Contains(err.Error(), "install ansible-core") {
		t.Errorf("missing ansible-playbook: %v", err)
	}

	broken := fakeSpec(t, "prints-and-fails")

	broken.AnsiblePlaybook = filepath.Join(t.TempDir(), "not-a-program")
	errtest.None(t, writeProgram(broken.AnsiblePlaybook, "\x7fELF"))

	_, err = self.Start(within(t, patience), broken)
	if !isNotBegun(err, false) || !strings.Contains(err.Error(), "start ansible-playbook") {
		t.Errorf("broken ansible-playbook: %v", err)
	}

	run, err := Attach(broken.Dir)
	errtest.None(t, err)
	if e := wait(t, run); e.Reason != NotStarted || e.Error == "" || e.Code != -1 {
		t.Errorf("exit %+v", e)
	}

	failing := Runner{Self: []string{"/bin/false"}}

	_, err = failing.Start(within(t, patience), fakeSpec(t, "prints-and-fails"))
	if !isNotBegun(err, true) || !strings.Contains(err.Error(), "ended before it began") {
		t.Errorf("failing runner: %v", err)
	}

	hanging := Runner{Self: []string{"/bin/sh", "-c", "sleep 600"}}

	_, err = hanging.Start(within(t, 200*time.Millisecond), fakeSpec(t, "prints-and-fails"))
	if !isNotBegun(err, true) || !strings.Contains(err.Error(), "stood still") {
		t.Errorf("hanging runner: %v", err)
	}
}

func TestPrepareRefuses(t *testing.T) {
	t.Parallel()

	good := fakeSpec(t, "prints-and-fails")
	for what, change := range map[string]func(*Spec){
		"relative directory":    func(s *Spec) { s.Dir = "run" },
		"directory with spaces": func(s *Spec) { s.Dir += " x" },
		"newline in folder":     func(s *Spec) { s.Playbooks += "\nx" },
		"roles outside grammar": func(s *Spec) { s.BundledRoles = "/a:/b" },
		"no deadline":           func(s *Spec) { s.Deadline = time.Time{} },
		"no hosts":              func(s *Spec) { s.Hosts = nil },
		"missing playbook":      func(s *Spec) { s.Playbook = "verify.yml" },
		"playbook outside":      func(s *Spec) { s.Playbook = "../site.yml" },
		"playbook is a folder":  func(s *Spec) { s.Playbook = "." },
		"playbook is an option": func(s *Spec) { s.Playbook = "--version" },
		"missing ssh key": func(s *Spec) {
			s.Hosts = slices.Clone(s.Hosts)
			s.Hosts[0].Connection.KeyFile = "/nonexistent"
		},
		"variables": func(s *Spec) { s.ExtraVars = configuration.Vars{"ansible_host": "x"} },
	} {
		s := good
		change(&s)

		if err := prepare(s); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}

	if err := prepare(good); err != nil {
		t.Error(err)
	}

	good.Lease = time.Now().Add(time.Minute)
	if err := prepare(good); err != nil {
		t.Errorf("preparing again: %v", err)
	}
}

func TestConfig(t *testing.T) {
	s := Spec{
		Dir:          "/d",
		Playbooks:    "/t",
		BundledRoles: "/b",
		CallbackDir:  "/c",
		CacheDir:     "/f",
		Forks:        3,
		Hosts:        make([]configuration.Host, 10),
	}
	expectContains(t, "ansible.cfg", string(s.config()),
		"forks = 3\n",
		"roles_path = /t/roles:/b\n",
		"callback_plugins = /c\n",
		"cache_plugins = /f\nfact_caching = clusterm_facts\nfact_caching_connection = /d/reserved-facts.json\n",
		"home = /d/home\n",
		"enable_plugins = ansible.builtin.yaml\n",
		"-F /d/ssh_config",
	)

	s.Hosts = []configuration.Host{{}, {Role: configuration.RolePeer}}
	if !strings.Contains(string(s.config()), "forks = 1\n") {
		t.Errorf("forks exceed the number of hosts that plays act on")
	}

	ssh := string(sshConfig([]configuration.Host{
		{Connection: configuration.Connection{Jump: "me@gate:22", KeyFile: "/k1"}},
		{Connection: configuration.Connection{Jump: "gate", KeyFile: "/k2"}},
		{Connection: configuration.Connection{KeyFile: "/k3"}},
		{Connection: configuration.Connection{Jump: "gate", KeyFile: "/k4"}, JumpKeyFile: "/k5"},
	}, "/d/jumps"))
	if !strings.Contains(ssh, "Host gate\n  IdentityFile /k1\n  IdentityFile /k2\n  IdentityFile /k5\n"+
		"Host *\n  UserKnownHostsFile /d/jumps ~/.ssh/known_hosts\n  BatchMode yes\n") {
		t.Errorf("ssh_config:\n%s", ssh)
	}
}

func TestNewHostKeys(t *testing.T) {
	t.Parallel()
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKX0Cq0cJ6v5wF0b9a5C7Yw5Sg0T0Gk3o0G8o5oVb1n2"
	s := fakeSpec(t, "prints-and-fails")

	s.Hosts = append(
		s.Hosts,
		configuration.Host{Name: "Known-1", Addr: "127.0.0.3", Role: configuration.RolePeer, HostKeys: []string{key}},
		configuration.Host{Name: "New-1", Addr: "127.0.0.4", Role: configuration.RoleTarget},
	)
	errtest.None(t, prepare(s))

	f, err := os.OpenFile(filepath.Join(s.Dir, fileKnownHosts), os.O_APPEND|os.O_WRONLY, 0)
	errtest.None(t, err)
	fmt.Fprintf(f, "new-1 %s\nstranger-1 %s\n", key, key)

	errtest.None(t, f.Close())

	got, err := NewHostKeys(s.Dir)
	if err != nil || len(got) != 1 || !slices.Equal(got["New-1"], []string{key}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// writeProgram writes an executable file. It blocks forks meanwhile: a child
// would have the file open for writing until it executes its own program, and
// the kernel does not execute a file that is open for writing.
func writeProgram(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o700)
}

func TestCheck(t *testing.T) {
	t.Parallel()

	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "ansible-playbook")
		errtest.None(t, writeProgram(path, text))
		return path
	}
	for text, want := range map[string]string{
		"#!/bin/sh\necho 'ansible-playbook [core 2.13.9]'": "too old",
		"#!/bin/sh\necho 'ansible-playbook 2.9.27'":        "too old",
		"#!/bin/sh\necho 'something else'":                 "not a version",
		"#!/bin/sh\necho broken >&2; exit 1":               "broken",
	} {
		if v, err := Check(t.Context(), script(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", text, v, err)
		}
	}

	_, err := Check(t.Context(), "/nonexistent")
	if err == nil || !strings.Contains(err.Error(), "install ansible-core") {
		t.Errorf("missing ansible-playbook: %v", err)
	}

	v, err := Check(t.Context(), script("#!/bin/sh\necho 'ansible-playbook [core 2.19.0rc1]'"))
	if want := (Version{2, 19, 0}); err != nil || v != want {
		t.Errorf("got %v, %v; want %v", v, err, want)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	if _, err := Check(ctx, script("#!/bin/sh\nsleep 600")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hanging ansible-playbook: %v", err)
	}
}

// prepare checks the spec and writes the files of its run.
func prepare(s Spec) error {
	if err := s.check(); err != nil {
		return err
	}
	return s.prepare()
}
