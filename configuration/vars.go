// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
)

// Bounds on a set of variables. They keep a request well inside what etcd
// stores in one value and what Ansible copes with.
const (
	MaxVarsBytes = 256 << 10 // of the variables as JSON
	MaxVarsDepth = 32        // of nested lists and maps, the set itself included

	maxYAMLNodes = 100_000 // visited while reading YAML: aliases may multiply
)

// Vars is a set of variables by name. Values are in a normal form that survives
// JSON and YAML unchanged: nil, bool, string, int64, json.Number (every number
// that is not an integer of 64 bits, with its literal), []any, map[string]any.
// ParseVars and the Unmarshal methods produce it; a set built in Go may hold
// other integers, floats, slices and maps with string keys as well.
type Vars map[string]any

// ParseVars reads a JSON or YAML object. Nothing, white space and null are the
// empty set. Errors are of kind invalid and name line and column. YAML is read
// as Ansible reads it: a bare yes, no, on or off is a boolean.
func ParseVars(data []byte) (Vars, error) {
	v, err := parseVars(data)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "%w", err)
	}

	return v, nil
}

func parseVars(data []byte) (Vars, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return Vars{}, nil
	}

	if !utf8.Valid(data) {
		return nil, errors.New("variables are not UTF-8 text")
	}

	if looksLikeJSON(data) {
		v, jsonErr := parseJSON(data)
		if jsonErr == nil {
			return asVars(v, 1)
		}

		// {a: 1} is YAML too; what begins like JSON keeps JSON's error.
		if n, err := parseYAML(data); err == nil {
			return n, nil
		}

		return nil, jsonErr
	}

	return parseYAML(data)
}

// UnmarshalJSON reads a JSON object in the normal form, keeping 64-bit integers
// and the literals of other numbers, and refusing duplicate keys.
func (v *Vars) UnmarshalJSON(data []byte) error {
	if string(bytes.TrimSpace(data)) == "null" {
		return nil
	}

	x, err := parseJSON(data)
	if err != nil {
		return err
	}

	m, err := asVars(x, 1)
	if err != nil {
		return err
	}

	*v = m

	return nil
}

// UnmarshalYAML reads a YAML mapping in the normal form.
func (v *Vars) UnmarshalYAML(node *yaml.Node) error {
	r := yamlReader{}

	x, err := r.value(node, 1)
	if err != nil {
		return err
	}

	m, err := asVars(x, node.Line)
	if err != nil {
		return err
	}

	*v = m

	return nil
}

func asVars(x any, line int) (Vars, error) {
	switch x := x.(type) {
	case nil:
		return Vars{}, nil
	case map[string]any:
		return x, nil
	default:
		return nil, fmt.Errorf(
			"line %d: variables must be an object such as {\"name\": \"value\"}, not %s",
			line,
			kindOf(x),
		)
	}
}

func kindOf(x any) string {
	switch x.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	case int64, json.Number:
		return "a number"
	default:
		return fmt.Sprintf("a %T", x)
	}
}

// looksLikeJSON is true where only JSON's own errors help: text that begins as
// a JSON object or list does.
func looksLikeJSON(data []byte) bool {
	t := bytes.TrimSpace(data)
	return t[0] == '{' || t[0] == '['
}

func parseJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	at := func(err error) error {
		off := dec.InputOffset()

		var syn *json.SyntaxError
		if errors.As(err, &syn) {
			off = syn.Offset
		}

		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			off = int64(len(data))
			err = errors.New("ends before the object does")
		}

		line, col := position(data, off)

		return fmt.Errorf("line %d, column %d: %w", line, col, err)
	}

	v, err := jsonValue(dec, 0)
	if err != nil {
		return nil, at(err)
	}

	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, at(errors.New("text follows the end of the object"))
	}

	return v, nil
}

