// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Types makes schemas of Go types: fields and kinds by reflection, descriptions from the comments in their source, and
// limits from the tags of the fields.
type Types struct {
	comments map[string]string   // of PACKAGE.TYPE and PACKAGE.TYPE.FIELD
	values   map[string][]string // the constants of PACKAGE.TYPE, or the values of PACKAGE.TYPE.FIELD
	named    map[string]bool     // schemas that the document itself has
	schemas  *yaml.Node
	missing  []error
}

// NewTypes reads the comments in Go sources. values lists those of fields, as PACKAGE.TYPE.FIELD,
// that no constants of their type give.
func NewTypes(values map[string][]string, sources ...fs.FS) (*Types, error) {
	t := &Types{
		comments: map[string]string{}, values: map[string][]string{}, named: map[string]bool{},
		schemas: &yaml.Node{Kind: yaml.MappingNode},
	}

	maps.Copy(t.values, values)

	for _, source := range sources {
		files, err := fs.Glob(source, "*.go")
		if err != nil {
			return nil, err
		}

		for _, name := range files {
			text, err := fs.ReadFile(source, name)
			if err != nil {
				return nil, err
			}

			file, err := parser.ParseFile(
				token.NewFileSet(),
				name,
				text,
				parser.ParseComments|parser.SkipObjectResolution,
			)
			if err != nil {
				return nil, err
			}
			t.readComments(file)
		}
	}

	return t, nil
}

func (t *Types) readComments(file *ast.File) {
	in := file.Name.Name + "."

	for _, d := range file.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}

		for _, s := range group.Specs {
			switch spec := s.(type) {
			case *ast.TypeSpec:
				t.readType(in+spec.Name.Name, spec, cmp.Or(spec.Doc, group.Doc))
			case *ast.ValueSpec:
				t.readConstant(in, spec)
			}
		}
	}
}

func (t *Types) readType(name string, spec *ast.TypeSpec, doc *ast.CommentGroup) {
	t.comments[name] = aboutType(doc.Text())

	fields, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}

	for _, f := range fields.Fields.List {
		text := oneLine(f.Doc.Text())
		if text == "" {
			text = sentence(f.Comment.Text())
		}
		for _, field := range f.Names {
			t.comments[name+"."+field.Name] = text
		}
	}
}

// readConstant reads constants of a type of their own.
func (t *Types) readConstant(in string, spec *ast.ValueSpec) {
	of, ok := spec.Type.(*ast.Ident)
	if !ok {
		return
	}

	for _, value := range spec.Values {
		if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, _ := strconv.Unquote(literal.Value)
			t.values[in+of.Name] = append(t.values[in+of.Name], text)
		}
	}
}

// subject is how the comment of a type begins.
var subject = regexp.MustCompile(`^\w+ (is|are) `)

// aboutType returns the first paragraph of the comment of a type, without the name of the type.
func aboutType(comment string) string {
	first, _, _ := strings.Cut(comment, "\n\n")
	return sentence(subject.ReplaceAllString(first, ""))
}

// sentence returns a comment as one line that begins with a capital and ends with a full stop.
func sentence(comment string) string {
	text := oneLine(comment)
	if text == "" {
		return ""
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}

	return strings.ToUpper(text[:1]) + text[1:]
}

// schema returns the schema of the type of a value.
func (t *Types) schema(value any) *yaml.Node {
	switch v := value.(type) {
	case Ref:
		return pairs("$ref", "#/components/schemas/"+string(v))
	case AnyOf:
		kinds := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, one := range v {
			kinds.Content = append(kinds.Content, t.schema(one))
		}

		return pairs("anyOf", kinds)
	default:
		return t.schemaOf(reflect.TypeOf(value))
	}
}

// schemaOf returns the schema of a type: a reference to a named schema, which it adds if it is new.
func (t *Types) schemaOf(of reflect.Type) *yaml.Node {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}

	name := nameOf(of)

	switch kind := of.Kind(); {
	case of == reflect.TypeFor[time.Time]():
		return pairs("type", "string", "format", "date-time")
	case of == reflect.TypeFor[json.RawMessage]():
		return pairs("type", "object")
	case of.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return pairs("type", "string")
	case t.named[name]:
		return pairs("$ref", "#/components/schemas/"+name)
	case kind == reflect.String && len(t.values[declared(of)]) > 0:
		return pairs("type", "string", "enum", list(t.values[declared(of)]))
	case kind == reflect.String:
		return pairs("type", "string")
	case kind == reflect.Bool:
		return pairs("type", "boolean")
	case kind == reflect.Int:
		return pairs("type", "integer", "minimum", scalarNode("0"))
	case kind == reflect.Int64:
		return pairs("type", "integer", "format", "int64")
	case kind == reflect.Uint64:
		return pairs("type", "integer", "format", "int64", "minimum", scalarNode("0"))
	case kind == reflect.Float64:
		return pairs("type", "number")
	case kind == reflect.Slice:
		return pairs("type", "array", "items", t.schemaOf(of.Elem()))
	case kind == reflect.Map && of.Elem().Kind() == reflect.Interface:
		return pairs("type", "object", "additionalProperties", scalarNode("true"))
	case kind == reflect.Map:
		values := t.schemaOf(of.Elem())
		if of.Elem().Kind() == reflect.Pointer { // null removes a value
			set(values, "type", list([]string{get(values, "type").Value, "null"}))
		}
		return pairs("type", "object", "additionalProperties", values)
	case kind == reflect.Struct:
		t.object(name, of)
		return pairs("$ref", "#/components/schemas/"+name)
	default: // any value
		return pairs("type", list([]string{"object", "array", "string", "number", "boolean", "null"}))
	}
}

