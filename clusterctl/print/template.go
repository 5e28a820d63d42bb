// SPDX-License-Identifier: Apache-2.0

package print

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

	"github.com/PaesslerAG/jsonpath"

	"github.com/contiv/cluster/clusterctl/exit"
)

// The values of --output that take an expression after the equals sign.
const (
	FormatJSONPath   = "jsonpath"
	FormatGoTemplate = "go-template"
)

// extractor prints parts of an answer: its JSON as generic values.
type extractor func(b *bytes.Buffer, wire any) error

// IsExtract reports whether the format takes an expression.
func IsExtract(format string) bool {
	return strings.HasPrefix(format, FormatJSONPath+"=") || strings.HasPrefix(format, FormatGoTemplate+"=")
}

// CheckExtract refuses an expression that does not parse.
func CheckExtract(format string) error {
	_, err := extract(format)
	return err
}

// extract parses a format that takes an expression.
func extract(format string) (extractor, error) {
	name, text, _ := strings.Cut(format, "=")
	if name == FormatGoTemplate {
		t, err := template.New(FormatGoTemplate).Parse(text)
		if err != nil {
			return nil, exit.Usagef("the template does not parse: %v", err).
				Try("for example: -o 'go-template={{range .items}}{{.name}}{{\"\\n\"}}{{end}}'")
		}

		return func(b *bytes.Buffer, wire any) error { return t.Execute(b, wire) }, nil
	}

	path, err := jsonpath.New(rooted(text))
	if err != nil {
		return nil, exit.Usagef("the path %q does not parse: %v", text, err).
			Try("for example: -o 'jsonpath={.items[*].name}'; for loops and text, see -o go-template")
	}

	return func(b *bytes.Buffer, wire any) error {
		found, err := path(context.Background(), wire)
		if err != nil {
			return err
		}

		// A path with a wildcard has several results, one per line.
		all, several := found.([]any)
		if !several {
			all = []any{found}
		}
		for _, v := range all {
			writeValue(b, v)
		}

		return nil
	}, nil
}

// rooted returns a path with the root that the grammar wants. kubectl writes
// {.items[*].name} for $.items[*].name.
func rooted(path string) string {
	path = strings.TrimSpace(path)
	if inner, ok := strings.CutPrefix(path, "{"); ok && !strings.Contains(inner, "{") {
		path = strings.TrimSpace(strings.TrimSuffix(inner, "}"))
	}

	switch {
	case strings.HasPrefix(path, "$"):
		return path
	case strings.HasPrefix(path, "."), strings.HasPrefix(path, "["):
		return "$" + path
	}

	return "$." + path
}

// writeValue writes text as it is, and any other value as JSON, on a line of its own.
func writeValue(b *bytes.Buffer, v any) {
	if s, ok := v.(string); ok {
		fmt.Fprintln(b, s)
		return
	}

	fmt.Fprintln(b, Scalar(v))
}

// extracted renders the parts of an answer that the format names.
func (a Answer) extracted(format string) ([]byte, error) {
	get, err := extract(format)
	if err != nil {
		return nil, err
	}

	doc, err := json.Marshal(a.Wire)
	if err != nil {
		return nil, err
	}

	var wire any
	if err := json.Unmarshal(doc, &wire); err != nil {
		return nil, err
	}

	var b bytes.Buffer
	if err := get(&b, wire); err != nil {
		return nil, exit.Errorf(exit.Failed, "cannot take %s from the answer: %v", format, err).
			Try("to see the whole answer: -o json")
	}

	return []byte(Text(b.String())), nil
}
