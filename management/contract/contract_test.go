// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/contract"
)

// TestDocument: openapi.yaml is an OpenAPI document, and its examples are of
// their schemas.
func TestDocument(t *testing.T) {
	t.Parallel()

	document, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}

	if err := document.Validate(context.Background()); err != nil {
		why, _, _ := strings.Cut(err.Error(), "\n")
		t.Error(why)
	}

	c := load(t)

	ids, tags := map[string]bool{}, map[string]bool{}
	for _, tag := range c.Tags {
		tags[tag.Name] = true
	}

	for _, o := range c.Operations {
		at := o.Method + " " + o.Path
		if o.ID == "" || ids[o.ID] {
			t.Errorf("%s: the operationId %q is missing or used twice", at, o.ID)
		}

		ids[o.ID] = true
		if !tags[o.Tag] {
			t.Errorf("%s: there is no tag %q", at, o.Tag)
		}

		if o.Summary == "" || strings.HasSuffix(o.Summary, ".") {
			t.Errorf("%s: the summary %q is missing, or a sentence", at, o.Summary)
		}

		if len(o.Cases()) == 0 {
			t.Errorf("%s has no example", at)
		}

		for _, p := range o.Parameters {
			if p.Description == "" || p.In == "path" && p.Example == "" {
				t.Errorf("%s: the parameter %s has no description, or no example", at, p.Name)
			}
		}

		for _, a := range o.Answers {
			for _, m := range a.Media {
				for _, e := range m.Examples {
					if e.Part {
						continue
					}

					text, err := json.Marshal(e.Value)
					if err == nil && !m.Stream {
						err = c.Schema(m.Pointer, text)
					}

					if err != nil {
						t.Errorf("%s: the example %s is not of its schema: %v", at, e.Name, err)
					}
				}
			}
		}
	}

	for _, s := range c.Schemas {
		if s.Description == "" {
			t.Errorf("the schema %s has no description", s.Name)
		}

		for _, f := range s.Fields {
			if f.Description == "" {
				t.Errorf("the field %s of %s has no description", f.Name, s.Name)
			}
		}
	}
}

// TestProblems: every kind of error has its type, and an example.
func TestProblems(t *testing.T) {
	t.Parallel()
	c := load(t)

	shown := map[string]bool{}
	for _, o := range c.Operations {
		for _, a := range o.Answers {
			for _, m := range a.Media {
				for _, e := range m.Examples {
					if p, ok := e.Value.(map[string]any); ok && m.ContentType == api.TypeProblem {
						kind, _ := p["type"].(string)
						shown[kind] = true
					}
				}
			}
		}
	}

	for _, row := range api.KindTable {
		p := api.ProblemOf(inventory.Errorf(row.Kind, "x"))

		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}

		if err := c.Schema("/components/schemas/Problem", text); err != nil {
			t.Errorf("%s: %v", row.Kind, err)
		}

		if !shown[p.Type] {
			t.Errorf("there is no example of %s", p.Type)
		}
	}
}

// open are the schemas of what a reader passes over the unknown of: bodies of the
// first generation, and events, which plugins of others may write.
var open = []string{"Event", "HostStat", "LegacyRequest", "LegacyEvent", "LegacyEventNode", "LegacyMember"}

// types are the Go types that the schemas describe.
var types = map[string]any{
	"Node":            api.Node{},
	"Before":          api.Before{},
	"Connection":      api.Connection{},
	"NodePatch":       api.NodePatch{},
	"NodeList":        api.List[api.Node]{},
	"Entry":           api.HistoryEntry{},
	"EntryList":       api.List[api.HistoryEntry]{},
	"Group":           api.Group{},
	"GroupList":       api.List[api.Group]{},
	"Forget":          api.Forget{},
	"Changed":         api.Changed{},
	"JobRequest":      api.JobRequest{},
	"Job":             api.Job{},
	"JobList":         api.List[api.Job]{},
	"Run":             api.Run{},
	"HostResult":      api.HostResult{},
	"HostSummary":     api.HostSummary{},
	"Retry":           api.Retry{},
	"Change":          api.Change{},
	"NodeExplanation": api.NodeExplanation{},
	"JobExplanation":  api.JobExplanation{},
	"Finding":         api.Finding{},
	"Failure":         api.Failure{},
	"Event":           api.Event{},
	"HostStat":        api.HostStat{},
	"MergedVar":       api.MergedVar{},
	"Setting":         api.Setting{},
	"Instance":        api.Instance{},
	"InstanceList":    api.List[api.Instance]{},
	"Health":          api.Health{},
	"Version":         api.Version{},
	"Problem":         api.Problem{},
	"LegacyRequest":   api.LegacyRequest{},
	"LegacyEvent":     api.LegacyEvent{},
	"LegacyEventNode": api.LegacyEventNode{},
	"LegacyMember":    api.LegacyMember{},
	"LegacyNodeInfo":  api.LegacyNodeInfo{},
	"LegacyJobInfo":   api.LegacyJobInfo{},
}

