// SPDX-License-Identifier: Apache-2.0

// Package listing reads lists of machines in the forms that sites have: TripleO's instackenv as JSON, YAML or CSV, the
// map of Bifrost, and inventories of Ansible. The form is told from the content. Reading finds every mistake of a
// list, not the first.
package listing

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/evidence"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
)

// The bounds of a list.
const (
	MaxBytes   = api.MaxImportBytes
	MaxEntries = 10_000

	maxDepth    = 32
	maxValues   = 1_000_000 // with the copies that aliases make
	maxProblems = 200       // that are named, and as many warnings
	maxLine     = 2000      // of one, in bytes
)

// Entry is a machine of a list.
type Entry struct {
	machine.Machine // Node is the given name, or one made of the address of the BMC, a MAC or the ssh address

	Named      bool // the list gives the name
	Line       int
	Addr       string // where the host is reached by ssh; empty: unknown
	Connection configuration.Connection
	Labels     map[string]string
	Vars       configuration.Vars

	lines map[string]int // of the fields that are there
	bare  bool           // of a CSV list without a header
}

// Problem is a mistake or a warning.
type Problem struct {
	Entry   int    // the number of the entry, from 1; 0: the list as a whole
	Name    string // of the entry, if it has one
	Line    int    // 0: unknown
	Field   string // empty: the entry as a whole
	Message string
}

// String returns the problem in one line.
func (p Problem) String() string {
	var at []string

	if p.Entry > 0 {
		entry := fmt.Sprintf("entry %d", p.Entry)
		if p.Name != "" {
			entry += " (" + inventory.Shorten(p.Name, 80) + ")"
		}

		at = append(at, entry)
	}

	if p.Line > 0 {
		at = append(at, fmt.Sprintf("line %d", p.Line))
	}

	if p.Field != "" {
		at = append(at, inventory.Shorten(p.Field, 80))
	}

	return inventory.Printable(strings.ReplaceAll(strings.Join(append(at, p.Message), ": "), "\n", " "))
}

// Err returns the error for the mistakes of a list, all of them; nil for none.
func Err(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}

	problems = slices.Clone(problems)
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(a.Entry-b.Entry, a.Line-b.Line)
	})

	return inventory.Errorf(inventory.KindInvalid, "the list of machines is wrong: nothing was changed\n%s",
		strings.Join(Lines(problems), "\n")).Do("correct the list, and import it again")
}

// Lines returns the problems in one line each: the first ones, and how many more there are.
func Lines(problems []Problem) []string {
	lines := make([]string, 0, len(problems))
	for _, p := range problems {
		lines = append(lines, p.String())
	}

	return inventory.ShortenAll(lines, maxProblems, maxLine)
}

// Parse reads a list. Without problems, entries has every machine of it.
func Parse(data []byte) (entries []Entry, warnings, problems []Problem) {
	p := &parser{}

	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))

	switch {
	case len(data) > MaxBytes:
		p.whole(0, "it is larger than %d MiB", MaxBytes>>20)
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		p.whole(0, "it is no text in UTF-8")
	default:
		p.parse(data)
	}

	if len(p.raws) == 0 && len(p.problems) == 0 {
		p.whole(0, "it names no machine")
	}

	for i := range p.raws {
		p.entry(i+1, p.raws[i])
	}

	p.distinct()

	return p.entries, p.warnings, p.problems
}

// parser is a list that is being read.
type parser struct {
	raws     []raw
	entries  []Entry
	warnings []Problem
	problems []Problem
}

// raw is an entry in any form, with the names of the fields of instackenv and of our own.
type raw struct {
	name   string // for messages
	line   int
	bad    bool // a problem says so already
	host   bool // a host of Ansible, which has no BMC
	bare   bool // of a CSV list without a header, whose columns may be swapped: no message shows a value
	fields []field
}

// field is a field of an entry. Its node has the line.
type field struct {
	key   string
	value *yaml.Node
}

