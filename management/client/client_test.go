// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

func TestAddresses(t *testing.T) {
	for _, c := range []struct{ url, socket, base string }{
		{"http://127.0.0.1:9007", "", "http://127.0.0.1:9007"},
		{"http://localhost:9876/", "", "http://localhost:9876"},
		{"localhost:9876", "", "http://localhost:9876"},
		{"[::1]:9007", "", "http://[::1]:9007"},
		{"node1", "", "http://node1"},
		{"https://node1:9007/api/", "", "https://node1:9007/api"},
		{"unix:///run/c.sock", "/run/c.sock", ""},
		{"/run/c.sock", "/run/c.sock", ""},
		{"", "", ""},
	} {
		socket, base, err := parse(c.url)
		if err != nil || socket != c.socket || base != c.base {
			t.Errorf("%q: %q %q %v", c.url, socket, base, err)
		}
	}

	for _, bad := range []string{
		"ftp://x", "unix://", "unix:///", "unix://host/path",
		"http://", "http://u:p@x", "http://x?y=z", "http://x y", "://", "http://x#f",
	} {
		if _, err := New(Options{URL: bad}); inventory.KindOf(err) != inventory.KindInvalid ||
			!strings.Contains(err.Error(), "write https://") {
			t.Errorf("%q: %v", bad, err)
		}
	}

	if _, err := New(Options{URL: "http://x", Socket: "/y"}); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("both: %v", err)
	}

	c, err := New(Options{})
	if err != nil || c.Where() != api.DefaultSocket {
		t.Errorf("by default: %v %v", c, err)
	}
}

// TestEmptyQuery sends no question mark for parameters without a value.
func TestEmptyQuery(t *testing.T) {
	manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"items":[]}`)
	}))
	defer manager.Close()

	var uri string

	c, err := New(Options{URL: manager.URL, Observe: func(e Exchange) { uri = e.URI }})
	errtest.None(t, err)

	for _, tt := range []struct {
		filter NodeFilter
		want   string
	}{
		{NodeFilter{}, "/v1/nodes"},
		{NodeFilter{Names: []string{"a-1"}}, "/v1/nodes?name=a-1"},
	} {
		if _, err := c.Nodes(t.Context(), tt.filter); err != nil || uri != tt.want {
			t.Errorf("the request is %q (%v), want %q", uri, err, tt.want)
		}
	}
}

// TestManyNames asks for the nodes of many names in requests that a manager takes, and joins the answers.
func TestManyNames(t *testing.T) {
	asked, longest := 0, 0
	manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		longest = max(longest, len(r.RequestURI))

		list := api.List[api.Node]{Items: []api.Node{}, Revision: int64(100 - asked)}
		for _, name := range r.URL.Query()["name"] {
			list.Items = append(list.Items, api.Node{Name: name})
		}

		list.Total = len(list.Items)
		asked++
		_ = json.NewEncoder(w).Encode(list)
	}))
	defer manager.Close()

	c, err := New(Options{URL: manager.URL})
	errtest.None(t, err)

	names := make([]string, 5000)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%04d", strings.Repeat("n", 100), len(names)-i)
	}

	all, err := c.Nodes(t.Context(), NodeFilter{Names: append(names, names[7])})
	errtest.None(t, err)

	sorted := slices.IsSortedFunc(all.Items, func(a, b api.Node) int { return strings.Compare(a.Name, b.Name) })
	if len(all.Items) != 5000 || all.Total != 5000 || !sorted || all.Revision != int64(101-asked) || longest > 48<<10 {
		t.Errorf("%d of %d nodes, sorted %t, revision %d after %d requests of up to %d bytes",
			len(all.Items), all.Total, sorted, all.Revision, asked, longest)
	}
}

// TestUnreachable expects the problem and the remedy in errors of the connection.
func TestUnreachable(t *testing.T) {
	dir, err := os.MkdirTemp("", "cli")
	errtest.None(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	dead := filepath.Join(dir, "dead.sock")

	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	errtest.None(t, err)
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	const closed = "127.0.0.1:1" // another process may reuse a port that was just closed

	hangs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hangs.Close()

	breaks := httptest.NewServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
	)
	defer breaks.Close()

	other := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>hello") }),
	)
	defer other.Close()

	lost := httptest.NewServer(http.NotFoundHandler())
	defer lost.Close()

	for _, c := range []struct {
		name  string
		o     Options
		parts []string
	}{
		{
			"no socket", Options{Socket: filepath.Join(dir, "none.sock")},
			[]string{"does not exist", "none.sock", "systemctl status clusterm"},
		},
		{"dead socket", Options{Socket: dead}, []string{"refused the connection", "dead.sock", "systemctl start"}},
		{"closed port", Options{URL: closed}, []string{"refused the connection", closed, "is clusterm running"}},
		{
			"hangs", Options{URL: hangs.URL, Timeout: 50 * time.Millisecond},
			[]string{"did not answer in time", hangs.URL},
		},
		{"breaks", Options{URL: breaks.URL}, []string{"closed the connection"}},
		{"something else", Options{URL: other.URL}, []string{"is not clusterm", "200 OK", "<html>hello"}},
		{"something else without it", Options{URL: lost.URL}, []string{"is not clusterm", "404"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Patience = -1

			cl, err := New(c.o)
			errtest.None(t, err)
			_, err = cl.Nodes(context.Background(), NodeFilter{})

			_, logErr := cl.Log(context.Background(), "1", 0, true)
			for _, err := range []error{err, logErr} {
				if inventory.KindOf(err) != inventory.KindUnavailable {
					t.Fatalf("kind %q: %v", inventory.KindOf(err), err)
				}

				for _, part := range c.parts {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q does not contain %q", err, part)
					}
				}
			}
		})
	}

	c, _ := New(Options{URL: hangs.URL})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()

	if _, err := c.Nodes(ctx, NodeFilter{}); !errors.Is(err, context.Canceled) ||
		inventory.KindOf(err) == inventory.KindUnavailable {
		t.Errorf("cancelled by the caller: %v", err)
	}

	ctx, cancel = context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()

	if _, err := c.Nodes(ctx, NodeFilter{}); inventory.KindOf(err) != inventory.KindUnavailable ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's deadline: %v", err)
	}
}

func TestPermission(t *testing.T) {
	c, _ := New(Options{Socket: "/run/x.sock"})

	err := c.route.endpoints[0].explain(
		context.Background(),
		&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", os.ErrPermission)},
	)
	if inventory.KindOf(err) != inventory.KindUnavailable || !strings.Contains(err.Error(), "sudo") ||
		!strings.Contains(err.Error(), "/run/x.sock") {
		t.Error(err)
	}
}

// TestReconnects breaks every connection after a few bytes and expects the
// reader to receive all bytes once.
func TestReconnects(t *testing.T) {
	const text = `{"event":"ok","host":"a-1"}` + "\n" + `{"event":"failed","host":"b-1"}` + "\n" + `{"event":"stats"}`
	var requests []string

	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.URL.Path+"?"+r.URL.Query().Get("offset"))

		offset := 0
		for _, d := range r.URL.Query().Get("offset") {
			offset = offset*10 + int(d-'0')
		}

		w.Header().Set(api.HeaderJob, "7")

		rest := text[offset:]
		if len(rest) > 20 {
			_, _ = io.WriteString(w, rest[:20])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}

		_, _ = io.WriteString(w, rest)
	}))
	defer s.Close()

	c, err := New(Options{URL: s.URL})
	errtest.None(t, err)

	var hosts []string
	if err := c.Events(context.Background(), "active", 0, true, func(e api.Event) error {
		hosts = append(hosts, e.Event+e.Host)
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	if got := strings.Join(hosts, " "); got != "oka-1 failedb-1 stats" {
		t.Errorf("got %q", got)
	}

	if len(requests) < 4 || requests[0] != "/v1/jobs/active/events?0" || requests[1] != "/v1/jobs/7/events?20" {
		t.Errorf("requests: %q", requests)
	}

	stop := errors.New("enough")
	if err := c.Events(context.Background(), "1", 0, true, func(api.Event) error { return stop }); !errors.Is(
		err,
		stop,
	) {
		t.Errorf("each's error: %v", err)
	}
}

// TestGivesUp expects the last error after Options.Patience, and at once if the
// daemon refuses the request.
func TestGivesUp(t *testing.T) {
	answers := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answers++; answers == 1 {
			w.Header().Set(api.HeaderJob, "1")
			_, _ = io.WriteString(w, "x")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}

		w.Header().Set("Content-Type", api.TypeProblem)
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"type":"urn:clusterm:problem:not-found","status":404,"detail":"no such job"}`)
	}))

	c, err := New(Options{URL: s.URL, Patience: 30 * time.Second})
	errtest.None(t, err)
	log, err := c.Log(context.Background(), "1", 0, true)
	errtest.None(t, err)
	if _, err := io.ReadAll(log); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("a deleted job: %v", err)
	}

	if err := log.Close(); err != nil {
		t.Error(err)
	}

	s.Close()

	c, err = New(Options{URL: s.URL, Patience: 100 * time.Millisecond})
	errtest.None(t, err)
	if _, err := c.WaitJob(context.Background(), "1"); inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("a stopped daemon: %v", err)
	}
}

