// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// formerRequest is the body that the first generation's client sends. It has the
// empty event in every request.
type formerRequest struct {
	Nodes     []string        `json:"nodes,omitempty"`
	Addrs     []string        `json:"addrs,omitempty"`
	HostGroup string          `json:"host_group,omitempty"`
	ExtraVars string          `json:"extra_vars,omitempty"`
	Job       string          `json:"job,omitempty"`
	Event     formerEvent     `json:"monitor_event"`
	Config    json.RawMessage `json:"config,omitempty"`
}

type formerEvent struct {
	Name  string                `json:"name"`
	Nodes []api.LegacyEventNode `json:"nodes"`
}

// oldClient drives a daemon as the first generation's client does: to the address
// 0.0.0.0, without knowledge of anything but the contract.
type oldClient struct{ *site }

func (f oldClient) send(method, path string, body []byte) (int, string) {
	f.t.Helper()

	req, err := http.NewRequestWithContext(f.ctx(), method, f.url+path, bytes.NewReader(body))
	f.must(err)

	req.Host = strings.Replace(req.Host, "127.0.0.1", "0.0.0.0", 1)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}

	return f.do(req)
}

func (f oldClient) request(path string, r formerRequest) (int, string) {
	f.t.Helper()
	body, err := json.Marshal(r)
	f.must(err)
	return f.send(http.MethodPost, path, append(body, '\n'))
}

// ok expects a success, and fails a refusal with each of the words in its reason.
func (f oldClient) ok(path string, r formerRequest) {
	f.t.Helper()

	if code, text := f.request(path, r); code != http.StatusOK || text != "" {
		f.t.Fatalf("POST %s: %d %s", path, code, text)
	}
}

func (f oldClient) fails(path string, r formerRequest, words ...string) {
	f.t.Helper()

	code, text := f.request(path, r)
	if code != http.StatusInternalServerError {
		f.t.Errorf("POST %s: %d %s", path, code, text)
	}

	for _, w := range words {
		if !strings.Contains(text, w) {
			f.t.Errorf("POST %s: %q is not in %q", path, w, text)
		}
	}
}

func (f oldClient) read(path string) map[string]any {
	f.t.Helper()

	code, text := f.send(http.MethodGet, path, nil)

	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); code != http.StatusOK || err != nil {
		f.t.Fatalf("GET %s: %d %s", path, code, text)
	}

	return out
}

func (f oldClient) unreadable(path string, words ...string) {
	f.t.Helper()

	code, text := f.send(http.MethodGet, path, nil)
	if code != http.StatusInternalServerError {
		f.t.Errorf("GET %s: %d %s", path, code, text)
	}

	for _, w := range words {
		if !strings.Contains(text, w) {
			f.t.Errorf("GET %s: %q is not in %q", path, w, text)
		}
	}
}

// field returns a field of a part of a node's information.
func (f oldClient) field(node, part, name string) string {
	f.t.Helper()
	section, _ := f.read("/info/node/" + node)[part].(map[string]any)
	text, _ := section[name].(string)
	return text
}

// is waits until the node has the status, as the old scenarios do.
func (f oldClient) is(node, status string) {
	f.t.Helper()
	f.eventually(node+" is "+status, func() bool { return f.field(node, "inventory_state", "status") == status })
}

func (f oldClient) inGroup(node, group string) {
	f.t.Helper()

	if got := f.field(node, "configuration_state", "host_group"); got != group {
		f.t.Errorf("%s is in %q, not in %q", node, got, group)
	}
}

func (f oldClient) event(name string, labels ...string) {
	f.t.Helper()

	e := formerEvent{Name: name}
	for _, l := range labels {
		addr := "10.0.0." + strconv.Itoa(int(l[0]-'a')+1)
		e.Nodes = append(e.Nodes, api.LegacyEventNode{Label: l, Serial: "1", Addr: addr})
	}

	f.ok("/monitor/event", formerRequest{Event: e})
}