func jsonValue(dec *json.Decoder, depth int) (any, error) {
	if depth > MaxVarsDepth {
		return nil, fmt.Errorf("nested more than %d deep", MaxVarsDepth)
	}

	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}

	switch t := tok.(type) {
	case json.Number:
		return number(t), nil
	case json.Delim:
		if t == '[' {
			list := []any{}
			for dec.More() {
				e, err := jsonValue(dec, depth+1)
				if err != nil {
					return nil, err
				}

				list = append(list, e)
			}

			_, err := dec.Token()

			return list, err
		}

		m := map[string]any{}
		for dec.More() {
			k, err := dec.Token()
			if err != nil {
				return nil, err
			}

			key, _ := k.(string) // the decoder lets nothing else be a key
			if _, twice := m[key]; twice {
				return nil, fmt.Errorf("key %q is given twice", key)
			}

			if m[key], err = jsonValue(dec, depth+1); err != nil {
				return nil, err
			}
		}

		_, err := dec.Token()

		return m, err
	default:
		return tok, nil
	}
}

func number(n json.Number) any {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return i
	}

	return n
}

func position(data []byte, offset int64) (line, col int) {
	offset = min(max(offset, 0), int64(len(data)))
	before := data[:offset]
	line = 1 + bytes.Count(before, []byte{'\n'})
	col = max(1, utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]))

	return line, col
}

func parseYAML(data []byte) (Vars, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))

	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) { // only comments
			return Vars{}, nil
		}

		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}

	var second yaml.Node
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("variables must be one YAML document; remove what follows the first")
	}

	var v Vars
	if err := v.UnmarshalYAML(&doc); err != nil {
		return nil, err
	}

	return v, nil
}

type yamlReader struct{ visited int }

var yaml11Bools = map[string]bool{"yes": true, "on": true, "no": false, "off": false}

func (r *yamlReader) value(n *yaml.Node, depth int) (any, error) {
	fail := func(format string, args ...any) (any, error) {
		return nil, fmt.Errorf("line %d, column %d: %s", n.Line, n.Column, fmt.Sprintf(format, args...))
	}
	if r.visited++; r.visited > maxYAMLNodes {
		return fail("more than %d values (aliases multiply them)", maxYAMLNodes)
	}

	if depth > MaxVarsDepth+2 {
		return fail("nested more than %d deep", MaxVarsDepth)
	}

	switch n.Kind {
	case yaml.DocumentNode:
		return r.value(n.Content[0], depth)
	case yaml.AliasNode:
		return r.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		if n.ShortTag() != "!!seq" {
			return fail("the tag %s is not supported in variables", n.Tag)
		}

		list := make([]any, 0, len(n.Content))
		for _, e := range n.Content {
			v, err := r.value(e, depth+1)
			if err != nil {
				return nil, err
			}

			list = append(list, v)
		}

		return list, nil
	case yaml.MappingNode:
		if n.ShortTag() != "!!map" {
			return fail("the tag %s is not supported in variables", n.Tag)
		}

		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str" {
				return nil, fmt.Errorf(
					"line %d, column %d: key %q is not a string; put it in quotes",
					k.Line,
					k.Column,
					k.Value,
				)
			}

			if _, twice := m[k.Value]; twice {
				return nil, fmt.Errorf("line %d, column %d: key %q is given twice", k.Line, k.Column, k.Value)
			}

			v, err := r.value(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}

			m[k.Value] = v
		}

		return m, nil
	}

	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return fail("%q is not a boolean", n.Value)
		}

		return b, nil
	case "!!int":
		var i int64
		if err := n.Decode(&i); err == nil {
			return i, nil
		}

		if json.Valid([]byte(n.Value)) {
			return json.Number(n.Value), nil
		}

		return fail("the number %s is too large; put it in quotes", n.Value)
	case "!!float":
		var f float64
		if err := n.Decode(&f); err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return fail("%s is not a finite number; put it in quotes", n.Value)
		}

		if json.Valid([]byte(n.Value)) {
			return json.Number(n.Value), nil
		}

		return json.Number(strconv.FormatFloat(f, 'g', -1, 64)), nil
	case "!!str":
		if b, ok := yaml11Bools[strings.ToLower(n.Value)]; ok && n.Style == 0 {
			return b, nil
		}

		return n.Value, nil
	case "!!timestamp":
		return n.Value, nil
	default:
		return fail("the tag %s is not supported in variables", n.Tag)
	}
}

