// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Document is a resolved OpenAPI document with its operations in file order.
type Document struct {
	*openapi3.T
	Operations []Operation
}

// Operation is one method of one path. Its Parameters include those of the path.
type Operation struct {
	*openapi3.Operation
	Method string // in capitals
	Path   string // {…} is a parameter
}

// Roles returns the roles that may use the operation.
func (o Operation) Roles() []string {
	listed, _ := o.Extensions["x-roles"].([]any)

	roles := make([]string, 0, len(listed))
	for _, role := range listed {
		roles = append(roles, fmt.Sprint(role))
	}

	return roles
}

// Answer is a response of an operation.
type Answer struct {
	*openapi3.Response
	Status string // or "default"
}

// Media is a body in one content type.
type Media struct {
	ContentType string
	// Schema describes the body, or one item of it if Stream is set.
	Schema   *openapi3.SchemaRef
	Stream   bool
	Examples []Example
}

// Example is an example of a body.
type Example struct {
	Name, Summary string
	Value         any
	JSON          string // Value with its fields in the order of the schema, with a newline at its end
	// Part is set if the real answer holds more than the example shows.
	Part bool
	// Request leads to the answer; nil stands for the operation's own request
	// with the body example of the same name.
	Request *Request
	// Fault names a failure that a test has to inject first.
	Fault string
}

// Request describes the differences between an example's request and the
// operation's own.
type Request struct {
	Path    string            `json:"path"` // with the query
	Body    string            `json:"body"` // the name of a body example
	Text    string            `json:"text"` // a body that the document forbids
	Headers map[string]string `json:"headers"`
	Size    int               `json:"size"` // length of a body of blanks, in bytes
}

// Load reads and resolves a document in YAML.
func Load(data []byte) (*Document, error) {
	loader := openapi3.NewLoader()
	loader.IncludeOrigin = true // the file's order gets lost in kin-openapi's maps

	t, err := loader.LoadFromData(data)
	if err != nil {
		return nil, err
	}
	if t.Paths.Len() == 0 {
		return nil, fmt.Errorf("the document has no paths")
	}

	d := &Document{T: t}

	for path, item := range t.Paths.Map() {
		for method, operation := range item.Operations() {
			// Callers see one list; kin-openapi ignores a path parameter that the operation repeats.
			operation.Parameters = append(slices.Clone(item.Parameters), operation.Parameters...)
			d.Operations = append(d.Operations, Operation{operation, method, path})
		}
	}

	slices.SortFunc(d.Operations, func(a, b Operation) int { return a.Origin.Key.Line - b.Origin.Key.Line })

	return d, nil
}

// Answers returns the responses of the operation in file order.
func (o Operation) Answers() []Answer {
	var out []Answer

	// A shared response is located elsewhere in the file, so its key here decides.
	all := o.Responses.Map()
	for _, status := range slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return compareLocations(o.Responses.Origin.Fields.Get(a), o.Responses.Origin.Fields.Get(b))
	}) {
		out = append(out, Answer{all[status].Value, status})
	}

	return out
}

// Media returns the bodies of the answer by content type.
func (d *Document) Media(content openapi3.Content) []Media {
	var out []Media

	for _, contentType := range inOrder(content, func(m *openapi3.MediaType) *openapi3.Origin { return m.Origin }) {
		m := content[contentType]
		medium := Media{ContentType: contentType, Schema: m.Schema}

		if item := d.Item(m); item != nil {
			medium.Schema, medium.Stream = item, true
		}

		names := inOrder(m.Examples, func(e *openapi3.ExampleRef) *openapi3.Origin { return e.Value.Origin })
		for _, name := range names {
			medium.Examples = append(medium.Examples, example(name, m.Examples[name].Value, medium.Schema))
		}

		out = append(out, medium)
	}

	return out
}

// Item returns the schema of one item of a stream, which the extension x-item
// references, or nil if the content type is not a stream.
func (d *Document) Item(m *openapi3.MediaType) *openapi3.SchemaRef {
	// kin-openapi does not resolve references in extensions.
	reference, ok := m.Extensions["x-item"].(map[string]any)
	if !ok {
		return nil
	}
	ref := fmt.Sprint(reference["$ref"])

	named, ok := d.Components.Schemas[schemaName(ref)]
	if !ok {
		return nil
	}
	return openapi3.NewSchemaRef(ref, named.Value)
}

// Bodies returns the bodies of a request; none if the operation takes no body.
func (d *Document) Bodies(o Operation) []Media {
	if o.RequestBody == nil {
		return nil
	}
	return d.Media(o.RequestBody.Value.Content)
}

// SchemaNames returns the names of the schemas in file order.
func (d *Document) SchemaNames() []string {
	return inOrder(d.Components.Schemas, func(s *openapi3.SchemaRef) *openapi3.Origin { return s.Value.Origin })
}

// Properties returns the names of an object's properties in file order.
func Properties(s *openapi3.Schema) []string {
	return inOrder(s.Properties, func(p *openapi3.SchemaRef) *openapi3.Origin { return p.Origin })
}

func example(name string, e *openapi3.Example, schema *openapi3.SchemaRef) Example {
	out := Example{
		Name:    name,
		Summary: e.Summary,
		Value:   e.Value,
		JSON:    render(e.Value, schema, "") + "\n",
	}
	out.Part, _ = e.Extensions["x-part"].(bool)
	out.Fault, _ = e.Extensions["x-fault"].(string)

	if request, ok := e.Extensions["x-request"]; ok {
		out.Request = &Request{}

		text, err := json.Marshal(request)
		if err == nil {
			err = json.Unmarshal(text, out.Request)
		}

		// TestExamples would make another request than the author meant.
		if err != nil {
			panic(fmt.Sprintf("x-request of the example %s: %v", name, err))
		}
	}

	return out
}

// schemaName returns the name in a reference to a schema of the document.
func schemaName(ref string) string { return strings.TrimPrefix(ref, "#/components/schemas/") }

// inOrder returns the keys of a map in the order of the file.
func inOrder[V any](all map[string]V, origin func(V) *openapi3.Origin) []string {
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(compareLocations(start(origin(all[a])), start(origin(all[b]))), cmp.Compare(a, b))
	})
}

// start returns the location of an element: of its key, or of its first field.
func start(o *openapi3.Origin) openapi3.Location {
	switch {
	case o == nil:
	case o.Key != nil:
		return *o.Key
	case len(o.Fields) > 0:
		return o.Fields[0]
	}

	return openapi3.Location{}
}

func compareLocations(a, b openapi3.Location) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}
