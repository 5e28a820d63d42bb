// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// hostileTexts returns texts that mean something to a program that a request reaches.
// A program that evaluates one of them makes the file mark.
func hostileTexts(mark string) map[string]string {
	return map[string]string{
		"a Jinja expression": "{{ lookup('pipe', 'touch " + mark + "') }}",
		"a Jinja statement":  "{% for i in lookup('pipe', 'touch " + mark + "') %}{% endfor %}",
		"a Jinja comment":    "{# a #}",
		"a Go template":      "{{printf \"%s\" .}}{{template \"x\"}}",
		"shell":              "$(touch " + mark + ");`touch " + mark + "`|touch " + mark + "&touch " + mark,
		"shell expansion":    "${IFS}~/*?[a]",
		"quotes":             `'"` + "`" + `\'\"`,
		"a line":             "a\nall:\n  hosts: {evil: {ansible_connection: local}}",
		"a carriage return":  "a\r\nX-Clusterm-Actor: root",
		"NUL":                "a\x00b",
		"a control sequence": "\x1b]0;owned\x07\x1b[2J",
		"a C1 control":       "\u009b2Ja",
		"backspaces":         "a\b\b\bb",
		"bidi":               "\u202egnp.exe\u2066",
		"a path":             "../../../../etc/passwd",
		"a path to run":      "../" + mark,
		"a slash":            "node/1",
		"an absolute path":   mark,
		"a backslash":        `..\..\etc`,
		"an option":          "--extra-vars=@/etc/shadow",
		"ssh option":         "-oProxyCommand=touch " + mark,
		"YAML tag":           "!!python/object/apply:os.system [touch " + mark + "]",
		"YAML":               "&a [*a, {b: *a}]",
		"an Ansible pattern": "all:!localhost,&web",
		"a selector":         "name in (a,b)",
		"a URL":              "http://192.0.2.1/?a=b#c",
		"a space":            "node 1",
		"a look-alike":       "n\u043ede-1",
		"huge":               strings.Repeat("a", 300<<10),
	}
}

// hostileField is one field of a request. %s in the body is the text as JSON, and in
// the path the text escaped.
type hostileField struct {
	method, path, body string
	header             string // the field is this header
	// data fields take any text up to their length, and give it back as it was.
	data bool
	// plain are the texts without a special meaning in the field.
	plain []string
}

// inJob is a field of a job, with the rest of its body.
func inJob(body string) hostileField {
	return hostileField{method: "POST", path: "/v1/jobs", body: "{" + body + "}"}
}

// inNode is a field of a change of node-1.
func inNode(body string, plain ...string) hostileField {
	return hostileField{method: "PATCH", path: "/v1/nodes/node-1", body: "{" + body + "}", plain: plain}
}

func inPath(path string) hostileField { return hostileField{method: "GET", path: path} }

// inEvent is a field of a report of the first generation, of which one part is %s.
func inEvent(name, label, serial, addr string) hostileField {
	node := fmt.Sprintf(`{"label":%s,"serial":%s,"addr":%s}`, label, serial, addr)
	body := `{"monitor_event":{"name":` + name + `,"nodes":[` + node + `]}}`
	return hostileField{method: "POST", path: api.LegacyMonitorEvent, body: body}
}

// member is a valid report about one node.
const member = `{"Node-Label":"x","Node-Serial":"1","Node-Mgmt-Address":"10.0.0.9"}`

