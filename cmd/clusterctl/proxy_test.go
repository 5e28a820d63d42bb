// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/contracttest"
)

// proxy connects one script with its daemon. It records the requests, checks them
// and their answers against openapi.yaml, and injects faults: an outage, canned
// answers, and requests without an answer.
type proxy struct {
	daemon    *testDaemon
	transport contracttest.Transport
	server    *http.Server // nil during an outage

	mu       sync.Mutex
	requests []string // since the last call of the requests command
	canned   []canned
	wrong    []string // violations of openapi.yaml
}

// canned is an answer in place of the daemon's.
type canned struct {
	request     *regexp.Regexp // matches METHOD URI BODY
	status      int            // 0: no answer until the client leaves
	contentType string
	body        []byte
}

func newProxy(d *testDaemon) *proxy {
	p := &proxy{daemon: d}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.socket())
	}
	p.transport = contracttest.Transport{Base: faults{p, &http.Transport{DialContext: dial}}, Report: p.violation}
	return p
}

func (p *proxy) socket() string { return filepath.Join(p.daemon.dir, "s") }

func (p *proxy) start() error {
	l, err := net.Listen("unix", p.socket())
	if err != nil {
		return err
	}

	handler := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "clusterm"}) },
		Transport:     p.transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}

	p.server = &http.Server{Handler: handler}
	go func(server *http.Server) { _ = server.Serve(l) }(p.server)

	return nil
}

// stop closes the socket and every connection, as the death of the daemon does.
func (p *proxy) stop() {
	if p.server != nil {
		_ = p.server.Close()
		p.server = nil
	}
}

func (p *proxy) violation(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
}

// faults records each request, and answers the canned ones.
type faults struct {
	proxy *proxy
	next  http.RoundTripper
}

// RoundTrip is called with a body that is in memory already.
func (f faults) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}

	line := strings.TrimSpace(r.Method + " " + r.URL.RequestURI() + " " + string(body))
	p := f.proxy
	p.mu.Lock()
	p.requests = append(p.requests, line)
	i := slices.IndexFunc(p.canned, func(c canned) bool { return c.request.MatchString(line) })

	var c canned
	if i >= 0 {
		c = p.canned[i]
	}

	p.mu.Unlock()

	switch {
	case i < 0:
		return f.next.RoundTrip(r)
	case c.status == 0:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}

	header := http.Header{}
	header.Set("Content-Type", c.contentType)
	header.Set(api.HeaderRevision, "108")
	header.Set(api.HeaderRequestID, r.Header.Get(api.HeaderRequestID))

	// openapi.yaml wants one of them, by the kind of the answer.
	if c.status == http.StatusAccepted {
		header.Set("Location", "/v1/jobs/77")
	} else {
		header.Set("ETag", `"108"`)
	}

	return &http.Response{
		StatusCode: c.status,
		Header:     header,
		Body:       io.NopCloser(bytes.NewReader(c.body)),
		Request:    r,
	}, nil
}

// report reports a node to the daemon, as an observer does.
func (p *proxy) report(state, name string, n int) error {
	label, serial, ok := strings.Cut(name, "-")
	if !ok {
		return fmt.Errorf("%q is not LABEL-SERIAL", name)
	}
	body := fmt.Sprintf(`{"Node-Label":%q,"Node-Serial":%q,"Node-Mgmt-Address":"10.0.0.%d"}`, label, serial, n)

	client := &http.Client{Transport: p.transport.Base.(faults).next}

	resp, err := client.Post("http://clusterm/monitor/"+state+"/"+name, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	_ = resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the daemon answered %s to the report of %s", resp.Status, name)
	}

	return nil
}

func proxyOf(ts *testscript.TestScript) *proxy { return ts.Value("proxy").(*proxy) }

// cmdDiscover is `discover NAME…`: it reports the nodes as discovered. The first
// one gets the address 10.0.0.1, the second one 10.0.0.2. NAME=7 gets 10.0.0.7.
func cmdDiscover(ts *testscript.TestScript, _ bool, args []string) {
	for i, arg := range args {
		at := i + 1

		name, addr, given := strings.Cut(arg, "=")
		if given {
			var err error
			at, err = strconv.Atoi(addr)
			ts.Check(err)
		}

		ts.Check(proxyOf(ts).report("discovered", name, at))
	}
}

// cmdDisappear is `disappear NAME ADDRESS`: it reports the node at the address
// 10.0.0.ADDRESS as disappeared.
func cmdDisappear(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(proxyOf(ts).report("disappeared", args[0], n))
}

// cmdHold is `hold`: from now on, the playbooks with a host slow-* wait.
func cmdHold(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(os.WriteFile(proxyOf(ts).daemon.gate(), nil, 0o600))
}

// cmdRelease is `release`: it ends the effect of hold.
func cmdRelease(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(os.Remove(proxyOf(ts).daemon.gate()))
}

// cmdOutage is `outage begin|end`.
func cmdOutage(ts *testscript.TestScript, _ bool, args []string) {
	switch p := proxyOf(ts); args[0] {
	case "begin":
		p.stop()
	case "end":
		ts.Check(p.start())
	default:
		ts.Fatalf("outage: unknown action %q", args[0])
	}
}

// cmdAnswer is `answer PATTERN [STATUS FILE]`: from now on, the proxy gives this
// answer to the requests that match, or none. A FILE named *.problem
// is an error. `answer` alone removes all such answers.
func cmdAnswer(ts *testscript.TestScript, _ bool, args []string) {
	p := proxyOf(ts)
	p.mu.Lock()
	defer p.mu.Unlock()

	if len(args) == 0 {
		p.canned = nil
		return
	}

	c := canned{request: regexp.MustCompile(args[0]), contentType: api.TypeJSON}
	if len(args) == 3 {
		status, err := strconv.Atoi(args[1])
		ts.Check(err)

		c.status, c.body = status, []byte(ts.ReadFile(args[2]))
		if filepath.Ext(args[2]) == ".problem" {
			c.contentType = api.TypeProblem
		}
	}

	p.canned = slices.Insert(p.canned, 0, c) // the latest one wins
}

// cmdRequests is `requests`: it writes the requests since the last call, except GET,
// to $WORK/requests.
func cmdRequests(ts *testscript.TestScript, _ bool, _ []string) {
	p := proxyOf(ts)
	p.mu.Lock()

	isGet := func(line string) bool { return strings.HasPrefix(line, "GET ") }
	changes := slices.DeleteFunc(p.requests, isGet)
	text := strings.Join(append(changes, ""), "\n")
	p.requests = nil
	p.mu.Unlock()
	ts.Check(os.WriteFile(ts.MkAbs("requests"), []byte(text), 0o644))
}

// cmdRequested is `requested PATTERN`: it waits for a request that matches, since
// the last call of requests.
func cmdRequested(ts *testscript.TestScript, _ bool, args []string) {
	p := proxyOf(ts)
	pattern := regexp.MustCompile(args[0])

	if err := poll(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.ContainsFunc(p.requests, pattern.MatchString)
	}); err != nil {
		ts.Fatalf("no request matches %s: %v", pattern, err)
	}
}
