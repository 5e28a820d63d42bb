// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// TestLegacyChanges sends the requests of existing clients, and expects the call of
// the use case and the answer: 200 without a body, or 500 with the reason.
func TestLegacyChanges(t *testing.T) {
	t.Parallel()
	const member = `{"Node-Label":"a","Node-Serial":"1","Node-Mgmt-Address":"10.0.0.1"}`

	query := url.Values{"extra_vars": {`{"q": 1}`}}.Encode()
	for _, c := range []struct {
		name, path, body string
		headers          []string
		call             string // empty: no use case is called
		reason           string // empty: success
	}{
		{name: "commission", path: "/commission/nodes",
			body: `{"nodes":["a-1","bb-1"],"host_group":"service-master","extra_vars":{"x":1}}`,
			call: `submit commission [a-1 bb-1] [] group="service-master" extra=map[x:1]`},
		{name: "vars as text", path: "/commission/nodes",
			body: `{"nodes":["a-1"],"extra_vars":"{\"x\": {\"y\": [1]}}"}`,
			call: `submit commission [a-1] [] group="" extra=map[x:map[y:[1]]]`},
		{
			name: "vars as empty text", path: "/commission/nodes", body: `{"nodes":["a-1"],"extra_vars":" "}`,
			call: `submit commission [a-1] [] group="" extra=map[]`,
		},
		{
			name: "vars in the query", path: "/commission/nodes?" + query, body: `{"nodes":["a-1"]}`,
			call: `submit commission [a-1] [] group="" extra=map[q:1]`,
		},
		{name: "as the old client sends it", path: "/commission/nodes", headers: []string{
			"Content-Type", "application/json",
		},
			body: `{"nodes":["a-1"],"extra_vars":"{}","monitor_event":{"name":"","nodes":null}}` + "\n",
			call: `submit commission [a-1] [] group="" extra=map[]`},
		{name: "charset", path: "/decommission/nodes",
			headers: []string{"Content-Type", "application/json; charset=UTF-8"}, body: `{"nodes":["a-1"]}`,
			call: `submit decommission [a-1] [] group="" extra=map[]`},
		{
			name: "group passed over", path: "/decommission/nodes",
			body: `{"nodes":["a-1"],"host_group":"service-master"}`, call: `submit decommission [a-1] [] group=""`,
		},
		{
			name: "unknown names", path: "/maintenance/nodes", body: `{"nodes":["a-1"],"job":"","what":[1]}`,
			call: `submit maintenance [a-1] []`,
		},
		{
			name: "update", path: "/update/nodes", body: `{"nodes":["a-1"],"host_group":"service-worker"}`,
			call: `submit update [a-1] [] group="service-worker"`,
		},
		{
			name: "addrs", path: "/discover/nodes", body: `{"addrs":["10.0.0.9"],"extra_vars":{"u":"v"}}`,
			call: `submit discover [] [10.0.0.9] group="" extra=map[u:v]`,
		},
		{
			name: "addresses", path: "/discover/nodes", body: `{"addresses":["fd00::9"]}`,
			call: `submit discover [] [fd00::9]`,
		},
		{
			name: "addressess", path: "/discover/nodes", body: `{"addressess":["10.0.0.9"]}`,
			call: `submit discover [] [10.0.0.9]`,
		},
		{
			name: "one node", path: "/commission/node/a-1", body: `{"host_group":"service-worker"}`,
			call: `submit commission [a-1] [] group="service-worker"`,
		},
		{name: "one node, no body", path: "/maintenance/node/a-1", call: `submit maintenance [a-1] []`},
		{
			name: "one node out", path: "/decommission/node/a-1?" + query,
			call: `submit decommission [a-1] [] group="" extra=map[q:1]`,
		},
		{
			name: "no nodes", path: "/commission/nodes", body: `{"nodes":[]}`, call: `submit commission [] []`,
			reason: "no node is named",
		},
		{name: "no body", path: "/commission/nodes", call: `submit commission [] []`, reason: "no node is named"},
		{
			name: "unknown node", path: "/commission/nodes", body: `{"nodes":["a-1","zz-9"]}`,
			call: `submit commission [a-1 zz-9]`, reason: "zz-9",
		},
		{
			name: "vars not an object", path: "/commission/nodes", body: `{"nodes":["a-1"],"extra_vars":[1]}`,
			reason: "extra_vars",
		},
		{
			name: "vars no JSON", path: "/commission/nodes", body: `{"nodes":["a-1"],"extra_vars":"{x"}`,
			reason: "extra_vars",
		},
		{
			name: "vars twice", path: "/commission/nodes?" + query, body: `{"nodes":["a-1"],"extra_vars":{"x":1}}`,
			reason: "more than once",
		},
		{name: "malformed", path: "/commission/nodes", body: "{\n  \"nodes\": [}", reason: "line 2, column 13"},
		{name: "wrong type", path: "/commission/nodes", body: `{"nodes":"a-1"}`, reason: "nodes"},
		{
			name: "a form", path: "/commission/nodes",
			headers: []string{"Content-Type", "application/x-www-form-urlencoded"}, body: `{"nodes":["a-1"]}`,
			reason: "content type",
		},
		{
			name: "too large", path: "/commission/nodes", body: `{"nodes":["` + strings.Repeat("a", 2<<20) + `"]}`,
			reason: "1048576 bytes",
		},

		{
			name: "event", path: "/monitor/event",
			body: `{"monitor_event":{"name":"discovered","nodes":[{"label":"a","serial":"1","addr":"10.0.0.1"},` +
				`{"label":"b","serial":"1","addr":"10.0.0.2"}]}}`,
			call: "observe post 2",
		},
		{
			name: "event in any case", path: "/monitor/event",
			body: `{"monitor_event":{"name":"DisAppeared","nodes":[{"label":"a","serial":"1","addr":"10.0.0.1"}]}}`,
			call: "observe post 1",
		},
		{
			name: "event without nodes", path: "/monitor/event",
			body: `{"monitor_event":{"name":"discovered","nodes":[]}}`, reason: "names no node",
		},
		{
			name: "event with null", path: "/monitor/event", body: `{"monitor_event":{"name":"discovered"}}`,
			reason: "names no node",
		},
		{name: "no event", path: "/monitor/event", body: `{}`, reason: "monitor_event"},
		{name: "no body for an event", path: "/monitor/event", reason: "monitor_event"},
		{
			name: "unknown event", path: "/monitor/event",
			body:   `{"monitor_event":{"name":"exploded","nodes":[{"label":"a","serial":"1","addr":"10.0.0.1"}]}}`,
			reason: "exploded",
		},
		{
			name: "a bad one among good ones", path: "/monitor/event",
			body: `{"monitor_event":{"name":"discovered","nodes":[{"label":"a","serial":"1","addr":"10.0.0.1"},` +
				`{"label":"","serial":"","addr":""}]}}`,
			call: "observe post 2", reason: "label is empty; give one\n",
		},
		{
			name: "members", path: "/monitor/event/discovered", body: `[` + member + `,` + member + `]`,
			call: "observe post 2",
		},
		{name: "members gone", path: "/monitor/event/Disappeared", body: `[` + member + `]`, call: "observe post 1"},
		{name: "no members", path: "/monitor/event/discovered", body: `[]`, reason: "names no node"},
		{name: "members missing", path: "/monitor/event/discovered", reason: "names no node"},
		{name: "member", path: "/monitor/discovered/a-1", body: member, call: "observe post 1"},
		{name: "member gone", path: "/monitor/disappeared/a-1", body: member, call: "observe post 1"},
		{name: "another member", path: "/monitor/discovered/b-1", body: member, reason: `names the node "b-1"`},
		{name: "no member", path: "/monitor/discovered/b-1", reason: "names the node"},
		{name: "unknown event of a member", path: "/monitor/joined/a-1", body: member, reason: "joined"},

		{name: "globals", path: "/globals", body: `{"extra_vars":{"x":1}}`, call: "set global map[x:1]"},
		{name: "globals as text", path: "/globals", body: `{"extra_vars":"{\"x\":1}"}`, call: "set global map[x:1]"},
		{name: "globals in the query", path: "/globals?" + query, call: "set global map[q:1]"},
		{name: "no globals", path: "/globals", body: `{"extra_vars":{}}`, call: "set global map[]"},
		{name: "globals forgotten", path: "/globals", body: `{}`, reason: "extra_vars"},
		{name: "config", path: "/config", body: `{"config":{"jobs":{"limit":9}}}`},
		{
			name: "config of the file", path: "/config", body: `{"config":{"data_dir":"/tmp"}}`,
			reason: "belongs to the file",
		},
		{name: "unknown config", path: "/config", body: `{"config":{"jobs":{"limits":9}}}`, reason: "jobs.limits"},
		{name: "no config", path: "/config", body: `{}`, reason: "config"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)

			res, text := s.exchange(t, "POST", c.path, c.body, c.headers...)
			if c.reason == "" && (res.StatusCode != 200 || text != "") {
				t.Errorf("got %d %q", res.StatusCode, text)
			}

			if c.reason != "" &&
				(res.StatusCode != 500 || !strings.Contains(text,
					c.reason) || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain")) {
				t.Errorf(
					"got %d %q (%s), want the reason %q",
					res.StatusCode,
					text,
					res.Header.Get("Content-Type"),
					c.reason,
				)
			}

			if c.reason != "" && !strings.Contains(text, "; ") {
				t.Errorf("%q has no remedy", text)
			}

			if c.call == "" && s.manager.count() > 0 || !strings.HasPrefix(s.manager.last(), c.call) {
				t.Errorf("called %q, want %q", s.manager.last(), c.call)
			}

			if c.reason != "" && len(s.manager.observations) > 0 {
				t.Errorf("a refused event was recorded: %v", s.manager.observations)
			}
		})
	}
}

