// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/state"
)

// TestBadInput expects every refusal under /v1 to be a problem with a remedy, and
// no call of a use case.
func TestBadInput(t *testing.T) {
	t.Parallel()

	const job = `{"verb":"commission","nodes":["a-1"]}`
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		detail, remedy           string
	}{
		{
			name: "no path", method: "GET", path: "/v1/node/a-1", status: 404, detail: "/v1/node/a-1",
			remedy: "/v1/nodes/{name}",
		},
		{name: "no path at all", method: "GET", path: "/v1/what/is/this/then", status: 404, detail: "/v1/what"},
		{name: "no name", method: "GET", path: "/v1/nodes/", status: 404, detail: "/v1/nodes/"},
		{name: "method", method: "DELETE", path: "/v1/nodes", status: 405, detail: "DELETE", remedy: "use GET or HEAD"},
		{name: "unknown method", method: "BREW", path: "/v1/jobs", status: 405, remedy: "POST"},
		{name: "no body", method: "POST", path: "/v1/jobs", status: 400, detail: "no body"},
		{
			name: "not JSON", method: "POST", path: "/v1/jobs", body: "{\n\"verb\": commission}", status: 400,
			detail: "line 2, column 9",
		},
		{name: "cut off", method: "POST", path: "/v1/jobs", body: `{"verb":`, status: 400, detail: "unexpected end"},
		{
			name: "trailing garbage", method: "POST", path: "/v1/jobs", body: job + "\n{}", status: 400,
			detail: "line 2, column 1",
		},
		{
			name: "unknown field", method: "POST", path: "/v1/jobs", body: `{"verb":"commission","node":["a-1"]}`,
			status: 400, detail: `"node" here, at line 1, column 22`, remedy: `"nodes"`,
		},
		{
			name: "field in another case", method: "POST", path: "/v1/jobs", body: `{"Verb":"commission"}`, status: 400,
			detail: `"Verb"`, remedy: `"verb"`,
		},
		{
			name: "deep unknown field", method: "PATCH", path: "/v1/nodes/a-1",
			body: `{"connection":{"user":"x","password":"y"}}`, status: 400, detail: `"connection.password"`,
			remedy: "key_file",
		},
		{
			name: "field twice", method: "POST", path: "/v1/jobs", body: `{"verb":"commission","verb":"clear"}`,
			status: 400, detail: `"verb" is given twice`,
		},
		{
			name: "variable twice", method: "POST", path: "/v1/jobs",
			body: `{"verb":"commission","extra_vars":{"a":{"b":1,"b":2}}}`, status: 400,
			detail: `"extra_vars.a.b" is given twice`,
		},
		{
			name: "not a list", method: "POST", path: "/v1/jobs", body: `{"verb":"commission","nodes":"a-1"}`,
			status: 400, detail: "nodes has to be a list, not a string, at line 1, column 30",
		},
		{
			name: "not a name", method: "POST", path: "/v1/jobs", body: `{"verb":"commission","nodes":["a-1",7]}`,
			status: 400, detail: "nodes[1] has to be a string, not a number",
		},
		{
			name: "null", method: "POST", path: "/v1/jobs", body: `{"verb":null}`, status: 400,
			detail: "verb has to be a string, not null",
		},
		{
			name: "a list for a body", method: "POST", path: "/v1/jobs", body: `[]`, status: 400,
			detail: "the body has to be an object, not a list",
		},
		{name: "null for a body", method: "PUT", path: "/v1/vars/global", body: `null`, status: 400, detail: "null"},
		{
			name: "duration", method: "POST", path: "/v1/jobs", body: `{"verb":"commission","timeout":"fast"}`,
			status: 400, detail: `"fast"`, remedy: "90s",
		},
		{
			name: "duration as a number", method: "POST", path: "/v1/jobs", body: `{"verb":"commission","timeout":90}`,
			status: 400, detail: "timeout has to be a string",
		},
		{
			name: "port", method: "PATCH", path: "/v1/nodes/a-1", body: `{"connection":{"port":22.5}}`, status: 400,
			detail: "port",
		},
		{
			name: "extra_vars", method: "POST", path: "/v1/jobs", body: `{"verb":"commission","extra_vars":7}`,
			status: 400, detail: "extra_vars",
		},
		{
			name: "extra_vars in text", method: "POST", path: "/v1/jobs",
			body: `{"verb":"commission","extra_vars":"[1]"}`, status: 400, detail: "extra_vars",
		},
		{
			name: "not UTF-8", method: "POST", path: "/v1/jobs", body: "{\"verb\":\"\xff\"}", status: 400,
			detail: "UTF-8 text, at line 1, column 10",
		},
		{
			name: "deep", method: "PUT", path: "/v1/vars/global",
			body: `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, status: 400, detail: "nested",
		},
		{
			name: "vars are no object", method: "PUT", path: "/v1/vars/global", body: `[1]`, status: 400,
			detail: "object",
		},
		{
			name: "content type", method: "POST", path: "/v1/jobs", body: job,
			headers: []string{"Content-Type", "text/plain"}, status: 415, detail: "text/plain",
			remedy: "application/json",
		},
		{
			name: "charset", method: "POST", path: "/v1/jobs", body: job,
			headers: []string{"Content-Type", "application/json; charset=utf-16"}, status: 415, detail: "utf-16",
		},
		{
			name: "encoding", method: "POST", path: "/v1/jobs", body: job,
			headers: []string{"Content-Encoding", "gzip"}, status: 415, detail: "gzip",
		},
		{
			name: "too large", method: "POST", path: "/v1/jobs", body: `{"verb":"` + strings.Repeat("x", 1<<20) + `"}`,
			status: 413, detail: "1048576", remedy: "limit",
		},
		{
			name: "a body for a cancel", method: "POST", path: "/v1/jobs/1/cancel", body: `{"force":true}`, status: 400,
			detail: `"force"`,
		},
		{
			name: "query", method: "GET", path: "/v1/nodes?status=Allocated&grup=x", status: 400, detail: `"grup"`,
			remedy: "group",
		},
		{
			name: "query of a change", method: "POST", path: "/v1/jobs?dry=1", body: job, status: 400, detail: `"dry"`,
			remedy: "there are none",
		},
		{name: "query that does not parse", method: "GET", path: "/v1/nodes?a=%zz", status: 400, detail: "query"},
		{
			name: "status", method: "GET", path: "/v1/nodes?status=Broken", status: 400, detail: "Broken",
			remedy: "Quarantined",
		},
		{
			name: "state", method: "GET", path: "/v1/nodes?state=Gone", status: 400, detail: "Gone",
			remedy: "Disappeared",
		},
		{
			name: "group", method: "GET", path: "/v1/nodes?group=nosuch", status: 404, detail: "nosuch",
			remedy: "service-worker",
		},
		{
			name: "selector", method: "GET", path: "/v1/nodes?selector=" + url.QueryEscape("rack in (r1"), status: 400,
			detail: "rack in (r1", remedy: "write it like",
		},
		{
			name: "status in a selector", method: "GET", path: "/v1/nodes?selector=status%3DAlocated", status: 400,
			detail: "Alocated", remedy: "Allocated",
		},
		{
			name: "group in a selector", method: "GET", path: "/v1/nodes?selector=group%3Dnosuch", status: 400,
			detail: "nosuch", remedy: "the groups are service-master",
		},
		{name: "two selectors", method: "GET", path: "/v1/nodes?selector=a&selector=b", status: 400, detail: "2 times"},
		{
			name: "a label that is no string", method: "PATCH", path: "/v1/nodes/a-1", body: `{"labels":{"rack":1}}`,
			status: 400, detail: "labels.rack has to be a string",
		},
		{
			name: "status of jobs", method: "GET", path: "/v1/jobs?status=Done", status: 400, detail: "Done",
			remedy: "Complete",
		},
		{name: "limit", method: "GET", path: "/v1/jobs?limit=-1", status: 400, detail: "limit"},
		{name: "limit twice", method: "GET", path: "/v1/jobs?limit=1&limit=2", status: 400, detail: "2 times"},
		{name: "empty limit", method: "GET", path: "/v1/jobs?limit=", status: 400, detail: "empty"},
		{name: "offset", method: "GET", path: "/v1/jobs/1/log?offset=x", status: 400, detail: "offset"},
		{name: "follow", method: "GET", path: "/v1/jobs/1/log?follow=maybe", status: 400, detail: "follow"},
		{name: "wait", method: "GET", path: "/v1/jobs/1?wait=1h", status: 400, detail: "wait", remedy: "1m"},
		{name: "required", method: "GET", path: "/v1/auth/can-i?verb=get", status: 400, remedy: "node="},
		{name: "revision", method: "GET", path: "/v1/nodes?min_revision=new", status: 400, detail: "min_revision"},
		{
			name: "consistency", method: "GET", path: "/v1/groups?consistency=strong", status: 400, detail: "strong",
			remedy: "linearizable",
		},
		{
			name: "consistency of health", method: "GET", path: "/v1/health?consistency=linearizable", status: 400,
			detail: "consistency",
		},
		{name: "no job", method: "GET", path: "/v1/jobs/77/events", status: 404, detail: "77"},
		{name: "no node", method: "GET", path: "/v1/nodes/zz-1", status: 404, detail: "zz-1"},
		{name: "no node for history", method: "GET", path: "/v1/nodes/zz-1/history", status: 404, detail: "zz-1"},
		{name: "no group for vars", method: "GET", path: "/v1/vars/groups/nosuch", status: 404, detail: "nosuch"},
		{name: "no job to cancel", method: "POST", path: "/v1/jobs/active/cancel", status: 404, detail: "running"},
		{
			name: "config", method: "PATCH", path: "/v1/config", body: `{"job.limit":1}`, status: 400,
			detail: "job.limit",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			res, text := s.exchange(t, c.method, c.path, c.body, c.headers...)

			var p api.Problem
			if err := json.Unmarshal(
				[]byte(text),
				&p,
			); err != nil ||
				res.Header.Get("Content-Type") != api.TypeProblem {
				t.Fatalf("not a problem: %d %s", res.StatusCode, text)
			}

			if res.StatusCode != c.status || p.Status != c.status || !strings.Contains(p.Detail, c.detail) ||
				!strings.Contains(p.Remedy, c.remedy) {
				t.Errorf("got %s", text)
			}

			if p.Title == "" || !strings.HasPrefix(p.Type, api.ProblemBase) {
				t.Errorf("incomplete: %s", text)
			}

			if c.status == 405 && res.Header.Get("Allow") == "" {
				t.Error("no Allow header")
			}

			if n := s.manager.count(); n > 0 {
				t.Errorf("the manager was called: %s", s.manager.last())
			}
		})
	}
}

// TestGoodInput covers unusual requests that are accepted.
func TestGoodInput(t *testing.T) {
	s := serve(t)
	for _, c := range []struct {
		method, path, body string
		headers            []string
	}{
		{"POST", "/v1/jobs", `{"verb":"commission","nodes":["a-1"],"extra_vars":"x: 1\ny: [2]"}`, nil},
		{
			"POST", "/v1/jobs", `{"verb":"commission","nodes":["a-1"],"extra_vars":null}`,
			[]string{"Content-Type", "application/json;charset=utf-8"},
		},
		{"PATCH", "/v1/vars/global", `{"a":null,"b":"<&>"}`, []string{"Content-Type", "application/merge-patch+json"}},
		{"PATCH", "/v1/nodes/a-1", `{"connection":null,"forget_host_key":true}`, nil},
		{"POST", "/v1/jobs/1/cancel", ` {} `, nil},
		{"GET", "/v1/nodes?name=a-1&name=a-1&state=discovered", "", []string{"Content-Type", "what/ever"}},
		{"HEAD", "/v1/nodes", "", nil},
	} {
		if res, text := s.exchange(t, c.method, c.path, c.body, c.headers...); res.StatusCode > 299 {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, res.StatusCode, text)
		}
	}

	if got := state.VarsOf(s.manager.View(), state.ScopeGlobal)["b"]; got != "<&>" {
		t.Errorf("b is %q", got)
	}

	s.manager.write("1", job.StreamText, "12345")

	res, _ := s.exchange(t, "HEAD", "/v1/jobs/1/log", "")
	if res.Header.Get(api.HeaderNextOffset) != "5" || res.Header.Get(api.HeaderJob) != "1" {
		t.Errorf("HEAD of a log: %v", res.Header)
	}
	res, text := s.exchange(t, "GET", "/v1/jobs/last/log?offset=3", "")
	if text != "45" || res.Trailer.Get(api.HeaderNextOffset) != "5" || res.Header.Get("Content-Type") != api.TypeText {
		t.Errorf("a log: %q %v", text, res.Trailer)
	}
	res, _ = s.exchange(t, "POST", "/v1/jobs", `{"verb":"commission","nodes":["a-1"]}`)
	if res.StatusCode != 202 || res.Header.Get("Location") != "/v1/jobs/3" || res.Header.Get(api.HeaderRevision) == "" {
		t.Errorf("submit: %d %v", res.StatusCode, res.Header)
	}

	_, text = s.exchange(t, "GET", "/metrics", "")
	if !strings.Contains(text, `clusterm_http_requests_total{code="202",method="POST",route="/v1/jobs"}`) {
		t.Errorf("metrics: %s", text)
	}

	s.SetBodyLimit(10)

	if status, _ := s.request(t, "POST", "/v1/jobs", `{"verb":"commission"}`); status != 413 {
		t.Errorf("a new limit: %d", status)
	}
}

// TestChunkedBodyOverTheLimit sends a body without a Content-Length.
func TestChunkedBodyOverTheLimit(t *testing.T) {
	t.Parallel()
	s := serve(t)

	c := must[net.Conn](t)(net.Dial("unix", s.socket))
	defer func() { _ = c.Close() }()

	go func() {
		_, _ = io.WriteString(c, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")

		piece := "10000\r\n" + strings.Repeat(" ", 0x10000) + "\r\n"
		for range 40 {
			if _, err := io.WriteString(c, piece); err != nil {
				return
			}
		}
	}()

	head := make([]byte, 12)
	if _, err := io.ReadFull(c, head); err != nil || string(head) != "HTTP/1.1 413" {
		t.Errorf("%q %v", head, err)
	}
}

// TestBrowsers expects requests to be refused that another site made a browser send.
func TestBrowsers(t *testing.T) {
	s := serve(t)

	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
	for _, c := range []struct {
		headers []string
		ok      bool
	}{
		{nil, true},
		{[]string{"Host", "localhost"}, true},
		{[]string{"Host", "LOCALHOST:" + port}, true},
		{[]string{"Host", "127.9.9.9:80"}, true},
		{[]string{"Host", "[::1]:80"}, true},
		{[]string{"Host", "evil.example"}, false},
		{[]string{"Host", "127.0.0.1.evil.example"}, false},
		// The old client addresses 0.0.0.0, and so could a page.
		{[]string{"Host", "0.0.0.0:9007"}, true},
		{[]string{"Host", "[::]:9007"}, true},
		{[]string{"Host", "0.0.0.0:9007", "User-Agent", "curl/8.5.0"}, true},
		{[]string{"Host", "0.0.0.0:9007", "Origin", "http://0.0.0.0:9007"}, false},
		{[]string{"Host", "0.0.0.0:9007", "Origin", "http://evil.example"}, false},
		{[]string{"Host", "0.0.0.0:9007", "Sec-Fetch-Mode", "no-cors"}, false},
		{[]string{"Host", "0.0.0.0:9007", "Referer", "http://evil.example/"}, false},
		{[]string{"Host", "0.0.0.0:9007", "User-Agent", "Mozilla/5.0 (X11; Linux x86_64)"}, false},
		{[]string{"Host", "0.0.0.0.evil.example"}, false},
		{[]string{"Host", "10.0.0.1"}, false},
		{[]string{"Origin", "http://evil.example"}, false},
		{[]string{"Origin", "null"}, false},
		{[]string{"Origin", s.url}, true},
		{[]string{"Origin", "http://127.0.0.1:1"}, false},
		{[]string{"Sec-Fetch-Site", "cross-site"}, false},
		{[]string{"Sec-Fetch-Site", "same-site"}, false},
		{[]string{"Sec-Fetch-Site", "none"}, true},
	} {
		for _, path := range []string{"/v1/nodes", "/info/nodes", "/metrics", "/v1/nosuch"} {
			status, text := s.request(t, "GET", path, "", c.headers...)
			if refused := status == 403; refused == c.ok {
				t.Errorf("%s %v: %d %s", path, c.headers, status, text)
			}
		}
	}
}

// TestActor expects only root to name another actor, and only over the socket.
func TestActor(t *testing.T) {
	s := serve(t)
	ctx := testCtx(t)
	named := func(name string) func(*client.Options) { return func(o *client.Options) { o.Actor = name } }
	submit := func(c *client.Client) (string, error) {
		_, err := c.Submit(ctx, api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
		_, who, _ := strings.Cut(s.manager.last(), "actor=")
		return who, err
	}

	who := must[string](t)(submit(s.client(t, named("alice"))))
	if os.Getuid() == 0 && who != "alice" || os.Getuid() != 0 && who == "alice" {
		t.Errorf("over the socket: %q", who)
	}

	if who := must[string](
		t,
	)(
		submit(s.client(t, overTCP(s), named("alice"))),
	); who != "http:127.0.0.1" {
		t.Errorf("over TCP: %q", who)
	}

	if os.Getuid() == 0 {
		for _, name := range []string{"al ice", strings.Repeat("a", 65), "al\x01ice"} {
			if _, err := submit(s.client(t, named(name))); err == nil {
				t.Errorf("%q was accepted", name)
			}
		}
	}
}

// TestListen covers free, taken, stale and invalid sockets and ports.
func TestListen(t *testing.T) {
	dir := shortTemp(t)
	path := filepath.Join(dir, "run", "s.sock")
	refused := func(what string, want inventory.Kind, l net.Listener, err error) {
		t.Helper()

		if err == nil {
			_ = l.Close()
		}

		if inventory.KindOf(err) != want {
			t.Errorf("%s: %v", what, err)
		}
	}

	l := must[net.Listener](t)(server.ListenUnix(path))
	if info := must[os.FileInfo](t)(os.Stat(path)); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s", info.Mode())
	}

	if info := must[os.FileInfo](t)(os.Stat(filepath.Dir(path))); info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the folder: %s", info.Mode())
	}

	if l.Addr().String() != path {
		t.Errorf("address %s", l.Addr())
	}

	taken, err := server.ListenUnix(path)
	refused("taken", inventory.KindRefused, taken, err)
	_ = l.Close()

	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("the socket was left behind")
	}

	stale := must[*net.UnixListener](t)(net.ListenUnix("unix", &net.UnixAddr{Name: path}))
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	first := must[net.Listener](t)(server.ListenUnix(path))
	_ = os.Remove(path)
	second := must[net.Listener](t)(server.ListenUnix(path))
	_ = first.Close()

	if _, err := os.Stat(path); err != nil {
		t.Error("closing removed the socket of another process")
	}

	_ = second.Close()

	if left := must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(path))); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}

	file, err := server.ListenUnix(path)
	refused("a file", inventory.KindRefused, file, err)
	long, err := server.ListenUnix(filepath.Join(dir, strings.Repeat("x", 120)))
	refused("long", inventory.KindInvalid, long, err)

	port := must[net.Listener](t)(server.ListenLoopback("127.0.0.1:0"))
	defer func() { _ = port.Close() }()
	taken, err = server.ListenLoopback(port.Addr().String())
	refused("taken port", inventory.KindRefused, taken, err)

	for _, addr := range []string{"0.0.0.0:0", ":0", "10.1.2.3:0", "127.0.0.1", "example.com:0", "[::]:0", ""} {
		open, err := server.ListenLoopback(addr)
		refused(addr, inventory.KindInvalid, open, err)
	}
}

// TestServeFails expects Serve to return the error of a broken listener.
func TestServeFails(t *testing.T) {
	s := server.New(newFakeManager().options(newFakeSettings()))
	a := must[net.Listener](t)(server.ListenLoopback("127.0.0.1:0"))
	b := must[net.Listener](t)(server.ListenLoopback("127.0.0.1:0"))

	_ = a.Close()
	if err := s.Serve(a, b); err == nil {
		t.Error("no error")
	}

	if c, err := net.Dial("tcp", b.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("the other listener is still open")
	}
}

// TestMethods expects every path to list its methods, to serve HEAD with GET, and
// to refuse other methods.
func TestMethods(t *testing.T) {
	t.Parallel()
	s := serve(t)

	served := map[string][]string{}
	for _, route := range s.Routes() {
		served[route.Path] = append(served[route.Path], route.Method)
		if route.Method == "GET" {
			served[route.Path] = append(served[route.Path], "HEAD")
		}
	}

	for path, methods := range served {
		asked := strings.NewReplacer("{name}", "a-1", "{id}", "1", "{job}", "last", "{node}", "a-1", "{event}",
			"discovered").
			Replace(path)
		allow := strings.Join(append(methods, "OPTIONS"), ", ")

		res, err := http.DefaultClient.Do(mustRequest(http.NewRequest("OPTIONS", s.url+asked, nil)))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 204 || res.Header.Get("Allow") != allow {
			t.Errorf("OPTIONS %s: %d %q, not %q", asked, res.StatusCode, res.Header.Get("Allow"), allow)
		}

		res, err = http.DefaultClient.Do(mustRequest(http.NewRequest("TRACE", s.url+asked, nil)))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 405 || res.Header.Get("Allow") != allow {
			t.Errorf("TRACE %s: %d %q, not %q", asked, res.StatusCode, res.Header.Get("Allow"), allow)
		}
	}

	for _, path := range []string{"/v1/nodes", "/v1/nodes/a-1", "/v1/config", "/v1/version"} {
		get, text := s.exchange(t, "GET", path, "")

		head, nothing := s.exchange(t, "HEAD", path, "")
		if nothing != "" || head.StatusCode != 200 || text == "" ||
			head.Header.Get("Content-Length") != get.Header.Get("Content-Length") ||
			head.Header.Get("ETag") != get.Header.Get("ETag") {
			t.Errorf("HEAD %s: %d %v, GET has %v", path, head.StatusCode, head.Header, get.Header)
		}
	}

	if n := s.manager.count(); n > 0 {
		t.Errorf("the manager was called: %s", s.manager.last())
	}
}

func mustRequest[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// TestCancelledByYou: who cancelled a job is told so, anybody else the name.
func TestCancelledByYou(t *testing.T) {
	s := serve(t)
	s.manager.change(func(v *state.View) {
		v.SetJobs([]*job.Job{{ID: "1", Verb: inventory.VerbMaintenance, Status: job.Queued}}...)
	})

	overSocket := s.client(t)
	overPlain := must[*client.Client](t)(client.New(client.Options{URL: s.url, Patience: patience}))
	must[api.Job](t)(overSocket.Cancel(testCtx(t), "1"))

	for reader, c := range map[string]*client.Client{"you": overSocket, "the name": overPlain} {
		own := reader == "you"
		j := must[api.Job](t)(c.Job(testCtx(t), "1"))
		why := must[api.JobExplanation](t)(c.ExplainJob(testCtx(t), "1"))

		expect(t, reader, []bool{
			j.CancelledByYou, why.Job.CancelledByYou, strings.Contains(why.Summary, "you cancelled it"),
		}, []bool{own, own, own})
	}
}
