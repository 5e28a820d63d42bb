// SPDX-License-Identifier: Apache-2.0

package serf_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestEventHandlerAsks: nodes of which one is refused are reported each by
// itself; a manager that does not answer is asked once, because serf waits.
func TestEventHandlerAsks(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("handler/serf-handler.sh")
	if err != nil {
		t.Fatal(err)
	}
	for code, times := range map[string]int{"0": 1, "22": 4, "28": 1, "7": 1} {
		dir := t.TempDir()
		curl := "#!/bin/sh\ncat >/dev/null\necho >>'" + dir + "/asked'\nexit " + code + "\n"
		// Nothing is forked meanwhile: a child would hold the file open for writing,
		// and what is open for writing cannot be executed.
		syscall.ForkLock.RLock()
		err := os.WriteFile(filepath.Join(dir, "curl"), []byte(curl), 0o700)
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", string(script))
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "SERF_EVENT=member-join", "CLUSTERM_URL=http://127.0.0.1:1")
		var members strings.Builder
		for _, n := range []string{"1", "2", "3"} {
			members.WriteString("m" + n + "\t10.0.0.1\tr\tNodeLabel=a,NodeSerial=" + n + ",NodeAddr=10.0.0.1\n")
		}
		cmd.Stdin = strings.NewReader(members.String())
		err = cmd.Run()
		exit, failed := errors.AsType[*exec.ExitError](err)
		if quiet := code == "0" || code == "22"; quiet && err != nil || !quiet && (!failed || exit.ExitCode() == 0) {
			t.Errorf("curl ends with %s: %v", code, err)
		}
		asked, err := os.ReadFile(filepath.Join(dir, "asked"))
		if err != nil || len(asked) != times {
			t.Errorf("curl ends with %s: it was run %d times, not %d (%v)", code, len(asked), times, err)
		}
	}
}
