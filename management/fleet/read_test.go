// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/fleet"
)

// bomb returns a file with aliases that multiply to more values than memory holds.
func bomb() string {
	var b strings.Builder

	b.WriteString("fleet: 1\nvars:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")

	for i := range 12 {
		fmt.Fprintf(&b, "  a%d: &a%d [", i+1, i+1)
		b.WriteString(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10))
		b.WriteString("]\n")
	}

	return b.String()
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ name, file, says string }{
		{"no YAML", "fleet: 1\nvars: {a: [}\n", "f.yaml:1:1: did not find expected"},
		{"a tab", "fleet: 1\nvars:\n\ta: 1\n", "f.yaml:3:1: found character that cannot start any token"},
		{"a raw control character", "fleet: 1\nvars: {a: \x01}\n", "control characters are not allowed"},
		{"empty", "", "f.yaml:1:1: the file is empty; begin it with fleet: 1"},
		{"only a comment", "# nothing\n", "f.yaml:1:1: the file is empty"},
		{"no mapping", "- fleet\n", "f.yaml:1:1: a mapping belongs here, not a list"},
		{"no version", "nodes: {}\n", "f.yaml:1:1: the key fleet is missing"},
		{"another version", "fleet: 2\n", "f.yaml:1:1: the version of the format is 1"},
		{"two documents", "fleet: 1\n---\nfleet: 1\n", "the file has more than one document"},
		{
			"an unknown key", "fleet: 1\nnodes:\n  a-1:\n    lables: {}\n",
			"f.yaml:4:5: unknown key \"lables\"; did you mean labels?",
		},
		{
			"an unknown key of a connection", "fleet: 1\nconnection: {usr: a}\n",
			"f.yaml:2:14: unknown key \"usr\"; did you mean user?",
		},
		{"two entries for one node", "fleet: 1\nnodes:\n  a-1: {}\n  b-1: {}\n  a-1: {group: x}\n",
			"f.yaml:5:3: \"a-1\" is given twice; first at line 3"},
		{"a key that is no text", "fleet: 1\nvars: {1: a}\n", "f.yaml:2:8: the key 1 is not text; put it in quotes"},
		{"a key that is a list", "fleet: 1\nvars: {[a]: b}\n", "f.yaml:2:8: a key has to be text, not a list"},
		{
			"a control character in a name", "fleet: 1\ngroups: {\"a\\x1b\": {}}\n",
			"f.yaml:2:10: the key \"a\\x1b\" has a control character",
		},
		{
			"a control character in a group", "fleet: 1\nnodes: {a-1: {group: \"a\\n\"}}\n",
			"f.yaml:2:22: \"a\\n\" has a control character",
		},
		{"the name of a node", "fleet: 1\nnodes: {../etc: {}}\n", "f.yaml:2:9: \"../etc\" is not a node name"},
		{"the name of a group", "fleet: 1\ngroups: {a b: {}}\n", "f.yaml:2:10: \"a b\" is not a group name"},
		{"the group none", "fleet: 1\ngroups: {none: {}}\n", "f.yaml:2:10: a group cannot have the name none"},
		{
			"a member of the hosts being prepared", "fleet: 1\ngroups: {cluster-node: {selector: a=b}}\n",
			"f.yaml:2:25: cluster-node has no selector",
		},
		{"a label of another type", "fleet: 1\nnodes: {a-1: {labels: {rack: 12}}}\n",
			"f.yaml:2:30: text belongs here, not the number 12; put it in quotes"},
		{"a connection of another type", "fleet: 1\nconnection: {become: \"yes\"}\n",
			"f.yaml:2:22: true or false belongs here, not the text \"yes\""},
		{
			"a port out of range", "fleet: 1\nconnection: {port: 70000}\n",
			"f.yaml:2:14: connection: port 70000 is not between",
		},
		{
			"a rule of another type", "fleet: 1\ngroups: {a: {requires: [b]}}\n",
			"f.yaml:2:24: a mapping belongs here, not a list",
		},
		{"a tag of a group", "fleet: 1\ngroups: {a: {tags: ['a,b']}}\n", "f.yaml:2:14: tags: \"a,b\" is not a tag"},
		{"a number as tag", "fleet: 1\ngroups: {a: {tags: [1]}}\n", "f.yaml:2:14: tags: a tag is a text, not 1"},
		{
			"a tag of Ansible", "fleet: 1\ngroups: {a: {skip_tags: [never]}}\n",
			"f.yaml:2:14: skip_tags: \"never\" has a meaning of its own for Ansible",
		},
		{
			"tags that are no list", "fleet: 1\ngroups: {a: {tags: web}}\n",
			"f.yaml:2:20: a list belongs here, not the text",
		},
		{
			"a budget of no node", "fleet: 1\ngroups: {a: {budget: {max_unavailable: 0}}}\n",
			`f.yaml:2:14: budget: max_unavailable is "0"; write a number of nodes from 1`,
		},
		{
			"a budget of a fraction", "fleet: 1\ngroups: {a: {budget: {max_unavailable: 1.5}}}\n",
			"f.yaml:2:40: a whole number, or a share such as 25%, belongs here, not the number 1.5",
		},
		{
			"a budget below zero", "fleet: 1\ngroups: {a: {budget: {min_available: -1}}}\n",
			"f.yaml:2:14: budget: min_available is -1",
		},
		{
			"a strategy of no node", "fleet: 1\ngroups: {a: {strategy: {max_unavailable: 0}}}\n",
			`f.yaml:2:14: strategy: max_unavailable is "0"; write a number of nodes from 1`,
		},
		{
			"a strategy with a wrong time", "fleet: 1\ngroups: {a: {strategy: {soak: soon}}}\n",
			`f.yaml:2:14: strategy: soak is "soon"`,
		},
		{"a list of groups", "fleet: 1\ngroups: [a]\n", "f.yaml:2:9: a mapping belongs here, not a list"},
		{"a variable that is reserved", "fleet: 1\nvars: {ansible_host: a}\n", "f.yaml:2:8: variable \"ansible_host\""},
		{"a variable that is no value", "fleet: 1\nvars: {a: .nan}\n", "f.yaml:2:11: .nan is not a finite number"},
		{"a tag", "fleet: 1\nvars: {a: !!binary aGk=}\n", "f.yaml:2:11: the tag !!binary is not supported"},
		{
			"a secret in the file", "fleet: 1\nsecrets: {a: s3cr3t}\n",
			"f.yaml:2:14: a secret is keep, or the source of its value",
		},
		{
			"a secret with two sources", "fleet: 1\nsecrets: {a: {file: x, env: y}}\n",
			"f.yaml:2:14: a secret has one source",
		},
		{
			"a variable and a secret", "fleet: 1\nvars: {a: 1}\nsecrets: {a: keep}\n",
			"f.yaml:2:8: a is in vars and in secrets",
		},
		{
			"a selector that is none", "fleet: 1\ngroups: {a: {selector: 'a in'}}\n",
			"f.yaml:2:14: the selector \"a in\" is malformed",
		},
		{"an empty selector", "fleet: 1\ngroups: {a: {selector: ' '}}\n", "f.yaml:2:14: the selector is empty"},
		{
			"a selector of what changes", "fleet: 1\ngroups: {a: {selector: group=b}}\n",
			"f.yaml:2:14: the selector depends on the group of nodes",
		},
		{
			"a merge key", "fleet: 1\nnodes:\n  a-1: &a {}\n  b-1: {<<: *a}\n",
			"f.yaml:4:9: merge keys (<<) are not supported",
		},
		{"an unknown alias", "fleet: 1\nvars: {a: *b}\n", "unknown anchor 'b' referenced"},
		{"aliases that multiply", bomb(), "(aliases multiply them)"},
		{"an alias in itself", "fleet: 1\nvars: {a: &a [*a]}\n", "nested more than"},
		{"a mapping in itself", "fleet: 1\nnodes: &a\n  b-1: *a\n", "f.yaml:3:3: unknown key \"b-1\""},
		{
			"too deep", "fleet: 1\nvars: {a: " + strings.Repeat("[", 60) + strings.Repeat("]", 60) + "}\n",
			"nested more than",
		},
		{"too long", "fleet: 1\n# " + strings.Repeat("x", api.MaxFleetBytes), "f.yaml:1:1: more than 16 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			d, err := fleet.Read(api.FleetFile{Name: "f.yaml", Text: tt.file})
			if d != nil || inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v: %q (%s), want %q", d, err, inventory.KindOf(err), tt.says)
			}
		})
	}
}

