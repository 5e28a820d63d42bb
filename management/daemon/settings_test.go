// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/clusterctl"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/monitor/serf"
)

// TestSectionDefaults compares the defaults of the sections with those of their
// adapters.
func TestSectionDefaults(t *testing.T) {
	t.Parallel()

	if setting.DefaultBind != serf.DefaultBind {
		t.Errorf("gossip.bind is %s, the adapter has %s", setting.DefaultBind, serf.DefaultBind)
	}

	if setting.DefaultPrefix != etcd.DefaultPrefix {
		t.Errorf("etcd.prefix is %s, the adapter has %s", setting.DefaultPrefix, etcd.DefaultPrefix)
	}

	if setting.DefaultSocket != api.DefaultSocket {
		t.Errorf("socket is %s, the clients have %s", setting.DefaultSocket, api.DefaultSocket)
	}
}

// TestManagerIdentity: hosts get the identity of the store, and the data directory
// has it for other managers. A restart keeps it.
func TestManagerIdentity(t *testing.T) {
	t.Parallel()
	s := begin(t, `gossip: {bind: "127.0.3.30:0"}`, `node: {label: manager, serial: "1", addr: 127.0.3.30}`)

	read := func() (m map[string]any) {
		t.Helper()

		text, err := os.ReadFile(filepath.Join(s.dir, "d", "manager.json"))
		s.must(err)
		s.must(json.Unmarshal(text, &m))
		return m
	}

	vars := s.settings.Engine().AgentVars["clusterm_manager"]

	before := read()
	if len(before["id"].(string)) != 16 || before["name"] == "" || fmt.Sprint(vars) != fmt.Sprint(before) {
		t.Errorf("the file has %+v, hosts get %v", before, vars)
	}

	s.restart()

	if after := read(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the identity is %+v after a restart, before %+v", after, before)
	}
}

// TestSectionsRefused checks that the adapters check their sections.
func TestSectionsRefused(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "clusterm.yaml")
	for text, want := range map[string]string{
		"gossip: {bind: nonsense}\n":          "gossip",
		"gossip: {rpc: \"192.0.2.1:7373\"}\n": "gossip.rpc: \"192.0.2.1:7373\" is not a loopback address and port",
		"gossip: {rpc: localhost}\n":          "gossip.rpc:",
		"gossip: {rpc: \"127.0.0.1:7373\", bind: \"0.0.0.0:7946\"}\n": "gossip.bind: gossip.rpc names an " +
			"existing serf agent",
		"gossip: {rpc: \"127.0.0.1:7373\", advertise: \"192.0.2.1:7946\"}\n": "gossip.advertise:",
		"gossip: {rpc: \"127.0.0.1:7373\", rpc_auth_file: relative}\n": "gossip.rpc_auth_file: \"relative\" " +
			"is not an absolute path",
		"gossip: {rpc: \"127.0.0.1:7373\", join: [\"nonsense:x\"]}\n": "gossip.join:",
		"gossip: {rpc_auth_file: /etc/clusterm/rpc.key}\n": "gossip.rpc_auth_file: it is the key of an " +
			"existing serf agent",
		"etcd: {user: a}\n": "etcd.user: it is for an existing etcd",
	} {
		errtest.None(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := setting.Load(path, adapters{})
		checkError(t, err, inventory.KindInvalid, want, path, "clusterm example")
	}
}

