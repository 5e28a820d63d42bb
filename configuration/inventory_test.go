// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory/errtest"
)

const testKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKX0Cq0cJ6v5wF0b9a5C7Yw5Sg0T0Gk3o0G8o5oVb1n2"

func TestInventoryRefuses(t *testing.T) {
	ok := Host{Name: "a-1", Addr: "10.0.0.1", Role: RoleTarget}
	with := func(change func(*Host)) []Host {
		h := ok
		change(&h)
		return []Host{h}
	}

	for name, hosts := range map[string][]Host{
		"no hosts":          nil,
		"no target":         with(func(h *Host) { h.Role = RolePeer }),
		"newline in name":   with(func(h *Host) { h.Name = "a-1\n  evil:" }),
		"range as name":     with(func(h *Host) { h.Name = "a[1:99]" }),
		"option as name":    with(func(h *Host) { h.Name = "-oProxyCommand=x" }),
		"option as address": with(func(h *Host) { h.Addr = "-oProxyCommand=x" }),
		"template address":  with(func(h *Host) { h.Addr = "{{ x }}" }),
		"newline address":   with(func(h *Host) { h.Addr = "10.0.0.1\n" }),
		"no address":        with(func(h *Host) { h.Addr = "" }),
		"group all":         with(func(h *Host) { h.Group = "all" }),
		"group of the job":  with(func(h *Host) { h.Group = TargetsGroup }),
		"group grammar":     with(func(h *Host) { h.Group = "a:b" }),
		"role":              with(func(h *Host) { h.Role = "" }),
		"twice":             {ok, {Name: "A-1", Addr: "10.0.0.2", Role: RolePeer}},
		"key":               with(func(h *Host) { h.HostKeys = []string{"x\n* " + testKey} }),
		"ansible variable":  with(func(h *Host) { h.Vars = map[string]Var{"ansible_host": {Value: "x"}} }),
		"own variable":      with(func(h *Host) { h.Extra = map[string]any{"ansible_user": "x"} }),
		"connection":        with(func(h *Host) { h.Connection.User = "-l" }),
		"bad value":         with(func(h *Host) { h.Vars = map[string]Var{"x": {Value: "\xff"}} }),
	} {
		if b, err := Inventory(hosts); err == nil {
			t.Errorf("%s: accepted:\n%s", name, b)
		}
	}

	if _, err := Inventory([]Host{ok}); err != nil {
		t.Error(err)
	}
}

// TestEveryCharacterSurvives: a parser reads back every character of a value.
func TestEveryCharacterSurvives(t *testing.T) {
	var all strings.Builder
	for r := rune(0); r <= 0x2FFFF; r++ {
		if r < 0xD800 || r > 0xDFFF {
			// A sample of the letters is enough.
			if unicode.IsControl(r) || !unicode.IsLetter(r) || r%97 == 0 {
				all.WriteRune(r)
			}
		}
	}

	for _, trusted := range []bool{false, true} {
		b, err := Inventory([]Host{{Name: "a-1", Addr: "10.0.0.1", Role: RoleTarget,
			Vars: map[string]Var{"x": {Value: []any{all.String()}, Trusted: trusted}}}})
		errtest.None(t, err)

		var doc struct {
			All struct {
				Hosts map[string]map[string]yaml.Node
			}
		}
		errtest.None(t, yaml.Unmarshal(b, &doc))

		x := doc.All.Hosts["a-1"]["x"]
		if got := x.Content[0].Value; got != all.String() {
			t.Errorf("trusted %v: the value changed", trusted)
		}
		if tag := x.Content[0].Tag; (tag == "!unsafe") == trusted {
			t.Errorf("trusted %v: tag %s", trusted, tag)
		}
	}
}

// TestInventoryVars: the parts are those that Inventory marks, and nothing else.
func TestInventoryVars(t *testing.T) {
	h := Host{Name: "a-1", Addr: "10.0.0.1", Role: RolePeer, Extra: map[string]any{"clusterm_state": "Discovered"},
		Vars: map[string]Var{
			"data":      {Value: "{{ x }}", Origin: OriginNode},
			"template":  {Value: "{{ y }}", Origin: OriginConfig, Trusted: true},
			"asked":     {Value: 1, Origin: OriginRequest},
			"also_data": {Value: []any{"z"}, Origin: OriginGlobal},
		}}

	got, err := h.InventoryVars()
	errtest.None(t, err)
	if want := map[string]any{"template": "{{ y }}"}; !reflect.DeepEqual(got.Templates, want) {
		t.Errorf("templates %v, want %v", got.Templates, want)
	}

	for name, want := range map[string]any{
		"data": "{{ x }}", "also_data": []any{"z"}, "asked": nil, "clusterm_state": "Discovered",
		"node_name": "a-1", "ansible_host": "10.0.0.1", "template": nil,
	} {
		if !reflect.DeepEqual(got.Data[name], want) {
			t.Errorf("%s is %v, want %v", name, got.Data[name], want)
		}
	}

	h.Addr = "{{ x }}"
	if _, err := h.InventoryVars(); err == nil {
		t.Error("a template was accepted as address")
	}
}

