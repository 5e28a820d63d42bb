// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"encoding/json"
	"math/big"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
)

// FuzzVars expects variables to be refused as invalid, or to survive JSON unchanged.
func FuzzVars(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `a: b`, `{"a":1,"a":2}`, `{"a":}`, `a: !!python/object:os.system x`, "a: &x [1]\nb: *x", `a: 0x10`,
		`{"a":1e999}`, `{"a":12345678901234567890}`, "a: 1.10", "yes: no", "a: yes", "--- {a: 1}", "a: {{ x }}",
		`{"a":"{{ x }}"}`,
		"a: 2020-01-01", "a: .inf", "? [x]\n: y", "\ufeff{\"a\":1}", "a: |\n  x\n  y", "<<: {a: 1}",
	} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := ParseVars(text)
		if err != nil {
			if inventory.KindOf(err) != inventory.KindInvalid || v != nil {
				t.Fatalf("%q: %v, %v", text, v, err)
			}
			return
		}

		encoded, err := json.Marshal(map[string]any(v))
		if err != nil {
			t.Fatalf("%q as JSON: %v", text, err)
		}
		back, err := ParseJSONVars(encoded)
		if err != nil || !reflect.DeepEqual(back, v) {
			t.Fatalf("%q became %#v, and after JSON %#v, %v", text, v, back, err)
		}

		if CheckVars(v) == nil && len(encoded) > MaxVarsBytes {
			t.Fatalf("%d bytes of variables are accepted", len(encoded))
		}
	})
}

// untag returns the value of a document that the writers made. It fails for a
// string that Ansible would evaluate, unless trusted.
func untag(t *testing.T, n *yaml.Node, trusted bool) any {
	t.Helper()

	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = untag(t, n.Content[i+1], trusted)
		}

		if len(m) != len(n.Content)/2 {
			t.Errorf("line %d: a key is there twice", n.Line)
		}

		return m
	case yaml.SequenceNode:
		list := []any{}
		for _, e := range n.Content {
			list = append(list, untag(t, e, trusted))
		}

		return list
	}

	switch n.Tag {
	case "!unsafe":
		return n.Value
	case "!!str":
		if !trusted && strings.ContainsAny(n.Value, "{}%#") {
			t.Errorf("line %d: the string %q has no tag !unsafe", n.Line, n.Value)
		}
		return n.Value
	case "!!int", "!!float":
		return json.Number(n.Value)
	case "!!bool":
		return n.Value == "true"
	case "!!null":
		return nil
	}

	t.Errorf("line %d: the tag %s", n.Line, n.Tag)

	return nil
}

// same compares values. Numbers are equal if their values are: YAML 1.1 needs
// another literal than JSON.
func same(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}

		for k := range a {
			if _, found := b[k]; !found || !same(a[k], b[k]) {
				return false
			}
		}

		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, same)
	}

	x, isNumber := rational(a)
	y, others := rational(b)

	if isNumber || others {
		return isNumber && others && x.Cmp(y) == 0
	}

	return a == b
}

func rational(v any) (*big.Float, bool) {
	switch v := v.(type) {
	case int64:
		return new(big.Float).SetPrec(2000).SetInt64(v), true
	case json.Number:
		x, _, err := big.ParseFloat(v.String(), 10, 2000, big.ToNearestEven)
		return x, err == nil
	}

	return nil, false
}

// FuzzExtraVars writes variables for Ansible, and reads them with the YAML library:
// the same values, and no string that Ansible evaluates.
func FuzzExtraVars(f *testing.F) {
	for _, s := range []string{
		`{"a":"b"}`, `{"a":"{{ lookup('pipe','id') }}"}`, `{"a":{"{{ k }}":["{% x %}",null,true,1.50]}}`,
		`{"a":"x\n---\n- y"}`,
		`{"a":"!unsafe b"}`, `{"a":"\u0085\u2028\ufeff"}`, `{"a":1e5,"b":-0,"c":1E-7,"d":0.1}`,
		`{"a":"yes","b":"0o7","c":"1_000"}`,
		`{"a":"'\"\\"}`, `{"a":"\u0000\u001b[31m"}`, `{"ansible_host":"x"}`, `{"a":"# x"}`,
		`{"a":"*x","b":"&x","<<":"z"}`,
	} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := ParseJSONVars(text)
		if err != nil {
			return
		}
		written, err := ExtraVars(v)
		if err != nil {
			if inventory.KindOf(err) != inventory.KindInvalid {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}

		var doc yaml.Node
		if err := yaml.Unmarshal(written, &doc); err != nil || len(doc.Content) != 1 {
			t.Fatalf("%q was written as\n%s\nwhich does not parse: %v", text, written, err)
		}

		if got := untag(t, doc.Content[0], false); !same(got, map[string]any(v)) {
			t.Fatalf("%q was written as\n%s\nwhich reads as %#v, want %#v", text, written, got, v)
		}
	})
}

