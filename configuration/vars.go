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
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
)

// Bounds on a set of variables. They are well below the limits of etcd for one
// value and of Ansible.
const (
	MaxVarsBytes = 256 << 10 // of the variables as JSON
	MaxVarsDepth = 32        // of nested lists and maps, the set itself included

	maxYAMLNodes = 100_000 // values in a YAML document, with aliases expanded
)

// Vars is a set of variables by name. Its normal form survives JSON and YAML
// unchanged: nil, bool, string, int64, json.Number (for numbers that do not fit
// into int64, with their literal), []any and map[string]any. ParseVars and the
// Unmarshal methods produce the normal form. A set built in Go may also hold
// other integers, floats, slices and maps with string keys.
type Vars map[string]any

// FileVar is a variable that a file of the playbooks sets.
type FileVar struct {
	File  string // in the folder of the playbooks
	Value any    // nil: null, or unknown
}

// FolderVars are the variables that the folder of the playbooks sets for a host by itself.
type FolderVars struct {
	Host  map[string]FileVar // of host_vars: they win over the inventory's
	Group map[string]FileVar // of group_vars: the inventory's win over them
}

// Merge returns the variables that a host of the inventory has in a run. One of host_vars with an unknown value is left
// out.
func (f FolderVars) Merge(inventory map[string]Var) map[string]Var {
	merged := map[string]Var{}
	for name, v := range f.Group {
		if v.Value != nil {
			merged[name] = Var{Value: v.Value, Trusted: true}
		}
	}

	maps.Copy(merged, inventory)

	for name, v := range f.Host {
		if merged[name] = (Var{Value: v.Value, Trusted: true}); v.Value == nil {
			delete(merged, name)
		}
	}

	return merged
}

// ParseVars parses a JSON or YAML object. Text that begins like JSON is JSON or
// refused: YAML reads {"a":} as null, which would replace a value. Empty input
// and null give the empty set. Errors are of kind invalid and contain line and
// column. As in Ansible, a plain yes, no, on or off in YAML is a boolean.
func ParseVars(data []byte) (Vars, error) { return asInvalid(parseVars(data)) }

// ParseJSONVars parses a JSON object. Empty input and null give the empty set.
// Errors are those of ParseVars.
func ParseJSONVars(data []byte) (Vars, error) { return asInvalid(parseJSONVars(data)) }

// ParseValue parses one value in JSON or YAML, with the rules of ParseVars.
func ParseValue(data []byte) (any, error) {
	if LooksLikeJSON(data) {
		v, err := parseJSON(data)
		if err != nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "%w", asJSON(err))
		}
		return v, nil
	}

	vars, err := ParseVars(append([]byte("value: "), data...))

	return vars["value"], err
}

func asInvalid(v Vars, err error) (Vars, error) {
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "%w", err)
	}
	return v, nil
}

func parseVars(data []byte) (Vars, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return Vars{}, nil
	}

	// encoding/json would replace invalid bytes without an error.
	if !utf8.Valid(data) {
		return nil, errors.New("variables are not UTF-8 text")
	}

	if LooksLikeJSON(data) {
		v, err := parseJSONVars(data)
		return v, asJSON(err)
	}

	return parseYAML(data)
}

func parseJSONVars(data []byte) (Vars, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return Vars{}, nil
	}

	// encoding/json would replace invalid bytes without an error.
	if !utf8.Valid(data) {
		return nil, errors.New("variables are not UTF-8 text")
	}

	v, err := parseJSON(data)
	if err != nil {
		return nil, err
	}
	return asVars(v, 1)
}

// asJSON adds the reason why text was not read as YAML.
func asJSON(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(`%w (text that begins with {, [ or " is read as JSON)`, err)
}

// UnmarshalJSON parses a JSON object into the normal form. It keeps 64-bit
// integers and the literals of other numbers, and refuses duplicate keys.
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

// UnmarshalYAML parses a YAML mapping into the normal form.
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

// byteOrderMark begins the files of some editors. YAML skips it, JSON does not.
var byteOrderMark = []byte("\ufeff")

// LooksLikeJSON reports whether text begins like a JSON object, list or string.
func LooksLikeJSON(data []byte) bool {
	t := bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(data), byteOrderMark))
	return len(t) > 0 && strings.IndexByte(`{["`, t[0]) >= 0
}

func parseJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()

	at := func(err error) error {
		off := dec.InputOffset()

		// A syntax error has a more precise position than the decoder.
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

	// The decoder accepts a stream of values, a set of variables is one.
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, at(errors.New("text follows the end of the object"))
	}

	return v, nil
}

// jsonValue decodes token by token, because encoding/json accepts duplicate keys.
func jsonValue(dec *json.Decoder, depth int) (any, error) {
	if depth > MaxVarsDepth {
		return nil, fmt.Errorf("nested more than %d deep", MaxVarsDepth)
	}

	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}

	switch tok {
	case json.Delim('['):
		return jsonList(dec, depth)
	case json.Delim('{'):
		return jsonObject(dec, depth)
	}

	if n, ok := tok.(json.Number); ok {
		return number(n), nil
	}

	return tok, nil
}

func jsonList(dec *json.Decoder, depth int) (any, error) {
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

func jsonObject(dec *json.Decoder, depth int) (any, error) {
	m := map[string]any{}
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key, _ := k.(string) // the decoder accepts only strings as keys
		if _, found := m[key]; found {
			return nil, fmt.Errorf("key %q is given twice", key)
		}
		if m[key], err = jsonValue(dec, depth+1); err != nil {
			return nil, err
		}
	}

	_, err := dec.Token()

	return m, err
}

// number returns an int64 if the literal is one, and the literal otherwise.
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

	// A comment or --- may precede text that its author means as JSON.
	root := doc.Content[0]
	if len(root.Content) > 0 && root.Style&yaml.FlowStyle != 0 {
		return nil, asJSON(yamlErrorf(root, "JSON has no comments and no document marks"))
	}

	var second yaml.Node
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("variables must be one YAML document; remove all but the first")
	}

	var v Vars
	if err := v.UnmarshalYAML(&doc); err != nil {
		return nil, err
	}

	return v, nil
}

// yamlReader converts YAML nodes to the normal form of Vars. visited counts the
// values of one document.
type yamlReader struct{ visited int }

// yaml11Bools are booleans in YAML 1.1, which Ansible reads, and strings in 1.2.
var yaml11Bools = map[string]bool{"yes": true, "on": true, "no": false, "off": false}

func (r *yamlReader) value(n *yaml.Node, depth int) (any, error) {
	if r.visited++; r.visited > maxYAMLNodes {
		return nil, yamlErrorf(n, "more than %d values (aliases multiply them)", maxYAMLNodes)
	}

	// The document and its mapping count as well.
	if depth > MaxVarsDepth+2 {
		return nil, yamlErrorf(n, "nested more than %d deep", MaxVarsDepth)
	}

	switch n.Kind {
	case yaml.DocumentNode:
		return r.value(n.Content[0], depth)
	case yaml.AliasNode:
		return r.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		return r.list(n, depth)
	case yaml.MappingNode:
		return r.mapping(n, depth)
	}

	return yamlScalar(n)
}

func yamlErrorf(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d, column %d: %s", n.Line, n.Column, fmt.Sprintf(format, args...))
}

func (r *yamlReader) list(n *yaml.Node, depth int) (any, error) {
	if n.ShortTag() != "!!seq" {
		return nil, yamlErrorf(n, "the tag %s is not supported in variables", n.Tag)
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
}

func (r *yamlReader) mapping(n *yaml.Node, depth int) (any, error) {
	if n.ShortTag() != "!!map" {
		return nil, yamlErrorf(n, "the tag %s is not supported in variables", n.Tag)
	}

	// Content alternates keys and values.
	m := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str" {
			return nil, yamlErrorf(k, "key %q is not a string; put it in quotes", k.Value)
		}
		if _, found := m[k.Value]; found {
			return nil, yamlErrorf(k, "key %q is given twice", k.Value)
		}

		v, err := r.value(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		m[k.Value] = v
	}

	return m, nil
}

func yamlScalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return nil, yamlErrorf(n, "%q is not a boolean", n.Value)
		}
		return b, nil
	case "!!int":
		return yamlInt(n)
	case "!!float":
		return yamlFloat(n)
	case "!!str":
		if b, ok := yaml11Bools[strings.ToLower(n.Value)]; ok && n.Style == 0 {
			return b, nil
		}
		return n.Value, nil
	case "!!timestamp":
		return n.Value, nil
	}

	return nil, yamlErrorf(n, "the tag %s is not supported in variables", n.Tag)
}

