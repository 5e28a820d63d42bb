// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// The bounds of all files together.
const (
	maxValues = 1_000_000 // with aliases expanded
	maxDepth  = 48        // of nested lists and mappings
)

// element is a value of a file with its position.
type element struct {
	at    Place
	value any      // of a leaf, in the normal form of configuration.Vars
	keys  []string // of a mapping, in order
	parts map[string]*element
	null  bool
}

// reader reads elements and collects problems.
type reader struct {
	file     string
	visited  int
	problems []Problem
	full     bool // the bounds are exceeded: read no further
}

// Read reads files and merges them. Each value may be in one of them only. The error
// lists every problem with its position, and is of KindInvalid.
func Read(sources ...api.FleetFile) (*Document, error) {
	r := &reader{}

	total := 0
	for _, s := range sources {
		if total += len(s.Text); total > api.MaxFleetBytes {
			return nil, asError([]Problem{{
				Place{File: s.Name, Line: 1, Column: 1}, fmt.Sprintf("more than %d MiB", api.MaxFleetBytes>>20),
			}})
		}
	}

	merged := &element{parts: map[string]*element{}}

	for _, s := range sources {
		if e := r.read(s); e != nil {
			r.merge(merged, e)
		}
	}

	if r.full {
		return nil, asError(r.problems)
	}

	return r.document(merged)
}

// read reads one file. It returns nil for a file without content or with an error of
// the syntax.
func (r *reader) read(s api.FleetFile) *element {
	r.file = s.Name

	root := r.parse(s)
	if root == nil {
		return nil
	}
	e := r.structure(root, reflect.TypeFor[File](), 1)
	if e == nil {
		return nil
	}

	// A file of another kind would otherwise be read as far as it happens to fit.
	switch version := e.parts["fleet"]; {
	case version == nil && len(r.problems) == 0:
		r.problem(root, "the key fleet is missing; begin the file with fleet: %d", Version)
	case version != nil && version.value != int64(Version):
		r.problems = append(r.problems, Problem{version.at, fmt.Sprintf("the version of the format is %d", Version)})
	}

	return e
}