// free are schemas of no struct.
var free = []string{
	"Status",
	"State",
	"Verb",
	"JobStatus",
	"Vars",
	"MergedVars",
	"Config",
	"ConfigPatch",
	"LegacyVars",
	"LegacyConfig",
}

// TestTypes: the schemas have the fields of the Go types, of the same kinds.
func TestTypes(t *testing.T) {
	t.Parallel()
	c := load(t)

	var whole struct {
		Components struct {
			Schemas map[string]schema
		}
	}
	if err := json.Unmarshal(c.JSON, &whole); err != nil {
		t.Fatal(err)
	}

	schemas := whole.Components.Schemas
	for name, s := range schemas {
		value, ok := types[name]
		if !ok {
			if !slices.Contains(free, name) {
				t.Errorf("the schema %s stands for no Go type: add it to this test", name)
			}

			continue
		}

		compare(t, name, s, reflect.TypeOf(value), schemas)

		if closed := string(s.More) == "false"; closed == slices.Contains(open, name) {
			t.Errorf("the schema %s is closed: %t", name, closed)
		}
	}

	for name := range types {
		if _, ok := schemas[name]; !ok {
			t.Errorf("there is no schema %s", name)
		}
	}

	// Enums are the lists that the code decides by.
	enum(t, schemas["Status"], inventory.Statuses, func(i int) string { return string(inventory.Statuses[i].Status) })
	enum(t, schemas["State"], inventory.States, func(i int) string { return string(inventory.States[i].State) })
}

func enum[T any](t *testing.T, s schema, rows []T, name func(int) string) {
	t.Helper()

	var want []string
	for i := range rows {
		want = append(want, name(i))
	}

	if !slices.Equal(s.Enum, want) {
		t.Errorf("the document has %v, the code %v", s.Enum, want)
	}
}

type schema struct {
	Ref        string            `json:"$ref"`
	Type       any               `json:"type"`
	Format     string            `json:"format"`
	Enum       []string          `json:"enum"`
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
	OneOf      []schema          `json:"oneOf"`
	Items      *schema           `json:"items"`
	More       json.RawMessage   `json:"additionalProperties"`
}

// allows tells whether the schema allows JSON of the type.
func (s schema) allows(name string, all map[string]schema) bool {
	if ref, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return all[ref].allows(name, all)
	}

	switch kind := s.Type.(type) {
	case string:
		return kind == name
	case []any:
		return slices.Contains(kind, any(name))
	}

	return len(s.OneOf) == 0 || slices.ContainsFunc(s.OneOf, func(o schema) bool { return o.allows(name, all) })
}

func compare(t *testing.T, at string, s schema, of reflect.Type, all map[string]schema) {
	t.Helper()

	fields := fieldsOf(of)
	for _, f := range fields {
		p, ok := s.Properties[f.name]
		switch {
		case !ok:
			t.Errorf("%s: the field %s of %s is not in the document", at, f.name, of)
			continue
		case !p.allows(f.kind, all):
			t.Errorf("%s: %s is a %s in Go, and %v in the document", at, f.name, f.kind, p.Type)
		case (f.of == reflect.TypeFor[time.Time]()) != (p.Format == "date-time") && at != "Event":
			t.Errorf("%s: %s is a time, or is not", at, f.name)
		}

		if len(p.Properties) > 0 {
			compare(t, at+"."+f.name, p, f.of, all)
		}

		if closed := string(
			s.More,
		) == "false"; closed && !strings.HasSuffix(at, "Request") && at != "Forget" &&
			slices.Contains(s.Required, f.name) == f.optional {
			t.Errorf("%s: %s is always there, or is not, and the document says otherwise", at, f.name)
		}
	}

	for name := range s.Properties {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
			t.Errorf("%s: %s is in the document, and not in %s", at, name, of)
		}
	}
}

type field struct {
	name     string
	kind     string // in JSON
	of       reflect.Type
	optional bool
}

// fieldsOf are the fields that a struct has in JSON. An outer one hides one of
// an embedded struct.
func fieldsOf(of reflect.Type) []field {
	var out []field
	for i := range of.NumField() {
		f := of.Field(i)

		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			out = append(out, fieldsOf(f.Type)...)
			continue
		case !f.IsExported() || name == "-":
			continue
		}

		at := f.Type
		for at.Kind() == reflect.Pointer {
			at = at.Elem()
		}

		out = append(out, field{name: name, kind: kindOf(at), of: at, optional: strings.Contains(options, "omit")})
	}

	return out
}

func kindOf(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[api.Duration]():
		return "string"
	case reflect.TypeFor[json.RawMessage]():
		return "object"
	}

	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "array"
	case reflect.Struct, reflect.Map, reflect.Interface:
		return "object"
	case reflect.Float64:
		return "number"
	}

	return "integer"
}

func load(t *testing.T) *contract.Contract {
	t.Helper()

	c, err := contract.Load()
	if err != nil {
		t.Fatal(err)
	}

	return c
}
