// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"regexp"
	"strings"
	"unicode"
)

// escapes are the control sequences of ECMA-48, colours foremost.
var escapes = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]`)

// printable replaces what a terminal would obey instead of show: text of nodes
// and playbooks must not move an operator's cursor. Line breaks and tabs become
// spaces unless lines is set.
func printable(s string, lines bool) string {
	return strings.Map(func(r rune) rune {
		switch {
		case (r == '\n' || r == '\t') && lines:
			return r
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return '\uFFFD'
		}

		return r
	}, escapes.ReplaceAllString(s, ""))
}

// oneLine is printable text without line breaks and without runs of spaces.
func oneLine(s string) string {
	plain := true // as nearly everything is
	for i := 0; i < len(s); i++ {
		plain = plain && s[i] > ' ' && s[i] < 0x7f
	}

	if plain {
		return s
	}

	return strings.Join(strings.Fields(printable(s, false)), " ")
}

// shellWord quotes s where a shell would not take it as one plain word.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@%+=,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}

	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
