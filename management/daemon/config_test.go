// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestExample: the example file is the default configuration, with every key in
// it and in the order of the struct.
func TestExample(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "clusterm.yaml")
	if err := os.WriteFile(path, Example, 0o600); err != nil {
		t.Fatal(err)
	}

	c, named, err := LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}

	want := Default()
	for i, k := range keys(want) {
		got := keys(c)[i]
		// What an empty value says may be written in more than one way.
		if got.key != k.key ||
			!reflect.DeepEqual(got.value, k.value) &&
				!(reflect.ValueOf(got.value).IsZero() && reflect.ValueOf(k.value).IsZero()) {
			t.Errorf("%s is %#v in the example, by default %s is %#v", got.key, got.value, k.key, k.value)
		}

		if !named[k.key] {
			t.Errorf("the example does not name %s", k.key)
		}
	}

	for key := range named {
		if !slices.ContainsFunc(
			keys(want),
			func(k keyed) bool { return k.key == key || strings.HasPrefix(k.key, key+".") },
		) &&
			!strings.HasPrefix(key, "vars.") &&
			!strings.HasPrefix(key, "groups") {
			t.Errorf("the example names %s, which does not exist", key)
		}
	}

	// Keys are explained in the order in which they are shown.
	at := 0
	for _, k := range keys(want) {
		word := k.key[strings.LastIndexByte(k.key, '.')+1:]

		i := strings.Index(string(Example[at:]), "\n"+strings.Repeat("  ", strings.Count(k.key, "."))+word+":")
		if i < 0 {
			t.Errorf("%s is out of order in the example", k.key)
			continue
		}

		at += i + 1
	}

	if _, _, err := LoadConfig(""); err != nil {
		t.Errorf("the default configuration is refused: %v", err)
	}
}

// TestLoadConfigRefuses: what is wrong is named, with its line where it has one.
func TestLoadConfigRefuses(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	for text, says := range map[string]string{
		"data_dir: /x\nnonsense: 1\n":                  "line 2: key nonsense not found",
		"jobs:\n  limit: 1\n  nonsense: 1\n":           "line 3: key nonsense not found",
		"gossip:\n  bind: 0.0.0.0:1\n  nonsense: 1\n":  "line 3: key nonsense not found in gossip",
		"node:\n  nonsense: 1\n":                       "line 2: key nonsense not found",
		"ssh: {nonsense: 1}\n":                         "line 1: key nonsense not found",
		"group_ssh: {service-worker: {nonsense: 1}}\n": "line 1: key nonsense not found",
		"groups: [{name: a, nonsense: b}]\n":           "line 1: key nonsense not found",
		"a: b: c\n":                                    "mapping values are not allowed",
		"\x00":                                         "control characters",
		"jobs: {limit: many}\n":                        "line 1: `many` is not a whole number",
		"jobs: 3\n":                                    "line 1: `3` is not a value of the right kind",
		"jobs: [3]\n":                                  "line 1: a list is not a value of the right kind",
		"gossip: {join: none}\n":                       "line 1: `none` is not a list",
		"ssh: {become: maybe}\n":                       "line 1: `maybe` is not true or false",
		"playbooks: {a: b}\n":                          "line 1: a mapping is not text",
		"jobs: {limit: many, forks: [1]}\nx: 1\n": "line 1: `many` is not a whole number; line 1: a list is " +
			"not a whole number; line 2: key x not found",
		"jobs:\n\tlimit: 3\n":                 "(indent with spaces, not with tabs)",
		"jobs: {timeout: soon}\n":             `"soon" is not a duration`,
		"data_dir: /x\ndata_dir: /y\n":        "line 2: mapping key \"data_dir\" already defined",
		"data_dir: /x\n---\ndata_dir: /y\n":   "more than one document",
		"- a\n":                               "line 1",
		"data_dir: relative\n":                "data_dir: \"relative\" is not an absolute path",
		"socket: relative\n":                  "socket:",
		"playbooks: relative\n":               "playbooks:",
		"ansible_playbook: \"\"\n":            "ansible_playbook:",
		"plain_http: 0.0.0.0:9007\n":          "plain_http: \"0.0.0.0:9007\" is not a loopback address",
		"plain_http: localhost:9007\n":        "plain_http:",
		"plain_http: 127.0.0.1\n":             "plain_http:",
		"gossip: on\n":                        "gossip",
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
		"gossip: {rpc: \"127.0.0.1:7373\", rpc_auth_key: secret}\n": "line 1: key rpc_auth_key not found in gossip",
		"node: {label: \"a b\"}\n":                                  "node.label:",
		"node: {serial: \"-\"}\n":                                   "node.serial:",
		"node: {addr: \"10.0.0.1 x\"}\n":                            "node.addr:",
		"groups: []\n":                                              "groups: no group",
		"groups: [{name: a, needs: b}]\n":                           "groups: group a needs group b",
		"groups: [{name: cluster-node}]\n":                          "reserved",
		"vars: {ansible_user: root}\n":                              "vars:",
		"vars: [a]\n":                                               "line 1",
		"ssh: {port: 70000}\n":                                      "ssh:",
		"ssh: {key_file: relative}\n":                               "ssh:",
		"group_ssh: {nope: {user: a}}\n":                            "group_ssh:",
		"group_ssh: {service-worker: {port: -1}}\n":                 "group_ssh.service-worker:",
		"jobs: {limit: 0}\n":                                        "jobs.limit: 0 is not within 1 and 1000",
		"jobs: {forks: 1001}\n":                                     "jobs.forks:",
		"jobs: {keep: 0}\n":                                         "jobs.keep:",
		"jobs: {keep_bytes: 1}\n":                                   "jobs.keep_bytes:",
		"jobs: {output_limit: 1}\n":                                 "jobs.output_limit:",
		"jobs: {timeout: 0s}\n":                                     "jobs.timeout:",
		"jobs: {appear: 2h}\n":                                      "jobs.appear: 2h0m0s is not within 1s and 1h0m0s",
		"jobs: {runner_lease: 1s}\n":                                "jobs.runner_lease:",
		"jobs: {keep_for: 1s}\n":                                    "jobs.keep_for:",
		"max_body: 1\n":                                             "max_body:",
		"log_level: loud\n": "log_level: \"loud\" is not error, warning, " +
			"info or debug",
	} {
		path := filepath.Join(dir, "clusterm.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		_, _, err := LoadConfig(path)
		kind(t, err, inventory.KindInvalid, says, path, "clusterm example")

		if err == nil {
			t.Errorf("%q is taken", text)
		}

		if err != nil && strings.Contains(err.Error(), "daemon.") {
			t.Errorf("%q: the error speaks Go: %v", text, err)
		}
	}

	_, _, err := LoadConfig(filepath.Join(dir, "nope.yaml"))
	kind(t, err, inventory.KindInvalid, "cannot be read", "clusterm example")

	for _, text := range []string{
		"", "# only a comment\n", "gossip: off\n", "gossip: false\n", "vars:\n", "jobs: {}\n",
	} {
		path := filepath.Join(dir, "clusterm.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		if _, _, err := LoadConfig(path); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// settable are values for every key that the overlay may hold, none of them the default.
var settable = map[string]any{
	"groups":            []any{map[string]any{"name": "service-master"}, map[string]any{"name": "service-worker"}},
	"playbooks":         "/srv/playbooks",
	"ansible_playbook":  "/usr/local/bin/ansible-playbook",
	"vars":              map[string]any{"a": "b"},
	"secret_vars":       []any{"*_pin"},
	"ssh.user":          "root",
	"ssh.key_file":      "/etc/key",
	"ssh.port":          2222,
	"ssh.become":        true,
	"ssh.become_user":   "admin",
	"ssh.jump":          "gate",
	"ssh.python":        "/usr/bin/python3",
	"group_ssh":         map[string]any{"service-worker": map[string]any{"user": "worker"}},
	"jobs.limit":        9,
	"jobs.timeout":      "2h",
	"jobs.forks":        5,
	"jobs.appear":       "5m",
	"jobs.runner_lease": "20m",
	"jobs.keep":         10,
	"jobs.keep_for":     "24h",
	"jobs.keep_bytes":   1 << 21,
	"jobs.output_limit": 1 << 17,
	"max_body":          4096,
	"log_level":         "debug",
}

// TestCheckFile: `clusterm check` finds what only a look at the host can tell.
func TestCheckFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()

	path := filepath.Join(dir, "clusterm.yaml")
	for text, says := range map[string]string{
		"log_level: debug\n":                  "",
		"playbooks: " + dir + "\n":            "playbooks: there is no site.yml in " + dir,
		"ssh: {key_file: " + dir + "/none}\n": "ssh.key_file cannot be read",
		"group_ssh: {service-worker: {key_file: " + dir +
			"/none}}\n": "group_ssh.service-worker.key_file cannot be read",
		"ansible_playbook: " + dir +
			"/none\n": "ansible_playbook: ansible-playbook cannot be run",
		"ansible_playbook: " + dir + "/none\nlog_level: debug\nx: [1]\n": "line 3: key x not found",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		err := CheckFile(t.Context(), path)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// TestOverlay sets every key that may be set, alone and together: it is in
// force, the file's configuration stays as it is, and without the overlay it is
// back.
func TestOverlay(t *testing.T) {
	t.Parallel()
	yes := false
	file := Default()
	file.SSH.Become = &yes
	file.Vars = map[string]any{"file": "x"}
	file.GroupSSH["service-master"] = file.SSH
	clean := fmt.Sprintf("%+v", keys(file))

	become := file.SSH.Become
	for _, k := range keys(file) {
		value, ok := settable[k.key]
		if isFileKey(k.key) {
			_, err := overlaid(file, map[string]any{k.key: "x"})
			kind(t, err, inventory.KindRefused, k.key+" belongs to the configuration file")
			continue
		}

		if !ok {
			t.Errorf("the test has no value for %s", k.key)
			continue
		}

		c, err := overlaid(file, map[string]any{k.key: value})
		if err != nil {
			t.Errorf("%s: %v", k.key, err)
			continue
		}

		for i, got := range keys(c) {
			if changed := !reflect.DeepEqual(got.value, keys(file)[i].value); changed != (got.key == k.key) {
				t.Errorf("with %s set, %s is %v", k.key, got.key, got.value)
			}
		}

		if fmt.Sprintf("%+v", keys(file)) != clean || *become {
			t.Fatalf("%s was written into the file's configuration", k.key)
		}
	}

	c, err := overlaid(file, settable)
	if err != nil {
		t.Fatal(err)
	}

	if c.Vars["file"] != nil || len(c.GroupSSH) != 1 || c.GroupSSH["service-worker"].User != "worker" ||
		!*c.SSH.Become ||
		c.DataDir != file.DataDir {
		t.Errorf("%+v", c)
	}

	if fmt.Sprintf("%+v", keys(file)) != clean || *become {
		t.Error("the file's configuration was changed")
	}

	if again, err := overlaid(file, nil); err != nil || fmt.Sprintf("%+v", keys(again)) != clean {
		t.Errorf("without the overlay: %v, %v", again, err)
	}

	for key, value := range map[string]any{
		"nope": 1, "jobs": map[string]any{
			"limit": 1,
		}, "jobs.nope": 1, "jobs.limit": "many", "jobs.keep": 0, "groups": []any{}, "vars": map[string]any{
			"ansible_user": "x",
		},
		"ssh.become": "perhaps", "group_ssh": map[string]any{
			"nope": map[string]any{"user": "x"},
		}, "log_level": "loud", "max_body": -1, "ssh": map[string]any{"user": "x"},
	} {
		_, err := overlaid(file, map[string]any{key: value, "jobs.forks": 7, "ssh.become": value})
		kind(t, err, inventory.KindInvalid)

		if fmt.Sprintf("%+v", keys(file)) != clean || *become {
			t.Fatalf("a refusal of %s was written into the file's configuration", key)
		}
	}
}

// TestFirstGenerationConfig: a config reload changed only what was shown. Here
// what is set is in force at once, is shown with its origin, survives a restart,
// and can be taken back.
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

	if got := s.settings(); got.JobLimit != 5 || got.Timeout.String() != "2h0m0s" {
		t.Errorf("not in force: %+v", got)
	}

	if code, text := s.post(
		api.LegacyMonitorEvent,
		strings.Repeat(" ", 3000)+"{}",
	); code != 500 ||
		!strings.Contains(text, "2048") {
		t.Errorf("the limit of bodies is not in force: %d %s", code, text)
	}

	if vars, err := s.Client.MergedVars(s.ctx(), "a-1"); err != nil || fmt.Sprint(vars["site"]) != "{lab config}" {
		t.Errorf("%v, %v", vars, err)
	}

	j := s.carry(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	if got := j.Deadline.Sub(*j.Started).String(); got != "2h0m0s" {
		t.Errorf("the deadline is %s after the start", got)
	}

	// Refused as a whole, with the reason, and nothing changes.
	for _, tt := range []struct {
		patch map[string]any
		kind  inventory.Kind
		says  string
	}{
		{map[string]any{}, inventory.KindInvalid, "no key is named"},
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
		kind(t, set(tt.patch), tt.kind, tt.says)
		want("jobs.limit", "5 overlay true")
	}

	// A reload of the file goes under the overlay, and takes effect as a whole.
	s.write("jobs: {limit: 4, forks: 7, runner_lease: 20m}")
	s.must(s.Reload())
	want("jobs.limit", "5 overlay true")
	want("jobs.forks", "7 file true")

	if got := s.settings(); got.Lease.String() != "20m0s" || got.JobLimit != 5 {
		t.Errorf("not in force: %+v", got)
	}

	for text, says := range map[string]string{
		"jobs: {forks: 0}": "jobs.forks", "nonsense: 1": "nonsense",
		"data_dir: /elsewhere": "data_dir cannot change while clusterm runs",
		"socket: /elsewhere":   "socket", "gossip: {bind: 127.0.0.1:0}": "gossip", "plain_http: \"\"": "plain_http",
		"playbooks: /nope":        "/nope",
		"groups: [{name: other}]": "a-1 is in service-master", "node: {label: other, serial: \"1\"}": "node.label",
	} {
		s.write("jobs: {limit: 4, forks: 8}", text)

		if err := s.Reload(); err == nil || !strings.Contains(err.Error(), says) {
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
	want("jobs.timeout", "1h0m0s default true")

	if got := s.settings(); got.JobLimit != 4 || len(got.Vars) != 0 {
		t.Errorf("not in force: %+v", got)
	}
}

// TestOverlayKeepsNumbers: what is set at run time reaches playbooks digit by
// digit, at once and after a restart.
func TestOverlayKeepsNumbers(t *testing.T) {
	t.Parallel()
	s := begin(t)

	const vars = `{"big":12345678901234567890,"deep":{"list":[9007199254740993,1.0]},"id":1234567890,` +
		`"neg":-9007199254740993,"ratio":1.50,"text":"1.0"}`
	if code, text := s.post(api.LegacyConfig, `{"config":{"vars":`+vars+`}}`); code != 200 {
		t.Fatalf("%d %s", code, text)
	}

	for range 2 {
		if got, err := json.Marshal(s.settings().Vars); err != nil || string(got) != vars {
			t.Errorf("%s, %v", got, err)
		}

		if _, text := s.get(api.LegacyConfig); !strings.Contains(text, `"vars":`+vars) {
			t.Errorf("%s", text)
		}

		s.restart()
	}
}

// TestOverlayThatNoLongerFits: the file was changed at a restart so that the
// overlay makes no sense over it. The daemon serves by the file, and says so.
func TestOverlayThatNoLongerFits(t *testing.T) {
	t.Parallel()
	s := begin(t)
	_, err := s.Client.PatchConfig(
		s.ctx(),
		map[string]any{"group_ssh": map[string]any{"service-worker": map[string]any{"user": "x"}}, "jobs.limit": 9},
	)
	s.must(err)
	s.write("groups: [{name: other}]")
	s.restart()

	if got := s.settings(); got.JobLimit != 4 || got.Groups[0].Name != "other" {
		t.Errorf("%+v", got)
	}

	h, err := s.Health(s.ctx())
	if err != nil || h.Status != api.HealthDegraded || !strings.Contains(h.Checks["configuration"], "group_ssh") {
		t.Errorf("%+v, %v", h, err)
	}

	if c, err := s.Client.Config(s.ctx()); err != nil || c["jobs.limit"].Origin == "overlay" {
		t.Errorf("%+v, %v", c["jobs.limit"], err)
	}

	_, err = s.Client.PatchConfig(s.ctx(), map[string]any{"group_ssh": nil})
	s.must(err)

	if got := s.settings(); got.JobLimit != 9 {
		t.Errorf("what is left of the overlay is not in force: %+v", got)
	}
}

// TestAnsiblePlaybookIsSwitched: a changed ansible_playbook is the one that
// checks and runs from then on.
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
	s.must(err)

	j := s.carry(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	if _, text := s.get("/info/logs/" + j.ID); !strings.Contains(text, "RECAP OF THE OTHER") {
		t.Errorf("%s", text)
	}

	if _, err = s.Client.PatchConfig(s.ctx(), map[string]any{"ansible_playbook": old}); err == nil {
		_, err = s.Client.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbMaintenance, Nodes: []string{"a-1"}})
	}

	if err == nil || !strings.Contains(err.Error(), "2.9.6, which is too old") {
		t.Errorf("%v", err)
	}
}

// TestReloadMeetsAPatch: what is set while a reload looks at the new file is in
// force afterwards, over that file.
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

	if got := s.effective().Jobs; got.Limit != 9 || got.Forks != 7 {
		t.Errorf("limit %d of the overlay, forks %d of the file", got.Limit, got.Forks)
	}
}
