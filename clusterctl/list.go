// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
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

// showList shows the result of load, sorted and with the columns of the flags. nameOf
// returns the name of an item for -o name. empty is the sentence for an empty list.
func showList[T any](
	c *call, columns print.Columns[T], load func() (listing[T], error), nameOf func(T) string, empty string,
) error {
	// A wrong flag is refused before the request.
	layout, err := layoutOf(c, columns)
	if err != nil {
		return err
	}

	l, err := load()
	if err != nil {
		return err
	}

	if c.isEmpty(len(l.items)) && !l.stale {
		c.say("%s", empty)
		return nil
	}

	layout.Sort(l.items)

	answer := print.Answer{
		Wire: l.answer, Stale: l.stale,
		Table: func(p *print.Printer) { layout.Print(p, l.items) },
		Long:  func(p *print.Printer) { layout.Everything(columns).Print(p, l.items) },
	}
	for _, item := range l.items {
		answer.Names = append(answer.Names, nameOf(item))
	}

	return c.show(answer)
}

// isEmpty reports whether a list of so many items is shown as a sentence: a program gets an
// empty list, as does a script that takes tables without headers.
func (c *call) isEmpty(items int) bool {
	return items == 0 && c.forPeople() && !c.Bool("no-headers")
}
