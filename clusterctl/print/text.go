// SPDX-License-Identifier: Apache-2.0

package print

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/mattn/go-runewidth"

	"github.com/contiv/cluster/inventory"
)

// escapes matches the control sequences of ECMA-48, most of which are colours.
var escapes = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]`)

// Text removes terminal control sequences from s, and keeps line breaks and tabs.
func Text(s string) string { return sanitize(s, true) }

// Inline removes terminal control sequences from s, and replaces each line break
// and tab by a space.
func Inline(s string) string { return sanitize(s, false) }

// Line is Inline with every run of spaces folded into one.
func Line(s string) string {
	// Nearly every cell of a table is a plain word: skip the regular expression.
	if isPlain(s, '!') {
		return s
	}
	return strings.Join(strings.Fields(Inline(s)), " ")
}

func sanitize(s string, keepLines bool) string {
	return strings.Map(func(r rune) rune {
		switch {
		case (r == '\n' || r == '\t') && keepLines:
			return r
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case isUnsafe(r):
			return '\uFFFD'
		}

		return r
	}, escapes.ReplaceAllString(s, ""))
}

// isUnsafe reports whether a rune may change the meaning of the text around it: a
// control character, or one that changes the direction of writing.
func isUnsafe(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// isPlain reports whether s consists of printable ASCII characters from lowest on.
func isPlain(s string, lowest byte) bool {
	for i := range len(s) {
		if s[i] < lowest || s[i] >= 0x7f {
			return false
		}
	}

	return true
}

// Clip shortens s to a width in terminal columns, and marks the cut with an ellipsis.
func Clip(s string, width int) string {
	if width <= 0 {
		return ""
	}
	return runewidth.Truncate(s, width, "…")
}

// Pad fills s with spaces up to a width in terminal columns.
func Pad(s string, width int) string { return runewidth.FillRight(s, width) }

// List joins s with commas on one line.
func List(s []string) string { return Line(strings.Join(s, ", ")) }

// Scalar formats a value for one table cell: a string unquoted, everything else as JSON.
func Scalar(v any) string {
	if s, ok := v.(string); ok {
		return Line(s)
	}

	// JSON distinguishes the text "1" from the number 1.
	b, err := Compact(v)
	if err != nil {
		return Line(fmt.Sprint(v))
	}
	return strings.TrimSpace(string(b))
}

// Compact returns v as one line of JSON, with a line break at the end.
func Compact(v any) ([]byte, error) { return encode(v, "") }

// encode returns v as JSON without raw control characters.
func encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer

	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)

	return escapeUnsafe(b.Bytes()), err
}

// escapeUnsafe replaces unsafe characters in strings of JSON, or of YAML in double
// quotes, by their escapes. The encoders leave some of them as they are.
func escapeUnsafe(doc []byte) []byte {
	raw := func(r rune) bool { return r != '\n' && r != '\t' && isUnsafe(r) }
	if !bytes.ContainsFunc(doc, raw) {
		return doc
	}

	var out bytes.Buffer
	for _, r := range string(doc) {
		if raw(r) {
			fmt.Fprintf(&out, "\\u%04x", r)
		} else {
			out.WriteRune(r)
		}
	}

	return out.Bytes()
}

// Time formats t in the local time zone, and a zero t as "".
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// stamp matches a time in a sentence of the manager.
var stamp = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\b`)

// LocalTimes puts the times in a sentence of the manager into the one format for
// people.
func LocalTimes(s string) string {
	return stamp.ReplaceAllStringFunc(s, func(text string) string {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return text
		}
		return Time(t)
	})
}

func timeOf(t *time.Time) string { return Time(deref(t)) }

// Elapsed formats the time between two moments, or "" if either is missing.
func Elapsed(from, to *time.Time) string {
	if from == nil || to == nil {
		return ""
	}
	return Duration(to.Sub(*from))
}

// Duration formats d: below 10 s with one decimal, otherwise in whole seconds.
func Duration(d time.Duration) string {
	if d < 10*time.Second {
		return inventory.ShortDuration(d.Round(100 * time.Millisecond))
	}
	return inventory.ShortDuration(d.Round(time.Second))
}

// Age formats the time since t in its largest unit: 5s, 12m, 3h, 4d.
func Age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(time.Since(t))
}

// span formats d in its largest unit: 5s, 12m, 3h, 4d.
func span(d time.Duration) string {
	const day = 24 * time.Hour

	switch d = max(0, d); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < day:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/day)
	}
}

func positive(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func yesIf(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// YesNo formats a boolean.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// withPrefix puts prefix before s unless s is empty.
func withPrefix(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