// commission puts nodes into service. The first job of a daemon can still be
// queued when its request is answered, so it waits for the status.
func (f oldClient) commission(group string, nodes ...string) {
	f.t.Helper()
	f.ok("/commission/nodes", formerRequest{Nodes: nodes, HostGroup: group})

	for _, n := range nodes {
		f.is(n, "Allocated")
		f.inGroup(n, group)
	}
}

func (f oldClient) decommission(nodes ...string) {
	f.t.Helper()
	f.ok("/decommission/nodes", formerRequest{Nodes: nodes})

	for _, n := range nodes {
		f.is(n, "Decommissioned")
	}
}

// ended waits until a job that waits at the FIFO has ended.
func (f oldClient) ended(status string) {
	f.t.Helper()
	f.eventually("the last job is "+status, func() bool {
		code, text := f.send(http.MethodGet, "/info/job/last", nil)
		return code == http.StatusOK && strings.Contains(text, `"status":"`+status+`"`)
	})
}

func (f oldClient) withoutSite() {
	f.t.Helper()
	f.must(os.Remove(filepath.Join(f.dir, "playbooks", "site.yml")))
}

const (
	formerMaster = "service-master"
	formerWorker = "service-worker"
)

// scenario is one of the first generation's system scenarios in our words. The
// names are the rows of docs/compatibility.md.
type scenario struct {
	name string
	run  func(f oldClient)
	host bool // there is a host to discover
	// differs on purpose; run asserts the difference.
	differs bool
}

func one(node, group string) formerRequest {
	return formerRequest{Nodes: []string{node}, HostGroup: group}
}