// TestCheckFile checks that `clusterm check` finds files that are missing on this host.
func TestCheckFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()

	path := filepath.Join(dir, "clusterm.yaml")
	for text, message := range map[string]string{
		"log_level: debug\n":                  "",
		"playbooks: " + dir + "\n":            "playbooks: there is no site.yml in " + dir,
		"ssh: {key_file: " + dir + "/none}\n": "ssh.key_file cannot be read",
		"group_ssh: {service-worker: {key_file: " + dir +
			"/none}}\n": "group_ssh.service-worker.key_file cannot be read",
		"ansible_playbook: " + dir +
			"/none\n": "ansible_playbook: ansible-playbook cannot be run",
		"ansible_playbook: " + dir + "/none\nlog_level: debug\nx: [1]\n": "line 3: key x not found",
	} {
		errtest.None(t, os.WriteFile(path, []byte(text), 0o600))

		err := CheckFile(t.Context(), path)
		if message == "" && err != nil || message != "" && (err == nil || !strings.Contains(err.Error(), message)) {
			t.Errorf("%s: %v, want %q", text, err, message)
		}
	}
}

// TestFirstGenerationConfig: a reload changed only the visible configuration. Now a
// change is in force at once, has an origin, survives a restart, and can be undone.
func TestFirstGenerationConfig(t *testing.T) {
	t.Parallel()
	s := begin(t, "jobs: {limit: 3}")
	s.report("a")
	origin := func(key string) string {
		t.Helper()
		c, err := s.Client.Config(s.ctx())
		s.must(err)
		return fmt.Sprintf("%v %s %v", c[key].Value, c[key].Origin, c[key].Settable)
	}
	want := func(key, value string) {
		t.Helper()

		if got := origin(key); got != value {
			t.Errorf("%s is %s, want %s", key, got, value)
		}
	}
	set := func(patch map[string]any) error { _, err := s.Client.PatchConfig(s.ctx(), patch); return err }
	want("jobs.limit", "3 file true")
	want("jobs.forks", "50 default true")
	want("data_dir", s.dir+"/d file false")
	want("gossip", "off file false")

	s.must(
		set(
			map[string]any{
				"jobs.limit":   5,
				"jobs.timeout": "2h",
				"max_body":     2048,
				"vars":         map[string]any{"site": "lab"},
			},
		),
	)
	want("jobs.limit", "5 overlay true")

	if got := s.settings.Engine(); got.JobLimit != 5 || got.Timeout.String() != "2h0m0s" {
		t.Errorf("not in force: %+v", got)
	}

	if code, text := s.post(api.LegacyMonitorEvent, strings.Repeat(" ", 3000)+"{}"); code != 500 ||
		!strings.Contains(text, "2048") {
		t.Errorf("the limit of bodies is not in force: %d %s", code, text)
	}

	if vars, err := s.Client.MergedVars(s.ctx(), "a-1"); err != nil || fmt.Sprint(vars["site"]) != "{lab config}" {
		t.Errorf("%v, %v", vars, err)
	}

	j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	if got := j.Deadline.Sub(*j.Started).String(); got != "2h0m0s" {
		t.Errorf("the deadline is %s after the start", got)
	}

	// Refused as a whole, with the reason, and nothing changes.
	for _, tt := range []struct {
		patch   map[string]any
		kind    inventory.Kind
		message string
	}{
		{map[string]any{}, inventory.KindInvalid, "the request has no key"},
		{map[string]any{"jobs.limit": 7, "jobs.nope": 1}, inventory.KindInvalid, `no key "jobs.nope"`},
		{map[string]any{"jobs.limit": nil, "jobs.nope": nil}, inventory.KindInvalid, `no key "jobs.nope"`},
		{map[string]any{"jobs.limit": 7, "jobs.keep": 0}, inventory.KindInvalid, "jobs.keep: 0 is not within"},
		{
			map[string]any{"jobs.limit": 7, "data_dir": "/x"}, inventory.KindRefused,
			"data_dir belongs to the configuration file",
		},
		{
			map[string]any{"jobs.limit": 7, "plain_http": nil}, inventory.KindRefused,
			"plain_http belongs to the configuration file",
		},
		{map[string]any{"jobs.limit": 7, "node.label": "x"}, inventory.KindRefused, "node.label belongs"},
		{map[string]any{"jobs.limit": 7, "playbooks": "/nope"}, inventory.KindInvalid, "/nope"},
		{
			map[string]any{"jobs.limit": 7, "groups": []any{map[string]any{"name": "other"}}}, inventory.KindRefused,
			"a-1 is in service-master",
		},
		{
			map[string]any{"jobs.limit": 7, "vars": map[string]any{"ansible_user": "x"}}, inventory.KindInvalid,
			"ansible_user",
		},
		{
			map[string]any{"jobs.limit": "many"}, inventory.KindInvalid,
			"the value of jobs.limit does not fit: `many` is not a whole number",
		},
		{
			map[string]any{"vars": []any{1}}, inventory.KindInvalid,
			"the value of vars does not fit: variables must be an object",
		},
	} {
		checkError(t, set(tt.patch), tt.kind, tt.message)
		want("jobs.limit", "5 overlay true")
	}

	// A reload of the file goes under the overlay, and takes effect as a whole.
	s.write("jobs: {limit: 4, forks: 7, runner_lease: 20m}")
	s.must(s.Reload())
	want("jobs.limit", "5 overlay true")
	want("jobs.forks", "7 file true")

	if got := s.settings.Engine(); got.Lease.String() != "20m0s" || got.JobLimit != 5 {
		t.Errorf("not in force: %+v", got)
	}

	for text, message := range map[string]string{
		"jobs: {forks: 0}": "jobs.forks", "nonsense: 1": "nonsense",
		"data_dir: /elsewhere": "data_dir cannot change while clusterm runs",
		"socket: /elsewhere":   "socket", "gossip: {bind: 127.0.0.1:0}": "gossip", "plain_http: \"\"": "plain_http",
		"playbooks: /nope":        "/nope",
		"groups: [{name: other}]": "a-1 is in service-master", "node: {label: other, serial: \"1\"}": "node.label",
	} {
		s.write("jobs: {limit: 4, forks: 8}", text)

		if err := s.Reload(); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v", text, err)
		}

		want("jobs.forks", "7 file true")
	}

	s.write("jobs: {limit: 4, forks: 8}")

	s.restart()
	want("jobs.limit", "5 overlay true")
	want("jobs.forks", "8 file true")
	s.must(set(map[string]any{"jobs.limit": nil, "jobs.timeout": nil, "max_body": nil, "vars": nil}))
	want("jobs.limit", "4 file true")
	want("jobs.timeout", "1h default true")

	if got := s.settings.Engine(); got.JobLimit != 4 || len(got.Vars) != 0 {
		t.Errorf("not in force: %+v", got)
	}
}