var hostileFields = map[string]hostileField{
	"a node of a job":      inJob(`"verb":"commission","nodes":[%s]`),
	"a node of an upgrade": inJob(`"verb":"maintenance","nodes":["node-1",%s]`),
	"the verb":             inJob(`"verb":%s,"nodes":["node-1"]`),
	"the group":            inJob(`"verb":"commission","nodes":["node-1"],"group":%s`),
	"an address":           inJob(`"verb":"discover","addrs":[%s]`),
	"a range":              inJob(`"verb":"discover","ranges":[%s]`),
	"on_failure":           inJob(`"verb":"commission","nodes":["node-1"],"on_failure":%s`),
	"a batch size":         inJob(`"verb":"apply","nodes":["node-1"],"serial":%s`),
	"playbooks of a job":   inJob(`"verb":"decommission","nodes":["node-1"],"playbooks":%s`),
	"a timeout":            inJob(`"verb":"commission","nodes":["node-1"],"timeout":%s`),
	"a tag":                inJob(`"verb":"apply","nodes":["node-1"],"tags":[%s]`),
	"a skipped tag":        inJob(`"verb":"apply","nodes":["node-1"],"skip_tags":[%s]`),
	"variables of a job":   inJob(`"verb":"apply","nodes":["node-1"],"extra_vars":%s`),
	"a variable of a job":  inJob(`"verb":"apply","nodes":["node-1"],"extra_vars":{%s:1}`),
	"an id to cancel":      {method: "POST", path: "/v1/jobs/%s/cancel"},
	"an id to retry":       {method: "POST", path: "/v1/jobs/%s/retry", body: `{}`},
	"an id of a log":       inPath("/v1/jobs/%s/log"),
	"an id":                inPath("/v1/jobs/%s"),
	"a name":               inPath("/v1/nodes/%s"),
	"a name to explain":    inPath("/v1/nodes/%s/explanation"),
	"a name of a history":  inPath("/v1/nodes/%s/history"),
	"a name to change":     {method: "PATCH", path: "/v1/nodes/%s", body: `{"labels":{"rack":"r1"}}`},
	"a name to forget":     {method: "POST", path: "/v1/forget", body: `{"nodes":[%s],"force":true}`},
	"a name to ping":       {method: "POST", path: "/v1/ping", body: `{"nodes":[%s]}`},
	"the key of a label":   inNode(`"labels":{%s:"r1"}`, "a slash"),
	"a label":              inNode(`"labels":{"rack":%s}`),
	"the user":             inNode(`"connection":{"user":%s}`),
	"the key file":         inNode(`"connection":{"key_file":%s}`, "an absolute path"),
	"become_user":          inNode(`"connection":{"become_user":%s}`),
	"the jump host":        inNode(`"connection":{"jump":%s}`),
	"python":               inNode(`"connection":{"python":%s}`, "an absolute path"),
	"an observer":          {method: "POST", path: "/v1/observations", body: `{"observer":%s,"observations":[]}`},
	"a range of a report": {
		method: "POST",
		path:   "/v1/observations",
		body:   `{"observer":"rack","full":true,"after":%s,"observations":[]}`,
	},
	"the name of a token":   {method: "POST", path: "/v1/tokens", body: `{"role":"viewer","expires":"1h","name":%s}`},
	"the role of a token":   {method: "POST", path: "/v1/tokens", body: `{"role":%s,"expires":"1h"}`},
	"the expiry of a token": {method: "POST", path: "/v1/tokens", body: `{"role":"viewer","expires":%s}`},
	"a token to revoke":     {method: "DELETE", path: "/v1/tokens/%s"},
	"a key of the settings": {method: "PATCH", path: "/v1/config", body: `{%s:1}`},
	"the playbooks":         {method: "PATCH", path: "/v1/config", body: `{"playbooks":%s}`},
	"the log level":         {method: "PATCH", path: "/v1/config", body: `{"log_level":%s}`},
	"the account":           {method: "PATCH", path: "/v1/config", body: `{"connection":{"user":%s}}`},
	"a group of variables":  {method: "PUT", path: "/v1/vars/groups/%s", body: `{"a":1}`},
	"a node of variables":   {method: "PUT", path: "/v1/vars/nodes/%s", body: `{"a":1}`},
	"a variable's name":     {method: "PUT", path: "/v1/vars/global", body: `{%s:1}`},
	"a variable":            {method: "PUT", path: "/v1/vars/global", body: `{"hostile":%s}`, data: true},
	"a nested variable": {
		method: "PATCH",
		path:   "/v1/vars/nodes/node-1",
		body:   `{"hostile":[{"a":%s}]}`,
		data:   true,
	},
	"an idempotency key": {
		method: "POST",
		path:   "/v1/jobs",
		body:   `{"verb":"commission","nodes":["nope-1"]}`,
		header: api.HeaderIdempotencyKey,
	},
	"a selector":    {method: "GET", path: "/v1/nodes?selector=%s", plain: []string{"a selector", "a slash"}},
	"an order":      inPath("/v1/nodes?sort=%s"),
	"fields":        inPath("/v1/nodes?fields=%s"),
	"a page":        inPath("/v1/nodes?continue=%s"),
	"a position":    inPath("/v1/jobs/1/log?offset=%s"),
	"a time":        inPath("/v1/audit?since=%s"),
	"watched kinds": inPath("/v1/watch?kinds=%s"),
	"a path":        inPath("/v1/%s"),

	"a node, formerly":     {method: "POST", path: api.LegacyCommission, body: `{"nodes":[%s]}`},
	"a group, formerly":    {method: "POST", path: api.LegacyCommission, body: `{"nodes":["node-1"],"host_group":%s}`},
	"an address, formerly": {method: "POST", path: api.LegacyDiscover, body: `{"addrs":[%s]}`},
	"variables, formerly":  {method: "POST", path: api.LegacySetGlobals, body: `{"extra_vars":{%s:1}}`},
	"a name, formerly":     inPath("/info/node/%s"),
	"a job, formerly":      inPath("/info/job/%s"),
	"an event":             inEvent("%s", `"x"`, `"1"`, `"10.0.0.9"`),
	"a reported label":     inEvent(`"discovered"`, `%s`, `"1"`, `"10.0.0.9"`),
	"a reported serial":    inEvent(`"discovered"`, `"x"`, `%s`, `"10.0.0.9"`),
	"a reported address":   inEvent(`"discovered"`, `"x"`, `"1"`, `%s`),
	"a reported path":      {method: "POST", path: "/monitor/discovered/%s", body: member},
	"an event in the path": {method: "POST", path: "/monitor/event/%s", body: "[" + member + "]"},
	"the settings, formerly": {
		method: "POST",
		path:   api.LegacyConfig,
		body:   `{"config":{"ansible":{"playbook_location":%s}}}`,
	},
}

