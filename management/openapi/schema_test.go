// SPDX-License-Identifier: Apache-2.0

package openapi_test

import (
	"embed"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/openapi"
)

//go:embed schema_test.go
var source embed.FS

// sample is a body.
//
// This is for readers of the code.
type sample struct {
	Name  string   `json:"name"`                       // the name
	Kinds []string `json:"kinds,omitempty" enum:"a,b"` // the kinds
	// How many; at least 1.
	Count int               `json:"count,omitempty" minimum:"1"`
	Until *time.Time        `json:"until,omitempty" type:"string,null"` // the end
	Part  part              `json:"part"`                               // the part
	More  map[string]sample `json:"more,omitempty"`                     // further ones
}

type part string

const _, _ part = "head", "tail"

type (
	unknown struct {
		Field string `json:"field"`
	}
	list[T any] struct {
		Items []T `json:"items"` // the items
	}
)

const head = `
info: {title: samples}
components:
  responses:
    Problem: {description: Any failure., content: {application/problem+json: {}}}
  schemas:
    sample: {properties: {name: {maxLength: 9}}}
`

const examples = `
make:
  body: {one: {value: {name: x, part: head}}}
  default: {bad: {value: {}}}
`

const built = `info: {title: samples}
paths:
  /samples:
    post:
      operationId: make
      tags: [Samples]
      security:
        - {token: []}
      x-roles: [admin]
      summary: Make a sample
      parameters:
        - {$ref: '#/components/parameters/IdempotencyKey'}
      requestBody:
        required: true
        content:
          application/json:
            schema: {$ref: '#/components/schemas/sample'}
            examples: {one: {value: {name: x, part: head}}}
      responses:
        "200":
          description: The samples.
          headers:
            Idempotency-Replayed: {$ref: '#/components/headers/Replayed'}
          content:
            application/json:
              schema: {$ref: '#/components/schemas/samplelist'}
        "404": {$ref: '#/components/responses/Problem'}
        "422": {$ref: '#/components/responses/KeyReused'}
        default: {description: Any failure., content: {application/problem+json: {examples: {bad: {value: {}}}}}}
components:
  responses:
    Problem: {description: Any failure., content: {application/problem+json: {}}}
  schemas:
    sample:
      type: object
      description: A body.
      additionalProperties: false
      required: [name, part]
      properties:
        name: {type: string, description: The name., maxLength: 9}
        kinds: {type: array, items: {type: string, enum: [a, b]}, description: The kinds.}
        count: {type: integer, minimum: 1, description: How many; at least 1.}
        until: {type: [string, "null"], format: date-time, description: The end.}
        part: {type: string, enum: [head, tail], description: The part.}
        more: {type: object, additionalProperties: {$ref: '#/components/schemas/sample'}, description: Further ones.}
    samplelist:
      type: object
      description: ""
      additionalProperties: false
      required: [items]
      properties:
        items: {type: array, items: {$ref: '#/components/schemas/sample'}, description: The items.}
`

// TestTypes builds a document of a route and of types with comments and limits, and adds the examples.
func TestTypes(t *testing.T) {
	t.Parallel()

	types, err := openapi.NewTypes(nil, source)
	errtest.None(t, err)

	route := openapi.Route{
		Method:   "POST",
		Path:     "/samples",
		Roles:    []string{"admin"},
		Keyed:    true,
		Failures: map[string]string{"default": "Problem"},
		Doc: &openapi.Doc{
			ID: "make", Tag: "Samples", Summary: "Make a sample", Body: sample{}, Answer: list[sample]{},
			Success: "The samples.", Fails: openapi.Fails{404: ""},
		},
	}

	got, err := types.Build([]byte(head), []byte(examples), []openapi.Route{route})
	if err != nil || string(got) != built {
		t.Errorf("%v\n%s", err, got)
	}

	_, err = types.Build([]byte(head), []byte("{}"), nil, unknown{})
	if err == nil || !strings.Contains(err.Error(), "unknown.Field has no comment") {
		t.Errorf("a field without a comment: %v", err)
	}

	for text, want := range map[string]string{
		"{}":                            `POST /samples has no examples under "make"`,
		"make: {}\nbake: {}":            `"bake", which is no operation`,
		"make: {'409': {one: {}}}":      "no answer 409",
		"make: {'404': {}, '201': {}}":  "no answer 201",
		"make: {'422': {one: {}}}\n{}}": "yaml",
	} {
		_, err = types.Build([]byte(head), []byte(text), []openapi.Route{route})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
