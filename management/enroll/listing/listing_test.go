// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// r1 is the first example of the documentation.
const r1 = `{"pm_type":"ipmi","pm_addr":"10.9.0.5","pm_user":"root","pm_password":"x-secret-x","name":"r1",` +
	`"ports":[{"address":"52:54:00:AA:00:01"}],"cpu":"4","memory":8192,"disk":100,"arch":"x86_64",` +
	`"capabilities":"profile:compute,boot_option:local"}`

const r1YAML = `pm_type: ipmi
  pm_addr: 10.9.0.5
  pm_user: root
  pm_password: x-secret-x
  name: r1
  mac: ["52:54:00:AA:00:01"]
  cpu: 4
  memory: "8192"
  disk: 100
  arch: x86_64
  profile: compute
  capabilities: {boot_option: local}
`

// wire is what the record of a machine shows, without the password.
func wire(t *testing.T, e Entry) string {
	t.Helper()

	b, err := json.Marshal(e.Machine)
	if err != nil {
		t.Fatal(err)
	}

	return string(b)
}

// read parses a list without mistakes.
func read(t *testing.T, list string) ([]Entry, []Problem) {
	t.Helper()

	entries, warnings, problems := Parse([]byte(list))
	if len(problems) > 0 {
		t.Fatalf("%s\nhas problems: %v", list, problems)
	}

	return entries, warnings
}

func TestTheSameMachineInEveryForm(t *testing.T) {
	t.Parallel()

	const want = `{"node":"r1","bmc":{"driver":"ipmi","address":"10.9.0.5","user":"root"},` +
		`"ports":[{"mac":"52:54:00:aa:00:01"}],"cpus":4,"memory_mb":8192,"disk_gb":100,"arch":"x86_64",` +
		`"capabilities":{"boot_option":"local","profile":"compute"}}`

	for name, list := range map[string]string{
		"instackenv":      `{"nodes":[` + r1 + `]}`,
		"indented by tab": "{\n\t\"nodes\": [\n\t\t" + r1 + "\n\t]\n}",
		"bare list":       `[` + r1 + `]`,
		"YAML":            "nodes:\n- " + r1YAML,
		"bare YAML":       "# a comment\n---\n- " + r1YAML,
		"YAML with aliases": "nodes:\n- &a " + r1YAML[:strings.Index(r1YAML, "  name")] + "  name: r1\n" +
			"  mac: &m [\"52:54:00:AA:00:01\"]\n  cpu: 4\n  memory: 8192\n  disk: 100\n  arch: x86_64\n" +
			"  capabilities: {<<: {profile: compute, boot_option: no}, boot_option: local}\n",
		"CSV with a header": "name,pm_type,pm_addr,pm_user,pm_password,mac,cpu,memory,disk,arch,capabilities\n" +
			`r1,ipmi,10.9.0.5,root,x-secret-x,52:54:00:AA:00:01,4,8192,100,x86_64,"profile:compute,boot_option:local"` +
			"\n",
		"CSV of a spreadsheet": "\xef\xbb\xbfname;pm_type;pm_addr;pm_user;pm_password;mac;cpu;memory;disk;" +
			"arch;capabilities\r\nr1;ipmi;10.9.0.5;root;x-secret-x;52:54:00:AA:00:01;4;8192;100;" +
			"x86_64;profile:compute,boot_option:local\r\n",
		"Bifrost": `{"r1":{"driver":"ipmi","name":"r1","driver_info":{"power":{"ipmi_address":"10.9.0.5",` +
			`"ipmi_username":"root","ipmi_password":"x-secret-x"}},"nics":[{"mac":"52:54:00:AA:00:01"}],` +
			`"properties":{"cpu_arch":"x86_64","ram":"8192","disk_size":"100","cpus":"4",` +
			`"capabilities":"profile:compute,boot_option:local"}}}`,
	} {
		entries, _ := read(t, list)
		if len(entries) != 1 {
			t.Errorf("%s: %d entries", name, len(entries))
			continue
		}

		if got := wire(t, entries[0]); got != want {
			t.Errorf("%s:\n%s, want\n%s", name, got, want)
		}

		if entries[0].BMC.Password != "x-secret-x" {
			t.Errorf("%s: the password is %q", name, entries[0].BMC.Password)
		}
	}

	// A CSV list without a header has less.
	for _, port := range []string{"", ",6230"} {
		entries, warnings := read(t, "ipmi,10.9.0.5,root,x-secret-x,52:54:00:AA:00:01"+port+"\n")
		if len(warnings) != 0 {
			t.Errorf("CSV without a header: warnings %v", warnings)
		}

		want := "bmc-10.9.0.5" + strings.Replace(port, ",", "-", 1)
		if e := entries[0]; e.Node != want || e.Named || e.Ports[0].MAC != "52:54:00:aa:00:01" {
			t.Errorf("CSV without a header: %s", wire(t, e))
		}
	}
}

