// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Route is a served route, as far as the document describes it.
type Route struct {
	Method, Path string
	Query        []string // the names of its query parameters
	Roles        []string
	Conditional  bool
	Idempotent   bool
	Doc          *Doc // nil: the document's own text describes it
}

// Doc describes a route in words and types. What follows from the route itself is not repeated here: roles, paging,
// preconditions, and the parameters and headers of a read.
type Doc struct {
	ID, Tag, Summary string
	Text             string // more about it; may be empty
	Params           []Param
	Body             any    // a value of the type of the body; nil: it takes none
	Answer           any    // a value of the type of a success
	Success          string // what a success means
	Revision         bool   // the answer of a change has its revision
	// Fails are the failures that it has besides those of every route, by status: what each means, or "" if the
	// kind of the problem says it.
	Fails Fails
}

// Fails has what a failure means, by status.
type Fails map[int]string

// Param is a parameter of the path or of the query.
type Param struct {
	Name, Help, Example string
	Required            bool
}

// Build adds the routes and the types of their bodies and answers to a document, whose text gives examples for them.
// The document describes further routes and schemas in its own text.
func (t *Types) Build(document []byte, routes []Route, further ...any) ([]byte, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(document, &file); err != nil {
		return nil, err
	}

	if len(file.Content) == 0 {
		return nil, errors.New("the document is empty")
	}

	root := file.Content[0]
	root.HeadComment, root.Content[0].HeadComment = "", "" // it is about the file
	expand(root)

	paths, schemas := get(root, "paths"), get(get(root, "components"), "schemas")
	if schemas == nil {
		return nil, errors.New("the document has no schemas")
	}

	// Without a type, it is what a Go type leaves open.
	for pair := range slices.Chunk(schemas.Content, 2) {
		t.named[pair[0].Value] = get(pair[1], "type") != nil
	}

	for _, r := range routes {
		path := get(paths, r.Path)
		if path == nil && r.Doc == nil {
			continue // neither describes it, such as a kind of a test
		}

		if path == nil {
			return nil, fmt.Errorf("the document has no example of %s", r.Path)
		}

		method := strings.ToLower(r.Method)
		set(path, method, merge(t.operation(r), get(path, method), root))
	}

	for _, value := range further {
		t.schema(value)
	}

	for pair := range slices.Chunk(t.schemas.Content, 2) {
		name := pair[0].Value
		set(schemas, name, merge(pair[1], get(schemas, name), root))
	}

	sortKeys(schemas)

	var text bytes.Buffer

	e := yaml.NewEncoder(&text)
	e.SetIndent(2)

	if err := errors.Join(e.Encode(&file), t.Err()); err != nil {
		return nil, err
	}

	return text.Bytes(), nil
}

// sharedParams are the parameters that many routes have, by their name in the query.
var sharedParams = map[string]string{
	"limit": "Limit", "continue": "Continue", "fields": "Fields", "min_revision": "MinRevision",
	"consistency": "Consistency",
}

// operation returns what the route says about itself.
func (t *Types) operation(r Route) *yaml.Node {
	access := []any{
		"security", sequence(pairs("token", &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle})),
		"x-roles", list(r.Roles),
	}

	d := r.Doc
	if d == nil {
		return block(access...)
	}

	o := block(append([]any{"operationId", d.ID, "tags", list([]string{d.Tag})}, access...)...)
	set(o, "summary", stringNode(d.Summary))

	if d.Text != "" {
		set(o, "description", stringNode(oneLine(d.Text)))
	}

	if params := r.params(); len(params) > 0 {
		set(o, "parameters", sequence(params...))
	}

	if d.Body != nil {
		body := block("required", scalarNode("true"), "content", jsonContent(t.schema(d.Body)))
		set(o, "requestBody", body)
	}

	set(o, "responses", t.responses(r))

	return o
}

// isRead reports whether the route returns a view, which has a revision and a tag.
func (r Route) isRead() bool {
	return r.Method == http.MethodGet && slices.Contains(r.Query, "min_revision")
}

