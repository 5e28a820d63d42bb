// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"regexp"
	"strings"
	"unicode"
)

// closest is the candidate that text is most likely a misspelling of, or "".
func closest(text string, candidates []string) string {
	best, distance := "", 1+len([]rune(text))/3
	for _, c := range candidates {
		if len([]rune(c)) < 2 {
			continue
		}

		if d := edits(strings.ToLower(text), c); d <= distance && (best == "" || d < distance) {
			best, distance = c, d
		}
	}

	return best
}

// edits counts the insertions, deletions, replacements and swaps of neighbours
// that turn a into b.
func edits(a, b string) int {
	s, t := []rune(a), []rune(b)
	row := func() []int { return make([]int, len(t)+1) }

	before, last, now := row(), row(), row()
	for j := range last {
		last[j] = j
	}

	for i := 1; i <= len(s); i++ {
		now[0] = i
		for j := 1; j <= len(t); j++ {
			cost := 1
			if s[i-1] == t[j-1] {
				cost = 0
			}

			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}

		before, last, now = last, now, before
	}

	return last[len(t)]
}

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