func yamlInt(n *yaml.Node) (any, error) {
	var i int64
	if err := n.Decode(&i); err == nil {
		return i, nil
	}

	if json.Valid([]byte(n.Value)) {
		return json.Number(n.Value), nil
	}

	// Such as a hexadecimal number of more than 64 bits.
	return nil, yamlErrorf(n, "the number %s is too large; put it in quotes", n.Value)
}

// padded matches digits with zeros in front that are not octal.
var padded = lazy(`^[-+]?0[0-9]+$`)

func yamlFloat(n *yaml.Node) (any, error) {
	// Ansible reads 008 as text. The library reads it as 8, and 007 as octal.
	if padded().MatchString(n.Value) {
		return n.Value, nil
	}

	var f float64
	if err := n.Decode(&f); err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, yamlErrorf(n, "%s is not a finite number; put it in quotes", n.Value)
	}

	// The literal keeps zeros at the end, as in the version 1.10.
	if json.Valid([]byte(n.Value)) {
		return json.Number(n.Value), nil
	}

	return number(json.Number(strconv.FormatFloat(f, 'g', -1, 64))), nil
}

// normal converts a value built in Go to the normal form of Vars.
func normal(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, int64:
		return v, nil
	case Secret:
		// What cannot be read now was checked when it was set.
		if v.locked != nil || v.source {
			return nil, nil
		}
		return normal(v.value)
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("is not UTF-8 text")
		}
		return v, nil
	case json.Number:
		if !json.Valid([]byte(v)) || len(v) == 0 || v[0] == '"' {
			return nil, fmt.Errorf("%.40q is not a number", v.String())
		}

		// Python refuses longer integers, and reads 1e999 as infinite.
		if f, err := v.Float64(); err != nil || math.IsInf(f, 0) {
			return nil, fmt.Errorf("the number %.40s… is too large; put it in quotes", v.String())
		}

		return number(v), nil
	}

	// Named types, other widths, and collections of specific types.
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
		return normalList(r)
	case reflect.Map:
		return normalMap(r)
	case reflect.Pointer, reflect.Interface:
		if r.IsNil() {
			return nil, nil
		}
		return normal(r.Elem().Interface())
	default:
		return nil, fmt.Errorf("is a %T, which is not a variable's value", v)
	}
}

func normalList(r reflect.Value) (any, error) {
	list := make([]any, 0, r.Len())
	for i := range r.Len() {
		e, err := normal(r.Index(i).Interface())
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}

	return list, nil
}

