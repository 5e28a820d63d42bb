// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/repository"
	"github.com/contiv/cluster/management/step/playbook"
)

// acceptAll accepts every section and every Ansible.
type acceptAll struct{}

func (acceptAll) CheckSections(Gossip, Etcd, repository.Config) error   { return nil }
func (acceptAll) CheckAnsible(context.Context, string) error            { return nil }
func (acceptAll) CheckOwner(string) error                               { return nil }
func (acceptAll) CheckPlaybooks(context.Context, playbook.Config) error { return nil }
func (acceptAll) CheckOwned(string) error                               { return nil }

func (acceptAll) CheckRepository(context.Context, playbook.Config) error { return nil }

// write writes a configuration file and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clusterm.yaml")
	errtest.None(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// checkError checks the kind of an error, and that its text contains all parts.
func checkError(t *testing.T, err error, want inventory.Kind, parts ...string) {
	t.Helper()

	if inventory.KindOf(err) != want {
		t.Errorf("the error %v has kind %q, want %q", err, inventory.KindOf(err), want)
		return
	}

	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in the error: %v", part, err)
		}
	}
}

// TestExample compares the example file with the defaults: all keys, their order
// and their values.
func TestExample(t *testing.T) {
	t.Parallel()

	f, err := Load(write(t, string(Example)), acceptAll{})
	errtest.None(t, err)
	defaults, example := entries(Default()), entries(f.Config)
	for i, want := range defaults {
		got := example[i]

		// The file may write an empty value as [], {} or nothing.
		bothZero := reflect.ValueOf(got.value).IsZero() && reflect.ValueOf(want.value).IsZero()
		if got.key != want.key || !bothZero && !reflect.DeepEqual(got.value, want.value) {
			t.Errorf("the example has %s: %#v, the defaults %s: %#v", got.key, got.value, want.key, want.value)
		}

		if !f.named[want.key] {
			t.Errorf("the example lacks the key %s", want.key)
		}
	}

	for key := range f.named {
		isEntry := func(e entry) bool { return e.key == key || strings.HasPrefix(e.key, key+".") }
		if !slices.ContainsFunc(defaults, isEntry) &&
			!strings.HasPrefix(key, "vars.") && !strings.HasPrefix(key, "groups") {
			t.Errorf("the example has the key %s, which does not exist", key)
		}
	}

	// The keys are documented in the order in which the API lists them.
	at := 0
	for _, e := range defaults {
		name := e.key[strings.LastIndexByte(e.key, '.')+1:]
		indent := strings.Repeat("  ", strings.Count(e.key, "."))

		i := strings.Index(string(Example[at:]), "\n"+indent+name+":")
		if i < 0 {
			t.Errorf("%s is out of order in the example", e.key)
			continue
		}

		at += i + 1
	}

	if _, err := Load("", acceptAll{}); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

// TestOIDCRefuses expects a section of an issuer to be complete and to name what exists.
func TestOIDCRefuses(t *testing.T) {
	t.Parallel()

	const start, rule = `oidc: {issuer: "https://a", audience: a, `, `rules: [{value: a, role: viewer`

	path := filepath.Join(t.TempDir(), "clusterm.yaml")
	load := func(text string) error {
		errtest.None(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		_, err := Load(path, acceptAll{})
		return err
	}

	errtest.None(t, load(start+rule+"}]}"))

	for text, want := range map[string]string{
		`oidc: {issuer: "http://a", audience: a, ` + rule + `}]}`:      "oidc.issuer:",
		`oidc: {issuer: "https://u:p@a", audience: a, ` + rule + `}]}`: "oidc.issuer:",
		`oidc: {issuer: "https://a?b", audience: a, ` + rule + `}]}`:   "oidc.issuer:",
		`oidc: {issuer: "https://a", ` + rule + `}]}`:                  "oidc.audience: it is empty",
		`oidc: {issuer: "https://a", audience: a}`:                     "oidc.rules: there is none",
		start + `claim: "", ` + rule + `}]}`:                           "oidc.claim:",
		start + `name_claim: "", ` + rule + `}]}`:                      "oidc.name_claim:",
		start + `ca_file: ca.pem, ` + rule + `}]}`:                     "oidc.ca_file:",
		start + `rules: [{value: a, role: root}]}`:                     "there is no role",
		start + `rules: [{value: a, role: instance}]}`:                 "is for one use, by a token",
		`plain_http_role: instance`:                                    "is for one use, by a token",
		start + `rules: [{value: "", role: viewer}]}`:                  "oidc.rules:",
		start + `rules: [{value: a, role: admin, selector: x}]}`:       "has no scope",
		start + rule + `, groups: [x]}]}`:                              "there is no group",
		start + rule + `, selector: "a in ("}]}`:                       "malformed",
		start + rule + `, rank: 1}]}`:                                  "key rank not found",
	} {
		if err := load(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %s", text, err, want)
		}
	}
}

// TestLoadRefuses checks that errors give the wrong key, and its line if there
// is one, in an operator's words.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
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
		"jobs:\n\tlimit: 3\n":               "(indent with spaces, not with tabs)",
		"jobs: {timeout: soon}\n":           `"soon" is not a duration`,
		"data_dir: /x\ndata_dir: /y\n":      "line 2: mapping key \"data_dir\" already defined",
		"data_dir: /x\n---\ndata_dir: /y\n": "more than one document",
		"- a\n":                             "line 1",
		"data_dir: relative\n":              "data_dir: \"relative\" is not an absolute path",
		"socket: relative\n":                "socket:",
		"playbooks: relative\n":             "playbooks:",
		"ansible_playbook: \"\"\n":          "ansible_playbook:",
		"plain_http: 0.0.0.0:9007\n":        "plain_http: \"0.0.0.0:9007\" is not a loopback address",
		"plain_http: localhost:9007\n":      "plain_http:",
		"listen: manager:9443\n":            "listen: \"manager:9443\" is not an IP address and port",
		"listen: 0.0.0.0\n":                 "listen:",
		"metrics_listen: :9009\n":           "metrics_listen:",
		"tls: {cert_file: c.pem}\n":         "tls.cert_file: \"c.pem\" is not an absolute path",
		"tls: {cert_file: /c.pem}\n":        "tls: cert_file and key_file belong together",
		"tls: {key_file: /k.pem}\n":         "tls: cert_file and key_file belong together",
		"tls: {client_ca_file: ca.pem}\n":   "tls.client_ca_file:",
		"oidc: {audience: a}\n":             "oidc.issuer: it is empty",
		"tls: {names: [\"a b\"]}\n":         "tls.names: \"a b\" is neither a host name nor an IP address",
		"plain_http: 127.0.0.1\n":           "plain_http:",
		"gossip: on\n":                      "gossip",
		"gossip: {rpc: \"127.0.0.1:7373\", rpc_auth_key: secret}\n": "line 1: key rpc_auth_key not found in gossip",
		"node: {label: \"a b\"}\n":                                  "node.label:",
		"node: {serial: \"-\"}\n":                                   "node.serial:",
		"node: {addr: \"10.0.0.1 x\"}\n":                            "node.addr:",
		"groups: []\n":                                              "groups: no group",
		"groups: [{name: a, requires: {b: 1}}]\n":                   "groups: group a requires group b",
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
		"jobs: {plan_for: 1s}\n":                                    "jobs.plan_for: 1s is not within 1m and 720",
		"jobs: {plans: 0}\n":                                        "jobs.plans:",
		"jobs: {timeout: 0s}\n":                                     "jobs.timeout:",
		"instances: {availability: yes}\n":                          "is neither consistency nor survivor",
		"instances: {survivor_after: 1s}\n":                         "survivor_after: 1s is not within 10s and 24h",
		"gossip: off\ninstances: {availability: survivor}\n":        "availability: survivor needs the gossip",
		"etcd: {endpoints: [\"https://b:1\"]}\ninstances: {availability: survivor}\n": "is for the etcd inside",
		"jobs: {appear: 2h}\n":       "jobs.appear: 2h is not within 1s and 1h",
		"jobs: {runner_lease: 1s}\n": "jobs.runner_lease:",
		"jobs: {keep_for: 1s}\n":     "jobs.keep_for:",
		"max_body: 1\n":              "max_body:",
		"log_level: loud\n": "log_level: \"loud\" is not error, warning, " +
			"info or debug",
	} {
		path := write(t, text)

		_, err := Load(path, acceptAll{})
		checkError(t, err, inventory.KindInvalid, want, path, "clusterm example")

		if err == nil {
			t.Errorf("%q is accepted", text)
		}

		if err != nil && strings.Contains(err.Error(), "setting.") {
			t.Errorf("%q: the error has a Go type in it: %v", text, err)
		}
	}

	_, err := Load(filepath.Join(t.TempDir(), "nope.yaml"), acceptAll{})
	checkError(t, err, inventory.KindInvalid, "cannot be read", "clusterm example")

	valid := []string{"", "# only a comment\n", "gossip: off\n", "gossip: false\n", "vars:\n", "jobs: {}\n",
		"listen: 0.0.0.0:9443\ntls: {names: [\"*.example.org\", a.example.org, \"2001:db8::1\"]}\n",
	}
	for _, text := range valid {
		if _, err := Load(write(t, text), acceptAll{}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestSocket: a file that Load refuses still names its socket.
func TestSocket(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"":                                      DefaultSocket,
		"socket: /srv/s\n":                      "/srv/s",
		"nonsense: 1\nsocket: /srv/s\n":         "/srv/s",
		"jobs: {limit: many}\nsocket: /srv/s\n": "/srv/s",
		"socket: relative\n":                    DefaultSocket,
		"socket: [/srv/s]\n":                    DefaultSocket,
		"socket: /srv/s\n\tx\n":                 DefaultSocket,
	} {
		if got := Socket(write(t, text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}

	if got := Socket(filepath.Join(t.TempDir(), "none")); got != DefaultSocket {
		t.Errorf("without a file: %s", got)
	}
}