// TestOverlayKeepsNumbers checks that numbers in the overlay reach playbooks with every
// digit, at once and after a restart.
func TestOverlayKeepsNumbers(t *testing.T) {
	t.Parallel()
	s := begin(t, "plain_http_role: admin")

	const vars = `{"big":12345678901234567890,"deep":{"list":[9007199254740993,1.0]},"id":1234567890,` +
		`"neg":-9007199254740993,"ratio":1.50,"text":"1.0"}`
	if code, text := s.post(api.LegacyConfig, `{"config":{"vars":`+vars+`}}`); code != 200 {
		t.Fatalf("%d %s", code, text)
	}

	for range 2 {
		if got, err := json.Marshal(s.settings.Engine().Vars); err != nil || string(got) != vars {
			t.Errorf("%s, %v", got, err)
		}

		if _, text := s.get(api.LegacyConfig); !strings.Contains(text, `"vars":`+vars) {
			t.Errorf("%s", text)
		}

		s.restart()
	}
}

// TestCheckReload: the check of a file finds what the running manager would refuse to reload, with the command
// that mends it.
func TestCheckReload(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.report("a")
	s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, Group: inventory.GroupMaster})

	set := func(settings map[string]any) {
		t.Helper()
		_, err := s.Client.PatchConfig(s.ctx(), settings)
		s.must(err)
	}
	expect := func(message, command, restart, file string) {
		t.Helper()
		s.write(file)

		now, err := s.Client.Config(s.ctx())
		s.must(err)
		nodes, err := s.Client.Nodes(s.ctx(), client.NodeFilter{})
		s.must(err)

		keys, err := CheckReload(s.ctx(), s.file, now, nodes.Items)
		if strings.Join(keys, " ") != restart || (err == nil) != (message == "") ||
			err != nil && !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %q, %v, want %q, %q", file, keys, err, restart, message)
		}

		e, _ := errors.AsType[*inventory.Error](err)
		if e != nil && strings.Join(api.CommandsOf("clusterctl", e.Actions), "\n") != command {
			t.Errorf("%s: the commands are %q", file, api.CommandsOf("clusterctl", e.Actions))
		}

		if refused := s.Reload(); (refused == nil) != (message == "" && restart == "") {
			t.Errorf("%s: the reload ends with %v", file, refused)
		}
	}

	const without = "groups: [{name: service-master}]"

	expect("", "", "", "jobs: {limit: 3}")
	expect("", "", "metrics_listen", "metrics_listen: 127.0.0.1:0")
	set(map[string]any{"group_ssh": map[string]any{"service-worker": map[string]any{"user": "x"}}})
	expect("group_ssh", "clusterctl config unset group_ssh", "", without)
	set(map[string]any{"group_ssh": nil})
	expect("", "", "", without)
	expect("a-1 is in service-master", "", "", "groups: [{name: other}]")
}

