// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzExtract expects an expression of -o to be refused before the request, or to
// print safe text of an answer with hostile values.
func FuzzExtract(f *testing.F) {
	for _, s := range []string{
		"jsonpath={.items[*].name}", "jsonpath=$.items[0]", "jsonpath=", "jsonpath={",
		"jsonpath=.items[?(@.name=='x')]", "go-template={{.items}}",
		"go-template={{range .items}}{{.name}}{{end}}", "go-template={{", "go-template={{index .items 9}}",
		"jsonpath=$..name", "jsonpath={.items[-1:]}",
		"jsonpath=$.items[1:0]", "jsonpath=$[", "go-template={{printf \"%s\" .items}}",
		"jsonpath=$.items[9999999999999999999]",
	} {
		f.Add(s, "web-1")
	}

	f.Add("go-template={{.evil}}", "\x1b]0;x\x07\u202e")

	f.Fuzz(func(t *testing.T, format, evil string) {
		if !IsExtract(format) || CheckExtract(format) != nil {
			return
		}

		// A template may define itself without an end, or ask for a wide field: its author
		// is its reader.
		if strings.Contains(format, "template \"") || strings.ContainsAny(format, "%") {
			return
		}

		a := Answer{
			Wire: map[string]any{"evil": evil, "items": []map[string]any{{"name": evil}, {"name": "b", "n": 1}}},
		}

		out, err := a.Render(format, Style{})
		if err != nil {
			return
		}

		unsafe := func(r rune) bool { return r != '\n' && r != '\t' && isUnsafe(r) }
		if text := string(out); strings.ContainsFunc(text, unsafe) || !utf8.ValidString(text) {
			t.Errorf("%q of %q became %q", format, evil, text)
		}
	})
}

// FuzzCells expects text of a node in a table to stay in its cell.
func FuzzCells(f *testing.F) {
	for text := range hostile {
		f.Add(text, 20)
	}

	f.Add("wide 日本語 text", 3)

	f.Fuzz(func(t *testing.T, text string, width int) {
		width = max(width, -(width+1)) % 200

		line := Line(text)
		if strings.ContainsAny(line, "\n\t\r") || strings.ContainsFunc(line, isUnsafe) || Line(line) != line {
			t.Errorf("%q became the line %q", text, line)
		}
		clipped := Clip(line, width)
		if columns := len([]rune(Pad(clipped, width))); strings.ContainsFunc(clipped, isUnsafe) ||
			columns > 2*width+len([]rune(line)) {
			t.Errorf("%q at %d columns became %q", text, width, clipped)
		}
	})
}
