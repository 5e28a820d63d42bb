// SPDX-License-Identifier: Apache-2.0

package print

import (
	"bytes"
	"fmt"
	"strings"
)

// Printer collects an answer for people: tables and blocks of fields, with an
// empty line between blocks.
type Printer struct {
	Style

	buf   bytes.Buffer
	began bool
}

// Bytes returns the text printed so far.
func (p *Printer) Bytes() []byte { return p.buf.Bytes() }

// Printf prints formatted text as it stands.
func (p *Printer) Printf(format string, args ...any) { fmt.Fprintf(&p.buf, format, args...) }

// gap separates the next block from the text before it.
func (p *Printer) gap() {
	if p.began {
		p.buf.WriteByte('\n')
	}

	p.began = true
}

// Rows prints a table without lines. Columns that are empty in every row are left out.
func (p *Printer) Rows(header []string, rows [][]string) {
	p.began = true
	p.buf.WriteString(p.grid(header, rows, false))
}

// fold breaks lines that do not fit the terminal after used columns of it.
func (p *Printer) fold(text string, used int) string {
	if p.Width <= 0 {
		return text
	}
	return Fold(text, max(p.Width-used, 1))
}

// Field is one line of a block: a name and its value.
type Field struct{ Name, Value string }

// Fields prints a block of names and values, without the empty values. Further
// lines of a value are indented below the first; a terminal gets lines that fit it.
func (p *Printer) Fields(fields []Field) {
	p.gap()

	// Empty fields are not printed, and take no part in the width.
	column := 0
	for _, f := range fields {
		if f.Value != "" {
			column = max(column, width(f.Name)+2)
		}
	}

	for _, f := range fields {
		if f.Value == "" {
			continue
		}

		indent := "\n" + strings.Repeat(" ", column)
		value := strings.ReplaceAll(p.fold(strings.TrimRight(f.Value, "\n"), column), "\n", indent)
		p.Printf("%s%s\n", Pad(f.Name, column), value)
	}
}