var scenarios = []scenario{
	{name: "Commission an unknown node: refused", run: func(f oldClient) {
		f.fails("/commission/nodes", one("x-9", formerMaster), "x-9")
	}},
	{name: "Commission nodes, one of them disappeared: refused", run: func(f oldClient) {
		f.event("Disappeared", "b")
		f.fails("/commission/nodes", formerRequest{Nodes: []string{"a-1", "b-1"}, HostGroup: formerMaster}, "b-1")
		f.is("a-1", "Unallocated")
	}},
	{name: "Commission without site.yml in the folder", differs: true, run: func(f oldClient) {
		f.withoutSite()
		f.fails("/commission/nodes", one("a-1", formerMaster), "site.yml")
		f.is("a-1", "Unallocated")
		f.unreadable("/info/job/last")
	}},
	{name: "Commission nodes, one of them in service: refused, none changes", run: func(f oldClient) {
		f.commission(formerMaster, "a-1")
		both := formerRequest{Nodes: []string{"b-1", "a-1"}, HostGroup: formerMaster}
		f.fails("/commission/nodes", both, "a-1", "Allocated")
		f.is("a-1", "Allocated")
		f.is("b-1", "Unallocated")
	}},
	{name: "Commission a node", run: func(f oldClient) { f.commission(formerMaster, "a-1") }},
	{name: "Commission a master, then a worker", run: func(f oldClient) {
		f.commission(formerMaster, "a-1")
		f.commission(formerWorker, "b-1")
	}},
	{name: "Commission a master, then another", run: func(f oldClient) {
		f.commission(formerMaster, "a-1")
		f.commission(formerMaster, "b-1")
	}},
	{name: "Commission several nodes without a group", differs: true, run: func(f oldClient) {
		f.ok("/commission/nodes", formerRequest{Nodes: []string{"a-1", "b-1"}})
		f.is("b-1", "Allocated")
		f.inGroup("b-1", formerMaster)
	}},
	{name: "Commission one node without a group", differs: true, run: func(f oldClient) {
		f.commission(formerMaster, "a-1")
		f.ok("/commission/node/b-1", formerRequest{})
		f.is("b-1", "Allocated")
		f.inGroup("b-1", formerWorker)
	}},
	{name: "Commission a worker without a master: refused", run: func(f oldClient) {
		f.fails("/commission/nodes", one("a-1", formerWorker), "service-master")
		f.is("a-1", "Unallocated")
	}},
	{name: "Commission a worker while the master has disappeared: refused", run: func(f oldClient) {
		f.commission(formerMaster, "b-1")
		f.event("Disappeared", "b")
		f.fails("/commission/nodes", one("a-1", formerWorker), "service-master")
	}},
	{name: "Commission several nodes at once", run: func(f oldClient) { f.commission(formerMaster, "a-1", "b-1") }},

	{name: "Decommission a node", run: func(f oldClient) {
		f.commission(formerMaster, "a-1")
		f.decommission("a-1")
	}},
	{name: "Decommission the worker, then the master", run: func(f oldClient) {
		f.commission(formerMaster, "a-1")
		f.commission(formerWorker, "b-1")
		f.decommission("b-1")
		f.decommission("a-1")
	}},
	{name: "Decommission several nodes at once", run: func(f oldClient) {
		f.commission(formerMaster, "a-1", "b-1")
		f.decommission("a-1", "b-1")
	}},
	{name: "Decommission the last master while a worker needs it: refused", run: func(f oldClient) {
		f.commission(formerMaster, "a-1")
		f.commission(formerWorker, "b-1")
		f.fails("/decommission/nodes", one("a-1", ""), "a-1", "b-1")
		f.is("a-1", "Allocated")
	}},
	{name: "Decommission nodes, one of them disappeared", differs: true, run: func(f oldClient) {
		f.commission(formerMaster, "a-1", "b-1")
		f.event("Disappeared", "b")
		f.decommission("a-1", "b-1")
	}},
	{name: "Decommission nodes, one of them decommissioned: refused, none changes", run: func(f oldClient) {
		f.commission(formerMaster, "a-1", "b-1")
		f.decommission("a-1")
		f.fails("/decommission/nodes", formerRequest{Nodes: []string{"b-1", "a-1"}}, "a-1", "Decommissioned")
		f.is("b-1", "Allocated")
	}},

	{name: "Update nodes in their group", run: func(f oldClient) {
		f.commission(formerMaster, "a-1", "b-1")
		f.ok("/update/nodes", formerRequest{Nodes: []string{"a-1", "b-1"}, HostGroup: formerMaster})
		f.is("a-1", "Allocated")
		f.is("b-1", "Allocated")
	}},
	{name: "Update a node to another group", run: func(f oldClient) {
		f.commission(formerMaster, "a-1", "b-1")
		f.ok("/update/nodes", one("a-1", formerWorker))
		f.eventually("a-1 is a worker", func() bool {
			return f.field("a-1", "configuration_state", "host_group") == formerWorker &&
				f.field("a-1", "inventory_state", "status") == "Allocated"
		})
	}},
	{name: "Update the only master to a worker: refused", run: func(f oldClient) {
		f.commission(formerMaster, "a-1")
		f.fails("/update/nodes", one("a-1", formerWorker), "service-master")
		f.inGroup("a-1", formerMaster)
	}},
	{name: "Update a node that is not in service: refused", run: func(f oldClient) {
		f.fails("/update/nodes", one("a-1", formerMaster), "a-1", "Unallocated")
	}},
	{name: "Update without site.yml in the folder", differs: true, run: func(f oldClient) {
		f.commission(formerMaster, "a-1")
		f.withoutSite()
		f.fails("/update/nodes", one("a-1", formerMaster), "site.yml")
		f.is("a-1", "Allocated")
	}},

	{name: "Discover the address of a known node: refused", host: true, run: func(f oldClient) {
		f.fails("/discover/nodes", formerRequest{Addrs: []string{"10.0.0.1"}}, "10.0.0.1", "a-1")
		f.unreadable("/info/job/last")
	}},
	{name: "Discover a host", host: true, run: func(f oldClient) {
		f.unreadable("/info/node/host-1", "host-1")
		f.ok("/discover/nodes", formerRequest{Addrs: []string{discovered}})
		f.awaitAppear()

		e := formerEvent{Name: "Discovered", Nodes: []api.LegacyEventNode{
			{Label: "host", Serial: "1", Addr: discovered},
		}}
		f.ok("/monitor/event", formerRequest{Event: e})
		f.ended("Complete")
		f.is("host-1", "Unallocated")
	}},

	{name: "Show the active job, then the last", run: func(f oldClient) {
		gate := f.fifo("gate")
		r := one("a-1", formerMaster)
		r.ExtraVars = `{"waits_at": "` + gate + `"}`
		f.ok("/commission/nodes", r)
		// At once, without waiting for its start.
		if j := f.read("/info/job/active"); j["task"] != "commission" {
			f.t.Errorf("%v", j)
		}

		f.release(gate)
		f.ended("Complete")

		if j := f.read("/info/job/last"); j["task"] != "commission" || j["error"] != "" {
			f.t.Errorf("%v", j)
		}
	}},
	{name: "Show the active and the last job without any: refused", run: func(f oldClient) {
		f.unreadable("/info/job/active", "no job is running")
		f.unreadable("/info/job/last", "no job has ended")
	}},
	{name: "Show a job with a wrong label: refused", run: func(f oldClient) { f.unreadable("/info/job/foo", "foo") }},

	{name: "Set and show the globals", run: func(f oldClient) {
		f.ok("/globals", formerRequest{ExtraVars: `{"foo":"bar"}`})

		if vars, _ := f.read("/info/globals")["extra_vars"].(map[string]any); vars["foo"] != "bar" || len(vars) != 1 {
			f.t.Errorf("%v", vars)
		}
	}},
	{name: "Set the globals to malformed JSON: refused, none changes", run: func(f oldClient) {
		f.ok("/globals", formerRequest{ExtraVars: `{"foo":"bar"}`})
		f.fails("/globals", formerRequest{ExtraVars: `{"foo":}`}, "extra_vars", "line 1, column 7")

		if vars, _ := f.read("/info/globals")["extra_vars"].(map[string]any); vars["foo"] != "bar" {
			f.t.Errorf("%v", vars)
		}
	}},
	{name: "Show an unknown node: refused", run: func(f oldClient) { f.unreadable("/info/node/x-9", "x-9") }},
	{name: "Show a node", run: func(f oldClient) {
		n := f.read("/info/node/a-1")
		for _, part := range []string{"monitoring_state", "inventory_state", "configuration_state"} {
			if n[part] == nil {
				f.t.Errorf("%s is missing: %v", part, n)
			}
		}
	}},
	{name: "Show all nodes", run: func(f oldClient) {
		if all := f.read("/info/nodes"); all["a-1"] == nil || all["b-1"] == nil || len(all) != 2 {
			f.t.Errorf("%v", all)
		}
	}},

	{name: "Restart the manager: every status is kept", run: func(f oldClient) {
		f.commission(formerMaster, "a-1")
		f.commission(formerWorker, "b-1")
		f.decommission("b-1")
		f.restart()
		f.is("a-1", "Allocated")
		f.is("b-1", "Decommissioned")
	}},
	{name: "Request a job while another one is active", differs: true, run: func(f oldClient) {
		gate := f.fifo("gate")
		r := one("a-1", formerMaster)
		r.ExtraVars = `{"waits_at": "` + gate + `"}`
		f.ok("/commission/nodes", r)
		f.ok("/commission/nodes", one("b-1", formerWorker))
		f.is("b-1", "Unallocated")
		f.release(gate)
		f.is("a-1", "Allocated")
		f.is("b-1", "Allocated")
		f.decommission("b-1")
	}},
	{name: "The manager's own host disappears: it serves on", run: func(f oldClient) {
		f.event("Disappeared", "a")
		f.commission(formerMaster, "b-1")
		f.event("Discovered", "a")
		f.is("a-1", "Unallocated")
	}},

	{name: "Change the Ansible configuration", run: func(f oldClient) {
		config, _ := f.read("/config")["config"].(map[string]any)
		ansible, _ := config["ansible"].(map[string]any)
		ansible["user"], ansible["extra_variables"] = "operator", `{"env":"prod"}`

		body, err := json.Marshal(config)
		f.must(err)
		f.ok("/config", formerRequest{Config: body})

		config, _ = f.read("/config")["config"].(map[string]any)
		ansible, _ = config["ansible"].(map[string]any)
		ssh, _ := config["ssh"].(map[string]any)

		if ansible["user"] != "operator" || ssh["user"] != "operator" ||
			ansible["extra_variables"] != `{"env":"prod"}` {
			f.t.Errorf("%v %v", ansible, ssh)
		}
	}},
	{name: "Change another part of the configuration: refused", run: func(f oldClient) {
		f.refusesConfig(map[string]string{
			`{"serf":{"Addr":"127.0.0.1:7374"}}`:                   "serf.Addr",
			`{"inventory":{"boltdb":{"dbfile":"/tmp/db"}}}`:        "inventory.boltdb",
			`{"manager":{"addr":"0.0.0.0:1"}}`:                     "plain_http",
			`{"ansible":{"user":"x"},"manager":{"addr":"[::]:1"}}`: "plain_http",
		})
	}},
}

