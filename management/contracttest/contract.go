// SPDX-License-Identifier: Apache-2.0

// Package contracttest validates HTTP exchanges against openapi.yaml with
// kin-openapi. It is for tests: a test with Transport in its client validates
// the document as a side effect.
package contracttest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server"
)

// Contract validates requests and answers against openapi.yaml. It is safe for
// concurrent use.
type Contract struct {
	*openapi.Document
	router  routers.Router
	schemas *schemas
	// partial are those of a copy of the document without required fields, for
	// answers to requests with the parameter fields.
	partial *schemas
}

// Load returns the contract of the API. It reads the document once.
var Load = sync.OnceValues(func() (*Contract, error) {
	text, err := server.Document()
	if err != nil {
		return nil, err
	}
	document, err := openapi.Load(text)
	if err != nil {
		return nil, err
	}

	// Validation includes the examples.
	if err := document.Validate(context.Background()); err != nil {
		return nil, err
	}

	router, err := gorillamux.NewRouter(document.T)
	if err != nil {
		return nil, err
	}

	var plain any
	if err := yaml.Unmarshal(text, &plain); err != nil {
		return nil, err
	}

	c := &Contract{Document: document, router: router}
	if c.schemas, err = schemasOf(plain); err != nil {
		return nil, err
	}
	c.partial, err = schemasOf(dropRequired(plain))

	return c, err
})

func schemasOf(document any) (*schemas, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	return newSchemas(text)
}

// dropRequired removes the lists of required fields from all schemas.
func dropRequired(value any) any {
	switch v := value.(type) {
	case map[string]any:
		// A list belongs to a schema, a boolean to a parameter.
		if _, list := v["required"].([]any); list {
			delete(v, "required")
		}

		for _, below := range v {
			dropRequired(below)
		}
	case []any:
		for _, below := range v {
			dropRequired(below)
		}
	}

	return value
}

// Operation returns the operation that serves a path, or nil.
func (c *Contract) Operation(method, path string) *openapi.Operation {
	r, err := http.NewRequestWithContext(context.Background(), method, "http://localhost"+path, nil)
	if err != nil {
		return nil
	}
	route, _, err := find(c.router, r)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(c.Operations, func(o openapi.Operation) bool {
		return o.Path == route.Path && o.Method == route.Method
	})

	return &c.Operations[i]
}

// find returns the route of a request and the parameters in its path. HEAD is
// served wherever GET is.
func find(router routers.Router, r *http.Request) (*routers.Route, map[string]string, error) {
	if r.Method == http.MethodHead {
		r = r.Clone(r.Context())
		r.Method = http.MethodGet
	}

	route, params, err := router.FindRoute(r)
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s is not in the document: %w", r.Method, r.URL.Path, err)
	}
	return route, params, nil
}

// isV1 reports whether the route refuses unknown parameters and fields.
func isV1(route *routers.Route) bool { return strings.HasPrefix(route.Path, "/v1/") }

// Request validates a request with its body, which the caller has read already.
func (c *Contract) Request(r *http.Request, body []byte) error {
	route, params, err := find(c.router, r)
	if err != nil {
		return err
	}
	input := requestInput(route, params, r, body)
	input.Options.ExcludeRequestBody = true

	return errors.Join(
		undocumentedQuery(route, r),
		openapi3filter.ValidateRequest(r.Context(), input),
		c.requestBody(route, input.Request.Header, bytes.TrimSpace(body)),
	)
}

// requestBody validates the body of a request.
func (c *Contract) requestBody(route *routers.Route, header http.Header, body []byte) error {
	documented := route.Operation.RequestBody

	switch {
	case documented == nil && len(body) > 0:
		return errors.New("a body is not in the document")
	case documented == nil || len(body) == 0 && !documented.Value.Required:
		return nil
	case len(body) == 0:
		return errors.New("the document requires a body")
	}

	contentType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return err
	}
	if documented.Value.Content[contentType] == nil {
		return fmt.Errorf("the content type %s is not in the document", contentType)
	}

	if !isJSON(header) {
		return nil
	}

	return c.schemas.check(schemaIn(cmp.Or(documented.Ref, pointerTo(route, "requestBody")), contentType), body)
}

// requestInput prepares a copy of the request for kin-openapi.
func requestInput(
	route *routers.Route, params map[string]string, r *http.Request, body []byte,
) *openapi3filter.RequestValidationInput {
	r = r.Clone(r.Context())
	r.Method = route.Method

	// The server takes a body of blanks for none, and one without a type for JSON.
	body = bytes.TrimSpace(body)
	contentType := cmp.Or(r.Header.Get("Content-Type"), api.TypeJSON)
	r.Header.Set("Content-Type", contentType)

	r.Body, r.GetBody, r.ContentLength = http.NoBody, nil, int64(len(body))
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}

	return &openapi3filter.RequestValidationInput{
		Request:    r,
		PathParams: params,
		Route:      route,
		Options: &openapi3filter.Options{
			AuthenticationFunc:                openapi3filter.NoopAuthenticationFunc, // the server does that
			MultiError:                        true,
			SkipSettingDefaults:               true,
			RejectWhenRequestBodyNotSpecified: true,
		},
	}
}

// undocumentedQuery reports query parameters that kin-openapi lets pass.
func undocumentedQuery(route *routers.Route, r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	// The first generation ignores unknown parameters.
	if err != nil || !isV1(route) {
		return err
	}

	var errs []error

	for name, values := range query {
		p := route.Operation.Parameters.GetByInAndName(openapi3.ParameterInQuery, name)

		switch {
		case p == nil:
			errs = append(errs, fmt.Errorf("the query parameter %s is not in the document", name))
		case len(values) > 1 && !p.Schema.Value.Type.Includes(openapi3.TypeArray):
			errs = append(errs, fmt.Errorf("the query parameter %s is given more than once", name))
		}
	}

	return errors.Join(errs...)
}

