// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

const watchHelp = "It ends with Ctrl-C (exit code 130), and goes on by itself when the manager was started again."

func watchFlag() cli.Flag {
	return &cli.BoolFlag{
		Name:    "watch",
		Aliases: []string{"w"},
		Usage:   "go on, and print a row whenever one changes, until Ctrl-C; for tables",
	}
}

// watch calls told with everything that a watch tells. Outages are told on stderr; a manager that does
// not answer at the beginning is an error.
func (c *call) watch(ctx context.Context, o client.WatchOptions, told func(api.Change) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outage := outage{note: func(text string) { c.say("%s", text) }}
	synced, stale, seen := false, false, map[string]bool{}

	o.Lost = func(err error) {
		if !synced {
			cancel(err)
			return
		}

		outage.begin(err)
	}
	for change, err := range c.manager.Watch(ctx, o) {
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}

			if errors.Is(err, ErrInterrupted) || errors.Is(err, context.Canceled) {
				return failf(ExitInterrupted, "") // that is how a watch ends
			}

			return err
		}

		outage.over()

		switch change.Type {
		case api.ChangePut:
			if !synced {
				seen[change.Name] = true
			}
		case api.ChangeSync, api.ChangeProgress:
			for _, name := range o.Names {
				if !synced && !seen[name] {
					c.say("there is no node %s yet", name)
				}
			}

			synced = true

			if change.Stale != stale {
				stale = change.Stale
				c.say("%s", map[bool]string{
					true:  "warning: the manager has had no word from its store for a while; there may be changes that it does not know",
					false: "the manager's store answers again",
				}[stale])
			}
		}

		if err := told(change); err != nil {
			return err
		}
	}

	return nil
}

// nodesWatch prints what changes on nodes.
func nodesWatch(ctx context.Context, c *call) error {
	o := client.WatchOptions{
		Kinds: []api.WatchKind{
			api.WatchNodes,
		},
		Names:    c.args,
		Groups:   values(c, "group"),
		Selector: c.String("selector"),
	}
	known := map[string]api.Node{}
	synced := false

	return c.watch(ctx, o, func(change api.Change) error {
		if c.format == formatJSON {
			if change.Type == api.ChangeProgress {
				return nil
			}

			var line bytes.Buffer
			e := json.NewEncoder(&line)
			e.SetEscapeHTML(false)

			if err := e.Encode(change); err != nil {
				return err
			}

			return c.write(line.Bytes())
		}

		p := &printer{w: &bytes.Buffer{}, paint: paint(c.outTTY && colourful())}
		switch change.Type {
		case api.ChangePut:
			now, err := change.Node()
			if err != nil {
				return err
			}

			was, there := known[change.Name]
			known[change.Name] = now

			if !synced {
				return nil
			}

			if !there {
				p.changed(now.Name, append([]string{"new"}, p.differences(api.Node{}, now)...))
			} else if all := p.differences(was, now); len(all) > 0 {
				p.changed(now.Name, all)
			}
		case api.ChangeDelete:
			delete(known, change.Name)

			word := "forgotten"
			if len(o.Groups) > 0 || o.Selector != "" {
				word = "no longer chosen, or forgotten"
			}

			p.changed(change.Name, []string{p.paint.bad(word)})
		case api.ChangeSync:
			if synced {
				return nil // once more, after an outage
			}

			synced = true
			c.say("watching %s; Ctrl-C ends it", inventory.Count(len(known), "node", "nodes"))
		}

		return c.write(p.w.Bytes())
	})
}

// changed prints one line of a watch.
func (p *printer) changed(name string, what []string) {
	fmt.Fprintf(p.w, "%s  %s  %s\n", time.Now().Format("15:04:05"), oneLine(name), strings.Join(what, "; "))
}

// differences says what an operator sees of a change of a node.
func (p *printer) differences(was, now api.Node) []string {
	var out []string
	add := func(what, before, after string) {
		switch {
		case before == after:
		case before == "":
			out = append(out, what+" "+after)
		case after == "":
			out = append(out, "no "+what+" any more, was "+before)
		default:
			out = append(out, what+" "+before+" → "+after)
		}
	}
	add("status", p.paint.status(was.Status), p.paint.status(now.Status))
	add("state", p.paint.state(was.State), p.paint.state(now.State))
	add("group", oneLine(was.Group), oneLine(now.Group))
	add("address", oneLine(was.Addr), oneLine(now.Addr))

	if was.Job != now.Job && now.Job != "" {
		out = append(out, fmt.Sprintf("job %s (%s)", oneLine(now.Job), oneLine(string(now.Verb))))
	}

	add("labels", strings.ReplaceAll(labels(was.Labels), "\n", ","), strings.ReplaceAll(labels(now.Labels), "\n", ","))
	add("residue", list(was.Residue), list(now.Residue))
	add("duplicates", list(was.Duplicates), list(now.Duplicates))

	if was.LastError != now.LastError {
		if now.LastError == "" {
			out = append(out, "no error any more")
		} else {
			out = append(out, "error: "+p.paint.bad(clip(oneLine(now.LastError), 200)))
		}
	}

	return out
}

