// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Route is a served route, as far as the document describes it.
type Route struct {
	Method, Path string
	Query        []Param
	Roles        []string
	Conditional  bool
	Keyed        bool
	// Failures are the shared answers to failures that every route of its family has, by status.
	Failures map[string]string
	Doc      *Doc
}

// Doc describes a route in words and types. What follows from the route itself is not repeated here: roles, paging,
// preconditions, and the parameters and headers of a read.
type Doc struct {
	ID, Tag, Summary string
	Text             string  // more about it, in Markdown; may be empty
	Path             []Param // the parameters of the path
	Body             any     // a value of the type of the body; nil: it takes none
	BodyType         string  // the content type of the body; empty: JSON
	Optional         bool    // the body may be absent
	Answer           any     // a value of the type of a success
	Item             any     // of a stream: a value of the type of one item
	Type             string  // the content type of the success; empty: JSON
	Status           int     // of a success; 0: 200
	Success          string  // what a success means
	Revision         bool    // the answer of a change has its revision
	Ranges           bool    // the answer may be the range that the request asks for
	Tagged           bool    // an answer other than a read of the view has an entity tag
	Location         string  // what the header Location of a success leads to; empty: it has none
	Job              bool    // the answer has the number of a job in a header
	// Fails are the failures that it has besides those of every route, by status: what each means, or "" if the
	// kind of the problem says it.
	Fails Fails
}

// eventStream is the content type of a stream that can be resumed after an event.
const eventStream = "text/event-stream"

// Fails has what a failure means, by status.
type Fails map[int]string

// Ref is the name of a schema that the head of the document has, in place of a value of a type.
type Ref string

// AnyOf stands for a value of one of several types.
type AnyOf []any

// Empty stands for a body of nothing, or of an empty object.
type Empty struct{}

// build makes one document.
type build struct {
	*Types
	head *yaml.Node
}

