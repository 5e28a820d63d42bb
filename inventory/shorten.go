// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"strings"
	"unicode"
)

// Printable replaces whatever is not UTF-8, control characters other than line ends and
// tabs, and changes of the direction of writing, so that text cannot move a terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
}

// Shorten cuts text to a number of bytes and marks the cut.
func Shorten(text string, limit int) string {
	const mark = " …"

	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(mark)], "") + mark
}

// ShortenAll cuts a list to a number of texts, and each of them to a number of
// bytes. A last text counts those that were cut off.
func ShortenAll(texts []string, most, limit int) []string {
	out := make([]string, 0, min(len(texts), most+1))
	for _, text := range texts[:min(len(texts), most)] {
		out = append(out, Shorten(text, limit))
	}

	if more := len(texts) - most; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}

	return out
}
