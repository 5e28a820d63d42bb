// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Document is an OpenAPI document, in the order in which it is written.
type Document struct {
	Title       string
	Description string // Markdown, as all descriptions
	Tags        []Tag
	Operations  []Operation
	Headers     []Header
	Schemas     []Schema
	JSON        []byte // the whole document, without comments
}

// Tag is a family of operations.
type Tag struct{ Name, Description string }

// Operation is one method of one path.
type Operation struct {
	ID          string
	Method      string // in capitals
	Path        string // {…} is a parameter
	Tag         string
	Summary     string
	Description string
	Parameters  []Parameter
	Body        Body
	Answers     []Answer
}

// Parameter is a parameter of the path, the query or the header.
type Parameter struct {
	Name, In, Description string
	Required              bool
	Type                  Type
	Example               string // a value for an example's path
	Pointer               string // of its schema
}

// Body is what a request says; without Media it says nothing.
type Body struct {
	Description string
	Required    bool
	Media       []Media
}

// Media is a body in one content type.
type Media struct {
	ContentType string
	Type        Type
	Examples    []Example
	Pointer     string // of its schema; empty: it has none
	Stream      bool   // of items: Type and Pointer are those of an item
}

// Example is an example of a body.
type Example struct {
	Name, Summary string
	Value         any
	JSON          string // Value in the order in which it is written, with a newline at its end
	// Part tells that an answer holds more than that.
	Part bool
	// Request makes the answer; nil: the operation with the request's example of
	// the same name.
	Request *Request
	// Fault names what has to be broken before.
	Fault string
	// Line is where Value is written, from 1.
	Line int
}

// Request says how an example's request differs from the operation's own.
type Request struct {
	Path    string            `yaml:"path"` // with the query
	Body    string            `yaml:"body"` // the name of the request's example
	Text    string            `yaml:"text"` // a body that the document does not allow
	Headers map[string]string `yaml:"headers"`
	Size    int               `yaml:"size"` // of a body that means nothing, in bytes
}

// Answer is what a request is answered with.
type Answer struct {
	Status      string // or "default"
	Description string
	Headers     []Header
	Media       []Media
}

// Header is a header of answers.
type Header struct {
	Name, Description string
	Required          bool
	Type              Type
	Pointer           string // of its schema
}

// Schema is a named type.
type Schema struct {
	Name, Description string
	Type              Type
	Fields            []Field
}

// Field is a property of a Schema; one of an object within it is named with a dot.
type Field struct {
	Name, Description string
	Required          bool
	Type              Type
}

// Type is a type in words. A %s in Text stands for each of Refs, which are names
// of schemas.
type Type struct {
	Text string
	Refs []string
}

// at is a place in the document.
type at struct {
	root    *yaml.Node
	node    *yaml.Node // nil: there is no such thing
	pointer string     // a JSON pointer
}

// Parse reads a document in YAML.
func Parse(data []byte) (*Document, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, err
	}

	var whole any
	if err := root.Decode(&whole); err != nil {
		return nil, err
	}

	if len(root.Content) != 1 {
		return nil, fmt.Errorf("the document is empty")
	}

	top := at{root: root.Content[0], node: root.Content[0]}
	d := &Document{Title: top.get("info").text("title"), Description: top.get("info").text("description")}

	var err error
	if d.JSON, err = json.Marshal(whole); err != nil {
		return nil, err
	}

	for _, t := range top.get("tags").items() {
		d.Tags = append(d.Tags, Tag{t.text("name"), t.text("description")})
	}

	top.get("paths").each(func(path string, item at) {
		item.each(func(method string, op at) {
			if method != "parameters" {
				d.Operations = append(d.Operations, operation(path, method, item, op))
			}
		})
	})
	components := top.get("components")
	components.get("headers").each(func(name string, h at) { d.Headers = append(d.Headers, header(name, h)) })
	components.get("schemas").each(func(name string, s at) {
		d.Schemas = append(
			d.Schemas,
			Schema{Name: name, Description: s.text("description"), Type: typeOf(s), Fields: fields("", s)},
		)
	})

	return d, nil
}

func operation(path, method string, item, op at) Operation {
	o := Operation{
		ID: op.text(
			"operationId",
		),
		Method:      strings.ToUpper(method),
		Path:        path,
		Summary:     op.text("summary"),
		Description: op.text("description"),
	}
	for _, tag := range op.get("tags").items() {
		o.Tag = tag.node.Value
	}

	for _, p := range append(item.get("parameters").items(), op.get("parameters").items()...) {
		schema := p.get("schema")
		o.Parameters = append(o.Parameters, Parameter{
			Name: p.text(
				"name",
			),
			In:          p.text("in"),
			Description: p.text("description"),
			Required:    p.text("required") == "true",
			Type:        typeOf(schema),
			Example:     p.text("example"),
			Pointer:     schema.pointer,
		})
	}

	body := op.get("requestBody")
	o.Body = Body{Description: body.text("description"), Required: body.text("required") == "true", Media: media(body)}
	op.get("responses").each(func(status string, a at) {
		answer := Answer{Status: status, Description: a.text("description"), Media: media(a)}
		a.get("headers").each(func(name string, h at) { answer.Headers = append(answer.Headers, header(name, h)) })
		o.Answers = append(o.Answers, answer)
	})

	return o
}

func header(name string, h at) Header {
	schema := h.get("schema")
	return Header{
		Name:        name,
		Description: h.text("description"),
		Required:    h.text("required") == "true",
		Type:        typeOf(schema),
		Pointer:     schema.pointer,
	}
}

