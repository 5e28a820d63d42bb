// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// column is one column of a table of T. Its name is what --columns and --sort
// know it by; the header is the same in capitals.
type column[T any] struct {
	name  string
	wide  bool // shown with -o wide only, or when it is asked for
	cell  func(p paint, v *T) string
	order func(a, b *T) int // nil: by the cell
}

// columns are all columns of one kind of table, in the order they are shown.
type columns[T any] []column[T]

func (all columns[T]) names() []string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.name
	}

	return names
}

func (all columns[T]) get(name string) (column[T], error) {
	for _, c := range all {
		if strings.EqualFold(c.name, name) {
			return c, nil
		}
	}

	f := usagef("there is no column %q", name)
	if near := inventory.Closest(name, all.names()); near != "" {
		f.message += "; did you mean " + strconv.Quote(near) + "?"
	}

	return column[T]{}, f.do("the columns are %s", strings.Join(all.names(), ", "))
}

// layout is which columns are shown, and in which order rows come.
type layout[T any] struct {
	shown   []column[T]
	literal bool // exactly these, also where they are empty
	less    []func(a, b *T) int
}

// columnFlags are the options of a command that prints a table of columns.
func columnFlags(all []string) []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{
			Name:  "columns",
			Usage: "the `COLUMNS` of the table, separated by commas, of: " + strings.Join(all, ", "),
		},
		&cli.StringSliceFlag{
			Name:  "sort",
			Usage: "order by these `COLUMNS`, separated by commas; a - in front of one turns it round",
		},
	}
}

// read takes the layout from the command line.
func (all columns[T]) read(c *call) (layout[T], error) {
	var l layout[T]
	for _, name := range values(c, "columns") {
		col, err := all.get(name)
		if err != nil {
			return l, err
		}

		l.shown, l.literal = append(l.shown, col), true
	}

	if l.literal && c.format != formatTable && c.format != formatWide {
		return l, usagef("--columns is for tables, and -o %s prints none", c.format).do("leave one of them out")
	}

	for _, col := range all {
		if !l.literal && (!col.wide || c.format == formatWide) {
			l.shown = append(l.shown, col)
		}
	}

	for _, name := range values(c, "sort") {
		name, turned := strings.CutPrefix(name, "-")

		col, err := all.get(name)
		if err != nil {
			return l, err
		}

		order := col.order
		if order == nil {
			order = func(a, b *T) int { return strings.Compare(col.cell(false, a), col.cell(false, b)) }
		}

		if turned {
			straight := order
			order = func(a, b *T) int { return straight(b, a) }
		}

		l.less = append(l.less, order)
	}

	return l, nil
}

// all is the layout with every column.
func (l layout[T]) all(of columns[T]) layout[T] {
	l.shown = of
	return l
}

// sort orders items by the columns asked for; what is equal in these keeps its order.
func (l layout[T]) sort(items []T) {
	if len(l.less) == 0 {
		return
	}

	slices.SortStableFunc(items, func(a, b T) int {
		for _, less := range l.less {
			if d := less(&a, &b); d != 0 {
				return d
			}
		}

		return 0
	})
}

// print prints the table.
func (l layout[T]) print(p *printer, items []T) {
	rows := make([][]string, len(items))
	for i := range items {
		rows[i] = l.cells(p.paint, &items[i])
	}

	p.began = true
	p.w.WriteString(grid(l.header(), rows, l.literal))
}

func (l layout[T]) header() []string {
	header := make([]string, len(l.shown))
	for i, c := range l.shown {
		header[i] = strings.ToUpper(strings.ReplaceAll(c.name, "-", " "))
	}

	return header
}

func (l layout[T]) cells(p paint, item *T) []string {
	cells := make([]string, len(l.shown))
	for i, c := range l.shown {
		cells[i] = c.cell(p, item)
	}

	return cells
}

// byTime orders by a moment; what has none comes last.
func byTime[T any](at func(v *T) time.Time) func(a, b *T) int {
	return func(a, b *T) int {
		x, y := at(a), at(b)
		switch {
		case x.IsZero() || y.IsZero():
			return cmp.Compare(zeroLast(x), zeroLast(y))
		}

		return x.Compare(y)
	}
}

func zeroLast(t time.Time) int {
	if t.IsZero() {
		return 1
	}

	return 0
}

func moment(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}

	return *t
}

// byNumber orders texts that are numbers, as the ids of jobs are.
func byNumber[T any](of func(v *T) string) func(a, b *T) int {
	return func(a, b *T) int {
		x, y := of(a), of(b)
		return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
	}
}

