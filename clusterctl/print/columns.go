// SPDX-License-Identifier: Apache-2.0

package print

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
)

// Column is one column of a table of T.
type Column[T any] struct {
	Name  string // for --columns and --sort; in capitals, the header
	Title string // in details
	Wide  bool   // shown only with -o wide, or on request
	// Passing marks a cell that changes with the time. A table that grows by a row
	// for each change leaves it out.
	Passing bool
	Cell    func(p Paint, v *T) string
	Order   func(a, b *T) int // nil: by the text of the cell
	value   func(v *T) any    // of the field; nil: the cell takes more than one
}

// Columns are all columns of a table, in the order of display.
type Columns[T any] []Column[T]

// Names returns the names of all columns.
func (all Columns[T]) Names() []string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Name
	}

	return names
}

func (all Columns[T]) get(name string) (Column[T], error) {
	for _, c := range all {
		if strings.EqualFold(c.Name, name) {
			return c, nil
		}
	}

	err := exit.Usagef("unknown column %q", name)
	if near := inventory.Closest(name, all.Names()); near != "" {
		err.Message += "; did you mean " + strconv.Quote(near) + "?"
	}

	return Column[T]{}, err.Try("the columns are %s", strings.Join(all.Names(), ", "))
}

// Layout selects the columns of a table and the order of its rows.
type Layout[T any] struct {
	shown   []Column[T]
	literal bool // the operator chose the columns: keep empty ones
	order   []func(a, b *T) int
}

// Layout returns the layout for the names given with --columns and --sort; a
// leading - reverses the order of a column. Without names, the format decides.
// The error is an *exit.Error that lists the columns.
func (all Columns[T]) Layout(shown, sort []string, format string) (Layout[T], error) {
	var l Layout[T]
	for _, name := range shown {
		col, err := all.get(name)
		if err != nil {
			return l, err
		}
		l.shown, l.literal = append(l.shown, col), true
	}

	// Other formats have no columns to choose.
	if l.literal && format != FormatTable && format != FormatWide {
		return l, exit.Usagef("--columns works with tables only, not with -o %s", format).Try("drop one of the two " +
			"options")
	}

	// The default: every column, or every narrow one.
	if !l.literal {
		for _, col := range all {
			if !col.Wide || format == FormatWide {
				l.shown = append(l.shown, col)
			}
		}
	}

	for _, name := range sort {
		// A minus reverses one column, not the whole order.
		name, descending := strings.CutPrefix(name, "-")

		col, err := all.get(name)
		if err != nil {
			return l, err
		}
		l.order = append(l.order, col.compare(descending))
	}

	return l, nil
}

func (c Column[T]) compare(descending bool) func(a, b *T) int {
	order := c.Order
	if order == nil {
		// Without colours, which would sort by their codes.
		order = func(a, b *T) int { return strings.Compare(c.Cell(false, a), c.Cell(false, b)) }
	}

	if descending {
		return func(a, b *T) int { return order(b, a) }
	}

	return order
}

// Everything returns the layout with every column of a table.
func (l Layout[T]) Everything(all Columns[T]) Layout[T] {
	l.shown = all
	return l
}

// Lasting returns the layout without the cells that change with the time.
func (l Layout[T]) Lasting() Layout[T] {
	l.shown = slices.DeleteFunc(slices.Clone(l.shown), func(c Column[T]) bool { return c.Passing })
	return l
}

// Narrow returns the layout without the columns that a narrow terminal leaves out of
// a table of items. Further rows are appended to that table, with longer notes.
func (l Layout[T]) Narrow(s Style, items []T) Layout[T] {
	rows := make([][]string, len(items))
	for i := range items {
		rows[i] = l.Cells(false, &items[i])
	}

	header := l.Header()

	widths := columnWidths(header, rows, true)
	for i, name := range header {
		if slices.Contains(cut, name) {
			widths[i] = max(widths[i], cutTo)
		}
	}

	fitted, _ := fit(header, widths, s.Width, l.literal)

	shown := l.shown
	l.shown = nil

	for i, c := range shown {
		if fitted[i] > 0 {
			l.shown = append(l.shown, c)
		}
	}

	return l
}

// Sort orders items stably by the columns of --sort.
func (l Layout[T]) Sort(items []T) {
	if len(l.order) == 0 {
		return
	}

	slices.SortStableFunc(items, func(a, b T) int {
		for _, compare := range l.order {
			if d := compare(&a, &b); d != 0 {
				return d
			}
		}

		return 0
	})
}

// Print prints items as a table.
func (l Layout[T]) Print(p *Printer, items []T) {
	rows := make([][]string, len(items))
	for i := range items {
		rows[i] = l.Cells(p.Paint, &items[i])
	}

	p.began = true
	p.buf.WriteString(p.grid(l.Header(), rows, l.literal))
}

// Header returns the headers of the columns shown.
func (l Layout[T]) Header() []string {
	header := make([]string, len(l.shown))
	for i, c := range l.shown {
		header[i] = strings.ToUpper(strings.ReplaceAll(c.Name, "-", " "))
	}

	return header
}

// Cells returns the row of one item.
func (l Layout[T]) Cells(p Paint, item *T) []string {
	cells := make([]string, len(l.shown))
	for i, c := range l.shown {
		cells[i] = c.Cell(p, item)
	}

	return cells
}

// compareTimes orders by a moment; items without one come last.
func compareTimes(a, b time.Time) int {
	// An ascending order starts with the oldest known moment.
	if a.IsZero() || b.IsZero() {
		return cmp.Compare(zeroLast(a), zeroLast(b))
	}
	return a.Compare(b)
}

// sorted returns the columns with another order for one of them.
func (all Columns[T]) sorted(name string, order func(a, b *T) int) Columns[T] {
	for i := range all {
		if all[i].Name == name {
			all[i].Order = order
		}
	}

	return all
}

func zeroLast(t time.Time) int {
	if t.IsZero() {
		return 1
	}
	return 0
}

func deref(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// ByNumber orders by a decimal number without leading zeros, such as a job's id.
func ByNumber[T any](of func(v *T) string) func(a, b *T) int {
	return func(a, b *T) int {
		x, y := of(a), of(b)
		return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
	}
}