// refusesConfig expects a refusal of each configuration with the word in its reason,
// and no change.
func (f oldClient) refusesConfig(configs map[string]string) {
	f.t.Helper()

	for config, word := range configs {
		before := f.read("/config")
		f.fails("/config", formerRequest{Config: json.RawMessage(config)}, word)

		was, err := json.Marshal(before)
		f.must(err)
		is, err := json.Marshal(f.read("/config"))
		f.must(err)

		if !bytes.Equal(was, is) {
			f.t.Errorf("%s changed the configuration", config)
		}
	}
}

// TestFormerConfigurationMistakes: the first generation took any text for a value, and
// ignored a key that it did not know. Both are refused.
func TestFormerConfigurationMistakes(t *testing.T) {
	t.Parallel()

	oldClient{begin(t, "plain_http_role: admin")}.refusesConfig(map[string]string{
		`{"ansible":{"configure-playbook":"other.yml"}}`:       "ansible.configure-playbook",
		`{"ansible":{"user":"x","what":1}}`:                    "ansible.what",
		`{"ansible":{"extra_variables":"{\"a\":}"}}`:           "extra_variables",
		`{"ansible":{"user":"x"},"ssh":{"user":"y"}}`:          "ssh.user",
		`{"ansible":{"playbook-location":"/no/such/folder"}}`:  "/no/such/folder",
		`{"ansible":{"priv_key_file":"/no/such/key"},"x":[1]}`: "x",
	})
}