// TestOverlayThatNoLongerFits changes the file so that the overlay no longer fits it.
// The daemon runs with the file alone and accepts no job, and health reports the reason.
func TestOverlayThatNoLongerFits(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")
	_, err := s.Client.PatchConfig(
		s.ctx(),
		map[string]any{
			"group_ssh": map[string]any{"service-worker": map[string]any{"user": "x"}},
			"policies.commission": map[string]any{
				"x": map[string]any{"match": "label=x", "group": "service-worker", "maximum": 5},
			},
			"jobs.limit": 9,
		},
	)
	s.must(err)
	s.write("groups: [{name: other}]")
	s.restart()

	if got := s.settings.Engine(); got.JobLimit != 4 || got.Groups[0].Name != "other" {
		t.Errorf("%+v", got)
	}

	h, err := s.Health(s.ctx())
	if err != nil || h.Status != api.HealthDegraded || !strings.Contains(h.Checks["configuration"], "group_ssh") {
		t.Errorf("%+v, %v", h, err)
	}

	if c, err := s.Client.Config(s.ctx()); err != nil || c["jobs.limit"].Origin == "overlay" {
		t.Errorf("%+v, %v", c["jobs.limit"], err)
	}

	request := api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, Group: "other"}
	_, err = s.Client.Submit(s.ctx(), request)
	checkError(t, err, inventory.KindRefused, "no job is accepted", "group_ssh", "or remove what does not fit")

	e, _ := errors.AsType[*inventory.Error](err)
	for _, line := range api.CommandsOf("clusterctl -u unix://"+s.dir+"/s", e.Actions) {
		if code := clusterctl.Run(s.ctx(), strings.Fields(line), clusterctl.Options{
			Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &s.log,
		}); code != 0 {
			t.Errorf("%q ends with status %d", line, code)
		}
	}

	if got := s.settings.Engine(); got.JobLimit != 9 || got.Incomplete != nil {
		t.Errorf("what is left of the overlay is not in force: %+v", got)
	}

	if _, err := s.Client.Submit(s.ctx(), request); inventory.KindOf(err) == inventory.KindRefused &&
		strings.Contains(err.Error(), "no job is accepted") {
		t.Error(err)
	}
}