// TestReadAmounts: a size is a number or a text, and means the same as that of the manager.
func TestReadAmounts(t *testing.T) {
	t.Parallel()

	for _, size := range []string{"2", `"2"`, "0x2"} {
		bound := "{max_unavailable: " + size + "}"
		file := "fleet: 1\ngroups: {a: {budget: " + bound + ", strategy: " + bound + "}}\n"

		d, err := fleet.Read(api.FleetFile{Name: "f.yaml", Text: file})
		errtest.None(t, err)

		for _, w := range d.Wants {
			if rule, ok := w.Value.(map[string]any); ok && rule["max_unavailable"] != "2" {
				t.Errorf("%s: %s is %v", size, w.Cell, w.Value)
			}
		}
	}
}

// TestReadMany checks that an error lists a bounded number of problems, by position.
func TestReadMany(t *testing.T) {
	t.Parallel()

	var b strings.Builder

	b.WriteString("fleet: 1\nnodes:\n")

	for i := range 30 {
		fmt.Fprintf(&b, "  n-%d: {x: 1}\n", i)
	}

	_, err := fleet.Read(api.FleetFile{Name: "f", Text: b.String()})
	if lines := strings.Split(err.Error(), "\n"); len(lines) < 21 || !strings.HasPrefix(lines[0], "f:3:9: ") ||
		!strings.HasPrefix(lines[20], "and 10 more") {
		t.Error(err)
	}
}

