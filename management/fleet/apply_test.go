// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
)

// TestPending checks which changes are left to make, and which somebody else has made
// meanwhile.
func TestPending(t *testing.T) {
	t.Parallel()

	variable := Cell{Level: api.LevelGroup, Name: "g", Part: api.PartVars, Key: "v"}
	secret := Cell{Level: api.LevelManager, Part: api.PartSecrets, Key: "s"}
	timeout := Cell{Level: api.LevelManager, Part: api.PartSettings, Key: "jobs.timeout"}

	for _, tt := range []struct {
		name   string
		change write
		now    any
		again  bool
		left   int
		says   string
	}{
		{"as it was", write{variable, "a", "b"}, "a", false, 1, ""},
		{"already done", write{variable, "a", "b"}, "b", false, 0, ""},
		{"changed by somebody else", write{variable, "a", "b"}, "c", false, 0,
			"group g: variable v was changed meanwhile: it was a when the difference was made, and is c now"},
		{"removed by somebody else", write{variable, "a", "b"}, nil, false, 0, "is not set now"},
		{"set by somebody else", write{variable, nil, "b"}, "", false, 0, "it was not set when"},
		{"another spelling", write{variable, json.Number("1.50"), "b"}, 1.5, false, 1, ""},
		{"a removal that is done", write{variable, "a", nil}, nil, false, 0, ""},
		{"an empty text is no removal", write{variable, "a", nil}, "", false, 0, "was changed meanwhile"},
		{"a setting in another spelling", write{timeout, "1h0m0s", "2h"}, "2h0m0s", false, 0, ""},
		{"a secret that is not set", write{secret, nil, "x"}, nil, false, 1, ""},
		{"a secret of somebody else", write{secret, nil, "x"}, "(hidden)", false, 0, "was changed meanwhile"},
		{"a secret after a lost answer", write{secret, nil, "x"}, "(hidden)", true, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			r := &step{changes: []write{tt.change}, again: tt.again}

			left, err := r.pending(func(write) any { return tt.now })
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

	group := func(name, part, key string, value any) write {
		return write{Cell{Level: api.LevelGroup, Name: name, Part: part, Key: key}, nil, value}
	}

	got, err := now.patch([]write{
		group("old", api.PartGroup, "", nil), group("c", api.PartGroup, "", true),
		group("c", api.PartRules, "requires", map[string]any{"b": int64(1)}),
		group("b", api.PartRules, "requires", nil), group("b", api.PartConnection, "port", int64(2)),
		group("b", api.PartConnection, "user", nil), group("a", api.PartConnection, "user", nil),
		{Cell{Level: api.LevelManager, Part: api.PartSettings, Key: "jobs.limit"}, nil, int64(3)},
		{Cell{Level: api.LevelManager, Part: api.PartConnection, Key: "user"}, nil, "admin"},
	}, []string{"a", "b", "c"})

	want := map[string]any{
		"jobs.limit": int64(3),
		"ssh.user":   "admin",
		"group_ssh":  map[string]any{"b": map[string]any{"port": int64(2)}},
		"groups": []any{
			map[string]any{"name": "a"},
			map[string]any{"name": "b", "on_return": "repair"},
			map[string]any{"name": "c", "requires": map[string]any{"b": int64(1)}},
			map[string]any{"name": "new-of-others"},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
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
		e := r.structure(r.parse(api.FleetFile{Name: "f", Text: text}), typ, 1)
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

	if !same(Cell{Level: api.LevelGroup, Name: "g", Part: api.PartRules, Key: "settle"}, "1m0s", "1m") {
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

// TestMayWrite: each change takes the permission of the request that makes it without a
// fleet file.
func TestMayWrite(t *testing.T) {
	t.Parallel()

	var (
		operator = access.Identity{Principal: "o", Role: access.RoleOperator}
		scoped   = access.Identity{Principal: "s", Role: access.RoleAdmin, Scope: access.Scope{Selector: "rack=r1"}}
		admin    = access.Identity{Principal: "a", Role: access.RoleAdmin}
	)

	for _, tt := range []struct {
		cell             Cell
		operator, scoped bool
	}{
		{Cell{Level: api.LevelManager, Part: api.PartSettings, Key: "jobs.limit"}, false, false},
		{Cell{Level: api.LevelManager, Part: api.PartGroup}, false, false},
		{Cell{Level: api.LevelGroup, Name: "g", Part: api.PartConnection, Key: "user"}, false, false},
		{Cell{Level: api.LevelGroup, Name: "g", Part: api.PartRules, Key: "requires"}, false, false},
		{Cell{Level: api.LevelManager, Part: api.PartVars, Key: "v"}, true, false},
		{Cell{Level: api.LevelGroup, Name: "g", Part: api.PartSecrets, Key: "v"}, true, true},
		{Cell{Level: api.LevelNode, Name: "n", Part: api.PartConnection, Key: "user"}, false, true},
		{Cell{Level: api.LevelNode, Name: "n", Part: api.PartLabels, Key: "rack"}, true, true},
	} {
		for _, by := range []struct {
			access.Identity
			may bool
		}{{operator, tt.operator}, {scoped, tt.scoped}, {admin, true}} {
			err := mayWrite(by.Identity, tt.cell)
			if (err == nil) != by.may || err != nil && inventory.KindOf(err) != inventory.KindForbidden {
				t.Errorf("%s by %s: %v", tt.cell, by.Principal, err)
			}
		}
	}
}

// TestReadStep refuses what is no step of a difference.
func TestReadStep(t *testing.T) {
	t.Parallel()

	label := func(node string) api.FleetWrite {
		return api.FleetWrite{FleetCell: Cell{Level: api.LevelNode, Name: node, Part: api.PartLabels, Key: "rack"}}
	}
	unknown := label("a")
	unknown.Part = "lables"

	for _, changes := range [][]api.FleetWrite{nil, {unknown}, {label("a"), label("b")}} {
		_, err := Manager{}.readStep(access.Identity{Role: access.RoleAdmin}, api.FleetApply{Changes: changes})
		if inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%v: %v", changes, err)
		}
	}
}
