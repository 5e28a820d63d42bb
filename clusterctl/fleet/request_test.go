// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestPending checks which changes are left to make, and which somebody else has made
// meanwhile.
func TestPending(t *testing.T) {
	t.Parallel()

	variable := Cell{LevelGroup, "g", PartVars, "v"}
	secret := Cell{LevelManager, "", PartSecrets, "s"}
	timeout := Cell{LevelManager, "", PartSettings, "jobs.timeout"}

	for _, tt := range []struct {
		name   string
		change Change
		now    any
		again  bool
		left   int
		says   string
	}{
		{"as it was", Change{Cell: variable, Before: "a", After: "b"}, "a", false, 1, ""},
		{"already done", Change{Cell: variable, Before: "a", After: "b"}, "b", false, 0, ""},
		{"changed by somebody else", Change{Cell: variable, Before: "a", After: "b"}, "c", false, 0,
			"group g: variable v was changed meanwhile: it was a when the difference was made, and is c now"},
		{"removed by somebody else", Change{Cell: variable, Before: "a", After: "b"}, nil, false, 0, "is not set now"},
		{"set by somebody else", Change{Cell: variable, After: "b"}, "", false, 0, "it was not set when"},
		{"another spelling", Change{Cell: variable, Before: json.Number("1.50"), After: "b"}, 1.5, false, 1, ""},
		{"a removal that is done", Change{Cell: variable, Before: "a"}, nil, false, 0, ""},
		{"an empty text is no removal", Change{Cell: variable, Before: "a"}, "", false, 0, "was changed meanwhile"},
		{"a setting in another spelling", Change{Cell: timeout, Before: "1h0m0s", After: "2h"}, "2h0m0s", false, 0, ""},
		{"a secret that is not set", Change{Cell: secret, After: "(hidden)", value: "x"}, nil, false, 1, ""},
		{"a secret of somebody else", Change{Cell: secret, After: "(hidden)", value: "x"}, "(hidden)", false, 0,
			"was changed meanwhile"},
		{"a secret after a lost answer", Change{Cell: secret, After: "(hidden)", value: "x"}, "(hidden)", true, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			r := &request{changes: []Change{tt.change}, again: tt.again}

			left, err := r.pending(func(Change) any { return tt.now })
			if len(left) != tt.left || (err == nil) != (tt.says == "") {
				t.Fatalf("%v left, %v", left, err)
			}

			if err != nil && (!strings.Contains(err.Error(), tt.says) ||
				inventory.KindOf(err) != inventory.KindPrecondition) {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
}

// TestPatch checks that a change of groups keeps changes of others in other
// groups, and rules that this program does not know.
func TestPatch(t *testing.T) {
	t.Parallel()

	now := Config{
		Groups: []map[string]any{
			{"name": "new-of-others"},
			{"name": "b", "requires": map[string]any{"a": int64(1)}, "on_return": "repair"},
			{"name": "a"},
			{"name": "old"},
		},
		GroupSSH: map[string]map[string]any{"a": {"user": "root"}, "b": {"port": int64(1), "user": "x"}},
	}

	group := func(name, part, key string, value any) Change {
		return Change{Cell: Cell{LevelGroup, name, part, key}, After: value, value: value}
	}

	got := now.patch([]Change{
		group("old", PartGroup, "", nil), group("c", PartGroup, "", true),
		group("c", PartRules, "requires", map[string]any{"b": int64(1)}),
		group("b", PartRules, "requires", nil), group("b", PartConnection, "port", int64(2)),
		group("b", PartConnection, "user", nil), group("a", PartConnection, "user", nil),
		{Cell: Cell{LevelManager, "", PartSettings, "jobs.limit"}, value: int64(3)},
		{Cell: Cell{LevelManager, "", PartConnection, "user"}, value: "admin"},
	}, []string{"a", "b", "c"})

	want := map[string]any{
		"jobs.limit": int64(3),
		"ssh.user":   "admin",
		"group_ssh":  map[string]map[string]any{"b": {"port": int64(2)}},
		"groups": []map[string]any{
			{
				"name": "a",
			},
			{"name": "b", "on_return": "repair"},
			{"name": "c", "requires": map[string]any{"b": int64(1)}},
			{"name": "new-of-others"},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestRulesFollowTheirTypes checks that a rule of any type, as a group may get one, is
// read, described and compared without code of its own.
func TestRulesFollowTheirTypes(t *testing.T) {
	t.Parallel()

	type rules struct {
		Needs  string            `json:"needs"`
		Settle api.Duration      `json:"settle,omitempty"`
		Modes  map[string]string `json:"modes"`
		Hosts  []string          `json:"hosts"`
		Brake  *struct {
			Share int  `json:"share"`
			On    bool `json:"on"`
		} `json:"brake"`
		Name string `json:"-"`
	}

	typ := reflect.TypeFor[rules]()
	readAs := func(text string) (any, []Problem) {
		r := &reader{file: "f"}

		e := r.structure(r.parse(Source{"f", []byte(text)}), typ, 1)

		return e.tree(), r.problems
	}

	got, problems := readAs("{needs: a, settle: 1m, modes: {x: y}, hosts: [h], brake: {share: 3, on: true}}")
	want := map[string]any{
		"needs": "a", "settle": "1m", "modes": map[string]any{"x": "y"}, "hosts": []any{"h"},
		"brake": map[string]any{"share": int64(3), "on": true},
	}

	if !reflect.DeepEqual(got, want) || len(problems) > 0 {
		t.Errorf("%v: %v", got, problems)
	}

	for _, wrong := range []string{
		"{settle: 1}", "{modes: [x]}", "{hosts: h}", "{brake: {share: x}}", "{brake: {shar: 1}}", "{name: x}",
	} {
		if _, problems := readAs(wrong); len(problems) != 1 {
			t.Errorf("%s: %v", wrong, problems)
		}
	}

	schema, err := json.Marshal(schemaOf(typ))
	if err != nil || !strings.Contains(string(schema), `"settle":{"type":["string","null"]}`) ||
		!strings.Contains(string(schema), `"hosts":{"type":["array","null"],"items":{"type":"string"}}`) {
		t.Errorf("%s: %v", schema, err)
	}

	if !same(Cell{LevelGroup, "g", PartRules, "settle"}, "1m0s", "1m") {
		t.Error("1m differs from 1m0s")
	}
}

// TestSameWithin: durations and sizes mean the same in each of their forms, also within lists.
func TestSameWithin(t *testing.T) {
	t.Parallel()

	windows := func(duration any) any {
		return []any{map[string]any{"name": "w", "duration": duration, "size": int64(2)}}
	}
	rule := func(size any) any { return map[string]any{"f": map[string]any{"max_unavailable": size}} }

	for _, pair := range [][2]any{
		{windows("1h"), windows("1h0m0s")}, {rule(int64(2)), rule("2")}, {[]any{}, nil}, {"90m", "1h30m0s"},
	} {
		if !sameSetting(pair[0], pair[1]) {
			t.Errorf("%v and %v differ", pair[0], pair[1])
		}
	}

	for _, pair := range [][2]any{
		{windows("1h"), windows("2h")}, {rule(int64(2)), rule("2%")}, {[]any{"1h"}, []any{"1h", "2h"}},
		{rule(int64(2)), map[string]any{"g": map[string]any{"max_unavailable": "2"}}}, {windows("1h"), rule("1h")},
	} {
		if sameSetting(pair[0], pair[1]) {
			t.Errorf("%v and %v are the same", pair[0], pair[1])
		}
	}
}
