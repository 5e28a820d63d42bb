// SPDX-License-Identifier: Apache-2.0

package ansible_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/cluster/ansible"
	"github.com/contiv/cluster/inventory/errtest"
)

// fenced is a host with a fence, in a folder.
type fenced struct {
	t       *testing.T
	dir     string
	manager string // which no other test has, because all see each other's processes
	env     []string
}

// hasty is a host that waits for one second from SIGTERM to SIGKILL.
const hasty = "CLUSTERM_FENCE_GRACE=1"

func newFenced(t *testing.T) fenced {
	for _, name := range []string{"sh", "flock", "grep", "sed"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}

	dir := t.TempDir()

	return fenced{t: t, dir: dir, manager: strconv.Itoa(os.Getpid()) + "-" + filepath.Base(filepath.Dir(dir))[4:]}
}

// command returns a command of the run with the token EPOCH/REVISION/RUN/JOB.
func (f fenced) command(manager, token, claim, line string) *exec.Cmd {
	script, err := fs.ReadFile(ansible.FS(), ansible.ConnectionDir+"/fence.sh")
	errtest.None(f.t, err)

	cmd := exec.Command("sh", "-c", `eval "$0"`, string(script), "run", claim, "plain", "keep", line)
	cmd.Env = append(os.Environ(), "SHELL=/bin/sh", "CLUSTERM_FENCE="+manager+"/host/"+token,
		"CLUSTERM_FENCE_DIR="+f.dir+"/fence", "CLUSTERM_FENCE_ROOT="+f.dir)
	cmd.Env = append(cmd.Env, f.env...)
	// As sshd does. The end of a test ends what it has left.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}

	return cmd
}

// try runs a command, and returns the reason if the host refuses it.
func (f fenced) try(token string) (refused string) { return f.tryAs(f.manager, token, "keep") }

func (f fenced) tryAs(manager, token, claim string) (refused string) {
	f.t.Helper()
	output, err := f.command(manager, token, claim, "echo ran").CombinedOutput()

	text, refusal := strings.CutPrefix(string(output), "clusterm-fence: ")
	exit, _ := errors.AsType[*exec.ExitError](err)

	switch {
	case err == nil && string(output) == "ran\n":
		return ""
	case refusal && exit != nil && exit.ExitCode() == 119:
		return text
	}
	f.t.Fatalf("%s: %v: %s", token, err, output)

	return ""
}

// began starts a command that writes into the log, and waits until it does.
func (f fenced) began(token, line string) *exec.Cmd {
	cmd := f.command(f.manager, token, "keep", line)
	out, err := cmd.StdoutPipe()
	errtest.None(f.t, err)
	errtest.None(f.t, cmd.Start())
	f.t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })

	if _, err := out.Read(make([]byte, 8)); err != nil {
		f.t.Fatal("it did not begin: ", err)
	}

	return cmd
}

// ended requires that a command was ended.
func (f fenced) ended(cmd *exec.Cmd) {
	f.t.Helper()

	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()

	select {
	case err := <-done:
		if err == nil {
			f.t.Error("the earlier command ended well")
		}
	case <-time.After(20 * time.Second):
		f.t.Error("the earlier command was not ended")
	}
}

// TestFenceOrder: the host keeps the highest token, and refuses a lower one.
func TestFenceOrder(t *testing.T) {
	t.Parallel()
	f := newFenced(t)

	for i, test := range []struct {
		token   string
		refused string
	}{
		{"0/5/1/7", ""},
		{"0/5/1/7", ""},
		{"0/5/0/7", "a later owner or a later run of job 7 has taken it over (token 0.5.1, not 0.5.0)"},
		{"0/4/9/7", "a later owner or a later run of job 7"},
		{"0/10/0/8", ""}, // by number, not by text
		{"0/9/0/7", "job 8 has taken it over from job 7 (token 0.10.0, not 0.9.0)"},
		{"1/2/0/3", ""}, // of a store that was restored
		{"0/99/0/9", "job 3 has taken it over from job 9"},
		{"1/2/0/3", ""},
	} {
		refused := f.try(test.token)
		if (refused == "") != (test.refused == "") || !strings.Contains(refused, test.refused) {
			t.Errorf("%d: %s: refused %q, want %q", i, test.token, refused, test.refused)
		}
	}
}