func media(of at) []Media {
	var out []Media
	of.get("content").each(func(contentType string, m at) {
		schema := m.get("schema")

		item := m.get("x-item")
		if item.node != nil {
			schema = item
		}

		medium := Media{
			ContentType: contentType,
			Type:        typeOf(schema),
			Pointer:     schema.pointer,
			Stream:      item.node != nil,
		}
		m.get("examples").each(func(name string, e at) {
			value := e.get("value")

			example := Example{
				Name:    name,
				Summary: e.text("summary"),
				Part:    e.text("x-part") == "true",
				Fault:   e.text("x-fault"),
			}
			if value.node != nil {
				example.Line = value.node.Line
				_ = value.node.Decode(&example.Value) // as the whole document was
				example.JSON = render(value.node, "") + "\n"
			}

			if r := e.get("x-request"); r.node != nil {
				example.Request = &Request{}
				_ = r.node.Decode(example.Request)
			}

			medium.Examples = append(medium.Examples, example)
		})
		out = append(out, medium)
	})

	return out
}

// typeOf says in words what a schema allows.
func typeOf(s at) Type {
	if s.node == nil {
		return Type{}
	}

	if name := s.name(); name != "" {
		return Type{"%s", []string{name}}
	}

	for _, key := range []string{"anyOf", "oneOf"} {
		var out Type
		for _, one := range s.get(key).items() {
			t := typeOf(one)
			out.Text, out.Refs = out.Text+" or "+t.Text, append(out.Refs, t.Refs...)
		}

		if out.Text != "" {
			out.Text = out.Text[len(" or "):]
			return out
		}
	}

	types := s.get("type")
	if types.node == nil {
		return Type{Text: "any value"}
	}

	if types.node.Kind == yaml.SequenceNode {
		var out Type
		for _, one := range types.items() {
			t := plainType(s, one.node.Value)
			out.Text, out.Refs = out.Text+" or "+t.Text, append(out.Refs, t.Refs...)
		}

		out.Text = out.Text[len(" or "):]

		return out
	}

	return plainType(s, types.node.Value)
}

func plainType(s at, name string) Type {
	switch name {
	case "array":
		of := typeOf(s.get("items"))
		return Type{"list of " + of.Text, of.Refs}
	case "object":
		if more := s.get(
			"additionalProperties",
		); more.node != nil &&
			(more.node.Kind == yaml.MappingNode || more.name() != "") {
			of := typeOf(more)
			return Type{"object of " + of.Text, of.Refs}
		}
	case "string":
		if s.text("format") == "date-time" {
			return Type{Text: "time"}
		}

		var values []string
		for _, v := range s.get("enum").items() {
			values = append(values, "`"+v.node.Value+"`")
		}

		if len(values) > 0 {
			return Type{Text: strings.Join(values, ", ")}
		}
	}

	return Type{Text: name}
}

func fields(prefix string, s at) []Field {
	required := map[string]bool{}
	for _, r := range s.get("required").items() {
		required[r.node.Value] = true
	}

	var out []Field
	s.get("properties").each(func(name string, p at) {
		meaning := p.text("description")
		if meaning == "" && p.name() != "" {
			top := at{root: s.root, node: s.root}
			meaning = top.get("components").get("schemas").get(p.name()).text("description")
		}

		out = append(out, Field{Name: prefix + name, Description: meaning, Required: required[name], Type: typeOf(p)})
		if p.name() == "" {
			out = append(out, fields(prefix+name+".", p)...)
		}
	})

	return out
}

// name is the name of the schema that a place refers to, "" where it is one itself.
func (a at) name() string {
	if a.node == nil || a.node.Kind != yaml.MappingNode {
		return ""
	}

	name, _ := strings.CutPrefix(a.ref(), "#/components/schemas/")

	return name
}

// ref is what a place refers to instead of saying it.
func (a at) ref() string {
	for i := 0; i+1 < len(a.node.Content); i += 2 {
		if a.node.Kind == yaml.MappingNode && a.node.Content[i].Value == "$ref" {
			return a.node.Content[i+1].Value
		}
	}

	return ""
}

// get is the value of a key. References are followed, but those to schemas.
func (a at) get(key string) at {
	none := at{root: a.root}
	if a.node == nil || a.node.Kind != yaml.MappingNode {
		return none
	}

	for i := 0; i+1 < len(a.node.Content); i += 2 {
		if a.node.Content[i].Value == key {
			return at{a.root, a.node.Content[i+1], a.pointer + "/" + escape(key)}.followed()
		}
	}

	return none
}

func (a at) followed() at {
	for a.node.Kind == yaml.AliasNode {
		a.node = a.node.Alias
	}

	ref := a.ref()
	if ref == "" || strings.HasPrefix(ref, "#/components/schemas/") {
		return a
	}

	to := at{root: a.root, node: a.root}
	for _, key := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		to = to.get(strings.NewReplacer("~1", "/", "~0", "~").Replace(key))
	}

	return to
}

func (a at) each(f func(key string, value at)) {
	if a.node == nil || a.node.Kind != yaml.MappingNode {
		return
	}

	for i := 0; i+1 < len(a.node.Content); i += 2 {
		key := a.node.Content[i].Value
		f(key, a.get(key))
	}
}

func (a at) items() []at {
	if a.node == nil || a.node.Kind != yaml.SequenceNode {
		return nil
	}

	var out []at
	for i, n := range a.node.Content {
		out = append(out, at{a.root, n, fmt.Sprintf("%s/%d", a.pointer, i)}.followed())
	}

	return out
}

// text is the value of a key that is a scalar.
func (a at) text(key string) string {
	v := a.get(key)
	if v.node == nil || v.node.Kind != yaml.ScalarNode {
		return ""
	}

	return v.node.Value
}

func escape(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }
