// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration/image/installer/report"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/facts"
)

const testToken = "0123456789abcdef"

// then answers with what the machine does.
func then(what string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"then": %q, "later": 1}`, what) }
}

// fails answers with a status.
func fails(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// lost hangs up without an answer.
func lost(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// fakeManager answers each request by the next handler, and all after those by the last one.
type fakeManager struct {
	*reporter
	console strings.Builder

	mu       sync.Mutex
	received []report.Message
}

func serve(t *testing.T, answers ...http.HandlerFunc) *fakeManager {
	t.Helper()

	m := &fakeManager{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var got report.Message
		if err := json.NewDecoder(io.LimitReader(r.Body, report.MaxMessage)).Decode(&got); err != nil {
			t.Errorf("not a message: %v", err)
		}
		if by := r.Header.Get("Authorization"); by != "Bearer "+testToken ||
			r.Method != http.MethodPost || r.URL.Path != "/boot" {
			t.Errorf("%s %s by %q", r.Method, r.URL, by)
		}

		m.mu.Lock()
		answer := answers[min(len(m.received), len(answers)-1)]
		m.received = append(m.received, got)
		m.mu.Unlock()

		answer(w, r)
	}))
	t.Cleanup(server.Close)

	m.reporter = newReporter(Report{URL: server.URL + "/boot", Token: testToken}, &m.console)
	m.delays = &backoff.ZeroBackOff{}

	return m
}

// stages returns the stages of the messages so far.
func (m *fakeManager) stages() string {
	m.mu.Lock()
	defer m.mu.Unlock()

	var stages []string
	for _, r := range m.received {
		stages = append(stages, r.Stage)
	}

	return strings.Join(stages, " ")
}

func collectTest(context.Context, string) facts.Facts {
	return facts.Facts{Schema: facts.Schema, Arch: "x86_64", Disks: []facts.Disk{{Name: "vda"}}}
}

// TestInspectReports expects the messages, with their content, and that the facts are at the console as well.
func TestInspectReports(t *testing.T) {
	t.Parallel()

	m := serve(t, then(report.Continue), then(report.Off))
	_, what, err := inspect(&m.console, collectTest, m.reporter, []string{"no module"})
	errtest.None(t, err)

	if got := m.stages(); what != report.Off || got != "started facts" {
		t.Fatalf("%q after %q", what, got)
	}
	if f := m.received[1].Facts; f == nil || len(f.Disks) != 1 || m.received[0].Facts != nil {
		t.Errorf("not the facts: %+v", m.received)
	}
	for _, r := range m.received {
		if !slices.Equal(r.Problems, []string{"no module"}) {
			t.Errorf("not the problems: %+v", r)
		}
	}
	if text := m.console.String(); strings.Count(text, FactsEnd) != 1 || strings.Contains(text, testToken) {
		t.Errorf("the console:\n%s", text)
	}
}

// TestInspectObeys expects that the environment does nothing more after another answer than continue.
func TestInspectObeys(t *testing.T) {
	t.Parallel()

	for _, what := range []string{report.Wait, report.Off, report.Restart} {
		m := serve(t, then(what))

		_, got, err := inspect(&m.console, collectTest, m.reporter, nil)
		if err != nil || got != what || m.stages() != report.Started {
			t.Errorf("%s: %q after %q (%v)", what, got, m.stages(), err)
		}
	}
}

// TestInspectWithout prints the facts, and asks nobody.
func TestInspectWithout(t *testing.T) {
	t.Parallel()

	var console strings.Builder
	_, what, err := inspect(&console, collectTest, nil, []string{"no module"})

	if err != nil || what != report.Continue || !strings.Contains(console.String(), `"vda"`) {
		t.Errorf("%q, %v:\n%s", what, err, console.String())
	}
}

// TestInspectProblem reports why there are no facts, and keeps all messages within their bound.
func TestInspectProblem(t *testing.T) {
	t.Parallel()

	m := serve(t, then(report.Continue))
	many := slices.Repeat([]string{strings.Repeat("no module ", 1<<10)}, 1<<10)
	tooMany := func(context.Context, string) facts.Facts {
		return facts.Facts{Schema: facts.Schema, Disks: make([]facts.Disk, 1<<14)}
	}

	_, what, err := inspect(&m.console, tooMany, m.reporter, many)
	if err != nil || what != report.Continue || m.stages() != "started problem" {
		t.Fatalf("%q after %q (%v)", what, m.stages(), err)
	}
	if got := m.received[1]; got.Facts != nil || !strings.Contains(got.Message, "disks") {
		t.Errorf("not the problem: %q, %v", got.Message, got.Facts)
	}
}

// TestSendAgain expects that whatever is no answer is sent again as it was, and that facts are not lost with an answer.
func TestSendAgain(t *testing.T) {
	t.Parallel()

	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the redirect was followed, with the token %q", r.Header.Get("Authorization"))
	}))
	t.Cleanup(elsewhere.Close)

	huge := `{"then": "off"}` + strings.Repeat(" ", report.MaxAnswer)

	for name, bad := range map[string]http.HandlerFunc{
		"is lost":           lost,
		"is 500":            fails(http.StatusInternalServerError),
		"is 503":            fails(http.StatusServiceUnavailable),
		"is 429":            fails(http.StatusTooManyRequests),
		"is 204":            fails(http.StatusNoContent),
		"is empty":          fails(http.StatusOK),
		"is huge":           func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, huge) },
		"has a huge header": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", huge) },
		"is no JSON":        func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>off") },
		"is nothing to do":  then("erase"),
		"has no then":       then(""),
		"breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			_, _ = io.WriteString(w, `{"then": "off"}`)
		},
		"is a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			m := serve(t, bad, bad, then(report.Continue), bad, bad, then(report.Wait))

			_, what, err := inspect(&m.console, collectTest, m.reporter, nil)
			if err != nil || what != report.Wait || m.stages() != "started started started facts facts facts" {
				t.Fatalf("%q after %q (%v)", what, m.stages(), err)
			}
			for _, r := range m.received[3:] {
				if r.Facts == nil || len(r.Facts.Disks) != 1 {
					t.Errorf("not the facts: %+v", r)
				}
			}
			if text := m.console.String(); !strings.Contains(text, "Cannot report to the manager yet: ") {
				t.Errorf("the console does not say why it takes so long:\n%s", text)
			}
		})
	}
}

// TestSendStalls expects that a manager which does not answer, or not to the end, is asked again.
func TestSendStalls(t *testing.T) {
	t.Parallel()

	stalls := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	begins := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"then": `)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}

	m := serve(t, stalls, begins, then(report.Off))
	m.within = 200 * time.Millisecond // a later try may be cut off as well, and is taken again

	what, err := m.send(report.Message{Stage: report.Started})
	if err != nil || what != report.Off {
		t.Errorf("%q (%v)", what, err)
	}
}

