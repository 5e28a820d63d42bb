// SPDX-License-Identifier: Apache-2.0

// Package contract holds requests and answers against openapi.yaml. It is for
// tests: Transport checks everything that passes through it, so that a test of
// anything else is a test of the document, too.
package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
)

// Contract is openapi.yaml, ready to be held against what happens. It may be
// used by several goroutines at once.
type Contract struct {
	*openapi.Document
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by URL
}

// Load reads the document; once, for all.
var Load = sync.OnceValues(func() (*Contract, error) {
	document, err := openapi.Parse(api.OpenAPI)
	if err != nil {
		return nil, err
	}

	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(document.JSON))
	if err != nil {
		return nil, err
	}

	c := &Contract{Document: document, compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()

	if err := c.compiler.AddResource(location, whole); err != nil {
		return nil, err
	}

	if whole, err = jsonschema.UnmarshalJSON(bytes.NewReader(document.JSON)); err != nil {
		return nil, err
	}

	return c, c.compiler.AddResource(partial, optional(whole))
})

const (
	// location stands for the document; nothing is fetched.
	location = "https://clusterm.invalid/openapi.json"
	// partial stands for the document without what it requires: answers to a
	// request for some fields only.
	partial = "https://clusterm.invalid/partial.json"
)

// optional removes what schemas require.
func optional(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if _, list := v["required"].([]any); list {
			delete(v, "required")
		}

		for _, below := range v {
			optional(below)
		}
	case []any:
		for _, below := range v {
			optional(below)
		}
	}

	return value
}

// Schema checks JSON against the schema at a JSON pointer of the document.
func (c *Contract) Schema(pointer string, text []byte) error { return c.check(location, pointer, text) }

func (c *Contract) check(document, pointer string, text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}

	schema, err := c.compiled(document, pointer)
	if err != nil {
		return err
	}

	return schema.Validate(value)
}

func (c *Contract) compiled(document, pointer string) (*jsonschema.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	at := document + "#" + (&url.URL{Path: pointer}).EscapedPath()
	if s := c.schemas[at]; s != nil {
		return s, nil
	}

	s, err := c.compiler.Compile(at)
	if err == nil {
		c.schemas[at] = s
	}

	return s, err
}

// Operation is the operation that serves a path, with what it takes the
// parameters of the path for; nil where there is none. Paths without
// parameters go before others.
func (c *Contract) Operation(method, path string) (*openapi.Operation, map[string]string) {
	if method == http.MethodHead {
		method = http.MethodGet
	}

	var found *openapi.Operation

	var params map[string]string
	for i, o := range c.Operations {
		if o.Method != method {
			continue
		}

		if p, ok := match(o.Path, path); ok && (found == nil || len(p) < len(params)) {
			found, params = &c.Operations[i], p
		}
	}

	return found, params
}

func match(pattern, path string) (map[string]string, bool) {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return nil, false
	}

	params := map[string]string{}
	for i, w := range want {
		if name, ok := strings.CutPrefix(w, "{"); ok && got[i] != "" {
			value, err := url.PathUnescape(got[i])
			if err != nil {
				return nil, false
			}

			params[strings.TrimSuffix(name, "}")] = value
		} else if w != got[i] {
			return nil, false
		}
	}

	return params, true
}

// isV1 tells whether an operation is strict about what it does not know.
func isV1(o *openapi.Operation) bool { return strings.HasPrefix(o.Path, "/v1/") }

// Request checks a request. The body has been read from it already.
func (c *Contract) Request(r *http.Request, body []byte) error {
	o, params := c.Operation(r.Method, r.URL.EscapedPath())
	if o == nil {
		return fmt.Errorf("%s %s is not in the document", r.Method, r.URL.Path)
	}

	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}

	var errs []error
	for _, p := range o.Parameters {
		var values []string
		switch p.In {
		case "path":
			values = []string{params[p.Name]}
		case "query":
			values = query[p.Name]
			query.Del(p.Name)
		case "header":
			values = r.Header.Values(p.Name)
		}

		if err := c.parameter(p, values); err != nil {
			errs = append(errs, fmt.Errorf("the parameter %s is %q: %w", p.Name, values, err))
		}
	}

	if isV1(o) {
		for name := range query {
			errs = append(errs, fmt.Errorf("the query parameter %s is not in the document", name))
		}
	}

	if err := c.requestBody(o.Body, r.Header.Get("Content-Type"), body); err != nil {
		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

func (c *Contract) parameter(p openapi.Parameter, values []string) error {
	if len(values) == 0 {
		if p.Required {
			return errors.New("it is required")
		}

		return nil
	}

	schema, err := c.compiled(location, p.Pointer)
	if err != nil {
		return err
	}

	if schema.Types != nil && slices.Contains(schema.Types.ToStrings(), "array") {
		list := make([]any, len(values))
		for i, v := range values {
			list[i] = v
		}

		return schema.Validate(list)
	}

	if len(values) > 1 {
		return errors.New("it is given more than once")
	}

	return schema.Validate(scalar(schema, values[0]))
}

// scalar is a text as a value of the type that the schema wants.
func scalar(s *jsonschema.Schema, text string) any {
	if s.Types == nil {
		return text
	}

	switch types := s.Types.ToStrings(); {
	case slices.Contains(types, "integer"), slices.Contains(types, "number"):
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			return json.Number(text)
		}
	case slices.Contains(types, "boolean"):
		switch text {
		case "true", "1":
			return true
		case "false", "0":
			return false
		}
	}

	return text
}

