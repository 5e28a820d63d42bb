// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

func TestShellQuote(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "''",
		"unix:///run/a.sock": "unix:///run/a.sock",
		"a b":                "'a b'",
		"it's":               `'it'\''s'`,
	} {
		if got := api.ShellQuote(text); got != want {
			t.Errorf("ShellQuote(%q) = %s, want %s", text, got, want)
		}
	}
}

// TestActionRoundTrip expects a request for every action, and the same action
// after its way over the wire.
func TestActionRoundTrip(t *testing.T) {
	for _, row := range inventory.Actions {
		a := inventory.Action{
			Name:       row.Name,
			Verb:       inventory.VerbUpdate,
			Nodes:      []string{"web-1"},
			Addrs:      []string{"10.0.0.1"},
			Group:      "g",
			Job:        "5",
			Plan:       "3f9a1c20-7b1e44d2",
			Rollout:    "r7b1e44d2",
			Timeout:    2 * time.Hour,
			Failed:     true,
			JobOptions: inventory.JobOptions{Force: true},
			Key:        "k",
			Value:      "v",
		}

		text, err := json.Marshal(api.ActionsOf([]inventory.Action{a}))
		errtest.None(t, err)

		var wire []api.Action
		errtest.None(t, json.Unmarshal(text, &wire))

		if wire[0].Method == "" || !strings.HasPrefix(wire[0].Path, "/v1/") || strings.Contains(wire[0].Path, "{") {
			t.Errorf("%s has the request %q %q", row.Name, wire[0].Method, wire[0].Path)
		}

		if got := api.RestoreActions(wire); !reflect.DeepEqual(got, []inventory.Action{a}) {
			t.Errorf("%s arrives as %s", a, got)
		}
	}
}

// TestCommandWithHiddenValues: a command line shows no text that stands for a value. It names
// a file that the operator makes, and the request has the text, which a manager refuses.
func TestCommandWithHiddenValues(t *testing.T) {
	again := inventory.Submit(inventory.VerbReapply, "web-1")

	for _, c := range []struct {
		extra map[string]any
		want  string
	}{
		{map[string]any{"nap": "(hidden)"}, "clusterctl nodes apply web-1 --clean -e @FILE-with-nap"},
		{
			map[string]any{"release": "2.1", "users": []any{map[string]any{"pin": "(hidden)"}}},
			`clusterctl nodes apply web-1 --clean -e '{"release":"2.1"}' -e @FILE-with-users`,
		},
		{
			map[string]any{"e": "(hidden)", "d": "(hidden)", "c": "(hidden)", "b": "(hidden)", "a": "not (hidden)"},
			`clusterctl nodes apply web-1 --clean -e '{"a":"not (hidden)"}' -e @FILE-with-b-and-c-and-d-and-1-more`,
		},
	} {
		again.Extra = c.extra
		actions := []inventory.Action{again}
		wire := api.ActionsOf(actions)

		for _, a := range [][]inventory.Action{actions, api.RestoreActions(wire)} {
			if got := api.CommandsOf("clusterctl", a); !slices.Equal(got, []string{c.want}) {
				t.Errorf("%v is %s, want %s", c.extra, got, c.want)
			}
		}

		if !strings.Contains(string(wire[0].Body), "(hidden)") {
			t.Errorf("the request lacks variables: %s", wire[0].Body)
		}
	}
}