// recordingAnsible writes a program that keeps the arguments and the inventory of each
// run in a folder, and goes on as the program of the other tests.
func recordingAnsible(s *site) (program, kept string) {
	s.t.Helper()

	fake, err := filepath.Abs("testdata/fake/ansible-playbook")
	s.must(err)

	kept = filepath.Join(s.dir, "kept")
	s.must(os.Mkdir(kept, 0o700))

	program = filepath.Join(s.dir, "recording")
	s.must(writeProgram(program, `#!/bin/sh
for argument; do
	[ "$before" = -i ] && [ -f "$argument" ] && cat "$argument" >>"`+kept+`/inventory"
	before=$argument
	printf '%s\n' "$argument" >>"`+kept+`/arguments"
done
env >>"`+kept+`/environment"
exec "`+fake+`" "$@"
`))

	return program, kept
}

// hostileManager starts a manager with node-1 and node-10.
func hostileManager(t *testing.T) (s *site, kept string) {
	t.Helper()

	s = prepare(t)
	program, kept := recordingAnsible(s)
	s.write(
		"plain_http_role: admin", "ansible_playbook: "+program,
		"gossip: {bind: 127.0.0.1:0}", "node: {label: host1, serial: c976, addr: 10.0.0.9}",
	)
	s.up()
	t.Cleanup(s.down)
	s.state("host1-c976", inventory.Discovered)

	for i, serial := range []string{"1", "10"} {
		body := fmt.Sprintf(
			`{"monitor_event":{"name":"discovered","nodes":[{"label":"node","serial":%q,"addr":"10.0.0.%d"}]}}`,
			serial,
			i+1,
		)
		if status, text := s.post(api.LegacyMonitorEvent, body); status != http.StatusOK {
			t.Fatal(status, text)
		}
	}

	return s, kept
}

