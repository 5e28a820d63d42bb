// SPDX-License-Identifier: Apache-2.0

package print

import (
	"regexp"
	"strings"

	"github.com/mattn/go-runewidth"
)

// columnGap separates two columns of a table.
const columnGap = "   "

// grid lays a table out. A cell may have several lines, and colours. A column
// without text is left out unless keepEmpty is set.
func grid(header []string, rows [][]string, keepEmpty bool) string {
	widths := columnWidths(header, rows, keepEmpty)
	if header != nil {
		rows = append([][]string{header}, rows...)
	}

	var b strings.Builder
	for _, r := range rows {
		// Each pass writes one line of the row's cells.
		for len(r) > 0 {
			r = gridLine(&b, r, widths)
		}
	}

	if strings.Trim(b.String(), "\n") == "" {
		return ""
	}

	return b.String()
}

// columnWidths returns the width of each column; 0 leaves the column out.
func columnWidths(header []string, rows [][]string, keepEmpty bool) []int {
	widths := make([]int, len(header))
	for _, r := range rows {
		for len(widths) < len(r) {
			widths = append(widths, 0)
		}

		for i, cell := range r {
			widths[i] = max(widths[i], width(cell))
		}
	}

	// A column without values has no header either.
	for i := range header {
		if widths[i] > 0 || keepEmpty {
			widths[i] = max(widths[i], width(header[i]))
		}
	}

	return widths
}

// gridLine writes the first line of every cell, and returns the cells with the
// remaining lines, or nil.
func gridLine(b *strings.Builder, cells []string, widths []int) (rest []string) {
	pending := 0 // spaces due before the next cell; trailing ones are never written
	for i, cell := range cells {
		if widths[i] == 0 {
			continue
		}

		if first, others, several := strings.Cut(cell, "\n"); several {
			if rest == nil {
				rest = make([]string, len(cells))
			}

			cell, rest[i] = first, others
		}

		if cell != "" {
			b.WriteString(strings.Repeat(" ", pending))
			b.WriteString(cell)

			pending = 0
		}

		pending += widths[i] - width(cell) + len(columnGap)
	}

	b.WriteByte('\n')

	return rest
}

// Align lays out rows that are appended to a table already printed. It widens
// widths where a cell needs more room.
func Align(widths []int, rows ...[]string) string {
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], width(cell))
		}
	}

	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-width(cell)) + columnGap)
		}

		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}

	return b.String()
}

// colour matches the sequences that Paint adds.
var colour = regexp.MustCompile("\x1b\\[[0-9;]*m")

// width returns the terminal columns that the longest line of s takes.
func width(s string) int {
	if isPlain(s, ' ') {
		return len(s)
	}

	widest := 0
	for line := range strings.SplitSeq(s, "\n") {
		if strings.Contains(line, "\x1b[") {
			line = colour.ReplaceAllString(line, "")
		}

		widest = max(widest, runewidth.StringWidth(line))
	}

	return widest
}