// FuzzInventory writes a host with hostile texts, and reads the inventory with the
// YAML library: the same hosts, groups and values, and nothing that Ansible evaluates.
func FuzzInventory(f *testing.F) {
	f.Add("web-1", "10.0.0.1", "service-worker", "motd", `"hello"`, "rack", "r1", false)
	f.Add("a-1", "fd00::1", "", "x", `"{{ lookup('pipe','id') }}"`, "example.com/x", "", false)
	f.Add("a-1", "host", "g", "x", `{"all":{"hosts":{}}}`, "x", "y", true)
	f.Add("a-1\nansible_connection: local", "h", "all", "x", `["\n[all:vars]\n"]`, "x", "y", false)
	f.Add("a-1", "10.0.0.1 ansible_user=root", "g", "node_name", `"other-1"`, "x", "y", false)

	f.Fuzz(func(t *testing.T, name, addr, group, variable, value, key, label string, trusted bool) {
		v, err := ParseValue([]byte(value))
		if err != nil || CheckVars(Vars{variable: v}) != nil || inventory.CheckLabelValue(label) != nil {
			return
		}

		h := Host{
			Name: name, Addr: addr, Label: "label", Serial: "1", Group: group, Role: RoleTarget,
			Labels: map[string]string{key: label}, Hardware: &inventory.Hardware{Vendor: name, Product: value},
			Vars: map[string]Var{variable: {Value: v, Origin: OriginConfig, Trusted: trusted}},
		}
		other := Host{Name: "zz-other", Addr: "10.9.9.9", Label: "zz", Serial: "other", Role: RolePeer}

		written, err := Inventory([]Host{other, h})
		if err != nil {
			return
		}

		var doc struct {
			All struct {
				Hosts    map[string]map[string]yaml.Node
				Children map[string]struct {
					Hosts map[string]map[string]yaml.Node
				}
			}
		}

		dec := yaml.NewDecoder(strings.NewReader(string(written)))
		dec.KnownFields(true)

		if err := dec.Decode(&doc); err != nil {
			t.Fatalf("the inventory does not parse: %v\n%s", err, written)
		}

		if len(doc.All.Hosts) != 2 || doc.All.Hosts[name] == nil || doc.All.Hosts["zz-other"] == nil {
			t.Fatalf("host %q became\n%s", name, written)
		}

		groups := []string{TargetsGroup}
		if group != "" {
			groups = append(groups, group)
		}
		if len(doc.All.Children) != len(groups) {
			t.Fatalf("the groups %q became\n%s", groups, written)
		}

		for _, g := range groups {
			if in := doc.All.Children[g].Hosts; len(in) != 1 || in[name] == nil {
				t.Fatalf("the group %q became\n%s", g, written)
			}
		}

		for n, node := range doc.All.Hosts[name] {
			got := untag(t, &node, trusted && n == variable)

			want, isManagers := managerVars(h)[n]
			if !isManagers {
				want = v
			}
			if x, err := normal(want); n == variable && (err != nil || !same(got, x)) {
				t.Fatalf("the variable %q is %#v, want %#v", n, got, x)
			}
		}
	})
}