func TestExtraVars(t *testing.T) {
	b, err := ExtraVars(Vars{"b": "{{ x }}", "a": map[string]any{"{{ k }}": []any{"v", 1}}})

	want := "\"a\":\n  !unsafe \"{{ k }}\":\n    - !unsafe \"v\"\n    - 1\n\"b\": !unsafe \"{{ x }}\"\n"
	if err != nil || string(b) != want {
		t.Errorf("got %s, %v", b, err)
	}

	if b, err := ExtraVars(nil); err != nil || strings.TrimSpace(string(b)) != "{}" {
		t.Errorf("no variables give %q, %v", b, err)
	}

	if _, err := ExtraVars(Vars{"ansible_host": "x"}); err == nil {
		t.Error("ansible_host was accepted")
	}
}

func TestKnownHosts(t *testing.T) {
	hosts := []Host{
		{Name: "Web-1", HostKeys: []string{testKey}},
		{Name: "b-1"},
		{Name: "bad name", HostKeys: []string{testKey}},
		{Name: "fd00::1", HostKeys: []string{testKey}},
	}

	b := KnownHosts(hosts)
	if want := "Web-1 " + testKey + "\nfd00::1 " + testKey + "\n"; string(b) != want {
		t.Errorf("got %s", b)
	}
	b = append(b, "garbage\n|1|hash= x\n@cert-authority * ssh-rsa AAAA\nweb-1 "+testKey+"\n"...)

	want := map[string][]string{"web-1": {testKey}, "fd00::1": {testKey}}
	if got := ParseKnownHosts(b); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}

	if bytes.Contains(KnownHosts([]Host{{Name: "a-1", HostKeys: []string{"ssh-rsa A\n*"}}}), []byte("*")) {
		t.Error("a malformed key was written")
	}
}

func TestConnection(t *testing.T) {
	yes, no := true, false
	site := Connection{User: "root", Port: 22, Become: &yes, Jump: "gate"}

	node := Connection{Port: 2222, Become: &no, Python: "/usr/bin/python3"}

	want := Connection{User: "root", Port: 2222, Become: &no, Jump: "gate", Python: "/usr/bin/python3"}
	if got := node.Over(site); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}

	valid := []Connection{{}, site, node, {KeyFile: "/root/.ssh/id_ed25519", BecomeUser: "svc-x", Python: "auto"}}
	for _, c := range valid {
		if err := c.Check(); err != nil {
			t.Error(err)
		}
	}

	for _, c := range []Connection{
		{User: "-oX"}, {User: "a b"}, {User: `a"b`}, {User: "{{x}}"}, {BecomeUser: "a;b"},
		{KeyFile: "id"}, {KeyFile: "/a b"}, {KeyFile: "/a%h"}, {KeyFile: "~/x"},
		{Port: -1}, {Port: 70000}, {Python: "python3 -c"},
		{Jump: "-oX"}, {Jump: "a b"}, {Jump: "a,b"}, {Jump: "x@y@z:0"}, {Jump: "h:ssh"}, {Jump: "[::1"},
	} {
		if err := c.Check(); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

func TestParseJump(t *testing.T) {
	for in, want := range map[string]string{
		"gate":              "gate",
		"me@gate:22":        "me@gate:22",
		"fd00::1":           "[fd00::1]",
		"[fd00::1]":         "[fd00::1]",
		"me@[fd00::1]:2222": "me@[fd00::1]:2222",
		"10.0.0.1:99":       "10.0.0.1:99",
	} {
		if j, err := ParseJump(in); err != nil || j.String() != want {
			t.Errorf("%s: got %s, %v; want %s", in, j, err, want)
		}
	}
}

// TestStringsStayStrings: Ansible reads these as strings in every version. Where !unsafe marks one, the newer ones take
// its quotes away, and with them its type.
func TestStringsStayStrings(t *testing.T) {
	for _, s := range []string{
		"", "~", "=", "<<", "yes", "No", "TRUE", "off", "null", "31904923", "080", "1e5", "12e45678", "0x1f", "0b1",
		"1_000", "1:30", "-.inf", ".NaN", "+1.5", "2026-11-28", "2001-12-14 21:59:43.10 -5", "1.0",
	} {
		if n := unsafe(s); n.Tag != "!!str" || n.Style != yaml.DoubleQuotedStyle || n.Value != s {
			t.Errorf("%q has the tag %s and the style %d", s, n.Tag, n.Style)
		}
	}

	for _, s := range []string{"{{ x }}", "1{{ x }}", "{% if %}", "{", "yes{", "web-1", "a: 1", "-\n{{ x }}", "#"} {
		if n := unsafe(s); n.Tag != "!unsafe" {
			t.Errorf("%q has the tag %s", s, n.Tag)
		}
	}
}
