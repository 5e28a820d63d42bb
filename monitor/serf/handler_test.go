// SPDX-License-Identifier: Apache-2.0

package serf_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/contiv/cluster/monitor/serf/serftest"
)

// TestEventHandlerAsks: nodes of which one is refused are reported each by
// itself; where no manager takes anything, they are not.
func TestEventHandlerAsks(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("handler/serf-handler.sh")
	if err != nil {
		t.Fatal(err)
	}
	for status, times := range map[string]int{"200": 1, "400": 4, "503": 1, "000": 1} {
		dir := t.TempDir()
		curl := "#!/bin/sh\ncat >/dev/null\necho >>'" + dir + "/asked'\necho '{}'\necho " + status + "\n[ " + status + " != 000 ]\n"
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
		_, failed := errors.AsType[*exec.ExitError](err)
		if taken := times > 1 || status == "200"; taken && err != nil || !taken && !failed {
			t.Errorf("the manager answers %s: %v", status, err)
		}
		asked, err := os.ReadFile(filepath.Join(dir, "asked"))
		if err != nil || len(asked) != times {
			t.Errorf("the manager answers %s: curl was run %d times, not %d (%v)", status, len(asked), times, err)
		}
	}
}

// TestLiveEventHandlerTriesAgain: a connection that breaks and a manager that
// cannot now lose nothing.
func TestLiveEventHandlerTriesAgain(t *testing.T) {
	serftest.NeedLab(t)
	t.Parallel()
	var bodies []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch bodies = append(bodies, string(body)); len(bodies) {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	cmd := exec.CommandContext(t.Context(), "sh", "handler/serf-handler.sh")
	cmd.Env = append(os.Environ(), "SERF_EVENT=member-failed", "CLUSTERM_URL="+s.URL)
	cmd.Stdin = strings.NewReader("m1\t10.0.0.1\tr\tNodeLabel=a,NodeSerial=1,NodeAddr=10.0.0.1\n")
	out, err := cmd.CombinedOutput()
	s.Close()
	if want := `{"monitor_event":{"name":"disappeared","nodes":[{"label":"a","serial":"1","addr":"10.0.0.1"}]}}`; err != nil || !slices.Equal(bodies, []string{want, want, want}) {
		t.Errorf("%v: %s\n%s", err, bodies, out)
	}
}
