// SPDX-License-Identifier: Apache-2.0

package program

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/step/playbook"
)

// patience limits every wait.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "runner" {
		os.Exit(ansible.Main(os.Args[2]))
	}

	syscall.Umask(0o022) // a stricter one would have files more private than the tests want them
	os.Exit(m.Run())
}

// open opens a Runner with a data directory and a configuration.
func open(t *testing.T, dataDir string, c *playbook.Config) *Runner {
	t.Helper()

	r := New(Options{
		DataDir: dataDir, Config: func() playbook.Config { return *c }, Metrics: metrics.NewRegistry(),
		Command: []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", os.Args[0], "runner"}, Logger: logrus.New(),
	})
	errtest.None(t, r.Open(t.Context()))
	return r
}

// succeeds is an ansible-playbook that does nothing, and refuses playbooks that are broken.
const succeeds = `#!/bin/sh
for playbook; do :; done
case "$*" in
*--version*) echo "ansible-playbook [core 2.16.3]" ;;
*) if grep -q broken "$playbook"; then echo "ERROR! a line of $playbook is broken" >&2; exit 4; fi ;;
esac
`

// program writes a program, and returns its path. It prevents forks meanwhile: a child would hold the file open for
// writing, and an open file cannot be executed.
func program(t *testing.T, text string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "ansible-playbook")

	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()

	errtest.None(t, os.WriteFile(path, []byte(text), 0o700))

	return path
}

// folderOf writes files below a new folder.
func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()

	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		errtest.None(t, os.MkdirAll(filepath.Dir(path), 0o755))
		errtest.None(t, os.WriteFile(path, []byte(text), 0o644))
	}

	return dir
}

// checkError checks the kind of an error, and that its text contains all parts.
func checkError(t *testing.T, err error, want inventory.Kind, words ...string) {
	t.Helper()

	if inventory.KindOf(err) != want {
		t.Errorf("%v is %q, want %q", err, inventory.KindOf(err), want)
		return
	}

	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in: %v", w, err)
		}
	}
}
