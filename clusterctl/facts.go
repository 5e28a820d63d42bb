// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

func factsRows() rows {
	show := leaf{
		names: true, formats: namelessFormats,
		run: func(ctx context.Context, c *call) error {
			return view(c, (*print.Printer).Facts)(c.facts(ctx))
		},
	}

	// The group does the same without its word.
	short := show
	short.args, short.flags = "NAME", flagsAt("nodes facts show")

	return rows{
		"nodes facts": short, "nodes facts show": show,
		"nodes facts diff": {
			names: true, formats: namelessFormats,
			run: func(ctx context.Context, c *call) error {
				f, err := c.facts(ctx)
				if err != nil {
					return err
				}

				switch {
				case len(f.Inspections) == 1 && f.Inspection.Number == 1:
					c.say("one inspection of %s so far; there is nothing to compare it with", f.Node)
				case f.Inspection.Number == f.Inspections[0].Number:
					return c.noInspectionBefore(ctx, f)
				case len(f.Changes) == 0:
					c.say("nothing has changed on %s since the inspection before", f.Node)
				}

				return view(c, (*print.Printer).FactsChanges)(api.FactsChanges{
					Node: f.Node, Inspection: f.Inspection, Changes: append([]string{}, f.Changes...),
				}, nil)
			},
		},
	}
}

// noInspectionBefore is the error for a comparison with an inspection that is not kept.
func (c *call) noInspectionBefore(ctx context.Context, f api.NodeFacts) error {
	n, err := c.manager.Node(ctx, f.Node)
	if err != nil {
		return err
	}

	remedy, actions := inventory.Toward(
		inventory.VerbInspect, inventory.Node{Name: n.Name, Status: n.Status, Job: n.Job},
	)

	return exit.Errorf(exit.Failed, "no inspection of %s before number %d is kept", f.Node, f.Inspection.Number).
		Try("%s", exit.Remedy(c.self(), remedy, actions))
}

// facts returns what the chosen inspection of a node has found.
func (c *call) facts(ctx context.Context) (api.NodeFacts, error) {
	at, err := number(c, "at", 1)
	if err != nil {
		return api.NodeFacts{}, err
	}
	return c.manager.Facts(ctx, c.args[0], at)
}