// TestLabelsInCSV: a cell has several labels.
func TestLabelsInCSV(t *testing.T) {
	t.Parallel()

	for _, list := range []string{
		"name,pm_type,addr,labels\na,manual-management,10.0.0.1,\"rack=r1, zone=z2\"\n",
		"name;pm_type;addr;labels\na;manual-management;10.0.0.1;rack=r1,zone=z2\n",
	} {
		entries, _ := read(t, list)
		if got := entries[0].Labels; len(got) != 2 || got["rack"] != "r1" || got["zone"] != "z2" {
			t.Errorf("%s: %v", list, got)
		}
	}
}

func TestDrivers(t *testing.T) {
	t.Parallel()

	for old, word := range map[string]string{
		"pxe_ipmitool": "ipmi", "pxe_drac": "idrac", "pxe_ilo": "ilo", "agent_irmc": "irmc",
		"fake_pxe": "manual-management",
	} {
		for _, pmType := range []string{old, word} {
			entries, warnings := read(t, fmt.Sprintf(
				`[{"name":"a","pm_type":%q,"pm_addr":"10.0.0.1","pm_user":"u","pm_password":"p"}]`, pmType))
			if got := string(entries[0].BMC.Driver); got != word {
				t.Errorf("%s became %s, want %s", pmType, got, word)
			}

			warned := len(warnings) == 1 && strings.Contains(warnings[0].Message, word)
			if warned != (pmType == old) || len(warnings) > 1 {
				t.Errorf("%s: warnings %v", pmType, warnings)
			}
		}
	}
}