// FuzzKnownHosts parses a file that ssh writes, and writes the keys again: nothing
// but plain names and keys passes, and the second file gives the same keys.
func FuzzKnownHosts(f *testing.F) {
	for _, s := range []string{
		"web-1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA\n", "|1|x=|y= ssh-rsa AAAAB3NzaC1yc2EAAAA\n",
		"@cert-authority * ssh-rsa AAAA\n",
		"a-1,10.0.0.1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA", "# x\n\n",
		"A-1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA c\r\n", "\xff \xfe",
		"10.0.0.1 ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTY=\n",
		"a-1  ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA\n",
	} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		found := ParseKnownHosts(text)

		var hosts []Host

		for name, keys := range found {
			if checkHostName(name) != nil {
				t.Fatalf("%q names the host %q", text, name)
			}

			for _, k := range keys {
				if !hostKey().MatchString(k) || strings.ContainsAny(k, "\r\n") {
					t.Fatalf("%q contains the key %q", text, k)
				}
			}

			hosts = append(hosts, Host{Name: name, HostKeys: keys})
		}

		if again := ParseKnownHosts(KnownHosts(hosts)); !reflect.DeepEqual(again, found) {
			t.Fatalf("%q: %v, and written again %v", text, found, again)
		}
	})
}

// FuzzConnection expects every accepted connection to be safe within the arguments
// of ssh, and a jump host to survive its own text.
func FuzzConnection(f *testing.F) {
	for _, s := range []string{
		"gate", "admin@gate:2222", "[fd00::1]:22", "fd00::1", "a@b@gate", "-oProxyCommand=id", "gate:0", "[x",
		"gate:22:22", "@gate",
		"x@-oProxyCommand=id", "gate -W x:1", "%h", "[gate]",
	} {
		f.Add(s, "admin", "/etc/key", "/usr/bin/python3")
	}

	f.Add("gate", "-x", "/etc/key ; id", "/usr/bin/env python3")

	f.Fuzz(func(t *testing.T, jump, user, key, python string) {
		c := Connection{Jump: jump, User: user, KeyFile: key, Python: python}
		if err := c.Check(); err != nil {
			if inventory.KindOf(err) != inventory.KindInvalid {
				t.Fatalf("%+v: %v", c, err)
			}
			return
		}

		if jump != "" {
			j, err := ParseJump(jump)
			again, err2 := ParseJump(j.String())

			if err != nil || err2 != nil || again != j {
				t.Fatalf("the jump host %q is %v (%v), and then %v (%v)", jump, j, err, again, err2)
			}
		}

		for _, arg := range SSHArgs(Host{Name: "a-1", Connection: c}) {
			if strings.ContainsAny(arg, " \t\r\n'\"`$;&|<>(){}\\%#*?!") {
				t.Fatalf("the connection %+v gives the argument %q", c, arg)
			}
		}

		for _, s := range []string{user, key, python} {
			if strings.HasPrefix(s, "-") || strings.ContainsAny(s, " \t\r\n'\"`$;&|<>(){}\\%#*?!") {
				t.Fatalf("the connection accepts %q", s)
			}
		}
	})
}

// FuzzEvents parses a stream of the callback in pieces of any size: the events are
// the same, memory is bounded, and the results have no negative count.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		`{"event":"ok","host":"a-1","task":"x","changed":true,"time":1700000000.5}`,
		`{"event":"play","hosts":["a-1","b-1"]}` + "\n" + `{"event":"failed","host":"a-1","item":{"x":1}}`,
		`{"event":"stats","stats":{"a-1":{"ok":1,"failures":1}},"unfinished":["b-1"]}`,
		"text\n\n{}\n{\"event\":7}\n", `{"event":"ok","time":"x"}`,
		`{"event":"ok","time":1e300,"host":"\u001b[2J"}`, `{"event":"stats","stats":{"a":{"ok":-1}}}`,
		"\xff\n{\"event\":\"ok\",\"host\":\"\xff\"}",
	} {
		f.Add([]byte(s), 3)
	}

	f.Fuzz(func(t *testing.T, text []byte, size int) {
		text = append(text, '\n')
		size = 1 + max(size, -size)%64

		var whole, pieces EventStream

		want := whole.Write(text)

		var got []Event
		for part := range slices.Chunk(text, size) {
			got = append(got, pieces.Write(part)...)
		}

		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q in pieces of %d: %+v, want %+v", text, size, got, want)
		}

		if len(pieces.rest) > maxEventLine {
			t.Fatalf("%d bytes are held", len(pieces.rest))
		}

		for _, e := range want {
			if e.Event == "" || e.Time.Year() < 0 || e.Time.Year() > 9999 {
				t.Fatalf("%q has the event %+v", text, e)
			}

			// Events are stored and shown as JSON.
			if b, err := json.Marshal(e); err != nil {
				t.Fatalf("%+v: %v", e, err)
			} else if back, ok := ParseEvent(b); !ok || back.Host != e.Host || back.Message != e.Message {
				t.Fatalf("%+v became %+v", e, back)
			}
		}

		// The counts of a stats event are Ansible's own.
		counted := slices.DeleteFunc(want, func(e Event) bool { return e.Event == EventStats })
		for name, r := range Summarize(counted) {
			if r.Host != name || r.OK < 0 || r.Changed < 0 || r.Failed < 0 || r.Skipped < 0 || r.Ignored < 0 ||
				r.Unreachable < 0 {
				t.Fatalf("%q: %+v", text, r)
			}
		}
	})
}

