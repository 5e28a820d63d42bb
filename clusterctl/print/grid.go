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
// without text is left out unless literal is set.
func (s Style) grid(header []string, rows [][]string, literal bool) string {
	widths, gap := fit(header, columnWidths(header, rows, literal), s.Width, literal)
	if header != nil && !s.NoHeaders {
		rows = append([][]string{header}, rows...)
	}

	var b strings.Builder
	for _, r := range rows {
		// Each pass writes one line of the row's cells.
		for len(r) > 0 {
			r = gridLine(&b, r, widths, len(gap))
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
func gridLine(b *strings.Builder, cells []string, widths []int, gap int) (rest []string) {
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

		cell = clipCell(cell, widths[i])

		if cell != "" {
			b.WriteString(strings.Repeat(" ", pending))
			b.WriteString(cell)
			pending = 0
		}

		pending += widths[i] - width(cell) + gap
	}

	b.WriteByte('\n')

	return rest
}

// Align lays out rows that are appended to a table already printed. It widens
// widths where a cell needs more room; a row that no longer fits a terminal is cut.
func (s Style) Align(header []string, widths []int, rows ...[]string) string {
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], width(cell))
		}
	}

	// Every column keeps its place: the header is above, far away.
	fitted, gap := fit(header, widths, s.Width, true)

	var b strings.Builder
	for _, row := range rows {
		gridLine(&b, row, fitted, len(gap))
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