// everything returns what the manager knows, without what only counts or passes.
func (s *site) everything() string {
	s.t.Helper()

	var all strings.Builder

	for _, path := range []string{
		"/v1/nodes", "/v1/jobs", "/v1/vars/global", "/v1/vars/nodes/node-1", "/v1/config", "/v1/tokens?fields=id,name",
	} {
		status, text := s.get(path)
		if status != http.StatusOK {
			s.t.Fatalf("%s: %d %s", path, status, text)
		}
		_, items, _ := strings.Cut(text, `"items":`)
		if items, _, ok := strings.Cut(items, `],"total":`); ok {
			text = items // the revision counts all records
		}

		all.WriteString(text)
	}

	return all.String()
}

// isClean reports whether text can be printed: UTF-8 without controls but line ends
// and tabs, and without changes of the direction of writing.
func isClean(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
	})
}

// TestHostileRequests sends every hostile text in every field. A field with a meaning
// refuses it and nothing changes; a field of data gives it back as it was. No answer is
// large or moves a terminal, and nothing is evaluated or written elsewhere.
func TestHostileRequests(t *testing.T) {
	t.Parallel()

	s, kept := hostileManager(t)
	mark := filepath.Join(s.dir, "mark")
	texts := hostileTexts(mark)

	before := s.everything()

	for _, name := range slices.Sorted(maps.Keys(hostileFields)) {
		f := hostileFields[name]

		for _, what := range slices.Sorted(maps.Keys(texts)) {
			text := texts[what]
			huge := len(text) > 64<<10

			// net/http refuses such a header itself, as does any proxy.
			withPath := strings.Contains(f.path, "%s")
			if f.header != "" && (huge || !isClean(text) || strings.Contains(text, "\n")) || withPath && huge {
				continue
			}

			status, problem, body := s.sendHostile(f, text)
			at := name + ": " + what

			switch {
			case slices.Contains(f.plain, what):
			case status >= 500 && (problem == "" || problem == string(inventory.KindInternal)):
				t.Errorf("%s: %d %s", at, status, body)
			case f.data && !huge && status != http.StatusOK:
				t.Errorf("%s: %d %s", at, status, body)
			case f.data && !huge:
				s.returnsData(at, f, text)
			case status < 400:
				t.Errorf("%s: accepted, %d %s", at, status, body)
			}

			if len(body) > 16<<10 && status >= 400 {
				t.Errorf("%s: the answer %d has %d bytes", at, status, len(body))
			}

			if status >= 400 && !isClean(body) {
				t.Errorf("%s: the answer %d is %q", at, status, body)
			}
		}

		if f.data || len(f.plain) > 0 {
			before = s.everything()
		} else if after := s.everything(); after != before {
			t.Fatalf("%s: the state changed from\n%s\nto\n%s", name, before, after)
		}
	}

	s.runHostile(texts, kept)

	if _, err := os.Stat(mark); err == nil {
		t.Error("a text was evaluated")
	}

	if log := s.log.String(); !isClean(log) {
		t.Error("the log has controls")
	}

	list, err := s.Client.Audit(s.ctx(), client.AuditFilter{}, 0)
	s.must(err)

	for _, e := range list.Items {
		if shown := fmt.Sprintf("%+v", e); !isClean(shown) || len(shown) > 32<<10 {
			t.Errorf("the audit trail has %.200q, %d bytes", shown, len(shown))
		}
	}
}

// sendHostile sends a text in a field. problem is the kind of a failure of the first
// generation.
func (s *site) sendHostile(f hostileField, text string) (status int, problem, body string) {
	s.t.Helper()

	quoted, err := json.Marshal(text)
	s.must(err)

	path := strings.ReplaceAll(f.path, "%s", url.QueryEscape(text))
	if !strings.Contains(f.path, "?") {
		path = strings.ReplaceAll(f.path, "%s", url.PathEscape(text))
	}
	req, err := http.NewRequestWithContext(s.ctx(), f.method, s.url+path,
		strings.NewReader(strings.ReplaceAll(f.body, "%s", string(quoted))))
	s.must(err)

	if f.body != "" {
		req.Header.Set("Content-Type", api.TypeJSON)
	}

	if f.header != "" {
		req.Header.Set(f.header, text)
	}

	res, err := http.DefaultClient.Do(req)
	s.must(err)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	s.must(err)

	return res.StatusCode, res.Header.Get(api.HeaderProblem), string(answer)
}

