// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShorten(t *testing.T) {
	t.Parallel()

	if got := Shorten("short", 200); got != "short" {
		t.Error(got)
	}

	for size := 195; size < 260; size++ {
		got := Shorten(strings.Repeat("ä€x", size), 200)
		if len(got) > 200 || !utf8.ValidString(got) || !strings.HasSuffix(got, " …") ||
			!strings.HasPrefix(got, "ä€xä€x") {
			t.Errorf("%q", got)
		}
	}
}

func TestShortenAll(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ in, want []string }{
		{nil, []string{}},
		{[]string{"a", "b"}, []string{"a", "b"}},
		{[]string{"a", "b", "c", "d"}, []string{"a", "b", "and 2 more"}},
		{[]string{strings.Repeat("x", 30)}, []string{"xxxxxx …"}},
	} {
		if got := ShortenAll(c.in, 2, 10); !slices.Equal(got, c.want) {
			t.Errorf("%q gives %q, want %q", c.in, got, c.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"":                           "",
		"two lines\n\tand a tab — ü": "two lines\n\tand a tab — ü",
		"\x1b[2J\r\b\x00\x7f":        "\ufffd[2J\ufffd\ufffd\ufffd\ufffd",
		"\u009b2J":                   "\ufffd2J",
		"\u202egpj\u2066.exe\u200f":  "\ufffdgpj\ufffd.exe\ufffd",
		"not \xff UTF-8":             "not \ufffd UTF-8",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