// TestOverlayWithKeysOfTheFile: an older version took keys that only the file sets by
// now. They have no effect, health names them, and the others stay in force.
func TestOverlayWithKeysOfTheFile(t *testing.T) {
	t.Parallel()
	s := begin(t)

	_, err := record.Replace(s.ctx(), s.store, &state.Overlays, "", record.Revision(s.View(), &state.Overlays, ""),
		&state.Overlay{Keys: configuration.Vars{"ansible_playbook": "/nope", "jobs.limit": 9}})
	s.must(err)

	if got := s.settings.Current(); got.Jobs.Limit != 9 || got.Ansible == "/nope" {
		t.Errorf("%+v", got)
	}

	h, err := s.Health(s.ctx())
	if err != nil || h.Checks["configuration"] != "ok" ||
		!strings.Contains(strings.Join(h.Warnings, "\n"), "clusterctl config unset ansible_playbook") {
		t.Errorf("%+v, %v", h, err)
	}

	// Other settings can be changed, and the key removed.
	for _, patch := range []map[string]any{{"jobs.limit": 8}, {"ansible_playbook": nil}} {
		_, err = s.Client.PatchConfig(s.ctx(), patch)
		s.must(err)
	}

	if h, err := s.Health(s.ctx()); err != nil || len(h.Warnings) > 0 || s.settings.Current().Jobs.Limit != 8 {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestAnsiblePlaybookIsSwitched checks that a changed ansible_playbook of the file
// runs the next checks and jobs. The API cannot change it: it runs as root.
func TestAnsiblePlaybookIsSwitched(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")
	original, err := os.ReadFile("testdata/fake/ansible-playbook")
	s.must(err)
	other := filepath.Join(s.dir, "other-playbook")
	s.must(writeProgram(other, strings.Replace(string(original), "PLAY RECAP", "RECAP OF THE OTHER", 1)))
	old := filepath.Join(s.dir, "old-playbook")
	s.must(writeProgram(old, "#!/bin/sh\necho 'ansible-playbook 2.9.6'\n"))

	_, err = s.Client.PatchConfig(s.ctx(), map[string]any{"ansible_playbook": other})
	if err == nil || !strings.Contains(err.Error(), "ansible_playbook belongs to the configuration file") {
		t.Errorf("the API changes the program to execute: %v", err)
	}

	s.write("ansible_playbook: " + other)
	s.must(s.Reload())

	j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	if _, text := s.get("/info/logs/" + j.ID); !strings.Contains(text, "RECAP OF THE OTHER") {
		t.Errorf("%s", text)
	}

	s.write("ansible_playbook: " + old)

	if err = s.Reload(); err == nil || !strings.Contains(err.Error(), "2.9.6, which is too old") {
		t.Errorf("%v", err)
	}
}

// TestBudgetThatCannotBeMet: health names a budget that keeps every node of its group in service,
// and so does the refusal of a job.
func TestBudgetThatCannotBeMet(t *testing.T) {
	t.Parallel()
	s := begin(t, "groups: [{name: service-master, budget: {min_available: 1}}]")

	warns := func() bool {
		h, err := s.Health(s.ctx())
		s.must(err)

		return strings.Contains(
			strings.Join(h.Warnings, "\n"),
			"no job can take a node of group service-master out of "+
				"service: with 1 node, min_available 1 never allows it",
		)
	}
	if warns() {
		t.Error("health warns of a group without nodes")
	}

	s.report("a")
	s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})

	if !warns() {
		t.Error("health does not name the budget")
	}

	_, err := s.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbApply, Nodes: []string{"a-1"}})
	if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), "lower min_available") {
		t.Errorf("%v", err)
	}
}

