// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
)

func TestParseVars(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", `{}`},
		{" \n", `{}`},
		{"null", `{}`},
		{"# only a comment", `{}`},
		{
			`{"a": 1, "b": [1.50, true, null, "x"], "c": {"d": "\ud83d\ude00"}}`,
			`{"a":1,"b":[1.50,true,null,"x"],"c":{"d":"😀"}}`,
		},
		{"a: {b: 1, c: [two]}", `{"a":{"b":1,"c":["two"]}}`},
		{"a: yes\nb: 'yes'\nc: off\nd: ~\n", `{"a":true,"b":"yes","c":false,"d":null}`},
		{
			"big: 123456789012345678901234567890\nhex: 0x1F\nday: 2001-01-01\nf: 1.10\n",
			`{"big":123456789012345678901234567890,"day":"2001-01-01","f":1.10,"hex":31}`,
		},
		{"a: &x [1]\nb: *x\n", `{"a":[1],"b":[1]}`},
		{"t: '{{ x }}'", `{"t":"{{ x }}"}`},
	} {
		v, err := ParseVars([]byte(tt.in))
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
			continue
		}

		got, _ := json.Marshal(v)
		if string(got) != tt.want {
			t.Errorf("%q gives %s, want %s", tt.in, got, tt.want)
		}

		var again Vars
		if err := json.Unmarshal(got, &again); err != nil || !reflect.DeepEqual(again, v) {
			t.Errorf("%q does not survive JSON: %v, %v", tt.in, again, err)
		}
	}
}

func TestParseVarsRefuses(t *testing.T) {
	// Nine levels of aliases, each eight times the one before.
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		p := string(c - 1)
		bomb += fmt.Sprintf("%c: &%c [*%s,*%s,*%s,*%s,*%s,*%s,*%s,*%s]\n", c, c, p, p, p, p, p, p, p, p)
	}

	for _, tt := range []struct{ in, want string }{
		{`[1]`, "must be an object"},
		{`"x"`, "must be an object"},
		{"just words", "must be an object"},
		{"{\"a\": 1,\n \"b\" 2}", "line 2, column"},
		// YAML reads these, but their author hardly meant the same.
		{`{"foo":}`, "line 1, column 7"},
		{"{a: 1, b: two}", "is read as JSON"},
		{`{'a': 1}`, "is read as JSON"},
		{`{"a": 1,}`, "is read as JSON"},
		{"\ufeff{\"foo\":}", "is read as JSON"},
		{"# comment\n{\"foo\":}", "is read as JSON"},
		{"---\n{\"foo\":}", "is read as JSON"},
		{"\"foo\": 1", "is read as JSON"},
		{`{"a": 1} {"b": 2}`, "line 1, column"},
		{`{"a": 1`, "ends before"},
		{`{"a": 1, "a": 2}`, `"a" is given twice`},
		{"a: 1\na: 2", `"a" is given twice`},
		{"a: 1\n b: 2", "line"},
		{"80: web", "quotes"},
		{"a: !vault x", "!vault"},
		{"a: !unsafe x", "!unsafe"},
		{"a: .inf", "finite"},
		{"a: 1\n---\nb: 2", "one YAML document"},
		{"base: &b {x: 1}\na:\n  <<: *b", "not a string"},
		{"a: &a\n  b: *a", "a"},
		{bomb, "aliases multiply"},
		{strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100), "deep"},
		{strings.Repeat(`[`, 100_000), "deep"},
		{"\xff", "UTF-8"},
	} {
		v, err := ParseVars([]byte(tt.in))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.60q: got %v, %v; want an error with %q", tt.in, v, err, tt.want)
		} else if inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%.60q: kind %s", tt.in, inventory.KindOf(err))
		}
	}
}

func TestVarsWithinOtherDocuments(t *testing.T) {
	var c struct {
		Vars Vars `json:"vars" yaml:"vars"`
	}

	want := Vars{"a": int64(1), "b": true, "c": json.Number("1.10")}

	err := yaml.Unmarshal([]byte("vars: {a: 1, b: on, c: 1.10}"), &c)
	if err != nil || !reflect.DeepEqual(c.Vars, want) {
		t.Errorf("YAML: %v, %v", c.Vars, err)
	}

	c.Vars = nil

	err = json.Unmarshal([]byte(`{"vars":{"a":1,"b":true,"c":1.10}}`), &c)
	if err != nil || !reflect.DeepEqual(c.Vars, want) {
		t.Errorf("JSON: %v, %v", c.Vars, err)
	}

	if err := json.Unmarshal([]byte(`{"vars":[1]}`), &c); err == nil {
		t.Error("a list was accepted as variables")
	}
}

func TestCheckVars(t *testing.T) {
	good := Vars{
		"a":          1,
		"_b2":        "x",
		"Node_name2": nil,
		"node":       []string{"x"},
		"list":       []any{1.5, map[string]string{"k": "v"}},
	}
	if err := CheckVars(good); err != nil {
		t.Error(err)
	}

	bad := Vars{
		"ansible_user": "x",
		"ANSIBLE_HOST": "x",
		"node_name":    "x",
		"clusterm_key": "x",
		"hostvars":     1,
		"class":        1,
		"a-b":          1,
		"1a":           1,
		"":             1,
		"ok":           1,
		"inf":          math.Inf(1),
		"huge":         json.Number("1e999"),
		"long":         json.Number(strings.Repeat("9", 5000)),
		"fn":           func() {},
		"bytes":        "\xff",
	}

	err := CheckVars(bad)
	if inventory.KindOf(err) != inventory.KindInvalid {
		t.Fatalf("got %v", err)
	}

	if got := strings.Count(err.Error(), "variable \""); got != len(bad)-1 {
		t.Errorf("%d problems, want %d: %v", got, len(bad)-1, err)
	}

	deep := any("x")
	for range MaxVarsDepth {
		deep = []any{deep}
	}

	for name, v := range map[string]Vars{"deep": {"a": deep}, "large": {"a": strings.Repeat("x", MaxVarsBytes)}} {
		if err := CheckVars(v); err == nil {
			t.Errorf("%s variables were accepted", name)
		}
	}
}

func TestLooksLikeTemplate(t *testing.T) {
	v := Vars{
		"a": "{{ x }}",
		"b": []any{"x", map[string]any{"c d": "{% if %}", "{{ k }}": 1}},
		"c": "{ {",
		"d": "{# x #}",
	}

	got := strings.Join(LooksLikeTemplate(v), " ")
	if want := `a b[1]["c d"] b[1]["{{ k }}"] d`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMergeReplacesWholeValues(t *testing.T) {
	m := Merge(
		Layer{OriginConfig, Vars{"a": map[string]any{"x": 1}}, true},
		Layer{OriginNode, Vars{"a": map[string]any{"y": 2}}, false},
	)
	if want := (Var{map[string]any{"y": 2}, OriginNode, false}); !reflect.DeepEqual(m["a"], want) {
		t.Errorf("got %v", m["a"])
	}
}