// returnsData expects a field of data to give a text back as it was.
func (s *site) returnsData(at string, f hostileField, text string) {
	s.t.Helper()

	status, body := s.get(f.path)
	if status != http.StatusOK {
		s.t.Errorf("%s: %d", at, status)
	}

	var got struct {
		Hostile any `json:"hostile"`
	}
	s.must(json.Unmarshal([]byte(body), &got))

	if list, ok := got.Hostile.([]any); ok {
		got.Hostile = list[0].(map[string]any)["a"]
	}

	if got.Hostile != text {
		s.t.Errorf("%s: got %q", at, got.Hostile)
	}
}

// runHostile runs a job with each text as a variable and as a reason. Ansible receives
// them as data: no argument and no part of the environment, in the inventory only as
// strings that are not evaluated.
func (s *site) runHostile(texts map[string]string, kept string) {
	s.t.Helper()

	vars := api.Vars{}

	for i, what := range slices.Sorted(maps.Keys(texts)) {
		if text := texts[what]; len(text) < 64<<10 {
			vars[fmt.Sprintf("hostile%d", i)] = "CANARY" + text
		}
	}

	_, err := s.Client.SetVars(s.ctx(), client.ScopeGlobal, vars)
	s.must(err)

	// The account and the key of the other requests reach no host.
	_, err = s.Client.PatchNode(s.ctx(), "node-1", api.NodePatch{Connection: &api.Connection{}})
	s.must(err)

	extra, err := json.Marshal(map[string]any{"hostile": vars})
	s.must(err)

	j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"node-1"}, ExtraVars: extra})
	if j.Status != api.Complete {
		s.t.Fatalf("%+v", j)
	}

	for _, name := range []string{"arguments", "environment"} {
		text, err := os.ReadFile(filepath.Join(kept, name))
		if s.must(err); strings.Contains(string(text), "CANARY") {
			s.t.Errorf("the %s of ansible-playbook have a variable", name)
		}
	}

	text, err := os.ReadFile(filepath.Join(kept, "inventory"))
	s.must(err)

	found := 0

	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "CANARY") {
			continue
		}

		// The value is on one line, so that it cannot be a key or an entry of its own.
		if found++; !strings.Contains(line, "!unsafe") ||
			strings.ContainsFunc(strings.TrimSpace(line), unicode.IsControl) {
			s.t.Errorf("the inventory has %q", line)
		}
	}

	if found < len(vars) {
		s.t.Errorf("the inventory has %d of %d variables", found, len(vars))
	}
}

// TestInvalidUTF8 sends bytes that are no text, in bodies, paths, queries and headers.
func TestInvalidUTF8(t *testing.T) {
	t.Parallel()

	s, _ := hostileManager(t)
	before := s.everything()

	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/jobs", "{\"verb\":\"commission\",\"nodes\":[\"node-\xff\"]}"},
		{"PUT", "/v1/vars/global", "{\"a\":\"\xc3\x28\"}"},
		{"PUT", "/v1/vars/global", "{\"\xa0\xa1\":1}"},
		{"PATCH", "/v1/nodes/node-1", "{\"labels\":{\"rack\":\"\xf0\x28\x8c\x28\"}}"},
		{"POST", "/globals", "{\"extra_vars\":{\"a\":\"\xed\xa0\x80\"}}"},
		{"POST", "/commission/nodes", "{\"nodes\":[\"node-\xff\"]}"},
		{"PUT", "/v1/vars/groups/%ff", `{"a":1}`},
		{"PUT", "/v1/vars/nodes/node-%c3%28", `{"a":1}`},
		{"PATCH", "/v1/nodes/%ff", `{"labels":{"a":"b"}}`},
		{"GET", "/v1/nodes/%ff", ""},
		{"GET", "/v1/nodes?selector=%ff", ""},
		{"GET", "/info/node/%ff", ""},
		{"POST", "/monitor/discovered/%ff", member},
	} {
		req, err := http.NewRequestWithContext(s.ctx(), c.method, s.url+c.path, strings.NewReader(c.body))
		s.must(err)
		req.Header.Set("Content-Type", api.TypeJSON)

		res, err := http.DefaultClient.Do(req)
		s.must(err)

		body, err := io.ReadAll(res.Body)
		s.must(err)
		_ = res.Body.Close()

		if res.StatusCode < 400 || res.Header.Get(api.HeaderProblem) == string(inventory.KindInternal) ||
			res.StatusCode == 500 && res.Header.Get(api.HeaderProblem) == "" || !isClean(string(body)) {
			t.Errorf("%s %s: %d %q", c.method, c.path, res.StatusCode, body)
		}
	}

	if after := s.everything(); after != before {
		t.Errorf("the state changed from\n%s\nto\n%s", before, after)
	}
}