// normal brings a value built in Go into the normal form of Vars.
func normal(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, int64:
		return v, nil
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("is not UTF-8 text")
		}

		return v, nil
	case json.Number:
		if !json.Valid([]byte(v)) || len(v) == 0 || v[0] == '"' {
			return nil, fmt.Errorf("%q is not a number", v.String())
		}

		return number(v), nil
	}

	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Bool:
		return r.Bool(), nil
	case reflect.String:
		return normal(r.String())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return r.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return number(json.Number(strconv.FormatUint(r.Uint(), 10))), nil
	case reflect.Float32, reflect.Float64:
		f := r.Float()
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, errors.New("is not a finite number")
		}

		return number(json.Number(strconv.FormatFloat(f, 'g', -1, 64))), nil
	case reflect.Slice, reflect.Array:
		list := make([]any, 0, r.Len())
		for i := range r.Len() {
			e, err := normal(r.Index(i).Interface())
			if err != nil {
				return nil, err
			}

			list = append(list, e)
		}

		return list, nil
	case reflect.Map:
		if r.Type().Key().Kind() != reflect.String {
			return nil, fmt.Errorf("is a %T; keys must be strings", v)
		}

		m := make(map[string]any, r.Len())
		for it := r.MapRange(); it.Next(); {
			k := it.Key().String()
			if !utf8.ValidString(k) {
				return nil, fmt.Errorf("key %q is not UTF-8 text", k)
			}

			e, err := normal(it.Value().Interface())
			if err != nil {
				return nil, fmt.Errorf("key %q: %w", k, err)
			}

			m[k] = e
		}

		return m, nil
	case reflect.Pointer, reflect.Interface:
		if r.IsNil() {
			return nil, nil
		}

		return normal(r.Elem().Interface())
	default:
		return nil, fmt.Errorf("is a %T, which is not a variable's value", v)
	}
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// managerNames are host variables that the manager writes itself.
var managerNames = []string{"node_name", "node_addr", "node_label", "node_serial", "node_group", "node_commissioned"}

// magicNames are set by Ansible for every host; a variable of that name would
// silently have no effect.
var magicNames = []string{
	"groups", "group_names", "hostvars", "inventory_dir", "inventory_file", "inventory_hostname",
	"inventory_hostname_short", "omit", "play_hosts", "playbook_dir", "role_name", "role_names", "role_path",
	"role_uuid", "vars",
}

var pythonKeywords = strings.Fields(`False None True and as assert async await break class continue def del elif else
	except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield`)

// CheckVars refuses names that Ansible could not use, names that belong to
// Ansible or to the manager, and sets that are too deep or too large. The error
// is of kind invalid and says what is wrong with each variable, in order.
func CheckVars(v Vars) error {
	var errs []error

	add := func(name, reason string) { errs = append(errs, fmt.Errorf("variable %q: %s", name, reason)) }
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if reason := nameProblem(name); reason != "" {
			add(name, reason)
		}

		x, err := normal(v[name])
		if err != nil {
			add(name, err.Error())
		} else if deeper(x, MaxVarsDepth-1) {
			add(name, fmt.Sprintf("is nested more than %d deep", MaxVarsDepth))
		}
	}

	if len(errs) == 0 {
		if b, err := json.Marshal(map[string]any(v)); err != nil {
			errs = append(errs, fmt.Errorf("variables cannot be written as JSON: %w", err))
		} else if len(b) > MaxVarsBytes {
			errs = append(
				errs,
				fmt.Errorf(
					"the variables are %d bytes long as JSON, more than the %d allowed; put large content into a file of the playbook folder",
					len(b),
					MaxVarsBytes,
				),
			)
		}
	}

	return invalid(errs)
}