func (r *raw) add(key string, value *yaml.Node) { r.fields = append(r.fields, field{key, value}) }

// addText adds a text field.
func (r *raw) addText(key, value string, line int) {
	r.add(key, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Line: line})
}

// whole notes a mistake of the list as a whole.
func (p *parser) whole(line int, format string, args ...any) {
	p.problems = append(p.problems, Problem{Line: line, Message: fmt.Sprintf(format, args...)})
}

// parse reads the entries in the form that the content shows.
func (p *parser) parse(data []byte) {
	first := firstLine(data)

	switch {
	case first == "":
	case section.MatchString(first):
		p.ini(data)
	case first[0] == '{' || first[0] == '[':
		p.json(data)
	case separatorOf(first) != 0:
		p.csv(data, separatorOf(first))
	default:
		p.yamlOrINI(data)
	}
}

// firstLine returns the first line that is neither empty nor a comment.
func firstLine(data []byte) string {
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != ';' && string(line) != "---" {
			return string(line)
		}
	}

	return ""
}

// distinct refuses what must differ between entries: names, MACs, UUIDs, BMCs and ssh addresses.
func (p *parser) distinct() {
	type place struct {
		entry int
		name  string
		line  int
	}

	seen := map[string]place{}

	for i, e := range p.entries {
		for _, id := range e.identities() {
			first, twice := seen[id.key]
			if !twice {
				seen[id.key] = place{i + 1, e.Node, e.Line}
				continue
			}

			name, what, at := e.Node, id.what+" "+id.value, fmt.Sprintf("%s, line %d", first.name, first.line)
			if e.bare {
				name, what, at = "", id.what, fmt.Sprintf("line %d", first.line)
			}

			message := fmt.Sprintf("%s is that of entry %d (%s) already", what, first.entry, at)
			if first.entry == i+1 {
				message = what + " is there twice"
			}

			field := id.field
			if field == "ports" && e.lines["ports"] == 0 {
				field = "mac"
			}

			p.problems = append(p.problems, Problem{
				i + 1, name, cmp.Or(e.lines[field], e.Line), field, message,
			})
		}
	}
}

// identity is something that tells a machine from all others.
type identity struct {
	key         string // comparable
	field       string
	what, value string // in words
}

// identities returns what tells the machine of the entry from all others.
func (e *Entry) identities() []identity {
	var ids []identity
	if e.Node != "" {
		ids = append(ids, identity{"name " + e.Node, "name", "the name", e.Node})
	}

	for _, key := range Keys(&e.Machine, e.Addr) {
		kind, value, _ := strings.Cut(key, " ")
		switch kind {
		case "mac":
			ids = append(ids, identity{key, "ports", "the MAC", value})
		case "uuid":
			ids = append(ids, identity{key, "uuid", "the UUID", value})
		case "bmc":
			ids = append(ids, identity{key, "pm_addr", "the BMC", value})
		case "ssh":
			ids = append(ids, identity{key, "addr", "the address", value})
		}
	}

	return ids
}

// Keys returns the evidence of the identity of a machine: its BMC, MACs, UUID and ssh address. Two machines that share
// one are the same. A UUID that a vendor made up is none.
func Keys(m *machine.Machine, addr string) (keys []string) {
	if place := Place(m.BMC); place != "" {
		keys = append(keys, strings.TrimSpace("bmc "+place+" "+m.BMC.System))
	}

	for _, port := range m.Ports {
		keys = append(keys, "mac "+port.MAC)
	}

	if !evidence.MadeUp(m.UUID) {
		keys = append(keys, "uuid "+m.UUID)
	}

	if addr != "" {
		keys = append(keys, "ssh "+addr)
	}

	return keys
}

// Place returns where a BMC is reached, which several machines may share; "": not known.
func Place(b *machine.BMC) string {
	if b == nil || b.Address == "" {
		return ""
	}

	place := strings.ToLower(b.Address)
	if b.Port != 0 {
		place += fmt.Sprintf(":%d", b.Port)
	}

	return place
}