// TestReadMerges checks that each value may be in one file only, and that the position of
// the other one is named.
func TestReadMerges(t *testing.T) {
	t.Parallel()

	a := api.FleetFile{
		Name: "a.yaml", Text: "fleet: 1\nvars: {x: 1}\nnodes: {a-1: {labels: {r: a}}}\ngroups: {g: {}}\n",
	}
	b := api.FleetFile{Name: "b.yaml", Text: "fleet: 1\nvars: {y: 2}\nnodes: {b-1: {}}\ngroups: {h: {}}\n"}

	d, err := fleet.Read(a, b)
	if err != nil || len(d.Nodes) != 2 || len(d.Groups) != 2 || len(d.Wants) != 5 {
		t.Fatalf("%+v: %v", d, err)
	}

	b.Text += "secrets: {x: keep}\n"
	c := api.FleetFile{Name: "c.yaml", Text: "fleet: 1\nnodes:\n  a-1: {labels: {s: b}}\nvars: {x: 1}\n"}

	_, err = fleet.Read(a, b, c)
	for _, text := range []string{
		`a.yaml:2:8: x is in vars and in secrets`,
		`c.yaml:3:3: the node "a-1" is given twice; first at a.yaml:3:9`,
		`c.yaml:4:8: the variable "x" is given twice; first at a.yaml:2:8`,
	} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v lacks %q", err, text)
		}
	}
}

// FuzzRead checks that no text makes the reader panic, or take long.
func FuzzRead(f *testing.F) {
	f.Add("fleet: 1\nnodes: {a-1: {group: x, labels: {r: a}, vars: {a: [1, {b: null}]}, secrets: {s: {file: x}}}}\n")
	f.Add("fleet: 1\nvars: &a {a: &b [*b, *a]}\ngroups: *a\n")
	f.Add("fleet: 1\nnodes: &n {a: *n}\nsettings: {a.b: !!float 1}\n")
	f.Add(bomb())

	s := manager(f, "a-1 m Allocated Discovered")

	f.Fuzz(func(t *testing.T, text string) {
		d, err := fleet.Read(api.FleetFile{Name: "f", Text: text})
		if (d == nil) == (err == nil) {
			t.Fatalf("%v, %v", d, err)
		}

		if err != nil {
			if inventory.KindOf(err) != inventory.KindInvalid {
				t.Errorf("%v: %s", err, inventory.KindOf(err))
			}
			return
		}

		if _, err := fleet.Compare(d, s, fleet.Options{Prune: true, IgnoreMissing: true}); err != nil &&
			inventory.KindOf(err) != inventory.KindInvalid {
			t.Error(err)
		}
	})
}