// Build makes the document of a head, the routes, the types of their bodies and answers, and examples by operation. The
// order of the operations is that of the examples.
func (t *Types) Build(head, examples []byte, routes []Route, further ...any) ([]byte, error) {
	var file, all yaml.Node
	if err := errors.Join(yaml.Unmarshal(head, &file), yaml.Unmarshal(examples, &all)); err != nil {
		return nil, err
	}

	if len(file.Content) == 0 || len(all.Content) == 0 {
		return nil, errors.New("the document is empty")
	}

	b := &build{t, file.Content[0]}
	b.head.HeadComment, b.head.Content[0].HeadComment = "", "" // it is about the file
	expand(b.head)
	expand(all.Content[0])

	schemas := get(get(b.head, "components"), "schemas")
	if schemas == nil {
		return nil, errors.New("the document has no schemas")
	}

	// Without a type, it is what a Go type leaves open.
	for pair := range slices.Chunk(schemas.Content, 2) {
		t.named[pair[0].Value] = get(pair[1], "type") != nil
	}

	paths, err := b.paths(routes, all.Content[0])
	if err != nil {
		return nil, err
	}

	at := slices.IndexFunc(b.head.Content, func(n *yaml.Node) bool { return n.Value == "components" })
	b.head.Content = slices.Insert(b.head.Content, at, stringNode("paths"), paths)

	for _, value := range further {
		t.schema(value)
	}

	for pair := range slices.Chunk(t.schemas.Content, 2) {
		name := pair[0].Value
		set(schemas, name, merge(pair[1], get(schemas, name)))
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

// paths returns the operations of the routes in the order of their examples.
func (b *build) paths(routes []Route, examples *yaml.Node) (*yaml.Node, error) {
	byID := map[string]Route{}

	for _, r := range routes {
		switch {
		case r.Doc == nil || r.Doc.ID == "": // such as a kind of a test
		case get(examples, r.Doc.ID) == nil:
			return nil, fmt.Errorf("%s %s has no examples under %q", r.Method, r.Path, r.Doc.ID)
		case byID[r.Doc.ID].Doc != nil:
			return nil, fmt.Errorf("two routes are the operation %s", r.Doc.ID)
		default:
			byID[r.Doc.ID] = r
		}
	}

	paths := block()

	for pair := range slices.Chunk(examples.Content, 2) {
		r, ok := byID[pair[0].Value]
		if !ok {
			return nil, fmt.Errorf("there are examples of %q, which is no operation", pair[0].Value)
		}
		o := b.operation(r)
		if err := b.addExamples(o, pair[1]); err != nil {
			return nil, fmt.Errorf("the examples of %s: %w", r.Doc.ID, err)
		}

		path := get(paths, r.Path)
		if path == nil {
			path = block()
			set(paths, r.Path, path)
		}

		set(path, strings.ToLower(r.Method), o)
	}

	return paths, nil
}

// addExamples adds examples to the body of an operation, and to its answers by status.
func (b *build) addExamples(o, examples *yaml.Node) error {
	for pair := range slices.Chunk(examples.Content, 2) {
		key, shown := pair[0].Value, pair[1]

		if key == "body" {
			body := get(o, "requestBody")
			if body == nil {
				return errors.New("it takes no body")
			}
			content := get(body, "content")
			for i := 1; i < len(content.Content); i += 2 {
				set(content.Content[i], "examples", clone(shown))
			}

			continue
		}

		responses := get(o, "responses")

		response := get(responses, key)
		if response == nil {
			return fmt.Errorf("it has no answer %s", key)
		}

		// A shared answer has no examples.
		if ref := get(response, "$ref"); ref != nil {
			response = clone(
				get(get(get(b.head, "components"), "responses"), ref.Value[strings.LastIndex(ref.Value, "/")+1:]),
			)
			set(responses, key, response)
		}

		content := get(response, "content")
		if content == nil {
			return fmt.Errorf("its answer %s has no body", key)
		}
		set(content.Content[1], "examples", shown)
	}

	return nil
}

// operation returns what the route says about itself.
func (b *build) operation(r Route) *yaml.Node {
	d := r.Doc
	o := block(
		"operationId", d.ID, "tags", list([]string{d.Tag}),
		"security", sequence(pairs("token", &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle})),
		"x-roles", list(r.Roles), "summary", stringNode(d.Summary),
	)

	if d.Text != "" {
		set(o, "description", stringNode(d.Text))
	}

	if params := r.params(); len(params) > 0 {
		set(o, "parameters", sequence(params...))
	}

	if d.Body != nil {
		set(o, "requestBody", b.body(r))
	}

	set(o, "responses", b.responses(r))

	return o
}

func (b *build) body(r Route) *yaml.Node {
	d := r.Doc
	if d.Body == (any)(Empty{}) {
		nothing := pairs("type", "object", "additionalProperties", scalarNode("false"))
		return block("description", "Empty, or an empty object.", "content", jsonContent(nothing))
	}

	content := jsonContent(b.schema(d.Body))
	if d.BodyType != "" {
		content = block(d.BodyType, block("schema", b.schema(d.Body)))
	}
	if r.Method == http.MethodPatch {
		set(content, "application/merge-patch+json", block("schema", b.schema(d.Body)))
	}
	if d.Optional {
		return block("content", content)
	}

	return block("required", scalarNode("true"), "content", content)
}

// isRead reports whether the route returns a view, which has a revision.
func (r Route) isRead() bool {
	return r.Method == http.MethodGet &&
		slices.ContainsFunc(r.Query, func(p Param) bool { return p.Name == MinRevision })
}

// isTagged reports whether the answer has an entity tag: that of a view, unless it is a stream.
func (r Route) isTagged() bool { return r.Doc.Tagged || r.isRead() && r.Doc.Type == "" }

func (r Route) params() []*yaml.Node {
	shared := func(name string) *yaml.Node { return pairs("$ref", "#/components/parameters/"+name) }

	var out []*yaml.Node

	for _, p := range r.Doc.Path {
		out = append(out, p.node("path"))
	}

	for _, p := range r.Query {
		out = append(out, p.node("query"))
	}

	if r.Keyed {
		out = append(out, shared("IdempotencyKey"))
	}

	if r.Conditional {
		out = append(out, shared("IfMatch"))
	}

	if r.Doc.Type == eventStream {
		out = append(out, shared("LastEventID"))
	}

	if r.isTagged() && r.Method == http.MethodGet || r.Conditional {
		out = append(out, shared("IfNoneMatch"))
	}

	return out
}

func (b *build) responses(r Route) *yaml.Node {
	shared := func(name string) *yaml.Node { return pairs("$ref", "#/components/responses/"+name) }

	d := r.Doc

	all := map[string]*yaml.Node{}
	if d.Ranges {
		all["206"] = b.success(r, "The range of the header `Range`.")
	}

	for status, name := range r.Failures {
		all[status] = shared(name)
	}

	switch {
	case r.Method != http.MethodGet || !r.isTagged():
	case r.isRead():
		all["304"] = shared("NotModified")
	default:
		all["304"] = shared("Same")
	}

	if r.Conditional {
		all["412"] = shared("Precondition")
	}

	if r.Keyed {
		all["422"] = shared("KeyReused")
	}

	for _, p := range d.Path {
		if p.Missing != "" {
			all["404"] = b.failure(d, http.StatusNotFound, p.Missing)
		}
	}

	for status, meaning := range d.Fails {
		all[strconv.Itoa(status)] = b.failure(d, status, meaning)
	}

	out := block(strconv.Itoa(cmp.Or(d.Status, http.StatusOK)), b.success(r, d.Success))
	for _, status := range slices.Sorted(maps.Keys(all)) { // "default" is the last
		set(out, status, all[status])
	}

	return out
}

func (b *build) success(r Route, meaning string) *yaml.Node {
	out := block("description", meaning)
	if headers := r.headers(); len(headers.Content) > 0 {
		set(out, "headers", headers)
	}
	if content := b.answer(r.Doc); len(content.Content) > 0 {
		set(out, "content", content)
	}

	return out
}

func (r Route) headers() *yaml.Node {
	header := func(name string) *yaml.Node { return pairs("$ref", "#/components/headers/"+name) }

	d, out := r.Doc, block()

	if d.Job {
		set(out, "X-Clusterm-Job", header("Job"))
	}

	if r.isRead() || d.Revision {
		set(out, "X-Clusterm-Revision", header("Revision"))
	}

	if r.isRead() {
		set(out, "X-Clusterm-Stale", header("Stale"))
	}

	if r.isTagged() {
		set(out, "ETag", header("ETag"))
	}

	if r.Keyed {
		set(out, "Idempotency-Replayed", header("Replayed"))
	}

	if d.Location != "" {
		set(out, "Location", block(
			"description", "The path of the "+d.Location+".", "required", scalarNode("true"),
			"schema", pairs("type", "string"),
		))
	}

	return out
}

// answer returns the content of a success.
func (b *build) answer(d *Doc) *yaml.Node {
	out := block()
	contentType, _, _ := strings.Cut(d.Type, ";")

	switch {
	case d.Answer != nil && d.Item == nil && d.Type != "":
		set(out, contentType, block("schema", b.schema(d.Answer)))
	case d.Answer != nil:
		out = jsonContent(b.schema(d.Answer))
	}

	if d.Item != nil {
		set(out, contentType, block("schema", pairs("type", "string"), "x-item", b.schema(d.Item)))
	}

	return out
}

// failure returns an answer to a failure.
func (b *build) failure(d *Doc, status int, meaning string) *yaml.Node {
	if meaning == "" {
		return pairs("$ref", "#/components/responses/Problem")
	}

	content := block()
	// A daemon that is degraded shows its health all the same.
	if status == http.StatusServiceUnavailable {
		content = b.answer(d)
	}

	set(content, "application/problem+json", block("schema", pairs("$ref", "#/components/schemas/Problem")))

	return block("description", meaning, "content", content)
}

func jsonContent(schema *yaml.Node) *yaml.Node {
	return block("application/json", block("schema", schema))
}

// oneLine undoes the line breaks of a comment.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// merge adds text to what the code says about a type, or overrides it.
func merge(code, text *yaml.Node) *yaml.Node {
	switch {
	case text == nil:
		return code
	case code.Kind != yaml.MappingNode || text.Kind != yaml.MappingNode:
		return text
	}

	for pair := range slices.Chunk(text.Content, 2) {
		key, value := pair[0].Value, pair[1]
		if own := get(code, key); own != nil {
			value = merge(own, value)
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
