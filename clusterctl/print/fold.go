// SPDX-License-Identifier: Apache-2.0

package print

import "strings"

// leastFold is the least width to which text is folded: a column of single words
// would be harder to read than what a narrower terminal makes of it.
const leastFold = 20

// Fold breaks the lines of text that are wider than a number of terminal columns
// between words. A longer word gets a line of its own, so that a path or a command can
// be copied. Further lines are indented as the line that they continue. 0: no limit.
func Fold(text string, columns int) string {
	if columns <= 0 {
		return text
	}

	columns = max(columns, leastFold)

	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if width(line) > columns {
			lines[i] = foldLine(line, columns)
		}
	}

	return strings.Join(lines, "\n")
}

func foldLine(line string, columns int) string {
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]

	var b strings.Builder

	used := 0
	for i, word := range strings.Fields(line) {
		w := width(word)

		switch {
		case i == 0:
			b.WriteString(indent)
			used = len(indent)
		case used+1+w > columns:
			b.WriteString("\n" + indent)
			used = len(indent)
		default:
			b.WriteByte(' ')
			used++
		}

		b.WriteString(word)
		used += w
	}

	return b.String()
}