// TestMistakes tries one mistake at a time, and expects one problem with its entry, line and field.
func TestMistakes(t *testing.T) {
	t.Parallel()

	for _, row := range []struct {
		fields string // of the second entry
		field  string
		says   string
	}{
		{`"pm_type":"foo","pm_addr":"10.0.0.2"`, "pm_type", "redfish"},
		{`"pm_addr":"10.0.0.2"`, "pm_type", "missing"},
		{`"pm_type":"staging-ovirt","pm_addr":"10.0.0.2"`, "pm_type", "not supported; supported are redfish"},
		{`"pm_type":"redfish","pm_addr":"10.0.0.2","pm_user":"u","pm_password":"p"`, "pm_system_id", "redfish"},
		{`"pm_type":"idrac","pm_addr":"10.0.0.2","pm_password":"p"`, "pm_user", "idrac"},
		{`"pm_type":"ipmi"`, "pm_addr", "ipmi"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","mac":["42"]`, "mac", `"42"`},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","mac":["52:54:00:aa:00:02","52:54:00:AA:00:02"]`, "mac", "twice"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","mac":["52:54:00:AA:00:01"]`, "mac", "entry 1"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.1"`, "pm_addr", "entry 1"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.1","pm_port":623`, "pm_addr", "entry 1"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","capabilities":"42"`, "capabilities", `"42"`},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","capabilities":[1]`, "capabilities", "text"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","root_device":42`, "root_device", "hints"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","root_device":{"color":"red"}`, "root_device", "color"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","platform":"SNB"`, "platform", "arch"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","pm_foobar":1`, "pm_foobar", "no such field"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","memmory":1`, "memmory", "memory"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","cpu":"many"`, "cpu", "many"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","uuid":"1"`, "uuid", "UUID"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","pm_port":70000`, "pm_port", "65535"},
		{`"pm_type":"ipmi","pm_addr":"http://10.0.0.2"`, "pm_addr", "http"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0"`, "pm_addr", "10.0.0"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","vars":{"ansible_user":"x"}`, "vars", "ansible_user"},
		{`"pm_type":"ipmi","pm_addr":"10.0.0.2","connection":{"colour":1}`, "connection", "colour"},
		{`"addr":"10.0.0.2","connection":{"port":"twenty"}`, "connection", "`twenty` is not a whole number"},
		{`"addr":"10.0.0.2","connection":[1]`, "connection", "a list is not"},
		{`"addr":"10.0.0.2","labels":"rack"`, "labels", "no KEY=VALUE"},
		{`"addr":"10.0.0.2","labels":[1]`, "labels", "neither"},
		{`"addr":"10.0.0.2","pm_user":"root"`, "pm_type", "missing"},
		{`"addr":"nowhere else"`, "addr", "nowhere"},
	} {
		list := "[\n" + `{"name":"a","pm_type":"ipmi","pm_addr":"10.0.0.1","mac":["52:54:00:aa:00:01"]},` + "\n" +
			`{"name":"b",` + row.fields + "}\n]"

		_, _, problems := Parse([]byte(list))
		if len(problems) != 1 {
			t.Errorf("%s: %d problems, want 1: %v", row.fields, len(problems), problems)
			continue
		}

		p := problems[0]
		if p.Entry != 2 || p.Line != 3 || p.Name != "b" || p.Field != row.field ||
			!strings.Contains(p.Message, row.says) {
			t.Errorf("%s: %s, want entry 2, line 3, field %s, and %q", row.fields, p, row.field, row.says)
		}
	}
}

func TestEqualNames(t *testing.T) {
	t.Parallel()

	_, _, problems := Parse([]byte(`[{"name":"a","addr":"10.0.0.1"},{"name":"a","addr":"10.0.0.2"}]`))
	if len(problems) != 1 || problems[0].Entry != 2 || problems[0].Field != "name" {
		t.Errorf("got %v", problems)
	}
}

// TestAllMistakesAtOnce has five mistakes in four of five entries.
func TestAllMistakesAtOnce(t *testing.T) {
	t.Parallel()

	const list = `nodes:
- {name: a, pm_type: ipmi, pm_addr: 10.0.0.1}
- {name: b, pm_type: nothing, pm_addr: 10.0.0.2}
- name: c
  pm_type: redfish
  pm_addr: 10.0.0.3
  pm_user: x
  cpu: -1
- {name: d, pm_type: ipmi, pm_addr: 10.0.0.4, mac: [x]}
- {name: e, pm_type: ipmi, pm_addr: 10.0.0.5, pm_foobar: 1}
`

	_, _, problems := Parse([]byte(list))

	got := Err(problems).Error()
	for _, want := range []string{
		"entry 2 (b): line 3: pm_type: ", "entry 3 (c): line 5: pm_system_id: ", "entry 3 (c): line 8: cpu: ",
		"entry 4 (d): line 9: mac: ", "entry 5 (e): line 10: pm_foobar: ",
	} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is not there once in\n%s", want, got)
		}
	}

	if len(problems) != 5 || inventory.KindOf(Err(problems)) != inventory.KindInvalid {
		t.Errorf("%d problems, want 5: %v", len(problems), problems)
	}
}

func TestAccepted(t *testing.T) {
	t.Parallel()

	entries, warnings := read(t, `[{"pm_type":"ipmi","pm_addr":"h"},
{"pm_type":"ipmi","pm_addr":"10.9.0.5","pm_port":6230,"name":"p1"},
{"pm_type":"ipmi","pm_addr":"10.9.0.5","pm_port":"6231","name":"p2"},
{"pm_type":"redfish","pm_addr":"http://h/","pm_system_id":"/redfish/v1/Systems/1","pm_user":"u","name":"f",
 "_comment":"x","kernel_id":"k","boot_interface":"ilo","conductor_group":"g"}]`)
	if len(entries) != 4 || entries[0].Node != "bmc-h" {
		t.Fatalf("entries %+v", entries)
	}

	f := entries[3]
	want := map[string]any{"kernel_id": "k", "boot_interface": "ilo", "conductor_group": "g"}

	if !f.BMC.Plain || f.BMC.Address != "h" || !reflect.DeepEqual(f.Extra, want) {
		t.Errorf("got %s", wire(t, f))
	}

	if len(warnings) != 2 || !strings.Contains(fmt.Sprint(warnings), "no effect here") {
		t.Errorf("warnings %v", warnings)
	}

	// Three ways to write one address are one BMC.
	for _, addr := range []string{"h", "http://h/", "https://h/", "https://H:443"} {
		list := fmt.Sprintf(`[{"pm_type":"redfish","pm_addr":%q,"pm_system_id":"1","pm_user":"u"}]`, addr)
		entries, _ := read(t, list)

		if got := Keys(&entries[0].Machine, ""); len(got) != 1 || got[0] != "bmc h /redfish/v1/Systems/1" {
			t.Errorf("%s: keys %v", addr, got)
		}
	}
}

// TestAnsibleLiterals: lists and dictionaries of an INI are those of Python, so that what is secret in them is found.
func TestAnsibleLiterals(t *testing.T) {
	t.Parallel()

	entries, _ := read(t, `[web]
v1 ansible_host=10.0.0.9 opts="['a','b']" words=[a,b] link="[&x 'a', *x]"
[web:vars]
conf={"user": "u", "deep": [1, True, None, {"admin_password": "x"}]}
open={"user": "u"
empty={}
`)

	want := map[string]any{
		"opts": []any{
			"a",
			"b",
		},
		"words": "[a,b]",
		"link":  "[&x 'a', *x]",
		"open":  `{"user": "u"`,
		"empty": map[string]any{},
		"conf":  map[string]any{"user": "u", "deep": []any{1, true, nil, map[string]any{"admin_password": "x"}}},
	}
	if got, wanted := fmt.Sprintf("%#v", map[string]any(entries[0].Vars)), fmt.Sprintf("%#v", want); got != wanted {
		t.Errorf("got\n%s want\n%s", got, wanted)
	}
}

func TestAnsible(t *testing.T) {
	t.Parallel()

	const ini = `lone ansible_host=10.0.0.9
[web]
web[01:02].example.org ansible_user=root rack=r1 text="a b"   # a comment
[db]
db1 ansible_host=10.0.0.3 ansible_port=2222
[site:children]
web
db
[site:vars]
zone=z1
ansible_become=yes
[web:vars]
zone=z2
[all:vars]
zone=z0
ansible_ssh_private_key_file=/etc/key
ansible_password=x-secret-x
`

	const inYAML = `all:
  vars: {zone: z0, ansible_ssh_private_key_file: /etc/key, ansible_password: x-secret-x}
  hosts:
    lone: {ansible_host: 10.0.0.9}
  children:
    site:
      vars: {zone: z1, ansible_become: true}
      children:
        web:
          hosts:
            web[01:02].example.org: {ansible_user: root, rack: r1, text: a b}
          vars: {zone: z2}
        db:
          hosts:
            db1: {ansible_host: 10.0.0.3, ansible_port: 2222}
`

	for name, list := range map[string]string{"INI": ini, "YAML": inYAML} {
		entries, warnings := read(t, list)

		var got []string

		for _, e := range entries {
			if e.BMC != nil || !e.Named {
				t.Errorf("%s: %+v", name, e)
			}

			become := e.Connection.Become != nil && *e.Connection.Become
			got = append(got, fmt.Sprintf("%s %s %s:%d become=%t %s %v", e.Node, e.Addr, e.Connection.User,
				e.Connection.Port, become, e.Connection.KeyFile, map[string]any(e.Vars)))
		}

		want := []string{
			"lone 10.0.0.9 :0 become=false /etc/key map[zone:z0]",
			"web01.example.org web01.example.org root:0 become=true /etc/key map[rack:r1 text:a b zone:z2]",
			"web02.example.org web02.example.org root:0 become=true /etc/key map[rack:r1 text:a b zone:z2]",
			"db1 10.0.0.3 :2222 become=true /etc/key map[zone:z1]",
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%s, want\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}

		if len(warnings) != 4 || strings.Contains(fmt.Sprint(warnings), "x-secret-x") {
			t.Errorf("%s: warnings %v", name, warnings)
		}
	}
}

// TestHostile has lists that are no lists. Each has a problem, and none shows the secret in it.
func TestHostile(t *testing.T) {
	t.Parallel()

	lists := map[string]string{
		"empty": "", "blank": " \n\t\n", "comment": "# nothing", "null": "null", "number": "42", "text": "hello world",
		"no list":          `{"nodes":{"x":1}}`,
		"empty list":       `{"nodes":[]}`,
		"list of text":     `["x-secret-x"]`,
		"beside nodes":     `{"nodes":[{"name":"a","addr":"10.0.0.1"}],"machines":[]}`,
		"truncated":        `{"nodes":[{"name":"a","pm_password":"x-secret-x"`,
		"deep JSON":        strings.Repeat("[", 100_000),
		"deep, closed":     strings.Repeat("[", 100) + strings.Repeat("]", 100),
		"deep YAML":        "a:\n" + strings.Repeat("- ", 5_000) + "x",
		"binary":           "\x00\x01",
		"no UTF-8":         "nodes: \xff",
		"large":            strings.Repeat("#", MaxBytes+1),
		"circle":           "&a [*a]",
		"billion laughs":   laughs(),
		"two documents":    "- {name: a, addr: 10.0.0.1}\n---\n- {name: b, addr: 10.0.0.2}\n",
		"JSON then CSV":    `[{"name":"a","addr":"10.0.0.1"}]` + "\nipmi,10.0.0.2,u,x-secret-x,52:54:00:aa:00:01\n",
		"CSV then JSON":    "ipmi,10.0.0.2,u,x-secret-x,52:54:00:aa:00:01\n" + `{"nodes":[]}` + "\n",
		"missing column":   "ipmi,10.0.0.2,u,x-secret-x\n",
		"unknown driver":   "foo,10.0.0.2,u,x-secret-x,52:54:00:aa:00:01\n",
		"password first":   "x-secret-x,10.0.0.2,u,ipmi,52:54:00:aa:00:01\n",
		"as the address":   "ipmi,x-secret-x!,u,10.0.0.2,52:54:00:aa:00:01\n",
		"as the MAC":       "ipmi,10.0.0.2,u,52:54:00:aa:00:01,x-secret-x\n",
		"as the port":      "ipmi,10.0.0.2,u,6230,52:54:00:aa:00:01,x-secret-x\n",
		"twice the same":   "ipmi,x-secret-x,u,a,52:54:00:aa:00:01\nipmi,x-secret-x,u,a,52:54:00:aa:00:02\n",
		"no type":          "name,pm_addr,pm_password\na,10.0.0.2,x-secret-x\n",
		"swapped":          "ipmi,10.0.0.2,u,52:54:00:aa:00:01,a,b,x-secret-x\n",
		"quotes":           "ipmi,10.0.0.2,u,\"x-secret-x,52:54:00:aa:00:01\n",
		"repeated key":     `[{"name":"a","addr":"10.0.0.1","pm_password":"x-secret-x","pm_password":"y"}]`,
		"vault":            "all:\n  hosts:\n    a:\n      ansible_host: 10.0.0.1\n      pass: !vault x-secret-x\n",
		"range":            "web[1:99999999].example.org\n",
		"no variable":      "[web]\nweb1 x-secret-x\n",
		"a name in quotes": "{\"x\": {\"pm_password\": \"x-secret-x\"}}",
		"hostile name":     `[{"name":"a\u001b[31m","addr":"10.0.0.1"}]`,
		"groups in a ring": "[a:children]\nb\n[b:children]\na\n",
	}

	for name, list := range lists {
		_, warnings, problems := Parse([]byte(list))
		if len(problems) == 0 {
			t.Errorf("%s has no problem", name)
			continue
		}

		text := Err(problems).Error() + fmt.Sprint(warnings)
		if strings.Contains(text, "secret") || strings.ContainsAny(text, "\x1b\x00") || len(text) > 50_000 {
			t.Errorf("%s: %.300q", name, text)
		}
	}
}

// laughs returns YAML whose aliases make far more values than there is memory.
func laughs() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")

	for i := range 20 {
		fmt.Fprintf(
			&b,
			"a%d: &a%d [%s]\n",
			i+1,
			i+1,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","),
		)
	}

	return b.String()
}

func TestBounds(t *testing.T) {
	t.Parallel()

	var b strings.Builder
	for i := range MaxEntries + 1 {
		fmt.Fprintf(
			&b,
			"ipmi,10.%d.%d.%d,u,p,52:54:00:%02x:%02x:%02x\n",
			i>>16,
			i>>8&255,
			i&255,
			i>>16,
			i>>8&255,
			i&255,
		)
	}

	if _, _, problems := Parse([]byte(b.String())); len(problems) != 1 {
		t.Errorf("got %d problems, want one about the number", len(problems))
	}

	list := b.String()[:strings.LastIndex(strings.TrimSpace(b.String()), "\n")+1]
	if entries, _ := read(t, list); len(entries) != MaxEntries {
		t.Errorf("got %d entries", len(entries))
	}
}

// TestLinesAreBounded counts what is not named.
func TestLinesAreBounded(t *testing.T) {
	t.Parallel()

	var list []string
	for i := range maxProblems + 7 {
		list = append(list, fmt.Sprintf(`{"name":"n%d","pm_type":"pxe_ipmitool","pm_addr":"h%[1]d"}`, i))
	}

	_, warnings := read(t, "["+strings.Join(list, ",\n")+"]")

	lines := Lines(warnings)
	if len(lines) != maxProblems+1 || lines[maxProblems] != "and 7 more" || !strings.Contains(lines[0], "n0") {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"nodes":[` + r1 + `]}`, "nodes:\n- " + r1YAML, "ipmi,10.9.0.5,root,x,52:54:00:AA:00:01\n",
		"[web]\nweb1 ansible_host=10.0.0.1\n[web:vars]\na=b\n", "all:\n  hosts:\n    a: {ansible_host: 10.0.0.1}\n",
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, list string) {
		entries, warnings, problems := Parse([]byte(list))
		if len(entries) == 0 && len(problems) == 0 {
			t.Error("neither entries nor problems")
		}

		_ = Err(problems)
		_ = fmt.Sprint(warnings)

		for _, e := range entries {
			if err := inventory.CheckName(e.Node); err != nil && len(problems) == 0 {
				t.Errorf("an entry has the name %q: %v", e.Node, err)
			}
		}
	})
}
