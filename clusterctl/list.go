// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

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

// changeEach changes the things that the arguments name, one by one; done is the sentence about each.
// The first refusal ends the command.
func (c *call) changeEach(
	ctx context.Context, change func(context.Context, string) (api.Changed, error), done string,
) error {
	for _, ref := range c.args {
		changed, err := change(ctx, ref)
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

// itemsOf returns the items of an answer.
func itemsOf[T any](l api.List[T], err error) ([]T, error) { return l.Items, err }
