// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"maps"
	"slices"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// Table is a table that grows: first the rows of the initial state, then a row
// for every change that the table shows.
type Table[T any] struct {
	Layout  print.Layout[T]
	Options client.WatchOptions
	Decode  func(api.Change) (T, error)
	Name    func(T) string // as in api.Change
	Match   func(T) bool   // selects the rows; a row that stops matching is printed once more
	Order   func(a, b T) int
	Limit   int // rows of the initial state, the last in order; 0: all
}

// Follow prints the table until ctx is cancelled.
func (t Table[T]) Follow(ctx context.Context, from Watcher, out Output) error {
	t.Layout = t.Layout.Lasting()
	f := &following[T]{
		Table:   t,
		out:     out,
		initial: map[string]T{},
		printed: map[string][]string{},
	}

	return each(ctx, from, t.Options, out, f.show)
}

// following is a table being followed.
type following[T any] struct {
	Table[T]
	out     Output
	initial map[string]T        // nil after the first sync
	printed map[string][]string // the last row of each item
	widths  []int
}

func (f *following[T]) show(change api.Change) error {
	switch change.Type {
	case api.ChangePut:
		v, err := f.Decode(change)
		if err != nil {
			return err
		}

		if f.initial != nil {
			f.initial[change.Name] = v
			return nil
		}

		return f.update(change.Name, v)
	case api.ChangeDelete:
		delete(f.initial, change.Name)

		if _, shown := f.printed[change.Name]; shown {
			delete(f.printed, change.Name)
			f.out.Say("%s is gone", change.Name)
		}
	case api.ChangeSync:
		// A second sync follows an outage.
		if f.initial != nil {
			return f.begin()
		}
	}

	return nil
}

// begin prints the initial state.
func (f *following[T]) begin() error {
	items := slices.DeleteFunc(slices.SortedFunc(maps.Values(f.initial), f.Order),
		func(v T) bool { return !f.Match(v) })
	f.initial = nil

	if f.Limit > 0 && len(items) > f.Limit {
		items = items[len(items)-f.Limit:]
	}

	f.Layout = f.Layout.Narrow(f.out.Style, items)
	f.Layout.Sort(items)
	f.widths = make([]int, len(f.Layout.Header()))

	var table [][]string
	if !f.out.NoHeaders {
		table = append(table, f.Layout.Header())
	}

	for _, v := range items {
		row := f.Layout.Cells(f.out.Paint, &v)
		f.printed[f.Name(v)] = row
		table = append(table, row)
	}

	return f.out.Write([]byte(f.out.Align(f.Layout.Header(), f.widths, table...)))
}

// update prints the row of an item if the row changed.
func (f *following[T]) update(name string, v T) error {
	last, shown := f.printed[name]
	match := f.Match(v)

	row := f.Layout.Cells(f.out.Paint, &v)
	if !shown && !match || slices.Equal(row, last) {
		return nil
	}

	// An item that stops matching gets its last row now.
	delete(f.printed, name)

	if match {
		f.printed[name] = row
	}

	return f.out.Write([]byte(f.out.Align(f.Layout.Header(), f.widths, row)))
}