// object adds the schema of a struct.
func (t *Types) object(name string, of reflect.Type) {
	if get(t.schemas, name) != nil {
		return
	}

	schema := block(
		"type", "object", "description", t.comments[declared(of)], "additionalProperties", scalarNode("false"),
	)
	set(t.schemas, name, schema) // before the fields, which may be of the same type

	properties, required := &yaml.Node{Kind: yaml.MappingNode}, []string{}

	for _, f := range reflect.VisibleFields(of) {
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous && key == "" || key == "-" {
			continue
		}
		if !strings.Contains(options, "omit") {
			required = append(required, key)
		}

		set(properties, key, t.field(of, f))
	}

	if len(required) > 0 {
		set(schema, "required", list(required))
	}

	set(schema, "properties", properties)
}

// limits are the tags of a field that are keywords of its schema.
var limits = []string{
	"minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "pattern", "example",
}

func (t *Types) field(of reflect.Type, f reflect.StructField) *yaml.Node {
	// The field of an embedded type is described there.
	for _, i := range f.Index[:len(f.Index)-1] {
		of = of.Field(i).Type
	}

	at := declared(of) + "." + f.Name

	schema := t.schemaOf(f.Type)

	values := t.values[at]
	if tag := f.Tag.Get("enum"); tag != "" {
		values = strings.Split(tag, ",")
	}

	switch items := get(schema, "items"); {
	case len(values) == 0:
	case items != nil:
		set(items, "enum", list(values))
	default:
		schema = pairs("type", "string", "enum", list(values))
	}

	for _, limit := range limits {
		if value, ok := f.Tag.Lookup(limit); ok {
			set(schema, limit, scalarNode(value))
		}
	}

	switch kinds := f.Tag.Get("type"); {
	case kinds == "":
	case get(schema, "$ref") != nil: // an object or null
		schema = pairs("oneOf", sequence(schema, pairs("type", stringNode("null"))))
	default:
		set(schema, "type", list(strings.Split(kinds, ",")))
	}

	text := t.comments[at]
	if text == "" && get(schema, "$ref") == nil {
		t.missing = append(t.missing, fmt.Errorf("the field %s has no comment, which describes it", at))
	}
	if text != "" {
		set(schema, "description", stringNode(text))
	}

	return schema
}

// declared returns how the source names a type: PACKAGE.TYPE, without the arguments of a generic one.
func declared(of reflect.Type) string {
	name, _, _ := strings.Cut(of.Name(), "[")
	return path.Base(of.PkgPath()) + "." + name
}

// nameOf returns the name of the schema of a type: TokenList for List[Token].
func nameOf(of reflect.Type) string {
	outer, inner, ok := strings.Cut(of.Name(), "[")
	if !ok {
		return outer
	}
	inner = strings.TrimSuffix(inner, "]")

	return inner[strings.LastIndex(inner, ".")+1:] + outer
}

// The nodes of a document.

func scalarNode(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

func stringNode(value string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(value)

	// Older readers of YAML take these for booleans.
	if slices.Contains([]string{"on", "off", "yes", "no", "y", "n"}, value) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func list(values []string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, v := range values {
		n.Content = append(n.Content, stringNode(v))
	}

	return n
}

func sequence(items ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Content: items}
}

// block is pairs over several lines.
func block(keysAndValues ...any) *yaml.Node {
	n := pairs(keysAndValues...)
	n.Style = 0
	return n
}

// pairs returns a mapping of keys to texts and nodes.
func pairs(keysAndValues ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}

	for pair := range slices.Chunk(keysAndValues, 2) {
		key := fmt.Sprint(pair[0])
		if value, ok := pair[1].(*yaml.Node); ok {
			set(n, key, value)
		} else {
			set(n, key, stringNode(fmt.Sprint(pair[1])))
		}
	}

	return n
}

// get returns the value of a key, or nil.
func get(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}

	return nil
}

// set sets the value of a key, in its place or at the end.
func set(n *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content[i+1] = value
			return
		}
	}

	n.Content = append(n.Content, stringNode(key), value)
}

// Err returns what the sources do not describe.
func (t *Types) Err() error { return errors.Join(t.missing...) }