// syntaxLine matches the line in an error of the YAML library.
var syntaxLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)`)

// parse returns the root of the only document of a file, or nil.
func (r *reader) parse(s api.FleetFile) *yaml.Node {
	fail := func(line int, format string, args ...any) *yaml.Node {
		r.problems = append(
			r.problems,
			Problem{Place{File: s.Name, Line: line, Column: 1}, fmt.Sprintf(format, args...)},
		)

		return nil
	}

	dec := yaml.NewDecoder(strings.NewReader(s.Text))

	var document, second yaml.Node
	if err := dec.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return fail(1, "the file is empty; begin it with fleet: %d", Version)
		}

		m := syntaxLine.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
		line, _ := strconv.Atoi(m[1])

		return fail(max(line, 1), "%s", m[2])
	}

	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return fail(max(second.Line, 1), "the file has more than one document; write each into a file of its own")
	}

	return document.Content[0]
}

// problem adds a problem at the position of a node.
func (r *reader) problem(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, Problem{r.at(n), fmt.Sprintf(format, args...)})
}

func (r *reader) at(n *yaml.Node) Place { return Place{File: r.file, Line: n.Line, Column: n.Column} }

// resolve follows aliases, and counts the value. It returns nil if the file exceeds
// its bounds.
func (r *reader) resolve(n *yaml.Node, depth int) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n, depth = n.Alias, depth+1
	}

	r.visited++

	switch {
	case r.full:
		return nil
	case r.visited > maxValues:
		r.problem(n, "more than %d values (aliases multiply them)", maxValues)
	case depth > maxDepth:
		r.problem(n, "nested more than %d deep", maxDepth)
	default:
		return n
	}

	r.full = true

	return nil
}

// value reads a value of the type.
func (r *reader) value(n *yaml.Node, t reflect.Type, depth int) *element {
	t = deref(t)

	switch {
	case t == reflect.TypeFor[Secret]():
		return r.secret(n, depth)
	case t.Kind() == reflect.Struct:
		return r.structure(n, t, depth)
	case t.Kind() == reflect.Map:
		return r.mapping(n, func(*yaml.Node) (reflect.Type, bool) { return t.Elem(), true }, depth)
	}

	return r.leaf(n, t, depth)
}

// structure reads a mapping with the keys of a struct.
func (r *reader) structure(n *yaml.Node, t reflect.Type, depth int) *element {
	fields := fieldsOf(t)

	return r.mapping(n, func(key *yaml.Node) (reflect.Type, bool) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
		if i < 0 {
			r.problem(key, "unknown key %q%s", key.Value, nearest(key.Value, namesOf(fields)))
			return nil, false
		}

		return fields[i].typ, true
	}, depth)
}

// mapping reads a mapping. typeOf returns the type of the value of a key, and false
// for a key to skip.
func (r *reader) mapping(n *yaml.Node, typeOf func(key *yaml.Node) (reflect.Type, bool), depth int) *element {
	at := r.at(n)

	if n = r.resolve(n, depth); n == nil {
		return nil
	}

	e := &element{at: at, parts: map[string]*element{}}

	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		e.null = true
		return e
	case n.Kind != yaml.MappingNode, n.ShortTag() != "!!map":
		r.problem(n, "a mapping belongs here, not %s", describe(n))
		return nil
	}

	// Content alternates keys and values.
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !r.checkKey(key, e) {
			continue
		}

		if t, known := typeOf(key); known {
			if part := r.value(n.Content[i+1], t, depth+1); part != nil {
				part.at = r.at(key)
				e.keys = append(e.keys, key.Value)
				e.parts[key.Value] = part
			}
		}
	}

	return e
}

// checkKey refuses a key that is no text, or that the mapping has already.
func (r *reader) checkKey(key *yaml.Node, e *element) bool {
	switch {
	case key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge":
		r.problem(key, "merge keys (<<) are not supported; write the keys, or an alias of the whole mapping")
	case key.Kind != yaml.ScalarNode:
		r.problem(key, "a key has to be text, not %s", describe(key))
	case key.ShortTag() != "!!str":
		r.problem(key, "the key %s is not text; put it in quotes", key.Value)
	case strings.ContainsFunc(key.Value, unicode.IsControl):
		r.problem(key, "the key %q has a control character", key.Value)
	case e.parts[key.Value] != nil:
		r.problem(key, "%q is given twice; first at line %d", key.Value, e.parts[key.Value].at.Line)
	default:
		return true
	}

	return false
}

// leaf reads a value without parts in the grammar.
func (r *reader) leaf(n *yaml.Node, t reflect.Type, depth int) *element {
	v, ok := r.plain(n, depth)
	if !ok {
		return nil
	}
	e := &element{at: r.at(n), value: v, null: v == nil}

	// A number of nodes is kept as the manager shows it, so that the two compare.
	if number, isNumber := v.(int64); isNumber && t == reflect.TypeFor[inventory.Amount]() {
		v = strconv.FormatInt(number, 10)
		e.value = v
	}

	fits := v == nil || t.Kind() == reflect.Interface

	switch v.(type) {
	case string:
		fits = fits || t.Kind() == reflect.String
	case bool:
		fits = fits || t.Kind() == reflect.Bool
	case int64:
		fits = fits || t.Kind() == reflect.Int || t.Kind() == reflect.Int64
	case []any:
		fits = fits || t.Kind() == reflect.Slice
	}

	if text, isText := v.(string); isText && t.Kind() == reflect.String &&
		strings.ContainsFunc(text, unicode.IsControl) {
		r.problem(n, "%q has a control character", text)
		return nil
	}

	if !fits {
		hint := ""
		if t.Kind() == reflect.String && t != reflect.TypeFor[inventory.Amount]() && n.Kind == yaml.ScalarNode {
			hint = "; put it in quotes"
		}
		r.problem(n, "%s belongs here, not %s%s", kindName(t), describe(n), hint)

		return nil
	}

	return e
}

// secret reads the word keep, or a mapping with one source.
func (r *reader) secret(n *yaml.Node, depth int) *element {
	at := r.at(n)

	node := r.resolve(n, depth)
	if node == nil {
		return nil
	}

	if node.Kind == yaml.ScalarNode {
		if node.ShortTag() != "!!null" && node.Value != Keep {
			r.problem(n, "a secret is %s, or the source of its value: {file: PATH} or {env: NAME}", Keep)
			return nil
		}

		return &element{at: at, value: Keep, null: node.ShortTag() == "!!null"}
	}

	e := r.structure(node, reflect.TypeFor[Secret](), depth)
	if e == nil {
		return nil
	}

	if len(e.parts) != 1 {
		r.problem(n, "a secret has one source: {file: PATH} or {env: NAME}")
		return nil
	}

	key := e.keys[0]

	text, _ := e.parts[key].value.(string)
	if text == "" {
		r.problem(n, "the %s of the secret is empty", key)
		return nil
	}

	source := Secret{File: text}
	if key == "env" {
		source = Secret{Env: text}
	}
	return &element{at: at, value: source}
}

// position matches the position at the beginning of an error about a value.
var position = regexp.MustCompile(`^line (\d+), column (\d+): `)

// plain returns any value in the normal form of variables.
func (r *reader) plain(n *yaml.Node, depth int) (any, bool) {
	// The reader of variables has a bound for itself only.
	if !r.weigh(n, depth) {
		return nil, false
	}

	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "value"}

	var vars configuration.Vars

	err := vars.UnmarshalYAML(&yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{key, n}})
	if err == nil {
		return vars["value"], true
	}

	text, at := err.Error(), r.at(n)
	if m := position.FindStringSubmatch(text); m != nil {
		at.Line, _ = strconv.Atoi(m[1])
		at.Column, _ = strconv.Atoi(m[2])
		text = strings.TrimPrefix(text, m[0])
	}

	r.problems = append(r.problems, Problem{at, text})

	return nil, false
}

// weigh counts the values below a node, and reports whether they are within the bounds.
func (r *reader) weigh(n *yaml.Node, depth int) bool {
	if n = r.resolve(n, depth); n == nil {
		return false
	}

	for _, c := range n.Content {
		if !r.weigh(c, depth+1) {
			return false
		}
	}

	return true
}

// describe names the kind of a node, for people.
func describe(n *yaml.Node) string {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}

	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!null":
		return "null"
	}

	text := n.Value
	if len(text) > 40 {
		text = text[:40] + "…"
	}

	switch n.ShortTag() {
	case "!!int", "!!float":
		return "the number " + text
	case "!!bool":
		return text
	}

	return fmt.Sprintf("the text %q", text)
}

// merge adds the sections of a file. A key of a section may be in one file only.
func (r *reader) merge(all, e *element) {
	for _, section := range e.keys {
		part, has := e.parts[section], all.parts[section]
		if has == nil {
			all.keys = append(all.keys, section)
			all.parts[section] = part
			continue
		}

		for _, key := range part.keys {
			if other := has.parts[key]; other != nil {
				r.problems = append(r.problems, Problem{part.parts[key].at, fmt.Sprintf(
					"%s %s is given twice; first at %s", singular[section], strconv.Quote(key), other.at)})

				continue
			}

			has.keys = append(has.keys, key)
			has.parts[key] = part.parts[key]
		}
	}
}

// singular names one key of a section.
var singular = map[string]string{
	"settings": "the setting", "connection": "the connection setting", "vars": "the variable", "secrets": "the secret",
	"groups": "the group", "nodes": "the node",
}
