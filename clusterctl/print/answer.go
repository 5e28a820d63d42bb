// SPDX-License-Identifier: Apache-2.0

package print

import (
	"bytes"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// The values of --output.
const (
	FormatTable = "table"
	FormatWide  = "wide"
	FormatLong  = "long"
	FormatJSON  = "json"
	FormatYAML  = "yaml"
	FormatName  = "name"
)

// Answer is one answer in every form that --output can request.
type Answer struct {
	Wire  any      // json and yaml: the object as the manager sent it
	Names []string // name: one per line
	Table func(p *Printer)
	Long  func(p *Printer) // nil: as Table
	Stale bool             // the manager could not confirm that the answer is current
}

// Render returns the answer in a format.
func (a Answer) Render(format string, style Style) ([]byte, error) {
	switch format {
	case FormatJSON:
		return indented(a.Wire)
	case FormatYAML:
		doc, err := indented(a.Wire)
		if err != nil {
			return nil, err
		}
		return toYAML(doc)
	case FormatName:
		var b bytes.Buffer
		for _, name := range a.Names {
			fmt.Fprintln(&b, Inline(name))
		}

		return b.Bytes(), nil
	}

	if IsExtract(format) {
		return a.extracted(format)
	}

	p := &Printer{Style: style}
	if format == FormatLong && a.Long != nil {
		a.Long(p)
	} else {
		a.Table(p)
	}

	return p.Bytes(), nil
}

func indented(v any) ([]byte, error) { return encode(v, "  ") }

// toYAML converts a JSON document to block-style YAML and keeps the order of keys.
func toYAML(doc []byte) ([]byte, error) {
	// JSON is YAML in flow style: parse it as such, and drop the styles.
	var n yaml.Node
	if err := yaml.Unmarshal(doc, &n); err != nil {
		return nil, err
	}

	if err := blockStyle(&n); err != nil {
		return nil, err
	}

	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := errors.Join(e.Encode(&n), e.Close())

	return escapeUnsafe(b.Bytes()), err
}

// blockStyle removes the flow style and the quotes from n. A string stays quoted
// if a YAML 1.1 reader such as Ansible would read another type, as with yes, on and
// 12:30, or if it needs escapes.
func blockStyle(n *yaml.Node) error {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		alone, err := yaml.Marshal(n.Value)
		if err != nil {
			return err
		}
		if alone[0] == '"' || Text(n.Value) != n.Value {
			n.Style = yaml.DoubleQuotedStyle
		}
	}

	for _, c := range n.Content {
		if err := blockStyle(c); err != nil {
			return err
		}
	}

	return nil
}
