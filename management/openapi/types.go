// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// typeText describes the type of a schema in words, with links to named schemas.
func typeText(s *openapi3.SchemaRef) string {
	if s == nil {
		return ""
	}

	if s.Ref != "" {
		return link(schemaName(s.Ref), schemaName(s.Ref))
	}

	alternatives := slices.Concat(s.Value.AnyOf, s.Value.OneOf)

	var words []string
	for _, a := range alternatives {
		words = append(words, typeText(a))
	}

	if len(alternatives) == 0 {
		for _, name := range s.Value.Type.Slice() {
			words = append(words, plainType(s.Value, name))
		}
	}

	// Six types are all that JSON has.
	if len(words) == 0 || len(s.Value.Type.Slice()) == 6 {
		return "any value"
	}

	return strings.Join(words, " or ")
}

func plainType(s *openapi3.Schema, name string) string {
	switch {
	case name == "array":
		return "list of " + typeText(s.Items)
	case name == "object" && s.AdditionalProperties.Schema != nil:
		return "object of " + typeText(s.AdditionalProperties.Schema)
	case name == "string" && s.Format == "date-time":
		return "time"
	case name == "string" && len(s.Enum) > 0:
		values := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			values[i] = fmt.Sprintf("`%v`", v)
		}

		return strings.Join(values, ", ")
	}

	return name
}

// width is the longest line of rendered JSON, in bytes.
const width = 110

// render writes a value as JSON, short objects and lists on one line. The fields
// of an object are in the order of its schema, then by name.
func render(value any, s *openapi3.SchemaRef, margin string) string {
	var parts []string

	brackets := "[]"

	switch v := value.(type) {
	case map[string]any:
		brackets = "{}"

		for _, key := range fieldOrder(v, s) {
			parts = append(parts, scalar(key)+": "+render(v[key], property(s, key), margin+"  "))
		}
	case []any:
		for _, item := range v {
			parts = append(parts, render(item, items(s), margin+"  "))
		}
	default:
		return scalar(value)
	}

	line := brackets[:1] + strings.Join(parts, ", ") + brackets[1:]
	if len(margin)+len(line) <= width && !strings.Contains(line, "\n") {
		return line
	}

	// Too long for one line: one element per line, one level deeper.
	next := "\n" + margin + "  "

	return brackets[:1] + next + strings.Join(parts, ","+next) + "\n" + margin + brackets[1:]
}

// fieldOrder returns the keys of an object: those of its schema first.
func fieldOrder(object map[string]any, s *openapi3.SchemaRef) []string {
	var keys []string

	for _, variant := range variants(s) {
		for _, key := range Properties(variant.Value) {
			if _, ok := object[key]; ok && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}

	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}

	return keys
}

// property returns the schema of an object's field, or nil if none is defined.
func property(s *openapi3.SchemaRef, key string) *openapi3.SchemaRef {
	for _, variant := range variants(s) {
		if p, ok := variant.Value.Properties[key]; ok {
			return p
		}

		if more := variant.Value.AdditionalProperties.Schema; more != nil {
			return more
		}
	}

	return nil
}

// variants returns the schema and its alternatives; none for nil.
func variants(s *openapi3.SchemaRef) []*openapi3.SchemaRef {
	if s == nil {
		return nil
	}
	return slices.Concat([]*openapi3.SchemaRef{s}, s.Value.OneOf, s.Value.AnyOf)
}

func items(s *openapi3.SchemaRef) *openapi3.SchemaRef {
	if s == nil {
		return nil
	}
	return s.Value.Items
}

func scalar(value any) string {
	var b strings.Builder

	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)

	if err := e.Encode(value); err != nil {
		return err.Error()
	}

	return strings.TrimSuffix(b.String(), "\n")
}
