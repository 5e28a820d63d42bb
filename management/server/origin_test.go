// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server"
)

// ask sends a request over plain HTTP with headers, name after name and value.
func (s *site) ask(t *testing.T, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()

	req, err := http.NewRequestWithContext(testCtx(t), method, s.url+path, strings.NewReader(body))
	errtest.None(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header[headers[i]] = append(req.Header[headers[i]], headers[i+1])
	}

	res, err := http.DefaultClient.Do(req)
	errtest.None(t, err)
	defer res.Body.Close()

	text, err := io.ReadAll(res.Body)
	errtest.None(t, err)
	return res, string(text)
}

// TestRequestID expects an id in every answer, problem and line of the log: that of
// the client if it is well formed, else a new one.
func TestRequestID(t *testing.T) {
	t.Parallel()
	s := serve(t)

	for _, sent := range []string{
		"3f2504e0-4f89-11d3-9a0c-0305e82c3301", "a", "build.42_x", strings.Repeat("x", api.MaxRequestID),
	} {
		if res, _ := s.ask(t, "GET", "/v1/nodes", "", api.HeaderRequestID, sent); res.Header.Get(
			api.HeaderRequestID,
		) != sent {
			t.Errorf("%q became %q", sent, res.Header.Get(api.HeaderRequestID))
		}
	}

	seen := map[string]bool{}

	fresh := func(what string, res *http.Response) {
		t.Helper()

		ids := res.Header.Values(api.HeaderRequestID)
		if len(ids) != 1 || !api.IsRequestID(ids[0]) || seen[ids[0]] {
			t.Errorf("%s: the ids are %q", what, ids)
			return
		}

		seen[ids[0]] = true
	}

	for _, sent := range []string{
		"", "-x", ".x", "a b", "a;b", "$(id)", "ü", "a\tb", strings.Repeat("x", api.MaxRequestID+1),
	} {
		res, _ := s.ask(t, "GET", "/v1/nodes", "", api.HeaderRequestID, sent)
		fresh("after "+sent, res)
	}

	res, _ := s.ask(t, "GET", "/v1/nodes", "", api.HeaderRequestID, "one", api.HeaderRequestID, "two")
	fresh("after two ids", res)

	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/v1/nodes", "", 200},
		{"GET", "/v1/nodes/nope-1", "", 404},
		{"GET", "/v1/nowhere", "", 404},
		{"GET", "/nowhere", "", 404},
		{"DELETE", "/v1/nodes", "", 405},
		{"OPTIONS", "/v1/nodes", "", 204},
		{"GET", "/info/nodes", "", 200},
		{"GET", "/info/node/nope-1", "", 500},
		{"POST", "/v1/jobs", "{", 400},
		{"POST", "/commission/nodes", "{", 500},
		{"GET", api.PathMetrics, "", 200},
	} {
		s.log.Reset()

		res, text := s.ask(t, c.method, c.path, c.body)
		fresh(c.method+" "+c.path, res)

		if res.StatusCode != c.status {
			t.Errorf("%s %s: %d %s", c.method, c.path, res.StatusCode, text)
		}

		id := res.Header.Get(api.HeaderRequestID)
		if res.Header.Get("Content-Type") == api.TypeProblem {
			var p api.Problem
			if err := json.Unmarshal([]byte(text), &p); err != nil || p.RequestID != id || p.Restore().Request != id {
				t.Errorf("%s %s: the problem has the id %q, %v, want %s", c.method, c.path, p.RequestID, err, id)
			}
		}

		if c.method != "POST" {
			continue
		}

		logged := false
		for _, e := range s.log.AllEntries() {
			logged = logged || e.Message == "request" && e.Data["request"] == id
		}

		if !logged {
			t.Errorf("%s %s: the access log lacks %s", c.method, c.path, id)
		}
	}

	// What another program calls an id must not reach a terminal.
	if e := (api.Problem{Status: 404, RequestID: "a\x1b[2J"}).Restore(); e.Request != "" {
		t.Errorf("a foreign id is %q", e.Request)
	}
}

// trail keeps audit records.
type trail struct {
	mu      sync.Mutex
	records []access.Record
}

func (a *trail) Record(_ context.Context, r access.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records = append(a.records, r)
}

func (a *trail) take() []access.Record {
	a.mu.Lock()
	defer a.mu.Unlock()

	taken := a.records
	a.records = nil
	return taken
}

// TestRefusalsAreRecorded expects one record for each refused request that no use
// case decides on, and none for a read that failed for another reason.
func TestRefusalsAreRecorded(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		role               access.Role
		method, path, body string
		headers            []string
		kind               inventory.Kind // empty: no record
		principal          string
	}{
		{access.RoleViewer, "POST", "/v1/jobs", `{}`, nil, inventory.KindForbidden, "http:127.0.0.1"},
		{access.RoleViewer, "POST", "/commission/nodes", `{}`, nil, inventory.KindForbidden, "http:127.0.0.1"},
		{access.RoleViewer, "GET", "/v1/tokens", "", nil, inventory.KindForbidden, "http:127.0.0.1"},
		{"", "GET", "/v1/nodes", "", nil, inventory.KindForbidden, "http:127.0.0.1"},
		{
			access.RoleAdmin, "GET", "/v1/nodes", "", []string{"Authorization", "Bearer cm_x"},
			inventory.KindUnauthenticated, "anonymous",
		},
		{
			access.RoleAdmin, "GET", "/nowhere", "", []string{"Origin", "http://evil.example"},
			inventory.KindForbidden, "anonymous",
		},
		{access.RoleAdmin, "POST", "/v1/jobs", `{"verb":`, nil, inventory.KindInvalid, "http:127.0.0.1"},
		{access.RoleAdmin, "POST", "/globals", `{`, nil, inventory.KindInvalid, "http:127.0.0.1"},
		{access.RoleAdmin, "PUT", "/v1/vars/global?x=1", `{}`, nil, inventory.KindInvalid, "http:127.0.0.1"},
		{access.RoleAdmin, "GET", "/v1/nodes/nope-1", "", nil, "", ""},
		{access.RoleAdmin, "GET", "/nowhere", "", nil, "", ""},
		{access.RoleAdmin, "POST", "/info/nodes", "{", nil, "", ""},
		{access.RoleAdmin, "GET", "/v1/nodes", "", nil, "", ""},
	} {
		kept := &trail{}
		s := serve(t, func(o *server.Options) { o.Audit, o.PlainHTTPRole = kept, c.role })

		res, text := s.ask(t, c.method, c.path, c.body, c.headers...)
		id := res.Header.Get(api.HeaderRequestID)
		path, _, _ := strings.Cut(c.path, "?")

		got := kept.take()
		if c.kind == "" {
			if len(got) > 0 {
				t.Errorf("%s %s: recorded %+v", c.method, c.path, got)
			}

			continue
		}

		if len(got) != 1 {
			t.Errorf("%s %s: %d %s has the records %+v", c.method, c.path, res.StatusCode, text, got)
			continue
		}

		r := got[0]
		if inventory.KindOf(r.Err) != c.kind || !strings.HasPrefix(r.Principal, c.principal) || r.Request != id ||
			r.Via != access.ViaPlainHTTP || !strings.HasPrefix(r.From, "127.0.0.1:") ||
			!slices.Equal(r.Targets, []string{c.method + " " + path}) {
			t.Errorf("%s %s: recorded %+v, want %s of %s in %s", c.method, c.path, r, c.kind, c.principal, id)
		}
	}
}
