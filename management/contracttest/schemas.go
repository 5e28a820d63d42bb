// SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"bytes"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/routers"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas are the schemas of a document. Each is compiled once: kin-openapi compiles
// them anew for every body, which took a seventh of the time of the daemon's tests.
type schemas struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema // by the pointer to it
}

// newSchemas returns the schemas of a document in JSON.
func newSchemas(text []byte) (*schemas, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}

	s := &schemas{compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	s.compiler.DefaultDraft(jsonschema.Draft2020)
	s.compiler.AssertFormat()

	return s, s.compiler.AddResource("openapi.json", document)
}

// check validates JSON against the schema at a JSON pointer, such as
// "#/components/schemas/Node".
func (s *schemas) check(pointer string, text []byte) error {
	schema, err := s.at(pointer)
	if err != nil {
		return err
	}

	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func (s *schemas) at(pointer string) (*jsonschema.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if schema, ok := s.compiled[pointer]; ok {
		return schema, nil
	}

	schema, err := s.compiler.Compile("openapi.json" + pointer)
	s.compiled[pointer] = schema

	return schema, err
}

// pointerTo returns the pointer to a part of the operation of a route, by its keys.
func pointerTo(route *routers.Route, keys ...string) string {
	return below("#/paths", append([]string{route.Path, strings.ToLower(route.Method)}, keys...)...)
}

// schemaIn returns the pointer to the schema of a content type in a request body or an
// answer, which is at the pointer.
func schemaIn(pointer, contentType string) string {
	return below(pointer, "content", contentType, "schema")
}

// below returns the pointer to a value below another one.
func below(pointer string, keys ...string) string {
	for _, key := range keys {
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(key)
	}

	return pointer
}