// TestFenceEnds: a higher token ends what runs for a lower one before its command begins. What a command has left
// behind stays, and so does what others run.
func TestFenceEnds(t *testing.T) {
	t.Parallel()

	for name, line := range map[string]string{
		"polite": `trap 'echo "5 ends" >>$L; exit 1' TERM; echo begun; sleep 300 & wait; echo "5 goes on" >>$L`,
		"deep":   `setsid sh -c "trap 'echo \"5 ends\" >>$L; exit 1' TERM; echo begun; sleep 300 & wait"; sleep 300`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f := newFenced(t)
			log := filepath.Join(f.dir, "log")
			line = "L=" + log + "; export L; " + line

			left := f.command(f.manager, "0/5/0/7", "keep", "setsid sleep 300 >/dev/null 2>&1 & echo $!")
			output, err := left.Output()
			errtest.None(t, err)
			service, err := strconv.Atoi(strings.TrimSpace(string(output)))
			errtest.None(t, err)
			t.Cleanup(func() { _ = syscall.Kill(service, syscall.SIGKILL) })

			earlier := f.began("0/5/0/7", line)
			other := newFenced(t).began("0/5/0/7", "echo begun; sleep 300")

			output, err = f.command(f.manager, "0/6/0/7", "keep", "echo '6 begins' >>"+log).CombinedOutput()
			if err != nil || len(output) > 0 {
				t.Fatalf("%v: %s", err, output)
			}

			text, err := os.ReadFile(log)
			errtest.None(t, err)

			if string(text) != "5 ends\n6 begins\n" {
				t.Fatalf("the commands wrote %q", text)
			}

			exit, _ := errors.AsType[*exec.ExitError](earlier.Wait())
			if exit == nil || exit.ExitCode() != 119 {
				t.Errorf("the earlier command ended with %v", exit)
			}

			for what, pid := range map[string]int{"a service": service, "another command": other.Process.Pid} {
				if err := syscall.Kill(pid, 0); err != nil {
					t.Errorf("%s was ended: %v", what, err)
				}
			}
		})
	}
}

// TestFenceKills: what ignores SIGTERM is killed.
func TestFenceKills(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	f.env = []string{hasty}
	earlier := f.began("0/5/0/7", "trap '' TERM; echo begun; sleep 300; sleep 300")

	if refused := f.try("0/6/0/7"); refused != "" {
		t.Fatal(refused)
	}

	f.ended(earlier)
}

// TestFenceSudo: an account that becomes root by sudo ends what runs as root by sudo as well.
func TestFenceSudo(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	bin := filepath.Join(f.dir, "bin")
	errtest.None(t, os.Mkdir(bin, 0o700))

	// It begins the command as another process that nothing marks, as sudo does.
	const sudo = "#!/bin/sh\n[ \"$1\" = -n ] || exit 1\nshift\n\"$@\"\necho \"$?\" >>\"$LOG\"\n"
	errtest.None(t, os.WriteFile(filepath.Join(bin, "sudo"), []byte(sudo), 0o700))

	earlier := f.began("0/5/0/7", "echo begun; sleep 300; sleep 300")
	later := f.command(f.manager, "0/6/0/7", "keep", "echo ran")
	later.Args[len(later.Args)-3] = "sudo"
	later.Env = append(later.Env, "LOG="+f.dir+"/log", "PATH="+bin+":"+os.Getenv("PATH"))

	if output, err := later.CombinedOutput(); err != nil || string(output) != "ran\n" {
		t.Fatalf("%v: %s", err, output)
	}

	if log, err := os.ReadFile(filepath.Join(f.dir, "log")); err != nil || string(log) != "0\n" {
		t.Errorf("sudo was run as %q: %v", log, err)
	}

	f.ended(earlier)
}

// TestFenceInterrupted: the death of a command that prepares the host leaves it to the next one. Until then, nothing
// of the run begins.
func TestFenceInterrupted(t *testing.T) {
	t.Parallel()
	f := newFenced(t)
	f.env = []string{hasty}
	earlier := f.began("0/5/0/7", "trap '' TERM; echo begun; sleep 300; sleep 300")

	first := f.command(f.manager, "0/6/0/7", "keep", "echo ran")
	errtest.None(t, first.Start())

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for state := ""; !strings.Contains(state, "raising"); <-tick.C {
		b, err := os.ReadFile(filepath.Join(f.dir, "fence", "host"))
		errtest.None(t, err)
		state = string(b)
	}

	errtest.None(t, syscall.Kill(-first.Process.Pid, syscall.SIGKILL))
	_ = first.Wait()

	if refused := f.try("0/6/0/7"); refused != "" {
		t.Fatal(refused)
	}

	f.ended(earlier)
}

// TestFenceManagers: a manager whose host it is replaces the token of another one, and no other manager does.
func TestFenceManagers(t *testing.T) {
	t.Parallel()
	f := newFenced(t)

	errtest.None(t, os.MkdirAll(filepath.Join(f.dir, "etc/clusterm"), 0o755))

	owned := func(id string) {
		text := `{"id": "` + id + `", "name": "host9-1", "addr": "10.0.0.9"}` + "\n"
		errtest.None(t, os.WriteFile(filepath.Join(f.dir, "etc/clusterm/manager.json"), []byte(text), 0o644))
	}

	for i, step := range []struct {
		owner, manager, token, claim string
		admitted                     bool
	}{
		{"", "aa", "0/50/0/7", "keep", true},
		{"aa", "bb", "0/3/0/1", "keep", false},
		{"aa", "aa", "0/50/0/7", "keep", true},
		{"aa", "bb", "0/3/0/1", "claim", true}, // discover --take-over
		{"aa", "aa", "0/51/0/8", "keep", true}, // the discover has not got far
		{"aa", "bb", "0/4/0/1", "claim", true},
		{"bb", "aa", "0/52/0/9", "keep", false}, // it wakes up
		{"bb", "bb", "0/4/0/1", "keep", true},
		{"cc", "bb", "0/5/0/2", "keep", true}, // the role refuses it, in words of its own
	} {
		if step.owner != "" {
			owned(step.owner)
		}

		refused := f.tryAs(step.manager, step.token, step.claim)
		if (refused == "") != step.admitted ||
			refused != "" && (!strings.HasPrefix(refused, "This host belongs to another manager: ") ||
				!strings.Contains(refused, "host9-1 at 10.0.0.9 (id "+step.owner)) {
			t.Errorf("%d: %+v: refused %q", i, step, refused)
		}
	}

	// Where nothing of a run was, nothing is made.
	f.dir = t.TempDir()
	errtest.None(t, os.MkdirAll(filepath.Join(f.dir, "etc/clusterm"), 0o755))
	owned("aa")

	if refused := f.tryAs("bb", "0/3/0/1", "keep"); !strings.Contains(refused, "another manager") {
		t.Errorf("refused %q", refused)
	}

	if _, err := os.Stat(filepath.Join(f.dir, "fence")); err == nil {
		t.Error("the fence left a folder on the host of another manager")
	}
}

// TestFenceNoRecord: where the token cannot be kept, nothing runs.
func TestFenceNoRecord(t *testing.T) {
	t.Parallel()
	f := newFenced(t)

	if refused := f.try("0/5/0/7"); refused != "" {
		t.Fatal(refused)
	}

	full := f.command(f.manager, "0/6/0/7", "keep", "echo ran")
	full.Args = append([]string{"sh", "-c", `ulimit -f 0; trap '' XFSZ; exec "$@"`, "sh"}, full.Args...)

	output, err := full.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "disk full") || strings.Contains(string(output), "ran") {
		t.Errorf("a full disk: %v: %s", err, output)
	}

	if refused := f.try("0/5/0/7"); refused != "" {
		t.Errorf("after the disk was full: %s", refused)
	}

	damaged := newFenced(t)
	errtest.None(t, os.Mkdir(filepath.Join(damaged.dir, "fence"), 0o700))
	errtest.None(t, os.WriteFile(filepath.Join(damaged.dir, "fence", "host"), []byte("aa x\n"), 0o600))

	if refused := damaged.try("0/5/0/7"); !strings.Contains(refused, "damaged") {
		t.Errorf("a damaged record: %q", refused)
	}
}