// TestSendFinal expects one try if the manager does not want the machine any more, with other facts or without.
func TestSendFinal(t *testing.T) {
	t.Parallel()

	for _, status := range []int{401, 403, 404, 409, 410} {
		m := serve(t, fails(status), then(report.Off))

		_, what, err := inspect(&m.console, collectTest, m.reporter, nil)
		if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), fmt.Sprint(status)) ||
			what != "" || m.stages() != report.Started {
			t.Errorf("%d: %q after %q (%v)", status, what, m.stages(), err)
		}
	}
}

// transport is how the requests of a test are answered without a socket.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSendEnds expects an end of the tries, of each and of all, and that their pace slows down.
func TestSendEnds(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		try         transport
		least, most int // tries
	}{
		"refused": {func(*http.Request) (*http.Response, error) { return nil, unix.ECONNREFUSED }, 50, 80},
		"stalls": {func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, 20, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			synctest.Test(t, func(t *testing.T) {
				var console strings.Builder
				var tries int

				r := newReporter(Report{URL: "http://10.9.1.1/boot", Token: testToken}, &console)
				r.client.Transport = transport(func(request *http.Request) (*http.Response, error) {
					tries++
					return c.try(request)
				})

				begun := time.Now()
				_, err := r.send(report.Message{Stage: report.Started})

				if took := time.Since(begun); took > patience || took < patience-time.Minute {
					t.Errorf("gave up after %s", took)
				}
				if tries < c.least || tries > c.most {
					t.Errorf("%d tries", tries)
				}
				if inventory.KindOf(err) != inventory.KindUnavailable || strings.Contains(console.String(), testToken) {
					t.Errorf("%v, and at the console:\n%s", err, console.String())
				}
				if got := strings.Count(console.String(), "\n"); got != 1 {
					t.Errorf("%d lines at the console for one cause:\n%s", got, console.String())
				}
			})
		})
	}
}

// TestReporterAsksNoProxy expects that no parameter of the kernel sends the token elsewhere.
func TestReporterAsksNoProxy(t *testing.T) {
	t.Parallel()

	r := newReporter(Report{}, io.Discard)
	if transport, ok := r.client.Transport.(*http.Transport); !ok || transport.Proxy != nil {
		t.Errorf("%+v", r.client.Transport)
	}
}

// TestEndingOf goes over the grid.
func TestEndingOf(t *testing.T) {
	t.Parallel()

	const (
		powerOff = unix.LINUX_REBOOT_CMD_POWER_OFF
		restart  = unix.LINUX_REBOOT_CMD_RESTART
	)

	for _, off := range []bool{false, true} {
		for _, ok := range []bool{false, true} {
			for then, want := range map[string]ending{
				report.Off:     {command: powerOff},
				report.Restart: {command: restart},
				report.Wait:    {wait: true},
				"":             {}, // the manager did not answer
				report.Continue: map[[2]bool]ending{
					{true, false}: {command: powerOff}, {true, true}: {command: powerOff},
					{false, true}: {wait: true}, {false, false}: {},
				}[[2]bool{off, ok}],
			} {
				got := endingOf(then, off, ok)
				if got.command != want.command || got.wait != want.wait ||
					(got.text == "") != (want == ending{}) {
					t.Errorf("%q, off %t, ok %t: %+v", then, off, ok, got)
				}
			}
		}
	}
}
