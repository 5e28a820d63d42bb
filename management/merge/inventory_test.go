// SPDX-License-Identifier: Apache-2.0

package merge_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/state/statetest"
)

// TestInventory: a node has the variables and the connection of a run, and no
// secret of any level.
func TestInventory(t *testing.T) {
	t.Parallel()

	n := &inventory.Node{
		Name: "web-1", Label: "web", Serial: "1", Addr: "10.0.0.7", Status: inventory.Quarantined,
		State: inventory.Disappeared, Group: "service-worker", Labels: map[string]string{"rack": "r1"},
		Hardware: &inventory.Hardware{MemoryMB: 65536},
	}
	connections := map[string]*configuration.Connection{"web-1": {Port: 2222}, "web-10": {Port: 23}}
	view := &state.View{
		Snapshot: job.Snapshot{View: record.With(record.View{}, &state.Connections, connections)},
	}
	view.SetNodes(n)

	for scope, vars := range map[state.Scope]configuration.Vars{
		state.ScopeGlobal:                  {"motd": "global", "only": "{{ global }}", "api_token": "s3cret"},
		state.ScopeGroup("service-worker"): {"motd": "group"},
		state.ScopeNode("web-1"):           {"motd": "node", "db": map[string]any{"password": "s3cret", "host": "h"}},
		state.ScopeNode("web-10"):          {"motd": "another node"},
	} {
		statetest.SetVars(view, scope, vars)
	}

	settings := merge.Settings{
		Vars:        configuration.Vars{"motd": "file", "path": "{{ only }}", "file_secret": "s3cret"},
		Secrets:     configuration.DefaultSecrets(),
		Connection:  configuration.Connection{User: "admin"},
		Connections: map[string]configuration.Connection{"service-worker": {Jump: "gate"}},
	}

	got, err := merge.NewMerger(view, settings).Inventory(n)
	errtest.None(t, err)
	text, err := json.Marshal(got)
	errtest.None(t, err)
	if strings.Contains(string(text), "s3cret") || strings.Contains(string(text), configuration.Hidden) {
		t.Errorf("the answer contains a secret, or a text in its place: %s", text)
	}

	if want := []string{"api_token", "db.password", "file_secret"}; !slices.Equal(got.Omitted, want) {
		t.Errorf("omitted %v, want %v", got.Omitted, want)
	}

	for name, want := range map[string]any{
		"motd": "node", "only": "{{ global }}", "node_commissioned": false,
		"ansible_user": "admin", "ansible_port": 2222,
		"clusterm_status": "Quarantined", "clusterm_state": "Disappeared", "node_group": "service-worker",
		"ansible_ssh_common_args": "-o HostKeyAlias=web-1 -o StrictHostKeyChecking=accept-new -o ProxyJump=gate",
	} {
		if got.Data[name] != want {
			t.Errorf("%s is %v, want %v", name, got.Data[name], want)
		}
	}

	if found, _ := got.Data["node_facts"].(map[string]any); found["memory_mb"] != json.Number("65536") {
		t.Errorf("node_facts: %v", got.Data["node_facts"])
	}

	if len(got.Templates) != 1 || got.Templates["path"] != "{{ only }}" {
		t.Errorf("templates: %v", got.Templates)
	}
}

// TestInventorySettings: each setting that an answer depends on changes the bytes.
func TestInventorySettings(t *testing.T) {
	t.Parallel()

	yes := true
	seen := map[string]bool{}

	for _, s := range []merge.Settings{
		{},
		{Vars: configuration.Vars{"a": "b"}},
		{Secrets: configuration.Secrets{"a"}},
		{Connection: configuration.Connection{Become: &yes}},
		{Connections: map[string]configuration.Connection{"g": {Become: &yes}}},
	} {
		b, err := merge.NewMerger(&state.View{}, s).Settings()
		errtest.None(t, err)
		if seen[string(b)] {
			t.Errorf("%+v has the bytes of others: %s", s, b)
		}

		seen[string(b)] = true
	}
}