// TestFormerConfigurationOfEveryKey: the first generation's client sends every key that it knows,
// with an empty value for what its file left out. Only the others are a change.
func TestFormerConfigurationOfEveryKey(t *testing.T) {
	t.Parallel()

	f := oldClient{begin(t, "plain_http_role: admin")}

	// As its client encodes {"ansible": {"user": …, "extra-variables": …}}.
	send := func(user, vars string) json.RawMessage {
		return json.RawMessage(`{"serf":{"Addr":"","AuthKey":"","Timeout":0},"inventory":{},"ansible":{` +
			`"configure-playbook":"","cleanup-playbook":"","upgrade-playbook":"","playbook-location":"",` +
			`"extra-variables":` + strconv.Quote(vars) + `,"user":` + strconv.Quote(user) +
			`,"priv_key_file":""},"manager":{"addr":""}}`)
	}
	ansible := func(name string) any {
		config, _ := f.read("/config")["config"].(map[string]any)
		section, _ := config["ansible"].(map[string]any)
		return section[name]
	}

	f.ok("/config", formerRequest{Config: send("operator", `{"env":"prod"}`)})
	before := f.read("/config")
	f.ok("/config", formerRequest{Config: send("", "")})

	if after := f.read("/config"); !reflect.DeepEqual(after, before) {
		t.Errorf("empty values changed the configuration\n%v\n%v", before, after)
	}

	if ansible("user") != "operator" || ansible("extra_variables") != `{"env":"prod"}` {
		t.Errorf("user %v, variables %v", ansible("user"), ansible("extra_variables"))
	}

	// What was read may be sent back, as it came and in another envelope.
	code, text := f.send(http.MethodGet, "/config", nil)
	if code != http.StatusOK {
		t.Fatal(text)
	}
	if code, answer := f.send(http.MethodPost, "/config", []byte(text)); code != http.StatusOK {
		t.Errorf("the answer of GET: %d %s", code, answer)
	}

	f.ok("/config", formerRequest{Config: json.RawMessage(text)})
	f.ok(
		"/config",
		formerRequest{Config: json.RawMessage(strings.Replace(text, `"user":"operator"`, `"user":"root"`, 1))},
	)

	if ansible("user") != "root" {
		t.Errorf("the user is %v", ansible("user"))
	}

	f.refusesConfig(map[string]string{`{"serf":{"Addr":"","AuthKey":"x"}}`: "serf.AuthKey"})
}