func normalMap(r reflect.Value) (any, error) {
	if r.Type().Key().Kind() != reflect.String {
		return nil, fmt.Errorf("is a %s; keys must be strings", r.Type())
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
}

var identifier = lazy(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// managerNames are host variables that the manager sets.
var managerNames = []string{
	"node_name", "node_addr", "node_label", "node_serial", "node_group", "node_commissioned", "node_labels",
	"node_facts",
}

// magicNames are set by Ansible for every host. A variable of that name would
// have no effect, without an error.
var magicNames = []string{
	"groups", "group_names", "hostvars", "inventory_dir", "inventory_file", "inventory_hostname",
	"inventory_hostname_short", "omit", "play_hosts", "playbook_dir", "role_name", "role_names", "role_path",
	"role_uuid", "vars",
}

var pythonKeywords = strings.Fields(`False None True and as assert async await break class continue def del elif else
	except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield`)

// CheckVars refuses names that are not valid in Ansible, names reserved for
// Ansible or the manager, and sets that are nested too deeply or too large. Its
// error is of kind invalid and names every problem, in order.
func CheckVars(v Vars) error {
	var errs []error

	add := func(name, problem string) { errs = append(errs, fmt.Errorf("variable %q: %s", name, problem)) }

	for _, name := range slices.Sorted(maps.Keys(v)) {
		if problem := nameProblem(name); problem != "" {
			add(name, problem)
		}

		x, err := normal(v[name])
		if err != nil {
			add(name, err.Error())
		} else if deeper(x, MaxVarsDepth-1) {
			add(name, fmt.Sprintf("is nested more than %d deep", MaxVarsDepth))
		}
	}

	// A set with other problems may not have a JSON form.
	if len(errs) == 0 {
		if err := checkSize(v); err != nil {
			errs = append(errs, err)
		}
	}

	return invalid(errs)
}

func checkSize(v Vars) error {
	plain := make(map[string]any, len(v))
	for name, value := range v {
		if s, ok := value.(Secret); ok {
			value = s.value
		}

		plain[name] = value
	}

	b, err := json.Marshal(plain)
	if err != nil {
		return fmt.Errorf("variables cannot be written as JSON: %w", err)
	}

	if len(b) > MaxVarsBytes {
		return fmt.Errorf("the variables are %d bytes long as JSON, more than the %d allowed; "+
			"put large content into a file of the playbook folder", len(b), MaxVarsBytes)
	}

	return nil
}

// nameProblem describes the problem of a variable's name; it is empty if there
// is none.
func nameProblem(name string) string {
	lower := strings.ToLower(name)
	switch {
	case !identifier().MatchString(name):
		return "is not a variable name; use letters, digits and underscores, beginning with a letter or an underscore"
	case slices.Contains(pythonKeywords, name):
		return "is a keyword that Ansible does not accept as a variable name"
	case strings.HasPrefix(lower, "ansible_"):
		return "names that begin with ansible_ are reserved; how to reach a host is set as its connection " +
			"(user, key_file, port, become, jump, python)"
	case strings.HasPrefix(lower, "clusterm_"), slices.Contains(managerNames, name):
		return "is set by the manager itself; choose another name"
	case slices.Contains(magicNames, name):
		return "is set by Ansible itself and would have no effect; choose another name"
	}

	return ""
}

// deeper reports whether x nests lists and maps more than limit deep.
func deeper(x any, limit int) bool {
	switch x := x.(type) {
	case []any:
		return limit <= 0 || slices.ContainsFunc(x, func(e any) bool { return deeper(e, limit-1) })
	case map[string]any:
		if limit <= 0 {
			return true
		}

		for _, e := range x {
			if deeper(e, limit-1) {
				return true
			}
		}
	}

	return false
}

// LooksLikeTemplate returns the paths (such as motd or users[0].name) of strings
// with the beginning of a Jinja template. Ansible does not evaluate them, so a
// caller may want to warn its user.
func LooksLikeTemplate(v Vars) []string {
	var paths []string

	templated := func(s string) bool {
		return strings.Contains(s, "{{") || strings.Contains(s, "{%") || strings.Contains(s, "{#")
	}

	var walk func(path string, x any)

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
				if identifier().MatchString(k) {
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

// Origin is the place where a variable is set.
type Origin string

// Origins, low to high precedence.
const (
	OriginConfig  Origin = "config"  // the configuration file
	OriginGlobal  Origin = "global"  // vars set --global
	OriginGroup   Origin = "group"   // vars set --group
	OriginNode    Origin = "node"    // vars set --node
	OriginRequest Origin = "request" // the request's extra_vars
)

// Layer holds the variables set in one place.
type Layer struct {
	Origin  Origin `json:"origin"`
	Vars    Vars   `json:"vars"`
	Trusted bool   `json:"trusted,omitempty"` // values may be templates; only for the configuration file
}

// Var is a merged variable with the origin of its value.
type Var struct {
	Value   any    `json:"value"`
	Origin  Origin `json:"origin"`
	Trusted bool   `json:"trusted,omitempty"`
}

// UnmarshalJSON parses the value into the normal form of Vars.
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

// Merge merges layers in ascending order of precedence. A variable replaces an
// earlier one of the same name; lists and maps are not merged. A variable that is
// Secret in a layer is Secret in those above it.
func Merge(layers ...Layer) map[string]Var {
	merged := map[string]Var{}
	for _, l := range layers {
		for name, value := range l.Vars {
			if _, secret := merged[name].Value.(Secret); secret {
				value = NewSecret(value)
			}

			merged[name] = Var{Value: value, Origin: l.Origin, Trusted: l.Trusted}
		}
	}

	return merged
}

// Names returns the sorted names of merged variables.
func Names(vars map[string]Var) []string { return slices.Sorted(maps.Keys(vars)) }