var nodeColumns = columns[api.Node]{
	{name: "name", cell: func(_ paint, n *api.Node) string { return oneLine(n.Name) }},
	{name: "address", cell: func(_ paint, n *api.Node) string { return oneLine(n.Addr) }},
	{name: "status", cell: func(p paint, n *api.Node) string { return p.status(n.Status) }},
	{name: "state", cell: func(p paint, n *api.Node) string { return p.state(n.State) }},
	{name: "group", cell: func(_ paint, n *api.Node) string { return oneLine(n.Group) }},
	{name: "job", order: byNumber(func(n *api.Node) string { return n.Job }), cell: func(_ paint, n *api.Node) string {
		job := oneLine(n.Job)
		if n.Job != "" && n.Verb != "" {
			job += " (" + oneLine(string(n.Verb)) + ")"
		}

		return job
	}},
	{
		name: "labels",
		wide: true,
		cell: func(_ paint, n *api.Node) string { return strings.ReplaceAll(labels(n.Labels), "\n", ",") },
	},
	{
		name:  "applied",
		wide:  true,
		order: byNumber(func(n *api.Node) string { return n.Applied }),
		cell:  func(_ paint, n *api.Node) string { return oneLine(n.Applied) },
	},
	{name: "was", wide: true, cell: func(_ paint, n *api.Node) string { return oneLine(string(n.PrevStatus)) }},
	{
		name: "seen-by",
		wide: true,
		cell: func(_ paint, n *api.Node) string { return strings.Join(seenBy(n, true), ",") },
	},
	{
		name:  "created",
		wide:  true,
		order: byTime(func(n *api.Node) time.Time { return n.Created }),
		cell:  func(_ paint, n *api.Node) string { return timeText(n.Created) },
	},
	{
		name:  "updated",
		wide:  true,
		order: byTime(func(n *api.Node) time.Time { return n.Updated }),
		cell:  func(_ paint, n *api.Node) string { return timeText(n.Updated) },
	},
	{name: "note", cell: func(_ paint, n *api.Node) string { return clip(nodeNote(*n), 72) }},
}

// seenBy are the observers that see a node, or have lost it.
func seenBy(n *api.Node, alive bool) []string {
	var names []string
	for observer, sees := range n.Seen {
		if sees == alive {
			names = append(names, oneLine(observer))
		}
	}

	slices.Sort(names)

	return names
}

var jobColumns = columns[api.Job]{
	{
		name:  "id",
		order: byNumber(func(j *api.Job) string { return j.ID }),
		cell:  func(_ paint, j *api.Job) string { return oneLine(j.ID) },
	},
	{name: "verb", cell: func(_ paint, j *api.Job) string { return oneLine(string(j.Verb)) }},
	{name: "status", cell: func(p paint, j *api.Job) string { return p.job(j.Status) }},
	{name: "phase", wide: true, cell: func(_ paint, j *api.Job) string { return oneLine(j.Phase) }},
	{
		name:  "place",
		wide:  true,
		order: func(a, b *api.Job) int { return cmp.Compare(a.Position, b.Position) },
		cell:  func(_ paint, j *api.Job) string { return positive(j.Position) },
	},
	{name: "nodes", cell: func(_ paint, j *api.Job) string { return clip(list(targets(*j)), 40) }},
	{name: "group", cell: func(_ paint, j *api.Job) string { return oneLine(j.Group) }},
	{name: "actor", cell: func(_ paint, j *api.Job) string { return oneLine(j.Actor) }},
	{
		name:  "accepted",
		order: byTime(func(j *api.Job) time.Time { return j.Accepted }),
		cell:  func(_ paint, j *api.Job) string { return timeText(j.Accepted) },
	},
	{
		name:  "started",
		wide:  true,
		order: byTime(func(j *api.Job) time.Time { return moment(j.Started) }),
		cell:  func(_ paint, j *api.Job) string { return timePtr(j.Started) },
	},
	{
		name:  "ended",
		wide:  true,
		order: byTime(func(j *api.Job) time.Time { return moment(j.Ended) }),
		cell:  func(_ paint, j *api.Job) string { return timePtr(j.Ended) },
	},
	{
		name:  "deadline",
		wide:  true,
		order: byTime(func(j *api.Job) time.Time { return moment(j.Deadline) }),
		cell:  func(_ paint, j *api.Job) string { return timePtr(j.Deadline) },
	},
	{
		name:  "took",
		order: func(a, b *api.Job) int { return cmp.Compare(length(a), length(b)) },
		cell:  func(_ paint, j *api.Job) string { return took(j.Started, j.Ended) },
	},
	{name: "cause", wide: true, cell: func(_ paint, j *api.Job) string { return oneLine(j.Cause) }},
	{
		name:  "retry-of",
		wide:  true,
		order: byNumber(func(j *api.Job) string { return j.RetryOf }),
		cell:  func(_ paint, j *api.Job) string { return oneLine(j.RetryOf) },
	},
	{name: "instance", wide: true, cell: func(_ paint, j *api.Job) string { return oneLine(j.Instance) }},
	{name: "note", cell: func(_ paint, j *api.Job) string {
		if j.Status == api.Queued {
			return clip(waits(*j), 72)
		}

		return clip(oneLine(j.Message), 72)
	}},
}

// length is how long a job took; nothing as long as it has not ended.
func length(j *api.Job) time.Duration {
	if j.Started == nil || j.Ended == nil {
		return 0
	}

	return j.Ended.Sub(*j.Started)
}

// targets are the nodes of a job, or the addresses of a discover.
func targets(j api.Job) []string {
	if len(j.Nodes) > 0 {
		return j.Nodes
	}

	return j.Addrs
}
