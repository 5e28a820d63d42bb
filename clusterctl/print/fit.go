// SPDX-License-Identifier: Apache-2.0

package print

import (
	"slices"
	"strings"
)

// Style is the appearance of an answer for people. The zero value is that of a file
// or a pipe: whole text without colours.
type Style struct {
	Paint     Paint
	Width     int  // the columns of the terminal; 0: rows have no limit
	NoHeaders bool // tables begin with their first row
}

// narrowGap separates two columns of a table that has to fit a terminal.
const narrowGap = "  "

// cutTo is the least width of a column that is cut, in terminal columns.
const cutTo = 10

// cut lists the headers of columns that a narrow terminal cuts: prose and lists,
// whose beginning is of use.
var cut = []string{
	"NOTE", "MESSAGE", "ERROR", "REASON", "VALUE", "NODES", "HOSTS", "LABELS", "FAILED TASK", "PLAYBOOK", "JOB",
	"CHANGE",
}

// omitted lists the headers of columns that a narrow terminal leaves out, the least
// important first. Every column is in the answer of -o wide, or in a file.
var omitted = []string{
	"KIND", "PHASE", "SEEN BY", "PREVIOUS", "CREATED", "UPDATED", "UNREACHABLE", "CHANGED", "FAILED", "OK",
	"ADDRESS", "ACTOR", "DURATION", "STARTED", "STATE", "ADDR", "ORIGIN", "SETTABLE", "GROUP", "AGE",
}

// fit reduces the widths of columns until a row fits limit, and returns the gap
// between the columns. 0 is the width of a column without a place. literal keeps
// every column.
func fit(header []string, widths []int, limit int, literal bool) (fitted []int, gap string) {
	if limit <= 0 || total(widths, len(columnGap)) <= limit {
		return widths, columnGap
	}

	gap = narrowGap
	natural := slices.Clone(widths)
	widths = slices.Clone(widths)

	// The least that every column needs decides on the columns to leave out.
	for i := range widths {
		if i < len(header) && slices.Contains(cut, header[i]) {
			widths[i] = min(widths[i], cutTo)
		}
	}

	for _, name := range omitted {
		if literal || total(widths, len(gap)) <= limit {
			break
		}

		if i := slices.Index(header, name); i > 0 {
			widths[i], natural[i] = 0, 0
		}
	}

	// The columns that are cut share the rest, the first one first in line.
	for i := range widths {
		widths[i] += max(0, min(natural[i]-widths[i], limit-total(widths, len(gap))))
	}

	// A terminal that is too narrow for even that cuts the widest column.
	for total(widths, len(gap)) > limit {
		i := slices.Index(widths, slices.Max(widths))
		if widths[i] <= 1 {
			break
		}
		widths[i]--
	}

	return widths, gap
}

// total returns the width of a row.
func total(widths []int, gap int) int {
	sum := 0
	for _, w := range widths {
		if w > 0 {
			sum += w + gap
		}
	}

	return max(0, sum-gap)
}

// clipCell cuts a cell to a width and keeps its colour.
func clipCell(cell string, limit int) string {
	if width(cell) <= limit {
		return cell
	}

	if !strings.Contains(cell, "\x1b[") {
		return Clip(cell, limit)
	}

	// Paint puts one colour around a whole cell.
	clipped := Clip(colour.ReplaceAllString(cell, ""), limit)

	return colour.FindString(cell) + clipped + "\x1b[0m"
}