// TestNamesMatchWhole: what is done to node-1 does not reach node-10, and the other way
// round.
func TestNamesMatchWhole(t *testing.T) {
	t.Parallel()

	s, kept := hostileManager(t)

	other := func() string {
		t.Helper()

		status, node := s.get("/v1/nodes/node-10")
		_, vars := s.get("/v1/vars/nodes/node-10?merged=true")
		_, history := s.get("/v1/nodes/node-10/history")

		if status != http.StatusOK {
			t.Fatal(status, node)
		}

		_, history, _ = strings.Cut(history, `"items":`)
		history, _, _ = strings.Cut(history, `"revision":`)

		return node + vars + history
	}

	before := other()

	rack := "r1"
	_, err := s.Client.PatchNode(s.ctx(), "node-1", api.NodePatch{
		Labels: map[string]*string{"rack": &rack}, Connection: &api.Connection{Port: 2222},
	})
	s.must(err)
	_, err = s.Client.SetVars(s.ctx(), client.ScopeNode("node-1"), api.Vars{"a": "1"})
	s.must(err)

	if j := s.runJob(
		api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"node-1"}},
	); j.Status != api.Complete {
		t.Fatalf("%+v", j)
	}

	for _, f := range []client.NodeFilter{{Names: []string{"node-1"}}, {Selector: "name=node-1"}} {
		list, err := s.Client.Nodes(s.ctx(), f)
		if s.must(err); len(list.Items) != 1 || list.Items[0].Name != "node-1" {
			t.Errorf("%+v selects %+v", f, list.Items)
		}
	}

	jobs, err := s.Client.Jobs(s.ctx(), client.JobFilter{Node: "node-10"})
	if s.must(err); len(jobs.Items) != 0 {
		t.Errorf("the jobs of node-10 are %+v", jobs.Items)
	}

	limits, err := os.ReadFile(filepath.Join(kept, "arguments"))
	if s.must(err); strings.Contains(string(limits), "node-10") {
		t.Errorf("ansible-playbook got node-10: %s", limits)
	}

	if j := s.runJob(
		api.JobRequest{Verb: inventory.VerbDecommission, Nodes: []string{"node-1"}},
	); j.Status != api.Complete {
		t.Fatalf("%+v", j)
	}

	_, err = s.Client.Forget(s.ctx(), api.Forget{Nodes: []string{"node-1"}, Force: true, Reason: "sold"})
	s.must(err)

	if after := other(); after != before {
		t.Errorf("node-10 changed from\n%s\nto\n%s", before, after)
	}

	// And a prefix of a name is no name.
	for _, name := range []string{"node", "node-", "node-1", "node-10 ", "node-1*", "NODE-10"} {
		if status, text := s.get("/v1/nodes/" + url.PathEscape(name)); status != http.StatusNotFound &&
			status != http.StatusBadRequest {
			t.Errorf("%q: %d %s", name, status, text)
		}
	}
}

