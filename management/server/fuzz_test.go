// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/server/legacy"
	"github.com/contiv/cluster/management/server/rest"
)

// reset returns the fake to its state at the start.
func (m *fakeManager) reset() {
	fresh := newFakeManager()

	m.mu.Lock()
	defer m.mu.Unlock()

	m.view, m.feed, m.calls, m.results = fresh.view, fresh.feed, nil, fresh.results
	m.inputs, m.logs, m.observations = fresh.inputs, fresh.logs, nil
}

// FuzzRequest sends a request to any route, with any name in the path, query,
// header and body. A refusal changes nothing, has a reason, and is no fault of the
// manager; no answer is much longer than its request.
func FuzzRequest(f *testing.F) {
	manager, config := newFakeManager(), newFakeSettings()

	logger, hook := logtest.NewNullLogger()
	logger.SetLevel(logrus.WarnLevel)

	o := manager.options(config)
	o.Logger = logger
	o.Health = func(context.Context) api.Health { return api.Health{Status: api.HealthOK} }
	o.Version = func(context.Context) api.Version { return api.Version{} }
	// The view of the fake never reaches a later revision.
	o.HeaderTime, o.BodyTime = time.Second, time.Second

	s := server.New(o)
	f.Cleanup(func() { _ = s.Shutdown(context.Background()) })

	var routes []rest.Route

	for _, rt := range s.Routes() {
		// A stream lasts as long as its client, and min_revision as long as the view needs.
		if !rt.Streams && slices.Contains(rt.Allow.Roles, access.RoleAdmin) {
			routes = append(routes, rt)
		}
	}

	bodies := []string{
		``,
		`{}`,
		`{"verb":"commission","nodes":["a-1"],"group":"g"}`,
		`{"nodes":["a-1"],"host_group":"g","extra_vars":{"a":"b"}}`,
		`{"addrs":["10.0.0.1"]}`,
		`[{"Node-Label":"x","Node-Serial":"1","Node-Mgmt-Address":"10.0.0.1"}]`,
		`{"extra_vars":"{\"a\":1}"}`,
		`{"monitor_event":{"name":"discovered","nodes":[{"label":"x","serial":"1","addr":"10.0.0.1"}]}}`,
		`{"config":{"jobs":{"limit":7}}}`,
		`{"observer":"m","full":true,"observations":[{"label":"a","serial":"1","addr":"10.0.0.9","alive":true}]}`,
		`{"labels":{"rack":null}}`,
		`{"revision":7}`,
		`{"reason":"x","force":true}`,
		`{"a":{"b":[1,null,"{{ x }}"]}}`,
		`{"nodes":["../x","a-1\n","node1*"]}`,
	}
	for i := range routes {
		f.Add(uint8(i), "a-1", "", "", bodies[i%len(bodies)])
		f.Add(uint8(i), "../x\n", "limit=1&sort=-name&fields=name", `"7"`, bodies[(i*7)%len(bodies)])
	}

	f.Fuzz(func(t *testing.T, n uint8, name, query, header, body string) {
		rt := routes[int(n)%len(routes)]
		if strings.Contains(query, "min_revision") || len(body) > 64<<10 {
			return
		}

		manager.reset()
		hook.Reset()

		newest := manager.View().Revision

		path := rt.Path
		for strings.Contains(path, "{") {
			before, rest, _ := strings.Cut(path, "{")
			_, after, _ := strings.Cut(rest, "}")
			path = before + url.PathEscape(name) + after
		}

		ctx := server.OnSocket(t.Context(), 0, "root")

		r, err := http.NewRequestWithContext(ctx, rt.Method, "http://localhost/", strings.NewReader(body))
		errtest.None(t, err)
		r.URL.Path, _ = url.PathUnescape(path)
		r.URL.RawPath, r.URL.RawQuery, r.RequestURI = path, query, path

		for _, h := range []string{
			"If-Match", "If-None-Match", api.HeaderIdempotencyKey, api.HeaderActor, api.HeaderLastEventID,
		} {
			if len(header) > 0 && int(header[0])%5 == len(h)%5 {
				r.Header[h] = []string{header}
			}
		}

		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)

		answer := w.Body.String()
		if len(answer) > 768<<10+8*(len(body)+len(query)+len(header)+len(name)) {
			t.Fatalf("%s %s: the answer has %d bytes", rt.Method, path, len(answer))
		}

		for _, e := range hook.AllEntries() {
			if len(e.Message) > 4<<10 || e.Level <= logrus.ErrorLevel {
				t.Fatalf(
					"%s %s?%s %q %q: logged %s: %.300q %v",
					rt.Method,
					path,
					query,
					header,
					body,
					e.Level,
					e.Message,
					e.Data,
				)
			}
		}

		if w.Code == http.StatusUnauthorized || w.Code == http.StatusForbidden {
			t.Fatalf("%s %s: root is refused: %s", rt.Method, path, answer)
		}

		if w.Code < http.StatusBadRequest {
			return
		}

		if strings.TrimSpace(answer) == "" && rt.Method != http.MethodHead {
			t.Fatalf("%s %s: %d without a reason", rt.Method, path, w.Code)
		}

		if manager.View().Revision != newest || len(manager.observations) > 0 {
			t.Fatalf(
				"%s %s?%s %q: refused with %d, and carried out: %q",
				rt.Method,
				path,
				query,
				body,
				w.Code,
				manager.calls,
			)
		}

		if rt.Family != rest.Versioned {
			return
		}

		var p api.Problem
		if err := json.Unmarshal(
			w.Body.Bytes(),
			&p,
		); err != nil || p.Type == "" || p.Detail == "" || p.Status != w.Code ||
			w.Code == http.StatusInternalServerError {
			t.Fatalf("%s %s?%s %q: %d %q, %v", rt.Method, path, query, body, w.Code, answer, err)
		}
	})
}

// FuzzExtraVars reads extra_vars as the first generation sends them: refused as
// invalid, or an object of JSON. YAML never passes.
func FuzzExtraVars(f *testing.F) {
	for _, s := range []string{
		``, `null`, `{}`, `{"a":1}`, `"{\"a\":1}"`, `"a: b"`, `"a: !!x y"`, `[1]`, `"{"`, `7`, `""`, `"null"`,
		`{"a":1,"a":2}`,
	} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, raw []byte) {
		vars, err := legacy.ExtraVars(raw, configuration.ParseJSONVars)
		if err != nil {
			if len(vars) > 0 || inventory.KindOf(err) != inventory.KindInvalid {
				t.Fatalf("%q: %v, %v", raw, vars, err)
			}
			return
		}

		if len(vars) == 0 {
			return
		}

		var text string

		object := raw
		if json.Unmarshal(raw, &text) == nil {
			object = []byte(text)
		}

		var plain map[string]any
		if err := json.Unmarshal(object, &plain); err != nil || len(plain) != len(vars) {
			t.Fatalf("%q became %v; as JSON %v, %v", raw, vars, plain, err)
		}
	})
}
