// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/errtest"
)

// canary is the secret of these runs.
const canary = "canary-51c9e2"

// secretSpec describes a run with the secret in every kind of file.
func secretSpec(t *testing.T, name string) Spec {
	s := fakeSpec(t, name)
	s.Hosts[0].Vars = map[string]configuration.Var{
		"pin": {Value: configuration.NewSecret(canary), Origin: configuration.OriginGlobal},
	}
	s.ExtraVars = configuration.Vars{"extra": configuration.NewSecret(map[string]any{"deep": canary})}
	s.Secrets = []string{canary}

	return s
}

// filesWith returns the files below a folder that contain the secret.
func filesWith(t *testing.T, folder string) []string {
	t.Helper()

	var found []string

	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}

		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(canary)) {
			info, _ := d.Info()
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s has the mode %v", path, info.Mode())
			}

			found = append(found, filepath.Base(path))
		}

		return err
	})
	errtest.None(t, err)

	return found
}

// TestSecretsGoWithTheRun: the files with secrets, which Ansible needs, are gone at the
// end of a run, whether the run ended by itself, its runner was killed, or no runner
// ever began.
func TestSecretsGoWithTheRun(t *testing.T) {
	t.Parallel()

	ended := secretSpec(t, "prints-and-fails")
	wait(t, start(t, ended))

	killed := secretSpec(t, "ignores-everything")
	run := start(t, killed)
	waitForOutput(t, run, "started")

	if found := filesWith(t, killed.Dir); len(found) != 3 {
		t.Errorf("during the run, the secret is in %v", found)
	}

	info, err := run.runnerInfo()
	errtest.None(t, err)
	errtest.None(t, unix.Kill(info.PID, unix.SIGKILL))

	wait(t, run)

	never := secretSpec(t, "prints-and-fails")
	errtest.None(t, prepare(never))
	unattended, err := Attach(never.Dir)
	errtest.None(t, err)
	wait(t, unattended)

	for name, dir := range map[string]string{"ended": ended.Dir, "killed": killed.Dir, "never begun": never.Dir} {
		if found := filesWith(t, dir); found != nil {
			t.Errorf("%s: the secret is in %v", name, found)
		}
	}
}

// TestSweepSecrets: the sweep at the start of a daemon removes the secrets of dead runs,
// and none of active ones.
func TestSweepSecrets(t *testing.T) {
	t.Parallel()

	active := secretSpec(t, "waits-until-interrupted")
	waitForOutput(t, start(t, active), "started")

	// As after a power failure: files without a process.
	dead := active
	dead.Dir = filepath.Join(filepath.Dir(active.Dir), "dead")

	errtest.None(t, prepare(dead))

	runs := filepath.Dir(active.Dir)
	errtest.None(t, SweepSecrets(runs))

	if found := filesWith(t, dead.Dir); found != nil {
		t.Errorf("of the dead run, the secret is in %v", found)
	}

	if found := filesWith(t, active.Dir); len(found) != 3 {
		t.Errorf("of the active run, the secret is in %v", found)
	}

	if err := SweepSecrets(filepath.Join(runs, "missing")); err != nil {
		t.Error(err)
	}
}