// TestNotRunning: an error of the connection has a cause and a remedy for an
// operator, and the reason of the daemon's last failure.
func TestNotRunning(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	file := filepath.Join(dir, "file")

	errtest.None(t, os.WriteFile(file, nil, 0o600))

	version := func(o Options) string {
		t.Helper()

		o.Patience = -1

		c, err := New(o)
		errtest.None(t, err)
		_, err = c.Version(t.Context())
		if inventory.KindOf(err) != inventory.KindUnavailable {
			t.Errorf("%v is %s", err, inventory.KindOf(err))
		}

		return err.Error()
	}

	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Socket: socket}, "clusterm is not running: its socket " + socket + " does not exist; systemctl"},
		{Options{Socket: file}, "clusterm is not running: its socket " + file + " refused the connection"},
		{Options{Socket: dir + "/" + strings.Repeat("long", 40)}, "is no socket of clusterm"},
		{Options{URL: "127.0.0.1:1"}, "http://127.0.0.1:1 refused the connection"},
		{Options{URL: "http://nowhere.invalid:9007"}, "the host name nowhere.invalid cannot be resolved"},
	} {
		if got := version(tt.o); !strings.Contains(got, tt.want) || strings.Contains(got, "dial") {
			t.Errorf("%+v: %s, want %s", tt.o, got, tt.want)
		}
	}

	failure := `{"time":"2026-03-01T10:00:00Z","message":"the configuration /x is wrong: line 2","remedy":"mend it"}`
	errtest.None(t, os.WriteFile(api.FailurePath(socket), []byte(failure), 0o600))

	got := version(Options{Socket: socket})
	if !strings.Contains(got, "clusterm is not running; it failed at 2026-03-01 ") ||
		!strings.HasSuffix(got, ": the configuration /x is wrong: line 2; mend it") {
		t.Error(got)
	}
}
