// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory/errtest"
)

// hostile are texts of a host, and the same at a terminal.
var hostile = map[string]string{
	"plain ö\ttab\n":               "plain ö\ttab\n",
	"\x1b[31mred\x1b[0m":           "red",
	"\x1b]0;title\x07x":            "\uFFFD]0;title\uFFFDx",
	"\x1b]52;c;ZXZpbA==\x1b\\x":    "\uFFFD]52;c;ZXZpbA==\uFFFD\\x",
	"\x1bP1$r\x1b\\":               "\uFFFDP1$r\uFFFD\\",
	"c1 csi \u009b31m, \u0085":     "c1 csi \uFFFD31m, \uFFFD",
	"bytes \x9b31m \xff\xfe.":      "bytes \uFFFD31m \uFFFD\uFFFD.",
	"bidi \u202eevil\u2066x\u200f": "bidi \uFFFDevil\uFFFDx\uFFFD",
	"over\rwritten \b\b\x7f":       "over written \uFFFD\uFFFD\uFFFD",
	"nul \x00 and \x0e":            "nul \uFFFD and \uFFFD",
}

// TestTerminal writes hostile texts in pieces of every size.
func TestTerminal(t *testing.T) {
	for text, want := range hostile {
		for size := 1; size <= len(text); size++ {
			var got strings.Builder

			w := Terminal(&got)
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				if written, err := w.Write([]byte(rest[:n])); written != n || err != nil {
					t.Fatalf("%d, %v", written, err)
				}
				rest = rest[n:]
			}

			if got.String() != want {
				t.Errorf("%q in pieces of %d: got %q, want %q", text, size, got.String(), want)
			}
		}
	}
}

// FuzzTerminal: no unsafe character passes, whatever a host prints.
func FuzzTerminal(f *testing.F) {
	for text := range hostile {
		f.Add(text, 3)
	}

	f.Fuzz(func(t *testing.T, text string, size int) {
		var got strings.Builder

		w := Terminal(&got)
		for rest := text; rest != ""; {
			n := min(max(size, 1), len(rest))
			if _, err := w.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}

		unsafe := func(r rune) bool { return r != '\n' && r != '\t' && isUnsafe(r) }
		if out := got.String(); strings.ContainsFunc(out, unsafe) || !utf8.ValidString(out) {
			t.Errorf("%q became %q", text, out)
		}
	})
}

// TestFormatsEscape: JSON and YAML keep the characters, but as escapes.
func TestFormatsEscape(t *testing.T) {
	const evil = "a\x1b[2J\u009b\u202e\x7f\u0085"

	answer := Answer{Wire: map[string]any{"k" + evil: evil, "list": []string{evil}}}
	for _, format := range []string{FormatJSON, FormatYAML} {
		out, err := answer.Render(format, Style{})
		errtest.None(t, err)

		for _, r := range string(out) {
			if r != '\n' && isUnsafe(r) {
				t.Errorf("%s has %U:\n%q", format, r, out)
			}
		}

		var back map[string]any
		if err := yaml.Unmarshal(out, &back); err != nil || back["k"+evil] != evil {
			t.Errorf("%s: got %q, %v", format, back, err)
		}
	}
}
