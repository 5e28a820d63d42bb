// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

var classes = noun[api.Class]{
	columns: print.ClassColumns,
	name:    func(c api.Class) string { return c.Name },
	empty:   "there is no class of hardware",
	all:     every((*client.Client).Classes),
}

func classRows() rows {
	name := func(c api.Class) string { return c.Name }
	offered := classes.offer(func(c api.Class) candidate { return candidate{c.Name, c.Nodes} })

	return rows{
		"class list": classes.list(leaf{}),
		"class create": {
			names: true, needs: "from", complete: oneNode, formats: namelessFormats,
			run: func(ctx context.Context, c *call) error {
				class, err := c.manager.CreateClass(ctx, api.ClassRequest{
					Name: c.args[0], From: c.String("from"), Nodes: c.String("nodes"),
				})
				if err := view(c, (*print.Printer).Class, name)(class, err); err != nil {
					return err
				}

				c.say("to see which nodes differ from it: %s class compare %s", c.self(), class.Name)

				return nil
			},
		},
		"class compare": {complete: classThenNodes(offered), formats: namelessFormats, run: compareClass},
		"class show": {
			names: true, complete: offered,
			run: func(ctx context.Context, c *call) error {
				return view(c, (*print.Printer).Class, name)(c.class(ctx, c.args[0]))
			},
		},
		"class delete": {
			complete: offered,
			run:      onEach((*client.Client).DeleteClass, "the class %s is deleted"),
		},
	}
}

// class returns the class with the name.
func (c *call) class(ctx context.Context, name string) (api.Class, error) {
	l, err := c.manager.Classes(ctx)
	if err != nil {
		return api.Class{}, err
	}

	for _, class := range l.Items {
		if class.Name == name {
			return class, nil
		}
	}

	return api.Class{}, exit.Errorf(exit.NotFound, "there is no class %q", name).
		Try("to list the classes: %s class list", c.self())
}

// classThenNodes completes a class, and then nodes.
func classThenNodes(offered positional) positional {
	return func(ctx context.Context, c *completer, current string) []candidate {
		if len(c.args) == 0 {
			return offered(ctx, c, current)
		}
		return c.nodes(ctx, nil)
	}
}

// comparedAtOnce is the number of nodes whose facts are requested at the same time.
const comparedAtOnce = 8

// compareClass compares the newest facts of nodes with a class: the named nodes, or else those of the class that match
// the selector.
func compareClass(ctx context.Context, c *call) error {
	if len(c.args) > 1 && c.IsSet("selector") {
		return exit.Usagef("class compare takes names of nodes or a selector, not both").Try("give one of them")
	}

	class, err := c.class(ctx, c.args[0])
	if err != nil {
		return err
	}

	var filter client.NodeFilter
	if len(c.args) > 1 {
		if filter.Names, err = c.expand(ctx, c.args[1:]); err != nil {
			return err
		}
	} else {
		filter.Selector = strings.Trim(class.Nodes+","+c.String("selector"), ",")
	}

	nodes, err := c.manager.Nodes(ctx, filter)
	if err != nil {
		return err
	}

	if len(nodes.Items) == 0 {
		return exit.Errorf(exit.NotFound, "no node matches %s", filter.Selector).
			Try("to see the nodes of the class: %s class show %s", c.self(), class.Name)
	}

	compared, failed := c.compareWith(ctx, class, nodes.Items)
	if len(failed) == len(nodes.Items) || ctx.Err() != nil && len(failed) > 0 {
		return failed[0]
	}

	if err := view(c, (*print.Printer).ClassComparison)(compared, nil); err != nil {
		return err
	}

	if len(failed) > 0 {
		return exit.Errorf(exit.Code(failed[0]), "the facts of %d of %d nodes could not be read: %v", len(failed),
			len(nodes.Items), failed[0])
	}

	return nil
}

// compareWith compares the newest facts of nodes with a class. A node whose facts cannot be read is among the nodes,
// and its error among the others.
func (c *call) compareWith(ctx context.Context, class api.Class, nodes []api.Node) (api.ClassComparison, []error) {
	all, failed := make([]api.ComparedNode, 0, len(nodes)), []error(nil)

	for some := range slices.Chunk(nodes, comparedAtOnce) {
		found, errs := make([]api.ComparedNode, len(some)), make([]error, len(some))

		var group sync.WaitGroup
		for i, n := range some {
			group.Go(func() { found[i], errs[i] = c.compareOne(ctx, class, n) })
		}

		group.Wait()

		all = append(all, found...)
		failed = append(failed, slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
	}

	out := api.ClassComparison{Class: class.Name, Nodes: []api.ComparedNode{}}
	for _, n := range all {
		if n.Inspection != nil && len(n.Differences) == 0 {
			out.Same++
			continue
		}
		out.Nodes = append(out.Nodes, n)
	}

	return out, failed
}

func (c *call) compareOne(ctx context.Context, class api.Class, n api.Node) (api.ComparedNode, error) {
	out := api.ComparedNode{Node: n.Name}
	if n.Hardware == nil {
		return out, nil
	}

	f, err := c.manager.Facts(ctx, n.Name, 0)
	if err != nil {
		out.Error = err.Error()
		return out, err
	}

	out.Inspection, out.Differences = &f.Inspection, class.Shape.Compare(f.Facts)

	return out, nil
}
