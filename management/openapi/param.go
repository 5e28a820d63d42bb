// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"cmp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// MinRevision is the query parameter that every read of the view takes.
const MinRevision = "min_revision"

// Param is a parameter of the path or of the query. Requests are parsed by it, and the document describes it.
type Param struct {
	Name, Help string
	Type       ParamType
	Example    string
	Default    string
	Values     []string // of a text; none: any
	Min, Max   int64    // of a number; a Max of 0 is none. Max of a duration is in nanoseconds
	Required   bool     // those of a path always are
	Missing    string   // of a path: what 404 means
}

// ParamType is the form of a parameter.
type ParamType int

// The forms of parameters. All but Texts are given once.
const (
	Text     ParamType = iota
	Texts              // may be repeated
	Number             // a whole number, 0 or more
	Flag               // true or false
	Time               // in RFC 3339
	Duration           // such as 30s or 1m30s, from 0s to Max
)

// schema returns the schema of a value.
func (p Param) schema() *yaml.Node {
	var s *yaml.Node

	switch p.Type {
	case Texts:
		s = pairs("type", "array", "items", pairs("type", "string"))
	case Number:
		s = pairs("type", "integer", "format", "int64", "minimum", scalarNode(strconv.FormatInt(p.Min, 10)))
		if p.Max > 0 {
			set(s, "maximum", scalarNode(strconv.FormatInt(p.Max, 10)))
		}
	case Flag:
		s = pairs("type", "boolean", "default", scalarNode(cmp.Or(p.Default, "false")))
	case Time:
		s = pairs("type", "string", "format", "date-time")
	case Duration:
		s = pairs("type", "string", "pattern", `^(0|([0-9.]+(ns|us|ms|s|m|h))+)$`)
	default:
		s = pairs("type", "string")
		if len(p.Values) > 0 {
			set(s, "enum", list(p.Values))
		}
	}

	if p.Default != "" {
		set(s, "default", scalarNode(p.Default))
	}

	return s
}

func (p Param) node(in string) *yaml.Node {
	n := pairs("name", p.Name, "in", in)
	if in == "path" || p.Required {
		set(n, "required", scalarNode("true"))
	}
	set(n, "description", stringNode(p.Help))
	set(n, "schema", p.schema())

	switch {
	case p.Example == "":
	case p.Type == Text || p.Type == Duration:
		set(n, "example", stringNode(p.Example))
	default:
		set(n, "example", scalarNode(p.Example))
	}

	return n
}