// TestRectifyAndPostAgain: a commission fails because ssh reaches no host. The nodes are as they were, and once the
// cause is mended, the same request succeeds.
func TestRectifyAndPostAgain(t *testing.T) {
	t.Parallel()

	f := oldClient{begin(t, "plain_http_role: admin")}
	f.event("Discovered", "a", "b")

	cut := filepath.Join(t.TempDir(), "cut")
	f.must(os.WriteFile(cut, nil, 0o600))

	request := formerRequest{
		Nodes: []string{"a-1", "b-1"}, HostGroup: formerMaster, ExtraVars: `{"cut_by": ` + strconv.Quote(cut) + `}`,
	}

	f.ok("/commission/nodes", request)
	f.ended("Errored")
	f.is("a-1", "Unallocated")
	f.is("b-1", "Unallocated")

	f.must(os.Remove(cut))
	f.ok("/commission/nodes", request)

	for _, node := range request.Nodes {
		f.is(node, "Allocated")
		f.inGroup(node, formerMaster)
	}
}

// TestScenarios replays the first generation's system scenarios through its
// contract.
func TestScenarios(t *testing.T) {
	t.Parallel()

	for _, c := range scenarios {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			f := oldClient{prepare(t, "plain_http_role: admin")}
			if c.host {
				f.site = prepareHost(t)
			}
			f.upWithHost()
			f.event("Discovered", "a", "b")
			c.run(f)
		})
	}
}

var (
	scenarioRow = regexp.MustCompile(`(?m)^\| (\d+) \| (.+) \| (.+) \|$`)
	testRow     = regexp.MustCompile("(?m)^\\| .+ \\| .+ \\| `(Test\\w+)` \\|$")
	testLink    = regexp.MustCompile("`(Test\\w+)`")
)

// TestCompatibilityPage compares the page with the scenarios, and expects each test
// that it names to exist.
func TestCompatibilityPage(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("../../docs/compatibility.md")
	errtest.None(t, err)
	rows := scenarioRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) != len(scenarios) || len(scenarios) != 38 {
		t.Fatalf("the page has %d scenarios, the test %d", len(rows), len(scenarios))
	}

	for i, row := range rows {
		want := scenarios[i]
		if row[1] != strconv.Itoa(i+1) || row[2] != want.name {
			t.Errorf("row %s is %q, want %d %q", row[1], row[2], i+1, want.name)
		}
		if strings.HasPrefix(row[3], "differs: ") != want.differs {
			t.Errorf("row %s: %q, but differs is %t", row[1], row[3], want.differs)
		}
	}

	named := map[string]bool{}
	for _, m := range testLink.FindAllStringSubmatch(string(text), -1) {
		named[m[1]] = false
	}

	err = filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}

		source, err := os.ReadFile(path)
		for name := range named {
			named[name] = named[name] || bytes.Contains(source, []byte("\nfunc "+name+"(t *testing.T)"))
		}

		return err
	})
	errtest.None(t, err)

	for name, found := range named {
		if !found {
			t.Errorf("the page names %s, which is no test", name)
		}
	}

	if len(testRow.FindAllString(string(text), -1)) < 15 {
		t.Error("the page has too few rows with a test")
	}
}