func (c *Contract) requestBody(b openapi.Body, contentType string, body []byte) error {
	if len(bytes.TrimSpace(body)) == 0 {
		if b.Required {
			return errors.New("the body is required")
		}

		return nil
	}

	if len(b.Media) == 0 {
		return errors.New("a body is not in the document")
	}

	if contentType == "" {
		contentType = api.TypeJSON
	}

	return c.media(location, b.Media, contentType, body)
}

func (c *Contract) media(document string, all []openapi.Media, contentType string, body []byte) error {
	t, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("the content type %q: %w", contentType, err)
	}

	i := slices.IndexFunc(all, func(m openapi.Media) bool { return m.ContentType == t })
	switch {
	case i < 0:
		return fmt.Errorf("the content type %s is not in the document", t)
	case all[i].Stream:
		for line := range bytes.Lines(body) {
			if t == api.TypeEventStream {
				line = bytes.TrimPrefix(line, []byte("data:"))
			}

			// A reader passes over what is none, and may have begun or ended in the middle of one.
			if line = bytes.TrimSpace(line); len(line) > 0 && line[0] == '{' && json.Valid(line) {
				if err := c.check(document, all[i].Pointer, line); err != nil {
					return err
				}
			}
		}

		return nil
	case strings.HasSuffix(t, "json"):
		return c.check(document, all[i].Pointer, body)
	}

	return nil
}

// Success checks the body of a success in JSON, whatever its status and headers
// are. It is for what stands in for the daemon.
func (c *Contract) Success(r *http.Request, body []byte) error {
	o, _ := c.Operation(r.Method, r.URL.EscapedPath())
	if o == nil {
		return fmt.Errorf("%s %s is not in the document", r.Method, r.URL.Path)
	}

	i := slices.IndexFunc(o.Answers, func(a openapi.Answer) bool { return a.Status[0] == '2' })
	if i < 0 {
		return errors.New("there is no success in the document")
	}

	return c.media(location, o.Answers[i].Media, api.TypeJSON, body)
}

// listed are statuses that an operation under /v1 has to name; others may go
// under "default".
var listed = []int{
	http.StatusNotFound,
	http.StatusConflict,
	http.StatusGone,
	http.StatusPreconditionFailed,
	http.StatusUnprocessableEntity,
}

// ours are the headers of answers that are part of the contract.
func ours(name string) bool {
	return strings.HasPrefix(name, "X-Clusterm-") ||
		slices.Contains([]string{"Location", "Etag", "Link", "Idempotency-Replayed"}, name)
}

// Response checks an answer. The body has been read from it already; nil: it is
// not looked at.
func (c *Contract) Response(r *http.Response, body []byte) error {
	o, _ := c.Operation(r.Request.Method, r.Request.URL.EscapedPath())
	if o == nil {
		if r.StatusCode < 400 {
			return errors.New("what is served here is not in the document")
		}

		return nil
	}

	status := strconv.Itoa(r.StatusCode)

	i := slices.IndexFunc(o.Answers, func(a openapi.Answer) bool { return a.Status == status })
	if i < 0 && r.StatusCode >= 400 && !(isV1(o) && slices.Contains(listed, r.StatusCode)) {
		i = slices.IndexFunc(o.Answers, func(a openapi.Answer) bool { return a.Status == "default" })
	}

	if i < 0 {
		return fmt.Errorf("the status %s is not in the document", status)
	}

	answer := o.Answers[i]

	var errs []error
	for _, h := range answer.Headers {
		values := r.Header.Values(h.Name)

		err := c.parameter(openapi.Parameter{Required: h.Required, Pointer: h.Pointer}, values)
		if err != nil {
			errs = append(errs, fmt.Errorf("the header %s is %q: %w", h.Name, values, err))
		}
	}

	for name := range r.Header {
		known := slices.ContainsFunc(
			answer.Headers,
			func(h openapi.Header) bool { return http.CanonicalHeaderKey(h.Name) == name },
		)
		if r.StatusCode < 400 && r.Request.Method != http.MethodHead && ours(name) && !known {
			errs = append(errs, fmt.Errorf("the header %s is not in the document", name))
		}
	}

	switch {
	case body == nil || r.Request.Method == http.MethodHead:
	case len(answer.Media) > 0:
		document := location
		if r.Request.URL.Query().Has("fields") && r.StatusCode < 400 {
			document = partial
		}

		if err := c.media(document, answer.Media, r.Header.Get("Content-Type"), body); err != nil {
			errs = append(errs, err)
		}
	case len(body) > 0:
		errs = append(errs, errors.New("a body is not in the document"))
	}

	return errors.Join(errs...)
}