// followed is a table that goes on: a row for everything that there is, and
// then one whenever something has changed in a way that the table shows.
type followed[T any] struct {
	layout  layout[T]
	options client.WatchOptions
	decode  func(api.Change) (T, error)
	name    func(T) string // as the watch tells it
	shows   func(T) bool   // chooses among what is told
	order   func(a, b T) int
	most    int // rows at the beginning, the last in order; 0: all
}

func (f followed[T]) run(ctx context.Context, c *call) error {
	if c.format != formatTable && c.format != formatWide {
		return usagef("--watch is for tables, and -o %s prints none", c.format).
			do("leave one of them out; for programs there is clusterctl nodes watch -o json")
	}

	p := paint(c.outTTY && colourful())
	items := map[string]T{}       // what there is at the beginning; nil: it is over
	rows := map[string][]string{} // as they were printed last
	widths := make([]int, len(f.layout.shown))

	return c.watch(ctx, f.options, func(change api.Change) error {
		switch change.Type {
		case api.ChangePut:
			v, err := f.decode(change)
			switch {
			case err != nil:
				return err
			case items != nil:
				items[change.Name] = v
				return nil
			}

			printed, known := rows[change.Name]

			row := f.layout.cells(p, &v)
			switch shows := f.shows(v); {
			case !known && !shows, slices.Equal(row, printed):
				return nil
			case shows:
				rows[change.Name] = row
			default: // what it has become is shown once
				delete(rows, change.Name)
			}

			return c.write([]byte(aligned(widths, row)))
		case api.ChangeDelete:
			delete(items, change.Name)

			if _, known := rows[change.Name]; known {
				delete(rows, change.Name)
				c.say("%s is gone", change.Name)
			}
		case api.ChangeSync:
			if items == nil {
				return nil // once more, after an outage
			}

			all := slices.DeleteFunc(
				slices.SortedFunc(maps.Values(items), f.order),
				func(v T) bool { return !f.shows(v) },
			)
			if items = nil; f.most > 0 && len(all) > f.most {
				all = all[len(all)-f.most:]
			}

			f.layout.sort(all)

			table := [][]string{f.layout.header()}
			for _, v := range all {
				row := f.layout.cells(p, &v)
				rows[f.name(v)] = row
				table = append(table, row)
			}

			return c.write([]byte(aligned(widths, table...)))
		}

		return nil
	})
}

// aligned prints rows of a table whose columns are at least that wide, and makes
// them as wide as they have to be.
func aligned(widths []int, rows ...[]string) string {
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], width(cell))
		}
	}

	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-width(cell)) + between)
		}

		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}

	return b.String()
}

// followNodes is nodes get --watch.
func followNodes(ctx context.Context, c *call, l layout[api.Node], filter client.NodeFilter) error {
	return followed[api.Node]{
		layout: l,
		options: client.WatchOptions{
			Kinds: []api.WatchKind{
				api.WatchNodes,
			},
			Names:    filter.Names,
			Groups:   filter.Group,
			Selector: filter.Selector,
		},
		decode: api.Change.Node,
		name:   func(n api.Node) string { return n.Name },
		shows: func(n api.Node) bool {
			return (filter.Status == nil || slices.Contains(filter.Status, n.Status)) &&
				(filter.State == nil || slices.Contains(filter.State, n.State))
		},
		order: func(a, b api.Node) int { return strings.Compare(a.Name, b.Name) },
	}.run(ctx, c)
}

// followJobs is job list --watch.
func followJobs(ctx context.Context, c *call, l layout[api.Job], filter client.JobFilter) error {
	older := byNumber(func(j *api.Job) string { return j.ID })

	return followed[api.Job]{
		layout: l, options: client.WatchOptions{Kinds: []api.WatchKind{api.WatchJobs}}, decode: api.Change.Job,
		name: func(j api.Job) string { return j.ID },
		shows: func(j api.Job) bool {
			return (filter.Status == nil || slices.Contains(filter.Status, j.Status)) &&
				(filter.Node == "" || slices.Contains(targets(j), filter.Node))
		},
		order: func(a, b api.Job) int { return older(&a, &b) },
		most:  filter.Limit,
	}.run(ctx, c)
}