var configRow = regexp.MustCompile(
	"(?m)^\\| `((?:ansible|manager|serf|inventory)\\.[\\w.]+)` \\| (?:`([\\w.]+)`|always `([\\w.-]+)`|refused)",
)

// TestFormerConfiguration sets each former key of the page: a key with an
// equivalent shows its value there, and any other is refused by its name.
func TestFormerConfiguration(t *testing.T) {
	t.Parallel()
	f := oldClient{begin(t, "plain_http_role: admin")}

	text, err := os.ReadFile("../../docs/compatibility.md")
	f.must(err)

	rows := configRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 10 {
		t.Fatalf("the page has %d keys", len(rows))
	}

	key := filepath.Join(f.dir, "key")
	f.must(os.WriteFile(key, []byte("x"), 0o600))

	values := map[string]string{
		"playbooks": filepath.Join(f.dir, "playbooks"), "ssh.user": "operator", "ssh.key_file": key,
		"vars": `{"a":"b"}`,
	}

	for _, row := range rows {
		section, name, _ := strings.Cut(row[1], ".")
		set := func(value string) formerRequest {
			body, err := json.Marshal(map[string]any{section: map[string]any{name: value}})
			f.must(err)
			return formerRequest{Config: body}
		}

		now, fixed := row[2], row[3]

		value, settable := values[now]
		switch {
		case fixed != "":
			f.ok("/config", set(fixed))
			f.fails("/config", set("other.yml"), row[1], fixed)
		case settable:
			f.ok("/config", set(value))

			all, err := f.Client.Config(f.ctx())
			f.must(err)

			got := all[now].Value
			if encoded, err := json.Marshal(got); got != value && (err != nil || string(encoded) != value) {
				t.Errorf("%s: %s is %v, want %s", row[1], now, got, value)
			}
		default:
			f.fails("/config", set("x"), cmp.Or(now, name))
		}
	}
}

// TestFormerConfigurationDuringAJob changes the configuration while a job runs: the
// change is in force at once, and the job goes on as it was accepted.
func TestFormerConfigurationDuringAJob(t *testing.T) {
	t.Parallel()
	f := oldClient{begin(t, "plain_http_role: admin")}
	f.report("a b")

	gate := f.fifo("gate")
	r := one("a-1", formerMaster)
	r.ExtraVars = `{"waits_at": "` + gate + `"}`
	f.ok("/commission/nodes", r)
	f.is("a-1", "Provisioning")

	other := filepath.Join(f.dir, "other")
	f.must(os.CopyFS(other, os.DirFS(filepath.Join(f.dir, "playbooks"))))
	f.must(os.WriteFile(filepath.Join(other, "more.yml"), nil, 0o600))

	body, err := json.Marshal(map[string]any{"ansible": map[string]any{"playbook_location": other, "user": "operator"}})
	f.must(err)
	f.ok("/config", formerRequest{Config: body})

	if j := f.read("/info/job/active"); j["task"] != "commission" {
		t.Errorf("the job does not run any more: %v", j)
	}

	now, err := f.Client.Config(f.ctx())
	f.must(err)

	if now["playbooks"].Value != other || now["ssh.user"].Value != "operator" {
		t.Errorf("in force: %v, %v", now["playbooks"].Value, now["ssh.user"].Value)
	}

	f.release(gate)
	f.ended("Complete")
	f.is("a-1", "Allocated")
	f.commission(formerMaster, "b-1")

	first, err := f.Client.Job(f.ctx(), "1")
	f.must(err)

	next, err := f.Client.Job(f.ctx(), "2")
	f.must(err)

	if first.PlaybookDigest == next.PlaybookDigest {
		t.Error("the next job runs the former playbooks")
	}
}
