// SPDX-License-Identifier: Apache-2.0

package inventory

import "strings"

// maxCompared is the length in runes up to which Distance compares strings. Both
// the time and the memory of a comparison grow with the lengths, and some of
// the strings come from the network.
const maxCompared = 128

// Closest returns the candidate that text is most likely a misspelling of, or ""
// if none is close: one edit per three letters of text is allowed, and one edit in
// a shorter text. Upper case letters in text count as lower case. Candidates of a single
// letter never match.
func Closest(text string, candidates []string) string {
	best, limit := "", max(1, len([]rune(text))/3)
	for _, candidate := range candidates {
		if len([]rune(candidate)) < 2 {
			continue
		}

		d := Distance(strings.ToLower(text), candidate)
		if d < limit || d == limit && best == "" {
			best, limit = candidate, d
		}
	}

	return best
}

// Distance returns the number of edits that turn a into b, where an edit
// inserts, deletes or replaces a letter or swaps two neighbours (the optimal
// string alignment distance). If a or b is longer than 128 letters the strings
// count as entirely different, and the result is the length of the longer one.
func Distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	if longest := max(len(s), len(t)); longest > maxCompared {
		return longest
	}

	// A cell depends on its own row and the two rows above it, so three rows of
	// the matrix are enough.
	above2, above, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range above {
		above[j] = j
	}

	for i := 1; i <= len(s); i++ {
		row[0] = i

		for j := 1; j <= len(t); j++ {
			replace := above[j-1]
			if s[i-1] != t[j-1] {
				replace++
			}
			row[j] = min(above[j]+1, row[j-1]+1, replace)

			swapped := i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1]
			if swapped {
				row[j] = min(row[j], above2[j-2]+1)
			}
		}

		above2, above, row = above, row, above2
	}

	return above[len(t)]
}
