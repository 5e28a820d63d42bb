// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/contiv/cluster/inventory"
)

// abouts describes the keys of the grammar, by type and key, for the schema.
var abouts = map[string]string{
	"File.fleet": "The version of the format: 1.",
	"File.settings": "Settings of run time by dotted key, as in clusterctl config get. null removes one that was " +
		"set at run time.",
	"File.connection": "How to reach every node over ssh, below the settings of its group and its own.",
	"File.vars":       "Variables of every node. null removes one.",
	"File.secrets":    "Secret variables of every node.",
	"File.groups":     "The host groups, with their rules.",
	"File.nodes":      "The nodes, by name.",
	"Group.selector": "The nodes of the group, by labels and by the fields name, label, serial and addr: rack in " +
		"(r1,r2). The group in nodes overrides it.",
	"Group.connection": "How to reach the nodes of the group over ssh.",
	"Group.vars":       "Variables of the group. null removes one.",
	"Group.secrets":    "Secret variables of the group.",
	"Node.group":       "The group of the node; none to take it out of service.",
	"Node.labels":      "Labels of the node. null removes one.",
	"Node.connection":  "How to reach the node over ssh.",
	"Node.vars":        "Variables of the node. null removes one.",
	"Node.secrets":     "Secret variables of the node.",
	"Secret.file": "The file with the value, without a newline at its end; a relative path begins at the folder " +
		"of the fleet file.",
	"Secret.env": "The environment variable with the value.",
	"Group.requires": "The groups that must have so many healthy nodes before a node joins this one, and as long " +
		"as one is in it.",
	"Group.budget": "How many nodes of the group may be out of service at a time.",
	"Group.on_return": "What happens to a node in service that disappeared and appears again: record, verify, " +
		"verify-and-repair or repair.",
	"Group.strategy": "Bounds for the nodes of the group in every rollout that does not say otherwise.",
	"Group.tags": "The tags with which site.yml, rolling-upgrade.yml and verify.yml run on nodes of the group; " +
		"without any, all tasks run.",
	"Group.skip_tags": "The tags whose tasks these playbooks leave out on nodes of the group.",
}

// Schema returns the JSON schema (draft 2020-12) of a fleet file, for editors. It is
// generated from the types of the grammar.
func Schema() ([]byte, error) {
	root := schemaOf(reflect.TypeFor[File]())
	root.set("required", []string{"fleet"}, false)

	schema := &Mapping{}
	schema.set("$schema", "https://json-schema.org/draft/2020-12/schema", false)
	schema.set("$id", "urn:clusterm:fleet:1", false)
	schema.set("title", "Fleet file of clusterm", false)

	for _, key := range root.keys {
		schema.set(key, root.values[key], false)
	}

	out, err := json.MarshalIndent(schema, "", "  ")

	return append(out, '\n'), err
}

// schemaOf returns the schema of a type.
func schemaOf(t reflect.Type) *Mapping {
	t = deref(t)
	out := &Mapping{}

	switch {
	case t == reflect.TypeFor[Secret]():
		out.set("oneOf", []any{map[string]any{"const": Keep}, structSchema(t, 1)}, false)
	case t.Kind() == reflect.Struct:
		return structSchema(t, 0)
	case t.Kind() == reflect.Map:
		out.set("type", []string{"object", "null"}, false)
		out.set("additionalProperties", nullable(schemaOf(t.Elem())), false)
	case t.Kind() == reflect.Interface: // any value
	case t.Kind() == reflect.Bool:
		out.set("type", "boolean", false)
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		out.set("type", "integer", false)
	case t.Kind() == reflect.Slice:
		out.set("type", "array", false)
		out.set("items", schemaOf(t.Elem()), false)
	case t == reflect.TypeFor[inventory.Amount]():
		out.set("type", []string{"string", "integer"}, false)
	default:
		out.set("type", "string", false)
	}

	return out
}

// nullable allows null besides a type: it removes a value, or stands for an empty mapping.
func nullable(m *Mapping) *Mapping {
	switch kind := m.values["type"].(type) {
	case string:
		m.values["type"] = []string{kind, "null"}
	case []string:
		if !slices.Contains(kind, "null") {
			m.values["type"] = append(slices.Clone(kind), "null")
		}
	case nil:
		if options, ok := m.values["oneOf"].([]any); ok {
			m.values["oneOf"] = append(options, map[string]any{"type": "null"})
		}
	}

	return m
}

// structSchema returns the schema of a mapping with known keys, of which exactly the given
// number is set; 0 for any.
func structSchema(t reflect.Type, count int) *Mapping {
	properties := &Mapping{}

	for _, f := range fieldsOf(t) {
		part := nullable(schemaOf(f.typ))

		about := abouts[t.Name()+"."+f.name]
		if about != "" {
			part.set("description", about, false)
		}

		if t == reflect.TypeFor[File]() && f.name == "fleet" {
			part = &Mapping{}
			part.set("const", Version, false)
			part.set("description", about, false)
		}

		properties.set(f.name, part, false)
	}

	out := &Mapping{}
	out.set("type", "object", false)

	if t == reflect.TypeFor[Group]() || t == reflect.TypeFor[Node]() {
		out.set("type", []string{"object", "null"}, false)
	}

	if count > 0 {
		out.set("minProperties", count, false)
		out.set("maxProperties", count, false)
	}

	out.set("properties", properties, false)
	out.set("additionalProperties", false, false)

	return out
}
