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

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/monitor/serf/serftest"
)

// TestEventHandlerRetries: if the manager refuses a request, the handler reports
// each node alone, once. If no manager answers, it retries.
func TestEventHandlerRetries(t *testing.T) {
	t.Parallel()

	script, err := os.ReadFile("handler/serf-handler.sh")
	errtest.None(t, err)

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
		first, answer string // to the first request, and to the later ones; empty: curl fails
		requests      int
		fails         bool
	}{
		"taken":              {taken, taken, 1, false},
		"refused":            {refused, refused, 4, false},
		"through a proxy":    {strings.ToLower(refused), strings.ToLower(refused), 4, false},
		"one is refused":     {refused, taken, 4, false},
		"a fault":            {fault, fault, 4, false},
		"unavailable":        {busy, busy, 5, true},
		"then taken":         {busy, taken, 2, false},
		"a gateway":          {gateway, gateway, 5, true},
		"another server":     {missing, missing, 5, true},
		"no answer":          {"", "", 5, true},
		"refused, then gone": {refused, "", 1 + 5, true},
	} {
		dir := t.TempDir()
		for program, text := range map[string]string{
			"curl": "cat >/dev/null\nanswer='" + tt.answer + "'\n" +
				"[ -e '" + dir + "/requests' ] || answer='" + tt.first + "'\n" +
				"echo >>'" + dir + "/requests'\nprintf %s \"$answer\"\n[ \"$answer\" ]\n",
			"sleep": "",
		} {
			// Hold off forks: a child would keep the file open for writing, and a file
			// that is open for writing cannot be executed (ETXTBSY).
			syscall.ForkLock.RLock()
			err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+text), 0o700)
			syscall.ForkLock.RUnlock()
			errtest.None(t, err)
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

		requests, err := os.ReadFile(filepath.Join(dir, "requests"))
		if err != nil || len(requests) != tt.requests {
			t.Errorf("%s: curl ran %d times, want %d (%v)\n%s", name, len(requests), tt.requests, err, out)
		}
	}
}

// TestLiveEventHandlerRetries: neither a broken connection nor an unavailable
// manager loses an event.
func TestLiveEventHandlerRetries(t *testing.T) {
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

	want := `{"monitor_event":{"name":"disappeared","nodes":[{"label":"a","serial":"1","addr":"10.0.0.1"}]}}`
	if err != nil || !slices.Equal(bodies, []string{want, want, want}) {
		t.Errorf("%v: %s\n%s", err, bodies, out)
	}
}