// TestRequestLengths sends more or longer things than a request may have. Each limit is
// in the answer, or the thing that is too long is named, and nothing changes.
func TestRequestLengths(t *testing.T) {
	t.Parallel()

	s, _ := hostileManager(t)
	before := s.everything()

	// many is a list of texts, from 0 on.
	many := func(n int, format string) string {
		texts := make([]string, n)
		for i := range texts {
			texts[i] = strconv.Quote(fmt.Sprintf(format, i))
		}

		return strings.Join(texts, ",")
	}
	long := func(n int) string { return strconv.Quote(strings.Repeat("a", n)) }

	labels := strings.ReplaceAll(many(65, "l%d"), ",", `:"x",`)

	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/v1/jobs", `{"verb":"commission","nodes":[` + many(10_001, "n-%d") + `]}`, 400, "10000"},
		{"POST", "/v1/jobs", `{"verb":"commission","nodes":["` + strings.Repeat("n-1", 50) + `"]}`, 400, "127"},
		{"POST", "/v1/jobs", `{"verb":"commission","nodes":["node-1"],"group":` + long(64) + `}`, 404, "the groups"},
		{"POST", "/v1/jobs", `{"verb":"discover","addrs":[` + many(1025, "h%d.example") + `]}`, 400, "1024"},
		{"POST", "/v1/jobs", `{"verb":"discover","addrs":["` + strings.Repeat("a.", 200) + `a"]}`, 400, "253"},
		{"POST", "/v1/jobs", `{"verb":"discover","ranges":[` + many(65, "10.0.%d.0/24") + `]}`, 400, "64"},
		{"POST", "/v1/jobs", `{"verb":"discover","ranges":["10.0.0.0/16"]}`, 400, "1024"},
		{"POST", "/v1/jobs", `{"verb":"commission","nodes":["node-1"],"reason":` + long(1025) + `}`, 413, "1024"},
		{"POST", "/v1/jobs", `{"verb":"apply","nodes":["node-1"],"tags":[` + many(51, "t%d") + `]}`, 400, "50"},
		{"POST", "/v1/jobs", `{"verb":"apply","nodes":["a-1"],"extra_vars":{"a":` + long(3e5) + `}}`, 400, "262144"},
		{"POST", "/v1/forget", `{"nodes":["node-1"],"force":true,"reason":` + long(1025) + `}`, 413, "1024"},
		{"POST", "/v1/forget", `{"nodes":[` + many(10_001, "n-%d") + `],"force":true}`, 400, "10000"},
		{"POST", "/v1/ping", `{"nodes":[` + many(65, "n-%d") + `]}`, 400, "64"},
		{"PATCH", "/v1/nodes/node-1", `{"labels":{` + labels + `:"x"}}`, 400, "64"},
		{"PATCH", "/v1/nodes/node-1", `{"labels":{"a":` + long(64) + `}}`, 400, "63"},
		{"PATCH", "/v1/nodes/node-1", `{"labels":{` + long(64) + `:"a"}}`, 400, "63"},
		{"PUT", "/v1/vars/global", `{"a":` + long(300<<10) + `}`, 400, "262144"},
		{"PUT", "/v1/vars/global", `{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, 400, "32"},
		{"POST", "/globals", `{"extra_vars":{"a":` + long(300<<10) + `}}`, 500, "262144"},
		{"POST", "/v1/tokens", `{"role":"viewer","expires":"1h","name":` + long(64) + `}`, 400, "63"},
		{"POST", "/v1/observations", `{"observer":` + long(64) + `,"observations":[]}`, 400, "63"},
		{"POST", "/v1/observations", `{"observer":"rack","observations":[` +
			strings.Repeat(`{"label":"a","serial":"1","addr":"10.0.0.9","alive":true},`, 5000) +
			`{"label":"a","serial":"1","addr":"10.0.0.9","alive":true}]}`, 413, "5000"},
		{"PUT", "/v1/vars/global", `{"a":` + long(1<<20) + `}`, 413, "1048576"},
	} {
		req, err := http.NewRequestWithContext(s.ctx(), c.method, s.url+c.path, strings.NewReader(c.body))
		s.must(err)
		req.Header.Set("Content-Type", api.TypeJSON)

		if status, text := s.do(req); status != c.status || !strings.Contains(text, c.says) || len(text) > 4<<10 {
			t.Errorf("%s %s %.80s: %d %.500s, want %d and %q", c.method, c.path, c.body, status, text, c.status, c.says)
		}
	}

	if after := s.everything(); after != before {
		t.Errorf("the state changed from\n%s\nto\n%s", before, after)
	}
}