// TestLegacyReads expects the answers that existing clients parse.
func TestLegacyReads(t *testing.T) {
	s := serve(t)
	get := func(method, path, body string) map[string]any {
		t.Helper()
		status, text := s.request(t, method, path, body)

		var out map[string]any
		if err := json.Unmarshal([]byte(text), &out); err != nil || status != 200 {
			t.Fatalf("%s %s: %d %s", method, path, status, text)
		}
		return out
	}
	refuse := func(path, reason string) {
		t.Helper()

		if status, text := s.request(t, "GET", path, ""); status != 500 || !strings.Contains(text, reason) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	expect(t, "all", len(get("GET", "/info/nodes", "")), 3)
	expect(t, "all of none", len(get("POST", "/info/nodes", `{"nodes":[]}`)), 3)

	for _, method := range []string{"GET", "POST"} {
		some := get(method, "/info/nodes", `{"nodes":["bb-1","nosuch-1"]}`)
		expect(t, "some", len(some), 1)
		expect(t, "one", some["bb-1"], any(map[string]any{
			"monitoring_state": map[string]any{
				"label":              "bb",
				"serial_number":      "1",
				"management_address": "10.0.0.2",
			},
			"inventory_state": map[string]any{
				"name":        "bb-1",
				"status":      "Unallocated",
				"prev_status": "Decommissioned",
				"state":       "Discovered",
				"prev_state":  "Unknown",
			},
			"configuration_state": map[string]any{
				"inventory_name": "bb-1",
				"host_group":     "",
				"ssh_address":    "10.0.0.2",
				"inventory_vars": map[string]any{
					"motd":      "hello",
					"port":      8080.0,
					"node_name": "bb-1",
					"node_addr": "10.0.0.2",
				},
			},
		}))
	}

	expect(t, "node", get("GET", "/info/node/a-1", "")["inventory_state"].(map[string]any)["name"], any("a-1"))
	refuse("/info/node/nosuch-1", "nosuch-1")
	expect(
		t,
		"globals",
		get("GET", "/info/globals", ""),
		map[string]any{"extra_vars": map[string]any{"motd": "hello", "port": 8080.0}},
	)
	expect(t, "config", get("GET", "/config", ""), map[string]any{"config": map[string]any{
		"data_dir": "/var/lib/clusterm",
		"gossip":   "on",
		"jobs":     map[string]any{"limit": 4.0, "groups": map[string]any{"x": "y"}},
		"ansible": map[string]any{
			"configure_playbook": "site.yml", "cleanup_playbook": "cleanup.yml",
			"upgrade_playbook": "rolling-upgrade.yml", "playbook_location": "", "user": "", "priv_key_file": "",
			"extra_variables": "",
		},
		"manager": map[string]any{"addr": ""},
	}})
	// The answer of GET can be edited and posted.
	_, text := s.request(t, "GET", "/config", "")
	if status, text := s.request(t, "POST", "/config", text); status != 200 {
		t.Errorf("the same configuration: %s", text)
	}

	if status, text := s.request(
		t,
		"POST",
		"/config",
		strings.Replace(text, `"limit":4`, `"limit":5`, 1),
	); status != 200 {
		t.Errorf("the edited configuration: %s", text)
	}

	expect(t, "edited", s.config.Config()["jobs.limit"].Origin, "overlay")
	expect(t, "not edited", s.config.Config()["jobs.groups"].Origin, "file")

	refuse("/info/job/active", "no job is running")
	refuse("/info/logs/last", "no job has ended")
	s.request(t, "POST", "/commission/nodes", `{"nodes":["a-1","bb-1"],"host_group":"service-master"}`)
	expect(t, "accepted", get("GET", "/info/job/active", "")["status"], any("Queued"))
	s.manager.setJob(
		"1",
		func(j *job.Job) { j.Status, j.Started = job.Running, time.Unix(1700000001, 0).UTC() },
	)
	active := get("GET", "/info/job/active", "")
	expect(t, "active", active, map[string]any{
		"id":      "1",
		"task":    "commission",
		"desc":    "commission of a-1, bb-1 in service-master",
		"status":  "Running",
		"error":   "",
		"logs":    []any{""},
		"nodes":   []any{"a-1", "bb-1"},
		"started": "2023-11-14T22:13:21Z",
	})

	res := make(chan string, 1)
	go func() {
		r, err := http.Get(s.url + "/info/logs/active")
		if err != nil {
			res <- err.Error()
			return
		}

		defer func() { _ = r.Body.Close() }()

		b, err := io.ReadAll(r.Body)
		if err != nil {
			b = []byte(err.Error())
		}
		res <- string(b)
	}()
	s.manager.write("1", job.StreamText, "one\n")
	s.manager.write("1", job.StreamText, "two\n")
	s.manager.setJob("1", func(j *job.Job) {
		j.Status, j.Message, j.Cause = job.Cancelled, "cancelled by bob", job.CauseCancelled
	})

	if text := <-res; text != "one\ntwo\n" &&
		!strings.Contains(text, "no job is running") { // already ended
		t.Errorf("log: %q", text)
	}

	_, log := s.request(t, "GET", "/info/logs/1", "")
	expect(t, "log read later", log, "one\ntwo\n")
	last := get("GET", "/info/job/last", "")
	expect(t, "a cancelled job", []any{last["status"], last["error"]}, []any{"Errored", "cancelled by bob"})
	expect(t, "the lines of its log", last["logs"], any([]any{"one", "two", ""}))

	const incomplete = "not everything could be cleaned: a-1: unreachable"

	s.manager.setJob("1", func(j *job.Job) { j.Status, j.Message, j.Cause = job.Complete, incomplete, "" })
	last = get("GET", "/info/job/last", "")
	expect(t, "an incomplete cleanup", []any{last["status"], last["error"]}, []any{"Complete", ""})

	// A node that is being verified is in service.
	for verb, want := range map[inventory.Verb]string{
		inventory.VerbVerify: "Allocated", inventory.VerbApply: "Maintenance",
	} {
		s.manager.change(func(v *state.View) {
			n := v.Nodes()[0].Clone()
			n.Status, n.Verb = inventory.Maintenance, verb
			v.PutNode(&n)
		})

		state, _ := get("GET", "/info/node/a-1", "")["inventory_state"].(map[string]any)
		expect(t, string(verb), state["status"], any(want))
	}

	s.manager.observations = nil
	s.request(
		t,
		"POST",
		"/monitor/event",
		`{"monitor_event":{"name":"Disappeared","nodes":[{"label":"a","serial":"1","addr":"10.0.0.1"}]}}`,
	)
	expect(
		t,
		"observation",
		s.manager.observations,
		[]inventory.Observation{{Observer: inventory.ObserverPost, Label: "a", Serial: "1", Addr: "10.0.0.1"}},
	)
}