// TestFileThatIsNotInForce: health names a file on disk that does not run, and the
// reason, whether or not a reload was tried.
func TestFileThatIsNotInForce(t *testing.T) {
	t.Parallel()
	s := begin(t, "jobs: {limit: 3}")
	s.report("a")
	s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})

	healthy := func(check, warning string) {
		t.Helper()
		h, err := s.Health(s.ctx())
		s.must(err)

		if got := h.Checks["configuration"]; !strings.Contains(got, check) || (check == "ok") != (got == "ok") {
			t.Errorf("configuration: %s, want %s", got, check)
		}

		if got := strings.Join(h.Warnings, "\n"); !strings.Contains(got, warning) || warning == "" && got != "" {
			t.Errorf("the warnings are %q, want %q", got, warning)
		}
	}
	refused := func(message string) {
		t.Helper()
		_, err := s.ReloadConfig(s.ctx())
		checkError(t, err, inventory.KindRefused, message)
	}
	healthy("ok", "")

	s.write("jobs: {limit: 4}")
	healthy("ok", "not in force: jobs.limit")
	_, err := s.ReloadConfig(s.ctx())
	s.must(err)
	healthy("ok", "")

	s.write("jobs: {limit: 5}", "nonsense: 1")
	healthy("the file on disk is not in force: the configuration "+s.file+" is wrong: line ", "")
	healthy("key nonsense not found", "")
	refused("key nonsense not found")
	healthy("a restart would fail", "")

	s.write("jobs: {limit: 5}", "data_dir: /elsewhere")
	healthy("data_dir cannot change while clusterm runs", "")

	// Only a reload finds out that nodes lack their group.
	s.write("groups: [{name: other}]")
	healthy("ok", "not in force: groups")
	refused("a-1 is in service-master")
	healthy("a-1 is in service-master", "")

	s.write("jobs: {limit: 4}")
	healthy("ok", "")

	errtest.None(t, os.Remove(s.file))

	healthy("cannot be read", "")
}

// TestReloadMeetsAPatch patches the overlay during a reload. Afterwards both are in
// force.
func TestReloadMeetsAPatch(t *testing.T) {
	t.Parallel()
	s := begin(t)
	asked, gate := s.fifo("asked"), s.fifo("gate")
	slow := filepath.Join(s.dir, "slow-playbook")
	s.must(writeProgram(slow, "#!/bin/sh\n: <"+asked+"\n: <"+gate+"\necho 'ansible-playbook [core 2.16.3]'\n"))
	s.write("ansible_playbook: "+slow, "jobs: {forks: 7}")

	reloaded := make(chan error, 1)
	go func() { reloaded <- s.Reload() }()
	s.release(asked) // the new file is read, and its ansible-playbook looked at
	_, err := s.Client.PatchConfig(s.ctx(), map[string]any{"jobs.limit": 9})
	s.must(err)
	s.release(gate)
	s.must(<-reloaded)

	if got := s.settings.Current().Jobs; got.Limit != 9 || got.Forks != 7 {
		t.Errorf("limit %d of the overlay, forks %d of the file", got.Limit, got.Forks)
	}
}

// TestUndoneSecret: the history hides secrets, and an undo brings back their values.
func TestUndoneSecret(t *testing.T) {
	t.Parallel()
	s := begin(t)

	for _, password := range []string{"first", "second"} {
		_, err := s.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"db": api.Vars{"password": password}})
		s.must(err)
	}

	history, err := s.VarsHistory(s.ctx(), client.ScopeGlobal, 0)
	s.must(err)

	if text := fmt.Sprint(history); len(history.Items) != 2 || strings.Contains(text, "first") ||
		!strings.Contains(text, "(hidden)") {
		t.Errorf("the history is %s", text)
	}

	_, err = s.UndoVars(s.ctx(), client.ScopeGlobal, history.Items[0].Revision)
	s.must(err)

	if vars := fmt.Sprint(state.VarsOf(s.View(), state.ScopeGlobal)); vars != "map[db:map[password:first]]" {
		t.Errorf("the variables are %s", vars)
	}

	// The history survives a restart.
	s.restart()
	history, err = s.VarsHistory(s.ctx(), client.ScopeGlobal, 1)
	s.must(err)

	if last := history.Items[0]; last.Action != "undo" || last.Seq != 3 || history.Total != 3 {
		t.Errorf("the last change is %+v of %d", last, history.Total)
	}
}