// Success validates the body of a success in JSON, regardless of status and
// headers. It is for servers that stand in for the daemon.
func (c *Contract) Success(r *http.Request, body []byte) error {
	route, _, err := find(c.router, r)
	if err != nil {
		return err
	}

	for status, response := range route.Operation.Responses.Map() {
		if status[0] != '2' {
			continue
		}

		if response.Value.Content[api.TypeJSON] == nil {
			return errors.New("the success has no JSON in the document")
		}
		return c.schemas.check(schemaIn(answerAt(route, status, response), api.TypeJSON), body)
	}

	return errors.New("there is no success in the document")
}

// answerAt returns the pointer to a documented answer.
func answerAt(route *routers.Route, status string, documented *openapi3.ResponseRef) string {
	return cmp.Or(documented.Ref, pointerTo(route, "responses", status))
}

// Check validates JSON against a schema of the document, by its name.
func (c *Contract) Check(schema string, text []byte) error {
	return c.schemas.check(below("#/components/schemas", schema), text)
}

// mustBeListed are the failures that an operation under /v1 has to list; others
// may go under "default".
var mustBeListed = []int{
	http.StatusNotFound,
	http.StatusConflict,
	http.StatusGone,
	http.StatusPreconditionFailed,
	http.StatusUnprocessableEntity,
}

// isDocumentedHeader reports whether the contract has to list a header of answers.
func isDocumentedHeader(name string) bool {
	return strings.HasPrefix(name, "X-Clusterm-") ||
		slices.Contains([]string{"Location", "Etag", "Link", "Idempotency-Replayed"}, name)
}

// Response validates an answer with its body, which the caller has read already.
// A nil body is not validated.
func (c *Contract) Response(r *http.Response, body []byte) error {
	failed := r.StatusCode >= 400

	route, params, err := find(c.router, r.Request)
	if err != nil {
		// Failures of unknown paths are in no document.
		if failed {
			return nil
		}
		return err
	}

	status, response := strconv.Itoa(r.StatusCode), route.Operation.Responses.Status(r.StatusCode)
	if response == nil && failed && !(isV1(route) && slices.Contains(mustBeListed, r.StatusCode)) {
		status, response = "default", route.Operation.Responses.Default()
	}
	if response == nil {
		return fmt.Errorf("the status %d is not in the document", r.StatusCode)
	}

	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: requestInput(route, params, r.Request, nil),
		Status:                 r.StatusCode,
		Header:                 r.Header,
		Options: &openapi3filter.Options{
			MultiError:          true,
			ExcludeResponseBody: true,
		},
	}

	errs := []error{
		checkHeaders(r, response.Value),
		openapi3filter.ValidateResponse(r.Request.Context(), input),
	}

	if body != nil && r.Request.Method != http.MethodHead {
		schemas := c.schemas
		if r.Request.URL.Query().Has("fields") && !failed {
			schemas = c.partial
		}
		errs = append(errs, c.checkBody(schemas, answerAt(route, status, response), r.Header, response.Value, body))
	}

	return errors.Join(errs...)
}

// checkHeaders checks the headers beyond kin-openapi, which passes over a 304
// and over undocumented headers.
func checkHeaders(r *http.Response, documented *openapi3.Response) error {
	var errs []error

	// The document describes it once for all answers.
	if !api.IsRequestID(r.Header.Get(api.HeaderRequestID)) {
		errs = append(errs, fmt.Errorf("the answer has the request id %q", r.Header.Get(api.HeaderRequestID)))
	}

	known := map[string]bool{}

	for name, header := range documented.Headers {
		known[http.CanonicalHeaderKey(name)] = true

		if header.Value.Required && r.Header.Get(name) == "" {
			errs = append(errs, fmt.Errorf("the header %s is missing", name))
		}
	}

	// Failures and HEAD share their headers with answers documented elsewhere.
	if r.StatusCode >= 400 || r.Request.Method == http.MethodHead {
		return errors.Join(errs...)
	}

	for name := range r.Header {
		if isDocumentedHeader(name) && !known[name] {
			errs = append(errs, fmt.Errorf("the header %s is not in the document", name))
		}
	}

	return errors.Join(errs...)
}

// checkBody checks the body of an answer, which is documented at the pointer: its content type, and
// its JSON or that of the items of a stream.
func (c *Contract) checkBody(
	schemas *schemas, at string, header http.Header, documented *openapi3.Response, body []byte,
) error {
	if len(documented.Content) == 0 {
		if len(body) > 0 {
			return errors.New("a body is not in the document")
		}
		return nil
	}

	contentType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("the content type %q: %w", header.Get("Content-Type"), err)
	}
	media, ok := documented.Content[contentType]
	if !ok {
		return fmt.Errorf("the content type %s is not in the document", contentType)
	}

	if isJSON(header) {
		return schemas.check(schemaIn(at, contentType), body)
	}

	item := c.Item(media)
	if item == nil {
		return nil
	}

	for line := range bytes.Lines(body) {
		if contentType == api.TypeEventStream {
			line = bytes.TrimPrefix(line, []byte("data:"))
		}

		// A stream may begin or end in the middle of a line.
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] != '{' || !json.Valid(line) {
			continue
		}
		if err := schemas.check(item.Ref, line); err != nil {
			return err
		}
	}

	return nil
}

// isJSON reports whether a body is one JSON value, not a stream of them.
func isJSON(header http.Header) bool {
	contentType, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	return strings.HasSuffix(contentType, "json") && contentType != api.TypeLines
}