// FuzzPlay expects a pattern never to be taken for a certain match of a host that
// it excludes, and "node1" never to match "node10".
func FuzzPlay(f *testing.F) {
	for _, s := range []string{
		"all", "service-master", "node1", "node1*", "node1?", "all:!node10", "~node1", "~node1$",
		"node1:&service-master", "!node10", "{{ x }}",
		"web[0:2]", "service-master[0]", "~(", "a,b", "", ":", "*[", "all:!{{ x }}", "&all",
	} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, pattern string) {
		for _, name := range []string{"node1", "node10"} {
			m := (Play{Hosts: []string{pattern}}).Matches(name, "service-master")
			if m < No || m > Yes {
				t.Fatalf("%q for %s: %d", pattern, name, m)
			}

			if excluded := (Play{Hosts: []string{pattern, "!" + name}}).Matches(
				name,
				"service-master",
			); excluded == Yes {
				t.Fatalf("%q without %s still matches it", pattern, name)
			}

			if narrowed := (Play{Hosts: []string{pattern, "&" + name}}).Matches(name, "service-master"); narrowed > m {
				t.Fatalf("%q has the match %d, and %d if narrowed to %s", pattern, m, narrowed, name)
			}
		}

		if inventory.CheckName(pattern) == nil && pattern != "all" && pattern != TargetsGroup {
			want := matchIf(pattern == "node10")
			if got := (Play{Hosts: []string{pattern}}).Matches("node10", "g"); got != want && pattern != "g" {
				t.Fatalf("the name %q matches node10: %d", pattern, got)
			}
		}

		if (Play{Unknown: true, Hosts: []string{pattern}}).Matches("node1", "") != Maybe {
			t.Fatal("a play behind an import is not Maybe")
		}
	})
}

// FuzzPath expects an accepted path to be absolute, clean and free of control
// characters, so that it stays one argument and one line.
func FuzzPath(f *testing.F) {
	for _, s := range []string{
		"/srv/playbooks", "/srv/../etc", "srv", "/a\nb", "/a b", "/", "", "/a//b", "/\xff", "/a:b", "/~root",
		"/{{ x }}",
	} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		if CheckPath("the folder", s) != nil {
			return
		}

		if !path.IsAbs(s) || strings.ContainsAny(s, "\x00\r\n") {
			t.Fatalf("the path %q is accepted", s)
		}
	})
}

// FuzzSecrets expects no value below a secret name in the hidden variables, and the
// original back where a client returns them.
func FuzzSecrets(f *testing.F) {
	f.Add("*_password", `{"db_password":"s3cr3t","list":[{"x_password":[1]},{"y":null}]}`)
	f.Add("db_*", `{"DB_pin":{"a":"b"},"a":{"db_b":"(hidden)"}}`)
	f.Add("[A-Z]", `{"x":1}`)
	f.Add("[Z-a]", `{"x":1}`)

	f.Fuzz(func(t *testing.T, pattern, text string) {
		s := Secrets{pattern}

		v, err := ParseJSONVars([]byte(text))
		if err != nil || s.Check() != nil {
			return
		}

		// A pattern that fails at its use would show every secret.
		if _, err := path.Match(strings.ToLower(pattern), "x"); err != nil {
			t.Fatalf("the pattern %q is accepted and fails: %v", pattern, err)
		}

		hidden := s.HideVars(v)
		for name, value := range hidden {
			if s.hides(name) && value != any(Hidden) {
				t.Fatalf("%q shows %q: %v", pattern, name, value)
			}
		}

		if back, err := s.Restore(hidden, v); err != nil || !reflect.DeepEqual(back, v) {
			t.Fatalf("%q hides %q as %v, which returns as %v, %v", pattern, text, hidden, back, err)
		}
	})
}