func nameProblem(name string) string {
	lower := strings.ToLower(name)
	switch {
	case !identifier.MatchString(name):
		return "is not a variable name; use letters, digits and underscores, beginning with a letter or an underscore"
	case slices.Contains(pythonKeywords, name):
		return "is a keyword that Ansible does not accept as a variable name"
	case strings.HasPrefix(lower, "ansible_"):
		return "names that begin with ansible_ are reserved; how to reach a host is set as its connection (user, key_file, port, become, jump, python)"
	case strings.HasPrefix(lower, "clusterm_"), slices.Contains(managerNames, name):
		return "is set by the manager itself; choose another name"
	case slices.Contains(magicNames, name):
		return "is set by Ansible itself and would have no effect; choose another name"
	}

	return ""
}

// deeper reports whether x nests lists and maps more than max deep.
func deeper(x any, max int) bool {
	switch x := x.(type) {
	case []any:
		return max <= 0 || slices.ContainsFunc(x, func(e any) bool { return deeper(e, max-1) })
	case map[string]any:
		if max <= 0 {
			return true
		}

		for _, e := range x {
			if deeper(e, max-1) {
				return true
			}
		}
	}

	return false
}

// LooksLikeTemplate returns the paths (such as motd or users[0].name) of
// strings that hold the beginning of a Jinja template. Such values are data and
// reach the hosts as they are; a caller may want to say so.
func LooksLikeTemplate(v Vars) []string {
	var paths []string
	var walk func(path string, x any)
	templated := func(s string) bool {
		return strings.Contains(s, "{{") || strings.Contains(s, "{%") || strings.Contains(s, "{#")
	}

	walk = func(path string, x any) {
		switch x := x.(type) {
		case string:
			if templated(x) {
				paths = append(paths, path)
			}
		case []any:
			for i, e := range x {
				walk(fmt.Sprintf("%s[%d]", path, i), e)
			}
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(x)) {
				sub := path + "[" + strconv.Quote(k) + "]"
				if identifier.MatchString(k) {
					sub = strings.TrimPrefix(path+"."+k, ".")
				}

				if templated(k) {
					paths = append(paths, sub)
				}

				walk(sub, x[k])
			}
		}
	}
	if x, err := normal(map[string]any(v)); err == nil {
		walk("", x)
	}

	return paths
}

// Origin says where a variable's value was set.
type Origin string

// Origins, low to high precedence.
const (
	OriginConfig  Origin = "config"  // the configuration file
	OriginGlobal  Origin = "global"  // vars set --global
	OriginGroup   Origin = "group"   // vars set --group
	OriginNode    Origin = "node"    // vars set --node
	OriginRequest Origin = "request" // the request's extra_vars
)

// Layer is the variables set at one place.
type Layer struct {
	Origin  Origin `json:"origin"`
	Vars    Vars   `json:"vars"`
	Trusted bool   `json:"trusted,omitempty"` // values may be templates: only the configuration file's
}

// Var is a merged variable: its value and the layer that won.
type Var struct {
	Value   any    `json:"value"`
	Origin  Origin `json:"origin"`
	Trusted bool   `json:"trusted,omitempty"`
}

// UnmarshalJSON keeps the value in the normal form of Vars.
func (v *Var) UnmarshalJSON(data []byte) error {
	var raw struct {
		Value   json.RawMessage `json:"value"`
		Origin  Origin          `json:"origin"`
		Trusted bool            `json:"trusted"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}

	*v = Var{Origin: raw.Origin, Trusted: raw.Trusted}
	if len(raw.Value) > 0 {
		x, err := parseJSON(raw.Value)
		if err != nil {
			return err
		}

		v.Value = x
	}

	return nil
}

// Merge lays layers over each other, the first lowest. A variable replaces one
// of the same name whole; values are never merged into each other.
func Merge(layers ...Layer) map[string]Var {
	merged := map[string]Var{}
	for _, l := range layers {
		for name, value := range l.Vars {
			merged[name] = Var{Value: value, Origin: l.Origin, Trusted: l.Trusted}
		}
	}

	return merged
}

// Names returns the names of merged variables in order.
func Names(vars map[string]Var) []string { return slices.Sorted(maps.Keys(vars)) }