func (r Route) params() []*yaml.Node {
	shared := func(name string) *yaml.Node { return pairs("$ref", "#/components/parameters/"+name) }

	var out []*yaml.Node

	for _, p := range r.Doc.Params {
		n := pairs("name", p.Name, "in", "query")

		if strings.Contains(r.Path, "{"+p.Name+"}") {
			n, p.Required = pairs("name", p.Name, "in", "path"), true
		}

		if p.Required {
			set(n, "required", scalarNode("true"))
		}

		set(n, "description", stringNode(p.Help))
		set(n, "schema", pairs("type", "string"))

		if p.Example != "" {
			set(n, "example", stringNode(p.Example))
		}

		out = append(out, n)
	}

	for _, name := range r.Query {
		if sharedParams[name] != "" {
			out = append(out, shared(sharedParams[name]))
		}
	}

	if r.Idempotent {
		out = append(out, shared("IdempotencyKey"))
	}

	if r.Conditional {
		out = append(out, shared("IfMatch"))
	}

	if r.isRead() || r.Conditional {
		out = append(out, shared("IfNoneMatch"))
	}

	return out
}

func (t *Types) responses(r Route) *yaml.Node {
	header := func(name string) *yaml.Node { return pairs("$ref", "#/components/headers/"+name) }
	shared := func(name string) *yaml.Node { return pairs("$ref", "#/components/responses/"+name) }

	d := r.Doc
	success := block("description", d.Success)

	switch {
	case r.isRead():
		set(success, "headers", block(
			"X-Clusterm-Revision", header("Revision"), "X-Clusterm-Stale", header("Stale"), "ETag", header("ETag"),
		))
	case d.Revision:
		set(success, "headers", block("X-Clusterm-Revision", header("Revision")))
	}

	if d.Answer != nil {
		set(success, "content", jsonContent(t.schema(d.Answer)))
	}

	out := block("200", success)
	if r.isRead() {
		set(out, "304", shared("NotModified"))
	}

	for _, status := range []int{
		http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusPreconditionFailed,
		http.StatusUnprocessableEntity,
	} {
		meaning, fails := d.Fails[status]

		switch {
		case !fails:
		case meaning == "":
			set(out, strconv.Itoa(status), shared("Problem"))
		default:
			problem := block("schema", pairs("$ref", "#/components/schemas/Problem"))
			set(out, strconv.Itoa(status), block(
				"description", meaning, "content", block("application/problem+json", problem),
			))
		}
	}

	set(out, "default", shared("Problem"))

	return out
}

func jsonContent(schema *yaml.Node) *yaml.Node {
	return block("application/json", block("schema", schema))
}

// oneLine undoes the line breaks of a text in a program.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// merge adds text to what the code says about a route or a type, or overrides it. A reference is replaced by what it
// leads to, if text has more to say about that.
func merge(code, text, root *yaml.Node) *yaml.Node {
	switch {
	case text == nil:
		return code
	case code.Kind != yaml.MappingNode || text.Kind != yaml.MappingNode:
		return text
	}

	if ref := get(code, "$ref"); ref != nil && get(text, "$ref") == nil {
		at := root
		for _, step := range strings.Split(strings.TrimPrefix(ref.Value, "#/"), "/") {
			at = get(at, step)
		}

		code = clone(at)
	}

	for i := 0; i+1 < len(text.Content); i += 2 {
		key, value := text.Content[i].Value, text.Content[i+1]
		if own := get(code, key); own != nil {
			value = merge(own, value, root)
		}

		set(code, key, value)
	}

	return code
}

// expand replaces aliases by copies, because a part may get to a place before its anchor.
func expand(n *yaml.Node) {
	n.Anchor = ""

	for i, below := range n.Content {
		if below.Kind == yaml.AliasNode {
			n.Content[i] = clone(below.Alias)
		}

		expand(n.Content[i])
	}
}

func clone(n *yaml.Node) *yaml.Node {
	c := *n
	c.Content = make([]*yaml.Node, len(n.Content))

	for i, below := range n.Content {
		c.Content[i] = clone(below)
	}

	return &c
}

// sortKeys puts the keys of a mapping in order.
func sortKeys(n *yaml.Node) {
	var all [][]*yaml.Node
	for pair := range slices.Chunk(n.Content, 2) {
		all = append(all, pair)
	}

	slices.SortFunc(all, func(a, b []*yaml.Node) int { return strings.Compare(a[0].Value, b[0].Value) })
	n.Content = slices.Concat(all...)
}
