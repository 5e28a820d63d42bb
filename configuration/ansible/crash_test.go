// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
)

// crashedDaemon starts a run by a daemon whose runner is the script, and returns once that
// daemon was killed. In the script, $PPID is the daemon.
func crashedDaemon(t *testing.T, s Spec, script string) {
	t.Helper()

	spec, err := json.Marshal(s)
	errtest.None(t, err)
	daemon := exec.CommandContext(within(t, patience), os.Args[0], "killed-daemon", string(spec))
	daemon.Env = append(os.Environ(), "TEST_RUNNER="+script)

	// Its output would keep Wait waiting for its runner.
	if err := daemon.Run(); err == nil || daemon.ProcessState.Exited() {
		t.Fatalf("the daemon was not killed: %v", err)
	}
}

// TestDaemonCrashesBeforeTheBeginning: wherever a daemon dies before ansible-playbook is
// executed, the run is known not to have begun.
func TestDaemonCrashesBeforeTheBeginning(t *testing.T) {
	for name, script := range map[string]string{
		"the runner was launched": `kill -9 $PPID`,
		"the runner goes on":      `kill -9 $PPID; exec "$0" runner "$1"`,
		"the runner awaits a permit": `mkfifo "$1/never"
"$0" runner "$1" 5>"$1/replies" 6<>"$1/never" &
until [ -s "$1/replies" ]; do :; done
kill -9 $!
kill -9 $PPID`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fakeSpec(t, "prints-and-fails")
			crashedDaemon(t, s, script)

			run, err := Attach(s.Dir)
			errtest.None(t, err)
			if e := wait(t, run); !e.Reason.NotExecuted() || e.Error == "" {
				t.Errorf("exit %+v", e)
			}

			if out := read(t, filepath.Join(s.Dir, fileOutput)); out != "" {
				t.Errorf("ansible-playbook was executed:\n%s", out)
			}
		})
	}
}

// TestDaemonCrashesAtTheBeginning: from the moment at which the runner may execute
// ansible-playbook, a run without an end is never called one that did not begin.
func TestDaemonCrashesAtTheBeginning(t *testing.T) {
	t.Parallel()
	s := fakeSpec(t, "ignores-everything")
	crashedDaemon(t, s, `"$0" runner "$1" &
until [ -s "$1/output" ]; do :; done
kill -9 $!
kill -9 $PPID`)

	run, err := Attach(s.Dir)
	errtest.None(t, err)
	if e := wait(t, run); e.Reason != Vanished || e.Reason.NotExecuted() {
		t.Errorf("exit %+v", e)
	}
}

// TestDaemonCrashesDuringThePreparation: whatever files of a run were written, it is not there
// yet and can be started, or it is known not to have begun.
func TestDaemonCrashesDuringThePreparation(t *testing.T) {
	t.Parallel()

	whole := fakeSpec(t, "prints-and-fails")

	files, err := whole.files()
	errtest.None(t, err)

	// In the order in which they are written.
	names := slices.Sorted(maps.Keys(files))

	for written := range len(names) + 1 {
		s := fakeSpec(t, "prints-and-fails")
		errtest.None(t, os.Mkdir(s.Dir, 0o700))

		for _, name := range names[:written] {
			errtest.None(t, os.WriteFile(filepath.Join(s.Dir, name), files[name], 0o600))
		}

		run, err := Attach(s.Dir)

		switch {
		case errors.Is(err, fs.ErrNotExist):
			wait(t, start(t, s))
		case err != nil:
			t.Error(err)
		default:
			if e := wait(t, run); !e.Reason.NotExecuted() {
				t.Errorf("with %d files: exit %+v", written, e)
			}
		}
	}
}
