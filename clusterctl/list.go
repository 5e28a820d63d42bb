// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// listing is a list of the manager: its items, and the answer that has them.
type listing[T any] struct {
	answer any
	items  []T
	stale  bool
}

// listingOf returns the listing of an answer.
func listingOf[T any](l api.List[T], err error) (listing[T], error) {
	return listing[T]{l, l.Items, l.Stale}, err
}

// noun is a kind of thing of which the manager has a list.
type noun[T any] struct {
	columns print.Columns[T]
	long    func(p *print.Printer, items []T) // -o long; nil: a table of all columns
	name    func(T) string                    // -o name
	empty   string                            // the sentence about a list without items
	all     func(ctx context.Context, c *call) (listing[T], error)
}

// every is the noun.all of a list that takes no arguments.
func every[T any](
	list func(*client.Client, context.Context, ...client.Page) (api.List[T], error),
) func(context.Context, *call) (listing[T], error) {
	return func(ctx context.Context, c *call) (listing[T], error) { return listingOf(list(c.manager, ctx)) }
}

// offer completes the things; all of them must take no arguments.
func (n noun[T]) offer(as func(T) candidate) positional {
	return offer(func(ctx context.Context, m *client.Client) ([]T, error) {
		l, err := n.all(ctx, &call{manager: m})
		return l.items, err
	}, as)
}

// list returns the command that lists the things, in each format and with the columns of the flags.
func (n noun[T]) list(l leaf) leaf {
	l.formats, l.columns, l.run = tableFormats, n.columns.Names(), n.showAll
	return l
}

func (n noun[T]) showAll(ctx context.Context, c *call) error {
	// A wrong flag is refused before the request.
	layout, err := layoutOf(c, n.columns)
	if err != nil {
		return err
	}

	l, err := n.all(ctx, c)
	if err != nil {
		return err
	}

	if c.isEmpty(len(l.items)) && !l.stale {
		c.say("%s", n.empty)
		return nil
	}

	return n.show(c, layout, l)
}

// show prints the items in the order and with the columns of the layout.
func (n noun[T]) show(c *call, layout print.Layout[T], l listing[T]) error {
	layout.Sort(l.items)

	long := n.long
	if long == nil {
		long = layout.Everything(n.columns).Print
	}

	answer := print.Answer{
		Wire: l.answer, Stale: l.stale,
		Table: func(p *print.Printer) { layout.Print(p, l.items) },
		Long:  func(p *print.Printer) { long(p, l.items) },
	}
	if n.name != nil {
		for _, item := range l.items {
			answer.Names = append(answer.Names, n.name(item))
		}
	}

	return c.show(answer)
}

// isEmpty reports whether a list of so many items is shown as a sentence: a program gets an
// empty list, as does a script that takes tables without headers.
func (c *call) isEmpty(items int) bool {
	return items == 0 && c.forPeople() && !c.Bool("no-headers")
}

// view returns a function that prints an answer of the manager, unless the request failed. name is
// for -o name.
func view[T any](c *call, draw func(*print.Printer, T), name ...func(T) string) func(T, error) error {
	return func(v T, err error) error {
		if err != nil {
			return err
		}

		answer := print.Answer{Wire: v, Table: func(p *print.Printer) { draw(p, v) }}
		for _, of := range name {
			answer.Names = append(answer.Names, of(v))
		}

		return c.show(answer)
	}
}

// one is what a leaf runs that asks the manager for one thing, and prints it.
func one[T any](
	ask func(*client.Client, context.Context) (T, error), draw func(*print.Printer, T),
) func(context.Context, *call) error {
	return func(ctx context.Context, c *call) error { return view(c, draw)(ask(c.manager, ctx)) }
}

// named is one for the thing that the argument names. name is for -o name.
func named[T any](
	ask func(*client.Client, context.Context, string) (T, error), draw func(*print.Printer, T),
	name ...func(T) string,
) func(context.Context, *call) error {
	return func(ctx context.Context, c *call) error {
		return view(c, draw, name...)(ask(c.manager, ctx, c.args[0]))
	}
}

// onEach is what a leaf runs that changes the things which the arguments name, one by one; done is the sentence about
// each. The first refusal ends the command.
func onEach(
	change func(*client.Client, context.Context, string) (api.Changed, error), done string,
) func(context.Context, *call) error {
	return func(ctx context.Context, c *call) error {
		for _, ref := range c.args {
			changed, err := change(c.manager, ctx, ref)
			if err != nil {
				return err
			}
			for _, w := range changed.Warnings {
				c.say("warning: %s", w)
			}

			c.say(done, ref)
		}

		return nil
	}
}

// offer completes the things of a list of the manager.
func offer[T any](
	all func(context.Context, *client.Client) ([]T, error), as func(T) candidate,
) positional {
	return func(ctx context.Context, c *completer, _ string) []candidate {
		if c.manager == nil {
			return nil
		}

		items, err := all(ctx, c.manager)
		if err != nil {
			return nil
		}

		var out []candidate
		for _, item := range items {
			if one := as(item); one.word != "" {
				out = append(out, one)
			}
		}

		return out
	}
}

// checkWatch refuses --watch with a format other than a table.
func (c *call) checkWatch() error {
	if c.format == print.FormatTable || c.format == print.FormatWide {
		return nil
	}

	return exit.Usagef("--watch works with tables only, not with -o %s", c.format).
		Try("drop one of the two options; for programs: clusterctl nodes watch -o json")
}

// columnFlags are the options of a command that prints a table with columns.
func columnFlags(all []string) []cli.Flag {
	return []cli.Flag{
		listFlag("columns", "the `COLUMNS` of the table, separated by commas: "+strings.Join(all, ", ")),
		listFlag("sort", "sort by these `COLUMNS`, separated by commas; a leading - reverses one"),
	}
}

// layoutOf reads the options of columnFlags.
func layoutOf[T any](c *call, all print.Columns[T]) (print.Layout[T], error) {
	return all.Layout(values(c, "columns"), values(c, "sort"), c.format)
}
