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
// itself, once; where no manager takes anything, all of them are again.
func TestEventHandlerAsks(t *testing.T) {
	t.Parallel()

	script, err := os.ReadFile("handler/serf-handler.sh")
	if err != nil {
		t.Fatal(err)
	}

	const (
		taken   = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
		failure = "HTTP/1.1 500 Internal Server Error\r\nX-Clusterm-Problem: "
		refused = failure + "refused\r\n\r\nno 200\n"
		fault   = failure + "internal\r\n\r\nincident 200\n"
		busy    = failure + "unavailable\r\n\r\nno\n"
		missing = "HTTP/1.1 404 Not Found\r\n\r\n"
		gateway = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 200\r\n\r\n"
	)
	for name, tt := range map[string]struct {
		first, answer string // to the first request, and to those after it; without one, curl fails
		asked         int
		fails         bool
	}{
		"taken":              {taken, taken, 1, false},
		"refused":            {refused, refused, 4, false},
		"through a proxy":    {strings.ToLower(refused), strings.ToLower(refused), 4, false},
		"one is refused":     {refused, taken, 4, false},
		"a fault":            {fault, fault, 4, false},
		"not now":            {busy, busy, 5, true},
		"then taken":         {busy, taken, 2, false},
		"a gateway":          {gateway, gateway, 5, true},
		"somebody else":      {missing, missing, 5, true},
		"nobody":             {"", "", 5, true},
		"refused, then gone": {refused, "", 1 + 5, true},
	} {
		dir := t.TempDir()
		for program, text := range map[string]string{
			"curl": "cat >/dev/null\nanswer='" + tt.answer + "'\n[ -e '" + dir + "/asked' ] || answer='" + tt.first + "'\n" +
				"echo >>'" + dir + "/asked'\nprintf %s \"$answer\"\n[ \"$answer\" ]\n",
			"sleep": "",
		} {
			// Nothing is forked meanwhile: a child would hold the file open for writing,
			// and what is open for writing cannot be executed.
			syscall.ForkLock.RLock()
			err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+text), 0o700)
			syscall.ForkLock.RUnlock()

			if err != nil {
				t.Fatal(err)
			}
		}

		cmd := exec.CommandContext(t.Context(), "sh", "-c", string(script))
		cmd.Env = append(
			os.Environ(),
			"PATH="+dir+":"+os.Getenv("PATH"),
			"SERF_EVENT=member-join",
			"CLUSTERM_URL=http://127.0.0.1:1",
		)

		var members strings.Builder
		for _, n := range []string{"1", "2", "3"} {
			members.WriteString("m" + n + "\t10.0.0.1\tr\tNodeLabel=a,NodeSerial=" + n + ",NodeAddr=10.0.0.1\n")
		}

		cmd.Stdin = strings.NewReader(members.String())

		out, err := cmd.CombinedOutput()
		if exit, failed := errors.AsType[*exec.ExitError](err); failed != tt.fails || failed && exit.ExitCode() != 1 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}

		asked, err := os.ReadFile(filepath.Join(dir, "asked"))
		if err != nil || len(asked) != tt.asked {
			t.Errorf("%s: curl was run %d times, not %d (%v)\n%s", name, len(asked), tt.asked, err, out)
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
			w.Header().Set("X-Clusterm-Problem", "unavailable")
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	cmd := exec.CommandContext(t.Context(), "sh", "handler/serf-handler.sh")
	cmd.Env = append(os.Environ(), "SERF_EVENT=member-failed", "CLUSTERM_URL="+s.URL)
	cmd.Stdin = strings.NewReader("m1\t10.0.0.1\tr\tNodeLabel=a,NodeSerial=1,NodeAddr=10.0.0.1\n")
	out, err := cmd.CombinedOutput()
	s.Close()

	if want := `{"monitor_event":{"name":"disappeared","nodes":[{"label":"a","serial":"1","addr":"10.0.0.1"}]}}`; err != nil ||
		!slices.Equal(bodies, []string{want, want, want}) {
		t.Errorf("%v: %s\n%s", err, bodies, out)
	}
}
